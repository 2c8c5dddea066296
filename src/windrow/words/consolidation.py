"""Consolidating updates: equal rows become one, whose diff is the sum of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.errors import DataError
from windrow.words.groups import exact_groups, group_rows
from windrow.words.sorting import sorted_order


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
    groups, count = exact_groups(words, order, columns)
    rows, sums, overflow = _sum_groups(order, groups, diffs, count)
    if overflow:
        raise DataError("the multiplicity of a row exceeds 64 bits; check the _diff column")
    return Consolidated(rows, sums)


def consolidate_words(
    words: np.ndarray, diffs: np.ndarray, columns: Sequence[pa.Array]
) -> Consolidated:
    """The same for rows in any order: sorted by their words."""
    order, distinct = sorted_order(words)
    if distinct and diffs.all():
        same = diffs.min(initial=1) == diffs.max(initial=1)
        return Consolidated(order, diffs if same else _reordered(diffs, order))
    return consolidate_sorted(words, order, diffs, columns)


def _reordered(diffs: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`diffs[order]`. They are nearly always small, and as bytes more of them fit into a cache."""
    small = diffs.astype(np.int8)
    fits = np.array_equal(small, diffs)
    found: np.ndarray = small[order].astype(np.int64) if fits else diffs[order]
    return found


@njit(cache=True, nogil=True)
def _sum_within_bounds(groups: Any, leaders: Any, diffs: Any) -> Any:
    """For each group its first row and the sum of its diffs, without zeros.

    A sum that would leave 64 bits is closed, and the group continues under the current row.
    """
    count = leaders.size
    current = np.arange(count)  # the sum that each group adds to now
    sums = np.zeros(count, np.int64)
    rows = leaders.copy()
    for i in range(groups.size):
        place = current[groups[i]]
        total = sums[place] + diffs[i]
        if ((sums[place] ^ total) & (diffs[i] ^ total)) < 0:
            current[groups[i]] = sums.size
            sums = np.append(sums, diffs[i])
            rows = np.append(rows, i)
        else:
            sums[place] = total
    kept = np.flatnonzero(sums != 0)
    return rows[kept], sums[kept]


def consolidate_unsorted(
    words: np.ndarray, diffs: np.ndarray, columns: Sequence[pa.Array]
) -> Consolidated:
    """As `consolidate_sorted`, for rows in any order; the result is in order of first appearance.

    A row whose multiplicity exceeds 64 bits appears several times: these may be different rows
    before a projection made them equal, each with a multiplicity that is in order.
    """
    groups, leaders = group_rows(words, columns)
    rows, sums = _sum_within_bounds(groups, leaders, diffs)
    order = np.argsort(rows) if (np.diff(rows) < 0).any() else slice(None)
    return Consolidated(rows[order], sums[order])
