"""Rows of a changing table as lifetimes: when each appeared, and when it disappeared.

Updates say that at a moment some copies of a row came or went. Matching what went with what came
gives rows that live in `[born, died)`, and updates that take away what was never there.
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
    """`rows[i]` is an update whose row lives from `born[i]` to `died[i]` (moments, int64 ms).

    It counts for queries `q` with `born < q <= died`: a change is seen strictly after it.
    `missing` are updates that take away a row that is not there, with how many copies.
    """

    rows: np.ndarray
    born: np.ndarray
    died: np.ndarray
    missing: np.ndarray


def lifetimes(
    columns: Sequence[pa.Array],
    moments: np.ndarray,
    diffs: np.ndarray,
    snapshots: Sequence[int] = (),
) -> Lifetimes:
    """Match updates of equal rows (`columns`, canonical) at `moments`.

    A row taken away that is not there is left as it is: it may have come before all that is
    known. At the moments of `snapshots` the sum of all updates so far is the truth.
    """
    if (diffs == 1).all() and (moments == ALWAYS).all():
        count = diffs.size
        rows = np.arange(count)
        return Lifetimes(rows, moments, np.full(count, NEVER), np.zeros(0, np.int64))
    hashes = hash_rows(columns)
    # Only rows of which something was taken away have to be matched; the others just live.
    touched = _among(hashes, np.unique(hashes[diffs < 0]))
    plain = np.repeat(np.flatnonzero(~touched), diffs[~touched])
    some = np.flatnonzero(touched)
    columns = [column.take(pa.array(some)) for column in columns]
    ids = group_ids(hashes[None, some], columns)
    order = sort_words(np.vstack([ids, moments[some]]))
    known = np.array(sorted(snapshots), np.int64)
    rows, born, died, missing = _match(ids, moments[some], diffs[some], order, known)
    return Lifetimes(
        np.concatenate([plain, some[rows]]),
        np.concatenate([moments[plain], born]),
        np.concatenate([np.full(plain.size, NEVER), died]),
        some[missing],
    )


def _among(hashes: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Which hashes are among `chosen`, which is sorted.

    A table over the last bits rules out nearly all others before they are looked for.
    """
    bits = 4 * max(chosen.size, 64).bit_length() // 3 + 3
    mask = np.int64((1 << min(bits, 26)) - 1)
    table = np.zeros(int(mask) + 1, np.bool_)
    table[chosen & mask] = True
    found: np.ndarray = table[hashes & mask]
    at = np.flatnonzero(found)
    if at.size:
        place = np.minimum(np.searchsorted(chosen, hashes[at]), chosen.size - 1)
        found[at] = chosen[place] == hashes[at]
    return found


@njit(cache=True, nogil=True)
def _match(ids: Any, moments: Any, diffs: Any, order: Any, snapshots: Any) -> Any:
    n = order.size
    size = 0
    for i in range(n):
        size += max(diffs[i], 0)
    rows = np.empty(size, np.int64)
    born, died = np.empty(size, np.int64), np.empty(size, np.int64)
    missing = np.empty(n, np.int64)
    absent = used = p = 0
    while p < n:
        # All updates of one row; its open lives are rows[oldest:used], which came in that order.
        group = ids[order[p]]
        oldest = used
        total = 0
        while p < n and ids[order[p]] == group:
            row, moment = order[p], moments[order[p]]
            net = 0
            while p < n and ids[order[p]] == group and moments[order[p]] == moment:
                net += diffs[order[p]]
                p += 1
            total += net
            at = np.searchsorted(snapshots, moment)
            exact = at < snapshots.size and snapshots[at] == moment
            if exact:
                net = total - (used - oldest)
            while net > 0:
                rows[used], born[used], died[used] = row, moment, NEVER
                used += 1
                net -= 1
            while net < 0 and oldest < used:
                died[oldest] = moment
                oldest += 1
                net += 1
            if net < 0 and not exact:
                missing[absent] = row
                absent += 1
    return rows[:used], born[:used], died[:used], missing[:absent]
