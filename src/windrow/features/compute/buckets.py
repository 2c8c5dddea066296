"""Buckets: lanes of equal words, and results as maps by bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import list_offsets
from windrow.words.sorting import sort_words


def lanes_of(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each column of words, ascending with them, and a column for each number."""
    order = sort_words(words)
    new = np.ones(order.size, np.bool_)
    new[1:] = (words[:, order[1:]] != words[:, order[:-1]]).any(axis=0)
    lanes = np.empty(order.size, np.int64)
    lanes[order] = np.cumsum(new) - 1
    return lanes, order[new]


def bucket_maps(
    found: pa.Array,
    query: np.ndarray,
    rows: np.ndarray,
    levels: list[pa.Array],
    codes: list[np.ndarray],
    queries: int,
) -> pa.Array:
    """Results sorted by (query, outer bucket, inner bucket) become maps, innermost first."""
    for depth in range(len(levels) - 1, -1, -1):
        keys = levels[depth].take(pa.array(rows))
        outer = np.vstack([query, *(codes[d][rows] for d in range(depth))])
        new = np.ones(query.size, np.bool_)
        new[1:] = (outer[:, 1:] != outer[:, :-1]).any(axis=0)
        starts = np.flatnonzero(new)
        if depth == 0:
            lengths = np.bincount(query, minlength=queries)
        else:
            lengths = np.diff(np.append(starts, query.size))
        found = pa.MapArray.from_arrays(list_offsets(lengths), keys, found)
        query, rows = query[starts], rows[starts]
    return found
