"""A Delta table as its log has it: the files, and the columns that it declares.

No connector for Delta is needed: the log names the files, and reading them with the declared
columns is reading the table. Where it is not, the table is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from windrow.errors import StorageError
from windrow.sources.files import partition_values
from windrow.spark.schemas import LITERAL, empty_frame
from windrow.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_FEED = "delta.enableChangeDataFeed"
_OTHERWISE = "or read it with Spark's Delta connector and give the DataFrame"


@dataclass(frozen=True)
class DeltaContent:
    """`files` are URIs; `columns` is the declared schema in JSON, which Delta and Spark share.

    `id` is the table's own, whatever it is called; it `feeds` if its commits write change data.
    """

    root: Store
    files: tuple[str, ...]
    columns: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    version: int
    id: str
    feeds: bool

    def frame(self, spark: SparkSession, files: Sequence[str] | None) -> DataFrame:
        """The rows of all files, or of those given; columns of folders come last."""
        from pyspark.sql.types import StructType

        declared = StructType.fromJson(json.loads(self.columns))
        named = [f for f in declared if f.name in self.partitions]
        columns = StructType([*(f for f in declared if f not in named), *named])
        chosen = self.files if files is None else files
        if not chosen:
            return empty_frame(spark, columns)
        reader = spark.read.options(**LITERAL).schema(columns).option("basePath", self.root.uri)
        return reader.parquet(*chosen)


def is_delta(store: Store) -> bool:
    return store.exists("_delta_log")


def delta_content(store: Store, what: str) -> DeltaContent:
    """What the log of the table at `store` says; `what` tells in errors whose table it is."""
    from deltalake import DeltaTable

    try:
        table = DeltaTable(store.delta_uri, storage_options=store.options_dict)
        _refuse(table, what)
        actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
        schema = table.schema()
        columns = pa.schema(schema.to_arrow())
        metadata, version = table.metadata(), table.version()
    except StorageError:
        raise
    except Exception as error:  # delta-rs raises a class of its own for each of its parts
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"{what}: the Delta table {store.uri!r} cannot be opened: {reason}"
        ) from error
    partitions = tuple(metadata.partition_columns)
    feeds = metadata.configuration.get(_FEED, "false").lower() == "true"
    paths = [unquote(path) for path in actions.column("path").to_pylist()]
    files = [path if "://" in path else f"{store.uri}/{path}" for path in sorted(paths)]
    for path in paths:
        if not set(partitions) <= set(partition_values(path)):
            raise StorageError(
                f"{what}: the folder of {path} does not name the partition ({partitions}) of its "
                f"rows; rewrite the table, {_OTHERWISE}"
            )
    ordered = [f for f in columns if f.name not in partitions]
    ordered += [f for f in columns if f.name in partitions]
    return DeltaContent(
        store,
        tuple(files),
        schema.to_json(),
        pa.schema(ordered),
        partitions,
        version,
        str(metadata.id),
        feeds,
    )


def _refuse(table: DeltaTable, what: str) -> None:
    """Raise unless the files, read as they are, are the table."""
    features = set(table.protocol().reader_features or [])
    if "deletionVectors" in features:
        try:
            marked = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().num_rows
        except Exception:  # it cannot even be decoded; then it is there
            marked = 1
        if marked:
            raise StorageError(
                f"{what}: the Delta table has rows marked as deleted (deletion vectors). Rewrite "
                f"its files with REORG TABLE ... APPLY (PURGE), {_OTHERWISE}"
            )
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise StorageError(
            f"{what}: the Delta table maps column names (delta.columnMapping.mode); rename its "
            f"columns, {_OTHERWISE}"
        )
