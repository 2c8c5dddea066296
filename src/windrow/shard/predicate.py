"""Row filters: small, picklable, evaluated with Spark's rules, and pruned by statistics.

>>> import pyarrow as pa
>>> rows = pa.table({"price": [1.0, None, float("nan")], "city": ["Bern", "Oslo", "Rome"]})
>>> evaluate((col("price") > 0.5) & ~col("city").is_in(["Oslo"]), rows).to_pylist()
[True, False, True]

A comparison with NULL is unknown, and a row is kept only where the filter is true. NaN equals
NaN and is greater than every other number.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import OptionError, SchemaError, unknown_column
from windrow.rows.types import is_nested

_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


class Predicate:
    """A condition on a row. Combine with `&`, `|` and `~`."""

    def __and__(self, other: Predicate) -> Predicate:
        return And(self, _predicate(other))

    def __or__(self, other: Predicate) -> Predicate:
        return Or(self, _predicate(other))

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> bool:
        raise OptionError("combine row filters with &, | and ~, not with and, or, not")


def _predicate(value: Any) -> Predicate:
    if not isinstance(value, Predicate):
        raise OptionError(f"{value!r} is not a row filter; write one like col('price') > 3")
    return value


@dataclass(frozen=True, eq=False)
class Compare(Predicate):
    column: str
    operator: str
    value: Any

    def __str__(self) -> str:
        return f"{self.column} {self.operator} {self.value!r}"


@dataclass(frozen=True, eq=False)
class IsIn(Predicate):
    column: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.column} in {list(self.values)!r}"


@dataclass(frozen=True, eq=False)
class IsNull(Predicate):
    column: str

    def __str__(self) -> str:
        return f"{self.column} is null"


@dataclass(frozen=True, eq=False)
class And(Predicate):
    left: Predicate
    right: Predicate

    def __str__(self) -> str:
        return f"({self.left} and {self.right})"


@dataclass(frozen=True, eq=False)
class Or(Predicate):
    left: Predicate
    right: Predicate

    def __str__(self) -> str:
        return f"({self.left} or {self.right})"


@dataclass(frozen=True, eq=False)
class Not(Predicate):
    operand: Predicate

    def __str__(self) -> str:
        return f"not {self.operand}"


class Column:
    """A column in a row filter; made by `col`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return Compare(self.name, "==", _operand(value))

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Compare(self.name, "!=", _operand(value))

    def __lt__(self, value: Any) -> Predicate:
        return Compare(self.name, "<", _operand(value))

    def __le__(self, value: Any) -> Predicate:
        return Compare(self.name, "<=", _operand(value))

    def __gt__(self, value: Any) -> Predicate:
        return Compare(self.name, ">", _operand(value))

    def __ge__(self, value: Any) -> Predicate:
        return Compare(self.name, ">=", _operand(value))

    def is_in(self, values: Iterable[Any]) -> Predicate:
        return IsIn(self.name, tuple(_operand(value) for value in values))

    def is_null(self) -> Predicate:
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        return Not(IsNull(self.name))

    def between(self, low: Any, high: Any) -> Predicate:
        """`low <= column <= high`."""
        return And(self >= low, self <= high)


def _operand(value: Any) -> Any:
    if isinstance(value, Column | Predicate):
        raise OptionError("a row filter compares a column with a constant, not with a column")
    if value is None:
        raise OptionError("nothing equals NULL; use .is_null() or .is_not_null()")
    return value


def col(name: str) -> Column:
    """A column of the row, to build a filter with.

    >>> print((col("price") >= 3) & col("city").is_in(["Bern", "Oslo"]))
    (price >= 3 and city in ['Bern', 'Oslo'])
    """
    return Column(name)


def columns_of(predicate: Predicate) -> set[str]:
    match predicate:
        case Compare(column, _, _) | IsIn(column, _) | IsNull(column):
            return {column}
        case And(left, right) | Or(left, right):
            return columns_of(left) | columns_of(right)
        case Not(operand):
            return columns_of(operand)
    raise OptionError(f"{predicate!r} is not a row filter")


def bind(predicate: Predicate, schema: pa.Schema) -> Predicate:
    """`predicate` with its constants as Arrow scalars of their columns' types.

    Raises SchemaError for an unknown column or a constant that the column's type cannot hold.
    """
    match predicate:
        case Compare(column, operator, value):
            return Compare(column, operator, _scalar(value, column, schema))
        case IsIn(column, values):
            return IsIn(column, tuple(_scalar(value, column, schema) for value in values))
        case IsNull(column):
            _field(column, schema)
            return predicate
        case And(left, right):
            return And(bind(left, schema), bind(right, schema))
        case Or(left, right):
            return Or(bind(left, schema), bind(right, schema))
        case Not(operand):
            return Not(bind(operand, schema))
    raise OptionError(f"{predicate!r} is not a row filter; write one like col('price') > 3")


def _field(column: str, schema: pa.Schema) -> pa.Field:
    if column not in schema.names:
        raise unknown_column(column, schema.names, "row filter")
    return schema.field(column)


