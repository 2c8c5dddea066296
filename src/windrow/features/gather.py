"""Rows of asked keys: what few queries need of a table that changes.

Changes of one row have to meet, wherever they lie in the log, so they cannot be lifted share by
share as events are. But those of keys that nobody asks for can be left out at once: tasks filter
their shares, and what remains is arranged for this backfill alone, and merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.features.backfill import SliceJob
from windrow.features.broadcast import AskedKeys
from windrow.rows.types import conform
from windrow.shard.append import TaskRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class AskedRows:
    """The rows of a table whose keys are among those of the queries. Picklable."""

    queries: SliceJob
    keys: pa.Schema
    rows: TaskRows | None = None

    @property
    def tasks(self) -> int:
        return 0 if self.rows is None else self.rows.tasks

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        assert self.rows is not None
        return self.filter(self.rows.batches(task))

    def filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asked = AskedKeys.make(self.queries.all_queries())
        for batch in batches:
            keys = pa.Table.from_batches([batch]).select(self.keys.names)
            yield batch.filter(pa.array(asked.mask(conform(keys, self.keys, "broadcast"))))

    def frame(self, frame: DataFrame) -> DataFrame:
        """The same of rows that Spark reads."""
        names = frame.columns
        plain = frame.toDF(*(f"c{i}" for i in range(len(names))))  # no dots in names

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in self.filter(b.rename_columns(names) for b in batches):
                yield batch.rename_columns([f"c{i}" for i in range(len(names))])

        return plain.mapInArrow(run, plain.schema).toDF(*names)
