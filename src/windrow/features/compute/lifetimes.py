"""Rows of a changing table as lifetimes: when each appeared, and when it disappeared.

Updates say that at a time copies of a row appeared or disappeared. Matching the two gives
rows that live in `[born, died)`, and updates that retract what was never there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.rows.equality import equal_pairs
from windrow.rows.hashing import hash_rows
from windrow.rows.ordering import LOWEST
from windrow.words.groups import group_ids
from windrow.words.sorting import sort_words

ALWAYS = LOWEST + 1  # born before every query: a row of a log, known as soon as it happened
NEVER = 2**62  # has not died
_FEW = 64  # updates of one key and time, that are sorted by inserting one after the other


@dataclass(frozen=True)
class Lifetimes:
    """`rows[i]` is an update whose row lives from `born[i]` to `died[i]` (int64 ms).

    It counts for queries `q` with `born < q <= died`: a change is seen strictly after it.
    `missing` are updates that retract a row that is not there, with how many copies. `in_place`:
    `rows` are all updates in order.
    """

    rows: np.ndarray
    born: np.ndarray
    died: np.ndarray
    missing: np.ndarray
    in_place: bool = False


def lifetimes(
    columns: Sequence[pa.Array],
    known_at: np.ndarray,
    diffs: np.ndarray,
    snapshots: Sequence[int] = (),
) -> Lifetimes:
    """Match updates of equal rows (`columns`, canonical), each known at its `known_at`.

    A retraction without a matching row is left as it is: the row may precede all that is
    known. At the times of `snapshots` the sum of all updates so far is the truth.
    """
    # Only rows with a retraction have to be matched; the others just live.
    hashes = hash_rows(columns)
    touched = np.isin(hashes, hashes[diffs < 0])
    plain = np.flatnonzero(~touched)
    plain = np.repeat(plain, diffs[plain])
    some = _matched(columns, known_at, diffs, snapshots, np.flatnonzero(touched))
    return Lifetimes(
        np.concatenate([plain, some.rows]),
        np.concatenate([known_at[plain], some.born]),
        np.concatenate([np.full(plain.size, NEVER), some.died]),
        some.missing,
    )


def lifetimes_in_place(
    columns: Sequence[pa.Array],
    known_at: np.ndarray,
    diffs: np.ndarray,
    snapshots: Sequence[int],
    order: tuple[np.ndarray, np.ndarray],
) -> Lifetimes:
    """The same for updates that are sorted by two words, in both of which equal rows agree.

    Every update keeps its place, if each stands for one row at most (`rows` is then all of them
    in order); one that has no row of its own never lives.
    """
    if diffs.max(initial=0) > 1:
        return lifetimes(columns, known_at, diffs, snapshots)
    touched, near = _beside_retractions(*order, diffs)
    some = _matched(columns, known_at, diffs, snapshots, touched, near)
    born, died, own = _placed(known_at, touched, some.rows, some.born, some.died)
    if not own:
        return lifetimes(columns, known_at, diffs, snapshots)
    return Lifetimes(np.arange(diffs.size), born, died, some.missing, in_place=True)


def _matched(
    columns: Sequence[pa.Array],
    known_at: np.ndarray,
    diffs: np.ndarray,
    snapshots: Sequence[int],
    some: np.ndarray,
    near: np.ndarray | None = None,
) -> Lifetimes:
    """The same for `some` of the updates; with `near`, a number for each of them, equal rows have
    the same number, and updates of one number are adjacent."""
    columns = [column.take(pa.array(some)) for column in columns]
    hashes, times = hash_rows(columns), known_at[some]
    found = None if near is None else _grouped_near(columns, hashes, times, near)
    if found is None:
        ids = group_ids(hashes[None, :], columns)
        order = sort_words(np.vstack([ids, times]))
    else:
        ids, order = found
    known = np.array(sorted(snapshots), np.int64)
    rows, born, died, missing = _match(ids, times, diffs[some], order, known)
    return Lifetimes(some[rows], born, died, some[missing])


def _grouped_near(
    columns: Sequence[pa.Array], hashes: np.ndarray, times: np.ndarray, near: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Numbers of equal rows, and the updates by number and time; of few updates under one number.

    None if they are many, or if rows that differ share a hash: then all have to be sorted.
    """
    ids, order, small = _sorted_near(near, hashes, times)
    if not small:
        return None
    tied = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if not equal_pairs(columns, order[tied], order[tied + 1]).all():
        return None
    return ids, order


