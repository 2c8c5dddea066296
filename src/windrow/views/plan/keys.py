"""Keys that are stored as Spark compares them."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from windrow.spark.catalyst import Catalyst


def comparable(c: Catalyst, key: Any) -> Any | None:
    """A key as one that is equal where Spark takes keys for equal: itself, in most cases.

    None: nothing stored is. What is kept has then a coarser key, and Spark compares.
    """
    type_ = c.type_of(key)
    value = key.child() if c.kind(key) == "Alias" else key
    if c.is_session(key):  # Spark merges sessions that overlap
        return None
    if isinstance(type_, StringType):
        if type_.collation == "UTF8_BINARY":
            return key
        return c.named(c.expressions.CollationKey(value), "collation_key")
    if isinstance(type_, MapType):  # Spark has sorted its entries
        if _is_bytewise(type_.keyType) and _is_bytewise(type_.valueType):
            return c.named(c.expressions.MapEntries(value), "entries")
        return None
    return key if _is_bytewise(type_) else None


def _is_bytewise(type_: DataType) -> bool:
    """Whether values are equal only if what is stored of them is."""
    match type_:
        case ArrayType():
            return _is_bytewise(type_.elementType)
        case StructType():
            return all(_is_bytewise(field.dataType) for field in type_)
        case StringType():
            return type_.collation == "UTF8_BINARY"
    return not isinstance(type_, MapType)
