"""Aggregates over ranges, from a tree of partial results.

Level 0 is the values; each node above combines sixteen below. A range is a few whole nodes and a
few values at either end, so a query costs O(log n), whatever the windows, and nothing is ever
subtracted: what lies outside a range cannot leave a trace in it.

Trees are flat arrays: level l starts at `offsets[l]`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

FAN = 16


def level_offsets(n: int) -> np.ndarray:
    """Where each level starts, and last the total size; level 0 has n nodes."""
    sizes = [n]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // FAN))
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@njit(inline="always")
def add_dd(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    """Sum of two double-doubles: about 106 bits; infinities and NaN as float64 has them."""
    total = high + other_high
    if not math.isfinite(total):
        return total, 0.0
    virtual = total - high
    error = (high - (total - virtual)) + (other_high - virtual)
    error += low + other_low
    result = total + error
    return result, error - (result - total)


@njit(cache=True, nogil=True)
def _sum_tree(values: Any, offsets: Any) -> Any:
    size = offsets[-1]
    high, low = np.zeros(size, np.float64), np.zeros(size, np.float64)
    high[: values.size] = values
    for level in range(1, offsets.size - 1):
        below, here = offsets[level - 1], offsets[level]
        width = here - below
        for node in range(offsets[level + 1] - here):
            h, e = 0.0, 0.0
            for child in range(node * FAN, min(node * FAN + FAN, width)):
                h, e = add_dd(h, e, high[below + child], low[below + child])
            high[here + node], low[here + node] = h, e
    return high, low


@njit(cache=True, nogil=True)
def _range_sums(high: Any, low: Any, offsets: Any, start: Any, end: Any) -> Any:
    sums, errors = np.empty(start.size, np.float64), np.empty(start.size, np.float64)
    for q in range(start.size):
        a, b, level = start[q], end[q], 0
        h, e = 0.0, 0.0
        while a < b:
            base = offsets[level]
            while a < b and a % FAN:
                h, e = add_dd(h, e, high[base + a], low[base + a])
                a += 1
            while a < b and b % FAN:
                b -= 1
                h, e = add_dd(h, e, high[base + b], low[base + b])
            a //= FAN
            b //= FAN
            level += 1
        sums[q], errors[q] = h, e
    return sums, errors


def range_sum_pairs(
    values: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of float64 `values` over each [start, end), as double-doubles."""
    offsets = level_offsets(values.size)
    high, low = _sum_tree(values, offsets)
    sums, errors = _range_sums(high, low, offsets, start, end)
    return sums, errors


