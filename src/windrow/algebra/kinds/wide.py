"""Exact sums of integers, decimals, and powers of floats, as short strings of bytes.

A float sum that is rounded while it is built depends on the order of its parts, and nothing can
be subtracted from it. A *wide number* is exact: an integer times a power of 256. It takes as many
bytes as the sum needs, adding and subtracting leave no residue, and there is one way to write
each number, so that equal sums are equal bytes:

    zero       no bytes
    otherwise  exponent e (int16, little endian), then digits d (little endian, two's complement,
               no zero byte first, no superfluous sign byte last); the number is d * 256**e

Kernels add into `acc`, int64 digits of base 2**32 with carries left for later: a digit takes
2**30 additions before it has to be carried. Digit `BIAS` stands for 2**0; the digits from 2**-4608
to 2**5632 hold the fourth power of every double, and its sum over every count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

LIMBS = 320
BIAS = 144
BIAS_BYTES = 4 * BIAS
_MASK = np.int64(0xFFFFFFFF)
_CARRY_EVERY = 1 << 29
_ROOM = 4 * LIMBS + 8  # no number needs more bytes

Bytes = tuple[np.ndarray, np.ndarray]  # offsets (n + 1, int64) and data (uint8)


@njit(inline="always")
def _carry(acc: Any, low: Any, high: Any) -> Any:
    """Bring digits [low, high) into [0, 2**32); returns (high, sign).

    The number is then the digits, minus 2**(32 * high) where the sign is -1.
    """
    carry = np.int64(0)
    for i in range(low, high):
        value = acc[i] + carry
        acc[i] = value & _MASK
        carry = value >> 32
    while carry not in (0, -1):
        acc[high] = carry & _MASK
        carry = carry >> 32
        high += 1
    return high, carry


@njit(inline="always")
def _byte(acc: Any, low: Any, high: Any, sign: Any, at: Any) -> Any:
    limb = low + (at >> 2)
    if limb >= high:
        return sign & 0xFF
    return (acc[limb] >> (8 * (at & 3))) & 0xFF


@njit(cache=True, nogil=True)
def _write(acc: Any, low: Any, high: Any, out: Any, used: Any) -> Any:
    """Write the number in digits [low, high) to out[used:] and clear it; returns the new end."""
    high, sign = _carry(acc, low, high)
    end = 4 * (high - low) + 1  # with one byte of sign
    first = 0
    while first < end and _byte(acc, low, high, sign, first) == 0:
        first += 1
    if first < end:
        while (
            end - 1 > first
            and _byte(acc, low, high, sign, end - 1) == (sign & 0xFF)
            and (_byte(acc, low, high, sign, end - 2) >> 7) == (sign & 1)
        ):
            end -= 1
        exponent = 4 * low + first - BIAS_BYTES
        out[used] = exponent & 0xFF
        out[used + 1] = (exponent >> 8) & 0xFF
        used += 2
        for at in range(first, end):
            out[used] = _byte(acc, low, high, sign, at)
            used += 1
    acc[low:high] = 0
    return used


@njit(inline="always")
def _read(acc: Any, data: Any, start: Any, end: Any, sign: Any) -> Any:
    """Add `sign` times the number in data[start:end]; returns the digits [low, high) it touched."""
    exponent = np.int64(data[start]) | (np.int64(data[start + 1]) << 8)
    if exponent >= 1 << 15:
        exponent -= 1 << 16
    place = exponent + BIAS_BYTES
    low = place >> 2
    for at in range(start + 2, end):
        byte = np.int64(data[at])
        if at == end - 1 and byte >= 128:
            byte -= 256
        acc[place >> 2] += sign * (byte << (8 * (place & 3)))
        place += 1
    return low, ((place - 1) >> 2) + 1


@njit(inline="always")
def _grown(out: Any, used: Any) -> Any:
    if used + _ROOM > out.size:
        larger = np.empty(2 * out.size + _ROOM, np.uint8)
        larger[:used] = out[:used]
        return larger
    return out


@njit(cache=True, nogil=True)
def sum_powers(bits: Any, order: Any, starts: Any, power: Any) -> Any:
    """For each group the wide sum of `power`-th powers of finite doubles, given as their bits.

    Values that are not finite are passed over.
    """
    acc = np.zeros(LIMBS, np.int64)
    offsets = np.zeros(starts.size, np.int64)
    out = np.empty(16 * starts.size + _ROOM, np.uint8)
    used = 0
    digits = np.zeros(10, np.uint64)
    for g in range(starts.size - 1):
        low, high, added = LIMBS, 0, 0
        for p in range(starts[g], starts[g + 1]):
            word = bits[order[p]]
            exponent = (word >> 52) & 0x7FF
            mantissa = word & 0xFFFFFFFFFFFFF
            if exponent == 0x7FF or (exponent == 0 and mantissa == 0):
                continue
            if exponent == 0:
                exponent = 1
            else:
                mantissa |= 1 << 52
            first, second = np.uint64(mantissa & _MASK), np.uint64(mantissa >> 32)
            digits[0], digits[1] = first, second
            size = 2
            for _ in range(power - 1):
                # digits *= mantissa, from the top: digit i gives to i, i + 1 and i + 2
                digits[size] = 0
                digits[size + 1] = 0
                for i in range(size - 1, -1, -1):
                    digit = digits[i]
                    product = digit * first
                    upper = digit * second + (product >> np.uint64(32))
                    digits[i] = product & np.uint64(0xFFFFFFFF)
                    carry = digits[i + 1] + (upper & np.uint64(0xFFFFFFFF))
                    digits[i + 1] = carry & np.uint64(0xFFFFFFFF)
                    carry = digits[i + 2] + (upper >> np.uint64(32)) + (carry >> np.uint64(32))
                    digits[i + 2] = carry & np.uint64(0xFFFFFFFF)
                    j = i + 3
                    carry >>= np.uint64(32)
                    while carry:
                        carry += digits[j]
                        digits[j] = carry & np.uint64(0xFFFFFFFF)
                        carry >>= np.uint64(32)
                        j += 1
                size += 2
            place = power * (exponent - 1075) + 32 * BIAS
            limb = place >> 5
            shift = np.uint64(place & 31)
            sign = -1 if word < 0 and power % 2 else 1
            for i in range(size):
                value = digits[i] << shift
                acc[limb + i] += sign * np.int64(value & np.uint64(0xFFFFFFFF))
                acc[limb + i + 1] += sign * np.int64(value >> np.uint64(32))
            low, high = min(low, limb), max(high, limb + size + 1)
            added += 1
            if added % _CARRY_EVERY == 0:
                high, rest = _carry(acc, low, high)
                acc[high] += rest
                high += 1
        if high:
            out = _grown(out, used)
            used = _write(acc, low, high, out, used)
        offsets[g + 1] = used
    return offsets, out[:used].copy()


@njit(cache=True, nogil=True)
def sum_halves(halves: Any, order: Any, starts: Any) -> Any:
    """For each group the wide sum of 128-bit integers, given as (n, 2) uint64 (low, high)."""
    acc = np.zeros(LIMBS, np.int64)
    offsets = np.zeros(starts.size, np.int64)
    out = np.empty(16 * starts.size + _ROOM, np.uint8)
    used = 0
    for g in range(starts.size - 1):
        added = 0
        high = BIAS + 4
        for p in range(starts[g], starts[g + 1]):
            first, second = halves[order[p], 0], np.int64(halves[order[p], 1])
            acc[BIAS] += np.int64(first & np.uint64(0xFFFFFFFF))
            acc[BIAS + 1] += np.int64(first >> np.uint64(32))
            acc[BIAS + 2] += second & _MASK
            acc[BIAS + 3] += second >> 32
            added += 1
            if added % _CARRY_EVERY == 0:
                high, rest = _carry(acc, BIAS, high)
                acc[high] += rest
                high += 1
        if added:
            out = _grown(out, used)
            used = _write(acc, BIAS, high, out, used)
        offsets[g + 1] = used
    return offsets, out[:used].copy()


@njit(cache=True, nogil=True)
def add_wide(source: Any, data: Any, signs: Any, order: Any, starts: Any) -> Any:
    """For each group the sum of its wide numbers, each times its sign (1 or -1)."""
    acc = np.zeros(LIMBS, np.int64)
    offsets = np.zeros(starts.size, np.int64)
    out = np.empty(16 * starts.size + _ROOM, np.uint8)
    used = 0
    for g in range(starts.size - 1):
        low, high, added = LIMBS, 0, 0
        for p in range(starts[g], starts[g + 1]):
            row = order[p]
            if source[row] == source[row + 1]:
                continue
            a, b = _read(acc, data, source[row], source[row + 1], signs[row])
            low, high = min(low, a), max(high, b)
            added += 1
            if added % _CARRY_EVERY == 0:
                high, rest = _carry(acc, low, high)
                acc[high] += rest
                high += 1
        if high:
            out = _grown(out, used)
            used = _write(acc, low, high, out, used)
        offsets[g + 1] = used
    return offsets, out[:used].copy()


@njit(cache=True, nogil=True)
def multiply_wide(source: Any, data: Any, weights: Any) -> Any:
    """Each wide number times its weight (int64)."""
    acc = np.zeros(LIMBS, np.int64)
    offsets = np.zeros(source.size, np.int64)
    out = np.empty(16 * source.size + _ROOM, np.uint8)
    used = 0
    for i in range(source.size - 1):
        start, end = source[i], source[i + 1]
        if start < end and weights[i]:
            exponent = np.int64(data[start]) | (np.int64(data[start + 1]) << 8)
            if exponent >= 1 << 15:
                exponent -= 1 << 16
            first = exponent + BIAS_BYTES
            for at in range(start + 2, end):
                byte = np.int64(data[at])
                if at == end - 1 and byte >= 128:
                    byte -= 256
                # The weight in pieces of 24 bits, so that no product exceeds 64.
                for piece in range(3):
                    factor = weights[i] >> (24 * piece)
                    if piece < 2:
                        factor &= 0xFFFFFF
                    place = first + at - start - 2 + 3 * piece
                    value = (byte * factor) << (8 * (place & 3))
                    acc[place >> 2] += value & _MASK
                    acc[(place >> 2) + 1] += value >> 32
            out = _grown(out, used)
            last = first + end - start - 3 + 6
            used = _write(acc, first >> 2, (last >> 2) + 2, out, used)
        offsets[i + 1] = used
    return offsets, out[:used].copy()


@njit(cache=True, nogil=True)
def is_wide(offsets: Any, data: Any, power: Any) -> Any:
    """Whether each string of bytes is a wide number that a sum of `power`-th powers can be.

    Bounds, since kernels trust them: no power of a double has a bit below 2**(-1075 * power), no
    sum one above 2**(1024 * power + 64).
    """
    out = np.ones(offsets.size - 1, np.bool_)
    for i in range(out.size):
        size = offsets[i + 1] - offsets[i]
        if size == 0:
            continue
        if size < 3:
            out[i] = False
            continue
        exponent = np.int64(data[offsets[i]]) | (np.int64(data[offsets[i] + 1]) << 8)
        if exponent >= 1 << 15:
            exponent -= 1 << 16
        last = exponent + size - 2
        out[i] = 8 * exponent >= -1080 * power and 8 * last <= 1024 * power + 72
    return out


@njit(cache=True, nogil=True)
def _magnitude(acc: Any, low: Any, high: Any) -> Any:
    """Make the digits those of the absolute value; returns (high, sign: -1, 0 or 1)."""
    high, sign = _carry(acc, low, high)
    if sign:
        for i in range(low, high):
            acc[i] = -acc[i]
        acc[high] += 1
        high, _ = _carry(acc, low, high + 1)
    while high > low and acc[high - 1] == 0:
        high -= 1
    if high == low:
        return high, 0
    return high, -1 if sign else 1


@njit(cache=True, nogil=True)
def _rounded(acc: Any, low: Any, high: Any) -> Any:
    """The number as `m * 2**e`, m a double nearest to its leading bits; clears the digits."""
    high, sign = _magnitude(acc, low, high)
    if sign == 0:
        return 0.0, 0
    top = np.uint64(0)  # 64 leading bits, the last of them set if any bit below is
    taken = 0
    bits = 32
    while bits > 1 and not (acc[high - 1] >> (bits - 1)) & 1:
        bits -= 1
    limb = high - 1
    while limb >= low and taken < 64:
        width = bits if taken == 0 else min(32, 64 - taken)
        value = np.uint64(acc[limb])
        if taken and width < 32:
            top = (top << np.uint64(width)) | (value >> np.uint64(32 - width))
            if value & np.uint64((1 << (32 - width)) - 1):
                top |= np.uint64(1)
        else:
            top = (top << np.uint64(width)) | value
        taken += width
        limb -= 1
    exponent = 32 * (high - 1 - BIAS) + bits - taken
    while limb >= low:
        if acc[limb]:
            top |= np.uint64(1)
            break
        limb -= 1
    acc[low : high + 2] = 0
    return sign * np.float64(top), exponent


@njit(cache=True, nogil=True)
def to_floats(offsets: Any, data: Any) -> Any:
    """The nearest doubles; infinite only where the number itself is beyond every double."""
    acc = np.zeros(LIMBS, np.int64)
    out = np.zeros(offsets.size - 1, np.float64)
    for i in range(out.size):
        if offsets[i] < offsets[i + 1]:
            low, high = _read(acc, data, offsets[i], offsets[i + 1], 1)
            value, exponent = _rounded(acc, low, high)
            out[i] = math.ldexp(value, exponent)
    return out


@njit(cache=True, nogil=True)
def to_halves(offsets: Any, data: Any) -> Any:
    """Integers as (n, 2) uint64 (low, high), and whether each fits these 128 bits."""
    acc = np.zeros(LIMBS, np.int64)
    out = np.zeros((offsets.size - 1, 2), np.uint64)
    fits = np.ones(offsets.size - 1, np.bool_)
    for i in range(fits.size):
        if offsets[i] == offsets[i + 1]:
            continue
        low, high = _read(acc, data, offsets[i], offsets[i + 1], 1)
        high, sign = _carry(acc, low, high)
        for limb in range(high, BIAS + 4):
            acc[limb] = sign & _MASK
        for limb in range(BIAS + 4, high):
            fits[i] &= acc[limb] == (sign & _MASK)
        fits[i] &= (acc[BIAS + 3] >> 31) == (sign & 1)
        for half in range(2):
            lower, upper = acc[BIAS + 2 * half], acc[BIAS + 2 * half + 1]
            out[i, half] = np.uint64(lower) | (np.uint64(upper) << np.uint64(32))
        acc[low : max(high, BIAS + 4) + 1] = 0
    return out, fits