def _scalar(value: Any, column: str, schema: pa.Schema) -> pa.Scalar:
    type_ = _field(column, schema).type
    if is_nested(type_):
        raise SchemaError(
            f"row filter: column {column!r} ({type_}) is nested; only is_null() works"
        )
    try:
        scalar = value.cast(type_) if isinstance(value, pa.Scalar) else pa.scalar(value, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"row filter: {value!r} does not fit column {column!r} ({type_}): {error}"
        ) from error
    if not scalar.is_valid:
        raise OptionError("nothing equals NULL; use .is_null() or .is_not_null()")
    if is_changed(value, scalar):
        raise SchemaError(
            f"row filter: {value!r} does not fit column {column!r} ({type_}): it would become "
            f"{scalar.as_py()!r}"
        )
    if pa.types.is_floating(type_) and scalar.as_py() == 0:
        scalar = pa.scalar(0.0, type_)
    return scalar


def is_changed(value: Any, scalar: pa.Scalar) -> bool:
    """Whether Arrow cut something off a Python value; it does so without a word.

    Rounding to the nearest float32 is no such change.
    """
    type_ = scalar.type
    if isinstance(value, pa.Scalar):
        return False  # Arrow's casts do say it
    if pa.types.is_integer(type_):
        return bool(scalar.as_py() != value)
    if pa.types.is_float32(type_):
        return math.isinf(scalar.as_py()) and not math.isinf(value)
    if pa.types.is_date(type_):
        return isinstance(value, dt.datetime | float)
    if pa.types.is_timestamp(type_):
        return isinstance(value, float) or bool(getattr(value, "nanosecond", 0))
    return False


_KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate(predicate: Predicate, table: pa.Table) -> Any:
    """A boolean (chunked) array: true where the row is kept, false or null elsewhere."""
    match predicate:
        case Compare(column, operator, value):
            return _compare(table.column(column), operator, value)
        case IsIn(column, values):
            return _is_in(table.column(column), values)
        case IsNull(column):
            return pc.is_null(table.column(column))
        case And(left, right):
            return pc.and_kleene(evaluate(left, table), evaluate(right, table))
        case Or(left, right):
            return pc.or_kleene(evaluate(left, table), evaluate(right, table))
        case Not(operand):
            return pc.invert(evaluate(operand, table))
    raise OptionError(f"{predicate!r} is not a row filter")


def _is_in(column: Any, values: tuple[Any, ...]) -> Any:
    if not values:
        return pc.is_in(column, value_set=pa.array([], column.type))  # even NULL is not in ()
    plain = [v if isinstance(v, pa.Scalar) else pa.scalar(v, column.type) for v in values]
    found = pc.is_in(column, value_set=pa.array(plain, column.type))
    if pa.types.is_floating(column.type) and any(math.isnan(s.as_py()) for s in plain):
        found = pc.or_kleene(found, pc.is_nan(column))
    return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))


def _compare(column: Any, operator: str, value: Any) -> Any:
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, column.type)
    if not pa.types.is_floating(column.type):
        return _KERNELS[operator](column, scalar)
    nan = pc.is_nan(column)
    if math.isnan(scalar.as_py()):
        # NaN equals NaN and exceeds the rest: every other value is below it.
        match operator:
            case "==" | ">=":
                return nan
            case "!=" | "<":
                return pc.invert(nan)
            case ">":
                return pc.and_(nan, False)
            case _:
                return pc.or_(nan, True)
    result = _KERNELS[operator](column, scalar)
    return pc.or_(result, nan) if operator in (">", ">=") else result


@dataclass(frozen=True)
class Bounds:
    """What statistics say of one column in a file or row group; None where they say nothing.

    `low` and `high` are Python values that bound all non-null, non-NaN values.
    """

    low: Any = None
    high: Any = None
    nulls: int | None = None
    rows: int | None = None


def may_match(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """False only if no row within `bounds` can pass the (bound) predicate."""
    match predicate:
        case Compare(column, operator, value):
            return _may_compare(operator, value, bounds.get(column, Bounds()))
        case IsIn(column, values):
            known = bounds.get(column, Bounds())
            return any(_may_compare("==", value, known) for value in values)
        case IsNull(column):
            return bounds.get(column, Bounds()).nulls != 0
        case And(left, right):
            return may_match(left, bounds) and may_match(right, bounds)
        case Or(left, right):
            return may_match(left, bounds) or may_match(right, bounds)
        case Not(Compare(column, operator, value)):
            return may_match(Compare(column, _NEGATED[operator], value), bounds)
        case Not(Not(operand)):
            return may_match(operand, bounds)
        case Not(And(left, right)):
            return may_match(Not(left), bounds) or may_match(Not(right), bounds)
        case Not(Or(left, right)):
            return may_match(Not(left), bounds) and may_match(Not(right), bounds)
        case Not(IsNull(column)):
            known = bounds.get(column, Bounds())
            return known.nulls is None or known.nulls != known.rows
    return True


_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _may_compare(operator: str, scalar: Any, known: Bounds) -> bool:
    if known.nulls is not None and known.nulls == known.rows:
        return False
    if known.low is None or known.high is None:
        return True
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        return True  # a timestamp beyond Python's years
    floating = pa.types.is_floating(scalar.type)
    if floating and (math.isnan(value) or operator in (">", ">=", "!=")):
        return True  # statistics leave NaN out, and NaN may match
    match operator:
        case "==":
            return bool(known.low <= value <= known.high)
        case "!=":
            return not (known.low == value == known.high)
        case "<":
            return bool(known.low < value)
        case "<=":
            return bool(known.low <= value)
        case ">":
            return bool(known.high > value)
        case _:
            return bool(known.high >= value)
