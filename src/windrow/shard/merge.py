"""Reading a slice as one stream: a merge of its runs, consolidated as far as requested.

Full consolidation works in rounds. Each run has some of its updates in memory and a frontier:
what has not been loaded yet has a prefix at or above it. Everything below the smallest frontier
is complete, so it is merged, consolidated and emitted; then the runs that are short load more.

    run A   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│▒▒▒┆ ...
    run B   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒┆ ...            ┆ frontier: nothing below it is still to come
    run C   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒┆ ...    │ cut: the smallest frontier
            emitted now    │ kept

Memory is bounded by the chunks, and output starts after the first of them. A prefix with more
updates than fit in memory (a hot key) is cut further, by the words below the prefix; updates that
agree in all words collapse where they stand.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum

import numpy as np
import pyarrow as pa

from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.rows.types import single_chunk
from windrow.shard.part import CONSOLIDATED
from windrow.shard.projection import ProjectionBuffer, drops_columns, shows_order, total
from windrow.shard.runs import Chunk, open_runs
from windrow.shard.scan import ROUND_ROWS, Counters, Scan, Slice, order_words
from windrow.shard.spec import PREFIX
from windrow.updates import DIFF, int64_values, replace_column
from windrow.words.consolidation import Consolidated, consolidate_sorted
from windrow.words.merging import merge_segments

BATCH_ROWS = 65_536
_STEP_ROWS = 2_048


class Consolidation(Enum):
    """How far equal updates are added up on the way out.

    NONE: not at all. BEST_EFFORT: what one worker happens to hold at a time. FULL: each row once
    (each row and time, for changes), with its final multiplicity. MONOTONIC: what FULL promises
    of the sign, without each row being unique: if no part holds a retraction, nothing is merged.
    """

    NONE = "none"
    BEST_EFFORT = "best_effort"
    MONOTONIC = "monotonic"
    FULL = "full"


def read_slice(
    scan: Scan, slice_: Slice, level: Consolidation, counters: Counters
) -> Iterator[pa.RecordBatch]:
    """The slice's updates as batches of `scan.output_schema`, at most `scan.limit` of them."""
    started = time.perf_counter()
    left = scan.limit
    for table in _tables(scan, slice_, level, counters):
        if left is not None:
            table = table.slice(0, left)
            left -= table.num_rows
        for batch in _output(scan, table).to_batches(max_chunksize=BATCH_ROWS):
            if counters.seconds_to_first_batch is None:
                counters.seconds_to_first_batch = time.perf_counter() - started
            counters.updates_emitted += batch.num_rows
            yield batch
        if left == 0:
            return


def _output(scan: Scan, table: pa.Table) -> pa.Table:
    schema = scan.output_schema
    return pa.table([table.column(name) for name in schema.names], schema=schema)


def merges(scan: Scan, slice_: Slice, level: Consolidation) -> bool:
    """Whether a read at this level has to merge runs; the fast paths of full consolidation."""
    if level in (Consolidation.NONE, Consolidation.BEST_EFFORT):
        return level is Consolidation.BEST_EFFORT
    if level is Consolidation.MONOTONIC:
        return any(part.name.retractions for part in slice_.parts)
    # One run in which every (row, time) is unique, read such that no two times become one.
    parts = slice_.parts
    alone = len(slice_.runs) <= 1 and all(p.name.form == CONSOLIDATED for p in parts)
    if scan.times.is_single or any(p.time[0] < scan.times.advance_to for p in parts):
        alone = alone and len({t for p in parts for t in p.time}) <= 1
    return not alone


def _tables(
    scan: Scan, slice_: Slice, level: Consolidation, counters: Counters
) -> Iterator[pa.Table]:
    # A limited read holds nothing back to be added up: it has to stop early.
    if level is Consolidation.NONE or scan.limit is not None or not drops_columns(scan):
        yield from _rows(scan, slice_, level, counters)
    elif not scan.columns and scan.times.is_single:
        yield _total(scan, slice_, counters)
    else:
        buffer = ProjectionBuffer(scan)
        for table in _rows(scan, slice_, level, counters, buffer):
            yield from buffer.add(table)
        yield from buffer.rest()


def _total(scan: Scan, slice_: Slice, counters: Counters) -> pa.Table:
    """The sum over a slice of which neither columns nor times are left: in any order."""
    times = replace(scan.times, advance_to=LOWEST)
    diffs = replace(scan, times=times, timeless=True)
    return total(_rows(diffs, slice_, Consolidation.NONE, counters), scan.times.advance_to)


