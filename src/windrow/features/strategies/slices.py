"""What a task writes of a slice, and where; finished slices are noted, so that a run can resume."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.spark.memory import peak_memory
from windrow.spark.tasks import Written, WrittenFile
from windrow.storage.encoding import encoding
from windrow.storage.names import new_id
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store
from windrow.updates import int64_values


@dataclass(frozen=True)
class RowShares:
    """How the rows of a file are laid out for whoever reads them by their numbers. Picklable.

    They are sorted by `column`, which has the numbers, and each row group has rows of one share:
    from one of `starts`, which ascend, to the next.
    """

    column: str
    starts: tuple[int, ...]

    def write(self, table: pa.Table, sink: Any) -> None:
        numbers = int64_values(table, self.column)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], [*self.starts[1:], np.iinfo(np.int64).max])
        table = table.take(pa.array(order))
        options = {**encoding(table), "write_statistics": [self.column]}
        with pq.ParquetWriter(sink, table.schema, write_page_checksum=True, **options) as writer:
            for first, last in itertools.pairwise([0, *edges.tolist()]):
                if first < last:
                    writer.write_table(table.slice(first, last - first), last - first)

    def read(self, store: Store, paths: Sequence[str], share: int, columns: list[str]) -> pa.Table:
        """The rows of a share, in files that were written so; in no order."""
        found = []
        for path in paths:
            source = store.open_input(path)
            with pq.ParquetFile(
                source, pre_buffer=not store.is_local, page_checksum_verification=True
            ) as file:
                groups = [n for n, at in enumerate(self._shares_of(file)) if at == share]
                found.append(file.read_row_groups(groups, columns, use_threads=False))
        return pa.concat_tables(found).combine_chunks()

    def _shares_of(self, file: pq.ParquetFile) -> Iterator[int]:
        """The share of each row group."""
        leaves = [file.schema.column(i).path for i in range(len(file.schema))]
        column = leaves.index(self.column)
        for group in range(file.metadata.num_row_groups):
            first = file.metadata.row_group(group).column(column).statistics.min
            yield bisect_right(self.starts, first) - 1


@dataclass(frozen=True)
class SliceTarget:
    """Where slices go: their files, rows that cannot be used, and notes of what is finished.

    A note is written once a slice's files are whole, so that a run that was interrupted can be
    resumed after the slices that are done. Picklable.
    """

    name: str  # begins the names of files
    store: Store
    quarantine: Store
    notes: Store
    shares: RowShares | None = None

    def finished(self, number: int, written: Written) -> None:
        try:
            write_record(self.notes, f"{number}.json", asdict(written))
        except BaseException:
            self.drop(written)
            raise

    def drop(self, written: Written) -> None:
        """Delete what was written of a slice that could not be finished."""
        self.store.discard([part.path for part in written.parts])
        self.quarantine.discard([part.path for part in written.rejected])

    def done(self) -> dict[int, Written]:
        """The slices that an earlier run finished, and whose files are still there."""
        found: dict[int, Written] = {}
        names = self.notes.names()
        there = {*self.store.names(), *self.quarantine.names()} if names else set()
        for name in names:
            note = read_record(self.notes, name)
            if note is None:
                continue  # not a note: the slice is done again
            number = int(name.removesuffix(".json"))
            parts, rejected = (
                [WrittenFile(**part) for part in note[kind]] for kind in ("parts", "rejected")
            )
            if there.issuperset(part.path for part in [*parts, *rejected]):
                found[number] = Written(parts, 0, note["counters"], rejected)
        return found


class Job(Protocol):
    """A pass in slices, as a strategy computes it. Picklable: every task carries it.

    Slices have numbers. `digest` names them: a run whose slices have another digest cannot be
    resumed.
    """

    @property
    def rows(self) -> int:
        """Events and queries that are read, for the progress bar."""

    @property
    def digest(self) -> str: ...

    def shares(self, tasks: int, finished: Iterable[int] = ()) -> list[range]:
        """The slices for one task each, without those that are finished; `tasks` run at once."""

    def write(self, numbers: range, target: SliceTarget) -> Iterator[Written]:
        """Compute neighbouring slices, store each, and note that it is finished."""


@dataclass(frozen=True)
class SliceResult:
    """Queries with their features; rows that could not be used; and what was counted."""

    table: pa.Table
    rejected: list[pa.Table]
    counters: dict[str, int]


def write_slice(found: SliceResult, target: SliceTarget) -> Written:
    """Store what was computed of one slice."""
    written = Written([], 0, {**found.counters, "peak_memory": peak_memory()})
    try:
        if found.table.num_rows:
            written.parts.append(write_file(target.store, found.table, target.name, target.shares))
        for table in found.rejected:
            written.rejected.append(write_file(target.quarantine, table, target.name))
    except BaseException:
        target.drop(written)
        raise
    return written


_GROUP_ROWS = 131_072


def write_file(
    store: Store, table: pa.Table, run: str, shares: RowShares | None = None
) -> WrittenFile:
    """Write `table` as a Parquet file that no log names yet; its name begins with `run`."""
    name = f"{run}-{new_id()}.parquet"
    sink = pa.BufferOutputStream()
    if shares is not None:
        shares.write(table, sink)
    else:
        pq.write_table(
            table,
            sink,
            compression="lz4",
            use_dictionary=False,
            row_group_size=_GROUP_ROWS,
            write_page_checksum=True,
        )
    data = sink.getvalue()
    store.write(name, [data])
    statistics = json.dumps({"numRecords": table.num_rows})
    return WrittenFile(name, table.num_rows, data.size, statistics)
