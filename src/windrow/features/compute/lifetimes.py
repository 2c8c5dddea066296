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

from windrow.merging import group_ids, sort_words
from windrow.rows.hashing import hash_rows
from windrow.rows.ordering import LOWEST

ALWAYS = LOWEST + 1  # born before every query: a row of a log, known as soon as it happened
NEVER = 2**62  # has not died


@dataclass(frozen=True)
class Lifetimes:
    """`rows[i]` is an update whose row lives from `born[i]` to `died[i]` (int64 ms).

    It counts for queries `q` with `born < q <= died`: a change is seen strictly after it.
    `missing` are updates that retract a row that is not there, with how many copies.
    """

    rows: np.ndarray
    born: np.ndarray
    died: np.ndarray
    missing: np.ndarray


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
    some = _matched(columns, known_at, diffs, snapshots, touched)
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
    near: np.ndarray,
) -> Lifetimes:
    """The same for updates of which those of equal rows are adjacent, under one number.

    Every update keeps its place, if each stands for one row at most (`rows` is then all of them
    in order); one that has no row of its own never lives.
    """
    if diffs.max(initial=0) > 1:
        return lifetimes(columns, known_at, diffs, snapshots)
    touched = _beside(near, diffs)
    some = _matched(columns, known_at, diffs, snapshots, touched)
    own = np.zeros(diffs.size, np.bool_)
    own[some.rows] = True
    if np.count_nonzero(own) < some.rows.size:
        return lifetimes(columns, known_at, diffs, snapshots)
    born, died = np.where(touched, NEVER, known_at), np.where(touched, LOWEST, NEVER)
    born[some.rows], died[some.rows] = some.born, some.died
    return Lifetimes(np.arange(diffs.size), born, died, some.missing)


def _matched(
    columns: Sequence[pa.Array],
    known_at: np.ndarray,
    diffs: np.ndarray,
    snapshots: Sequence[int],
    touched: np.ndarray,
) -> Lifetimes:
    some = np.flatnonzero(touched)
    columns = [column.take(pa.array(some)) for column in columns]
    ids = group_ids(hash_rows(columns)[None, :], columns)
    order = sort_words(np.vstack([ids, known_at[some]]))
    known = np.array(sorted(snapshots), np.int64)
    rows, born, died, missing = _match(ids, known_at[some], diffs[some], order, known)
    return Lifetimes(some[rows], born, died, some[missing])


@njit(cache=True, nogil=True)
def _beside(near: Any, diffs: Any) -> Any:
    """Which updates share their number with a retraction."""
    touched = np.zeros(near.size, np.bool_)
    p = 0
    while p < near.size:
        start = p
        retracted = False
        while p < near.size and near[p] == near[start]:
            retracted |= diffs[p] < 0
            p += 1
        if retracted:
            touched[start:p] = True
    return touched


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
