"""Lists and maps as the values they hold and the offsets that part them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def list_parts(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Offsets (int64, length n + 1, from 0) and the values they index, nulls empty.

    Values beneath null lists are dropped, so every value belongs to a row that is there.
    """
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    values = _entries(array) if pa.types.is_map(array.type) else array.values
    lengths = np.diff(offsets)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        if lengths[~valid].any():
            keep = np.repeat(valid, lengths)
            values = values.slice(offsets[0], offsets[-1] - offsets[0]).filter(pa.array(keep))
            lengths = np.where(valid, lengths, 0)
            return np.concatenate([[0], np.cumsum(lengths)]), values
    return offsets - offsets[0], values.slice(offsets[0], offsets[-1] - offsets[0])


def _entries(array: pa.MapArray) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
