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

_LONGEST_TIE = 4_096  # rows with one first word that are sorted by comparing them
_SPARE_BITS = 3  # of a packed word, beyond those that number all rows


@njit(inline="always")
def _less(words: Any, a: Any, b: Any, known: Any = 0) -> Any:
    """Whether row a comes before row b, of which the first `known` words are equal."""
    for w in range(known, words.shape[0]):
        x, y = words[w, a], words[w, b]
        if x != y:
            return x < y
    return False


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
            take_right = _less(words, rows[j], rows[i])
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


@njit(inline="always")
def _insertion_sort(words: Any, rows: Any, low: Any, high: Any) -> None:
    for i in range(low + 1, high):
        row = rows[i]
        j = i
        while j > low and _less(words, row, rows[j - 1]):
            rows[j] = rows[j - 1]
            j -= 1
        rows[j] = row


@njit(cache=True, nogil=True)
def _merge_sort(words: Any, rows: Any, start: Any, end: Any, scratch: Any) -> None:
    """Sort rows[start:end] by words: blocks of eight, then merges of them."""
    width = 8
    for low in range(start, end, width):
        _insertion_sort(words, rows, low, min(low + width, end))
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            scratch[: middle - low] = rows[low:middle]
            i, j, k = 0, middle, low
            while i < middle - low and j < high:
                if _less(words, rows[j], scratch[i]):
                    rows[k] = rows[j]
                    j += 1
                else:
                    rows[k] = scratch[i]
                    i += 1
                k += 1
            rows[k : k + middle - low - i] = scratch[i : middle - low]
        width *= 2


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


@njit(cache=True, nogil=True)
def _pack(words: Any, low: Any, lowest: Any, shift: Any, bits: Any) -> Any:
    packed = np.empty(words.shape[1], np.uint64)
    for i in range(packed.size):
        top = (np.uint64(words[0, i]) - np.uint64(low)) >> np.uint64(shift)
        packed[i] = (top << np.uint64(bits)) | (np.uint64(words[1, i]) - np.uint64(lowest))
    return packed


@dataclass(frozen=True)
class _Packing:
    """One word of two: the leading bits of the first, and all `bits` of the second."""

    low: int
    lowest: int
    shift: int  # bits of the first word that are left out
    bits: int

    @staticmethod
    def of(words: np.ndarray, low: int, high: int) -> _Packing | None:
        """None if so little of the first words, which lie in [low, high], is left that many of
        them would look alike."""
        if words.shape[0] < 2:
            return None
        lowest = int(words[1].min())
        bits = (int(words[1].max()) - lowest).bit_length()
        if bits + words.shape[1].bit_length() + _SPARE_BITS > 64:
            return None
        return _Packing(low, lowest, max((high - low).bit_length() + bits - 64, 0), bits)

    def pack(self, words: np.ndarray) -> np.ndarray:
        packed: np.ndarray = _pack(words, self.low, self.lowest, self.shift, self.bits)
        return packed

    def repair(self, words: np.ndarray, order: np.ndarray, packed: np.ndarray) -> int:
        """Sort rows of the same leading bits whose first words differ; `packed` is in order.

        Returns how many words are equal wherever `packed` is.
        """
        if self.shift and _sort_mixed(words, order, packed, self.bits):
            return 0
        return 2


@njit(cache=True, nogil=True)
def _sort_mixed(words: Any, order: Any, packed: Any, bits: Any) -> Any:
    scratch = np.empty(0, np.int64)
    any_mixed = False
    n, start = order.size, 0
    while start < n:
        top, first = packed[start] >> np.uint64(bits), words[0, order[start]]
        end, mixed = start + 1, False
        while end < n and packed[end] >> np.uint64(bits) == top:
            mixed |= words[0, order[end]] != first
            end += 1
        if mixed:
            if scratch.size < end - start:
                scratch = np.empty(2 * (end - start), np.int64)
            order[start:end] = np.sort(order[start:end])  # rows with equal words keep their order
            _merge_sort(words, order, start, end, scratch)
            packed[start:end] = packed[start]  # what follows has to look at them again
            any_mixed = True
        start = end
    return any_mixed


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
    packing = _Packing.of(words, low, high)
    if packing is None:
        order = _merge_segments(words, bounds)
        return order
    order, packed = _merge_packed(packing.pack(words), bounds)
    known = packing.repair(words, order, packed)
    if words.shape[0] > 2:
        _sort_ties(words, order, packed, order.size, known)
    return order


