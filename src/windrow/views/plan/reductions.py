"""How aggregate functions are maintained, by their class.

    accumulable    combine can be undone (sums, counts, averages, moments, any, all): the state of
                   a group is updated in place, and no values are kept
    hierarchical   min and max: the current value of a group, and the values that may follow it
    basic          all others: Spark computes them of all rows of a touched group

DISTINCT functions of the first class are fed from a set of distinct values, kept once for all
functions over the same columns; a change that does not change the set stops there. What a function
is, and how its states are combined, is declared in `windrow.algebra`; here stands which of Spark's
functions is which declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from windrow.algebra.function import Function
from windrow.algebra.functions.booleans import BoolAnd, BoolOr
from windrow.algebra.functions.count import Count
from windrow.algebra.functions.moments import (
    Kurtosis,
    Skewness,
    StddevPop,
    StddevSamp,
    VarPop,
    VarSamp,
)
from windrow.algebra.functions.sums import Avg, Sum
from windrow.algebra.kinds.kind import ROWS
from windrow.algebra.states import States
from windrow.spark.catalyst import Catalyst, SplitAggregate

ROWS_OF_GROUP = "rows_of_group"

_MOMENTS: dict[str, Function] = {
    "VariancePop": VarPop(),
    "VarianceSamp": VarSamp(),
    "StddevPop": StddevPop(),
    "StddevSamp": StddevSamp(),
    "Skewness": Skewness(),
    "Kurtosis": Kurtosis(),
}
_EXTREMES = {"Min": False, "Max": True}
_ORDERED = (NumericType, DateType, TimestampType, TimestampNTZType, BinaryType)


@dataclass(frozen=True)
class Accumulated:
    """A function whose state is updated in place.

    `values` are the columns of its input, by number: none, if rows are counted, and one or more of
    a DISTINCT function, whose set they are. `type` is that of the value.
    """

    function: Function
    values: tuple[int, ...]
    type: pa.DataType
    distinct: bool

    @property
    def states(self) -> States:
        return States.of(self.function, self.type)

    @property
    def fields(self) -> list[pa.Field]:
        """What is kept of a group. Rows are counted once for all functions."""
        return [field for field in self.states.fields if field.name != ROWS]


@dataclass(frozen=True)
class Extreme:
    """The least or the largest of a column of values, by number."""

    value: int
    largest: bool


@dataclass(frozen=True)
class Reduction:
    """All functions of an aggregate, by their class.

    `values` are expressions over the input: what the functions take, NULL where a FILTER says no.
    `results` are the attributes of what `functions` give, and `output` gives the results of Spark's
    functions from them, all but those of `basic` ones, which Spark computes.
    """

    values: list[Any]
    functions: list[Accumulated | Extreme]
    results: list[Any]
    output: list[Any]
    basic: list[Any]


def totals_fields(
    functions: Sequence[Accumulated | Extreme], values: Sequence[pa.Field]
) -> list[pa.Field]:
    """What is kept of a group: how many rows it has, then the state of each function."""
    fields = [pa.field(ROWS_OF_GROUP, pa.int64())]
    for number, one in enumerate(functions):
        if isinstance(one, Extreme):
            fields.append(pa.field(f"f{number}_{_side(one)}", values[one.value].type))
        else:
            name = one.function.name
            fields += [pa.field(f"f{number}_{name}_{f.name}", f.type) for f in one.fields]
    return fields


def _side(extreme: Extreme) -> str:
    return "largest" if extreme.largest else "least"


def reduction_of(c: Catalyst, split: SplitAggregate) -> Reduction | None:
    """The plan of an aggregate's functions; None if all of them are basic.

    Of basic functions with DISTINCT, only Spark knows the set of values, for all functions at once.
    """
    found = _Reductions(c)
    basic = []
    for function, result in zip(split.functions, split.results, strict=True):
        if not found.add(function, result):
            if function.isDistinct():
                return None
            basic.append(function)
    if not found.functions:
        return None
    return Reduction(found.values, found.functions, found.results, found.output, basic)


class _Reductions:
    def __init__(self, catalyst: Catalyst) -> None:
        self._c = catalyst
        self.values: list[Any] = []
        self.functions: list[Accumulated | Extreme] = []
        self.results: list[Any] = []
        self.output: list[Any] = []
        self._texts: dict[str, int] = {}

    def add(self, function: Any, result: Any) -> bool:
        """Whether a function of Spark's is one that is not basic."""
        c = self._c
        what = function.aggregateFunction()
        kind, children = c.kind(what), c.children(what)
        condition = None if function.filter().isEmpty() else function.filter().get()
        if kind == "Count":
            return self._count(function, children, condition, result)
        if len(children) != 1:
            return False
        (child,) = children
        type_ = c.type_of(child)
        if kind in _EXTREMES:
            return self._extreme(child, type_, condition, result, _EXTREMES[kind])
        declared = self._declared(kind, what, type_)
        if declared is None:
            return False
        value = self._value(child, condition)
        if kind == "Average" and isinstance(c.type_of(result), DecimalType):
            self._decimal_average(what, value, type_, bool(function.isDistinct()), result)
            return True
        self._accumulate(declared, (value,), _arrow(type_), bool(function.isDistinct()), result)
        return True

    def _declared(self, kind: str, what: Any, type_: DataType) -> Function | None:
        if not isinstance(type_, NumericType):
            return None
        adds_up = kind == "Sum" or (kind == "Average" and isinstance(type_, DecimalType))
        if adds_up and not self._overflow_fails(type_):
            return None  # Spark says what a sum is that does not fit
        if kind == "Sum":
            return Sum() if what.toString().startswith("sum(") else None  # not try_sum
        if kind == "Average":
            return Avg() if what.toString().startswith("avg(") else None
        return _MOMENTS.get(kind)

    def _overflow_fails(self, type_: DataType) -> bool:
        """Whether a sum that does not fit its type is an error, as states take it to be."""
        if isinstance(type_, FloatType | DoubleType):
            return True
        return str(self._c.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"

    def _count(self, function: Any, children: Sequence[Any], condition: Any, result: Any) -> bool:
        c = self._c
        distinct = bool(function.isDistinct())
        values: tuple[int, ...] = ()
        if distinct:
            if not all(_has_plain_equality(c.type_of(one)) for one in children):
                return False
            values = tuple(self._value(one, condition) for one in children)
        else:
            known = [one for one in children if one.nullable()]
            if known or condition is not None:
                values = (self._value(_all_known(c, known), condition),)
        self._accumulate(Count(), values, pa.bool_(), distinct, result)
        return True

    def _extreme(
        self, child: Any, type_: DataType, condition: Any, result: Any, largest: bool
    ) -> bool:
        if isinstance(type_, BooleanType):
            value = self._value(child, condition)
            function = BoolOr() if largest else BoolAnd()
            self._accumulate(function, (value,), pa.bool_(), False, result)
            return True
        plain_text = isinstance(type_, StringType) and type_.collation == "UTF8_BINARY"
        if not plain_text and not isinstance(type_, _ORDERED):
            return False
        self.functions.append(Extreme(self._value(child, condition), largest))
        self.results.append(result)
        self.output.append(result)
        return True

    def _accumulate(
        self,
        function: Function,
        values: tuple[int, ...],
        type_: pa.DataType,
        distinct: bool,
        result: Any,
    ) -> None:
        self.functions.append(Accumulated(function, values, type_, distinct))
        self.results.append(result)
        self.output.append(result)

    def _decimal_average(
        self, what: Any, value: int, type_: DataType, distinct: bool, result: Any
    ) -> None:
        """Spark divides: its own expression gives the result from the sum and the count."""
        c = self._c
        total, count = c.items(what.aggBufferAttributes())
        for function, attribute in ((Sum(), total), (Count(), count)):
            self.functions.append(Accumulated(function, (value,), _arrow(type_), distinct))
            self.results.append(attribute)
        self.output.append(c.renamed(what.evaluateExpression(), result))

    def _value(self, expression: Any, condition: Any) -> int:
        """The number of a value among all, each of which is computed once."""
        c = self._c
        if condition is not None:
            nothing = c.null_like(expression)
            expression = c.expressions.If(condition, expression, nothing)
        text = str(expression.canonicalized().toString())
        if text not in self._texts:
            self._texts[text] = len(self.values)
            self.values.append(c.named(expression, str(expression.toString())))
        return self._texts[text]


def _all_known(c: Catalyst, expressions: Sequence[Any]) -> Any:
    """True where none of the expressions is NULL, and NULL elsewhere."""
    true = c.literal(True, BooleanType())
    if not expressions:
        return true
    known = None
    for one in expressions:
        found = c.expressions.IsNotNull(one)
        known = found if known is None else c.expressions.And(known, found)
    return c.expressions.If(known, true, c.null_like(true))


def _has_plain_equality(type_: DataType) -> bool:
    """Whether values are equal exactly if what is stored of them is."""
    if isinstance(type_, StringType):
        return bool(type_.collation == "UTF8_BINARY")
    return isinstance(type_, (*_ORDERED, BooleanType))


def _arrow(type_: DataType) -> pa.DataType:
    from pyspark.sql.types import StructField, StructType

    from windrow.views.stored import stored_fields

    return stored_fields(StructType([StructField("value", type_)])).field(0).type
