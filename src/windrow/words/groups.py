"""Groups of equal rows: by their words, and where these are equal, by their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.rows.equality import equal_pairs
from windrow.words.comparing import less
from windrow.words.sorting import sort_words


@njit(cache=True, nogil=True)
def _group(words: Any, order: Any) -> Any:
    """Group number of each position of `order`: a new group where the words change."""
    n = order.size
    groups = np.empty(n, np.int64)
    group = 0
    for p in range(n):
        if p > 0 and less(words, order[p - 1], order[p]):
            group += 1
        groups[p] = group
    return groups


def group_ids(words: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
    """A number for each row: equal exactly for rows with equal words and equal values.

    Numbers ascend with the words.
    """
    order = sort_words(words)
    groups, _ = exact_groups(words, order, columns)
    ids = np.empty(order.size, np.int64)
    ids[order] = groups
    return ids


def exact_groups(
    words: np.ndarray, order: np.ndarray, columns: Sequence[pa.Array]
) -> tuple[np.ndarray, int]:
    """The group of each position of `order`, and how many there are; `order` sorts `words`."""
    groups = _group(words, order)
    count = int(groups[-1]) + 1 if groups.size else 0
    if count < order.size:
        count = _split_collisions(order, groups, count, columns)
    return groups, count


def _split_collisions(
    order: np.ndarray, groups: np.ndarray, count: int, columns: Sequence[pa.Array]
) -> int:
    """Give rows that share words but differ in value groups of their own; returns the count."""
    tied = np.flatnonzero(groups[1:] == groups[:-1]) + 1
    same = equal_pairs(columns, order[tied - 1], order[tied])
    if same.all():
        return count
    # Rare. In each mixed group the first row leads; those equal to it stay, the others proceed to
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
    """Number groups by first appearance, so that sums are in sorted order."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    groups[:] = rank[inverse]


@njit(cache=True, nogil=True)
def _group_by_words(words: Any, slots: Any) -> Any:
    """The group of each row, and the first row of each group: groups are rows with equal words.

    `slots` is a hash table, a power of two long and more than half empty, filled with -1.
    """
    n = words.shape[1]
    mask = np.uint64(slots.size - 1)
    groups = np.empty(n, np.int64)
    leaders = np.empty(n, np.int64)
    count = 0
    for i in range(n):
        mixed = np.uint64(0)
        for w in range(words.shape[0]):
            mixed = (mixed ^ np.uint64(words[w, i])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
        slot = mixed & mask
        while True:
            group = slots[slot]
            if group < 0:
                slots[slot] = count
                leaders[count] = i
                groups[i] = count
                count += 1
                break
            leader = leaders[group]
            same = True
            for w in range(words.shape[0]):
                if words[w, leader] != words[w, i]:
                    same = False
                    break
            if same:
                groups[i] = group
                break
            slot = (slot + np.uint64(1)) & mask
    return groups, leaders[:count].copy()


def group_rows(words: np.ndarray, columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """The group of each row, and the first row of each group, by one pass in any order.

    Groups are rows with equal words and equal values in `columns`.
    """
    rows = np.arange(words.shape[1])
    groups, leaders = _group_by_words(words, _slots(rows.size))
    followers = np.flatnonzero(leaders[groups] != rows)
    same = equal_pairs(columns, leaders[groups[followers]], followers)
    pending = followers[~same]
    while pending.size:  # rare: rows that share their words with a row that differs
        again, firsts = _group_by_words(
            np.ascontiguousarray(words[:, pending]), _slots(pending.size)
        )
        groups[pending] = leaders.size + again
        leaders = np.concatenate([leaders, pending[firsts]])
        pending = pending[~equal_pairs(columns, leaders[groups[pending]], pending)]
    return groups, leaders


def _slots(rows: int) -> np.ndarray:
    return np.full(1 << max(2 * rows, 1).bit_length(), -1, np.int32)
