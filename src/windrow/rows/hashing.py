"""Stable 64-bit hashes of rows.

The key hash is xxHash64 chained over the columns with seed 42: exactly what Spark SQL's
`xxhash64(c1, c2, ...)` returns, so that the JVM, this module and any other xxHash64 agree, in
every process and release. As in Spark, a NULL leaves the chain as it is.

The row hash is the same chain, but a NULL, a struct that is there and the length of a list also
leave a mark, so that rows which differ only in where their NULLs stand do not collide. No hash is
ever trusted: wherever equal hashes meet, the values are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.rows.lists import list_parts

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

SEED = 42
_NULL_MARK = 0x6E756C6C  # folded into the row hash for a NULL
_STRUCT_MARK = 1  # and for a struct: NULL is not {NULL}


@njit(inline="always")
def _rotl(x: Any, r: Any) -> Any:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@njit(inline="always")
def _avalanche(h: Any) -> Any:
    h ^= h >> np.uint64(33)
    h *= _P2
    h ^= h >> np.uint64(29)
    h *= _P3
    return h ^ (h >> np.uint64(32))


@njit(inline="always")
def _hash_int(value: Any, seed: Any) -> Any:
    h = seed + _P5 + np.uint64(4)
    h ^= (np.uint64(value) & np.uint64(0xFFFFFFFF)) * _P1
    return _avalanche(_rotl(h, 23) * _P2 + _P3)


@njit(inline="always")
def _hash_long(value: Any, seed: Any) -> Any:
    h = seed + _P5 + np.uint64(8)
    h ^= _rotl(np.uint64(value) * _P2, 31) * _P1
    return _avalanche(_rotl(h, 27) * _P1 + _P4)


@njit(inline="always")
def _word(data: Any, at: Any, width: Any) -> Any:
    """`width` bytes from `at`, little endian."""
    word = np.uint64(0)
    for b in range(width):
        word |= np.uint64(data[at + b]) << np.uint64(8 * b)
    return word


@njit(inline="always")
def _hash_bytes(data: Any, start: Any, end: Any, seed: Any) -> Any:
    at = start
    length = end - start
    if length >= 32:
        v1 = seed + _P1 + _P2
        v2 = seed + _P2
        v3 = seed
        v4 = seed - _P1
        while at + 32 <= end:
            v1 = _rotl(v1 + _word(data, at, 8) * _P2, 31) * _P1
            v2 = _rotl(v2 + _word(data, at + 8, 8) * _P2, 31) * _P1
            v3 = _rotl(v3 + _word(data, at + 16, 8) * _P2, 31) * _P1
            v4 = _rotl(v4 + _word(data, at + 24, 8) * _P2, 31) * _P1
            at += 32
        h = _rotl(v1, 1) + _rotl(v2, 7) + _rotl(v3, 12) + _rotl(v4, 18)
        h = (h ^ (_rotl(v1 * _P2, 31) * _P1)) * _P1 + _P4
        h = (h ^ (_rotl(v2 * _P2, 31) * _P1)) * _P1 + _P4
        h = (h ^ (_rotl(v3 * _P2, 31) * _P1)) * _P1 + _P4
        h = (h ^ (_rotl(v4 * _P2, 31) * _P1)) * _P1 + _P4
    else:
        h = seed + _P5
    h += np.uint64(length)
    while at + 8 <= end:
        h ^= _rotl(_word(data, at, 8) * _P2, 31) * _P1
        h = _rotl(h, 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        h ^= _word(data, at, 4) * _P1
        h = _rotl(h, 23) * _P2 + _P3
        at += 4
    while at < end:
        h ^= np.uint64(data[at]) * _P5
        h = _rotl(h, 11) * _P1
        at += 1
    return _avalanche(h)


@njit(cache=True, nogil=True)
def _fold_int(h: Any, values: Any) -> None:
    for i in range(h.size):
        h[i] = _hash_int(values[i], h[i])


@njit(cache=True, nogil=True)
def _fold_long(h: Any, values: Any) -> None:
    for i in range(h.size):
        h[i] = _hash_long(values[i], h[i])


@njit(cache=True, nogil=True)
def _fold_bytes(h: Any, offsets: Any, data: Any) -> None:
    for i in range(h.size):
        h[i] = _hash_bytes(data, offsets[i], offsets[i + 1], h[i])


@njit(cache=True, nogil=True)
def _fold_wide_decimal(h: Any, halves: Any) -> None:
    """`halves` is (n, 2) uint64, low half first; the shortest big-endian two's complement."""
    buffer = np.empty(16, np.uint8)
    for i in range(h.size):
        low, high = halves[i, 0], halves[i, 1]
        for b in range(8):
            buffer[15 - b] = np.uint8((low >> np.uint64(8 * b)) & np.uint64(0xFF))
            buffer[7 - b] = np.uint8((high >> np.uint64(8 * b)) & np.uint64(0xFF))
        start = 0
        while start < 15 and (
            (buffer[start] == 0 and buffer[start + 1] < 128)
            or (buffer[start] == 255 and buffer[start + 1] >= 128)
        ):
            start += 1
        h[i] = _hash_bytes(buffer, start, 16, h[i])


