"""Rows of an arrangement, slice by slice: by the hash of the key, then by its order columns.

Several arrangements are cut at the same prefixes, so that a task finds all rows of its keys in its
slices of each. A task reads several neighbouring slices, one after the other, and its runs stay
open from one to the next: a row group that two slices share is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.shard.merge import Consolidation, merged_tables, merges
from windrow.shard.part import Part
from windrow.shard.plan import slices_between
from windrow.shard.predicate import Predicate
from windrow.shard.runs import open_runs
from windrow.shard.scan import Bound, Counters, Scan, Slice, TimeRange
from windrow.shard.spec import PREFIX
from windrow.updates import DIFF, TIME, int64_values
from windrow.words.merging import merge_segments

CHUNK_ROWS = (4_096, 65_536)  # of a run, that are read at a time: at least, at most
HELD_BYTES = 128 << 20  # of all runs, as they are stored

Keep = Callable[[pa.Table], pa.Table]  # the rows to keep, of some


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
        self._open = ExitStack()  # closed when this object goes
        self._names = [*scan.columns, *([TIME] if with_times else []), DIFF, PREFIX]
        rows = _chunk_rows(inside)
        if level is not Consolidation.NONE and merges(scan, inside, level):
            self._cursors = [_Cursor(merged_tables(scan, inside, Counters()))]
        else:
            opening = open_runs(scan, inside, Counters(), rows, merging=False, abreast=True)
            runs = self._open.enter_context(opening)
            self._cursors = [_Cursor(chunk.table for chunk in run) for run in runs]

    def below(self, end: Bound | None, keep: Keep | None = None) -> pa.Table:
        """The rows before `end` (None: all that are left), by prefix and first order column.

        With `_diff` and `_prefix`; those that `keep` lets pass.
        """
        tables: list[pa.Table] = []
        lengths: list[int] = []
        for cursor in self._cursors:
            found = [t.select(self._names) for t in cursor.below(None if end is None else end[0])]
            if keep is not None:
                found = [keep(table) for table in found]
            tables += found
            lengths.append(sum(table.num_rows for table in found))
        if not tables:
            return self._empty()
        table = pa.concat_tables(tables).combine_chunks()
        if sum(length > 0 for length in lengths) > 1:
            words = [int64_values(table, PREFIX)]
            for name in self._scan.spec.order.columns[:1]:
                words.append(exact(single_chunk(table.column(name))))
            table = table.take(pa.array(merge_segments(np.vstack(words), lengths)))
        return table

    def _empty(self) -> pa.Table:
        stored = self._scan.spec.stored_schema
        return pa.schema([stored.field(name) for name in self._names]).empty_table()


def _chunk_rows(slice_: Slice) -> int:
    """How many rows of each run to read at a time: a whole row group, if runs are not too many."""
    stored = sum(part.bytes for part in slice_.parts)
    rows = sum(part.rows for part in slice_.parts) * HELD_BYTES // max(stored, 1)
    low, high = CHUNK_ROWS
    return min(high, max(low, rows // max(len(slice_.runs), 1)))


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


def row_scan(scan: Scan, where: Predicate | None = None) -> Scan:
    """A scan of all rows up to its time, whatever the times of their updates."""
    times = TimeRange(None, scan.times.end, 0)
    return replace(scan, times=times, where=where, cache=None, timeless=True)
