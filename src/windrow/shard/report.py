"""How tasks tell the driver what they wrote: a few rows of metadata, or an error as data.

An error that Windrow raises in a task travels as a row, so that the driver can raise it as it is
instead of a task's stack trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow import errors
from windrow.errors import WindrowError
from windrow.shard.part import WrittenPart
from windrow.shard.store import Store
from windrow.spark import arrow_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("statistics", pa.string()),
        ("fingerprint", pa.string()),
        ("error", pa.string()),
        ("message", pa.string()),
    ]
)


@dataclass(frozen=True)
class Written:
    """Parts that wait for their commit, and the digest of the updates in them."""

    parts: list[WrittenPart]
    fingerprint: int = 0


def run_writers(
    frame: DataFrame, store: Store, write: Callable[[Iterator[pa.RecordBatch]], Written]
) -> Written:
    """Run `write` over each partition of `frame`, and bring together what was written.

    If a task fails for a reason that Windrow knows, what the others wrote is dropped again.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield _batch(write(batches))
        except WindrowError as error:
            row = [None, 0, 0, None, None, type(error).__name__, str(error)]
            yield pa.RecordBatch.from_arrays(
                [pa.array([v], f.type) for v, f in zip(row, _SCHEMA, strict=True)], schema=_SCHEMA
            )

    rows = frame.mapInArrow(run, arrow_to_spark_schema(_SCHEMA)).collect()  # a row per part
    parts = [WrittenPart(r.path, r.rows, r.bytes, r.statistics) for r in rows if r.path]
    failed = next((r for r in rows if r.error), None)
    if failed is not None:
        store.delete([part.path for part in parts])
        raise getattr(errors, failed.error, WindrowError)(failed.message)
    return Written(parts, sum(int(r.fingerprint) for r in rows if r.fingerprint) % 2**64)


def _batch(written: Written) -> pa.RecordBatch:
    parts = written.parts
    rows = len(parts) + 1  # the last row carries the digest
    columns: list[list[Any]] = [
        [*(p.path for p in parts), None],
        [*(p.rows for p in parts), 0],
        [*(p.bytes for p in parts), 0],
        [*(p.statistics for p in parts), None],
        [*([None] * len(parts)), str(written.fingerprint)],
        [None] * rows,
        [None] * rows,
    ]
    arrays = [pa.array(values, f.type) for values, f in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
