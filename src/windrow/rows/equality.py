"""Which pairs of rows are equal: the exact answer behind every hash.

Columns are canonical (see `windrow.rows.types`), so equal values have equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.rows.hashing import byte_ranges, decimal_halves, fixed_width
from windrow.rows.lists import list_parts


@njit(cache=True, nogil=True)
def _equal_bytes(offsets: Any, data: Any, left: Any, right: Any, out: Any) -> None:
    for p in range(left.size):
        if not out[p]:
            continue
        a, b = offsets[left[p]], offsets[right[p]]
        length = offsets[left[p] + 1] - a
        if offsets[right[p] + 1] - b != length:
            out[p] = False
            continue
        for i in range(length):
            if data[a + i] != data[b + i]:
                out[p] = False
                break


@njit(cache=True, nogil=True)
def _equal_fixed(values: Any, left: Any, right: Any, out: Any) -> None:
    for p in range(left.size):
        if values[left[p]] != values[right[p]]:
            out[p] = False


def equal_pairs(columns: Sequence[pa.Array], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """For each p, whether row `left[p]` equals row `right[p]` in every one of `columns`."""
    out = np.ones(left.size, np.bool_)
    if left.size:
        for column in columns:
            _compare(column, left, right, out)
    return out


def _compare(array: pa.Array, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Clear `out[p]` where the two values differ."""
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        out &= valid[left] == valid[right]
        both = np.flatnonzero(valid[left] & valid[right] & out)
        if both.size < left.size:
            there = np.ones(both.size, np.bool_)
            _compare_valid(array, left[both], right[both], there)
            out[both] &= there
            return
    _compare_valid(array, left, right, out)


def _compare_valid(array: pa.Array, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    type_ = array.type
    t = pa.types
    if t.is_struct(type_):
        for child in array.flatten():
            _compare(child, left, right, out)
    elif t.is_map(type_) or t.is_list(type_):
        _compare_lists(array, left, right, out)
    elif t.is_string(type_) or t.is_binary(type_):
        _equal_bytes(*byte_ranges(array), left, right, out)
    elif t.is_decimal(type_):
        halves = decimal_halves(array)
        out &= (halves[left] == halves[right]).all(axis=1)
    else:
        _equal_fixed(fixed_width(array), left, right, out)


def _compare_lists(array: pa.Array, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    offsets, values = list_parts(array)
    lengths = np.diff(offsets)
    out &= lengths[left] == lengths[right]
    pairs = np.flatnonzero(out & (lengths[left] > 0))
    if not pairs.size:
        return
    # One pair of elements for each position of each pair of lists.
    counts = lengths[left[pairs]]
    owner = np.repeat(np.arange(pairs.size), counts)
    within = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
    same = np.ones(owner.size, np.bool_)
    _compare(
        values, offsets[left[pairs]][owner] + within, offsets[right[pairs]][owner] + within, same
    )
    out[pairs[np.unique(owner[~same])]] = False