def fixed_width(array: pa.Array) -> np.ndarray:
    """The values of a fixed-width array as integers of their own width (nulls hold anything)."""
    type_ = array.type
    if pa.types.is_boolean(type_):
        flags: np.ndarray = array.cast(pa.int8()).fill_null(0).to_numpy(zero_copy_only=False)
        return flags
    width = type_.bit_width // 8
    dtype = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[width]
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def decimal_halves(array: pa.Array) -> np.ndarray:
    """A decimal128 array as (n, 2) uint64: the low and the high half of the unscaled value."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), 2), np.uint64)
    halves = np.frombuffer(buffer, np.uint64).reshape(-1, 2)
    return halves[array.offset : array.offset + len(array)]


def byte_ranges(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (length n + 1) and bytes of a string or binary array."""
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    ranges = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return ranges, np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def fold(h: np.ndarray, array: pa.Array, marks: bool) -> np.ndarray:
    """Chain `array` (canonical values, one per entry of `h`) into `h`, a uint64 array.

    `marks` makes NULLs, structs and list lengths count (the row hash); without it the result is
    Spark's.
    """
    type_ = array.type
    t = pa.types
    before = h
    h = h.copy()
    if t.is_struct(type_):
        if marks:
            h = _mark(h, np.full(h.size, _STRUCT_MARK))
        for child in array.flatten():
            h = fold(h, child, marks)
    elif t.is_map(type_) or t.is_list(type_):
        h = _fold_lists(h, array, marks)
    elif t.is_string(type_) or t.is_binary(type_):
        _fold_bytes(h, *byte_ranges(array))
    elif t.is_decimal(type_):
        halves = decimal_halves(array)
        if type_.precision <= 18:
            _fold_long(h, np.ascontiguousarray(halves[:, 0]))
        else:
            _fold_wide_decimal(h, halves)
    elif type_.bit_width == 64:
        _fold_long(h, fixed_width(array))
    else:
        _fold_int(h, fixed_width(array).astype(np.int32))
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        h[null] = before[null]
        if marks:
            h[null] = _mark(h[null], np.full(int(null.sum()), _NULL_MARK))
    return h


def _mark(h: np.ndarray, values: np.ndarray) -> np.ndarray:
    h = h.copy()
    _fold_long(h, values.astype(np.int64))
    return h


def _fold_lists(h: np.ndarray, array: pa.Array, marks: bool) -> np.ndarray:
    """Elements are chained one after another: position by position over all lists at once."""
    offsets, values = list_parts(array)
    lengths = np.diff(offsets)
    if marks:
        h = _mark(h, lengths)
    rows = np.flatnonzero(lengths > 0)
    position = 0
    while rows.size:
        h[rows] = fold(h[rows], values.take(pa.array(offsets[rows] + position)), marks)
        position += 1
        rows = rows[lengths[rows] > position]
    return h


def _chain(columns: Sequence[pa.Array], marks: bool) -> np.ndarray:
    h = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        h = fold(h, column, marks)
    return h.view(np.int64)


def hash_keys(columns: Sequence[pa.Array]) -> np.ndarray:
    """The stable key hash (int64) of canonical columns; equals Spark SQL's `xxhash64`."""
    return _chain(columns, marks=False)


def hash_rows(columns: Sequence[pa.Array]) -> np.ndarray:
    """The stable row hash (int64) of canonical columns."""
    return _chain(columns, marks=True)
