"""Stored results: a Delta table per join, replaced as a whole by each backfill.

Tasks write the files, the driver commits their names in one transaction: a reader sees the old
result or the new one. Any Delta reader can open it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from windrow.errors import StorageError
from windrow.rows.types import canonical_schema
from windrow.shard.part import WrittenPart, new_id
from windrow.shard.report import Written, run_writers
from windrow.shard.store import Store
from windrow.spark import arrow_to_spark_schema, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def store_result(frame: DataFrame, store: Store) -> list[WrittenPart]:
    """Write the rows of `frame` and make them the table at `store`."""
    schema = canonical_schema(spark_to_arrow_schema(frame.schema))
    plain = frame.toDF(*(f"c{i}" for i in range(len(schema))))  # mapInArrow takes no dots in names

    def write(batches: Iterator[pa.RecordBatch]) -> Written:
        name = f"{new_id()}.parquet"
        rows = 0
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, schema, compression="lz4", use_dictionary=False) as writer:
            for batch in batches:
                table = pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)
                writer.write_table(table)
                rows += batch.num_rows
        if not rows:
            return Written([])
        data = sink.getvalue()
        with store.open_output(name) as out:
            out.write(data)
        return Written([WrittenPart(name, rows, data.size, json.dumps({"numRecords": rows}))])

    parts = run_writers(plain, store, write).parts
    now = int(time.time() * 1000)
    try:
        create_table_with_add_actions(
            store.uri,
            Schema.from_arrow(schema),
            [AddAction(p.path, p.bytes, {}, now, True, p.statistics) for p in parts],
            mode="overwrite",
            storage_options=store.options_dict,
        )
    except Exception as error:
        store.delete([part.path for part in parts])
        raise StorageError(f"{store.uri}: the result could not be stored: {error}") from error
    return parts


def read_result(
    spark: SparkSession, store: Store, parts: list[WrittenPart], schema: pa.Schema
) -> DataFrame:
    """A stored result as a DataFrame; one task per file."""
    paths = [part.path for part in parts]
    plain = pa.schema([pa.field(f"c{i}", field.type) for i, field in enumerate(schema)])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pq.ParquetFile(store.open_input(paths[number])) as file:
                    for rows in file.iter_batches(use_threads=False):
                        yield rows.rename_columns(plain.names)

    numbers = spark.range(0, len(paths), 1, max(len(paths), 1))
    return numbers.mapInArrow(run, arrow_to_spark_schema(plain)).toDF(*schema.names)
