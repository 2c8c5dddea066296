"""Sorted rows, slice by slice: events and queries of some keys, by the hash of the key and by time.

Both sides of a backfill are cut at the same prefixes. What rests in a shard is sorted there, and
a task only merges its runs. A task reads several neighbouring slices, one after the other, and
its runs stay open from one to the next: a row group that two slices share is decoded once.
Queries that are few are not worth a shard: each task reads all of them and sorts them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.features.compute.events import QueryTimes
from windrow.features.definitions import GroupBy
from windrow.features.inputs.layout import EVENT_TIME
from windrow.features.inputs.queries import QUERY_TIME
from windrow.merging import merge_segments, sort_words
from windrow.rows.ordering import LOWEST, exact
from windrow.rows.types import single_chunk
from windrow.shard.append import TaskRows
from windrow.shard.merge import Consolidation, merged_tables, merges
from windrow.shard.part import Part, stored_table
from windrow.shard.plan import slices_between
from windrow.shard.predicate import Predicate, bind, col
from windrow.shard.scan import Bound, Counters, RunReader, Scan, TimeRange, order_words
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX, ShardSpec
from windrow.updates import DIFF, TIME, as_updates, int64_values

CHUNK_ROWS = (4_096, 65_536)  # of a run, that are held beyond a slice: at least, at most
HELD_ROWS = 500_000  # over all runs

TimeBounds = tuple[int, int]  # the first and the last millisecond


class SortedRows:
    """The rows of neighbouring slices, read forward once."""

    def __init__(
        self,
        scan: Scan,
        parts: Sequence[Part],
        bounds: tuple[Bound | None, Bound | None] = (None, None),
        level: Consolidation = Consolidation.NONE,
        *,
        with_times: bool = False,
    ) -> None:
        cuts = [cut for cut in bounds if cut is not None]
        inside = slices_between(parts, cuts)[0 if bounds[0] is None else 1]
        self._scan = scan
        self._names = [*scan.columns, *([TIME] if with_times else []), DIFF, PREFIX]
        low, high = CHUNK_ROWS
        rows = min(high, max(low, HELD_ROWS // max(len(inside.runs), 1)))
        if level is not Consolidation.NONE and merges(scan, inside, level):
            self._cursors = [_Cursor(merged_tables(scan, inside, Counters()))]
        else:
            readers = [RunReader(scan, inside, r, False, Counters(), rows) for r in inside.runs]
            self._cursors = [_Cursor(c.table for c in reader.chunks()) for reader in readers]

    def below(self, end: Bound | None, keep: EventFilter | None = None) -> pa.Table:
        """The rows before `end` (None: all that are left), by prefix and first order column.

        With `_diff` and `_prefix`; those that `keep` lets pass.
        """
        tables: list[pa.Table] = []
        lengths: list[int] = []
        for cursor in self._cursors:
            found = [t.select(self._names) for t in cursor.below(None if end is None else end[0])]
            if keep is not None:
                found = [keep.filter(table) for table in found]
            tables += found
            lengths.append(sum(table.num_rows for table in found))
        if not tables:
            return self._empty()
        table = pa.concat_tables(tables).combine_chunks()
        if sum(length > 0 for length in lengths) > 1:
            times = exact(single_chunk(table.column(self._scan.spec.order.columns[0])))
            words = np.vstack([int64_values(table, PREFIX), times])
            table = table.take(pa.array(merge_segments(words, lengths)))
        return table

    def _empty(self) -> pa.Table:
        stored = self._scan.spec.stored_schema
        return pa.schema([stored.field(name) for name in self._names]).empty_table()


class _Cursor:
    """Sorted tables, read up to one prefix after the other."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held: pa.Table | None = None

    def below(self, prefix: int | None) -> list[pa.Table]:
        found: list[pa.Table] = []
        while True:
            if self._held is None:
                self._held = next(self._tables, None)
                if self._held is None:
                    return found
            prefixes = int64_values(self._held, PREFIX)
            at = prefixes.size if prefix is None else int(np.searchsorted(prefixes, prefix))
            if at:
                found.append(self._held.slice(0, at))
            if at < prefixes.size:
                self._held = self._held.slice(at)
                return found
            self._held = None


