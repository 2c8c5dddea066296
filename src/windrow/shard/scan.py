"""A scan: what to read of a slice of a shard, as data that travels to a task.

A `Scan` says which updates and columns are wanted; a `Slice` says where they rest. From the two,
`Scan.chunks` brings the updates of one run as sorted chunks, reading only the parts and row
groups that can hold them.
"""

from __future__ import annotations

import resource
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import StorageError
from windrow.merging import sort_words
from windrow.rows.ordering import LOWEST, exact
from windrow.rows.types import conform, single_chunk
from windrow.shard.keys import KeySet
from windrow.shard.part import Part, group_bounds
from windrow.shard.predicate import Predicate, columns_of, evaluate, may_match
from windrow.shard.spec import HASH, PREFIX, ShardSpec
from windrow.storage.store import Store
from windrow.updates import DIFF, TIME, int64_values, replace_column, update_schema

ROUND_ROWS = 500_000  # updates that a merge holds at a time, over all runs
_CHUNK_ROWS = (2_048, 65_536)
_LIMITED_CHUNK_ROWS = 4_096
_SPARE_FILES = 512

Bound = tuple[int, int]  # (prefix, minor): a place in the shard's order
START: Bound = (LOWEST, LOWEST)


@dataclass(frozen=True)
class TimeRange:
    """Which updates count, by time, and the time they are given.

    Those with `start <= time <= end`, at `max(time, advance_to)`; `start` None is no bound. Times
    in `without` (ascending) are left out.
    """

    start: int | None
    end: int
    advance_to: int
    without: tuple[int, ...] = ()

    @property
    def is_single(self) -> bool:
        """All updates come out at one time, so that time does not tell rows apart."""
        return self.advance_to >= self.end

    def overlaps(self, part: Part) -> bool:
        low, high = part.time
        if low == high and low in self.without:
            return False
        return low <= self.end and (self.start is None or high >= self.start)

    def covers(self, part: Part) -> bool:
        low, high = part.time
        at = bisect_left(self.without, low)
        if at < len(self.without) and self.without[at] <= high:
            return False
        return high <= self.end and (self.start is None or low >= self.start)

    def mask(self, times: np.ndarray) -> np.ndarray:
        mask: np.ndarray = times <= self.end
        if self.start is not None:
            mask &= times >= self.start
        if self.without:
            mask &= ~np.isin(times, self.without)
        return mask


@dataclass(frozen=True)
class Slice:
    """The updates of `runs` in [start, end) of the shard's order; `end` None is its end.

    Each run is a sequence of sorted, non-overlapping parts, or one unsorted part.
    """

    start: Bound
    end: Bound | None
    runs: tuple[tuple[Part, ...], ...]

    @property
    def parts(self) -> list[Part]:
        return [part for run in self.runs for part in run]


