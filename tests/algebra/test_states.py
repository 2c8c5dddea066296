"""Partial states against plain loops: lifted, split, joined and taken back in any way."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feature_cases import function
from feature_oracle import aggregate, same
from state_cases import COLUMNS, INF, Row, columns_of, combined, lifted, rows_of
from strategies import NAN
from windrow import agg
from windrow.algebra.aggregation import Aggregation
from windrow.algebra.evaluate import evaluate, states_of
from windrow.algebra.function import Function
from windrow.algebra.functions import FUNCTIONS
from windrow.algebra.kinds import wide
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.states import States
from windrow.errors import DataError, DefinitionError

SHAPES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis")
EXACT = [name for name in FUNCTIONS if name != "approx_percentile"]  # while values are few
GROUPS = [name for name in FUNCTIONS if FUNCTIONS[name].law.invertible]


def as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return INF if value > 0 else -INF


def root(value: Fraction) -> float:
    """The square root, also of numbers beyond the doubles."""
    shift = 2 * (max(0, 200 - value.numerator.bit_length() + value.denominator.bit_length()) // 2)
    scaled = math.isqrt(int(value * 2**shift)) if value else 0
    return as_float(Fraction(scaled) / 2 ** (shift // 2))


def shape(name: str, values: list[float]) -> float | None:
    """As `feature_oracle.moments`; but for the variance, no step overflows or rounds early."""
    n = len(values)
    if n == 0 or (name.endswith("_samp") and n < 2):
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / n
    m2, m3, m4 = (sum((v - mean) ** p for v in exact) for p in (2, 3, 4))
    m2, m3, m4 = Fraction(m2), Fraction(m3), Fraction(m4)
    if math.isinf(as_float(m2 / n)):
        return math.nan if name in ("skewness", "kurtosis") else INF
    if name in ("var_pop", "stddev_pop"):
        return as_float(m2 / n) if name == "var_pop" else root(m2 / n)
    if name in ("var_samp", "stddev_samp"):
        return as_float(m2 / (n - 1)) if name == "var_samp" else root(m2 / (n - 1))
    if m2 == 0:
        return None
    if name == "skewness":
        return root(n * m3 * m3 / m2**3) * (1 if m3 > 0 else -1)
    return as_float(n * m4 / (m2 * m2) - 3)


def expected(one: Function, rows: list[Row]) -> Any:
    name = one.name
    plain = [value for _, value in rows]
    if name in SHAPES:
        return shape(name, [float(v) for v in plain])
    if name in ("sum", "avg") and plain and isinstance(plain[0], float):
        if not all(map(math.isfinite, plain)):
            return sum(plain) / (len(plain) if name == "avg" else 1)
        total = as_float(Fraction(sum(map(Fraction, plain))))
        return total / len(plain) if name == "avg" else total
    if name == "avg" and plain and isinstance(plain[0], Decimal):
        return float(sum(map(Fraction, plain)) / len(plain))
    with localcontext(prec=100):
        return aggregate(name, rows, getattr(one, "k", None))


def fits(value: Any) -> bool:
    if isinstance(value, Decimal):
        return abs(value) < Decimal(10) ** 36
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def check(states: States, found: pa.Array, rows: list[list[Row]]) -> None:
    wanted = [expected(states.function, [r for r in one if r[1] is not None]) for one in rows]
    if states.function.name == "sum" and not all(map(fits, wanted)):
        with pytest.raises(DataError, match="does not fit"):
            states.lower(found)
        return
    result = states.lower(found)
    result.validate(full=True)
    assert result.type == states.function.result(states.value_type)
    for got, want in zip(result.to_pylist(), wanted, strict=True):
        assert same(got, want), f"{got!r} is not {want!r}"


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=60)
@given(data=st.data())
def test_any_grouping_gives_the_result(name: str, data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(columns_of(FUNCTIONS[name])))
    rows = data.draw(rows_of(column, nulls=True))
    states = States.of(function(name, data.draw(st.sampled_from([1, 2, 50]))), COLUMNS[column][0])
    keys, parts = 2, 6
    part = data.draw(st.lists(st.integers(0, parts - 1), min_size=len(rows), max_size=len(rows)))
    key_of = data.draw(st.lists(st.integers(0, keys - 1), min_size=parts, max_size=parts))
    level = lifted(states, rows, part, parts)
    owners = key_of
    for _ in range(data.draw(st.integers(0, 2))):
        # Join some pairs of states of one key, in a random order, and go on with what is left.
        order = data.draw(st.permutations(range(len(owners))))
        groups, fresh = [], []
        for at in order:
            joins = data.draw(st.booleans()) and owners[at] in fresh
            groups.append(fresh.index(owners[at]) if joins else len(fresh))
            if not joins:
                fresh.append(owners[at])
        level = states.combine(level.take(pa.array(order)), np.array(groups), len(fresh))
        level = states.deserialise(states.serialise(level))
        owners = fresh
    found = states.combine(level, np.array(owners), keys)
    by_key = [[r for r, p in zip(rows, part, strict=True) if key_of[p] == g] for g in range(keys)]
    assert states.rows(found).tolist() == [len(one) for one in by_key]
    check(states, found, by_key)


@pytest.mark.parametrize("name", GROUPS)
@settings(max_examples=60)
@given(data=st.data())
def test_histories_end_in_what_is_left(name: str, data: st.DataObject) -> None:
    """Rows come and go in any order, some before they came; what remains decides."""
    column = data.draw(st.sampled_from(columns_of(FUNCTIONS[name])))
    rest = data.draw(rows_of(column, 8, nulls=True))
    gone = data.draw(rows_of(column, 8, nulls=True))
    states = States.of(function(name), COLUMNS[column][0])
    updates = [(row, 1) for row in [*rest, *gone]] + [(row, -1) for row in gone]
    updates = data.draw(st.permutations(updates))
    cut = data.draw(st.integers(0, len(updates)))
    parts = [
        lifted(states, [row for row, _ in some], None, 1, [diff for _, diff in some])
        for some in (updates[:cut], updates[cut:])
    ]
    found = combined(states, parts)
    never = lifted(states, rest)
    assert states.serialise(found).equals(states.serialise(never))  # the states, bit by bit
    assert states.rows(found).tolist() == [len(rest)]
    check(states, found, [rest])


@settings(max_examples=150)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=12))
@example([1e308, 1e308, -1e308])
@example([1e16, 1.0, -1e16])
@example([5e-324, -5e-324, 2.0**-1022])
def test_float_sums_are_the_nearest_double(values: list[float]) -> None:
    states = states_of(agg.sum("x"), pa.float64())
    each = lifted(states, [(0, v) for v in values], list(range(len(values))), len(values))
    (found,) = states.lower(states.combine(each, np.zeros(len(values), np.int64), 1)).to_pylist()
    if not values:
        assert found is None
    else:
        assert found == as_float(Fraction(sum(map(Fraction, values))))


def test_shape_of_values_far_from_zero() -> None:
    values = [1e9 + x for x in (0.25, 0.5, 0.75, 3.0)]
    for name in SHAPES:
        states = states_of(Aggregation(function(name), "x"), pa.float64())
        found = states.lower(lifted(states, [(0, v) for v in values], [0] * 4, 1))
        assert same(found[0].as_py(), shape(name, values))


def test_a_sum_overflows_only_when_lowered() -> None:
    for type_, most in ((pa.int64(), 2**63 - 1), (pa.decimal128(38, 0), Decimal(10**38 - 1))):
        states = states_of(agg.sum("x"), type_)
        large = lifted(states, [(0, most)] * 3, [0, 0, 0], 1)
        with pytest.raises(DataError, match="x: a sum does not fit"):
            states.lower(large)
        less = states.subtract(large, lifted(states, [(0, most)] * 2, [0, 0], 1))
        assert states.lower(less).to_pylist() == [most]
        average = states_of(agg.avg("x"), type_)
        assert average.lower(large).to_pylist() == [float(most)]


@pytest.mark.parametrize("name", ["count", "sum", "avg", "var_pop", "unique_count", "histogram"])
def test_taking_out_what_was_not_in(name: str) -> None:
    states = states_of(Aggregation(function(name), "x"), pa.int64())
    one, other = lifted(states, [(0, 5)]), lifted(states, [(0, 7)])
    below = states.subtract(states.empty(1), one)
    with pytest.raises(DataError, match="x: more was subtracted from a state of"):
        states.lower(below)
    # Still a group: the order in which changes arrive does not matter.
    assert combined(states, [below, one]).equals(states.empty(1))
    # As many rows as were there, but another one. A count has no way to know.
    if name != "count":
        with pytest.raises(DataError, match="x: more was subtracted from a state of"):
            states.lower(states.subtract(one, other))
    # A NULL instead of a value.
    null = lifted(states, [(0, None)])
    with pytest.raises(DataError, match="x: more was subtracted from a state of"):
        states.lower(states.subtract(null, one))


def test_a_group_whose_rows_are_all_null_is_there() -> None:
    """SQL's three answers: no row of the group, a row with NULL, a row with a value."""
    states = States.of(function("sum"), pa.int64())
    values, groups = pa.array([None, 5, None, 5]), np.array([1, 2, 2, 3])
    found = states.lift(values.cast(pa.int64()), None, groups, 4, np.array([1, 1, 1, 0]))
    assert states.rows(found).tolist() == [0, 1, 2, 0]
    assert states.lower(found).to_pylist() == [None, None, 5, None]
    there = states.rows(found) > 0
    assert states.lower(found.filter(pa.array(there))).to_pylist() == [None, 5]
    # The value goes, its group stays for the NULL that is left.
    less = states.lift(pa.array([5]), None, np.array([2]), 4, np.array([-1]))
    left = states.combine(pa.concat_arrays([found, less]), np.tile(np.arange(4), 2), 4)
    assert states.rows(left).tolist() == [0, 1, 1, 0]
    assert states.lower(left).to_pylist() == [None, None, None, None]


