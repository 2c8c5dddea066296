"""Windows from tiles: whole hops from the states of a key, the ends from its raw events."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.arrays import enumerate_lists
from windrow.algebra.windows import Window
from windrow.arrangements.rows import SortedRows, bounds_of, expanded
from windrow.features.compute.buckets import lanes_of
from windrow.features.compute.elements import Elements
from windrow.features.compute.events import Events, QueryTimes, canonical_table
from windrow.features.compute.partials import QUERY, STATE, combine_partials, partial
from windrow.features.compute.spanned import LiveQueries, Spanned
from windrow.features.compute.timeline import Timelines, key_ids, search
from windrow.features.inputs.layout import EVENT_TIME, key_names, positional
from windrow.features.strategies.group_events import GroupEvents
from windrow.features.strategies.tiles.tiling import (
    HOP,
    HOPS,
    QUERY_BLOCK,
    TILE_STATE,
    Tiling,
    _inner,
    without_queries,
)
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.shard.part import Part
from windrow.shard.predicate import Predicate, bind, col
from windrow.shard.scan import Bound, Scan
from windrow.updates import int64_values


@dataclass(frozen=True)
class Heads:
    """Queries by key and time, block by block, beside the raw events at the ends of windows.

    Keys are numbered alike on both sides. What does not depend on the aggregation is kept: the
    elements of inputs, and the spans of queries that count them.
    """

    raw: Events
    events: Timelines
    query_times: np.ndarray
    query_keys: np.ndarray
    block_size: int = QUERY_BLOCK

    @functools.cached_property
    def order(self) -> np.ndarray:
        return np.lexsort([self.query_times, self.query_keys])

    def blocks(self) -> Iterator[np.ndarray]:
        """Queries, some at a time; at least one block, which may be empty."""
        for first in range(0, max(self.order.size, 1), self.block_size):
            yield self.order[first : first + self.block_size]

    def partial(
        self,
        aggregation: Aggregation,
        block: np.ndarray,
        which: tuple[Window, str],
        low: np.ndarray,
        high: np.ndarray,
    ) -> pa.Table:
        """Of raw events at one end of a window (`which`), with times in [low, high).

        Both bounds ascend with the queries of a key.

        So an event counts for a span of queries: from the first whose range ends after it, to the
        first whose range starts after it.
        """
        inputs = (aggregation.column, aggregation.bucket, aggregation.condition)
        place = (inputs, which, int(block[0]) if block.size else -1)
        if place not in self._spanned:
            if inputs not in self._elements:
                self._elements[inputs] = Elements.make(aggregation, self.raw, self.events)
            keys, events = self.query_keys[block], self.events
            first = np.searchsorted(keys, events.keys, "left")
            last = np.searchsorted(keys, events.keys, "right")
            never = np.zeros(0, np.int64)  # events of a log do not die
            live = LiveQueries(self.query_times[block], first, last, events.times, never, never)
            begins = search(high, first, last, events.times + 1)
            ends = np.maximum(begins, search(low, first, last, events.times + 1))
            self._spanned[place] = self._elements[inputs].spanned(begins, ends, live, events)
        return partial(aggregation, self._spanned[place])

    @functools.cached_property
    def _elements(self) -> dict[object, Elements]:
        return {}

    @functools.cached_property
    def _spanned(self) -> dict[object, Spanned]:
        return {}


def boards(
    tilings: Sequence[Tiling],
    tables: Sequence[pa.Table],
    raw: Events,
    keys: pa.Table,
    query_times: np.ndarray,
    block_size: int = QUERY_BLOCK,
) -> Iterator[Board]:
    """The boards of several aggregations, for queries with `keys` at `query_times`."""
    names = key_names(keys.num_columns)
    sides = [keys, raw.keys, *(table.select(names) for table in tables)]
    all_keys = pa.concat_tables([positional(canonical_table(side)) for side in sides])
    ids = key_ids(all_keys.combine_chunks())
    ends = np.cumsum([side.num_rows for side in sides])
    query_keys, event_keys, *tile_keys = np.split(ids, ends[:-1])
    heads = Heads(raw, without_queries(event_keys, raw.times), query_times, query_keys, block_size)
    count = int(ids.max(initial=-1)) + 1
    for tiling, table, own in zip(tilings, tables, tile_keys, strict=True):
        yield Board.make(tiling, table, own, count, heads)


@dataclass(frozen=True)
class Board:
    """The tiles of one aggregation, beside queries and raw events, with keys numbered alike.

    Tiles of key g and hop h lie in [tile_first[g, h], tile_last[g, h]) by start.
    """

    tiling: Tiling
    states: pa.Array
    levels: list[pa.Array]
    starts: np.ndarray
    tile_first: np.ndarray
    tile_last: np.ndarray
    heads: Heads

    @staticmethod
    def make(
        tiling: Tiling, table: pa.Table, tile_keys: np.ndarray, count: int, heads: Heads
    ) -> Board:
        hop = np.searchsorted(HOPS, int64_values(table, HOP))
        starts = int64_values(table, EVENT_TIME)
        lane = tile_keys * len(HOPS) + hop
        order = np.lexsort([starts, lane])
        lanes = np.arange(count * len(HOPS))
        bytes_ = single_chunk(table.column(TILE_STATE)).take(pa.array(order))
        levels = tiling.levels
        return Board(
            tiling,
            tiling.states.deserialise(bytes_),
            [single_chunk(table.column(name)).take(pa.array(order)) for name in levels],
            starts[order],
            np.searchsorted(lane[order], lanes, "left").reshape(count, len(HOPS)),
            np.searchsorted(lane[order], lanes, "right").reshape(count, len(HOPS)),
            heads,
        )

    def feature(self, window: Window) -> pa.Array:
        """The result for each query; and last for one without events."""
        found = []
        for block in self.heads.blocks():
            tables = self._partials(window, block)
            found.append(combine_partials(self.tiling.states, tables, block.size + 1))
        order = self.heads.order
        back = np.empty(order.size + 1, np.int64)
        back[order] = np.arange(order.size)
        back[-1] = order.size
        parts = [one.slice(0, len(one) - 1) for one in found]
        parts.append(found[-1].slice(len(found[-1]) - 1))
        return pa.concat_arrays(parts).take(pa.array(back))

    def _partials(self, window: Window, block: np.ndarray) -> list[pa.Table]:
        """Partials for queries, sorted by key and time: of tiles, and of raw events at the ends."""
        start, end = window.bounds(self.heads.query_times[block])
        low, high = _inner(start, end, HOPS[0])
        none = low > high
        low, high = np.where(none, end, low), np.where(none, end, high)
        aggregation = self.tiling.aggregation
        return [
            self._tile_partial(self.heads.query_keys[block], low, high),
            self.heads.partial(aggregation, block, (window, "start"), start, low),
            self.heads.partial(aggregation, block, (window, "end"), high, end),
        ]

    def _tile_partial(self, keys: np.ndarray, low: np.ndarray, high: np.ndarray) -> pa.Table:
        """Of the whole hops in [low, high), the longest that fit; neighbours often share them."""
        words = np.vstack([keys, low, high])
        new = np.ones(keys.size, np.bool_)
        new[1:] = (words[:, 1:] != words[:, :-1]).any(axis=0)
        group = np.cumsum(new) - 1
        key, low, high = keys[new], low[new], high[new]
        ranges = []
        for level, hop in enumerate(HOPS[1:]):
            inner_low, inner_high = _inner(low, high, hop)
            none = inner_low > inner_high
            inner_low, inner_high = (
                np.where(none, high, inner_low),
                np.where(none, high, inner_high),
            )
            ranges.append(self._tiles(key, level, low, inner_low))
            ranges.append(self._tiles(key, level, inner_high, high))
            low, high = inner_low, inner_high
        ranges.append(self._tiles(key, len(HOPS) - 1, low, high))
        owner, at = _pairs(ranges)
        levels = [level.take(pa.array(at)) for level in self.levels]
        lanes, leader = lanes_of(np.vstack([owner, *(exact(level) for level in levels)]))
        found = self.tiling.states.combine(self.states.take(pa.array(at)), lanes, leader.size)
        # Each query gets what was found for its group: lanes of a group are adjacent.
        counts = np.bincount(owner[leader], minlength=key.size)
        begin = np.cumsum(counts) - counts
        query, within = enumerate_lists(counts[group])
        lane = begin[group[query]] + within
        chosen = pa.array(leader[lane])
        names = [QUERY, *(f"b{i}" for i in range(len(levels))), STATE]
        columns = [level.take(chosen) for level in levels]
        return pa.table([pa.array(query), *columns, found.take(pa.array(lane))], names=names)

    def _tiles(
        self, key: np.ndarray, level: int, a: np.ndarray, b: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        first, last = self.tile_first[key, level], self.tile_last[key, level]
        low = search(self.starts, first, last, a)
        return low, np.maximum(search(self.starts, first, last, b), low)


def _pairs(ranges: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of an owner and a position, of several ranges of positions for each owner."""
    owners, places = [], []
    for low, high in ranges:
        owner, within = enumerate_lists(high - low)
        owners.append(owner)
        places.append(low[owner] + within)
    return np.concatenate(owners), np.concatenate(places)


