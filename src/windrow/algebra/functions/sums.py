"""Sums and averages, exact for integers and decimals.

over ranges   integers and decimals: differences of wide prefix sums; floats: a tree
over spans    integers: difference arrays; floats: a tree over the queries; decimals: states
over both     the same, added before they are rounded; decimals: by spans alone
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import as_int64, null_where
from windrow.algebra.both import Both
from windrow.algebra.codec import binary_parts
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.numbers import POWERS, Numbers, float_sums
from windrow.algebra.kinds.wide import to_halves
from windrow.algebra.law import Law
from windrow.algebra.prefix import (
    carry_differences,
    fits_64,
    prefix_192,
    range_sums_64,
    range_sums_decimal,
    range_sums_float,
)
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.spans import SpannedColumn
from windrow.algebra.types import NUMBERS, sum_type
from windrow.algebra.words import Part, Result, Words
from windrow.errors import DataError
from windrow.rows.hashing import decimal_halves

t = pa.types
_LIMIT = 10**38  # the first unscaled value that DECIMAL(38, s) cannot hold


@dataclass(frozen=True)
class Total(Function):
    """A function of the sum."""

    law = Law.GROUP
    takes = NUMBERS
    code = 2

    def state(self, value: pa.DataType) -> Kind:
        return Numbers(value, powers=1)

    def over_spans(self, column: SpannedColumn) -> pa.Array | None:
        return None if t.is_decimal(column.values.type) else self._over_spans(column)

    def over_both(self, both: Both) -> pa.Array | None:
        return None if t.is_decimal(both.column.values.type) else self._over_both(both)

    @abstractmethod
    def _over_spans(self, column: SpannedColumn) -> pa.Array: ...

    @abstractmethod
    def _over_both(self, both: Both) -> pa.Array: ...


@declare
@dataclass(frozen=True)
class Sum(Total):
    """The sum: BIGINT of integers (overflow is an error), DECIMAL(38, s), or DOUBLE."""

    name = "sum"

    def result(self, value: pa.DataType) -> pa.DataType:
        return sum_type(value)

    def lower(self, held: Held) -> pa.Array:
        if t.is_floating(held.value_type):
            return null_where(float_sums(held), held.empty, pa.float64())
        halves, fits = to_halves(*binary_parts(held.columns[POWERS[0]]))
        low, high = halves[:, 0], halves[:, 1].view(np.int64)
        if t.is_decimal(held.value_type):
            _check_overflow(bool((fits & _is_decimal(low, high)).all()), "DECIMAL(38)")
            return _decimals(halves, held.empty, held.value_type)
        found = np.ascontiguousarray(low).view(np.int64)
        _check_overflow(bool((fits & (high == found >> 63)).all()), "BIGINT")
        return null_where(found, held.empty, pa.int64())

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        type_ = column.values.type
        if t.is_floating(type_):
            return null_where(column.float_sums(ranges), ranges.empty, pa.float64())
        if t.is_decimal(type_):
            halves = np.ascontiguousarray(decimal_halves(column.values))
            sums, overflow = range_sums_decimal(prefix_192(halves), ranges.start, ranges.end)
            _check_overflow(overflow < 0, "DECIMAL(38)")
            return _decimals(sums, ranges.empty, type_)
        low, high = column.prefix
        sums, overflow = range_sums_64(low, high, ranges.start, ranges.end)
        _check_overflow(overflow < 0, "BIGINT")
        return null_where(sums, ranges.empty, pa.int64())

    def _over_spans(self, column: SpannedColumn) -> pa.Array:
        nothing = column.spans.counts == 0
        if t.is_floating(column.values.type):
            return null_where(column.float_sums, nothing, pa.float64())
        return _bigints(*_integer_sums(column), nothing)

    def words(self, value: pa.DataType) -> Words | None:
        return _words(value, Result.SUM, Result.FLOAT_SUM)

    def _over_both(self, both: Both) -> pa.Array:
        nothing = both.counts == 0
        if t.is_floating(both.column.values.type):
            return null_where(both.float_sums, nothing, pa.float64())
        return _bigints(*both.integer_sums, nothing)


@declare
@dataclass(frozen=True)
class Avg(Total):
    """The mean, as DOUBLE."""

    name = "avg"

    def result(self, value: pa.DataType) -> pa.DataType:
        return pa.float64()

    def lower(self, held: Held) -> pa.Array:
        with np.errstate(all="ignore"):
            means = float_sums(held) / np.maximum(held.count, 1)
            if t.is_decimal(held.value_type):
                means = means / 10.0**held.value_type.scale
        return null_where(means, held.empty, pa.float64())

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        counts = np.maximum(ranges.end - ranges.start, 1)
        if t.is_integer(column.values.type):
            low, high = column.prefix
            sums = range_sums_float(low, high, ranges.start, ranges.end)
        else:
            sums = column.float_sums(ranges)
        return null_where(sums / counts, ranges.empty, pa.float64())

    def _over_spans(self, column: SpannedColumn) -> pa.Array:
        counts = column.spans.counts
        if t.is_floating(column.values.type):
            sums = column.float_sums
        else:
            sums = _rounded(*_integer_sums(column))
        return null_where(sums / np.maximum(counts, 1), counts == 0, pa.float64())

    def words(self, value: pa.DataType) -> Words | None:
        return _words(value, Result.MEAN, Result.FLOAT_MEAN)

    def _over_both(self, both: Both) -> pa.Array:
        counts = both.counts
        floating = t.is_floating(both.column.values.type)
        sums = both.float_sums if floating else _rounded(*both.integer_sums)
        return null_where(sums / np.maximum(counts, 1), counts == 0, pa.float64())


def _words(value: pa.DataType, exact: Result, rounded: Result) -> Words | None:
    """Sums of decimals may need more than 128 bits on the way."""
    if t.is_decimal(value):
        return None
    return Words(Part.FLOATS, rounded) if t.is_floating(value) else Words(Part.INTEGERS, exact)


def _check_overflow(fits: bool, type_: str) -> None:
    if not fits:
        raise DataError(
            f"a sum does not fit {type_}; cast the values to DOUBLE or to a smaller DECIMAL first"
        )


def _integer_sums(column: SpannedColumn) -> tuple[np.ndarray, np.ndarray]:
    spans = column.spans
    low, high = carry_differences(as_int64(column.values), spans.first, spans.last, spans.queries)
    return low, high


def _bigints(low: np.ndarray, high: np.ndarray, nothing: np.ndarray) -> pa.Array:
    _check_overflow(bool(fits_64(low, high).all()), "BIGINT")
    return null_where(low.view(np.int64), nothing, pa.int64())


def _rounded(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """128-bit sums as float64."""
    wide = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
    return np.where(fits_64(low, high), low.view(np.int64).astype(np.float64), wide)


def _decimals(halves: np.ndarray, nothing: np.ndarray, type_: pa.DataType) -> pa.Array:
    valid = pa.array(~nothing).buffers()[1]
    buffers = [valid, pa.py_buffer(halves)]
    return pa.Array.from_buffers(pa.decimal128(38, type_.scale), nothing.size, buffers)


def _is_decimal(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether each |sum| < 10**38: compares the halves of the magnitude."""
    negative = high < 0
    magnitude_low = np.where(negative, ~low + np.uint64(1), low)
    magnitude_high = np.where(negative, ~high + (magnitude_low == 0), high)
    top, rest = np.int64(_LIMIT >> 64), np.uint64(_LIMIT & (2**64 - 1))
    fits: np.ndarray = (magnitude_high >= 0) & (
        (magnitude_high < top) | ((magnitude_high == top) & (magnitude_low < rest))
    )
    return fits
