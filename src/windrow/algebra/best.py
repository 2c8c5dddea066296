"""The best k of a range by an order, from a tree whose nodes hold their best k.

Positions of rows stand for their values: a word (int64) decides the order, and of equal words the
earlier position comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from windrow.algebra.tree import FAN, level_offsets


@njit(inline="always")
def _insert(words: Any, kept: Any, count: Any, position: Any, k: Any, unique: Any) -> Any:
    """Put `position` into `kept` (largest word first, at most k); returns the new count."""
    word = words[position]
    at = count
    while at > 0 and words[kept[at - 1]] < word:
        at -= 1
    if unique and at > 0 and words[kept[at - 1]] == word:
        return count
    if at >= k:
        return count
    last = min(count, k - 1)
    for i in range(last, at, -1):
        kept[i] = kept[i - 1]
    kept[at] = position
    return min(count + 1, k)


@njit(cache=True, nogil=True)
def _tree(words: Any, offsets: Any, k: Any, unique: Any) -> Any:
    """Nodes above level 0: their best positions, and how many. Row i is node offsets[1] + i."""
    first = offsets[1]
    size = offsets[-1] - first
    kept = np.empty((size, k), np.int64)
    counts = np.zeros(size, np.int64)
    for level in range(1, offsets.size - 1):
        below, here = offsets[level - 1], offsets[level]
        width = here - below
        for node in range(offsets[level + 1] - here):
            row = here + node - first
            count = 0
            for child in range(node * FAN, min(node * FAN + FAN, width)):
                if level == 1:
                    count = _insert(words, kept[row], count, child, k, unique)
                else:
                    source = below + child - first
                    for i in range(counts[source]):
                        count = _insert(words, kept[row], count, kept[source, i], k, unique)
            counts[row] = count
    return kept, counts


@njit(cache=True, nogil=True)
def _query(
    words: Any, kept: Any, counts: Any, offsets: Any, start: Any, end: Any, k: Any, unique: Any
) -> Any:
    first = offsets[1]
    out = np.empty((start.size, k), np.int64)
    found = np.zeros(start.size, np.int64)
    for q in range(start.size):
        a, b, level = start[q], end[q], 0
        count = 0
        while a < b:
            base = offsets[level]
            while a < b and (a % FAN or b % FAN):
                if a % FAN:
                    node = a
                    a += 1
                else:
                    b -= 1
                    node = b
                if level == 0:
                    count = _insert(words, out[q], count, node, k, unique)
                else:
                    row = base + node - first
                    for i in range(counts[row]):
                        count = _insert(words, out[q], count, kept[row, i], k, unique)
            a //= FAN
            b //= FAN
            level += 1
        found[q] = count
    return out, found


def range_top(
    words: np.ndarray, start: np.ndarray, end: np.ndarray, k: int, *, unique: bool
) -> tuple[np.ndarray, np.ndarray]:
    """For each [start, end) the positions of its k largest words, largest first.

    Returns all positions one after another, and how many belong to each range.
    """
    offsets = level_offsets(words.size)
    if offsets.size < 3:
        offsets = np.append(offsets, offsets[-1])  # at most one value: no nodes above it
    k = max(1, min(k, words.size))
    kept, counts = _tree(words, offsets, k, unique)
    out, found = _query(words, kept, counts, offsets, start, end, k, unique)
    mask = np.arange(k) < found[:, None]
    return out[mask], found