@njit(cache=True, nogil=True)
def _tied_rows(order: Any, keys: Any) -> Any:
    """The rows whose keys are equal to a neighbour's, in order."""
    n = order.size
    rows = np.empty(n, np.int64)
    count = 0
    before = False
    for p in range(n):
        after = p + 1 < n and keys[p + 1] == keys[p]
        rows[count] = order[p]
        count += before | after
        before = after
    return rows[:count]


@njit(cache=True, nogil=True)
def _sort_ties(words: Any, order: Any, keys: Any, longest: Any, known: Any) -> Any:
    """`order` sorts `keys`, which decide before `words` do; sort stretches of equal keys.

    Where keys are equal, so are the first `known` words: these need not be fetched.
    Those longer than `longest` are left as they are, and returned: pairs of start and end. And
    whether all rows have different words.
    """
    n = order.size
    left = np.empty((n // (longest + 1) + 1, 2), np.int64)
    count = 0
    distinct = True
    scratch = np.empty(0, np.int64)
    # The next words, of all ties at once: one after the other, each would be waited for.
    rows = _tied_rows(order, keys)
    following = np.zeros(rows.size, np.int64)
    if known < words.shape[0]:
        for i in range(rows.size):
            following[i] = words[known, rows[i]]
    start = at = 0
    while start + 1 < n:
        if keys[start + 1] != keys[start]:
            start += 1
            continue
        end = start + 2
        while end < n and keys[end] == keys[start]:
            end += 1
        if end - start > longest:
            distinct = False  # as far as is known
            if words[0, order[start]] == words[0, order[end - 1]]:  # else they are sorted
                left[count, 0], left[count, 1] = start, end
                count += 1
        elif end - start <= 16:
            for i in range(1, end - start):
                row, word = order[start + i], following[at + i]
                j = i
                while j and (
                    word < following[at + j - 1]
                    or (
                        word == following[at + j - 1]
                        and _less(words, row, order[start + j - 1], known + 1)
                    )
                ):
                    order[start + j], following[at + j] = (
                        order[start + j - 1],
                        following[at + j - 1],
                    )
                    j -= 1
                order[start + j], following[at + j] = row, word
            for i in range(1, end - start if distinct else 0):
                if following[at + i - 1] == following[at + i]:
                    a, b = order[start + i - 1], order[start + i]
                    distinct &= _less(words, a, b, known + 1)
        else:
            if scratch.size < end - start:
                scratch = np.empty(2 * (end - start), np.int64)
            _merge_sort(words, order, start, end, scratch)
            for p in range(start + 1, end if distinct else start):
                distinct &= _less(words, order[p - 1], order[p], known)
        at += end - start
        start = end
    return left[:count], distinct


@njit(cache=True, nogil=True)
def _is_sorted(words: Any) -> Any:
    """Whether rows are in order; and whether, if so, all have different words."""
    distinct = True
    for i in range(1, words.shape[1]):
        if _less(words, i, i - 1):
            return False, False
        distinct = distinct and _less(words, i - 1, i)
    return True, distinct


def sort_words(words: np.ndarray) -> np.ndarray:
    """The permutation that sorts `words`."""
    return _sorted(words)[0]


def _sorted(words: np.ndarray) -> tuple[np.ndarray, bool]:
    """The permutation that sorts `words`; and whether all rows are known to have different ones."""
    done, distinct = _is_sorted(words)
    if done:
        return np.arange(words.shape[1]), distinct
    packing = _Packing.of(words, int(words[0].min()), int(words[0].max()))
    keys = words[0] if packing is None else packing.pack(words)
    order: np.ndarray = np.argsort(keys)
    keys = keys[order]
    known = 1 if packing is None else packing.repair(words, order, keys)
    left, distinct = _sort_ties(words, order, keys, _LONGEST_TIE, known)
    # Many rows with one first word, such as those of a hot key: NumPy sorts them by the next.
    for start, end in left.tolist():
        rows = order[start:end]
        order[start:end] = rows[sort_words(words[1:, rows])]
    return order, distinct


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
    groups, count = _exact_groups(words, order, columns)
    rows, sums, overflow = _sum_groups(order, groups, diffs, count)
    if overflow:
        raise DataError("the multiplicity of a row exceeds 64 bits; check the _diff column")
    return Consolidated(rows, sums)


def consolidate_words(
    words: np.ndarray, diffs: np.ndarray, columns: Sequence[pa.Array]
) -> Consolidated:
    """The same for rows in any order: sorted by their words."""
    order, distinct = _sorted(words)
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


def group_ids(words: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
    """A number for each row: equal exactly for rows with equal words and equal values.

    Numbers ascend with the words.
    """
    order = sort_words(words)
    groups, _ = _exact_groups(words, order, columns)
    ids = np.empty(order.size, np.int64)
    ids[order] = groups
    return ids


def _exact_groups(
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
