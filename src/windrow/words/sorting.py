"""Sorting rows by their words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from windrow.words.comparing import less, sort_ties
from windrow.words.packing import Packing

_LONGEST_TIE = 4_096  # rows with one first word that are sorted by comparing them


@njit(cache=True, nogil=True)
def _is_sorted(words: Any) -> Any:
    """Whether rows are in order; and whether, if so, all have different words."""
    distinct = True
    for i in range(1, words.shape[1]):
        if less(words, i, i - 1):
            return False, False
        distinct = distinct and less(words, i - 1, i)
    return True, distinct


def sort_words(words: np.ndarray) -> np.ndarray:
    """The permutation that sorts `words`."""
    return sorted_order(words)[0]


def sorted_order(words: np.ndarray) -> tuple[np.ndarray, bool]:
    """The permutation that sorts `words`; and whether all rows are known to have different ones."""
    done, distinct = _is_sorted(words)
    if done:
        return np.arange(words.shape[1]), distinct
    packing = Packing.of(words, int(words[0].min()), int(words[0].max()))
    keys = words[0] if packing is None else packing.pack(words)
    order: np.ndarray = np.argsort(keys)
    keys = keys[order]
    known = 1 if packing is None else packing.repair(words, order, keys)
    left, distinct = sort_ties(words, order, keys, _LONGEST_TIE, known)
    # Many rows with one first word, such as those of a hot key: NumPy sorts them by the next.
    for start, end in left.tolist():
        rows = order[start:end]
        order[start:end] = rows[sort_words(words[1:, rows])]
    return order, distinct
