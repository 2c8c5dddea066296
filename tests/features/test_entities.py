"""Rows that come and go, against a plain replay of their history for each query."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_oracle import feature, same
from features.test_compute import (
    BUCKET,
    COLUMNS,
    DAY,
    HOUR,
    MINUTE,
    PAIRS,
    WINDOWS,
    aggregation,
    overflows,
    times,
)
from oracle import canonical
from windrow import EventSource, GroupBy, agg
from windrow.errors import DataError
from windrow.features.compute import Events, QueryTimes, feature_type, group_features
from windrow.features.lifetimes import ALWAYS, lifetimes
from windrow.rows.types import canonical_values

Update = tuple[int, dict[str, Any], int]  # moment, row, diff


def alive(history: list[Update], query: int) -> list[dict[str, Any]]:
    """The rows of a table after all changes strictly before `query`: the naive truth."""
    counts: Counter[Any] = Counter()
    rows: dict[Any, dict[str, Any]] = {}
    for moment, row, diff in history:
        if moment < query:
            key = tuple((name, canonical(value)) for name, value in sorted(row.items()))
            counts[key] += diff
            rows[key] = row
    return [rows[key] for key, count in counts.items() for _ in range(count)]


def image(draw: st.DrawFn, column: str) -> dict[str, Any]:
    return {
        "k": draw(st.sampled_from([1, 2, None])),
        "time": draw(times()),
        column: draw(st.none() | st.sampled_from(COLUMNS[column][1])),
        "bucket": draw(st.sampled_from(BUCKET)),
    }


@st.composite
def histories(draw: st.DrawFn, column: str) -> list[Update]:
    """Inserts, updates (of values, times, keys), deletes and re-inserts, some at one moment."""
    moments = sorted(draw(st.lists(times(), max_size=14)))
    there: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    history: list[Update] = []
    for moment in moments:
        kind = draw(st.sampled_from(["insert", "insert", "update", "delete", "again"]))
        if kind == "again" and gone:
            row = gone.pop()
        elif kind == "insert" or not there:
            row = image(draw, column)
        else:
            at = draw(st.integers(0, len(there) - 1))
            old = there.pop(at)
            gone.append(old)
            history.append((moment, old, -1))
            if kind == "delete":
                continue
            changed = draw(st.sampled_from(["k", "time", column, "bucket"]))
            row = {**old, changed: image(draw, column)[changed]}
        there.append(row)
        history.append((moment, row, 1))
    return list(draw(st.permutations(history)))  # late mutations: any order of arrival


def queries() -> st.SearchStrategy[list[dict[str, Any]]]:
    key = st.sampled_from([1, 2, 3, None])
    return st.lists(st.fixed_dictionaries({"k": key, "time": st.none() | times()}), max_size=8)


def entity_features(
    group: GroupBy, history: list[Update], asked: list[dict[str, Any]], column: str
) -> list[pa.Array]:
    columns = {
        "k": pa.array([row["k"] for _, row, _ in history], pa.int64()),
        "time": pa.array([row["time"] for _, row, _ in history], pa.int64()),
        column: pa.array([row[column] for _, row, _ in history], COLUMNS[column][0]),
        "bucket": pa.array([row["bucket"] for _, row, _ in history], pa.string()),
    }
    found = lifetimes(
        [canonical_values(c) for c in columns.values()],
        np.array([moment for moment, _, _ in history], np.int64),
        np.array([diff for _, _, diff in history], np.int64),
    )
    assert not found.missing.size
    table = pa.table(columns).take(pa.array(found.rows))
    events = Events(
        table.select(["k"]),
        table.column("time").to_numpy(),
        table.select([column, "bucket"]),
        {},
        lives=(found.born, found.died),
    )
    left = QueryTimes(
        pa.table({"k": pa.array([q["k"] for q in asked], pa.int64())}),
        np.array([q["time"] or 0 for q in asked], np.int64),
        np.array([q["time"] is not None for q in asked], np.bool_),
    )
    return group_features(group, events, left)


@pytest.mark.parametrize(("name", "column"), PAIRS)
@settings(max_examples=12)
@given(data=st.data())
def test_features_equal_a_replay(name: str, column: str, data: st.DataObject) -> None:
    history = data.draw(histories(column))
    asked = data.draw(queries())
    one = aggregation(name, column)
    if data.draw(st.booleans()):
        one = one.by("bucket")
    lengths, options = data.draw(st.sampled_from(WINDOWS))
    if lengths is not None:
        one = one.over(*lengths, **options)
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    source = EventSource("s", table="t", time="time")
    group = GroupBy("g", source, ["k"], [one], accuracy=accuracy)
    (the_feature,) = group.features
    window = the_feature.window
    expected = []
    for query in asked:
        moment = query["time"]
        if moment is not None and accuracy == "snapshot":
            moment -= moment % DAY
        rows = [] if moment is None else alive(history, moment)
        expected.append(
            feature(
                rows,
                {"k": query["k"]},
                query["time"],
                name=name,
                column=column,
                window=(window.kind.value, window.length, window.hop),
                k=one.k,
                bucket=one.bucket,
                accuracy=accuracy,
                is_map=column == "map",
            )
        )
    if name == "sum" and overflows(expected):
        with pytest.raises(DataError, match="does not fit"):
            entity_features(group, history, asked, column)
        return
    (found,) = entity_features(group, history, asked, column)
    inputs = pa.schema([(column, COLUMNS[column][0]), ("bucket", pa.string())])
    assert found.type == feature_type(one, inputs, "test")
    for got, want, query in zip(found.to_pylist(), expected, asked, strict=True):
        assert same(got, want), f"{query}: {got!r} is not {want!r}"


def test_a_query_does_not_see_a_change_at_its_own_moment() -> None:
    row = {"k": 1, "time": 0, "small": 7, "bucket": None}
    history = [(HOUR, row, 1), (2 * HOUR, row, -1)]
    group = GroupBy("g", EventSource("s", table="t", time="time"), ["k"], [agg.sum("small")])
    moments = [HOUR, HOUR + 1, 2 * HOUR, 2 * HOUR + 1]
    asked = [{"k": 1, "time": moment} for moment in moments]
    (found,) = entity_features(group, history, asked, "small")
    assert found.to_pylist() == [None, 7, 7, None]


def test_a_row_taken_away_that_is_not_there_is_named() -> None:
    values = [pa.array([1, 1, 2])]
    moments = np.array([5, 9, 9], np.int64)
    found = lifetimes(values, moments, np.array([1, -1, -1], np.int64))
    assert found.missing.tolist() == [2]
    assert (found.born.tolist(), found.died.tolist()) == ([5], [9])
    # A deletion before the insertion is one too; at one moment the two cancel.
    found = lifetimes(values[:1], np.array([9, 5, 5], np.int64), np.array([1, -1, 1], np.int64))
    assert found.missing.tolist() == [1]
    found = lifetimes([pa.array([1, 1])], np.array([5, 5], np.int64), np.array([-1, 1], np.int64))
    assert not found.missing.size
    assert not found.rows.size


def test_rows_of_a_log_live_always() -> None:
    moments = np.full(3, ALWAYS)
    found = lifetimes([pa.array([1, 1, 2])], moments, np.ones(3, np.int64))
    assert found.rows.tolist() == [0, 1, 2]
    assert found.born.max() < -(10 * DAY)
    assert found.died.min() > MINUTE
