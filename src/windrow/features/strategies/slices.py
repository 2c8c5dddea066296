"""What a task writes of a slice, and where; finished slices are noted, so that a run can resume."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.features.strategies.shares import SUFFIX, RowShares
from windrow.spark.memory import peak_memory
from windrow.spark.tasks import Written, WrittenFile
from windrow.storage.names import new_id
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store


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
    """Write `table` as a file that no log names yet; its name begins with `run`.

    It is of Parquet or, with `shares`, of rows that are read by their numbers.
    """
    if shares is not None:
        name, pieces = f"{run}-{new_id()}.{SUFFIX}", shares.pieces(table)
    else:
        name, sink = f"{run}-{new_id()}.parquet", pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression="lz4",
            use_dictionary=False,
            row_group_size=_GROUP_ROWS,
            write_page_checksum=True,
        )
        pieces = [sink.getvalue()]
    store.write(name, pieces)
    size = sum(memoryview(piece).nbytes for piece in pieces)
    statistics = json.dumps({"numRecords": table.num_rows})
    return WrittenFile(name, table.num_rows, size, statistics)