@dataclass
class Counters:
    """What a read did. Bytes and parts skipped are those that statistics or keys ruled out."""

    updates_read: int = 0
    updates_emitted: int = 0
    parts_fetched: int = 0
    parts_skipped: int = 0
    row_groups_fetched: int = 0
    row_groups_skipped: int = 0
    bytes_fetched: int = 0
    bytes_skipped: int = 0
    seconds_to_first_batch: float | None = None

    def add(self, other: Counters) -> None:
        for name, value in vars(other).items():
            if name != "seconds_to_first_batch":
                setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Scan:
    """Which updates and columns to read. Picklable; `where` is bound to the schema.

    With `timeless`, nobody asks for the times of updates, and chunks may come without them.
    """

    store: Store
    spec: ShardSpec
    times: TimeRange
    columns: tuple[str, ...]
    where: Predicate | None = None
    keys: KeySet | None = None
    limit: int | None = None
    cache: Any = None  # windrow.shard.cache.PartCache, if lookups may keep parts on local disk
    timeless: bool = False

    @property
    def output_schema(self) -> pa.Schema:
        return update_schema(pa.schema([self.spec.schema.field(name) for name in self.columns]))

    def chunk_rows(self, runs: int) -> int:
        """How many updates of each run to hold at a time."""
        low, high = _CHUNK_ROWS
        rows = min(high, max(low, ROUND_ROWS // max(runs, 1)))
        return rows if self.limit is None else min(rows, _LIMITED_CHUNK_ROWS)

    def may_hold(self, part: Part) -> bool:
        """False only if the log's statistics rule the part out."""
        if not self.times.overlaps(part):
            return False
        if self.where is not None and not may_match(self.where, part.bounds):
            return False
        return self.keys is None or self.keys.overlaps(*part.prefix)

    def file_columns(self, merging: bool) -> list[str]:
        """The columns to read of a sorted part."""
        names = dict.fromkeys(self.columns)
        if self.where is not None:
            names |= dict.fromkeys(sorted(columns_of(self.where)))
        if self.keys is not None:
            names |= dict.fromkeys(self.spec.key)
        if merging:
            names |= dict.fromkeys(self.spec.order.columns)
            names[HASH] = None
        own = [DIFF, PREFIX] if self.timeless and not merging else [TIME, DIFF, PREFIX]
        return [*names, *own]


@dataclass
class Chunk:
    """Some updates of a run, sorted. All that follow in the run have a prefix >= `frontier`."""

    table: pa.Table
    frontier: int


@dataclass
class RunReader:
    """Reads one run of a slice, chunk by chunk.

    `merging` asks for sorted chunks with `_hash` and the order columns; without it the chunks
    come as they rest.
    """

    scan: Scan
    slice: Slice
    run: Sequence[Part]
    merging: bool
    counters: Counters
    chunk_rows: int = 0
    started: float = field(default_factory=time.perf_counter)

    def chunks(self) -> Iterator[Chunk]:
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

    def _sorted(self, part: Part) -> Iterator[Chunk]:
        names = self._names(part)
        with open_part(self.scan.store, part) as file:
            tables = self._stored(part, file, self._groups(file, part), names)
            if part.rows <= self.chunk_rows:
                tables = iter(list(tables))  # small parts are many: do not keep their files open
                file.close()
            for table in tables:
                frontier = int(int64_values(table, PREFIX)[-1])
                yield Chunk(self._filter(table, part), frontier)

    def _stored(
        self, part: Part, file: pq.ParquetFile, groups: list[int], names: list[str]
    ) -> Iterator[pa.Table]:
        try:
            for group in groups:
                for batch in file.iter_batches(
                    batch_size=self.chunk_rows, row_groups=[group], columns=names, use_threads=False
                ):
                    self.counters.updates_read += batch.num_rows
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(self.scan.store, part, error) from error

    def _lookup(self, part: Part) -> Iterator[Chunk]:
        """Only the updates of the wanted keys, in one chunk."""
        assert self.scan.keys is not None
        names = self._names(part)
        cached = self.scan.cache.part(self.scan, part) if self.scan.cache is not None else None
        if cached is not None:
            rows = self.scan.keys.rows_in_sorted(int64_values(cached, PREFIX))
            table = cached.select(names).take(pa.array(rows))
            table = pa.table([single_chunk(c) for c in table.columns], schema=table.schema)
            self.counters.updates_read += table.num_rows
            if table.num_rows:
                yield Chunk(self._filter(table, part), part.prefix[1])
            return
        yield from self._sorted(part)

    def _unsorted(self, part: Part) -> Iterator[Chunk]:
        """An adopted file has neither order nor `_prefix` nor `_hash`: make them here."""
        spec = self.scan.spec
        tables = []
        with open_part(self.scan.store, part) as file:
            groups = self._groups(file, part, by_prefix=False)
            for raw in self._stored(part, file, groups, [*spec.schema.names, TIME, DIFF]):
                table = conform(raw, update_schema(spec.schema), part.path)
                table = table.append_column(PREFIX, pa.array(spec.prefix(table)))
                table = self._filter(
                    table.append_column(HASH, pa.array(spec.row_hash(table))), part
                )
                table = table.select(self._names(part))
                if not self.merging:
                    yield Chunk(table, LOWEST)
                elif table.num_rows:
                    tables.append(table)
        if tables:
            table = pa.concat_tables(tables).combine_chunks()
            order = sort_words(order_words(spec, table, with_time=True))
            yield Chunk(table.take(pa.array(order)), part.prefix[1])

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

    def _groups(self, file: pq.ParquetFile, part: Part, by_prefix: bool = True) -> list[int]:
        """Row groups that can hold what is wanted, by their statistics."""
        scan, metadata = self.scan, file.metadata
        wanted = columns_of(scan.where) if scan.where is not None else set()
        names = [*wanted, PREFIX] if by_prefix else [*wanted]
        groups = []
        end = self.slice.end
        for g, bounds in enumerate(group_bounds(metadata, scan.spec.stored_schema, names)):
            keep = scan.where is None or may_match(scan.where, bounds)
            if keep and by_prefix:
                known = bounds[PREFIX]
                keep = known.high >= self.slice.start[0] and (
                    end is None or (known.low, LOWEST) < end
                )
                keep = keep and (scan.keys is None or scan.keys.overlaps(known.low, known.high))
            size = metadata.row_group(g).total_byte_size
            if keep:
                groups.append(g)
                self.counters.row_groups_fetched += 1
                self.counters.bytes_fetched += size
            else:
                self.counters.row_groups_skipped += 1
                self.counters.bytes_skipped += size
        return groups

    def _filter(self, table: pa.Table, part: Part) -> pa.Table:
        """The wanted updates of `table`, times advanced, without columns only filters need."""
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
        if scan.keys is not None:
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


def allow_open_files(count: int) -> None:
    """Raise this process's limit on open files, as far as it may, for a merge of many runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def open_part(store: Store, part: Part) -> pq.ParquetFile:
    """The part's Parquet file; a file that cannot be read is named."""
    source = store.open_input(part.path)
    try:
        file = pq.ParquetFile(source, pre_buffer=not store.is_local)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(store, part, error) from error
    if file.metadata.num_rows != part.rows:
        found = f"it has {file.metadata.num_rows} updates, and the log says {part.rows}"
        raise _unreadable(store, part, found)
    return file


def _unreadable(store: Store, part: Part, error: Exception | str) -> StorageError:
    return StorageError(
        f"{store.uri}: part {part.path} cannot be read: {error}. Restore the file from a copy, or "
        "restore the shard's folder to an earlier state"
    )


def order_words(spec: ShardSpec, table: pa.Table, with_time: bool) -> np.ndarray:
    """The words that the shard's order compares, for sorted or unsorted updates.

    Words of order columns may be ranks among the rows of `table`: comparable within it only.
    """
    words = [int64_values(table, PREFIX)]
    words += [exact(single_chunk(table.column(name))) for name in spec.order.columns]
    words.append(int64_values(table, HASH))
    if with_time:
        words.append(int64_values(table, TIME))
    return np.vstack(words)
