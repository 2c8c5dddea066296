"""Variance, skewness and kurtosis from exact sums of powers.

With wide sums S1 .. S4 of the first powers (see `wide`), the central moments times a power
of the count are integers of the same kind, and are computed as such: nothing cancels but what
cancels in truth.

    D2 = n S2 - S1^2                                                  = n^2 var
    D3 = n^2 S3 - 3 n S1 S2 + 2 S1^3                                  skewness = D3 / D2^(3/2)
    D4 = n^3 S4 - 4 n^2 S1 S3 - 3 n^2 S2^2 + 12 n S1^2 S2 - 6 S1^4    kurtosis = D4 / D2^2
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from windrow.algebra.kinds.wide import BIAS, LIMBS, Bytes, _magnitude, _read, _rounded


@njit(cache=True, nogil=True)
def _times(a: Any, b: Any) -> Any:
    """The product of two magnitudes: digits of base 2**32, the lowest first."""
    out = np.zeros(a.size + b.size, np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    for i in range(a.size):
        carry = np.uint64(0)
        for j in range(b.size):
            carry += a[i] * b[j] + out[i + j]
            out[i + j] = carry & mask
            carry >>= np.uint64(32)
        out[i + b.size] = carry
    return out


@njit(cache=True, nogil=True)
def _load(acc: Any, offsets: Any, data: Any, row: Any) -> Any:
    """A wide number as (sign, exponent of its lowest digit, magnitude)."""
    if offsets[row] == offsets[row + 1]:
        return 0, 0, np.zeros(0, np.uint64)
    low, high = _read(acc, data, offsets[row], offsets[row + 1], 1)
    high, sign = _magnitude(acc, low, high)
    digits = np.empty(high - low, np.uint64)
    for i in range(digits.size):
        digits[i] = np.uint64(acc[low + i])
    acc[low : high + 2] = 0
    return sign, low - BIAS, digits


@njit(cache=True, nogil=True)
def _place(acc: Any, factor: Any, exponent: Any, digits: Any, low: Any, high: Any) -> Any:
    """Add `factor` times a magnitude; returns the digits [low, high) touched so far."""
    if factor == 0 or digits.size == 0:
        return low, high
    start = exponent + BIAS
    for i in range(digits.size):
        acc[start + i] += factor * np.int64(digits[i])
    return min(low, start), max(high, start + digits.size)


@njit(cache=True, nogil=True)
def central(
    counts: Any, o1: Any, d1: Any, o2: Any, d2: Any, o3: Any, d3: Any, o4: Any, d4: Any
) -> Any:
    """D2, D3 and D4 of each state as mantissas and exponents, (n, 3) each.

    `o1`, `d1` are offsets and data of S1, and so on; a sum that is not kept has empty numbers,
    and what depends on it is undefined.
    """
    acc = np.zeros(LIMBS, np.int64)
    mantissas = np.zeros((counts.size, 3), np.float64)
    exponents = np.zeros((counts.size, 3), np.int64)
    n = np.empty(2, np.uint64)
    for row in range(counts.size):
        if counts[row] < 1:
            continue
        n[0] = np.uint64(counts[row] & 0xFFFFFFFF)
        n[1] = np.uint64(counts[row] >> 32)
        s1, e1, m1 = _load(acc, o1, d1, row)
        _, e2, m2 = _load(acc, o2, d2, row)
        square = _times(m1, m1)
        low, high = _place(acc, 1, e2, _times(n, m2), LIMBS, 0)
        low, high = _place(acc, -1, 2 * e1, square, low, high)
        if high == 0:
            continue
        mantissas[row, 0], exponents[row, 0] = _rounded(acc, low, high)
        if o3[-1] == 0 and o4[-1] == 0:
            continue
        s3, e3, m3 = _load(acc, o3, d3, row)
        nn = _times(n, n)
        low, high = _place(acc, s3, e3, _times(nn, m3), LIMBS, 0)
        cross = _times(n, _times(m1, m2))
        low, high = _place(acc, -3 * s1, e1 + e2, cross, low, high)
        low, high = _place(acc, 2 * s1, 3 * e1, _times(square, m1), low, high)
        if high:
            mantissas[row, 1], exponents[row, 1] = _rounded(acc, low, high)
        if o4[-1] == 0:
            continue
        s4, e4, m4 = _load(acc, o4, d4, row)
        low, high = _place(acc, s4, e4, _times(_times(nn, n), m4), LIMBS, 0)
        low, high = _place(acc, -4 * s1 * s3, e1 + e3, _times(nn, _times(m1, m3)), low, high)
        low, high = _place(acc, -3, 2 * e2, _times(nn, _times(m2, m2)), low, high)
        low, high = _place(acc, 12, 2 * e1 + e2, _times(n, _times(square, m2)), low, high)
        low, high = _place(acc, -6, 4 * e1, _times(square, square), low, high)
        if high:
            mantissas[row, 2], exponents[row, 2] = _rounded(acc, low, high)
    return mantissas, exponents


@njit(cache=True, nogil=True)
def scaled(values: Any, exponents: Any) -> Any:
    """values * 2**exponents."""
    out = np.empty(values.size, np.float64)
    for i in range(values.size):
        out[i] = math.ldexp(values[i], max(min(exponents[i], 10_000), -10_000))
    return out


@dataclass(frozen=True)
class Central:
    """D2, D3 and D4 of states, as mantissas and exponents, (n, 3) each."""

    counts: np.ndarray
    mantissas: np.ndarray
    exponents: np.ndarray

    @staticmethod
    def of(counts: np.ndarray, sums: Sequence[Bytes]) -> Central:
        """From the counts of finite values and the wide sums of their first powers."""
        nothing = (np.zeros(counts.size + 1, np.int64), np.zeros(0, np.uint8))
        padded = [*sums, *[nothing] * (4 - len(sums))]
        found = central(counts, *(part for column in padded for part in column))
        return Central(counts, *found)

    def _divisor(self, sample: bool) -> np.ndarray:
        n = self.counts.astype(np.float64)
        return n * (n - 1) if sample else n * n

    @property
    def _halved(self) -> tuple[np.ndarray, np.ndarray]:
        """D2 as m * 4**e: its root is that of m times 2**e."""
        m2, e2 = self.mantissas[:, 0], self.exponents[:, 0]
        odd = e2 & 1
        return np.where(odd == 1, 2 * m2, m2), (e2 - odd) // 2

    def variance(self, *, sample: bool) -> np.ndarray:
        """NaN where there is none: of no values, or of one for a sample."""
        with np.errstate(all="ignore"):
            quotient = self.mantissas[:, 0] / self._divisor(sample)
            return np.asarray(scaled(quotient, self.exponents[:, 0]))

    def deviation(self, *, sample: bool) -> np.ndarray:
        m, e = self._halved
        with np.errstate(all="ignore"):
            return np.asarray(scaled(np.sqrt(m / self._divisor(sample)), e))

    def skewness(self) -> np.ndarray:
        """NaN of equal values."""
        m, e = self._halved
        with np.errstate(all="ignore"):
            quotient = self.mantissas[:, 1] / (m * np.sqrt(m))
            return np.asarray(scaled(quotient, self.exponents[:, 1] - 3 * e))

    def kurtosis(self) -> np.ndarray:
        """The excess over that of a normal distribution; NaN of equal values."""
        m2, e2 = self.mantissas[:, 0], self.exponents[:, 0]
        with np.errstate(all="ignore"):
            quotient = self.mantissas[:, 2] / (m2 * m2)
            return np.asarray(scaled(quotient, self.exponents[:, 2] - 2 * e2))
