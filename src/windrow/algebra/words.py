"""States of fixed size: an aggregate as a few machine words, merged by compiled code.

A record of the online store holds hundreds of states, and a request combines those of ten features
in microseconds. So functions of single numbers, times and booleans declare, beside their partial
states, which *parts* of the values they need. Every part is one or two int64 words:

    COUNT      1   values that are not null; it decides whether the other parts mean anything
    TRUES      1   how many of them are true
    INTEGERS   2   their sum, 128 bits: low half, high half
    FLOATS     2   their sum, a double-double: the bits of its high and low double
    LEAST      1   the smallest, as a word that compares as the values do
    MOST       1   the largest
    EARLIEST   2   time and word of the earliest; of several at one time, the smallest
    LATEST     2   time and word of the latest; of several at one time, the largest

Parts of the same column are shared between functions: an average needs nothing that count and sum
do not hold. What cannot be declared so (strings, decimals, lists, sketches) has partial states
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.arrays import as_float64, as_int64
from windrow.algebra.tree import add_dd
from windrow.rows.ordering import coarse, is_lossless
from windrow.rows.types import canonical_values

t = pa.types


class Part(IntEnum):
    COUNT = 0
    TRUES = 1
    INTEGERS = 2
    FLOATS = 3
    LEAST = 4
    MOST = 5
    EARLIEST = 6
    LATEST = 7

    @property
    def width(self) -> int:
        """How many words it takes."""
        return 2 if self in (Part.INTEGERS, Part.FLOATS, Part.EARLIEST, Part.LATEST) else 1


class Result(IntEnum):
    """How a result is made of the count and one part."""

    COUNT = 0
    ALL_TRUE = 1
    ANY_TRUE = 2
    SUM = 3  # of integers; it may not fit
    MEAN = 4
    FLOAT_SUM = 5
    FLOAT_MEAN = 6
    WORD = 7  # the value is the word
    DOUBLE = 8  # the word of a DOUBLE
    SINGLE = 9  # the word of a FLOAT


EMPTY, PRESENT, OVERFLOW = 0, 1, 2  # what became of a result


@dataclass(frozen=True)
class Words:
    """The part that a function needs of its column, beside the count; and its result."""

    part: Part
    result: Result

    @property
    def gives_float(self) -> bool:
        """Whether the result is a double, and not an int64."""
        return self.result in _FLOATS


_FLOATS = (Result.MEAN, Result.FLOAT_SUM, Result.FLOAT_MEAN, Result.DOUBLE, Result.SINGLE)


def word_result(value: pa.DataType) -> Result | None:
    """How a value is made of its own word; None if a word does not hold it."""
    if t.is_nested(value) or t.is_decimal(value) or not is_lossless(value):
        return None
    if t.is_float64(value):
        return Result.DOUBLE
    return Result.SINGLE if t.is_float32(value) else Result.WORD


def value_words(part: Part, values: pa.Array) -> np.ndarray:
    """The word that a part is made of, for each value; of NULLs, which do not count, anything."""
    if part is Part.TRUES:
        return as_int64(values.fill_null(False))
    if part is Part.INTEGERS:
        return as_int64(values.fill_null(0))
    if part is Part.FLOATS:
        return as_float64(values.fill_null(0)).view(np.int64)
    return coarse(canonical_values(values))


@njit(cache=True, nogil=True)
def _bits(value: Any) -> Any:
    return np.float64(value).view(np.int64)


@njit(cache=True, nogil=True)
def _double(word: Any) -> Any:
    return np.int64(word).view(np.float64)


@njit(cache=True, nogil=True)
def _single(word: Any) -> Any:
    return np.float64(np.int32(word).view(np.float32))


@njit(cache=True, nogil=True)
def merge_part(part: Any, first: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The words (a, b) merged with (c, d); of the first, which has nothing before it, (c, d)."""
    if first:
        return c, d
    if part <= 1:
        return a + c, b
    if part == 2:
        low = np.uint64(a) + np.uint64(c)
        if low < np.uint64(a):
            return np.int64(low), b + d + 1
        return np.int64(low), b + d
    if part == 3:
        high, low_ = add_dd(_double(a), _double(b), _double(c), _double(d))
        return _bits(high), _bits(low_)
    if part == 4:
        return min(a, c), b
    if part == 5:
        return max(a, c), b
    if part == 6:
        if c < a or (c == a and d < b):
            return c, d
        return a, b
    if c > a or (c == a and d > b):
        return c, d
    return a, b


