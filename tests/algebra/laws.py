"""What every declared function has to keep to, by its law. No result is known beforehand.

Each check draws its own rows. A function is tested by being declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark import cloudpickle

from state_cases import COLUMNS, Row, columns_of, combined, lifted, rows_of
from windrow.algebra.aggregation import Aggregation
from windrow.algebra.evaluate import evaluate, evaluate_spans, range_states, span_states
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Kind
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.spans import SpannedColumn, Spans
from windrow.algebra.states import States
from windrow.errors import DataError, DefinitionError
from windrow.rows.types import canonical_values

Check = Callable[[Function, st.DataObject], None]
CHECKS: list[Check] = []


def law(check: Check) -> Check:
    CHECKS.append(check)
    return check


def drawn(function: Function, data: st.DataObject, most: int = 8) -> tuple[States, list[Row]]:
    column = data.draw(st.sampled_from(columns_of(function)), "column")
    rows = data.draw(rows_of(column, most, nulls=True), "rows")
    return States.of(function, COLUMNS[column][0]), rows


def result(states: States, found: pa.Array) -> Any:
    """What a column of states comes to; or that it overflows, whatever its order."""
    try:
        return [states.rows(found).tolist(), repr(states.lower(found).to_pylist())]
    except DataError as error:
        return "overflow" if "does not fit" in str(error) else error


def integers(least: int, most: int, size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=size, max_size=size)


def identical(states: States, one: pa.Array, other: pa.Array) -> bool:
    return bool(states.serialise(one).equals(states.serialise(other)))


@law
def any_grouping(function: Function, data: st.DataObject) -> None:
    """However rows are split and however the parts are joined, the result is the same."""
    states, rows = drawn(function, data)
    parts = 4
    part = data.draw(integers(0, parts - 1, len(rows)))
    whole = lifted(states, rows)
    each = lifted(states, rows, part, parts)
    assert each.type == states.type
    each.validate(full=True)
    order = np.array(data.draw(st.permutations(range(parts))))
    groups = np.array(data.draw(integers(0, 2, parts)))
    some = states.combine(each.take(pa.array(order)), groups, 3)
    found = combined(states, [some])
    assert result(states, found) == result(states, whole)
    if function.law.invertible:
        assert identical(states, found, whole)
    # The empty state joins without effect.
    joined = combined(states, [states.empty(2), whole])
    assert result(states, joined) == result(states, whole)


@law
def three_answers(function: Function, data: st.DataObject) -> None:
    """No rows, no values, and a value are told apart; the first two have the value of nothing."""
    states, rows = drawn(function, data)
    nulls: list[Row] = [(0, None)] * data.draw(st.integers(1, 3))
    none, null = states.empty(1), lifted(states, nulls)
    assert states.rows(none).tolist() == [0]
    assert states.rows(null).tolist() == [len(nulls)]
    for one in (none, null):
        assert states.lower(one).to_pylist() == [function.of_nothing]
        assert states.lower(one).type == function.result(states.value_type)
    # NULLs change the number of rows and nothing else.
    values = [row for row in rows if row[1] is not None]
    only, all_ = lifted(states, values), lifted(states, [*nulls, *values])
    assert states.rows(all_).tolist() == [len(nulls) + len(values)]
    assert states.rows(only).tolist() == [len(values)]
    assert str(result(states, all_)[1:]) == str(result(states, only)[1:])
    assert len(states.lower(states.empty(0))) == 0


@law
def diffs_are_repetitions(function: Function, data: st.DataObject) -> None:
    """A row with a diff is so many rows; with 0 it is none."""
    states, rows = drawn(function, data)
    diffs = data.draw(integers(0, 3, len(rows)))
    groups = data.draw(integers(0, 1, len(rows)))
    again = [i for i, diff in enumerate(diffs) for _ in range(diff)]
    found = lifted(states, rows, groups, 2, diffs)
    wanted = lifted(states, [rows[i] for i in again], [groups[i] for i in again], 2)
    assert result(states, found) == result(states, wanted)
    if function.law.invertible:
        assert identical(states, found, wanted)
    else:
        with pytest.raises(DefinitionError, match=f"{function.name} .class {function.law.value}"):
            lifted(states, [(0, None)], None, 1, [-1])


@law
def retractions(function: Function, data: st.DataObject) -> None:
    """Groups subtract without a trace, in any order; all others refuse, and say why."""
    states, rows = drawn(function, data)
    others = drawn_like(states, data)
    one, other = lifted(states, rows), lifted(states, others)
    assert states.invertible == function.law.invertible
    assert (type(states.kind).invert is not Kind.invert) >= states.invertible
    if not states.invertible:
        for refused in (lambda: states.subtract(one, other), lambda: states.invert(one)):
            with pytest.raises(DefinitionError, match="cannot be subtracted; rebuild them"):
                refused()
        return
    assert identical(states, states.subtract(combined(states, [one, other]), other), one)
    assert identical(states, states.subtract(one, one), states.empty(1))
    assert identical(states, states.invert(states.invert(one)), one)
    # A retraction is a row with a negative diff, and may come before what it retracts.
    less = lifted(states, others, None, 1, [-1] * len(others))
    assert identical(states, less, states.invert(other))
    both = lifted(states, [*others, *rows], None, 1, [-1] * len(others) + [1] * len(rows))
    assert identical(states, combined(states, [less, one]), both)
    assert identical(states, combined(states, [both, other]), one)
    if any(value is not None for _, value in others):
        with pytest.raises(DataError, match=f"more was subtracted from a state of {function.name}"):
            states.lower(less)


def drawn_like(states: States, data: st.DataObject) -> list[Row]:
    column = next(name for name, (type_, _) in COLUMNS.items() if type_ == states.value_type)
    return data.draw(rows_of(column, 5, nulls=True), "others")


@law
def large_diffs_add_up(function: Function, data: st.DataObject) -> None:
    """Diffs are integers of 64 bits: what they add up to is exact."""
    states, rows = drawn(function, data, 3)
    if not states.invertible:
        return
    first, second = (data.draw(integers(-(2**61), 2**61, len(rows))) for _ in range(2))
    sums = [a + b for a, b in zip(first, second, strict=True)]
    parts = [lifted(states, rows, None, 1, diffs) for diffs in (first, second)]
    found = combined(states, parts)
    assert identical(states, found, lifted(states, rows, None, 1, sums))
    assert identical(states, states.deserialise(states.serialise(found)), found)


@law
def round_trip(function: Function, data: st.DataObject) -> None:
    """Bytes are read as the states that were written, and travel with their function."""
    states, rows = drawn(function, data)
    states = cloudpickle.loads(cloudpickle.dumps(states))
    before = lifted(states, rows, [i % 3 for i in range(len(rows))], 4)
    written = states.serialise(before)
    assert all(one.as_py().startswith(states.header.written) for one in written)
    back = states.deserialise(written)
    assert back.type == before.type == states.type
    assert repr(back.to_pylist()) == repr(before.to_pylist())
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


# What floats of these columns come to does not hang on the order in which they are added.
CALM = ("small", "single", "cents", "text", "flag", "day")


@law
def evaluations_agree(function: Function, data: st.DataObject) -> None:
    """Over ranges, over spans and by states: the same rows, the same result."""
    column = data.draw(st.sampled_from([c for c in columns_of(function) if c in CALM]), "column")
    type_, domain = COLUMNS[column]
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(domain)), max_size=12))
    drawn.sort(key=lambda row: row[0])
    size = len(drawn)
    ties = np.array([tie for tie, _ in drawn], np.int64)
    values = canonical_values(pa.array([value for _, value in drawn], type_))
    # A range holds all values of a time, or none.
    bounds = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted)
    windows = sorted(data.draw(st.lists(bounds, min_size=1, max_size=4)))
    start, end = (np.searchsorted(ties, side) for side in zip(*windows, strict=True))
    one = Aggregation(function, "x")
    found = evaluate(one, Column(values, ties), Ranges(start, end))
    assert found.type == function.result(type_)
    states = States.of(function, type_)
    joined = states.lower(range_states(states, Column(values, ties), Ranges(start, end)))
    assert all(map(alike, joined.to_pylist(), found.to_pylist()))
    for a, b, got in zip(start.tolist(), end.tolist(), found.to_pylist(), strict=True):
        groups = np.zeros(b - a, np.int64)
        made = states.lift(values.slice(a, b - a), ties[a:b], groups, 1)
        assert alike(got, states.lower(made).to_pylist()[0])
    # Each value as counted by a span of queries: the same values of the same spans by states.
    queries = 3
    bounds = st.tuples(st.integers(0, queries), st.integers(0, queries)).map(sorted)
    counted = data.draw(st.lists(bounds, min_size=size, max_size=size))
    at = np.array([i for i, (a, b) in enumerate(counted) if a < b], np.int64)
    first, last = (np.array([counted[i][side] for i in at], np.int64) for side in (0, 1))
    spanned = SpannedColumn(values.take(pa.array(at)), ties[at], Spans(first, last, queries))
    by_query = evaluate_spans(one, spanned).to_pylist()
    joined = states.lower(span_states(states, spanned))
    assert all(map(alike, joined.to_pylist(), by_query))
    for query, got in enumerate(by_query):
        there = at[(first <= query) & (query < last)]
        groups = np.zeros(there.size, np.int64)
        made = states.lift(values.take(pa.array(there)), ties[there], groups, 1)
        assert alike(got, states.lower(made).to_pylist()[0])


def alike(found: Any, wanted: Any) -> bool:
    """Equal; floats to nine digits: trees and states round in different places."""
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isnan(found) or math.isnan(wanted):
            return math.isnan(found) and math.isnan(wanted)
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return repr(found) == repr(wanted)


@law
def types_are_declared(function: Function, data: st.DataObject) -> None:
    """What a function does not take is refused by name."""
    for type_, _ in COLUMNS.values():
        if type_ in function.takes:
            assert function.result_type(type_, "x") == function.result(type_)
            assert isinstance(function.state(type_), Kind)
        else:
            with pytest.raises(DefinitionError, match=f"x: {function.name} takes "):
                States.of(function, type_, "x")
    assert hash(function) == hash(cloudpickle.loads(cloudpickle.dumps(function)))
    assert function.identity[0] == function.name
    assert function.name.removesuffix("_k") in function.label
