"""Lists of the best k values: by value, or by the order of rows; and of all values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import enumerate_lists, lists_of
from windrow.algebra.best import range_top
from windrow.algebra.function import Function, Limited
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.values import Bests, Order, value_lists
from windrow.algebra.law import Law
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.types import ANYTHING, SCALARS, list_type

t = pa.types


def _lowered(held: Held) -> pa.Array:
    starts, values = value_lists(held)
    return lists_of(values, np.diff(starts))


@dataclass(frozen=True)
class Best(Limited):
    """The k best values by an order, best first."""

    law = Law.ORDER
    takes = SCALARS
    order: ClassVar[Order]

    def result(self, value: pa.DataType) -> pa.DataType:
        return list_type(value)

    def state(self, value: pa.DataType) -> Kind:
        return Bests(value, self.order, self.k)

    def lower(self, held: Held) -> pa.Array:
        return _lowered(held)


@dataclass(frozen=True)
class BestByValue(Best):
    """From a tree whose nodes hold their best k."""

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        words = column.words
        if not self.order.descending:
            words = -1 - words  # reverses the order of int64 without overflow
        unique = self.order.unique
        at, lengths = range_top(words, ranges.start, ranges.end, self.k, unique=unique)
        return lists_of(column.values.take(pa.array(at)), lengths)


@dataclass(frozen=True)
class BestByTime(Best):
    """The values at an end of the range, once values of equal times are sorted."""

    ordered = True

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        lengths = np.minimum(ranges.end - ranges.start, self.k)
        owner, within = enumerate_lists(lengths)
        if self.order.descending:
            at = ranges.end[owner] - 1 - within
        else:
            at = ranges.start[owner] + within
        return lists_of(column.in_order.values.take(pa.array(at)), lengths)


@declare
@dataclass(frozen=True)
class FirstK(BestByTime):
    """The values of the k earliest events, oldest first."""

    name = "first_k"
    code = 11
    order = Order(by_time=True)


@declare
@dataclass(frozen=True)
class LastK(BestByTime):
    """The values of the k latest events, newest first."""

    name = "last_k"
    code = 12
    order = Order(by_time=True, descending=True)


@declare
@dataclass(frozen=True)
class BottomK(BestByValue):
    """The k smallest values, smallest first; equal values are all kept."""

    name = "bottom_k"
    code = 13
    order = Order()


@declare
@dataclass(frozen=True)
class TopK(BestByValue):
    """The k largest values, largest first; equal values are all kept."""

    name = "top_k"
    code = 14
    order = Order(descending=True)


@declare
@dataclass(frozen=True)
class UniqueTopK(BestByValue):
    """The k largest distinct values, largest first."""

    name = "unique_top_k"
    code = 15
    order = Order(descending=True, unique=True)


@declare
@dataclass(frozen=True)
class CollectList(Function):
    """All values, by time, then by value."""

    name = "collect_list"
    law = Law.BASIC
    takes = ANYTHING
    ordered = True
    code = 17

    def result(self, value: pa.DataType) -> pa.DataType:
        return list_type(value)

    def state(self, value: pa.DataType) -> Kind:
        return Bests(value, Order(by_time=True))

    def lower(self, held: Held) -> pa.Array:
        return _lowered(held)

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        lengths = ranges.end - ranges.start
        owner, within = enumerate_lists(lengths)
        ordered = column if t.is_nested(column.values.type) else column.in_order
        return lists_of(ordered.values.take(pa.array(ranges.start[owner] + within)), lengths)
