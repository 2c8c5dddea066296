"""Derived columns of joins, computed without Spark: expressions as Spark resolved them, as data.

When a join is uploaded, Spark parses and analyses its `derive` expressions: types are known, and
every cast is written out (see `deriving`). What remains is a tree of a few operations, which is
stored as JSON and evaluated here, row by row, with Spark's rules in ANSI mode:

    {"op": "Divide", "type": "double", "args": [...]}
    {"op": "Column", "type": "bigint", "name": "activity_view_id_count_7d"}
    {"op": "Literal", "type": "double", "value": 7.0}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.errors import DataError, RequestError
from windrow.online.types import schema_of, schema_text

Tree = Mapping[str, Any]
Row = Mapping[str, Any]
Evaluate = Callable[[Row], Any]

INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
NUMBERS = {*INTEGERS, "double"}


@dataclass(frozen=True)
class Derived:
    """Columns to derive, in order; each may use those before it.

    `types` are their names with Arrow types; `inputs` are the columns that a request has to give.
    """

    expressions: tuple[tuple[str, Tree], ...] = ()
    types: tuple[tuple[str, pa.DataType], ...] = ()
    inputs: tuple[tuple[str, pa.DataType], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.expressions)

    def to_json(self) -> dict[str, Any]:
        return {
            "expressions": [[name, tree] for name, tree in self.expressions],
            "types": schema_text(self.types),
            "inputs": schema_text(self.inputs),
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Derived:
        types, inputs = schema_of(found["types"]), schema_of(found["inputs"])
        return Derived(
            tuple((name, tree) for name, tree in found["expressions"]),
            tuple((field.name, field.type) for field in types),
            tuple((field.name, field.type) for field in inputs),
        )

    def evaluate(
        self,
        features: Mapping[str, Sequence[Any]],
        rows: Sequence[Row],
        name: str,
    ) -> Iterator[tuple[str, list[Any]]]:
        """Each derived column: its name, and its values by row."""
        known = {column for column, _ in self.inputs}
        made = []
        for number, row in enumerate(rows):
            found = {column: values[number] for column, values in features.items()}
            for column in known:
                if column not in row:
                    raise RequestError(
                        f"{name}: {column!r} is missing; features are derived of it. Give "
                        f"{', '.join(sorted(known))} beside the keys"
                    )
                found[column] = row[column]
            made.append(found)
        for column, tree in self.expressions:
            evaluate = compiled(tree)
            values = []
            for found in made:
                try:
                    found[column] = evaluate(found)
                except (ZeroDivisionError, OverflowError, TypeError, ValueError) as error:
                    raise DataError(f"{name}: {column}: {_reason(error)}") from error
                values.append(found[column])
            yield column, values


def _reason(error: Exception) -> str:
    if isinstance(error, ZeroDivisionError):
        return "division by zero; write try_divide(a, b), which gives NULL then"
    if isinstance(error, TypeError):
        return f"an input has another type than its column ({error})"
    return str(error)


def compiled(tree: Tree) -> Evaluate:
    """An expression as a function of a row."""
    op, type_ = tree["op"], tree["type"]
    if op == "Literal":
        value = tree["value"]
        return lambda row: value
    if op == "Column":
        name = tree["name"]
        return lambda row: row[name]
    args = [compiled(arg) for arg in tree["args"]]
    if op in _SPECIAL:
        return _SPECIAL[op](args)
    if op == "Cast":
        (arg,) = args
        cast = _casting(tree["args"][0]["type"], type_)
        return lambda row: None if (value := arg(row)) is None else cast(value)
    function = _FUNCTIONS[op]
    check = _checking(type_)

    def evaluate(row: Row) -> Any:
        values = [arg(row) for arg in args]
        if None in values:
            return None
        return check(function(*values))

    return evaluate


def supports(op: str) -> bool:
    """Whether an operation of Spark's can be evaluated here."""
    return op in _FUNCTIONS or op in _SPECIAL or op == "Cast"


def supports_cast(before: str, after: str) -> bool:
    if before.startswith("decimal"):
        return after == "double"
    return before == after or (before in {*NUMBERS, "boolean", "float"} and after in NUMBERS)


def _checking(type_: str) -> Callable[[Any], Any]:
    bits = INTEGERS.get(type_)
    if bits is None:
        return lambda value: value

    def check(value: Any) -> Any:
        if value is not None and not -(1 << bits) <= value < 1 << bits:
            raise OverflowError(f"{value} does not fit {type_.upper()}")
        return value

    return check


