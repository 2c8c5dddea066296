"""The features of one group for the queries of one slice: Arrow in, Arrow out.

This is what a Spark task runs over its slice, and what a unit test runs over a handful of rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.algebra.ranges import Ranges
from windrow.algebra.windows import Window
from windrow.features.compute.elements import Elements
from windrow.features.compute.events import Events, QueryTimes, canonical_table
from windrow.features.compute.spanned import LiveQueries, Spanned
from windrow.features.compute.timeline import Lane, Timelines
from windrow.features.definitions import GroupBy

t = pa.types


def group_features(group: GroupBy, events: Events, queries: QueryTimes) -> list[pa.Array]:
    """One array per feature of the group, in the order of `queries`."""
    times = np.where(queries.valid, queries.times, 0)
    times = group.effective_times(times)
    timelines = _timelines(events, queries, times)
    if events.lives is not None:
        return spanned_features(group, events, queries, timelines)
    back = None
    if timelines.query_order is not None:
        back = np.empty(times.size, np.int64)
        back[timelines.query_order] = np.arange(times.size)
    ranges: dict[Window, Ranges] = {}
    together: dict[tuple[Window, ...], Ranges] = {}
    elements: dict[object, Elements] = {}
    results: list[pa.Array] = []
    for aggregation in group.aggregations:
        inputs = (aggregation.column, aggregation.bucket, aggregation.condition)
        if inputs not in elements:
            elements[inputs] = Elements.make(aggregation, events, timelines)
        windows = tuple(feature.window for feature in aggregation.features())
        for window in windows:
            if window not in ranges:
                ranges[window] = timelines.ranges(window)
        # All windows at once: what an aggregate builds over the values is built once.
        if windows not in together:
            together[windows] = Ranges.of([ranges[window] for window in windows])
        found = elements[inputs].evaluate(aggregation, together[windows], timelines)
        for number in range(len(windows)):
            one = found.slice(number * times.size, times.size)
            results.append(one if back is None else one.take(pa.array(back)))
    return results


def _timelines(events: Events, queries: QueryTimes, times: np.ndarray) -> Timelines:
    event_keys, query_keys = canonical_table(events.keys), canonical_table(queries.keys)
    dead = ~queries.live
    if events.hashes is not None and queries.hashes is not None:
        found = Timelines.of_sorted(
            Lane(event_keys, events.hashes, events.times),
            Lane(query_keys, queries.hashes, times),
            dead,
        )
        if found is not None:
            return found
    return Timelines.make(event_keys, events.times, query_keys, times, dead=dead)


def spanned_features(
    group: GroupBy, events: Events, queries: QueryTimes, timelines: Timelines
) -> list[pa.Array]:
    """Features over rows that change: each row counts for a span of queries."""
    assert events.lives is not None
    dead = ~queries.live
    order = timelines.query_order
    dead = dead if order is None else dead[order]
    live = LiveQueries.make(timelines, events.lives, dead)
    # Dead queries are given the answer of one that no row counts for.
    where = np.full(dead.size, live.size)
    where[~dead] = np.arange(live.size)
    back = where
    if order is not None:
        back = np.empty(dead.size, np.int64)
        back[order] = where
    spans: dict[object, Spanned] = {}
    elements: dict[object, Elements] = {}
    results: list[pa.Array] = []
    for aggregation in group.aggregations:
        inputs = (aggregation.column, aggregation.bucket, aggregation.condition)
        if inputs not in elements:
            elements[inputs] = Elements.make(aggregation, events, timelines)
        for feature in aggregation.features():
            key = (inputs, feature.window)
            if key not in spans:
                first, last = live.spans(feature.window)
                spans[key] = elements[inputs].spanned(first, last, live, timelines)
            found = spans[key].evaluate(aggregation)
            in_place = order is None and not dead.any()
            results.append(found.slice(0, dead.size) if in_place else found.take(pa.array(back)))
    return results
