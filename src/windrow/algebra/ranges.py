"""Aggregates over ranges of events: one operation, one column, all queries at once.

Events of a key lie together, in order of time. For each query a window is a range of positions
`[start, end)`; this module computes an operation over every range. Along the queries of a key,
ranges only move forward.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.best import range_top
from windrow.algebra.multiset import range_distinct, range_histograms
from windrow.algebra.prefix import (
    prefix_128,
    prefix_192,
    range_sums_64,
    range_sums_decimal,
    range_sums_float,
)
from windrow.algebra.quantiles import quantiles
from windrow.algebra.tree import range_best, range_moments, range_sums
from windrow.errors import DataError
from windrow.merging import sort_words
from windrow.rows.hashing import decimal_halves
from windrow.rows.ordering import exact

t = pa.types


@dataclass(frozen=True)
class Ranges:
    """For each query the positions `[start, end)` of its window's events (int64)."""

    start: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return int(self.start.size)

    @staticmethod
    def of(several: Sequence[Ranges]) -> Ranges:
        """The ranges of several windows, one after another."""
        if len(several) == 1:
            return several[0]
        return Ranges(
            np.concatenate([one.start for one in several]),
            np.concatenate([one.end for one in several]),
        )

    @property
    def empty(self) -> np.ndarray:
        return self.start >= self.end


@dataclass(frozen=True)
class Column:
    """The input values of an aggregation without NULLs, in the order of events.

    `moments` never decreases and tells apart the moments of a key: equal for values of one key
    (and bucket) at one time.
    """

    values: pa.Array
    moments: np.ndarray

    @functools.cached_property
    def words(self) -> np.ndarray:
        """int64 words in the order of the values."""
        return exact(self.values)

    @functools.cached_property
    def prefix(self) -> tuple[np.ndarray, np.ndarray]:
        """Prefix sums of integers, in 128 bits."""
        low, high = prefix_128(as_int64(self.values))
        return low, high

    def float_sums(self, ranges: Ranges) -> np.ndarray:
        """Sums over ranges; several aggregates of one window ask for the same."""
        if self._sums and self._sums[-1][0] is ranges:
            return self._sums[-1][1]
        sums = range_sums(as_float64(self.values), ranges.start, ranges.end)
        self._sums[:] = [(ranges, sums)]
        return sums

    @functools.cached_property
    def _sums(self) -> list[tuple[Ranges, np.ndarray]]:
        return []

    @functools.cached_property
    def in_order(self) -> Column:
        """Values of one moment sorted, so that ties have one answer."""
        tied = self.moments[1:] == self.moments[:-1]
        if not tied.any():
            return self
        order = sort_words(np.vstack([self.moments, self.words]))
        return Column(self.values.take(pa.array(order)), self.moments)


