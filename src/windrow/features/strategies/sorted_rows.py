"""Sorted rows of a slice: events and queries of some keys, by the hash of the key and by time.

Both sides of a backfill are cut at the same prefixes. What rests in a shard is sorted there, and
a task only merges its runs. Queries that are few are not worth a shard: each task reads all of
them, keeps those of its slice and sorts them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.features.compute.events import QueryTimes
from windrow.features.definitions import GroupBy
from windrow.features.inputs.groups import EVENT_TIME
from windrow.features.inputs.queries import QUERY_TIME
from windrow.merging import merge_segments, sort_words
from windrow.rows.ordering import HIGHEST, LOWEST, exact
from windrow.rows.types import single_chunk
from windrow.shard.append import TaskRows
from windrow.shard.part import Part, stored_table
from windrow.shard.plan import slices_between
from windrow.shard.predicate import bind, col
from windrow.shard.scan import Bound, Counters, RunReader, Scan, Slice, TimeRange, order_words
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX, ShardSpec
from windrow.time import floor_to
from windrow.updates import DIFF, as_updates, int64_values

CHUNK_ROWS = 65_536

TimeBounds = tuple[int, int]  # the first and the last millisecond


@dataclass(frozen=True)
class StoredQueries:
    """Queries that rest sorted in a shard.

    `times` are the first and last of their times; None if nobody knows.
    """

    scan: Scan
    parts: tuple[Part, ...]
    cuts: tuple[Bound, ...] = ()

    @staticmethod
    def of(shard: Shard) -> StoredQueries:
        read = shard.snapshot(consolidate="none")
        return StoredQueries(row_scan(read.scan), tuple(read.parts))

    @property
    def spec(self) -> ShardSpec:
        return self.scan.spec

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def times(self) -> TimeBounds | None:
        return _bounds(self.parts, QUERY_TIME)

    def read(self, number: int) -> pa.Table:
        bounds = self.cuts[max(number - 1, 0) : number + 1]
        return read_sorted(self.scan, slices_between(self.parts, bounds)[min(number, 1)])


@dataclass(frozen=True)
class FewQueries:
    """Queries that each task reads from their files, and sorts."""

    source: TaskRows
    spec: ShardSpec
    rows: int
    times: TimeBounds | None
    cuts: tuple[Bound, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    def read(self, number: int) -> pa.Table:
        shares = range(self.source.tasks)
        batches = [batch for task in shares for batch in self.source.batches(task)]
        schema = batches[0].schema if batches else self.spec.schema
        table = pa.Table.from_batches(batches, schema)
        stored = stored_table(
            as_updates(table, self.spec.schema, default_time=0, where="queries"), self.spec
        )
        prefixes = int64_values(stored, PREFIX)
        bounds = [LOWEST, *(cut[0] for cut in self.cuts), None]
        mask = prefixes >= bounds[number]
        if bounds[number + 1] is not None:
            mask &= prefixes < bounds[number + 1]
        stored = stored.filter(pa.array(mask)).combine_chunks()
        order = sort_words(order_words(self.spec, stored, with_time=False))
        return stored.select([*self.spec.schema.names, PREFIX]).take(pa.array(order))


QuerySlices = StoredQueries | FewQueries  # the queries of a pass, cut into slices; picklable


def row_scan(scan: Scan, without: tuple[int, ...] = ()) -> Scan:
    """A scan of everything, at no particular time; but for updates at the times `without`."""
    times = TimeRange(None, HIGHEST, 0, without)
    return Scan(scan.store, scan.spec, times, scan.columns, timeless=True)


def counted_span(group: GroupBy, times: np.ndarray) -> TimeBounds:
    """The times [start, end) of events that can count for queries at `times`."""
    if group.accuracy == "snapshot":
        times = floor_to(times, group.refresh)
    bounds = [feature.window.bounds(times) for feature in group.features] if times.size else []
    return (
        min((int(start.min()) for start, _ in bounds), default=0),
        max((int(end.max()) for _, end in bounds), default=0),
    )


def within(scan: Scan, parts: Sequence[Part], span: TimeBounds) -> tuple[Scan, tuple[Part, ...]]:
    """The scan and its parts, reduced to events with times in [start, end)."""
    found = _bounds(parts, EVENT_TIME)
    if found is not None and span[0] <= found[0] and found[1] < span[1]:
        return scan, tuple(parts)
    condition = (col(EVENT_TIME) >= span[0]) & (col(EVENT_TIME) < span[1])
    scan = replace(scan, where=bind(condition, scan.spec.schema))
    return scan, tuple(part for part in parts if scan.may_hold(part))


def _bounds(parts: Sequence[Part], column: str) -> TimeBounds | None:
    known = [part.bounds.get(column) for part in parts]
    if any(one is None or one.low is None for one in known) or not known:
        return None
    return min(b.low for b in known if b), max(b.high for b in known if b)


@dataclass(frozen=True)
class EventFilter:
    """What few queries ask of a slice: rows with one of these prefixes and a time in the span."""

    prefixes: np.ndarray  # sorted
    start: int
    end: int

    @staticmethod
    def of(group: GroupBy, queries: QueryTimes) -> EventFilter:
        assert queries.hashes is not None
        span = counted_span(group, queries.times[queries.valid])
        return EventFilter(np.unique(queries.hashes[queries.valid]), *span)

    def filter(self, table: pa.Table) -> pa.Table:
        times, prefixes = int64_values(table, EVENT_TIME), int64_values(table, PREFIX)
        mask = (times >= self.start) & (times < self.end)
        if self.prefixes.size:
            at = np.minimum(np.searchsorted(self.prefixes, prefixes), self.prefixes.size - 1)
            mask &= self.prefixes[at] == prefixes
        return table.filter(pa.array(mask))


def read_sorted(
    scan: Scan, slice_: Slice, once: bool = False, asked: EventFilter | None = None
) -> pa.Table:
    """All rows of a slice with `_prefix`, each as often as it is there; or `once`, with `_diff`.

    They are in order of the prefix and the first order column: runs are merged, not sorted anew.
    """
    counters = Counters()
    names = [*scan.columns, DIFF, PREFIX]
    tables: list[pa.Table] = []
    lengths: list[int] = []
    for run in slice_.runs:
        reader = RunReader(scan, slice_, run, False, counters, CHUNK_ROWS)
        found = [chunk.table.select(names) for chunk in reader.chunks()]
        if asked is not None:
            found = [asked.filter(table) for table in found]
        tables += found
        lengths.append(sum(table.num_rows for table in found))
    if not tables:
        own = [pa.field(DIFF, pa.int64())] if once else []
        return pa.schema([*scan.spec.schema, *own, pa.field(PREFIX, pa.int64())]).empty_table()
    table = pa.concat_tables(tables).combine_chunks()
    diffs = int64_values(table, DIFF)
    order: np.ndarray | None = None
    if sum(length > 0 for length in lengths) > 1:
        moments = exact(single_chunk(table.column(scan.spec.order.columns[0])))
        order = merge_segments(np.vstack([int64_values(table, PREFIX), moments]), lengths)
    if not once and diffs.size and diffs.max() > 1:
        order = np.arange(diffs.size) if order is None else order
        order = np.repeat(order, diffs[order])
    if not once:
        table = table.drop_columns([DIFF])
    return table if order is None else table.take(pa.array(order))
