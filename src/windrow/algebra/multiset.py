"""Counts of values over ranges that move forward: histograms and unique counts.

Along the queries of one key, windows only move forward, so a multiset of the window's values is
kept by adding what enters and removing what leaves: O(events + queries) per window.

Values are codes 0 .. m - 1 in the order of the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def range_distinct(codes: Any, size: Any, start: Any, end: Any) -> Any:
    """How many distinct codes lie in each [start, end).

    Cheap where the ranges move forward; where one starts over, the counts are cleared by removing
    what is in them.
    """
    counts = np.zeros(size, np.int64)
    out = np.empty(start.size, np.int64)
    low = high = distinct = 0
    for q in range(start.size):
        a, b = start[q], end[q]
        if a >= high or b < high or a < low:
            for i in range(low, high):
                counts[codes[i]] = 0
            distinct = 0
            low = high = a
        while high < b:
            code = codes[high]
            distinct += counts[code] == 0
            counts[code] += 1
            high += 1
        while low < a:
            code = codes[low]
            counts[code] -= 1
            distinct -= counts[code] == 0
            low += 1
        out[q] = distinct
    return out


@njit(cache=True, nogil=True)
def range_histograms(codes: Any, size: Any, start: Any, end: Any, k: Any) -> Any:
    """The codes in each [start, end) with their counts; only the k most frequent if k > 0.

    Returns codes and counts of all ranges one after another, and how many belong to each. Codes
    of a range are ascending; with k, the most frequent first and of equal counts the smaller code.
    """
    counts = np.zeros(size, np.int64)
    place = np.full(size, -1, np.int64)  # where a present code stands in `present`
    present = np.empty(size, np.int64)
    distinct = 0
    out_codes = np.empty(1024, np.int64)
    out_counts = np.empty(1024, np.int64)
    lengths = np.zeros(start.size, np.int64)
    used = low = high = 0
    for q in range(start.size):
        a, b = start[q], end[q]
        if a >= high or b < high or a < low:
            for i in range(distinct):
                counts[present[i]] = 0
                place[present[i]] = -1
            distinct = 0
            low = high = a
        while high < b:
            code = codes[high]
            if counts[code] == 0:
                place[code] = distinct
                present[distinct] = code
                distinct += 1
            counts[code] += 1
            high += 1
        while low < a:
            code = codes[low]
            counts[code] -= 1
            if counts[code] == 0:
                distinct -= 1
                moved = present[distinct]
                present[place[code]] = moved
                place[moved] = place[code]
                place[code] = -1
            low += 1
        found = np.sort(present[:distinct])
        if k > 0:
            # Stable: of equal counts the smaller code stays first.
            order = np.argsort(-counts[found], kind="mergesort")
            found = found[order][:k]
        while used + found.size > out_codes.size:
            out_codes = np.concatenate((out_codes, np.empty_like(out_codes)))
            out_counts = np.concatenate((out_counts, np.empty_like(out_counts)))
        for code in found:
            out_codes[used] = code
            out_counts[used] = counts[code]
            used += 1
        lengths[q] = found.size
    return out_codes[:used], out_counts[:used], lengths
