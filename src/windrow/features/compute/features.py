"""The features of one group for the queries of one slice: Arrow in, Arrow out.

This is what a Spark task runs over its slice, and what a unit test runs over a handful of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.both import Both
from windrow.algebra.evaluate import evaluate_both
from windrow.algebra.ranges import Ranges
from windrow.algebra.windows import Window
from windrow.features.compute.elements import Elements
from windrow.features.compute.events import Events, QueryTimes, canonical_table
from windrow.features.compute.settled import MixedQueries, Split
from windrow.features.compute.spanned import LiveQueries, Spanned
from windrow.features.compute.timeline import Lane, Timelines
from windrow.features.definitions import GroupBy

t = pa.types


def group_features(group: GroupBy, events: Events, queries: QueryTimes) -> list[pa.Array]:
    """One array per feature of the group, in the order of `queries`."""
    times = np.where(queries.valid, queries.times, 0)
    times = group.effective_times(times)
    timelines = _timelines(events, queries, times)
    if events.lives is None:
        return ranged_features(group, events, timelines)
    split = Split.of(timelines, events.lives)
    if split.is_settled:
        return ranged_features(group, events, timelines.only(split.settled))
    return changing_features(group, events, queries, timelines, split)


def ranged_features(group: GroupBy, events: Events, timelines: Timelines) -> list[pa.Array]:
    """Features over rows that never change: each query counts a range of them."""
    size = timelines.queries.size
    back = None
    if timelines.query_order is not None:
        back = np.empty(size, np.int64)
        back[timelines.query_order] = np.arange(size)
    ranges: dict[Window, Ranges] = {}
    together: dict[tuple[Window, ...], Ranges] = {}
    elements: dict[object, Elements] = {}
    results: list[pa.Array] = []
    for aggregation in group.aggregations:
        inputs = _inputs(aggregation)
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
            one = found.slice(number * size, size)
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


def changing_features(
    group: GroupBy, events: Events, queries: QueryTimes, timelines: Timelines, split: Split
) -> list[pa.Array]:
    """Features over rows that change: by ranges and spans where both can be put together."""
    assert events.lives is not None
    dead = ~queries.live
    order = timelines.query_order
    dead = dead if order is None else dead[order]
    size = dead.size - int(np.count_nonzero(dead))
    # Dead queries are given the answer of one that no row counts for.
    where = np.full(dead.size, size)
    where[~dead] = np.arange(size)
    back = where
    if order is not None:
        back = np.empty(dead.size, np.int64)
        back[order] = where
    in_place = order is None and size == dead.size
    mixed = _Mixed(events, timelines, split, dead) if split.mostly_settled else None
    spanned = _Spanned(events, timelines, dead)
    results: list[pa.Array] = []
    for aggregation in group.aggregations:
        found = None if mixed is None else mixed.evaluate(aggregation)
        for one in spanned.evaluate(aggregation) if found is None else found:
            results.append(one.slice(0, size) if in_place else one.take(pa.array(back)))
    return results


class _Mixed:
    """Evaluates aggregations by ranges of settled rows and spans of the others, if they can be."""

    def __init__(
        self, events: Events, timelines: Timelines, split: Split, dead: np.ndarray
    ) -> None:
        assert events.lives is not None
        self._events = events
        self._queries = MixedQueries.make(timelines, split, events.lives, dead)
        self._elements: dict[object, tuple[Elements, Elements]] = {}
        self._ranges: dict[tuple[Window, ...], Ranges] = {}
        self._both: dict[object, Both] = {}

    def evaluate(self, aggregation: Aggregation) -> list[pa.Array] | None:
        """An array per window, and last in each the answer of no rows; None: it cannot be."""
        queries, inputs = self._queries, _inputs(aggregation)
        if inputs not in self._elements:
            settled, moving = (
                Elements.make(aggregation, self._events, rows)
                for rows in (queries.settled, queries.moving)
            )
            self._elements[inputs] = settled, moving
        settled, moving = self._elements[inputs]
        if settled.buckets:
            return None
        windows = tuple(feature.window for feature in aggregation.features())
        if windows not in self._ranges:
            self._ranges[windows] = queries.ranges(windows)
        key = (inputs, windows)
        if key not in self._both:
            self._both[key] = queries.both(settled, moving, windows, self._ranges[windows])
        found = evaluate_both(aggregation, self._both[key])
        if found is None:
            return None
        return [found.slice(n * queries.size, queries.size) for n in range(len(windows))]


class _Spanned:
    """Evaluates aggregations by spans of all rows."""

    def __init__(self, events: Events, timelines: Timelines, dead: np.ndarray) -> None:
        self._events, self._timelines, self._dead = events, timelines, dead
        self._elements: dict[object, Elements] = {}
        self._spans: dict[object, Spanned] = {}

    @functools.cached_property
    def _live(self) -> LiveQueries:
        assert self._events.lives is not None
        return LiveQueries.make(self._timelines, self._events.lives, self._dead)

    def evaluate(self, aggregation: Aggregation) -> Iterator[pa.Array]:
        """An array per window, and last in each the answer of no rows."""
        inputs = _inputs(aggregation)
        if inputs not in self._elements:
            self._elements[inputs] = Elements.make(aggregation, self._events, self._timelines)
        for feature in aggregation.features():
            key = (inputs, feature.window)
            if key not in self._spans:
                first, last = self._live.spans(feature.window)
                self._spans[key] = self._elements[inputs].spanned(
                    first, last, self._live, self._timelines
                )
            yield self._spans[key].evaluate(aggregation)


def _inputs(aggregation: Aggregation) -> tuple[object, ...]:
    """What the elements of an aggregation depend on."""
    return (aggregation.column, aggregation.bucket, aggregation.condition)