@njit(cache=True, nogil=True)
def _sorted_near(near: Any, hashes: Any, times: Any) -> Any:
    """Sort the updates under each number by hash and time, where they stand."""
    n = near.size
    ids, order = np.empty(n, np.int64), np.arange(n)
    p = number = 0
    while p < n:
        start = p
        while p < n and near[p] == near[start]:
            p += 1
        if p - start > _FEW:
            return ids, order, False
        for i in range(start + 1, p):
            j = i
            while j > start and (
                hashes[i] < hashes[order[j - 1]]
                or (hashes[i] == hashes[order[j - 1]] and times[i] < times[order[j - 1]])
            ):
                order[j] = order[j - 1]
                j -= 1
            order[j] = i
        for q in range(start, p):
            if q == start or hashes[order[q]] != hashes[order[q - 1]]:
                number += 1
            ids[order[q]] = number
    return ids, order, True


@njit(cache=True, nogil=True)
def _beside_retractions(major: Any, minor: Any, diffs: Any) -> Any:
    """The updates that agree in both words with a retraction, and a number for each of them.

    Updates are sorted by the words; the numbers are equal where both are.
    """
    n = diffs.size
    touched, near = np.empty(n, np.int64), np.empty(n, np.int64)
    size = p = number = 0
    while p < n:
        start = p
        retracted = diffs[p] < 0
        p += 1
        while p < n and minor[p] == minor[start] and major[p] == major[start]:
            retracted |= diffs[p] < 0
            p += 1
        if retracted:
            for i in range(start, p):
                touched[size], near[size] = i, number
                size += 1
            number += 1
    return touched[:size].copy(), near[:size].copy()


@njit(cache=True, nogil=True)
def _placed(known_at: Any, touched: Any, rows: Any, born: Any, died: Any) -> Any:
    """Lifetimes of all updates: of those `touched`, the ones found for some `rows`, or none.

    And whether each of `rows` occurs once.
    """
    all_born, all_died = known_at.copy(), np.full(known_at.size, NEVER, np.int64)
    for i in touched:
        all_born[i], all_died[i] = NEVER, LOWEST
    own = True
    for i in range(rows.size):
        own &= all_died[rows[i]] == LOWEST
        all_born[rows[i]], all_died[rows[i]] = born[i], died[i]
    return all_born, all_died, own


@njit(cache=True, nogil=True)
def _match(ids: Any, known_at: Any, diffs: Any, order: Any, snapshots: Any) -> Any:
    n = order.size
    size = 0
    for i in range(n):
        size += max(diffs[i], 0)
    rows = np.empty(size, np.int64)
    born, died = np.empty(size, np.int64), np.empty(size, np.int64)
    missing = np.empty(n, np.int64)
    absent = used = p = 0
    while p < n:
        # All updates of one row; its open lives are rows[oldest:used], in the order of birth.
        group = ids[order[p]]
        oldest = used
        total = 0
        while p < n and ids[order[p]] == group:
            row, time = order[p], known_at[order[p]]
            net = 0
            while p < n and ids[order[p]] == group and known_at[order[p]] == time:
                net += diffs[order[p]]
                p += 1
            total += net
            at = np.searchsorted(snapshots, time)
            exact = at < snapshots.size and snapshots[at] == time
            if exact:
                net = total - (used - oldest)
            while net > 0:
                rows[used], born[used], died[used] = row, time, NEVER
                used += 1
                net -= 1
            while net < 0 and oldest < used:
                died[oldest] = time
                oldest += 1
                net += 1
            if net < 0 and not exact:
                missing[absent] = row
                absent += 1
    return rows[:used], born[:used], died[:used], missing[:absent]
