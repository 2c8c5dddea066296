"""Reading a run of a slice: its updates as sorted chunks, from the parts and row groups that count.

The runs of a slice are opened together, so that what they need can be fetched ahead where the
store is far away.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.rows.types import conform, single_chunk
from windrow.shard.ahead import FetchAhead
from windrow.shard.fetched import WantedGroup, WantedPart
from windrow.shard.files import allow_open_files, open_part, unreadable
from windrow.shard.part import Part, group_bounds
from windrow.shard.predicate import columns_of, evaluate, may_match
from windrow.shard.scan import START, Counters, Scan, Slice, order_words
from windrow.shard.spec import HASH, PREFIX
from windrow.updates import DIFF, TIME, int64_values, replace_column, update_schema
from windrow.words.sorting import sort_words


@dataclass
class Chunk:
    """Some updates of a run, sorted. All that follow in the run have a prefix >= `frontier`."""

    table: pa.Table
    frontier: int


@contextmanager
def open_runs(
    scan: Scan,
    slice_: Slice,
    counters: Counters,
    chunk_rows: int,
    *,
    merging: bool,
    abreast: bool,
) -> Iterator[Sequence[Iterator[Chunk]]]:
    """The chunks of each run of a slice, `chunk_rows` at a time; see `RunReader`.

    Runs are read side by side if `abreast`, else one after the other. Of keys to look up, there may
    be updates of others with the same prefix. On the way out no file is left open, and nothing
    under way.
    """
    allow_open_files(len(slice_.runs))
    readers = [RunReader(scan, slice_, r, merging, counters, chunk_rows) for r in slice_.runs]
    with ExitStack() as stack:
        if not scan.store.is_local:
            wanted = [reader.wanted_parts() for reader in readers]
            sequences = wanted if abreast else [[part for run in wanted for part in run]]
            early = scan.limit is not None
            files = FetchAhead(scan.store, sequences, scan.ahead, may_stop_early=early)
            stack.enter_context(files)
            for reader in readers:
                reader.files = files
        yield [stack.enter_context(closing(reader.chunks())) for reader in readers]


@dataclass
class RunReader:
    """Reads one run of a slice, chunk by chunk.

    `merging` requests sorted chunks with `_hash` and the order columns; without it the chunks
    are as they are stored.
    """

    scan: Scan
    slice: Slice
    run: Sequence[Part]
    merging: bool
    counters: Counters
    chunk_rows: int
    files: FetchAhead | None = None  # None: files are opened when they are needed

    def chunks(self) -> Generator[Chunk]:
        for part in self.run:
            if not self.scan.may_hold(part):
                self.counters.parts_skipped += 1
                self.counters.bytes_skipped += part.bytes
                continue
            self.counters.parts_fetched += 1
            if not part.sorted:
                yield from self._unsorted(part)
            elif self.scan.keys is not None:
                yield from self._lookup(part)
            else:
                yield from self._sorted(part)

    def wanted_parts(self) -> list[WantedPart]:
        """What `chunks` is going to read, for those who fetch it."""
        found = []
        for part in self.run:
            if not self.scan.may_hold(part):
                continue
            groups = functools.partial(self._wanted_groups, part)
            if not part.sorted:
                found.append(WantedPart(part, self._adopted_names, groups))
            elif not self._looks_up(part):
                found.append(WantedPart(part, self._names(part), groups))
            elif not self.scan.cache.holds(self.scan, part):
                found.append(WantedPart(part, self.scan.spec.stored_schema.names, _all_groups))
        return found

    def _open(self, part: Part) -> pq.ParquetFile:
        if self.files is not None:
            return self.files.open(part)
        return open_part(self.scan.store, part)

    def _sorted(self, part: Part) -> Iterator[Chunk]:
        tables = self._stored(part, self._names(part))
        if part.rows <= self.chunk_rows:
            tables = iter(list(tables))  # small parts are many: do not keep their files open
        for table in tables:
            frontier = int(int64_values(table, PREFIX)[-1])
            yield Chunk(self._filter(table, part), frontier)

    def _stored(self, part: Part, names: list[str]) -> Iterator[pa.Table]:
        file = self._open(part)
        try:
            for group in self._groups(file, part):
                for batch in file.iter_batches(
                    batch_size=self.chunk_rows, row_groups=[group], columns=names, use_threads=False
                ):
                    self.counters.updates_read += batch.num_rows
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowInvalid, OSError) as error:
            raise unreadable(self.scan.store, part, error) from error
        finally:
            file.close(force=True)

    def _lookup(self, part: Part) -> Iterator[Chunk]:
        """Only the updates of the wanted keys, in one chunk."""
        assert self.scan.keys is not None
        cached = None
        if self._looks_up(part):
            cached = self.scan.cache.part(self.scan, part, self._open)
        if cached is not None:
            rows = self.scan.keys.rows_in_sorted(int64_values(cached, PREFIX))
            table = cached.select(self._names(part)).take(pa.array(rows))
            table = pa.table([single_chunk(c) for c in table.columns], schema=table.schema)
            self.counters.updates_read += table.num_rows
            if table.num_rows:
                # Where rows are found by prefix, whoever merges runs compares keys: see `merge`.
                by_key = not self.scan.keys.by_prefix
                yield Chunk(self._filter(table, part, by_key), part.prefix[1])
            return
        yield from self._sorted(part)

    def _unsorted(self, part: Part) -> Iterator[Chunk]:
        """An adopted file has neither order nor `_prefix` nor `_hash`: make them here."""
        spec = self.scan.spec
        tables = []
        for raw in self._stored(part, self._adopted_names):
            table = conform(raw, update_schema(spec.schema), part.path)
            table = table.append_column(PREFIX, pa.array(spec.prefix(table)))
            table = table.append_column(HASH, pa.array(spec.row_hash(table)))
            table = self._filter(table, part).select(self._names(part))
            if not self.merging:
                yield Chunk(table, LOWEST)
            elif table.num_rows:
                tables.append(table)
        if tables:
            table = pa.concat_tables(tables).combine_chunks()
            order = sort_words(order_words(spec, table, with_time=True))
            yield Chunk(table.take(pa.array(order)), part.prefix[1])

    def _looks_up(self, part: Part) -> bool:
        """Whether the part is searched in the cache, and not read."""
        scan = self.scan
        return (
            scan.keys is not None and scan.cache is not None and bool(scan.cache.takes(scan, part))
        )

    @property
    def _adopted_names(self) -> list[str]:
        return [*self.scan.spec.schema.names, TIME, DIFF]

    def _names(self, part: Part) -> list[str]:
        names = self.scan.file_columns(self.merging)
        if TIME not in names and not self.scan.times.covers(part):
            names.append(TIME)
        minor = self.scan.spec.minor_column
        if minor is not None and minor not in names and self._cuts_minor():
            names.append(minor)
        return names

    def _cuts_minor(self) -> bool:
        bounds = [self.slice.start, self.slice.end or START]
        return any(bound[1] != LOWEST for bound in bounds)

    def _wanted_groups(self, part: Part, metadata: Any) -> list[WantedGroup]:
        """Row groups that can hold what is wanted, by their statistics."""
        scan, end = self.scan, self.slice.end
        wanted = columns_of(scan.where) if scan.where is not None else set()
        names = [*wanted, PREFIX] if part.sorted else [*wanted]
        groups = []
        for g, bounds in enumerate(group_bounds(metadata, scan.spec.stored_schema, names)):
            if scan.where is not None and not may_match(scan.where, bounds):
                continue
            low, high = LOWEST, HIGHEST
            if part.sorted:
                low, high = bounds[PREFIX].low, bounds[PREFIX].high
                if high < self.slice.start[0] or (end is not None and (low, LOWEST) >= end):
                    continue
                if scan.keys is not None and not scan.keys.overlaps(low, high):
                    continue
            groups.append(WantedGroup(g, low))
        return groups

    def _groups(self, file: pq.ParquetFile, part: Part) -> list[int]:
        """The numbers of the row groups to read, which are counted."""
        wanted = {group.number for group in self._wanted_groups(part, file.metadata)}
        for g in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(g).total_byte_size
            if g in wanted:
                self.counters.row_groups_fetched += 1
                self.counters.bytes_fetched += size
            else:
                self.counters.row_groups_skipped += 1
                self.counters.bytes_skipped += size
        return sorted(wanted)

    def _filter(self, table: pa.Table, part: Part, by_key: bool = True) -> pa.Table:
        """The wanted updates of `table`, times advanced."""
        scan = self.scan
        masks: list[np.ndarray] = []
        prefix = int64_values(table, PREFIX)
        start, end = self.slice.start, self.slice.end
        low, high = part.prefix
        if start > (low, LOWEST) or (end is not None and end[0] <= high):
            masks.append(self._within(table, prefix))
        if not scan.times.covers(part):
            masks.append(scan.times.mask(int64_values(table, TIME)))
        if scan.where is not None:
            kept = evaluate(scan.where, table).fill_null(False)
            masks.append(single_chunk(kept).to_numpy(zero_copy_only=False))
        if scan.keys is not None and by_key:
            masks.append(scan.keys.contains(table, prefix))
        if masks:
            mask = np.logical_and.reduce(masks)
            if not mask.all():
                table = table.filter(pa.array(mask))
        if part.time[0] < scan.times.advance_to:
            times = np.maximum(int64_values(table, TIME), scan.times.advance_to)
            table = replace_column(table, TIME, times)
        return table

    def _within(self, table: pa.Table, prefix: np.ndarray) -> np.ndarray:
        (start, start_minor), end = self.slice.start, self.slice.end
        minor = self.scan.spec.minor(table) if self._cuts_minor() else None
        mask = prefix >= start
        if minor is not None and start_minor != LOWEST:
            mask &= (prefix > start) | (minor >= start_minor)
        if end is not None:
            if minor is not None and end[1] != LOWEST:
                mask &= (prefix < end[0]) | ((prefix == end[0]) & (minor < end[1]))
            else:
                mask &= prefix < end[0]
        return mask


def _all_groups(metadata: Any) -> list[WantedGroup]:
    return [WantedGroup(g, LOWEST) for g in range(metadata.num_row_groups)]
