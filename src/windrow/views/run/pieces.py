"""Pieces of Spark's plan, and how columns are named in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField, StructType


@dataclass(frozen=True)
class Piece:
    """A piece of Spark's plan: the columns of an operator's output, then `diff`."""

    plan: Any
    diff: Any


def nullable(schema: StructType) -> StructType:
    return StructType([StructField(f.name, f.dataType, True) for f in schema])


def attribute_of(named: Any) -> Any:
    """The attribute of a named expression: itself, if it is one."""
    return named.toAttribute()


def value_of(named: Any) -> Any:
    """What a named expression names."""
    return named.child() if named.getClass().getSimpleName() == "Alias" else named
