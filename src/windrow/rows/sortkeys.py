"""Rows as strings of bytes whose order is that of the rows, by several columns and directions.

Each column is a byte that tells NULL from a value, then the value: numbers as big-endian integers,
texts with their zero bytes escaped and two of them at the end, all bits inverted where the order is
descending. So strings of bytes compare as the rows do, and equal rows have equal strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.rows.hashing import byte_ranges, decimal_halves
from windrow.rows.ordering import coarse, is_lossless
from windrow.rows.types import is_nested

_NULL_FIRST, _VALUE, _NULL_LAST = 0, 1, 2  # the byte before a value, or in place of one


@dataclass(frozen=True)
class Direction:
    """One column of an order."""

    ascending: bool = True
    nulls_first: bool = True


def has_sort_keys(type_: pa.DataType) -> bool:
    return not is_nested(type_) and not pa.types.is_null(type_)


def sort_keys(columns: Sequence[tuple[pa.Array, Direction]], rows: int) -> pa.Array:
    """A string of bytes for each row. The columns are canonical.

    >>> numbers, texts = pa.array([2, None, 1, 2]), pa.array(["b", "a", "c", None])
    >>> keys = sort_keys([(numbers, Direction(ascending=False)), (texts, Direction())], 4)
    >>> np.argsort(keys.to_pylist(), kind="stable").tolist()
    [1, 3, 0, 2]
    """
    pieces = [_encoded(array, direction) for array, direction in columns]
    starts = np.zeros(rows + 1, np.int64)
    for offsets, _ in pieces:
        starts += offsets
    out = np.empty(int(starts[-1]), np.uint8)
    at = starts[:-1].copy()
    for offsets, data in pieces:
        _place(out, at, offsets, data)
    buffers = [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _encoded(array: pa.Array, direction: Direction) -> tuple[np.ndarray, np.ndarray]:
    """One column: offsets (n + 1) and bytes."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    null = _NULL_FIRST if direction.nulls_first else _NULL_LAST
    flip = 0 if direction.ascending else 0xFF
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        found: tuple[np.ndarray, np.ndarray] = _texts(*byte_ranges(array), valid, null, flip)
        return found
    words = _words(array)
    width = 1 + words.shape[1]
    out = np.empty((len(array), width), np.uint8)
    out[:, 0] = np.where(valid, _VALUE, null)
    out[:, 1:] = np.where(valid[:, None], words ^ np.uint8(flip), 0)
    return np.arange(len(array) + 1, dtype=np.int64) * width, out.reshape(-1)


def _words(array: pa.Array) -> np.ndarray:
    """Values of a fixed width as bytes (n, width), the most significant first, sign inverted."""
    sign = np.uint64(1 << 63)
    if is_lossless(array.type):
        return _big_endian(coarse(array).view(np.uint64) ^ sign)
    halves = decimal_halves(array)
    return np.hstack([_big_endian(halves[:, 1] ^ sign), _big_endian(halves[:, 0])])


def _big_endian(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).astype(">u8").view(np.uint8).reshape(-1, 8)


@njit(cache=True, nogil=True)
def _texts(offsets: Any, data: Any, valid: Any, null: Any, flip: Any) -> Any:
    size = 0
    for i in range(valid.size):
        size += 1
        if valid[i]:
            size += offsets[i + 1] - offsets[i] + 2
            for at in range(offsets[i], offsets[i + 1]):
                if data[at] == 0:
                    size += 1
    out = np.empty(size, np.uint8)
    starts = np.zeros(valid.size + 1, np.int64)
    used = 0
    for i in range(valid.size):
        out[used] = 1 if valid[i] else null
        used += 1
        if valid[i]:
            for at in range(offsets[i], offsets[i + 1]):
                out[used] = data[at] ^ flip
                used += 1
                if data[at] == 0:
                    out[used] = 0xFF ^ flip
                    used += 1
            out[used] = flip
            out[used + 1] = flip
            used += 2
        starts[i + 1] = used
    return starts, out


@njit(cache=True, nogil=True)
def _place(out: Any, at: Any, offsets: Any, data: Any) -> None:
    for i in range(at.size):
        for byte in range(offsets[i], offsets[i + 1]):
            out[at[i]] = data[byte]
            at[i] += 1
