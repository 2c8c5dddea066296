"""Merging segments that are sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from windrow.words.comparing import less, sort_ties
from windrow.words.packing import Packing


@njit(cache=True, nogil=True)
def _merge_pair(
    words: Any, keys: Any, rows: Any, to_keys: Any, to_rows: Any, low: Any, middle: Any, high: Any
) -> None:
    """Merge the sorted stretches [low, middle) and [middle, high); ties keep their order.

    `keys` are the first words of `rows`, carried along: most comparisons need nothing else, and
    they are read in sequence.
    """
    if middle in (low, high) or keys[middle - 1] < keys[middle]:
        to_keys[low:high] = keys[low:high]
        to_rows[low:high] = rows[low:high]
        return
    i, j, k = low, middle, low
    while i < middle and j < high:
        left, right = keys[i], keys[j]
        take_right = right < left
        if left == right:
            take_right = less(words, rows[j], rows[i])
        if take_right:
            to_keys[k], to_rows[k] = right, rows[j]
            j += 1
        else:
            to_keys[k], to_rows[k] = left, rows[i]
            i += 1
        k += 1
    to_keys[k : k + middle - i] = keys[i:middle]
    to_rows[k : k + middle - i] = rows[i:middle]
    k += middle - i
    to_keys[k:high] = keys[j:high]
    to_rows[k:high] = rows[j:high]


@njit(cache=True, nogil=True)
def _merge_segments(words: Any, bounds: Any) -> Any:
    n = words.shape[1]
    rows, to_rows = np.arange(n), np.empty(n, np.int64)
    keys, to_keys = words[0].copy(), np.empty(n, np.int64)
    bounds = bounds.copy()
    count = bounds.size - 1
    while count > 1:
        merged = 0
        for s in range(0, count, 2):
            middle = bounds[s + 1]
            high = bounds[min(s + 2, count)]
            _merge_pair(words, keys, rows, to_keys, to_rows, bounds[s], middle, high)
            merged += 1
            bounds[merged] = high
        rows, to_rows = to_rows, rows
        keys, to_keys = to_keys, keys
        count = merged
    return rows


@njit(cache=True, nogil=True)
def _merge_packed(word: Any, bounds: Any) -> Any:
    """As `_merge_segments`, of one word, without branches that depend on its values."""
    n = word.size
    rows, to_rows = np.arange(n), np.empty(n, np.int64)
    keys, to_keys = word, np.empty(n, np.uint64)
    bounds = bounds.copy()
    count = bounds.size - 1
    while count > 1:
        merged = 0
        for s in range(0, count, 2):
            middle, high = bounds[s + 1], bounds[min(s + 2, count)]
            i, j, k = bounds[s], middle, bounds[s]
            while i < middle and j < high:
                left, right = keys[i], keys[j]
                take_right = right < left
                to_keys[k] = right if take_right else left
                to_rows[k] = rows[j] if take_right else rows[i]
                j += take_right
                i += 1 - take_right
                k += 1
            while i < middle:
                to_keys[k], to_rows[k] = keys[i], rows[i]
                i += 1
                k += 1
            while j < high:
                to_keys[k], to_rows[k] = keys[j], rows[j]
                j += 1
                k += 1
            merged += 1
            bounds[merged] = high
        rows, to_rows = to_rows, rows
        keys, to_keys = to_keys, keys
        count = merged
    return rows, keys


def merge_segments(words: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """The permutation that sorts `words`, given that they are `lengths` sorted segments.

    Where the second words lie close together, as times do, one word is merged instead of several.
    """
    bounds = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
    order: np.ndarray
    if not words.shape[1]:
        return np.zeros(0, np.int64)
    filled = np.flatnonzero(np.diff(bounds))
    low = int(words[0, bounds[filled]].min())
    high = int(words[0, bounds[filled + 1] - 1].max())
    packing = Packing.of(words, low, high)
    if packing is None:
        order = _merge_segments(words, bounds)
        return order
    order, packed = _merge_packed(packing.pack(words), bounds)
    known = packing.repair(words, order, packed)
    if words.shape[0] > 2:
        sort_ties(words, order, packed, order.size, known)
    return order
