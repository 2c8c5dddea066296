"""Rows that a stream took in during a span of time, as a task reads them by itself.

A micro-batch has few rows: to let Spark plan how they are read takes longer than to read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import DataError
from windrow.shard.read import Read
from windrow.sources.columns import Form, Taken
from windrow.sources.pieces import Piece
from windrow.updates import DIFF, int64_values


@dataclass(frozen=True)
class SpanRows:
    """The columns of a piece, of what its shard took in; rows without a time are left out.

    Picklable: a task carries it.
    """

    read: Read
    columns: tuple[Taken, ...]
    required: tuple[str, ...]

    @staticmethod
    def of(piece: Piece, span: tuple[int, int]) -> SpanRows | None:
        """None if only Spark can tell what is selected of the rows."""
        source = piece.source
        plain = not (source.selected or source.where is not None or piece.replaced)
        if not (piece.streamed and piece.shard is not None and plain):
            return None
        if any(one.form is Form.SQL for one in piece.columns):
            return None
        return SpanRows(piece.shard.changes(*span), piece.columns, piece.required)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self.read.batches():
            made = [one.make(batch) for one in self.columns]
            table = pa.table(made, names=[one.name for one in self.columns])
            copies = int64_values(pa.Table.from_batches([batch]), DIFF)
            if copies.min(initial=1) < 0:
                raise DataError("a row is retracted, and rows of a stream are only ever added")
            if copies.max(initial=1) > 1 or copies.min(initial=1) == 0:
                table = table.take(pa.array(np.repeat(np.arange(copies.size), copies)))
            for name in self.required:
                table = table.filter(table.column(name).is_valid())
            yield from table.combine_chunks().to_batches()
