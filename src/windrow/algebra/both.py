"""Values of which some count by ranges and others by spans, for the same queries.

In a table that changes most rows never do: they count as events do, by the ranges of windows. Only
the others need spans. A function that can put the two results together says so with `over_both`.

    ranges    ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒   rows as they will always be
    spans        ▒    ▒▒     ▒    ▒▒     rows that appear late, or disappear
              └── one result for a query ──┘
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.arrays import as_float64, as_int64
from windrow.algebra.prefix import add_128, carry_differences, range_sums_128
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.spans import SpannedColumn, tree_sum_pairs
from windrow.algebra.tree import add_pairs, range_sum_pairs
from windrow.rows.ordering import exact, is_lossless


@dataclass(frozen=True)
class Both:
    """A column's values with a range for each query, and others with their spans of queries.

    `times` are those of the column's values. Query i of the ranges is query i of the spans.
    """

    column: Column
    times: np.ndarray
    ranges: Ranges
    spanned: SpannedColumn

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """How many values each query counts."""
        counts: np.ndarray = self.ranges.end - self.ranges.start + self.spanned.spans.counts
        return counts

    @functools.cached_property
    def values(self) -> pa.Array:
        """The column's values, and after them the spanned ones; shared by several aggregates."""
        return pa.concat_arrays([self.column.values, self.spanned.values])

    @functools.cached_property
    def float_sums(self) -> np.ndarray:
        """The sum for each query, rounded once; shared by several aggregates."""
        spans, ranges = self.spanned.spans, self.ranges
        one = range_sum_pairs(as_float64(self.column.values), ranges.start, ranges.end)
        values = as_float64(self.spanned.values)
        other = tree_sum_pairs(values, spans.first, spans.last, spans.queries)
        sums: np.ndarray = add_pairs(*one, *other)
        return sums

    @functools.cached_property
    def integer_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The same of integers: low and high halves of 128 bits."""
        spans, ranges = self.spanned.spans, self.ranges
        one = range_sums_128(*self.column.prefix, ranges.start, ranges.end)
        values = as_int64(self.spanned.values)
        other = carry_differences(values, spans.first, spans.last, spans.queries)
        low, high = add_128(*one, *other)
        return low, high


def better_of(
    both: Both,
    at: np.ndarray,
    spanned_at: np.ndarray,
    *,
    by_time: bool,
    largest: bool,
) -> pa.Array:
    """For each query the better of a column's value `at` a place and a spanned one; NULL for none.

    A place is -1 if there is no value. The larger (or smaller) value is better; `by_time`, the
    later (or earlier) one, then the value, and places are those of the column in order.
    """
    column, spanned = both.column.in_order if by_time else both.column, both.spanned
    words, spanned_words = _comparable(column, spanned)
    major, spanned_major = words, spanned_words
    if by_time:
        major, spanned_major = both.times, spanned.times
    picked = _better(
        at, major, words, spanned_at, spanned_major, spanned_words, largest, len(column.values)
    )
    values = both.values
    if column is not both.column:
        values = pa.concat_arrays([column.values, spanned.values])
    return values.take(pa.array(picked, mask=picked < 0))


def _comparable(column: Column, spanned: SpannedColumn) -> tuple[np.ndarray, np.ndarray]:
    """Words of both; those of some types are ranks, which mean something among each other only."""
    if is_lossless(column.values.type):
        return column.words, spanned.words
    words = exact(pa.concat_arrays([column.values, spanned.values]))
    return words[: len(column.values)], words[len(column.values) :]


@njit(cache=True, nogil=True)
def _better(
    at: Any,
    major: Any,
    minor: Any,
    other_at: Any,
    other_major: Any,
    other_minor: Any,
    largest: Any,
    size: Any,
) -> Any:
    """Places among `size` values and the others after them; by major, then by minor words."""
    out = np.empty(at.size, np.int64)
    for q in range(at.size):
        a, b = at[q], other_at[q]
        if b < 0:
            out[q] = a
            continue
        takes = a < 0
        if not takes:
            x, y = major[a], other_major[b]
            if x == y:
                x, y = minor[a], other_minor[b]
            takes = y > x if largest else y < x
        out[q] = size + b if takes else a
    return out
