"""Ranges: events of a key are adjacent, in order of time, and a window is a range of positions.

For each query a window is a range `[start, end)`. Along the queries of a key, ranges only move
forward.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import as_float64, as_int64
from windrow.algebra.prefix import prefix_128
from windrow.algebra.tree import range_sums
from windrow.rows.ordering import exact
from windrow.words.sorting import sort_words


@dataclass(frozen=True)
class Ranges:
    """For each query the positions `[start, end)` of its window's events (int64)."""

    start: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return int(self.start.size)

    @staticmethod
    def of(several: Sequence[Ranges]) -> Ranges:
        """The ranges of several windows, one after another."""
        if len(several) == 1:
            return several[0]
        return Ranges(
            np.concatenate([one.start for one in several]),
            np.concatenate([one.end for one in several]),
        )

    @property
    def empty(self) -> np.ndarray:
        return self.start >= self.end


@dataclass(frozen=True)
class Column:
    """The input values of an aggregation without NULLs, in the order of events.

    `ties` never decreases, and is equal for values of one key (and bucket) at equal times.
    """

    values: pa.Array
    ties: np.ndarray

    @functools.cached_property
    def words(self) -> np.ndarray:
        """int64 words in the order of the values."""
        return exact(self.values)

    @functools.cached_property
    def prefix(self) -> tuple[np.ndarray, np.ndarray]:
        """Prefix sums of integers, in 128 bits."""
        low, high = prefix_128(as_int64(self.values))
        return low, high

    def float_sums(self, ranges: Ranges) -> np.ndarray:
        """Sums over ranges; shared by the aggregates of one window."""
        if self._sums and self._sums[-1][0] is ranges:
            return self._sums[-1][1]
        sums = range_sums(as_float64(self.values), ranges.start, ranges.end)
        self._sums[:] = [(ranges, sums)]
        return sums

    @functools.cached_property
    def _sums(self) -> list[tuple[Ranges, np.ndarray]]:
        return []

    @functools.cached_property
    def in_order(self) -> Column:
        """Values of equal times sorted, so that ties have one answer."""
        tied = self.ties[1:] == self.ties[:-1]
        if not tied.any():
            return self
        order = sort_words(np.vstack([self.ties, self.words]))
        return Column(self.values.take(pa.array(order)), self.ties)
