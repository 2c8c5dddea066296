"""Rows that come and go, against a plain replay of their history for each query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entity_replay import Update, alive, histories, queries
from feature_cases import COLUMNS, DAY, HOUR, MINUTE, PAIRS, WINDOWS, aggregation, k_of, overflows
from feature_oracle import feature, same
from windrow import EventSource, GroupBy, agg
from windrow.algebra.evaluate import evaluate_spans
from windrow.algebra.spans import SpannedColumn, Spans
from windrow.errors import DataError
from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.compute.lifetimes import ALWAYS, lifetimes
from windrow.features.compute.types import feature_type
from windrow.rows.types import canonical_values


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
        np.array([time for time, _, _ in history], np.int64),
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
        time = query["time"]
        if time is not None and accuracy == "snapshot":
            time -= time % DAY
        rows = [] if time is None else alive(history, time)
        expected.append(
            feature(
                rows,
                {"k": query["k"]},
                query["time"],
                name=name,
                column=column,
                window=(window.kind.value, window.length, window.hop),
                k=k_of(one),
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


def test_a_query_does_not_see_a_change_at_its_own_time() -> None:
    row = {"k": 1, "time": 0, "small": 7, "bucket": None}
    history = [(HOUR, row, 1), (2 * HOUR, row, -1)]
    group = GroupBy("g", EventSource("s", table="t", time="time"), ["k"], [agg.sum("small")])
    times = [HOUR, HOUR + 1, 2 * HOUR, 2 * HOUR + 1]
    asked = [{"k": 1, "time": time} for time in times]
    (found,) = entity_features(group, history, asked, "small")
    assert found.to_pylist() == [None, 7, 7, None]


def test_a_row_taken_away_that_is_not_there_is_named() -> None:
    values = [pa.array([1, 1, 2])]
    known_at = np.array([5, 9, 9], np.int64)
    found = lifetimes(values, known_at, np.array([1, -1, -1], np.int64))
    assert found.missing.tolist() == [2]
    assert (found.born.tolist(), found.died.tolist()) == ([5], [9])
    # A deletion before the insertion is one too; at one time the two cancel.
    found = lifetimes(values[:1], np.array([9, 5, 5], np.int64), np.array([1, -1, 1], np.int64))
    assert found.missing.tolist() == [1]
    found = lifetimes([pa.array([1, 1])], np.array([5, 5], np.int64), np.array([-1, 1], np.int64))
    assert not found.missing.size
    assert not found.rows.size


def test_rows_of_a_log_live_always() -> None:
    known_at = np.full(3, ALWAYS)
    found = lifetimes([pa.array([1, 1, 2])], known_at, np.ones(3, np.int64))
    assert found.rows.tolist() == [0, 1, 2]
    assert found.born.max() < -(10 * DAY)
    assert found.died.min() > MINUTE


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize("name", ["min", "max", "first", "last"])
def test_the_lowest_and_the_highest_number_are_values_too(name: str, value: int) -> None:
    spans = Spans(np.array([1, 3]), np.array([7, 4]), 9)  # of nine queries
    times = np.array([-(2**62), -(2**62)])
    column = SpannedColumn(pa.array([value, value]), times, spans)
    found = evaluate_spans(getattr(agg, name)("x"), column).to_pylist()
    assert found == [value if 1 <= query < 7 else None for query in range(9)]