def expanded(rows: pa.Table) -> pa.Table:
    """Each row as often as its `_diff` says, without that column; none is negative."""
    diffs = int64_values(rows, DIFF)
    rows = rows.drop_columns([DIFF])
    if diffs.size and diffs.max() > 1:
        rows = rows.take(pa.array(np.repeat(np.arange(diffs.size), diffs)))
    return rows


def bounds_of(cuts: Sequence[Bound], first: int, last: int) -> tuple[Bound | None, Bound | None]:
    """Where slice `first` starts and slice `last` ends, of the slices between `cuts`."""
    start = cuts[first - 1] if first else None
    return start, cuts[last] if last < len(cuts) else None


@dataclass(frozen=True)
class StoredQueries:
    """Queries that rest sorted in a shard."""

    scan: Scan
    parts: tuple[Part, ...]

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
        """The first and last of their times; None if that is not known."""
        return time_bounds(self.parts, QUERY_TIME)

    def slices(self, cuts: Sequence[Bound], numbers: range) -> Iterator[pa.Table]:
        """The queries of neighbouring slices, with `_prefix`."""
        if not numbers:
            return
        rows = SortedRows(self.scan, self.parts, bounds_of(cuts, numbers[0], numbers[-1]))
        for number in numbers:
            yield expanded(rows.below(bounds_of(cuts, number, number)[1]))


@dataclass(frozen=True)
class FewQueries:
    """Queries that each task reads from their files, and sorts."""

    source: TaskRows
    spec: ShardSpec
    rows: int
    times: TimeBounds | None

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    def slices(self, cuts: Sequence[Bound], numbers: range) -> Iterator[pa.Table]:
        """The queries of neighbouring slices, with `_prefix`."""
        shares = range(self.source.tasks)
        batches = [batch for task in shares for batch in self.source.batches(task)]
        schema = batches[0].schema if batches else self.spec.schema
        table = pa.Table.from_batches(batches, schema)
        stored = stored_table(
            as_updates(table, self.spec.schema, default_time=0, where="queries"), self.spec
        )
        stored = stored.take(pa.array(sort_words(order_words(self.spec, stored, with_time=False))))
        prefixes = int64_values(stored, PREFIX)
        stored = stored.select([*self.spec.schema.names, PREFIX])
        edges = np.searchsorted(prefixes, [LOWEST, *(cut[0] for cut in cuts)]).tolist()
        edges.append(prefixes.size)
        for number in numbers:
            first, last = edges[number], edges[number + 1]
            yield stored.slice(first, last - first).combine_chunks()


QuerySlices = StoredQueries | FewQueries  # the queries of a pass; picklable


def row_scan(scan: Scan, where: Predicate | None = None) -> Scan:
    """A scan of all rows up to its time, whatever the times of their updates."""
    times = TimeRange(None, scan.times.end, 0)
    return replace(scan, times=times, where=where, cache=None, timeless=True)


def counted_span(group: GroupBy, times: np.ndarray) -> TimeBounds:
    """The times [start, end) of events that can count for queries at `times`."""
    times = group.effective_times(times)
    bounds = [feature.window.bounds(times) for feature in group.features] if times.size else []
    return (
        min((int(start.min()) for start, _ in bounds), default=0),
        max((int(end.max()) for _, end in bounds), default=0),
    )


def within(scan: Scan, parts: Sequence[Part], span: TimeBounds) -> tuple[Scan, tuple[Part, ...]]:
    """The scan and its parts, reduced to events with times in [start, end)."""
    found = time_bounds(parts, EVENT_TIME)
    if found is not None and span[0] <= found[0] and found[1] < span[1]:
        return scan, tuple(parts)
    condition = (col(EVENT_TIME) >= span[0]) & (col(EVENT_TIME) < span[1])
    if scan.where is not None:
        condition = scan.where & condition
    scan = replace(scan, where=bind(condition, scan.spec.schema))
    return scan, tuple(part for part in parts if scan.may_hold(part))


def time_bounds(parts: Sequence[Part], column: str) -> TimeBounds | None:
    """The first and last time in a column, from the parts' statistics; None if unknown."""
    known = [part.bounds.get(column) for part in parts]
    if any(one is None or one.low is None for one in known) or not known:
        return None
    return min(b.low for b in known if b), max(b.high for b in known if b)


@dataclass(frozen=True)
class EventFilter:
    """What few queries request of a slice: rows with these prefixes and a time in the span."""

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
