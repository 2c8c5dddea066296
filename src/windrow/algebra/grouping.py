"""Rows by the number of their group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def group_rows(groups: Any, count: Any) -> Any:
    """Rows by group, each group's in their order: positions, and where each group starts."""
    starts = np.zeros(count + 1, np.int64)
    for i in range(groups.size):
        starts[groups[i] + 1] += 1
    for g in range(count):
        starts[g + 1] += starts[g]
    place = starts[:count].copy()
    order = np.empty(groups.size, np.int64)
    for i in range(groups.size):
        order[place[groups[i]]] = i
        place[groups[i]] += 1
    return order, starts


@njit(cache=True, nogil=True)
def group_sums(values: Any, groups: Any, count: Any) -> Any:
    """The sum of each group's int64 values."""
    out = np.zeros(count, np.int64)
    for i in range(groups.size):
        out[groups[i]] += values[i]
    return out
