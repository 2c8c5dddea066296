"""Which values a function takes, and the types of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

t = pa.types


@dataclass(frozen=True)
class Values:
    """The values that a function takes, as messages call them: `pa.int64() in NUMBERS`."""

    words: str
    holds: Callable[[pa.DataType], bool]

    def __contains__(self, type_: pa.DataType) -> bool:
        return bool(self.holds(type_))


ANYTHING = Values("anything", lambda type_: True)
BOOLEANS = Values("booleans", t.is_boolean)
NUMBERS = Values(
    "numbers",
    lambda type_: t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_),
)
SCALARS = Values(
    "values that have an order (no lists, structs or maps)", lambda type_: not t.is_nested(type_)
)


def list_type(element: pa.DataType) -> pa.DataType:
    """An array as Spark and Delta name its parts."""
    return pa.list_(pa.field("element", element))


def sum_type(value: pa.DataType) -> pa.DataType:
    """The type of sums: BIGINT, DECIMAL(38, s) or DOUBLE."""
    if t.is_integer(value):
        return pa.int64()
    if t.is_decimal(value):
        return pa.decimal128(38, value.scale)
    return pa.float64()
