"""Rows that never change, counted by ranges beside others that do: as if all were spans."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import COLUMNS, DAY, HOUR, PAIRS, WINDOWS, aggregation
from feature_oracle import same
from windrow import EventSource, GroupBy, agg
from windrow.algebra.function import Function
from windrow.algebra.functions import FUNCTIONS
from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.compute.lifetimes import ALWAYS, NEVER, lifetimes, lifetimes_in_place
from windrow.features.compute.settled import Split
from windrow.rows.ordering import LOWEST

TOGETHER = [  # functions that can put both together, and one that cannot
    (name, column)
    for name, column in PAIRS
    if name == "histogram" or FUNCTIONS[name].over_both is not Function.over_both
]
LIVES = ("settled", "always", "late", "dies", "gone")


@st.composite
def changing(draw: st.DrawFn, column: str) -> Events:
    """Events of few keys and times, with each kind of life; many of them settled."""
    count = draw(st.integers(0, 30))
    type_, values = COLUMNS[column]
    keys = [draw(st.sampled_from([1, 2, None])) for _ in range(count)]
    times = np.array([draw(st.integers(0, 40)) * HOUR for _ in range(count)], np.int64)
    born, died = times.copy(), np.full(count, NEVER)
    for i in range(count):
        life = draw(st.sampled_from([*LIVES, "settled", "settled"]))
        if life == "always":
            born[i] = ALWAYS
        elif life == "late":
            born[i] += draw(st.integers(1, 20)) * HOUR
        elif life == "dies":
            died[i] = times[i] + draw(st.integers(0, 30)) * HOUR
        elif life == "gone":
            born[i], died[i] = NEVER, LOWEST
    drawn = [draw(st.none() | st.sampled_from(values)) for _ in range(count)]
    buckets = [draw(st.sampled_from(["a", "b", None])) for _ in range(count)]
    inputs = pa.table({column: pa.array(drawn, type_), "bucket": pa.array(buckets, pa.string())})
    key_table = pa.table({"k": pa.array(keys, pa.int64())})
    return Events(key_table, times, inputs, {}, lives=(born, died))


@st.composite
def asked(draw: st.DrawFn) -> QueryTimes:
    count = draw(st.integers(0, 8))
    keys = [draw(st.sampled_from([1, 2, 3, None])) for _ in range(count)]
    times = np.array([draw(st.integers(0, 60)) * HOUR for _ in range(count)], np.int64)
    valid = np.array([draw(st.sampled_from([True, True, False])) for _ in range(count)], np.bool_)
    return QueryTimes(pa.table({"k": pa.array(keys, pa.int64())}), times, valid)


@pytest.mark.parametrize(("name", "column"), TOGETHER)
@settings(max_examples=10)
@given(data=st.data())
def test_ranges_beside_spans_are_spans(name: str, column: str, data: st.DataObject) -> None:
    one = aggregation(name, column)
    if data.draw(st.sampled_from([False, False, True])):
        one = one.by("bucket")
    lengths, options = data.draw(st.sampled_from(WINDOWS))
    if lengths is not None:
        one = one.over(*lengths, **options)
    group = GroupBy("g", EventSource("s", table="t", time="time"), ["k"], [one])
    events, queries = data.draw(changing(column)), data.draw(asked())
    found = []
    for mostly in (True, False):
        with (
            mock.patch.object(Split, "mostly_settled", mostly),
            mock.patch.object(Split, "is_settled", False),
        ):
            try:
                found.append(
                    [array.to_pylist() for array in group_features(group, events, queries)]
                )
            except Exception as error:  # a sum that does not fit
                found.append(type(error))
    if isinstance(found[0], type) or isinstance(found[1], type):
        assert found[0] == found[1]
        return
    for mine, theirs in zip(*found, strict=True):
        assert all(same(a, b) or repr(a) == repr(b) for a, b in zip(mine, theirs, strict=True)), (
            mine,
            theirs,
        )


def test_sums_of_both_are_rounded_once() -> None:
    values, times = [1e16, 1.0, -1e16, 1.0], np.array([1, 2, 3, 4], np.int64) * HOUR
    born, died = times.copy(), np.array([NEVER, NEVER, 9 * DAY, 9 * DAY])
    keys = pa.table({"k": pa.array([1] * 4)})
    events = Events(keys, times, pa.table({"x": pa.array(values)}), {}, lives=(born, died))
    queries = QueryTimes(pa.table({"k": pa.array([1])}), np.array([DAY]), np.array([True]))
    aggregations = [agg.sum("x"), agg.avg("x")]
    group = GroupBy("g", EventSource("s", table="t", time="time"), ["k"], aggregations)
    with mock.patch.object(Split, "mostly_settled", True):
        (total,), (mean,) = (a.to_pylist() for a in group_features(group, events, queries))
    assert (total, mean) == (2.0, 0.5)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 6), st.booleans())),
    st.sampled_from([1, 100]),
)
def test_adjacent_updates_are_matched_as_all_are(
    updates: list[tuple[int, int, int, bool]], copies: int
) -> None:
    """Some have one number (key and time) in common with many others: these are sorted as all."""
    rows = sorted(row for row in updates for _ in range(copies if row[0] == 0 else 1))
    near = np.array([row[0] for row in rows], np.int64)
    columns = [pa.array(near), pa.array([row[1] for row in rows], pa.int64())]
    known_at = np.array([row[2] for row in rows], np.int64)
    diffs = np.array([-1 if row[3] else 1 for row in rows], np.int64)
    found = lifetimes_in_place(columns, known_at, diffs, (), (np.zeros_like(near), near))
    expected = lifetimes(columns, known_at, diffs)

    def lives(of: object) -> list[tuple[int, ...]]:
        assert isinstance(of, type(found))
        places = zip(of.rows.tolist(), of.born.tolist(), of.died.tolist(), strict=True)
        both = ((near[row], columns[1][row].as_py(), born, died) for row, born, died in places)
        return sorted(one for one in both if one[2] < one[3])

    assert lives(found) == lives(expected)
    assert found.missing.size == expected.missing.size
