"""The few things Windrow asks of a Spark session, for classic and Connect sessions alike."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import DataError, SchemaError, StorageError, WindrowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_DEFAULT_PARALLELISM = 8


def local_session(name: str = "windrow", *, cores: str = "*", **conf: str) -> SparkSession:
    """A Spark session on this machine, with settings that suit Windrow's tasks."""
    from pyspark.sql import SparkSession

    # Tasks run in this Python, where Windrow is installed, not in the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Folders of partitions are listed here: a Spark job to do so takes longer than the listing.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "4096")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.sql.shuffle.partitions", "8")
    )
    for key, value in conf.items():
        builder = builder.config(key.replace("__", "."), value)
    return builder.getOrCreate()


def parallelism(spark: SparkSession) -> int:
    """How many tasks the session runs at once, as far as it tells."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return _DEFAULT_PARALLELISM


def arrow_to_spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_to_arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    if "variant" in schema.simpleString():
        _refuse_variant(schema)
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        raise SchemaError(f"schema {schema.simpleString()}: {error}") from error


def _refuse_variant(type_: Any, where: str = "column") -> None:
    """Arrow would take a variant for the struct that carries it."""
    if type_.typeName() == "variant":
        raise SchemaError(f"{where}: type variant is not supported; cast it to a plain type")
    for child in getattr(type_, "fields", []):
        _refuse_variant(child.dataType, f"{where} {child.name!r}")
    for name in ("elementType", "keyType", "valueType"):
        if hasattr(type_, name):
            _refuse_variant(getattr(type_, name), where)


def quoted(name: str) -> str:
    """A column name that Spark takes as it is, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def is_dataframe(value: Any) -> bool:
    """Whether `value` is a Spark DataFrame, without importing Spark to find out."""
    return any(
        cls.__name__ == "DataFrame" and cls.__module__.startswith("pyspark.sql")
        for cls in type(value).__mro__
    )


def known_error(error: Exception) -> WindrowError | None:
    """What Spark says of an unreadable file or bad data, as an error of ours; None for the rest."""
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if "FAILED_READ_FILE" in text:
        at = text.index("[FAILED_READ_FILE")
        line = text[at:].splitlines()[0].strip()
        return StorageError(f"{line} Replace the file, or take it out of the folder")
    if "USER_RAISED_EXCEPTION" in text:  # one of our own checks, within an expression
        at = text.index("[USER_RAISED_EXCEPTION]")
        return DataError(text[at:].splitlines()[0].partition("] ")[2])
    # SQL's class of data exceptions: a failed cast, a division by zero, an overflow.
    found = re.search(r"\[[A-Z_]+(\.[A-Z_]+)*\][^\n]*SQLSTATE: 22\w{3}", text)
    if found is not None:
        return DataError(found[0])
    state = getattr(error, "getSqlState", lambda: None)()
    return DataError(first) if str(state).startswith("22") else None


@contextmanager
def known_errors() -> Iterator[None]:
    """Raises what `known_error` knows as our own error."""
    try:
        yield
    except Exception as error:
        known = known_error(error)
        if known is None:
            raise
        raise known from error
