"""Partial states of every aggregate: split anyhow, joined anyhow, they give the same result."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feature_oracle import aggregate, same
from strategies import NAN
from windrow import agg
from windrow.algebra.aggregation import Aggregation
from windrow.algebra.operations import OPERATIONS
from windrow.algebra.ranges import Column, Ranges, evaluate
from windrow.algebra.states import FORMAT, STATES, States, wide
from windrow.errors import DataError, DefinitionError
from windrow.rows.types import canonical_values

INF = float("inf")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int32(), [-3, 0, 1, 1, 7, 256]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, -(2**61), 5]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, 1e300, -1e300, 0.1, 1e-9, 5e-324, 1.7e308]),
    "wild": (pa.float64(), [1.0, NAN, INF, -INF, 2.5]),
    "single": (pa.float32(), [0.5, -0.0, NAN, 3.0]),
    "money": (pa.decimal128(38, 2), [Decimal("0.10"), Decimal("-3.99"), Decimal("1e30")]),
    "cents": (pa.decimal128(10, 2), [Decimal("0.10"), Decimal("-3.99")]),
    "text": (pa.string(), ["", "a", "longer than eight a", "longer than eight b", "é"]),
    "blob": (pa.binary(), [b"", b"\x00", b"\xff\x80"]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "moment": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)]),
}
SKETCHES = ("approx_percentile", "approx_unique_count", "approx_frequent_k")
SHAPES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis")
PAIRS = [(n, c) for n in OPERATIONS for c in COLUMNS if OPERATIONS[n].takes(COLUMNS[c][0])]
INVERTIBLE = [(n, c) for n, c in PAIRS if OPERATIONS[n].law.value == "group"]
EXACT = [(n, c) for n, c in PAIRS if n != "approx_percentile"]

Row = tuple[int, Any]


def made(name: str, k: int = 2) -> Aggregation:
    if name == "approx_percentile":
        return agg.approx_percentile("x", [0.0, 0.5, 1.0])
    return Aggregation(OPERATIONS[name], "x", k if OPERATIONS[name].has_k else None)


def lifted(states: States, rows: list[Row], groups: list[int], count: int) -> pa.Array:
    return states.lift(
        pa.array([value for _, value in rows], states.value_type),
        np.array([time for time, _ in rows], np.int64),
        np.array(groups, np.int64),
        count,
    )


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


def expected(one: Aggregation, rows: list[Row]) -> Any:
    name = one.operation.name
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
        return aggregate(name, rows, one.k)


def fits(value: Any) -> bool:
    if isinstance(value, Decimal):
        return abs(value) < Decimal(10) ** 36
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def check(states: States, found: pa.Array, rows: list[list[Row]]) -> None:
    wanted = [expected(states.aggregation, one) for one in rows]
    if states.aggregation.operation.name == "sum" and not all(map(fits, wanted)):
        with pytest.raises(DataError, match="does not fit"):
            states.lower(found)
        return
    result = states.lower(found)
    result.validate(full=True)
    assert result.type == states.aggregation.operation.result(states.value_type)
    for got, want in zip(result.to_pylist(), wanted, strict=True):
        assert same(got, want), f"{got!r} is not {want!r}"


def rows_of(column: str, most: int = 20) -> st.SearchStrategy[list[Row]]:
    values = st.sampled_from(COLUMNS[column][1])
    if column == "float":
        values = values | st.floats(allow_nan=False, allow_infinity=False)
    return st.lists(st.tuples(st.sampled_from([-5, 0, 3, 10**12]), values), max_size=most)


@pytest.mark.parametrize(("name", "column"), EXACT)
@settings(max_examples=12)
@given(data=st.data())
def test_any_grouping_gives_the_result(name: str, column: str, data: st.DataObject) -> None:
    rows = data.draw(rows_of(column))
    k = data.draw(st.sampled_from([1, 2, 50]))
    states = States.of(made(name, k), COLUMNS[column][0])
    keys, parts = 2, 6
    part = [data.draw(st.integers(0, parts - 1)) for _ in rows]
    key_of = [data.draw(st.integers(0, keys - 1)) for _ in range(parts)]
    level = lifted(states, rows, part, parts)
    assert level.type == states.type
    level.validate(full=True)
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
    check(states, found, by_key)


@pytest.mark.parametrize(("name", "column"), INVERTIBLE)
@settings(max_examples=12)
@given(data=st.data())
def test_what_is_subtracted_leaves_no_trace(name: str, column: str, data: st.DataObject) -> None:
    rows = data.draw(rows_of(column))
    leaves = [data.draw(st.booleans()) for _ in rows]
    states = States.of(made(name), COLUMNS[column][0])
    assert states.invertible
    gone = [row for row, out in zip(rows, leaves, strict=True) if out]
    rest = [row for row, out in zip(rows, leaves, strict=True) if not out]
    whole = lifted(states, rows, [0] * len(rows), 1)
    found = states.subtract(whole, lifted(states, gone, [0] * len(gone), 1))
    never = lifted(states, rest, [0] * len(rest), 1)
    assert states.serialise(found).equals(states.serialise(never))  # the states, bit by bit
    check(states, found, [rest])
    assert states.subtract(whole, whole).equals(states.empty(1))


@pytest.mark.parametrize(("name", "column"), PAIRS)
@settings(max_examples=5)
@given(data=st.data())
def test_bytes_round_trip(name: str, column: str, data: st.DataObject) -> None:
    rows = data.draw(rows_of(column))
    states = States.of(made(name), COLUMNS[column][0])
    before = lifted(states, rows, [i % 3 for i in range(len(rows))], 4)
    written = states.serialise(before)
    assert all(one.as_py().startswith(states.header) for one in written)
    assert repr(states.deserialise(written).to_pylist()) == repr(before.to_pylist())
    # A slice is read as a slice, and nothing as nothing.
    middle = states.deserialise(written.slice(1, 2))
    assert repr(middle.to_pylist()) == repr(before.slice(1, 2).to_pylist())
    assert states.serialise(before.slice(1, 2)).equals(written.slice(1, 2))
    assert len(states.deserialise(states.serialise(before.slice(0, 0)))) == 0
    for one in written.to_pylist():
        with pytest.raises(DataError):
            states.deserialise(pa.array([one[:-1]]))
        with pytest.raises(DataError, match="damaged"):
            states.deserialise(pa.array([one + b"\x00"]))


AGREE = {
    "float": st.floats(-1e6, 1e6, width=32),
    "wild": st.sampled_from(COLUMNS["wild"][1]),
    "small": st.integers(-100, 100),
    "text": st.sampled_from(COLUMNS["text"][1]),
    "cents": st.sampled_from(COLUMNS["cents"][1]),
    "flag": st.booleans(),
}


@pytest.mark.parametrize(
    ("name", "column"), [(n, c) for n, c in PAIRS if c in AGREE and n not in SKETCHES]
)
@settings(max_examples=6)
@given(data=st.data())
def test_states_agree_with_evaluation_over_ranges(
    name: str, column: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(AGREE[column], min_size=1, max_size=15))
    one, type_ = made(name), COLUMNS[column][0]
    states = States.of(one, type_)
    rows = list(enumerate(values))
    whole = Ranges(np.array([0]), np.array([len(values)]))
    entered = canonical_values(pa.array(values, type_))
    (wanted,) = evaluate(one, Column(entered, np.arange(len(values))), whole)
    (found,) = states.lower(lifted(states, rows, [0] * len(rows), 1))
    if name in ("skewness", "kurtosis") and wanted.is_valid:
        assert found.as_py() == pytest.approx(wanted.as_py(), rel=1e-9, abs=1e-9, nan_ok=True)
    else:
        want = wanted.as_py()
        if isinstance(want, list) and pa.types.is_map(wanted.type):
            assert repr(found.as_py()) == repr(want)
        else:
            assert same(found.as_py(), want)


@settings(max_examples=150)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=12))
@example([1e308, 1e308, -1e308])
@example([1e16, 1.0, -1e16])
@example([5e-324, -5e-324, 2.0**-1022])
def test_float_sums_are_the_nearest_double(values: list[float]) -> None:
    states = States.of(agg.sum("x"), pa.float64())
    each = lifted(states, [(0, v) for v in values], list(range(len(values))), len(values))
    (found,) = states.lower(states.combine(each, np.zeros(len(values), np.int64), 1)).to_pylist()
    if not values:
        assert found is None
    else:
        assert found == as_float(Fraction(sum(map(Fraction, values))))


def test_shape_of_values_far_from_zero() -> None:
    values = [1e9 + x for x in (0.25, 0.5, 0.75, 3.0)]
    for name in SHAPES:
        states = States.of(made(name), pa.float64())
        found = states.lower(lifted(states, [(0, v) for v in values], [0] * 4, 1))
        assert same(found[0].as_py(), shape(name, values))


def test_a_sum_overflows_only_when_lowered() -> None:
    for type_, most in ((pa.int64(), 2**63 - 1), (pa.decimal128(38, 0), Decimal(10**38 - 1))):
        states = States.of(agg.sum("x"), type_)
        large = lifted(states, [(0, most)] * 3, [0, 0, 0], 1)
        with pytest.raises(DataError, match="x: a sum does not fit"):
            states.lower(large)
        less = states.subtract(large, lifted(states, [(0, most)] * 2, [0, 0], 1))
        assert states.lower(less).to_pylist() == [most]
        average = States.of(agg.avg("x"), type_)
        assert average.lower(large).to_pylist() == [float(most)]


@pytest.mark.parametrize(("name", "column"), PAIRS)
def test_empty_states(name: str, column: str) -> None:
    states = States.of(made(name), COLUMNS[column][0])
    empty = states.empty(2)
    assert states.lower(empty).to_pylist() == [OPERATIONS[name].of_nothing] * 2
    value = COLUMNS[column][1][-1]
    one = lifted(states, [(7, value)], [0], 1)
    joined = states.combine(pa.concat_arrays([empty, one]), np.zeros(3, np.int64), 1)
    assert repr(joined.to_pylist()) == repr(one.to_pylist())
    assert len(states.combine(states.empty(0), np.zeros(0, np.int64), 0)) == 0
    assert len(states.lower(states.empty(0))) == 0


@pytest.mark.parametrize("name", [n for n in OPERATIONS if OPERATIONS[n].law.value != "group"])
def test_other_classes_refuse_to_subtract(name: str) -> None:
    states = States.of(made(name), pa.int64())
    assert not states.invertible
    with pytest.raises(DefinitionError, match=f"{name} .class {OPERATIONS[name].law.value}"):
        states.subtract(states.empty(1), states.empty(1))


@pytest.mark.parametrize("name", ["count", "sum", "unique_count", "histogram"])
def test_taking_out_what_was_not_in(name: str) -> None:
    states = States.of(made(name), pa.int64())
    one = lifted(states, [(0, 5)], [0], 1)
    below = states.subtract(states.empty(1), one)
    with pytest.raises(DataError, match="more was subtracted"):
        states.lower(below)
    # Still a group: the order in which changes arrive does not matter.
    joined = states.combine(pa.concat_arrays([below, one]), np.zeros(2, np.int64), 1)
    assert joined.equals(states.empty(1))


def test_bytes_of_another_kind_are_refused() -> None:
    total = States.of(agg.sum("x"), pa.int64())
    (one,) = total.serialise(lifted(total, [(0, 5)], [0], 1)).to_pylist()

    def refused(data: bytes | None, message: str, by: States = total) -> None:
        with pytest.raises(DataError, match=message):
            by.deserialise(pa.array([one if by is total else data, data], pa.binary()))

    refused(bytes([FORMAT + 1]) + one[1:], "x_sum: a state has format version 2; .* version 1")
    refused(one, "x_max: the bytes are a state of sum or avg", States.of(agg.max("x"), pa.int64()))
    refused(bytes([FORMAT, 200]) + one[2:], "an unknown kind .200")
    refused(one, "another type than double", States.of(agg.sum("x"), pa.float64()))
    refused(b"", "too short")
    refused(None, "NULL")
    refused(one[:-2], "damaged")
    top = States.of(agg.top_k("x", 3), pa.int64())
    more = States.of(agg.top_k("x", 4), pa.int64())
    with pytest.raises(DataError, match="x_top_4: a state was made with another k than 4"):
        more.deserialise(top.serialise(top.empty(1)))


@pytest.mark.parametrize(("name", "column"), [p for p in PAIRS if p[0] not in SKETCHES])
@settings(max_examples=5)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(name: str, column: str, data: st.DataObject) -> None:
    states = States.of(made(name), COLUMNS[column][0])
    rows = data.draw(rows_of(column, 5))
    (one,) = states.serialise(lifted(states, rows, [0] * len(rows), 1)).to_pylist()
    size = len(states.header)
    rest = bytearray(one[size:])
    for _ in range(data.draw(st.integers(1, 3))):
        rest[data.draw(st.integers(0, len(rest) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        read = states.deserialise(pa.array([one[:size] + bytes(rest)]))
        states.lower(states.combine(read, np.zeros(1, np.int64), 1))


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
    for function, arguments in pairs:
        compiled, plain = function(*arguments), function.py_func(*arguments)
        assert all(np.array_equal(a, b) for a, b in zip(compiled, plain, strict=True))


def test_aggregates_of_one_code_share_their_states() -> None:
    mean, total = States.of(agg.avg("x"), pa.int64()), States.of(agg.sum("x"), pa.int64())
    data = total.serialise(lifted(total, [(0, 5), (0, 8)], [0, 0], 1))
    assert mean.lower(mean.deserialise(data)).to_pylist() == [6.5]
    assert STATES.keys() == OPERATIONS.keys()


def test_the_bytes_of_version_1() -> None:
    """What rests in stores: these bytes may never read as anything else."""
    golden = [
        (agg.count("x"), pa.int64(), [(0, 7)] * 3, "01 01 00 06"),
        (agg.sum("x"), pa.int64(), [(0, 1000), (0, -1)], "01 02 05 04 08 00 00 e7 03"),
        (agg.sum("x"), pa.float64(), [(0, 0.5), (0, NAN)], "01 02 07 04 02 00 00 08 ff ff 80 00"),
        (agg.last("x"), pa.string(), [(3, "é")], "01 0a 0b 02 04 c3 a9 06"),
        (agg.top_k("x", 2), pa.int16(), [(0, 1), (0, 2)], "01 0e 03 04 04 02 00 01 00"),
        (agg.histogram("x"), pa.bool_(), [(0, True)] * 2, "01 12 01 02 01 04"),
    ]
    for one, type_, rows, data in golden:
        states = States.of(one, type_)
        state = lifted(states, rows, [0] * len(rows), 1)
        assert states.serialise(state)[0].as_py().hex(" ") == data
        assert states.deserialise(pa.array([bytes.fromhex(data)])).equals(state)


def test_states_rest_in_parquet_and_travel_by_pickle(tmp_path: Any) -> None:
    for name, column in PAIRS:
        states = States.of(made(name), COLUMNS[column][0])
        rows = [(i, v) for i, v in enumerate(COLUMNS[column][1])]
        made_states = lifted(states, rows, [0] * len(rows), 2)
        assert pickle.loads(pickle.dumps(states.type)) == states.type
        pq.write_table(pa.table({"state": made_states}), tmp_path / "states.parquet")
        back = pq.read_table(tmp_path / "states.parquet").column("state").combine_chunks()
        assert repr(back.to_pylist()) == repr(made_states.to_pylist())


def test_collected_structs_keep_their_arrival_among_ties() -> None:
    type_ = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.string())))])
    states = States.of(agg.collect_list("x"), type_)
    values = [{"a": 2, "b": ["x", None]}, {"a": None, "b": None}, {"a": 1, "b": []}]
    rows = list(zip([5, 5, 1], values, strict=True))
    each = lifted(states, rows, [0, 1, 1], 3)
    back = states.deserialise(states.serialise(each))
    assert back.equals(each)
    found = states.lower(states.combine(back, np.zeros(3, np.int64), 1))
    assert found.to_pylist() == [[values[2], values[0], values[1]]]


def test_of_refuses_what_the_operation_does_not_take() -> None:
    with pytest.raises(DefinitionError, match="x: sum: sum takes numbers, not string"):
        States.of(agg.sum("x"), pa.string())


@settings(max_examples=20)
@given(st.lists(st.floats() | st.sampled_from([NAN, 1.0]), min_size=1, max_size=60), st.data())
def test_percentiles_are_exact_for_few_values(values: list[float], data: st.DataObject) -> None:
    states = States.of(agg.approx_percentile("x", [0.0, 0.3, 0.5, 1.0]), pa.float64())
    part = [data.draw(st.integers(0, 3)) for _ in values]
    each = lifted(states, [(0, v) for v in values], part, 4)
    (found,) = states.lower(states.combine(each, np.zeros(4, np.int64), 1)).to_pylist()
    one = Column(pa.array(values), np.zeros(len(values), np.int64))
    whole = Ranges(np.array([0]), np.array([len(values)]))
    (wanted,) = evaluate(states.aggregation, one, whole).to_pylist()
    assert same(found, wanted)


def test_sketches_of_many_values_stay_within_their_error() -> None:
    rng = np.random.default_rng(7)
    n, parts = 20_000, 50
    groups, times = rng.integers(0, parts, n), np.zeros(n, np.int64)
    into = np.zeros(parts, np.int64)

    numbers = rng.normal(size=n)
    states = States.of(agg.approx_percentile("x", [0.01, 0.5, 0.99]), pa.float64())
    each = states.lift(pa.array(numbers), times, groups, parts)
    (found,) = states.lower(states.combine(each, into, 1)).to_pylist()
    for got, fraction in zip(found, [0.01, 0.5, 0.99], strict=True):
        assert abs((numbers <= got).mean() - fraction) < 0.03

    ids = rng.integers(0, 15_000, n)
    states = States.of(agg.approx_unique_count("x"), pa.int64())
    each = states.lift(pa.array(ids), times, groups, parts)
    joined = states.combine(each, into, 1)
    (found,) = states.lower(joined).to_pylist()
    assert found == pytest.approx(np.unique(ids).size, rel=0.08)
    again = states.combine(pa.concat_arrays([joined, *[each] * 2]), np.zeros(1 + 2 * parts, int), 1)
    assert states.lower(again).to_pylist() == pytest.approx([found], rel=1e-9)  # idempotent

    words = np.minimum(rng.zipf(1.3, n), 10**6)
    states = States.of(agg.approx_frequent_k("x", 5), pa.int64())
    each = states.lift(pa.array(words), times, groups, parts)
    (pairs,) = states.lower(states.combine(each, into, 1)).to_pylist()
    values, counts = np.unique(words, return_counts=True)
    best = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert [value for value, _ in pairs] == [1, 2, 3, 4, 5]
    for value, count in pairs:
        assert abs(count - best[value]) <= n * 3.5 / 1024
