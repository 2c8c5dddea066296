"""Comparing rows by their words, and sorting the few of which the first words are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(inline="always")
def less(words: Any, a: Any, b: Any, known: Any = 0) -> Any:
    """Whether row a comes before row b, of which the first `known` words are equal."""
    for w in range(known, words.shape[0]):
        x, y = words[w, a], words[w, b]
        if x != y:
            return x < y
    return False


@njit(inline="always")
def _insertion_sort(words: Any, rows: Any, low: Any, high: Any) -> None:
    for i in range(low + 1, high):
        row = rows[i]
        j = i
        while j > low and less(words, row, rows[j - 1]):
            rows[j] = rows[j - 1]
            j -= 1
        rows[j] = row


@njit(cache=True, nogil=True)
def merge_sort(words: Any, rows: Any, start: Any, end: Any, scratch: Any) -> None:
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
                if less(words, rows[j], scratch[i]):
                    rows[k] = rows[j]
                    j += 1
                else:
                    rows[k] = scratch[i]
                    i += 1
                k += 1
            rows[k : k + middle - low - i] = scratch[i : middle - low]
        width *= 2


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
def sort_ties(words: Any, order: Any, keys: Any, longest: Any, known: Any) -> Any:
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
                        and less(words, row, order[start + j - 1], known + 1)
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
                    distinct &= less(words, a, b, known + 1)
        else:
            if scratch.size < end - start:
                scratch = np.empty(2 * (end - start), np.int64)
            merge_sort(words, order, start, end, scratch)
            for p in range(start + 1, end if distinct else start):
                distinct &= less(words, order[p - 1], order[p], known)
        at += end - start
        start = end
    return left[:count], distinct
