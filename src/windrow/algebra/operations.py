"""What each aggregate is: its class, what it takes, and what it gives. One declaration each.

The class decides how an aggregate can be kept:

    GROUP     combine is invertible: what leaves is subtracted
    LATTICE   idempotent, not invertible
    ORDER     the best k by an order
    MONOID    mergeable only: sketches
    BASIC     needs every value
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from windrow.errors import DefinitionError

t = pa.types


class Law(Enum):
    GROUP = "group"
    LATTICE = "lattice"
    ORDER = "bounded order"
    MONOID = "monoid"
    BASIC = "basic"


TypeRule = Callable[[pa.DataType], pa.DataType]


@dataclass(frozen=True)
class Operation:
    """An aggregate function. `result` maps the type of one input value to the result's type."""

    name: str
    law: Law
    takes: Callable[[pa.DataType], bool]
    wants: str
    result: TypeRule
    of_nothing: int | None = None  # the value over no input: 0 for counts, NULL for the rest
    ordered: bool = False  # whether the order of events, not only their values, counts
    has_k: bool = False
    k_is_optional: bool = False

    def result_type(self, value: pa.DataType, where: str) -> pa.DataType:
        """The result's type for values of type `value`, or a DefinitionError that names `where`."""
        if not self.takes(value):
            raise DefinitionError(f"{where}: {self.name} takes {self.wants}, not {value}")
        return self.result(value)


def _any(type_: pa.DataType) -> bool:
    return True


def _number(type_: pa.DataType) -> bool:
    return bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def _orderable(type_: pa.DataType) -> bool:
    return not t.is_nested(type_)


def _same(type_: pa.DataType) -> pa.DataType:
    return type_


def _list_of(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", type_))


def _sum_type(type_: pa.DataType) -> pa.DataType:
    if t.is_integer(type_):
        return pa.int64()
    if t.is_decimal(type_):
        return pa.decimal128(38, type_.scale)
    return pa.float64()


def _constant(type_: pa.DataType) -> TypeRule:
    return lambda _: type_


def _counts_by_value(type_: pa.DataType) -> pa.DataType:
    return pa.map_(type_, pa.int64())


_NUMBERS = "numbers"
_SCALARS = "values that have an order (no lists, structs or maps)"

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("count", Law.GROUP, _any, "anything", _constant(pa.int64()), of_nothing=0),
        Operation("sum", Law.GROUP, _number, _NUMBERS, _sum_type),
        Operation("avg", Law.GROUP, _number, _NUMBERS, _constant(pa.float64())),
        *(
            Operation(name, Law.GROUP, _number, _NUMBERS, _constant(pa.float64()))
            for name in (
                "var_pop",
                "var_samp",
                "stddev_pop",
                "stddev_samp",
                "skewness",
                "kurtosis",
            )
        ),
        Operation("bool_and", Law.GROUP, t.is_boolean, "booleans", _same),
        Operation("bool_or", Law.GROUP, t.is_boolean, "booleans", _same),
        Operation(
            "histogram",
            Law.GROUP,
            _orderable,
            _SCALARS,
            _counts_by_value,
            has_k=True,
            k_is_optional=True,
        ),
        Operation(
            "unique_count", Law.GROUP, _orderable, _SCALARS, _constant(pa.int64()), of_nothing=0
        ),
        Operation(
            "bounded_unique_count",
            Law.ORDER,
            _orderable,
            _SCALARS,
            _constant(pa.int64()),
            of_nothing=0,
            has_k=True,
        ),
        Operation("min", Law.LATTICE, _orderable, _SCALARS, _same),
        Operation("max", Law.LATTICE, _orderable, _SCALARS, _same),
        Operation(
            "approx_unique_count",
            Law.LATTICE,
            _orderable,
            _SCALARS,
            _constant(pa.int64()),
            of_nothing=0,
        ),
        Operation("first", Law.ORDER, _orderable, _SCALARS, _same, ordered=True),
        Operation("last", Law.ORDER, _orderable, _SCALARS, _same, ordered=True),
        Operation("first_k", Law.ORDER, _orderable, _SCALARS, _list_of, ordered=True, has_k=True),
        Operation("last_k", Law.ORDER, _orderable, _SCALARS, _list_of, ordered=True, has_k=True),
        Operation("top_k", Law.ORDER, _orderable, _SCALARS, _list_of, has_k=True),
        Operation("bottom_k", Law.ORDER, _orderable, _SCALARS, _list_of, has_k=True),
        Operation("unique_top_k", Law.ORDER, _orderable, _SCALARS, _list_of, has_k=True),
        Operation(
            "approx_percentile",
            Law.MONOID,
            _number,
            _NUMBERS,
            _constant(pa.list_(pa.field("element", pa.float64()))),
        ),
        Operation(
            "approx_frequent_k", Law.MONOID, _orderable, _SCALARS, _counts_by_value, has_k=True
        ),
        Operation("collect_list", Law.BASIC, _any, "anything", _list_of, ordered=True),
    )
}
