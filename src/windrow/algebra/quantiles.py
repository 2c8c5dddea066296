"""Quantiles over ranges, with Apache DataSketches' KLL sketch.

A short range feeds a sketch directly. Long ranges share sketches of fixed blocks, which are
merged, so that a key with very many events costs blocks, not events, per query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasketches import kll_doubles_sketch

KLL_K = 200  # rank error about 1.65 % at 99 % confidence; exact up to 200 values
BLOCK = 4_096


def quantiles(
    values: np.ndarray, start: np.ndarray, end: np.ndarray, fractions: Sequence[float]
) -> np.ndarray:
    """For each [start, end) the values at `fractions`: float64 of shape (queries, fractions).

    NaN is larger than every number, as elsewhere; rows of empty ranges hold NaN.
    """
    out = np.full((start.size, len(fractions)), np.nan)
    wanted = list(fractions)
    blocks: dict[int, Any] = {}
    nans = np.concatenate([[0], np.cumsum(np.isnan(values))])
    known: tuple[int, int] = (-1, -1)
    found = out[:0]
    for q in range(start.size):
        a, b = int(start[q]), int(end[q])
        if a >= b:
            continue
        if (a, b) != known:
            sketch = _range_sketch(values, a, b, blocks)
            found = sketch_quantiles(sketch, int(nans[b] - nans[a]), wanted)
            known = (a, b)
        out[q] = found
    return out


def _range_sketch(values: np.ndarray, a: int, b: int, blocks: dict[int, Any]) -> Any:
    sketch = kll_doubles_sketch(KLL_K)
    first, last = -(-a // BLOCK), b // BLOCK
    if first >= last:
        _feed(sketch, values[a:b])
    else:
        _feed(sketch, values[a : first * BLOCK])
        for block in range(first, last):
            if block not in blocks:
                blocks[block] = kll_doubles_sketch(KLL_K)
                _feed(blocks[block], values[block * BLOCK : (block + 1) * BLOCK])
            sketch.merge(blocks[block])
        _feed(sketch, values[last * BLOCK : b])
    return sketch


def sketch_quantiles(sketch: Any, nans: int, fractions: Sequence[float]) -> np.ndarray:
    """The values at `fractions` of a sketch's numbers and so many NaN, which it leaves out."""
    if sketch is None or sketch.is_empty():
        return np.full(len(fractions), np.nan)
    if not nans:
        return np.asarray(sketch.get_quantiles(list(fractions)))
    # Ranks among numbers are those among all, scaled; above is NaN.
    numbers = 1 - nans / (sketch.n + nans)
    within = [min(f / numbers, 1.0) for f in fractions]
    found = np.asarray(sketch.get_quantiles(within))
    return np.where(np.asarray(fractions) > numbers, np.nan, found)


def _feed(sketch: Any, values: np.ndarray) -> None:
    numbers = values[~np.isnan(values)]
    if numbers.size:
        sketch.update(np.ascontiguousarray(numbers))