def _rows(
    scan: Scan,
    slice_: Slice,
    level: Consolidation,
    counters: Counters,
    buffer: ProjectionBuffer | None = None,
) -> Iterator[pa.Table]:
    """Updates of whole rows, consolidated before columns are dropped, and what `buffer` spares."""
    merging = merges(scan, slice_, level)
    if merging and level is not Consolidation.BEST_EFFORT:
        # Rows that are not merged lose the order of the shard.
        yield from merged_tables(scan, slice_, counters, None if shows_order(scan) else buffer)
        return
    chunk_rows = scan.chunk_rows(len(slice_.runs))
    if merging:
        # Small steps keep the runs of a round abreast of each other.
        chunk_rows = max(chunk_rows // 4, min(chunk_rows, _STEP_ROWS))
    with open_runs(scan, slice_, counters, chunk_rows, merging=merging, abreast=merging) as runs:
        if merging:
            yield from _of_keys(scan, _best_effort(scan, runs, buffer))
        else:
            for run in runs:
                yield from _of_keys(scan, (chunk.table for chunk in run))


def merged_tables(
    scan: Scan, slice_: Slice, counters: Counters, buffer: ProjectionBuffer | None = None
) -> Iterator[pa.Table]:
    """The slice fully consolidated, with `_prefix`, `_hash` and the order columns kept.

    While `buffer` absorbs, updates come as they are: all of a row, or none.
    """
    chunk_rows = scan.chunk_rows(len(slice_.runs))
    with open_runs(scan, slice_, counters, chunk_rows, merging=True, abreast=True) as runs:
        yield from _of_keys(scan, Merge(scan, runs, chunk_rows, buffer).tables())


def _of_keys(scan: Scan, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The updates of the keys that are looked up, among those with their prefixes.

    Runs leave it to be done here, once for all of them.
    """
    if scan.keys is None or not scan.keys.by_prefix:
        yield from tables
        return
    for table in tables:
        mask = scan.keys.contains(table, int64_values(table, PREFIX))
        found = table if mask.all() else table.filter(pa.array(mask))
        if found.num_rows:
            yield found


def _best_effort(
    scan: Scan, runs: Sequence[Iterator[Chunk]], buffer: ProjectionBuffer | None
) -> Iterator[pa.Table]:
    """Chunks in about the order of their prefixes, a round of them consolidated at a time.

    The run that is furthest behind loads next, so that equal rows are likely to meet; what does
    not meet goes out as it is.
    """
    enough = ROUND_ROWS
    if scan.limit is not None:
        enough = min(enough, max(scan.limit, scan.chunk_rows(len(runs))))
    active = [(LOWEST, number) for number in range(len(runs))]
    while active:
        tables: list[pa.Table] = []
        rows = 0
        while active and rows < enough:
            _, number = active[0]
            chunk = next(runs[number], None)
            if chunk is None:
                heapq.heappop(active)
                continue
            heapq.heapreplace(active, (chunk.frontier, number))
            if chunk.table.num_rows:
                tables.append(chunk.table)
                rows += chunk.table.num_rows
        if tables:
            yield _consolidated(scan, tables, buffer)


def _consolidated(
    scan: Scan, tables: Sequence[pa.Table], buffer: ProjectionBuffer | None
) -> pa.Table:
    """Sorted tables merged and consolidated; or side by side, if `buffer` will add them up."""
    if buffer is not None and buffer.absorbs:
        return pa.concat_tables(tables)
    return Merged(scan, tables).consolidated()


class Merged:
    """Sorted tables side by side: their rows concatenated, their words, and their merged order."""

    def __init__(self, scan: Scan, tables: Sequence[pa.Table]) -> None:
        self.lengths = [table.num_rows for table in tables]
        self.table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        self.table = self.table.combine_chunks()
        self.words = order_words(scan.spec, self.table, with_time=not scan.times.is_single)
        # Rows that are one without the dropped columns may be added up here; but not those of
        # different keys, as long as keys are still to be looked up.
        keys = () if scan.keys is None else scan.spec.key
        names = dict.fromkeys([*scan.columns, *keys])
        self._columns = [single_chunk(self.table.column(name)) for name in names]

    def consolidated(self) -> pa.Table:
        found = self._consolidate()
        if found.rows.size == self.table.num_rows and len(self.lengths) == 1:
            return self.table
        return replace_column(self.table.take(pa.array(found.rows)), DIFF, found.diffs)

    def _consolidate(self) -> Consolidated:
        if len(self.lengths) == 1:
            order = np.arange(self.table.num_rows)
        else:
            order = merge_segments(self.words, self.lengths)
        diffs = int64_values(self.table, DIFF)
        return consolidate_sorted(self.words, order, diffs, self._columns)


class _Run:
    """A run within a merge: the updates at hand, sorted, and where the rest begins."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self.tables: list[pa.Table] = []
        self.rows = 0
        self.frontier: int | None = None  # None: all is loaded
        self.load()

    def load(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.frontier = None
            return
        self.frontier = chunk.frontier
        if chunk.table.num_rows:
            self.tables.append(chunk.table)
            self.rows += chunk.table.num_rows

    def take_below(self, cut: int | None) -> list[pa.Table]:
        """Remove and return the updates with a prefix below `cut` (None: all of them)."""
        if cut is None:
            taken, self.tables = self.tables, []
        else:
            taken = []
            while self.tables:
                prefix = int64_values(self.tables[0], PREFIX)
                at = int(np.searchsorted(prefix, cut))
                if at:
                    taken.append(self.tables[0].slice(0, at))
                if at < prefix.size:
                    self.tables[0] = self.tables[0].slice(at)
                    break
                self.tables.pop(0)
        self.rows -= sum(table.num_rows for table in taken)
        return taken

    def put_back(self, tables: list[pa.Table]) -> None:
        self.tables = [table for table in tables if table.num_rows] + self.tables
        self.rows = sum(table.num_rows for table in self.tables)


class Merge:
    """The rounds of a full consolidation over the runs of one slice."""

    def __init__(
        self,
        scan: Scan,
        runs: Sequence[Iterator[Chunk]],
        chunk_rows: int,
        buffer: ProjectionBuffer | None = None,
    ) -> None:
        self._scan = scan
        self._runs = [_Run(run) for run in runs]
        self._chunk_rows = chunk_rows
        self._buffer = buffer

    def tables(self) -> Iterator[pa.Table]:
        while self._runs:
            frontiers = [run.frontier for run in self._runs if run.frontier is not None]
            cut = min(frontiers) if frontiers else None
            taken = [_joined(run.take_below(cut)) for run in self._runs]
            present = [table for table in taken if table is not None]
            limiting: list[_Run] = []
            if present:
                out = _consolidated(self._scan, present, self._buffer)
                if out.num_rows:
                    yield out
            elif cut is not None:
                limiting = [run for run in self._runs if run.frontier == cut]
                if self._rows() > max(ROUND_ROWS, 2 * self._chunk_rows):
                    limiting = yield from self._cut_within(cut, limiting)
            self._refill(limiting)

    def _rows(self) -> int:
        return sum(run.rows for run in self._runs)

    def _refill(self, limiting: list[_Run]) -> None:
        """Load for the runs that hold up the rest, and for those that run short."""
        short = [
            (run.frontier, number)
            for number, run in enumerate(self._runs)
            if run.frontier is not None and (run in limiting or run.rows < self._chunk_rows // 2)
        ]
        for _, number in sorted(short):  # in the order in which they are fetched ahead
            self._runs[number].load()
        self._runs = [run for run in self._runs if run.rows or run.frontier is not None]

    def _cut_within(
        self, prefix: int, limiting: list[_Run]
    ) -> Generator[pa.Table, None, list[_Run]]:
        """Emit what is complete among the updates of one prefix, by the words below it.

        Called when nothing is below the smallest frontier and memory is filling: every
        update at hand has this prefix or a larger one. Returns the runs to load next.
        """
        end = prefix + 1 if prefix < HIGHEST else None
        hot = [(run, _joined(run.take_below(end))) for run in self._runs]
        held = [(run, table) for run, table in hot if table is not None]
        unknown = [run for run, table in hot if table is None and run in limiting]
        if unknown:
            # These may still bring this prefix, but hold none of it: their place is not known.
            for run, table in held:
                run.put_back([table])
            return unknown
        merged = Merged(self._scan, [table for _, table in held])
        ends = np.cumsum(merged.lengths)
        # The place of each limiting run is its last update at hand; the first of them is the cut.
        lasts = {
            tuple(merged.words[:, e - 1]): run
            for (run, _), e in zip(held, ends, strict=True)
            if run in limiting
        }
        cut = min(lasts)
        below = _below(merged.words, np.array(cut))
        if below.any():
            counts = np.add.reduceat(below.astype(np.int64), ends - merged.lengths)
            done = [table.slice(0, n) for (_, table), n in zip(held, counts, strict=True)]
            for (run, table), n in zip(held, counts, strict=True):
                run.put_back([table.slice(n)])
            out = Merged(self._scan, [table for table in done if table.num_rows]).consolidated()
            if out.num_rows:
                yield out
        else:
            # All updates of that run agree in every word: add up what is here, and keep the sum
            # as a small run of its own while it loads more.
            carry = _Run(iter(()))
            carry.put_back([merged.consolidated()])
            self._runs.append(carry)
        return [lasts[cut]]


def _below(words: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Which columns of `words` come before `cut`."""
    below = np.zeros(words.shape[1], np.bool_)
    equal = np.ones(words.shape[1], np.bool_)
    for word, limit in zip(words, cut, strict=True):
        below |= equal & (word < limit)
        equal &= word == limit
    return below


def _joined(tables: list[pa.Table]) -> pa.Table | None:
    if not tables:
        return None
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
