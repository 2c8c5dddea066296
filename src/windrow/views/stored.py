"""How the columns of operators are stored: types that cannot be, as others that hold the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.spark.catalyst import Catalyst
from windrow.spark.plans import column_of, expression_of
from windrow.spark.schemas import spark_to_arrow_schema
from windrow.views.storable import Kept, kept_as

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def stored_type(type_: DataType, where: str = "column") -> DataType:
    return kept_as(type_, where).stored


def stored_fields(struct: StructType) -> pa.Schema:
    """The stored columns of rows of `struct`."""
    from pyspark.sql.types import StructField, StructType

    fields = [
        StructField(field.name, stored_type(field.dataType, f"column {field.name!r}"))
        for field in struct
    ]
    return spark_to_arrow_schema(StructType(fields))


def to_stored(c: Catalyst, expression: Any) -> Any:
    """An expression of Spark's plan as it is stored."""
    return _converted(c, expression, kept_as(c.type_of(expression), "column"), "there")


def from_stored(c: Catalyst, expression: Any, type_: DataType) -> Any:
    """What is stored, as the type it had."""
    return _converted(c, expression, kept_as(type_, "column"), "back")


def _converted(c: Catalyst, expression: Any, kept: Kept, way: str) -> Any:
    convert = getattr(kept, way)
    if convert is None:
        return expression
    return expression_of(c.spark, convert(column_of(c.spark, expression)))
