"""Stored results: a Delta table per join, replaced as a whole by each backfill.

Tasks write the files, the driver commits their names in one transaction: a reader sees the old
result or the new one. Any Delta reader can open it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from windrow.errors import StorageError, StorageUnavailableError
from windrow.features.strategies.shares import RowShares
from windrow.features.strategies.slices import write_file
from windrow.rows.types import canonical_schema
from windrow.spark.memory import peak_memory
from windrow.spark.schemas import arrow_to_spark_schema, spark_to_arrow_schema
from windrow.spark.tasks import Written, WrittenFile, run_writers
from windrow.storage.delta import check_storable, open_table, replace_table
from windrow.storage.failures import failure
from windrow.storage.store import Store
from windrow.storage.work import KEPT_SECONDS

KEPT_VERSIONS = 3  # of a result: whoever reads one that was replaced can finish
KEPT_HOURS = 24
RESUMED_HOURS = int(KEPT_SECONDS / 3600)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


def frame_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as they are stored."""
    return canonical_schema(spark_to_arrow_schema(frame.schema))


def write_frame(
    frame: DataFrame, store: Store, run: str, shares: RowShares | None = None
) -> Written:
    """Write the rows of `frame`, a file per task, that no log names yet."""
    schema = frame_schema(frame)
    plain = frame.toDF(*(f"c{i}" for i in range(len(schema))))  # mapInArrow takes no dots in names

    def write(batches: Iterator[pa.RecordBatch]) -> Written:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return Written([])
        table = pa.Table.from_batches(held).rename_columns(schema.names).cast(schema)
        return Written([write_file(store, table, run, shares)], 0, {"peak_memory": peak_memory()})

    return run_writers(plain, store, write)


def commit_result(store: Store, schema: pa.Schema, parts: list[WrittenFile]) -> None:
    """Make the files the table at `store`, in place of what was there.

    That it can be opened afterwards is made sure of before.
    """
    check_storable(schema, store.uri)
    paths = {part.path for part in parts}
    if _holds(store, paths):
        return  # by a run that died right after its commit; one commit cannot add and remove a file
    _replace(store, schema, parts, paths)
    _sweep(store)


def _replace(store: Store, schema: pa.Schema, parts: list[WrittenFile], paths: set[str]) -> None:
    """Commit them."""
    now = int(time.time() * 1000)
    files = [AddAction(p.path, p.bytes, {}, now, True, p.statistics) for p in parts]
    try:
        replace_table(store, schema, files)
    except Exception as error:
        failed = failure(store.uri, "the result could not be stored", error)
        with suppress(StorageError):
            if _holds(store, paths):
                return  # it is committed, but the answer was lost on the way
        if not isinstance(failed, StorageUnavailableError):  # else the next run commits them
            store.discard(sorted(paths))
        raise failed from error


def _sweep(store: Store) -> None:
    """Delete files that nobody can need: as a rule those of the result before the last few.

    What a version has lost is kept for a day after that, and what no version ever had for as long
    as an interrupted run may be resumed, which finds its files here.
    """
    with suppress(Exception):  # delta-rs raises many; the result is stored, the next run tries it
        table = open_table(store)
        if table is None:
            return
        useless = {*_unused(table, KEPT_HOURS, full=False)}
        useless |= {*_unused(table, RESUMED_HOURS, full=True)}
        newest = table.version()
        for version in range(max(0, newest - KEPT_VERSIONS + 1), newest):
            if not useless:
                return
            table.load_as_version(version)
            useless -= {uri.rpartition("/")[2] for uri in table.file_uris()}
        store.delete(sorted(useless))


def _unused(table: DeltaTable, hours: int, *, full: bool) -> Iterator[str]:
    """Files right in the table's folder that went so long ago; with `full`, also unknown ones."""
    found = table.vacuum(
        retention_hours=hours, enforce_retention_duration=False, dry_run=True, full=full
    )
    return (name for name in found if "/" not in name)


def _holds(store: Store, paths: set[str]) -> bool:
    """Whether the table at `store` is these files."""
    table = open_table(store) if paths else None
    return table is not None and {u.rpartition("/")[2] for u in table.file_uris()} == paths


def read_result(
    spark: SparkSession, store: Store, parts: list[WrittenFile], schema: pa.Schema
) -> DataFrame:
    """A stored result as a DataFrame; one task per file."""
    paths = [part.path for part in parts]
    plain = schema
    if any("." in name for name in schema.names):  # mapInArrow takes no dots in names
        plain = pa.schema([pa.field(f"c{i}", field.type) for i, field in enumerate(schema)])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pq.ParquetFile(store.open_input(paths[number])) as file:
                    for rows in file.iter_batches(use_threads=False):
                        yield rows.rename_columns(plain.names)

    numbers = spark.range(0, len(paths), 1, max(len(paths), 1))
    frame = numbers.mapInArrow(run, arrow_to_spark_schema(plain))
    return frame if plain is schema else frame.toDF(*schema.names)
