"""Every aggregate, window and accuracy against plain loops, on random data."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import PAIRS, WINDOWS, aggregation, cases, k_of, overflows, tables
from feature_oracle import feature, same
from windrow import agg
from windrow.errors import DataError
from windrow.features.compute.features import group_features
from windrow.features.compute.types import feature_type
from windrow.features.definitions import GroupBy
from windrow.sources.definitions import EventSource


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
            k=k_of(one),
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
