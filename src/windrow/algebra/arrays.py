"""Arrow arrays as NumPy, and lists, maps and nullable values made of NumPy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.algebra.types import list_type


def as_int64(values: pa.Array) -> np.ndarray:
    array: np.ndarray = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return array


def as_float64(values: pa.Array) -> np.ndarray:
    array: np.ndarray = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return array


def null_where(values: np.ndarray, nothing: np.ndarray, type_: pa.DataType) -> pa.Array:
    return pa.array(values, type_, mask=nothing)


def enumerate_lists(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For lists of these lengths, one after another: each element's list and place in it."""
    owner = np.repeat(np.arange(lengths.size), lengths)
    within = np.arange(owner.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owner, within


def list_offsets(lengths: np.ndarray) -> pa.Array:
    """Offsets of lists; an empty list is NULL."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.array(offsets, mask=np.append(lengths == 0, False))


def lists_of(values: pa.Array, lengths: np.ndarray) -> pa.Array:
    """Lists of these lengths; an empty one is NULL."""
    return pa.ListArray.from_arrays(list_offsets(lengths), values, type=list_type(values.type))


def maps_of(keys: pa.Array, counts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Maps with these numbers of entries; an empty one is NULL."""
    return pa.MapArray.from_arrays(list_offsets(lengths), keys, pa.array(counts, pa.int64()))
