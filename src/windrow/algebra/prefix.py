"""Counts and exact sums over ranges, as differences of prefix sums.

Integers are summed in 128 bits and decimals in 192, so that prefixes cannot overflow; only a
result that does not fit its type is an error. Floats are never summed this way: what has left a
window would leave its rounding error behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# 10**38, the first unscaled value that DECIMAL(38, s) cannot hold, as high and low half.
_LIMIT_HIGH = np.int64(10**38 >> 64)
_LIMIT_LOW = np.uint64(10**38 & (2**64 - 1))


@njit(cache=True, nogil=True)
def prefix_128(values: Any) -> Any:
    """Prefix sums of int64 values, as low (uint64) and high (int64) halves of length n + 1."""
    n = values.size
    low, high = np.zeros(n + 1, np.uint64), np.zeros(n + 1, np.int64)
    for i in range(n):
        value = values[i]
        low[i + 1] = low[i] + np.uint64(value)
        carry = np.int64(low[i + 1] < low[i])
        high[i + 1] = high[i] + (value >> 63) + carry
    return low, high


@njit(cache=True, nogil=True)
def range_sums_64(low: Any, high: Any, start: Any, end: Any) -> Any:
    """Sums over [start, end) as int64, and the first range whose sum does not fit (or -1)."""
    out = np.empty(start.size, np.int64)
    overflow = -1
    for q in range(start.size):
        a, b = start[q], end[q]
        total = low[b] - low[a]
        top = high[b] - high[a] - np.int64(low[b] < low[a])
        out[q] = np.int64(total)
        if top != (out[q] >> 63) and overflow < 0:
            overflow = q
    return out, overflow


@njit(cache=True, nogil=True)
def range_sums_128(low: Any, high: Any, start: Any, end: Any) -> Any:
    """Sums over [start, end), as low and high halves."""
    lows, highs = np.empty(start.size, np.uint64), np.empty(start.size, np.int64)
    for q in range(start.size):
        a, b = start[q], end[q]
        lows[q] = low[b] - low[a]
        highs[q] = high[b] - high[a] - np.int64(low[b] < low[a])
    return lows, highs


def add_128(
    low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of 128-bit numbers, each as low (uint64) and high (int64) halves."""
    total = low + other_low
    return total, high + other_high + (total < low)


@njit(cache=True, nogil=True)
def range_sums_float(low: Any, high: Any, start: Any, end: Any) -> Any:
    """Sums over [start, end), rounded to float64."""
    out = np.empty(start.size, np.float64)
    for q in range(start.size):
        a, b = start[q], end[q]
        total = low[b] - low[a]
        top = high[b] - high[a] - np.int64(low[b] < low[a])
        if top == (np.int64(total) >> 63):
            out[q] = np.float64(np.int64(total))
        else:
            out[q] = np.float64(top) * 18446744073709551616.0 + np.float64(total)
    return out


@njit(cache=True, nogil=True)
def prefix_192(halves: Any) -> Any:
    """Prefix sums of 128-bit values, given as (n, 2) uint64 (low, high); three words each."""
    n = halves.shape[0]
    out = np.zeros((n + 1, 3), np.uint64)
    for i in range(n):
        low, high = halves[i, 0], halves[i, 1]
        sign = np.uint64(np.int64(high) >> 63)
        first = out[i, 0] + low
        carry = np.uint64(first < low)
        second = out[i, 1] + high
        carry_up = np.uint64(second < high)
        second += carry
        carry_up += np.uint64(second < carry)
        out[i + 1, 0] = first
        out[i + 1, 1] = second
        out[i + 1, 2] = out[i, 2] + sign + carry_up
    return out


@njit(cache=True, nogil=True)
def range_sums_decimal(prefix: Any, start: Any, end: Any) -> Any:
    """Sums over [start, end) as (q, 2) uint64, and the first that exceeds 38 digits (or -1)."""
    out = np.empty((start.size, 2), np.uint64)
    overflow = -1
    for q in range(start.size):
        a, b = start[q], end[q]
        first = prefix[b, 0] - prefix[a, 0]
        borrow = np.uint64(prefix[b, 0] < prefix[a, 0])
        second = prefix[b, 1] - prefix[a, 1]
        borrow_up = np.uint64(prefix[b, 1] < prefix[a, 1])
        borrow_up += np.uint64(second < borrow)
        second -= borrow
        third = prefix[b, 2] - prefix[a, 2] - borrow_up
        out[q, 0], out[q, 1] = first, second
        # The magnitude, to compare with 10**38.
        low, high = first, second
        if np.int64(second) < 0:
            low = ~first + np.uint64(1)
            high = ~second + np.uint64(low == 0)
        fits = np.int64(third) == (np.int64(second) >> 63) and np.int64(high) >= 0
        if fits:
            top = np.int64(high)
            fits = top < _LIMIT_HIGH or (top == _LIMIT_HIGH and low < _LIMIT_LOW)
        if not fits and overflow < 0:
            overflow = q
    return out, overflow


@njit(cache=True, nogil=True)
def carry_differences(values: Any, first: Any, last: Any, queries: Any) -> Any:
    """For each query the sum of the int64 values whose [first, last) holds it, in 128 bits.

    Values are added where their span starts and subtracted where it ends; sums run along.
    """
    low, high = np.zeros(queries + 1, np.uint64), np.zeros(queries + 1, np.int64)
    for e in range(values.size):
        value = values[e]
        word, top = np.uint64(value), value >> 63
        a, b = first[e], last[e]
        low[a] += word
        high[a] += top + np.int64(low[a] < word)
        borrow = np.int64(low[b] < word)
        low[b] -= word
        high[b] -= top + borrow
    for q in range(1, queries):
        before = low[q - 1]
        low[q] += before
        high[q] += high[q - 1] + np.int64(low[q] < before)
    return low[:queries], high[:queries]


def fits_64(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether 128-bit sums are int64 values."""
    fits: np.ndarray = high == (low.view(np.int64) >> 63)
    return fits
