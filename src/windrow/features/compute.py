"""The features of one group for the queries of one slice: Arrow in, Arrow out.

This is what a Spark task runs over its slice, and what a unit test runs over a handful of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.evaluate import Column, Ranges, enumerate_lists, evaluate, list_offsets
from windrow.algebra.spans import SpannedColumn, Spans, evaluate_spans
from windrow.algebra.windows import Window, WindowKind, floor_to
from windrow.features.definitions import GroupBy
from windrow.features.lifetimes import NEVER
from windrow.features.timeline import Lane, Timelines, search
from windrow.merging import sort_words
from windrow.rows.ordering import exact
from windrow.rows.types import canonical_values, list_parts, single_chunk

t = pa.types


@dataclass(frozen=True)
class Events:
    """Events of a slice, in any order; or, with the `hashes` of their keys, by hash and time.

    `inputs` holds every column that an aggregation reads; `conditions` maps an aggregation's SQL
    condition to where it holds.
    """

    keys: pa.Table
    times: np.ndarray
    inputs: pa.Table
    conditions: Mapping[str, np.ndarray]
    hashes: np.ndarray | None = None
    lives: tuple[np.ndarray, np.ndarray] | None = None  # born and died, of rows that change


@dataclass(frozen=True)
class QueryTimes:
    """Queries of a slice: keys with the group's column names, and their times.

    They are in any order, or, with the `hashes` of their keys, sorted by hash and time. Where
    `valid` is false the time is null, and so are all features but counts.
    """

    keys: pa.Table
    times: np.ndarray
    valid: np.ndarray
    hashes: np.ndarray | None = None


def input_type(column: pa.DataType) -> pa.DataType:
    """The type of the values that a column contributes: elements of lists, values of maps."""
    if t.is_map(column):
        return column.item_type
    return column.value_type if t.is_list(column) else column


def feature_type(aggregation: Aggregation, inputs: pa.Schema, where: str) -> pa.DataType:
    """The type of an aggregation's result, given the types of the columns it reads."""
    column = inputs.field(aggregation.column).type
    result = aggregation.operation.result_type(input_type(column), where)
    if t.is_map(column):
        result = pa.map_(column.key_type, result)
    if aggregation.bucket is not None:
        result = pa.map_(inputs.field(aggregation.bucket).type, result)
    return result


def group_features(group: GroupBy, events: Events, queries: QueryTimes) -> list[pa.Array]:
    """One array per feature of the group, in the order of `queries`."""
    times = np.where(queries.valid, queries.times, 0)
    if group.accuracy == "snapshot":
        times = floor_to(times, group.refresh)
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
    dead = ~queries.valid | _has_null(queries.keys)
    if events.hashes is not None and queries.hashes is not None:
        found = Timelines.of_sorted(
            Lane(event_keys, events.hashes, events.times),
            Lane(query_keys, queries.hashes, times),
            dead,
        )
        if found is not None:
            return found
    return Timelines.make(event_keys, events.times, query_keys, times, dead=dead)


