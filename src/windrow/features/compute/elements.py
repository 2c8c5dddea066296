"""Elements: the input values of an aggregation, one or several for each event."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.arrays import enumerate_lists
from windrow.algebra.evaluate import evaluate
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.spans import SpannedColumn, Spans
from windrow.features.compute.buckets import bucket_maps, lanes_of
from windrow.features.compute.events import Events
from windrow.features.compute.spanned import LiveQueries, Spanned
from windrow.features.compute.timeline import Timelines, search
from windrow.rows.lists import list_parts
from windrow.rows.ordering import exact
from windrow.rows.types import canonical_values, single_chunk
from windrow.words.sorting import sort_words

t = pa.types


@dataclass(frozen=True)
class Elements:
    """The input values of an aggregation, in the order of events, without NULLs.

    An event has none (its value is null, or its condition does not hold), one, or, of a list or
    map, many. `events` is the event position of each; `below` counts the elements before each
    event (None if every event has one); `buckets` are one array per level of bucketing (the `by`
    column, the keys of a map), outermost first.
    """

    values: pa.Array
    events: np.ndarray
    ties: np.ndarray
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
            return Elements(values, at, timelines.ties, timelines.keys, None, buckets)
        below = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=keep.size))])
        return Elements(values, at, timelines.ties[at], timelines.keys[at], below, buckets)

    def evaluate(self, aggregation: Aggregation, ranges: Ranges, timelines: Timelines) -> pa.Array:
        """The result for each query, given its range of events."""
        if self.buckets:
            windows = len(ranges) // max(timelines.query_keys.size, 1)
            keys = np.tile(timelines.query_keys, windows)
            return self._by_bucket(aggregation, ranges, keys, list(self.buckets))
        return evaluate(aggregation, self.column, self.within(ranges))

    @functools.cached_property
    def column(self) -> Column:
        return Column(self.values, self.ties)

    def within(self, ranges: Ranges) -> Ranges:
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
        self, first: np.ndarray, last: np.ndarray, live: LiveQueries, timelines: Timelines
    ) -> Spanned:
        """The elements that some query counts, given the spans of all events."""
        if self.below is not None:
            first, last = first[self.events], last[self.events]
        counted = np.flatnonzero(first < last)
        first, last = first[counted], last[counted]
        values = self.values.take(pa.array(counted))
        times = timelines.times[self.events[counted]]
        if not self.buckets:
            spans = Spans(first, last, live.size + 1)
            return Spanned(SpannedColumn(values, times, spans), live.size + 1, [], None)
        # A lane is a key's bucket; each lane has the queries of its key to itself.
        levels = [level.take(pa.array(counted)) for level in self.buckets]
        words = np.vstack([self.keys[counted], *(exact(level) for level in levels)])
        lanes, leader = lanes_of(words)
        event = self.events[counted]
        lane_first = live.first[event[leader]]
        sizes = live.last[event[leader]] - lane_first
        base = np.cumsum(sizes) - sizes
        shift = (base - lane_first)[lanes]
        spans = Spans(first + shift, last + shift, int(sizes.sum()))
        lane, within = enumerate_lists(sizes)
        places = (lane_first[lane] + within, leader[lane])
        return Spanned(SpannedColumn(values, times, spans), live.size + 1, levels, places)

    def _by_bucket(
        self,
        aggregation: Aggregation,
        ranges: Ranges,
        query_keys: np.ndarray,
        levels: list[pa.Array],
    ) -> pa.Array:
        """A map from bucket to result for each query; nested maps for several levels.

        Values are sorted by (key, bucket), which makes lanes; a query is evaluated over each lane
        of its key. Lanes of the innermost level carry the outer buckets too, and become maps
        level by level.
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
        ties = self.ties[order]
        moved = np.concatenate([[False], changed]) if order.size else changed
        moved[1:] |= ties[1:] != ties[:-1]
        column = Column(self.values.take(pa.array(order)), np.cumsum(moved))
        found = evaluate(aggregation, column, Ranges(start[there], end[there]))
        by_query = sort_words(np.vstack([query, lane])) if query.size else np.zeros(0, np.int64)
        found, query = found.take(pa.array(by_query)), query[by_query]
        rows = order[lane_start[lane[by_query]]]
        return bucket_maps(found, query, rows, levels, codes, query_keys.size)
