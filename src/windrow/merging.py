"""Sorting, merging and consolidating updates: the compiled core.

Rows are compared by *words*: an int64 array of shape (w, n), one column per row, compared from
the first word to the last. Rows that are equal have equal words; rows with equal words are
nearly always equal, and are compared value by value before they are treated as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.errors import DataError
from windrow.rows.equality import equal_pairs


@njit(inline="always")
def _less(words: Any, a: Any, b: Any) -> Any:
    for w in range(words.shape[0]):
        x, y = words[w, a], words[w, b]
        if x != y:
            return x < y
    return False


@njit(cache=True, nogil=True)
def _merge_into(words: Any, source: Any, target: Any, low: Any, middle: Any, high: Any) -> None:
    """Merge the sorted stretches [low, middle) and [middle, high) of `source`; ties keep order."""
    if middle in (high, low) or not _less(words, source[middle], source[middle - 1]):
        target[low:high] = source[low:high]
        return
    i, j = low, middle
    for k in range(low, high):
        if j >= high or (i < middle and not _less(words, source[j], source[i])):
            target[k] = source[i]
            i += 1
        else:
            target[k] = source[j]
            j += 1


@njit(cache=True, nogil=True)
def _merge_segments(words: Any, bounds: Any) -> Any:
    n = words.shape[1]
    source = np.arange(n)
    target = np.empty(n, np.int64)
    bounds = bounds.copy()
    count = bounds.size - 1
    while count > 1:
        merged = 0
        for s in range(0, count - 1, 2):
            _merge_into(words, source, target, bounds[s], bounds[s + 1], bounds[s + 2])
            bounds[merged + 1] = bounds[s + 2]
            merged += 1
        if count % 2:
            target[bounds[count - 1] : bounds[count]] = source[bounds[count - 1] : bounds[count]]
            bounds[merged + 1] = bounds[count]
            merged += 1
        source, target = target, source
        count = merged
    return source


def merge_segments(words: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """The permutation that sorts `words`, given that they are `lengths` sorted segments."""
    bounds = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
    order: np.ndarray = _merge_segments(words, bounds)
    return order


@njit(cache=True, nogil=True)
def _sort_ties(words: Any, order: Any) -> None:
    """`order` sorts the first word; sort the stretches of equal first words by the rest."""
    n = order.size
    scratch = np.empty(0, np.int64)
    start = 0
    while start < n:
        end = start + 1
        while end < n and words[0, order[end]] == words[0, order[start]]:
            end += 1
        size = end - start
        if size > 1:
            width = min(size, 8)
            for low in range(start, end, width):
                for i in range(low + 1, min(low + width, end)):
                    row = order[i]
                    j = i
                    while j > low and _less(words, row, order[j - 1]):
                        order[j] = order[j - 1]
                        j -= 1
                    order[j] = row
            if size > width:
                if scratch.size < size:
                    scratch = np.empty(max(size, 2 * scratch.size), np.int64)
                while width < size:
                    for low in range(start, end, 2 * width):
                        middle = min(low + width, end)
                        high = min(low + 2 * width, end)
                        scratch[: high - low] = order[low:high]
                        i, j = 0, middle - low
                        for k in range(low, high):
                            if j >= high - low or (
                                i < middle - low and not _less(words, scratch[j], scratch[i])
                            ):
                                order[k] = scratch[i]
                                i += 1
                            else:
                                order[k] = scratch[j]
                                j += 1
                    width *= 2
        start = end


def sort_words(words: np.ndarray) -> np.ndarray:
    """The permutation that sorts `words`."""
    order = np.argsort(words[0])
    _sort_ties(words, order)
    return order


@njit(cache=True, nogil=True)
def _group(words: Any, order: Any) -> Any:
    """Group number of each position of `order`: a new group where the words change."""
    n = order.size
    groups = np.empty(n, np.int64)
    group = 0
    for p in range(n):
        if p > 0 and _less(words, order[p - 1], order[p]):
            group += 1
        groups[p] = group
    return groups


@njit(cache=True, nogil=True)
def _sum_groups(order: Any, groups: Any, diffs: Any, count: Any) -> Any:
    """For each group its first row and the sum of its diffs; sums of zero are left out."""
    first = np.empty(count, np.int64)
    sums = np.zeros(count, np.int64)
    seen = np.zeros(count, np.bool_)
    overflow = False
    for p in range(order.size):
        group = groups[p]
        diff = diffs[order[p]]
        if not seen[group]:
            seen[group] = True
            first[group] = order[p]
            sums[group] = diff
        else:
            total = sums[group] + diff
            if ((sums[group] ^ total) & (diff ^ total)) < 0:
                overflow = True
            sums[group] = total
    kept = 0
    for group in range(count):
        if sums[group] != 0:
            first[kept] = first[group]
            sums[kept] = sums[group]
            kept += 1
    return first[:kept], sums[:kept], overflow


@dataclass(frozen=True)
class Consolidated:
    """`rows[i]` stands for all rows equal to it; `diffs[i]` is their sum, never zero."""

    rows: np.ndarray
    diffs: np.ndarray


def consolidate_sorted(
    words: np.ndarray, order: np.ndarray, diffs: np.ndarray, columns: Sequence[pa.Array]
) -> Consolidated:
    """Sum the diffs of equal rows: those with equal words and equal values in `columns`.

    `order` sorts `words`; the result keeps that order.
    """
    groups = _group(words, order)
    count = int(groups[-1]) + 1 if groups.size else 0
    if count < order.size:
        count = _split_collisions(order, groups, count, columns)
    rows, sums, overflow = _sum_groups(order, groups, diffs, count)
    if overflow:
        raise DataError("the multiplicity of a row exceeds 64 bits; check the _diff column")
    return Consolidated(rows, sums)


def _split_collisions(
    order: np.ndarray, groups: np.ndarray, count: int, columns: Sequence[pa.Array]
) -> int:
    """Give rows that share words but differ in value groups of their own; returns the count."""
    tied = np.flatnonzero(groups[1:] == groups[:-1]) + 1
    same = equal_pairs(columns, order[tied - 1], order[tied])
    if same.all():
        return count
    # Rare. In each mixed group the first row leads; those equal to it stay, the others go on to
    # the next round under a new leader.
    mixed = np.unique(groups[tied[~same]])
    pending = np.flatnonzero(np.isin(groups, mixed))
    while pending.size:
        _, leader_of = np.unique(groups[pending], return_inverse=True)
        leaders = np.full(leader_of.max() + 1, order.size)
        np.minimum.at(leaders, leader_of, pending)
        stays = equal_pairs(columns, order[leaders[leader_of]], order[pending])
        pending = pending[~stays]
        if pending.size:
            fresh, number = np.unique(groups[pending], return_inverse=True)
            groups[pending] = count + number
            count += fresh.size
    _renumber(groups)
    return count


def _renumber(groups: np.ndarray) -> None:
    """Number groups by first appearance, so that sums come out in sorted order."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    groups[:] = rank[inverse]
