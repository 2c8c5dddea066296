"""What a plan reads and arranges: tables with their readers, arrangements with their steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windrow.arrangements.find import Todo
from windrow.features.inputs.groups import GroupInputs
from windrow.shard.part import Part
from windrow.sources.bound import BoundTable
from windrow.sources.files import FileRows


@dataclass(frozen=True)
class Reading:
    """How a table is read: by tasks (`rows`), or by Spark's reader; and why."""

    table: BoundTable
    rows: FileRows | None
    reason: str

    def __str__(self) -> str:
        reader = "tasks read the files" if self.rows is not None else "Spark reads it"
        return f"{self.table.shown}{_size(self.table)}: {reader} ({self.reason})"


@dataclass(frozen=True)
class PlannedArrangement:
    """An arrangement: what it holds, and what has to be done for it."""

    inputs: GroupInputs
    todo: Todo

    @property
    def name(self) -> str:
        return self.inputs.name

    @property
    def parts(self) -> list[Part]:
        """The parts that are there, and that this backfill reads."""
        return list(self.todo.parts)

    @property
    def estimated_rows(self) -> int | None:
        """Rows that it will hold; None if that is not known."""
        found = self.pending_rows
        return None if found is None else self.todo.rows + found

    @property
    def pending_rows(self) -> int | None:
        """Rows of raw tables that will be read; None if that is not known."""
        total = 0
        for take in self.todo.takes:
            piece = self.inputs.content.pieces[take.piece]
            parquet = piece.table.parquet
            if piece.streamed:
                total += 0 if piece.shard is None else piece.shard.rows_within(take.span)
                continue
            if parquet is None:
                return None
            total += parquet.rows if take.uris is None else parquet.only(set(take.uris)).rows
        return total

    def readings(self) -> Iterator[tuple[str, Reading]]:
        """The tables that will be read for it."""
        if self.inputs.shard is not None:
            return
        for number in sorted({take.piece for take in self.todo.takes}):
            piece = self.inputs.content.pieces[number]
            takes = [take.uris for take in self.todo.takes if take.piece == number]
            table = piece.table
            if None not in takes and table.parquet is not None:
                table = table.only(uri for uris in takes for uri in uris or ())
            yield piece.source.name, Reading(table, piece.rows, piece.reason)

    def __str__(self) -> str:
        group = self.inputs.group
        there = f", {self.todo.rows:,} rows there" if self.todo.rows else ""
        columns = ", ".join(self.inputs.layout.inputs)
        times = " or ".join(dict.fromkeys(source.time for source in group.sources))
        name = self.name if self.inputs.shard is None else self.inputs.content.pieces[0].table.shown
        return (
            f"{self.todo.action} {name}{there}: by {', '.join(group.keys)} and {times}, "
            f"with {columns} ({self.todo.reason})"
        )


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _size(table: BoundTable) -> str:
    if table.parquet is not None:
        size = table.parquet.bytes
        shown = f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"
        files = many(len(table.parquet.files), "file")
        return f" ({files}, {shown}, {table.parquet.rows:,} rows)"
    return f" ({many(len(table.uris), 'file')})" if table.uris is not None else ""