def _casting(before: str, after: str) -> Callable[[Any], Any]:
    if before == after:
        return lambda value: value
    if after == "double":
        return float
    check = _checking(after)

    def cast(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            raise OverflowError(f"{value} does not fit {after.upper()}")
        return check(int(value))

    return cast


def _key(value: Any) -> Any:
    """What values are compared by: NaN is equal to itself, and above all numbers."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value)


def _divide(a: float, b: float) -> float:
    if b == 0:
        raise ZeroDivisionError
    return a / b


def _integral(a: int, b: int) -> int:
    if b == 0:
        raise ZeroDivisionError
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        raise ZeroDivisionError
    return (
        math.fmod(a, b) if isinstance(a, float) or isinstance(b, float) else a - b * _integral(a, b)
    )


def _pmod(a: Any, b: Any) -> Any:
    found = _remainder(a, b)
    return _remainder(found + b, b) if found < 0 else found


def _log(function: Callable[[float], float], least: float = 0.0) -> Callable[[float], float | None]:
    """Spark's logarithms are NULL where there is none."""
    return lambda value: None if value <= least else function(value)


def _power(a: float, b: float) -> float:
    try:
        found = math.pow(a, b)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan
    return found


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _whole(function: Callable[[float], int]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) else function(value)


def _element(values: Any, at: Any) -> Any:
    """An element of a list by its place from 1 (or, below zero, from the end); or of a map."""
    if isinstance(values, dict):
        return values.get(at)
    if at == 0:
        raise ValueError("element_at counts from 1; there is no element 0")
    place = at - 1 if at > 0 else len(values) + at
    if not 0 <= place < len(values):
        raise ValueError(f"there is no element {at} among {len(values)}; write try_element_at")
    return values[place]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Subtract": lambda a, b: a - b,
    "Multiply": lambda a, b: a * b,
    "Divide": _divide,
    "TryDivide": lambda a, b: None if b == 0 else a / b,
    "IntegralDivide": _integral,
    "Remainder": _remainder,
    "Pmod": _pmod,
    "UnaryMinus": lambda a: -a,
    "UnaryPositive": lambda a: a,
    "Abs": abs,
    "EqualTo": lambda a, b: _key(a) == _key(b),
    "LessThan": lambda a, b: _key(a) < _key(b),
    "LessThanOrEqual": lambda a, b: _key(a) <= _key(b),
    "GreaterThan": lambda a, b: _key(a) > _key(b),
    "GreaterThanOrEqual": lambda a, b: _key(a) >= _key(b),
    "Not": lambda a: not a,
    "IsNaN": lambda a: math.isnan(a),
    "Sqrt": lambda a: math.sqrt(a) if a >= 0 else math.nan,
    "Exp": _exp,
    "Log": _log(math.log),
    "Log10": _log(math.log10),
    "Log2": _log(math.log2),
    "Log1p": _log(math.log1p, -1.0),
    "Pow": _power,
    "Floor": _whole(math.floor),
    "Ceil": _whole(math.ceil),
    "Signum": lambda a: math.copysign(1.0, a) if a else a,
    "Length": len,
    "Size": len,
    "ArrayContains": lambda values, one: one in values,
    "ElementAt": _element,
    "GetMapValue": lambda values, key: values.get(key),
    "Upper": str.upper,
    "Lower": str.lower,
    "Concat": lambda *parts: "".join(parts),
}


def _and(args: list[Evaluate]) -> Evaluate:
    def evaluate(row: Row) -> Any:
        a = args[0](row)
        if a is False:
            return False
        b = args[1](row)
        return False if b is False else None if a is None or b is None else True

    return evaluate


def _or(args: list[Evaluate]) -> Evaluate:
    def evaluate(row: Row) -> Any:
        a = args[0](row)
        if a is True:
            return True
        b = args[1](row)
        return True if b is True else None if a is None or b is None else False

    return evaluate


def _coalesce(args: list[Evaluate]) -> Evaluate:
    return lambda row: next((v for arg in args if (v := arg(row)) is not None), None)


def _if(args: list[Evaluate]) -> Evaluate:
    condition, yes, no = args
    return lambda row: yes(row) if condition(row) is True else no(row)


def _case(args: list[Evaluate]) -> Evaluate:
    """Pairs of condition and value, and last perhaps the value of all else."""
    pairs = list(zip(args[::2], args[1::2], strict=False))
    other = args[-1] if len(args) % 2 else None

    def evaluate(row: Row) -> Any:
        for condition, value in pairs:
            if condition(row) is True:
                return value(row)
        return None if other is None else other(row)

    return evaluate


def _in(args: list[Evaluate]) -> Evaluate:
    def evaluate(row: Row) -> Any:
        value = args[0](row)
        if value is None:
            return None
        values = [arg(row) for arg in args[1:]]
        if any(one is not None and _key(one) == _key(value) for one in values):
            return True
        return None if None in values else False

    return evaluate


def _best(choose: Callable[..., Any]) -> Callable[[list[Evaluate]], Evaluate]:
    def made(args: list[Evaluate]) -> Evaluate:
        def evaluate(row: Row) -> Any:
            values = [v for arg in args if (v := arg(row)) is not None]
            return choose(values, key=_key) if values else None

        return evaluate

    return made


_SPECIAL: dict[str, Callable[[list[Evaluate]], Evaluate]] = {
    "And": _and,
    "Or": _or,
    "IsNull": lambda args: lambda row: args[0](row) is None,
    "IsNotNull": lambda args: lambda row: args[0](row) is not None,
    "EqualNullSafe": lambda args: lambda row: _key(args[0](row)) == _key(args[1](row)),
    "Coalesce": _coalesce,
    "If": _if,
    "CaseWhen": _case,
    "In": _in,
    "Least": _best(min),
    "Greatest": _best(max),
    "NaNvl": lambda args: (
        lambda row: args[1](row) if (v := args[0](row)) is not None and math.isnan(v) else v
    ),
}