def range_sums(values: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Sums of float64 `values` over each [start, end)."""
    sums, errors = range_sum_pairs(values, start, end)
    rounded: np.ndarray = sums + errors
    return rounded


@njit(cache=True, nogil=True)
def add_pairs(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    """The sums of double-doubles, rounded to float64."""
    out = np.empty(high.size, np.float64)
    for i in range(high.size):
        total, error = add_dd(high[i], low[i], other_high[i], other_low[i])
        out[i] = total + error
    return out


@njit(cache=True, nogil=True)
def _best_tree(words: Any, offsets: Any, largest: Any) -> Any:
    """In each node the position of its smallest (or largest) word."""
    best = np.empty(offsets[-1], np.int64)
    for i in range(words.size):
        best[i] = i
    for level in range(1, offsets.size - 1):
        below, here = offsets[level - 1], offsets[level]
        width = here - below
        for node in range(offsets[level + 1] - here):
            found = best[below + node * FAN]
            for child in range(node * FAN + 1, min(node * FAN + FAN, width)):
                other = best[below + child]
                if largest:
                    if words[other] > words[found]:
                        found = other
                elif words[other] < words[found]:
                    found = other
            best[here + node] = found
    return best


@njit(cache=True, nogil=True)
def _range_best(words: Any, best: Any, offsets: Any, start: Any, end: Any, largest: Any) -> Any:
    out = np.full(start.size, -1, np.int64)
    for q in range(start.size):
        a, b, level = start[q], end[q], 0
        found = np.int64(-1)
        while a < b:
            base = offsets[level]
            while a < b and a % FAN:
                other = best[base + a]
                if found < 0 or (
                    words[other] > words[found] if largest else words[other] < words[found]
                ):
                    found = other
                a += 1
            while a < b and b % FAN:
                b -= 1
                other = best[base + b]
                if found < 0 or (
                    words[other] > words[found] if largest else words[other] < words[found]
                ):
                    found = other
            a //= FAN
            b //= FAN
            level += 1
        out[q] = found
    return out


def range_best(
    words: np.ndarray, start: np.ndarray, end: np.ndarray, *, largest: bool
) -> np.ndarray:
    """The position of the smallest or largest word in each [start, end); -1 for none."""
    offsets = level_offsets(words.size)
    best = _best_tree(words, offsets, largest)
    found: np.ndarray = _range_best(words, best, offsets, start, end, largest)
    return found


@njit(inline="always")
def add_moments(
    n: Any, m1: Any, m2: Any, m3: Any, m4: Any, on: Any, o1: Any, o2: Any, o3: Any, o4: Any
) -> Any:
    """Count, mean and central moments of two sets together."""
    if n == 0.0:
        return on, o1, o2, o3, o4
    if on == 0.0:
        return n, m1, m2, m3, m4
    total = n + on
    delta = o1 - m1
    step = delta / total
    mean = m1 + step * on
    product = n * on
    second = m2 + o2 + delta * step * product
    third = m3 + o3 + delta * step * step * product * (n - on) + 3.0 * step * (n * o2 - on * m2)
    fourth = (
        m4
        + o4
        + delta * step * step * step * product * (n * n - product + on * on)
        + 6.0 * step * step * (n * n * o2 + on * on * m2)
        + 4.0 * step * (n * o3 - on * m3)
    )
    return total, mean, second, third, fourth


@njit(cache=True, nogil=True)
def _moment_tree(values: Any, offsets: Any) -> Any:
    tree = np.zeros((offsets[-1], 5), np.float64)
    for i in range(values.size):
        tree[i, 0] = 1.0
        tree[i, 1] = values[i]
        if not math.isfinite(values[i]):
            tree[i, 2] = tree[i, 3] = tree[i, 4] = np.nan  # no deviation from such a mean
    for level in range(1, offsets.size - 1):
        below, here = offsets[level - 1], offsets[level]
        width = here - below
        for node in range(offsets[level + 1] - here):
            n, m1, m2, m3, m4 = 0.0, 0.0, 0.0, 0.0, 0.0
            for child in range(node * FAN, min(node * FAN + FAN, width)):
                c = tree[below + child]
                n, m1, m2, m3, m4 = add_moments(n, m1, m2, m3, m4, c[0], c[1], c[2], c[3], c[4])
            tree[here + node, 0] = n
            tree[here + node, 1] = m1
            tree[here + node, 2] = m2
            tree[here + node, 3] = m3
            tree[here + node, 4] = m4
    return tree


@njit(cache=True, nogil=True)
def _range_moments(tree: Any, offsets: Any, start: Any, end: Any) -> Any:
    out = np.zeros((start.size, 5), np.float64)
    for q in range(start.size):
        a, b, level = start[q], end[q], 0
        n, m1, m2, m3, m4 = 0.0, 0.0, 0.0, 0.0, 0.0
        while a < b:
            base = offsets[level]
            while a < b and a % FAN:
                c = tree[base + a]
                n, m1, m2, m3, m4 = add_moments(n, m1, m2, m3, m4, c[0], c[1], c[2], c[3], c[4])
                a += 1
            while a < b and b % FAN:
                b -= 1
                c = tree[base + b]
                n, m1, m2, m3, m4 = add_moments(n, m1, m2, m3, m4, c[0], c[1], c[2], c[3], c[4])
            a //= FAN
            b //= FAN
            level += 1
        out[q, 0], out[q, 1], out[q, 2], out[q, 3], out[q, 4] = n, m1, m2, m3, m4
    return out


def range_moments(values: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For each [start, end): count, mean, and sums of powers 2 to 4 of the deviations."""
    offsets = level_offsets(values.size)
    moments: np.ndarray = _range_moments(_moment_tree(values, offsets), offsets, start, end)
    return moments