def test_times_are_asked_for_where_they_count() -> None:
    for name, declared in FUNCTIONS.items():
        states = States.of(function(name), pa.bool_() if "bool" in name else pa.int64())
        values = pa.array([True] if "bool" in name else [1])
        if declared.ordered:
            with pytest.raises(DefinitionError, match="the order of rows counts; give their times"):
                states.lift(values, None, np.array([0]), 1)
        else:
            assert len(states.lift(values, None, np.array([0]), 1)) == 1


def test_values_that_occur_very_often() -> None:
    """Multiplicities are not rows: what is held does not grow with them."""
    often = 10**12
    for name, wanted in [
        ("sum", 5 * often),
        ("avg", 5.0),
        ("unique_count", 1),
        ("histogram", [(5, often)]),
        ("max", 5),
        ("last_k", [5, 5]),
        ("approx_percentile", [5.0]),
        ("approx_unique_count", 1),
        ("approx_frequent_k", [(5, often)]),
    ]:
        states = States.of(function(name), pa.int64())
        found = states.deserialise(states.serialise(lifted(states, [(0, 5)], None, 1, [often])))
        assert states.lower(found).to_pylist() == [wanted], name
        assert states.rows(found).tolist() == [often]


def test_carrying_on_the_way_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits are carried every 2**29 additions; here every second one."""
    numbers = np.array([-1, 2**63 - 1, -(2**63), 5, -7, 2**62, -(2**62)] * 3)
    halves = np.stack([numbers, numbers >> 63], axis=1).view(np.uint64)
    bits = np.array([1e300, -1.5, 1e-300, -1e300, 0.1, -7.0, 2.0**60] * 3).view(np.int64)
    order, starts = np.arange(21), np.array([0, 1, 4, 4, 21])
    single = np.arange(22)
    monkeypatch.setattr(wide, "_CARRY_EVERY", 2)
    pairs = [(wide.sum_halves, (halves, order, starts))]
    pairs += [(wide.sum_powers, (bits, order, starts, power)) for power in (1, 3, 4)]
    each = wide.sum_powers(bits, order, single, 3)
    pairs.append((wide.add_wide, (*each, np.ones(21, np.int64), order, starts)))
    for kernel, arguments in pairs:
        compiled, plain = kernel(*arguments), kernel.py_func(*arguments)
        assert all(np.array_equal(a, b) for a, b in zip(compiled, plain, strict=True))


def test_collected_structs_keep_their_arrival_among_ties() -> None:
    type_ = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.string())))])
    states = states_of(agg.collect_list("x"), type_)
    values = [{"a": 2, "b": ["x", None]}, {"a": None, "b": None}, {"a": 1, "b": []}]
    rows = list(zip([5, 5, 1], values, strict=True))
    each = lifted(states, rows, [0, 1, 1], 3)
    back = states.deserialise(states.serialise(each))
    assert back.equals(each)
    found = states.lower(states.combine(back, np.zeros(3, np.int64), 1))
    assert found.to_pylist() == [[values[2], values[0], values[1]]]


@settings(max_examples=20)
@given(st.lists(st.floats() | st.sampled_from([NAN, 1.0]), min_size=1, max_size=60), st.data())
def test_percentiles_are_exact_for_few_values(values: list[float], data: st.DataObject) -> None:
    states = states_of(agg.approx_percentile("x", [0.0, 0.3, 0.5, 1.0]), pa.float64())
    part = [data.draw(st.integers(0, 3)) for _ in values]
    each = lifted(states, [(0, v) for v in values], part, 4)
    (found,) = states.lower(states.combine(each, np.zeros(4, np.int64), 1)).to_pylist()
    one = Column(pa.array(values), np.zeros(len(values), np.int64))
    whole = Ranges(np.array([0]), np.array([len(values)]))
    (wanted,) = evaluate(Aggregation(states.function, "x"), one, whole).to_pylist()
    assert same(found, wanted)


def test_sketches_of_many_values_stay_within_their_error() -> None:
    rng = np.random.default_rng(7)
    n, parts = 20_000, 50
    groups, times = rng.integers(0, parts, n), np.zeros(n, np.int64)
    into = np.zeros(parts, np.int64)

    numbers = rng.normal(size=n)
    states = states_of(agg.approx_percentile("x", [0.01, 0.5, 0.99]), pa.float64())
    each = states.lift(pa.array(numbers), times, groups, parts)
    (found,) = states.lower(states.combine(each, into, 1)).to_pylist()
    for got, fraction in zip(found, [0.01, 0.5, 0.99], strict=True):
        assert abs((numbers <= got).mean() - fraction) < 0.03

    ids = rng.integers(0, 15_000, n)
    states = states_of(agg.approx_unique_count("x"), pa.int64())
    each = states.lift(pa.array(ids), times, groups, parts)
    joined = states.combine(each, into, 1)
    (found,) = states.lower(joined).to_pylist()
    assert found == pytest.approx(np.unique(ids).size, rel=0.08)
    again = states.combine(pa.concat_arrays([joined, *[each] * 2]), np.zeros(1 + 2 * parts, int), 1)
    assert states.lower(again).to_pylist() == pytest.approx([found], rel=1e-9)  # idempotent

    words = np.minimum(rng.zipf(1.3, n), 10**6)
    states = states_of(agg.approx_frequent_k("x", 5), pa.int64())
    each = states.lift(pa.array(words), times, groups, parts)
    (pairs,) = states.lower(states.combine(each, into, 1)).to_pylist()
    values, counts = np.unique(words, return_counts=True)
    best = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert [value for value, _ in pairs] == [1, 2, 3, 4, 5]
    for value, count in pairs:
        assert abs(count - best[value]) <= n * 3.5 / 1024
