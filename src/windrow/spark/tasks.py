"""How tasks tell the driver what they wrote: a few rows of metadata, or an error as data.

An error that Windrow raises in a task travels as a row, so that the driver can raise it as it is
instead of a task's stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow import errors
from windrow.errors import StorageUnavailableError, WindrowError
from windrow.spark.errors import known_errors
from windrow.spark.heap import freeze_modules, keep_freed_memory
from windrow.spark.memory import reset_peak
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.spark.settings import is_remote
from windrow.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("rejected", pa.bool_()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("statistics", pa.string()),
        ("fingerprint", pa.string()),
        ("counters", pa.string()),
        ("error", pa.string()),  # as `errors.to_json` writes it
    ]
)


@dataclass(frozen=True)
class WrittenFile:
    """A part that is stored but not yet in the log: what a task reports."""

    path: str
    rows: int
    bytes: int
    statistics: str  # Delta's JSON


@dataclass(frozen=True)
class Written:
    """Parts that wait for their commit, and the digest of the updates in them.

    `counters` are whatever else the tasks counted; of several tasks they are added up, but for
    names that start with `peak_`, of which the largest is kept. `rejected` are files of rows that
    could not be used.
    """

    parts: list[WrittenFile]
    fingerprint: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    rejected: list[WrittenFile] = field(default_factory=list)


def together(several: list[Written]) -> Written:
    """What several tasks wrote, as one."""
    return Written(
        [part for one in several for part in one.parts],
        sum(one.fingerprint for one in several) % 2**64,
        add_counters([one.counters for one in several]),
        [part for one in several for part in one.rejected],
    )


def add_counters(several: list[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for counters in several:
        for name, value in counters.items():
            if name.startswith("peak_"):
                total[name] = max(total.get(name, 0), value)
            else:
                total[name] = total.get(name, 0) + value
    return total


def run_writers(
    frame: DataFrame,
    store: Store,
    write: Callable[[Iterator[pa.RecordBatch]], Written],
    *,
    noted: bool = False,
) -> Written:
    """Run `write` over each partition of `frame`, and bring together what was written.

    If a task fails for a reason that Windrow knows, what the others wrote is dropped again. If
    they have `noted` it, it stays where only the store was in the way: the next run finds it.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(_batch, _attempt(lambda: write(batches)))

    with known_errors():
        rows = frame.mapInArrow(run, arrow_to_spark_schema(_SCHEMA)).collect()  # a row per part
    parts = [_part(r) for r in rows if r.path and not r.rejected]
    rejected = [_part(r) for r in rows if r.path and r.rejected]
    digest = sum(int(r.fingerprint) for r in rows if r.fingerprint) % 2**64
    counted = [json.loads(r.counters) for r in rows if r.counters]
    failed = next((r.error for r in rows if r.error), None)
    written = Written(parts, digest, add_counters(counted), rejected)
    return _finished(store, written, failed, noted)


def _part(row: Any) -> WrittenFile:
    return WrittenFile(row.path, row.rows, row.bytes, row.statistics)


def run_numbered(
    spark: SparkSession,
    count: int,
    store: Store,
    write: Callable[[int], Written],
    *,
    noted: bool = False,
) -> Written:
    """Run `write` with each number below `count`, one task each, and bring together the results."""
    if is_remote(spark):

        def run(batches: Iterator[pa.RecordBatch]) -> Written:
            return together([write(n) for batch in batches for n in batch.column(0).to_pylist()])

        return run_writers(spark.range(0, count, 1, max(count, 1)), store, run, noted=noted)

    def run_some(numbers: Iterable[int]) -> Iterator[Written | str]:
        for number in numbers:
            yield from _attempt(lambda: write(number))  # noqa: B023

    # There is nothing for Spark to plan here; a DataFrame would take longer than a small task.
    numbers = spark.sparkContext.parallelize(range(count), max(count, 1))
    with known_errors():
        found = numbers.mapPartitions(run_some).collect()
    failed = next((one for one in found if isinstance(one, str)), None)
    written = together([one for one in found if isinstance(one, Written)])
    return _finished(store, written, failed, noted)


def _attempt(write: Callable[[], Written]) -> Iterator[Written | str]:
    """In a task: what it wrote, or the error, as `errors.to_json` writes it."""
    keep_freed_memory()
    reset_peak()  # the worker has run other tasks before
    try:
        yield write()
    except WindrowError as error:
        yield errors.to_json(error)
    freeze_modules()


def _finished(store: Store, written: Written, failed: str | None, noted: bool) -> Written:
    """What tasks wrote; or, if one `failed`, its error. Then the others' files are deleted."""
    if failed is None:
        return written
    error = errors.from_json(failed)
    if not (noted and isinstance(error, StorageUnavailableError)):
        store.discard([part.path for part in written.parts])
    raise error


def _batch(written: Written | str) -> pa.RecordBatch:
    if isinstance(written, str):
        row = [None, False, 0, 0, None, None, None, written]
        return pa.RecordBatch.from_arrays(
            [pa.array([v], f.type) for v, f in zip(row, _SCHEMA, strict=True)], schema=_SCHEMA
        )
    parts = [*written.parts, *written.rejected]
    rows = len(parts) + 1  # the last row carries the digest and the counters
    columns: list[list[Any]] = [
        [*(p.path for p in parts), None],
        [*([False] * len(written.parts)), *([True] * len(written.rejected)), None],
        [*(p.rows for p in parts), 0],
        [*(p.bytes for p in parts), 0],
        [*(p.statistics for p in parts), None],
        [*([None] * len(parts)), str(written.fingerprint)],
        [*([None] * len(parts)), json.dumps(dict(written.counters))],
        [None] * rows,
    ]
    arrays = [pa.array(values, f.type) for values, f in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