@dataclass(frozen=True)
class Tiled:
    """A group's events, and for each aggregation where its tiles are stored. Picklable."""

    events: GroupEvents
    tilings: tuple[Tiling, ...]
    scans: tuple[Scan, ...]
    parts: tuple[tuple[Part, ...], ...]

    def features(
        self, queries: QueryTimes, cuts: Sequence[Bound], number: int
    ) -> tuple[list[pa.Array], int]:
        """The features of queries of a slice, from tiles and raw events; and the rows read."""
        bounds = bounds_of(cuts, number, number)
        group = self.events.group.group
        times = group.effective_times(queries.times)
        place = np.flatnonzero(queries.live)
        keys = canonical_table(queries.keys).take(pa.array(place))
        query_times = times[place]
        raw = self._raw(query_times, bounds)
        sides = zip(self.scans, self.parts, strict=True)
        tables = [expanded(SortedRows(s, parts, bounds).below(None)) for s, parts in sides]
        rows = raw.times.size + sum(table.num_rows for table in tables)
        where = np.full(times.size, place.size)
        where[place] = np.arange(place.size)
        results: list[pa.Array] = []
        for board in boards(self.tilings, tables, raw, keys, query_times):
            for feature in board.tiling.aggregation.features():
                results.append(board.feature(feature.window).take(pa.array(where)))
        return results, rows

    def _raw(self, query_times: np.ndarray, bounds: tuple[Bound | None, Bound | None]) -> Events:
        """The raw events at the ends of windows, which tiles do not cover."""
        group = self.events.group.group
        wanted: Predicate | None = None
        for window in {feature.window for feature in group.features}:
            for low, high in _raw_spans(window, query_times):
                one = (col(EVENT_TIME) >= low) & (col(EVENT_TIME) < high)
                wanted = one if wanted is None else wanted | one
        events, scan = self.events, self.events.scan
        parts = events.parts if wanted is not None else ()
        if wanted is not None:
            wanted = wanted if scan.where is None else scan.where & wanted
            scan = replace(scan, where=bind(wanted, scan.spec.schema))
        return events.events_of(SortedRows(scan, parts, bounds, events.level).below(None))


def _raw_spans(window: Window, query_times: np.ndarray) -> Iterator[tuple[int, int]]:
    """Spans of time that hold all raw events at the ends of the windows."""
    if not query_times.size:
        return
    start, end = window.bounds(query_times)
    inner_start, inner_end = _inner(start, end, HOPS[0])
    for low, high in ((start, np.minimum(inner_start, end)), (np.maximum(inner_end, start), end)):
        some = low < high
        if some.any():
            yield int(low[some].min()), int(high[some].max())