def canonical_table(table: pa.Table) -> pa.Table:
    columns = [canonical_values(single_chunk(column)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _has_null(keys: pa.Table) -> np.ndarray:
    null = np.zeros(keys.num_rows, np.bool_)
    for column in keys.columns:
        null |= single_chunk(column).is_null().to_numpy(zero_copy_only=False)
    return null


def spanned_features(
    group: GroupBy, events: Events, queries: QueryTimes, timelines: Timelines
) -> list[pa.Array]:
    """Features over rows that come and go: each row counts for a span of queries."""
    assert events.lives is not None
    dead = ~queries.valid | _has_null(queries.keys)
    order = timelines.query_order
    dead = dead if order is None else dead[order]
    asked = Asked.make(timelines, events.lives, dead)
    # Dead queries are given the answer of one that no row counts for.
    where = np.full(dead.size, asked.size)
    where[~dead] = np.arange(asked.size)
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
                first, last = asked.spans(feature.window)
                spans[key] = elements[inputs].spanned(first, last, asked, timelines)
            results.append(spans[key].evaluate(aggregation).take(pa.array(back)))
    return results


@dataclass(frozen=True)
class Asked:
    """Queries with a key and a time, sorted, beside the events that may count for them.

    For each event `first` and `last` delimit the queries of its key.
    """

    times: np.ndarray
    first: np.ndarray
    last: np.ndarray
    event_times: np.ndarray
    born: np.ndarray
    died: np.ndarray

    @property
    def size(self) -> int:
        return int(self.times.size)

    @staticmethod
    def make(timelines: Timelines, lives: tuple[np.ndarray, np.ndarray], dead: np.ndarray) -> Asked:
        keys = timelines.query_keys[~dead]
        born, died = lives
        if timelines.order is not None:
            born, died = born[timelines.order], died[timelines.order]
        # Events of a key lie side by side: each key is looked for once.
        size = timelines.keys.size
        new = np.flatnonzero(timelines.keys[1:] != timelines.keys[:-1]) + 1
        starts = np.concatenate([[0], new])[:size]
        lengths = np.diff(np.append(starts, size))
        leaders = timelines.keys[starts]
        return Asked(
            timelines.queries[~dead],
            np.repeat(np.searchsorted(keys, leaders, "left"), lengths),
            np.repeat(np.searchsorted(keys, leaders, "right"), lengths),
            timelines.times,
            born,
            died,
        )

    def spans(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """For each event the queries [first, last) whose window holds it while it lives."""
        start, end = window.bounds(self.times)
        # In the window: start <= t < end. Alive: born < q <= died. All switch once as q grows.
        alive = self._alive
        begins = self._begins(window, end)
        return _spans(start, self.first, self.last, self.event_times, begins, *alive)

    @functools.cached_property
    def _alive(self) -> tuple[np.ndarray, np.ndarray]:
        """For each event the queries that it lives through, whatever the window."""
        died = self.last
        if (self.died < NEVER).any():
            died = search(self.times, self.first, self.last, self.died + 1)
        return search(self.times, self.first, self.last, self.born + 1), died

    def _begins(self, window: Window, end: np.ndarray) -> np.ndarray:
        """The first query whose window ends after the event; windows that end alike share it."""
        hops = window.hop if window.kind is WindowKind.HOPPING else 0
        if hops not in self._begun:
            self._begun[hops] = search(end, self.first, self.last, self.event_times + 1)
        return self._begun[hops]

    @functools.cached_property
    def _begun(self) -> dict[int, np.ndarray]:
        return {}


@njit(cache=True, nogil=True)
def _spans(
    start: Any, first: Any, last: Any, times: Any, begins: Any, born: Any, died: Any
) -> tuple[Any, Any]:
    """For each event the queries from `begins` and `born` on, up to `died`, while start <= t."""
    low, high = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    ends = search(start, first, last, times + 1)
    for e in range(times.size):
        low[e] = max(begins[e], born[e])
        high[e] = max(low[e], min(ends[e], died[e]))
    return low, high


def lanes_of(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each column of words, ascending with them, and a column for each number."""
    order = sort_words(words)
    new = np.ones(order.size, np.bool_)
    new[1:] = (words[:, order[1:]] != words[:, order[:-1]]).any(axis=0)
    lanes = np.empty(order.size, np.int64)
    lanes[order] = np.cumsum(new) - 1
    return lanes, order[new]


@dataclass(frozen=True)
class Spanned:
    """Elements with the spans of queries that count them.

    With buckets (`levels`) the spans are over places: each is a query in one bucket. `places`
    then gives, for each, the query, and an element that has its buckets.
    """

    column: SpannedColumn
    queries: int
    levels: list[pa.Array]
    places: tuple[np.ndarray, np.ndarray] | None

    def query(self, there: np.ndarray) -> np.ndarray:
        return there if self.places is None else self.places[0][there]

    def leader(self, there: np.ndarray) -> np.ndarray:
        return there if self.places is None else self.places[1][there]

    def evaluate(self, aggregation: Aggregation) -> pa.Array:
        """The result for each asked query, and last for one that no row counts for."""
        found = evaluate_spans(aggregation, self.column)
        if not self.levels:
            return found
        there = np.flatnonzero(self.column.spans.counts > 0)
        codes = [exact(level) for level in self.levels]
        query, leader = self.query(there), self.leader(there)
        order = sort_words(np.vstack([query, *(code[leader] for code in codes)]))
        return gather_maps(
            found.take(pa.array(there[order])),
            query[order],
            leader[order],
            self.levels,
            codes,
            self.queries,
        )


@dataclass(frozen=True)
class Elements:
    """The values that an aggregation takes in, in the order of events, without NULLs.

    An event has none (its value is null, or its condition does not hold), one, or, of a list or
    map, many. `events` is the event position of each; `below` counts the elements before each
    event (None if every event has one); `buckets` are one array per level of bucketing (the `by`
    column, the keys of a map), outermost first.
    """

    values: pa.Array
    events: np.ndarray
    moments: np.ndarray
    keys: np.ndarray
    below: np.ndarray | None
    buckets: Sequence[pa.Array]

    @staticmethod
    def make(aggregation: Aggregation, events: Events, timelines: Timelines) -> Elements:
        order = timelines.order

        def in_order(name: str) -> pa.Array:
            column = single_chunk(events.inputs.column(name))
            return column if order is None else column.take(pa.array(order))

        values = in_order(aggregation.column)
        keep = values.is_valid().to_numpy(zero_copy_only=False)
        if aggregation.condition is not None:
            holds = events.conditions[aggregation.condition]
            keep = keep & (holds if order is None else holds[order])
        buckets: list[pa.Array] = []
        if aggregation.bucket is not None:
            bucket = in_order(aggregation.bucket)
            keep = keep & bucket.is_valid().to_numpy(zero_copy_only=False)
            buckets.append(canonical_values(bucket))
        whole = bool(keep.all())
        at = np.arange(keep.size) if whole else np.flatnonzero(keep)
        values = canonical_values(values if whole else values.take(pa.array(at)))
        several = t.is_list(values.type) or t.is_map(values.type)
        if several:
            offsets, inner = list_parts(values)
            rows = np.repeat(at, np.diff(offsets))
            if t.is_map(values.type):
                fields = inner.flatten()
                valid = fields[1].is_valid().to_numpy(zero_copy_only=False)
                chosen = pa.array(np.flatnonzero(valid))
                buckets = [b.take(pa.array(rows[valid])) for b in buckets]
                buckets.append(fields[0].take(chosen))
                values, at = fields[1].take(chosen), rows[valid]
            else:
                valid = inner.is_valid().to_numpy(zero_copy_only=False)
                values, at = inner.filter(pa.array(valid)), rows[valid]
                buckets = [b.take(pa.array(at)) for b in buckets]
        else:
            buckets = [b.take(pa.array(at)) for b in buckets]
        if whole and not several and not buckets:
            return Elements(values, at, timelines.moments, timelines.keys, None, buckets)
        below = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=keep.size))])
        return Elements(values, at, timelines.moments[at], timelines.keys[at], below, buckets)

    def evaluate(self, aggregation: Aggregation, ranges: Ranges, timelines: Timelines) -> pa.Array:
        """The result for each query, given its range of events."""
        if self.buckets:
            windows = len(ranges) // max(timelines.query_keys.size, 1)
            keys = np.tile(timelines.query_keys, windows)
            return self._by_bucket(aggregation, ranges, keys, list(self.buckets))
        return evaluate(aggregation, self._column, self._within(ranges))

    @functools.cached_property
    def _column(self) -> Column:
        return Column(self.values, self.moments)

    def _within(self, ranges: Ranges) -> Ranges:
        """Ranges of events as ranges of elements; the same object for the same ranges."""
        if self.below is None:
            return ranges
        known = self._known_ranges.get(id(ranges))
        if known is None or known[0] is not ranges:
            within = Ranges(self.below[ranges.start], self.below[ranges.end])
            known = self._known_ranges[id(ranges)] = (ranges, within)
        return known[1]

    @functools.cached_property
    def _known_ranges(self) -> dict[int, tuple[Ranges, Ranges]]:
        return {}

    def spanned(
        self, first: np.ndarray, last: np.ndarray, asked: Asked, timelines: Timelines
    ) -> Spanned:
        """The elements that some query counts, given the spans of all events."""
        if self.below is not None:
            first, last = first[self.events], last[self.events]
        counted = np.flatnonzero(first < last)
        first, last = first[counted], last[counted]
        values = self.values.take(pa.array(counted))
        times = timelines.times[self.events[counted]]
        if not self.buckets:
            spans = Spans(first, last, asked.size + 1)
            return Spanned(SpannedColumn(values, times, spans), asked.size + 1, [], None)
        # A lane is a key's bucket; each lane has the queries of its key to itself.
        levels = [level.take(pa.array(counted)) for level in self.buckets]
        words = np.vstack([self.keys[counted], *(exact(level) for level in levels)])
        lanes, leader = lanes_of(words)
        event = self.events[counted]
        lane_first = asked.first[event[leader]]
        sizes = asked.last[event[leader]] - lane_first
        base = np.cumsum(sizes) - sizes
        shift = (base - lane_first)[lanes]
        spans = Spans(first + shift, last + shift, int(sizes.sum()))
        lane, within = enumerate_lists(sizes)
        places = (lane_first[lane] + within, leader[lane])
        return Spanned(SpannedColumn(values, times, spans), asked.size + 1, levels, places)

    def _by_bucket(
        self,
        aggregation: Aggregation,
        ranges: Ranges,
        query_keys: np.ndarray,
        levels: list[pa.Array],
    ) -> pa.Array:
        """A map from bucket to result for each query; nested maps for several levels.

        Values are sorted by (key, bucket), which makes lanes; a query is asked of each lane of
        its key. Lanes of the innermost level carry the outer buckets too, and are gathered into
        maps level by level.
        """
        codes = [exact(level) for level in levels]
        words = np.vstack([self.keys, *codes, self.events])
        order = sort_words(words)
        words = words[:, order]
        changed = (words[:-1, 1:] != words[:-1, :-1]).any(axis=0)
        lane_start = np.concatenate([[0], np.flatnonzero(changed) + 1])[: order.size or 0]
        lane_end = np.append(lane_start[1:], order.size)[: lane_start.size]
        lane_keys = words[0, lane_start]
        first = np.searchsorted(lane_keys, query_keys, "left")
        counts = np.searchsorted(lane_keys, query_keys, "right") - first
        query, within = enumerate_lists(counts)
        lane = first[query] + within
        # Lane by lane, so that windows move forward along the queries of a lane.
        by_lane = np.argsort(lane, kind="stable")
        query, lane = query[by_lane], lane[by_lane]
        position = np.ascontiguousarray(words[-1])
        start = search(position, lane_start[lane], lane_end[lane], ranges.start[query])
        end = search(position, lane_start[lane], lane_end[lane], ranges.end[query])
        there = start < end
        query, lane = query[there], lane[there]
        moments = self.moments[order]
        moved = np.concatenate([[False], changed]) if order.size else changed
        moved[1:] |= moments[1:] != moments[:-1]
        column = Column(self.values.take(pa.array(order)), np.cumsum(moved))
        found = evaluate(aggregation, column, Ranges(start[there], end[there]))
        by_query = sort_words(np.vstack([query, lane])) if query.size else np.zeros(0, np.int64)
        found, query = found.take(pa.array(by_query)), query[by_query]
        rows = order[lane_start[lane[by_query]]]
        return gather_maps(found, query, rows, levels, codes, query_keys.size)


def gather_maps(
    found: pa.Array,
    query: np.ndarray,
    rows: np.ndarray,
    levels: list[pa.Array],
    codes: list[np.ndarray],
    queries: int,
) -> pa.Array:
    """Results sorted by (query, outer bucket, inner bucket) become maps, innermost first."""
    for depth in range(len(levels) - 1, -1, -1):
        keys = levels[depth].take(pa.array(rows))
        outer = np.vstack([query, *(codes[d][rows] for d in range(depth))])
        new = np.ones(query.size, np.bool_)
        new[1:] = (outer[:, 1:] != outer[:, :-1]).any(axis=0)
        starts = np.flatnonzero(new)
        if depth == 0:
            lengths = np.bincount(query, minlength=queries)
        else:
            lengths = np.diff(np.append(starts, query.size))
        found = pa.MapArray.from_arrays(list_offsets(lengths), keys, found)
        query, rows = query[starts], rows[starts]
    return found
