"""The columns of a stream: those of its messages, and those of the rows they become.

A row of a stream has the columns of the source's table, before `select` and `where`. A change of
a row has two more, as the form of the source's changes demands: when it happened, and its sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import DefinitionError, SchemaError
from windrow.sources.changes import UpdateColumns
from windrow.sources.definitions import EntitySource, Source
from windrow.sources.tables import select_columns
from windrow.spark.schemas import empty_frame, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_COMMIT_TIME = pa.timestamp("us", "UTC")
COMMIT_VERSION = "_commit_version"  # of Delta's change feed; a message need not have it


def parsed_schema(spark: SparkSession, text: str, what: str) -> StructType:
    """A list of columns, as in CREATE TABLE."""
    from pyspark.sql.types import StructType

    try:
        found: StructType = StructType.fromDDL(text)  # type: ignore[assignment]
    except Exception as error:  # Spark's parser has an error of its own for everything
        reason = str(error).strip().splitlines()[0]
        raise DefinitionError(
            f"{what}: schema {text!r} is not a list of columns: {reason}"
        ) from error
    return found


def declared_columns(spark: SparkSession, source: Source) -> pa.Schema:
    """The columns of the rows of a stream without a table, as its definition says."""
    stream = source.stream
    assert stream is not None
    assert stream.schema is not None
    what = f"{source.what}: stream"
    schema = parsed_schema(spark, stream.schema, what)
    if stream.select:
        frame = empty_frame(spark, schema)
        schema = select_columns(frame, stream.selected, None, f"{what}: select").schema
    found = spark_to_arrow_schema(schema)
    if isinstance(source, EntitySource) and stream.envelope is not None:
        found = with_update_columns(found, source)
    return found


def with_update_columns(images: pa.Schema, source: EntitySource) -> pa.Schema:
    """The columns of a row, with those that say when and how it changed."""
    columns = UpdateColumns.of(source, source.feed)
    for name in columns.names:
        if name in images.names:
            raise SchemaError(
                f"{source.what}: stream: rows have a column {name!r}, which is to say how they "
                "change; name other columns in mutation_time= and change_type="
            )
    return pa.schema(
        [*images, pa.field(columns.known_at, _COMMIT_TIME), pa.field(columns.sign, columns.type)]
    )


def image_columns(rows: pa.Schema, source: EntitySource) -> list[str]:
    """The columns of the rows that change, without what says when and how."""
    own = {*UpdateColumns.of(source, source.feed).names, COMMIT_VERSION}
    return [name for name in rows.names if name not in own]