@njit(cache=True, nogil=True)
def merge_rows(
    words: Any, groups: Any, count: Any, counts: Any, parts: Any, columns: Any, widths: Any
) -> Any:
    """The words of each group: `words` (n, width of all parts) merged by `groups` (n, in 0..count).

    Part p is of kind `parts[p]`, in columns from `columns[p]` on, and counts where the column
    `counts[p]` is not zero: that of the COUNT part of the same values.
    """
    out = np.zeros((count, words.shape[1]), np.int64)
    for i in range(groups.size):
        g = groups[i]
        for p in range(parts.size):
            at = counts[p]
            if words[i, at] == 0:
                continue
            c = columns[p]
            if parts[p] == 0:
                out[g, c] += words[i, c]
                continue
            # The COUNT part comes after the others of its values: it still tells the first.
            if widths[p] == 1:
                a, _ = merge_part(
                    parts[p], out[g, at] == 0, out[g, c], np.int64(0), words[i, c], np.int64(0)
                )
                out[g, c] = a
            else:
                a, b = merge_part(
                    parts[p],
                    out[g, at] == 0,
                    out[g, c],
                    out[g, c + 1],
                    words[i, c],
                    words[i, c + 1],
                )
                out[g, c], out[g, c + 1] = a, b
    return out


@njit(cache=True, nogil=True)
def lift_words(
    words: Any, times: Any, counted: Any, groups: Any, parts: Any, columns: Any, out: Any
) -> None:
    """Add rows to the words of their groups, `out` (groups, width): the parts of one column.

    `words` are those of each part's values, (parts, n), `counted` says which rows count. Part p is
    of kind `parts[p]`, in columns from `columns[p]` on; the last is COUNT, which has no words.
    """
    last = parts.size - 1
    count = columns[last]
    for i in range(groups.size):
        if not counted[i]:
            continue
        g = groups[i]
        first = out[g, count] == 0
        for p in range(last):
            part, at, word = parts[p], columns[p], words[p, i]
            if part == 2:
                a, b = merge_part(part, first, out[g, at], out[g, at + 1], word, word >> 63)
            elif part == 3:
                a, b = merge_part(part, first, out[g, at], out[g, at + 1], word, np.int64(0))
            elif part >= 6:
                a, b = merge_part(part, first, out[g, at], out[g, at + 1], times[i], word)
            else:
                a, b = merge_part(part, first, out[g, at], np.int64(0), word, np.int64(0))
                out[g, at] = a
                continue
            out[g, at], out[g, at + 1] = a, b
        out[g, count] += 1


@njit(cache=True, nogil=True)
def lower_words(result: Any, count: Any, a: Any, b: Any) -> Any:
    """A result as (int64, float64, EMPTY | PRESENT | OVERFLOW), of the count and a part's words."""
    if result == 0:
        return count, 0.0, 1
    if count == 0:
        return np.int64(0), 0.0, 0
    if result == 1:
        return np.int64(a == count), 0.0, 1
    if result == 2:
        return np.int64(a > 0), 0.0, 1
    if result == 3:
        if b == a >> 63:
            return a, 0.0, 1
        return a, 0.0, 2
    if result == 4:
        if b == a >> 63:
            return np.int64(0), np.float64(a) / count, 1
        low = np.float64(np.uint64(a))
        return np.int64(0), (np.float64(b) * 2.0**64 + low) / count, 1
    if result == 5:
        return np.int64(0), _double(a) + _double(b), 1
    if result == 6:
        return np.int64(0), (_double(a) + _double(b)) / count, 1
    if result == 8:  # words of negative numbers are turned around
        if a < 0:
            return np.int64(0), _double(a ^ np.int64(0x7FFFFFFFFFFFFFFF)), 1
        return np.int64(0), _double(a), 1
    if result == 9:
        if a < 0:
            return np.int64(0), _single(a ^ np.int64(0x7FFFFFFF)), 1
        return np.int64(0), _single(a), 1
    return a, 0.0, 1
