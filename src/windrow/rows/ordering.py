"""Columns as integers whose order is the order of the values.

Two encodings, both with NULL first and NaN last, as in Spark's ORDER BY:

- `coarse`: one int64 per value that never decreases along the order. Exact for most fixed-width
  types without NULLs; a string keeps its first eight bytes, a wide decimal its leading bits.
  It needs nothing but the value, so it can be stored in files, statistics and slice bounds.
- `exact`: one int64 per row that decides every comparison among the rows given. Where `coarse`
  is not enough, the values are ranked among each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from windrow.errors import SchemaError
from windrow.rows.hashing import byte_ranges, decimal_halves, fixed_width
from windrow.rows.types import canonical_values, is_nested

LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max


def check_orderable(field: pa.Field) -> None:
    if is_nested(field.type):
        raise SchemaError(
            f"column {field.name!r} ({field.type}) cannot be an order column; "
            "order by scalar columns, or by the hash of the key"
        )


@njit(cache=True, nogil=True)
def _first_eight_bytes(offsets: Any, data: Any, out: Any) -> None:
    for i in range(out.size):
        start, end = offsets[i], offsets[i + 1]
        word = np.uint64(0)
        for b in range(8):
            word <<= np.uint64(8)
            if start + b < end:
                word |= np.uint64(data[start + b])
        out[i] = np.int64(word ^ np.uint64(0x8000000000000000))


def _coarse_values(array: pa.Array) -> np.ndarray:
    """The coarse encoding with NULLs holding anything."""
    t = pa.types
    type_ = array.type
    if t.is_string(type_) or t.is_binary(type_):
        out = np.empty(len(array), np.int64)
        _first_eight_bytes(*byte_ranges(array), out)
        return out
    if t.is_decimal(type_):
        halves = decimal_halves(array)
        if type_.precision <= 18:
            return halves[:, 0].view(np.int64) if len(array) else np.zeros(0, np.int64)
        # Unscaled values of up to 127 bits: keep the 64 leading ones.
        high = halves[:, 1].view(np.int64) if len(array) else np.zeros(0, np.int64)
        return high.copy()
    values = fixed_width(array)
    if t.is_floating(type_):
        # Bits of a positive float grow with it, those of a negative one shrink.
        values = np.where(values < 0, np.bitwise_xor(np.iinfo(values.dtype).max, values), values)
    return values.astype(np.int64)


def coarse(array: pa.Array) -> np.ndarray:
    """int64 per value, never decreasing along the order; NULL is the lowest of all."""
    out = _coarse_values(array)
    if array.null_count:
        out = np.where(array.is_null().to_numpy(zero_copy_only=False), LOWEST, out)
    return out


def coarse_scalar(value: Any, type_: pa.DataType) -> int:
    """`coarse` of one Python value."""
    return int(coarse(canonical_values(pa.array([value], type_)))[0])


def is_lossless(type_: pa.DataType) -> bool:
    t = pa.types
    if t.is_decimal(type_):
        return bool(type_.precision <= 18)
    return not (t.is_string(type_) or t.is_binary(type_))


def exact(array: pa.Array) -> np.ndarray:
    """int64 per row that compares as the values do, among the rows of this array."""
    if is_lossless(array.type):
        values = _coarse_values(array)
        if not array.null_count:
            return values
        ranks = np.unique(values, return_inverse=True)[1] + 1
    else:
        encoded = array.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        rank_of = np.empty(order.size, np.int64)
        rank_of[order] = np.arange(1, order.size + 1)
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        ranks = rank_of[codes] if order.size else np.zeros(len(array), np.int64)
    if array.null_count:
        ranks[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks.astype(np.int64)


def exact_words(columns: Sequence[pa.Array]) -> list[np.ndarray]:
    return [exact(column) for column in columns]
