"""The one best value: by value (min, max), or by the order of rows (first, last)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from windrow.algebra.both import Both, better_of
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.values import Bests, Order, value_lists
from windrow.algebra.law import Law
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.spans import SpannedColumn, tree_best, tree_largest
from windrow.algebra.tree import range_best
from windrow.algebra.types import SCALARS
from windrow.algebra.words import Part, Words, word_result


@dataclass(frozen=True)
class Extreme(Function):
    """The best value by an order."""

    takes = SCALARS
    order: ClassVar[Order]
    part: ClassVar[Part]

    def result(self, value: pa.DataType) -> pa.DataType:
        return value

    def state(self, value: pa.DataType) -> Kind:
        return Bests(value, self.order, k=1, single=True)

    def lower(self, held: Held) -> pa.Array:
        starts, values = value_lists(held)
        return values.take(pa.array(starts[:-1], mask=held.empty))

    def words(self, value: pa.DataType) -> Words | None:
        result = word_result(value)
        return None if result is None else Words(self.part, result)

    def over_spans(self, column: SpannedColumn) -> pa.Array:
        at = self._in_spans(column)
        return column.values.take(pa.array(at, mask=at < 0))

    def _in_spans(self, column: SpannedColumn) -> np.ndarray:
        """For each query the place of its best value; -1 for none."""
        spans, words = column.spans, column.words
        if not self.order.descending:
            words = ~words  # the smallest words are best
        at: np.ndarray
        if self.order.by_time:
            times = column.times if self.order.descending else ~column.times
            at = tree_best(times, words, spans.first, spans.last, spans.queries)
        else:
            at = tree_largest(words, spans.first, spans.last, spans.queries)
        return at


@dataclass(frozen=True)
class ByValue(Extreme):
    """The smallest or largest value."""

    law = Law.LATTICE

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        at = self._in_ranges(column, ranges)
        return column.values.take(pa.array(at, mask=at < 0))

    def over_both(self, both: Both) -> pa.Array:
        at, other = self._in_ranges(both.column, both.ranges), self._in_spans(both.spanned)
        return better_of(both, at, other, by_time=False, largest=self.order.descending)

    def _in_ranges(self, column: Column, ranges: Ranges) -> np.ndarray:
        largest = self.order.descending
        return range_best(column.words, ranges.start, ranges.end, largest=largest)


@dataclass(frozen=True)
class ByTime(Extreme):
    """The value at an end of the range, once values of equal times are sorted."""

    law = Law.ORDER
    ordered = True

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        at = self._ends(ranges)
        return column.in_order.values.take(pa.array(at, mask=ranges.empty))

    def over_both(self, both: Both) -> pa.Array:
        at = np.where(both.ranges.empty, -1, self._ends(both.ranges))
        other = self._in_spans(both.spanned)
        return better_of(both, at, other, by_time=True, largest=self.order.descending)

    def _ends(self, ranges: Ranges) -> np.ndarray:
        return ranges.end - 1 if self.order.descending else ranges.start


@declare
@dataclass(frozen=True)
class Min(ByValue):
    """The smallest value; NaN is larger than every number."""

    name = "min"
    code = 7
    order = Order()
    part = Part.LEAST


@declare
@dataclass(frozen=True)
class Max(ByValue):
    """The largest value; NaN is larger than every number."""

    name = "max"
    code = 8
    order = Order(descending=True)
    part = Part.MOST


@declare
@dataclass(frozen=True)
class First(ByTime):
    """The value of the earliest event; of several at one time, the smallest value."""

    name = "first"
    code = 9
    order = Order(by_time=True)
    part = Part.EARLIEST


@declare
@dataclass(frozen=True)
class Last(ByTime):
    """The value of the latest event; of several at one time, the largest value."""

    name = "last"
    code = 10
    order = Order(by_time=True, descending=True)
    part = Part.LATEST
