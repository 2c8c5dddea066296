"""Every aggregate, window and accuracy against plain loops, on random data."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_oracle import feature, same
from strategies import NAN
from windrow import agg
from windrow.algebra.aggregation import Aggregation
from windrow.algebra.operations import OPERATIONS
from windrow.errors import DataError
from windrow.features.compute import Events, QueryTimes, feature_type, group_features
from windrow.features.definitions import EventSource, GroupBy

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

INF = float("inf")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int32(), [-3, 0, 1, 1, 7]),
    "big": (pa.int64(), [-(2**61), 2**61, 5]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, 1e300, -1e300, 0.1, 1e-9]),
    "wild": (pa.float64(), [1.0, NAN, INF, -INF, 2.5]),
    "money": (pa.decimal128(38, 2), [Decimal("0.10"), Decimal("-3.99"), Decimal("1e30")]),
    "text": (pa.string(), ["", "a", "longer than eight a", "longer than eight b", "é"]),
    "flag": (pa.bool_(), [True, False]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, None, 2], [5, 5]]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("x", 1.0)], [("x", 2.0), ("y", None)], []]),
}
BUCKET = ["red", "blue", None]
WINDOWS = [
    (("5m",), {"kind": "sliding"}),
    (("1h",), {"kind": "sliding"}),
    (("1h",), {"kind": "hopping"}),
    (("1h",), {"kind": "sawtooth"}),
    (("2d",), {"kind": "sawtooth"}),
    (("1d",), {"kind": "hopping", "hop": "1h"}),
    (("30d",), {}),
    (None, {}),
]


def times() -> st.SearchStrategy[int]:
    """Few distinct moments, at and around the edges of windows."""
    edges = [0, 5 * MINUTE, HOUR, DAY, 2 * DAY, 3 * DAY, 30 * DAY]
    return st.builds(
        lambda base, edge, off: base + edge + off,
        st.sampled_from([0, 10 * DAY, -DAY]),
        st.sampled_from(edges),
        st.sampled_from([-1, 0, 1, 7 * MINUTE]),
    )


@st.composite
def cases(draw: st.DrawFn, column: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    key = st.sampled_from([1, 2, None])
    other = st.sampled_from([0.0, -0.0, NAN])
    _, values = COLUMNS[column]
    events = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "k": key,
                    "o": other,
                    "time": times(),
                    column: st.none() | st.sampled_from(values),
                    "bucket": st.sampled_from(BUCKET),
                }
            ),
            max_size=25,
        )
    )
    queries = draw(
        st.lists(
            st.fixed_dictionaries({"k": key, "o": other, "time": st.none() | times()}), max_size=8
        )
    )
    return events, queries


def tables(
    events: list[dict[str, Any]], queries: list[dict[str, Any]], column: str
) -> tuple[Events, QueryTimes]:
    def keys(rows: list[dict[str, Any]]) -> pa.Table:
        return pa.table(
            {
                "k": pa.array([r["k"] for r in rows], pa.int64()),
                "o": pa.array([r["o"] for r in rows], pa.float64()),
            }
        )

    inputs = pa.table(
        {
            column: pa.array([e[column] for e in events], COLUMNS[column][0]),
            "bucket": pa.array([e["bucket"] for e in events], pa.string()),
        }
    )
    valid = np.array([q["time"] is not None for q in queries], np.bool_)
    return (
        Events(keys(events), np.array([e["time"] for e in events], np.int64), inputs, {}),
        QueryTimes(keys(queries), np.array([q["time"] or 0 for q in queries], np.int64), valid),
    )


def accepts(name: str, column: str) -> bool:
    type_ = COLUMNS[column][0]
    inner = type_.item_type if column == "map" else type_.value_type if column == "list" else type_
    return OPERATIONS[name].takes(inner)


def aggregation(name: str, column: str) -> Aggregation:
    if name == "approx_percentile":
        return agg.approx_percentile(column, [0.5])
    return Aggregation(OPERATIONS[name], column, 2 if OPERATIONS[name].has_k else None)


PAIRS = [
    (name, column)
    for name in OPERATIONS
    for column in COLUMNS
    if accepts(name, column) and name != "approx_percentile"
]


@pytest.mark.parametrize(("name", "column"), PAIRS)
@settings(max_examples=12)
@given(data=st.data())
def test_features_equal_the_plain_loops(name: str, column: str, data: st.DataObject) -> None:
    events, queries = data.draw(cases(column))
    one = aggregation(name, column)
    if data.draw(st.booleans()):
        one = one.by("bucket")
    lengths, options = data.draw(st.sampled_from(WINDOWS))
    if lengths is not None:
        one = one.over(*lengths, **options)
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    group = GroupBy(
        "g", EventSource("s", table="t", time="time"), ["k", "o"], [one], accuracy=accuracy
    )
    left, right = tables(events, queries, column)
    (the_feature,) = group.features
    window = the_feature.window
    expected = [
        feature(
            events,
            {"k": q["k"], "o": q["o"]},
            q["time"],
            name=name,
            column=column,
            window=(window.kind.value, window.length, window.hop),
            k=one.k,
            bucket=one.bucket,
            accuracy=accuracy,
            is_map=column == "map",
        )
        for q in queries
    ]
    if name == "sum" and overflows(expected):
        with pytest.raises(DataError, match="does not fit"):
            group_features(group, left, right)
        return
    (found,) = group_features(group, left, right)
    assert found.type == feature_type(one, left.inputs.schema, "test")
    assert len(found) == len(queries)
    for got, want, query in zip(found.to_pylist(), expected, queries, strict=True):
        assert same(got, want), f"{query}: {got!r} is not {want!r}"


def overflows(values: list[Any]) -> bool:
    flat = [v for x in values for v in (x.values() if isinstance(x, dict) else [x])]
    return any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in flat)


@settings(max_examples=60)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6_000), st.floats(0, 1))
def test_approx_percentile_is_within_the_sketch_error(values: list[float], at: float) -> None:
    one = agg.approx_percentile("float", [at])
    group = GroupBy("g", EventSource("s", table="t", time="time"), ["k", "o"], [one])
    rows = [{"k": 1, "o": 0.0, "time": i, "float": v, "bucket": None} for i, v in enumerate(values)]
    query = {"k": 1, "o": 0.0, "time": len(values)}
    (found,) = group_features(group, *tables(rows, [query], "float"))
    (got,) = found.to_pylist()[0]
    assert got in values
    below = sum(v < got for v in values) / len(values)
    upto = sum(v <= got for v in values) / len(values)
    # Exact up to 200 values; beyond, three times the rank error of the sketch (k = 200).
    error = (0.0 if len(values) <= 200 else 0.05) + 1 / len(values)
    assert below - error <= at <= upto + error
