"""The rows of a collection at one time, as a DataFrame: each as often as it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from windrow.errors import DataError
from windrow.shard.merge import read_slice
from windrow.shard.plan import SLICE_ROWS
from windrow.shard.read import Read
from windrow.shard.scan import Counters
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.spark.session import parallelism
from windrow.updates import DIFF, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALLEST_SLICE_ROWS = 50_000
_BATCH_ROWS = 65_536
_NOTHING = pa.field("nothing", pa.bool_())


def rows_frame(spark: SparkSession, read: Read) -> DataFrame:
    """The rows of a snapshot; tasks read slices, and repeat what is there several times."""
    total = sum(part.rows for part in read.parts)
    wanted = max(2 * parallelism(spark), -(-total // SLICE_ROWS))
    plan = read.plan(max(1, min(wanted, total // _SMALLEST_SLICE_ROWS)))
    scan, slices, level = read.scan, plan.slices, read.level

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for found in read_slice(scan, slices[number], level, Counters()):
                    yield from repeated(found)

    names = [name for name in read.schema.names if name not in (TIME, DIFF)]
    schema = pa.schema([read.schema.field(name) for name in names] or [_NOTHING])
    count = len(slices)
    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(run, arrow_to_spark_schema(schema))


def _nothings(count: int) -> pa.RecordBatch:
    """Rows of which nothing but their number is of interest: Spark takes none without columns."""
    return pa.record_batch([pa.nulls(count, pa.bool_())], schema=pa.schema([_NOTHING]))


def repeated(updates: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows without `_time` and `_diff`, each as often as its `_diff` says."""
    diffs = updates.column(DIFF).to_numpy()
    names = [name for name in updates.schema.names if name not in (TIME, DIFF)]
    rows = updates.select(names) if names else _nothings(len(diffs))
    names = rows.schema.names
    if (diffs == 1).all():
        yield rows
        return
    if (diffs < 0).any():
        at = int((diffs < 0).argmax())
        row = {name: rows.column(name)[at].as_py() for name in names}
        raise DataError(
            f"a row is there {int(diffs[at])} times: {row!r:.300}; what retracted it was wrong. "
            "Run `windrow doctor`"
        )
    ends = np.cumsum(diffs)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, _BATCH_ROWS):  # in pieces: a row may be there a billion times
        places = np.arange(start, min(start + _BATCH_ROWS, total))
        yield rows.take(pa.array(np.searchsorted(ends, places, side="right")))
