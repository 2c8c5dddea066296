"""Arrow's schemas as Spark's and the other way, and names that Spark takes as they are."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# Options of a reader whose paths are names of files, not patterns. Patterns can be escaped too, but
# not if there is a colon in them.
LITERAL = {"__globPaths__": "false"}


def arrow_to_spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_to_arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    if "variant" in schema.simpleString():
        _refuse_variant(schema)
    # Before Spark 4.2 it was always UTC, and could not be said.
    zone: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    try:
        return to_arrow_schema(schema, **zone)
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


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows. (createDataFrame would make `spark` the active session.)"""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.range(0, 0, 1, 1).select(*columns)


def quoted(name: str) -> str:
    """A column name that Spark takes as it is, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def is_dataframe(value: Any) -> bool:
    """Whether `value` is a Spark DataFrame, without importing Spark to find out."""
    return any(
        cls.__name__ == "DataFrame" and cls.__module__.startswith("pyspark.sql")
        for cls in type(value).__mro__
    )
