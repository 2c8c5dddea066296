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
    ids = group_ids(hash_rows(columns)[None, :], columns)
    order = sort_words(np.vstack([ids, moments]))
    known = np.array(sorted(snapshots), np.int64)
    rows, born, died, missing = _match(ids, moments, diffs, order, known)
    return Lifetimes(rows, born, died, missing)


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