def evaluate(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    """The result for each range of the column's values, of the operation's result type."""
    operation = aggregation.operation
    result = _FUNCTIONS[operation.name](aggregation, column, ranges)
    expected = operation.result(column.values.type)
    return result if result.type == expected else result.cast(expected)


Function = Callable[[Aggregation, Column, Ranges], pa.Array]


def null_where(values: np.ndarray, nothing: np.ndarray, type_: pa.DataType) -> pa.Array:
    return pa.array(values, type_, mask=nothing)


def _count(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    return pa.array(ranges.end - ranges.start, pa.int64())


def as_int64(values: pa.Array) -> np.ndarray:
    array: np.ndarray = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return array


def as_float64(values: pa.Array) -> np.ndarray:
    array: np.ndarray = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return array


def _sum(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    type_ = column.values.type
    if t.is_decimal(type_):
        return _decimal_sum(aggregation, column, ranges)
    if t.is_floating(type_):
        return null_where(column.float_sums(ranges), ranges.empty, pa.float64())
    low, high = column.prefix
    sums, overflow = range_sums_64(low, high, ranges.start, ranges.end)
    check_overflow(aggregation, overflow < 0, "BIGINT")
    return null_where(sums, ranges.empty, pa.int64())


def check_overflow(aggregation: Aggregation, fits: bool, type_: str) -> None:
    if not fits:
        raise DataError(
            f"{aggregation.column}: a sum does not fit {type_}; cast the column to DOUBLE or to a "
            "smaller DECIMAL in the source's select"
        )


def _decimal_sum(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    halves = np.ascontiguousarray(decimal_halves(column.values))
    sums, overflow = range_sums_decimal(prefix_192(halves), ranges.start, ranges.end)
    check_overflow(aggregation, overflow < 0, "DECIMAL(38)")
    type_ = pa.decimal128(38, column.values.type.scale)
    valid = pa.array(~ranges.empty).buffers()[1]
    return pa.Array.from_buffers(type_, len(ranges), [valid, pa.py_buffer(sums)])


def _avg(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    counts = np.maximum(ranges.end - ranges.start, 1)
    if t.is_integer(column.values.type):
        low, high = column.prefix
        sums = range_sums_float(low, high, ranges.start, ranges.end)
    else:
        sums = column.float_sums(ranges)
    return null_where(sums / counts, ranges.empty, pa.float64())


def _moment(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    moments = range_moments(as_float64(column.values), ranges.start, ranges.end)
    return moment_result(aggregation.operation.name, moments, ranges.empty)


def moment_result(name: str, moments: np.ndarray, nothing: np.ndarray) -> pa.Array:
    """Variance, skewness and so on from (count, mean, sums of powers 2 to 4 of deviations)."""
    n, _, m2, m3, m4 = moments.T
    with np.errstate(all="ignore"):
        if name.endswith("_samp"):
            nothing = nothing | (n < 2)
            result = m2 / (n - 1)
        elif name.endswith("_pop"):
            result = m2 / n
        elif name == "skewness":
            nothing = nothing | (m2 == 0)
            result = np.sqrt(n) * m3 / np.sqrt(m2 * m2 * m2)
        else:
            nothing = nothing | (m2 == 0)
            result = n * m4 / (m2 * m2) - 3.0
        if name.startswith("stddev"):
            result = np.sqrt(result)
    return null_where(result, nothing, pa.float64())


def _bool(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    trues = np.concatenate([[0], np.cumsum(column.values.to_numpy(zero_copy_only=False))])
    count = (trues[ranges.end] - trues[ranges.start]).astype(np.int64)
    every = aggregation.operation.name == "bool_and"
    result = count == ranges.end - ranges.start if every else count > 0
    return null_where(result, ranges.empty, pa.bool_())


def _extreme(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    largest = aggregation.operation.name == "max"
    at = range_best(column.words, ranges.start, ranges.end, largest=largest)
    return column.values.take(pa.array(at, mask=at < 0))


def _edge(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    at = ranges.start if aggregation.operation.name == "first" else ranges.end - 1
    return column.in_order.values.take(pa.array(at, mask=ranges.empty))


def _edge_k(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    assert aggregation.k is not None
    lengths = np.minimum(ranges.end - ranges.start, aggregation.k)
    owner, within = enumerate_lists(lengths)
    if aggregation.operation.name == "first_k":
        at = ranges.start[owner] + within
    else:
        at = ranges.end[owner] - 1 - within
    return _lists(column.in_order.values, at, lengths)


def enumerate_lists(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For lists of these lengths, one after another: each element's list and place in it."""
    owner = np.repeat(np.arange(lengths.size), lengths)
    within = np.arange(owner.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owner, within


def list_offsets(lengths: np.ndarray) -> pa.Array:
    """Offsets of lists; an empty list is NULL."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.array(offsets, mask=np.append(lengths == 0, False))


def _lists(values: pa.Array, at: np.ndarray, lengths: np.ndarray) -> pa.Array:
    type_ = pa.list_(pa.field("element", values.type))
    return pa.ListArray.from_arrays(list_offsets(lengths), values.take(pa.array(at)), type=type_)


def _collect(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    lengths = ranges.end - ranges.start
    owner, within = enumerate_lists(lengths)
    ordered = column if t.is_nested(column.values.type) else column.in_order
    return _lists(ordered.values, ranges.start[owner] + within, lengths)


def _top(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    assert aggregation.k is not None
    name = aggregation.operation.name
    words = column.words
    if name == "bottom_k":
        words = -1 - words  # reverses the order of int64 without overflow
    at, lengths = range_top(
        words, ranges.start, ranges.end, aggregation.k, unique=name == "unique_top_k"
    )
    return _lists(column.values, at, lengths)


def _codes(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Codes in the order of values, and for each code a position that holds its value."""
    _, first, codes = np.unique(exact(values), return_index=True, return_inverse=True)
    return codes.astype(np.int64), first


def _unique(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    codes, first = _codes(column.values)
    counts = range_distinct(codes, first.size, ranges.start, ranges.end)
    if aggregation.k is not None:
        counts = np.minimum(counts, aggregation.k)
    return pa.array(counts, pa.int64())


def _maps(keys: pa.Array, counts: pa.Array, lengths: np.ndarray) -> pa.Array:
    return pa.MapArray.from_arrays(list_offsets(lengths), keys, counts)


def _histogram(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    codes, first = _codes(column.values)
    found, counts, lengths = range_histograms(
        codes, first.size, ranges.start, ranges.end, aggregation.k or 0
    )
    keys = column.values.take(pa.array(first[found]))
    return _maps(keys, pa.array(counts, pa.int64()), lengths)


def _approx_percentile(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    values = as_float64(column.values)
    found = quantiles(values, ranges.start, ranges.end, aggregation.percentiles)
    lengths = np.where(ranges.empty, 0, len(aggregation.percentiles))
    kept = found[~ranges.empty].ravel()
    type_ = pa.list_(pa.field("element", pa.float64()))
    return pa.ListArray.from_arrays(list_offsets(lengths), pa.array(kept), type=type_)


_FUNCTIONS: dict[str, Function] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    **dict.fromkeys(
        ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis"), _moment
    ),
    "bool_and": _bool,
    "bool_or": _bool,
    "min": _extreme,
    "max": _extreme,
    "first": _edge,
    "last": _edge,
    "first_k": _edge_k,
    "last_k": _edge_k,
    "collect_list": _collect,
    "top_k": _top,
    "bottom_k": _top,
    "unique_top_k": _top,
    "unique_count": _unique,
    "bounded_unique_count": _unique,
    "histogram": _histogram,
    "approx_percentile": _approx_percentile,
    # With all values of a window at hand the exact answer costs no more, and is within any error.
    "approx_unique_count": _unique,
    "approx_frequent_k": _histogram,
}
