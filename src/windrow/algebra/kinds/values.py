"""Partial states that are values: the best k by an order, or every value with its count.

Lifting rows and combining states are one thing here: the elements of all states, as rows, are
lifted again under the groups of their states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.arrays import enumerate_lists
from windrow.algebra.grouping import group_sums
from windrow.algebra.kinds.kind import Columns, Held, Kind, Rows
from windrow.algebra.types import list_type
from windrow.rows.lists import list_parts
from windrow.rows.ordering import exact
from windrow.rows.types import canonical_values
from windrow.words.sorting import sort_words

t = pa.types
VALUES, TIMES, COUNTS = "values", "times", "counts"


def _lists(starts: np.ndarray, values: pa.Array) -> pa.Array:
    offsets = pa.array(starts.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=list_type(values.type))


def _starts(groups: np.ndarray, count: int) -> np.ndarray:
    """Where the elements of each group start, and last how many there are; groups ascend."""
    return np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=count))])


@njit(cache=True, nogil=True)
def _best_rows(words: Any, groups: Any, count: Any) -> Any:
    """For each group the first row with the smallest words, or -1."""
    best = np.full(count, -1, np.int64)
    for i in range(groups.size):
        g = groups[i]
        if best[g] < 0:
            best[g] = i
            continue
        for w in range(words.shape[0]):
            a, b = words[w, i], words[w, best[g]]
            if a != b:
                if a < b:
                    best[g] = i
                break
    return best


@dataclass(frozen=True)
class Order:
    """Which values are best: by value, or by (time, value); the smallest first, or the largest."""

    by_time: bool = False
    descending: bool = False
    unique: bool = False


@dataclass(frozen=True)
class Bests(Kind):
    """The best k values (all for k None), best first, with their times where those decide."""

    value_type: pa.DataType
    order: Order
    k: int | None = None
    single: bool = False  # k is one by nature, and need not be written

    @property
    def fields(self) -> list[pa.Field]:
        fields = [pa.field(VALUES, list_type(self.value_type))]
        if self.order.by_time:
            fields.append(pa.field(TIMES, list_type(pa.int64())))
        return fields

    @property
    def parameters(self) -> tuple[int, ...]:
        return () if self.k is None or self.single else (self.k,)

    def lift(self, rows: Rows, count: int) -> Columns:
        values, times, groups = canonical_values(rows.values), rows.times, rows.groups
        if rows.diffs is not None and not self.order.unique:
            often = rows.diffs if self.k is None else np.minimum(rows.diffs, self.k)
            again = np.repeat(np.arange(groups.size), often)
            values, groups = values.take(pa.array(again)), groups[again]
            times = times[again] if self.order.by_time else times
        return self._kept(values, times, groups, count)

    def _kept(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> Columns:
        keys = [times] if self.order.by_time else []
        if not t.is_nested(values.type):  # nested values have no order; arrival decides
            keys.append(exact(values))
        words = np.vstack(keys) if keys else np.zeros((0, groups.size), np.int64)
        if self.order.descending:
            words = -1 - words  # reverses the order of int64 without overflow
        if self.k == 1:
            best = _best_rows(words, groups, count)
            rows = best[best >= 0]
        else:
            rows = self._ranked(words, groups)
        starts = _starts(groups[rows], count)
        columns = [_lists(starts, values.take(pa.array(rows)))]
        if self.order.by_time:
            columns.append(_lists(starts, pa.array(times[rows])))
        return columns

    def _ranked(self, words: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """The rows that are kept: by group, the best first."""
        # The position is the last word, so that rows which are equal stay in their order.
        words = np.vstack([groups, words, np.arange(groups.size)])
        rows = sort_words(words)
        if self.order.unique and rows.size:
            inner = words[:-1, rows]
            new = np.ones(rows.size, np.bool_)
            new[1:] = (inner[:, 1:] != inner[:, :-1]).any(axis=0)
            rows = rows[new]
        if self.k is None or not rows.size:
            return rows
        sizes = np.bincount(groups[rows])
        _, within = enumerate_lists(sizes)
        return rows[within < self.k]

    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        starts, values = list_parts(columns[0])
        owner = np.repeat(groups, np.diff(starts))
        times = np.zeros(0, np.int64)
        if self.order.by_time:
            times = list_parts(columns[1])[1].to_numpy(zero_copy_only=False)
        return self._kept(canonical_values(values), times, owner, count)

    def is_sound(self, held: Held) -> bool:
        lengths = np.diff(list_parts(held.columns[VALUES])[0])
        most = held.count if self.k is None else np.minimum(held.count, self.k)
        if self.order.unique:
            return bool(((lengths <= most) & ((lengths > 0) == (most > 0))).all())
        return bool((lengths == most).all())


def value_lists(held: Held) -> tuple[np.ndarray, pa.Array]:
    """Where the values of each state start (and last, end), and the values."""
    return list_parts(held.columns[VALUES])


@dataclass(frozen=True)
class Counts(Kind):
    """Every value with how often it occurs, by value; counts of zero are left out."""

    value_type: pa.DataType

    @property
    def fields(self) -> list[pa.Field]:
        return [
            pa.field(VALUES, list_type(self.value_type)),
            pa.field(COUNTS, list_type(pa.int64())),
        ]

    def lift(self, rows: Rows, count: int) -> Columns:
        diffs = np.ones(rows.groups.size, np.int64) if rows.diffs is None else rows.diffs
        return self._added(canonical_values(rows.values), diffs, rows.groups, count)

    def _added(
        self, values: pa.Array, counts: np.ndarray, groups: np.ndarray, count: int
    ) -> Columns:
        words = np.vstack([groups, exact(values)])
        rows = sort_words(words)
        words = words[:, rows]
        new = np.ones(rows.size, np.bool_)
        new[1:] = (words[:, 1:] != words[:, :-1]).any(axis=0)
        first = np.flatnonzero(new)
        sums = np.add.reduceat(counts[rows], first) if rows.size else counts
        kept = sums != 0
        rows, sums = rows[first[kept]], sums[kept]
        starts = _starts(groups[rows], count)
        return [_lists(starts, values.take(pa.array(rows))), _lists(starts, pa.array(sums))]

    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        starts, values = list_parts(columns[0])
        counts = list_parts(columns[1])[1].to_numpy(zero_copy_only=False)
        return self._added(values, counts, np.repeat(groups, np.diff(starts)), count)

    def invert(self, columns: Columns) -> Columns:
        starts, counts = list_parts(columns[1])
        return [columns[0], _lists(starts, pa.array(-counts.to_numpy(zero_copy_only=False)))]

    def is_whole(self, held: Held) -> bool:
        return not (value_counts(held)[2] < 0).any()

    def is_sound(self, held: Held) -> bool:
        starts, _, counts = value_counts(held)
        owner = np.repeat(np.arange(held.count.size), np.diff(starts))
        total = group_sums(counts, owner, held.count.size)
        return bool((total == held.count).all() and (counts != 0).all())


def value_counts(held: Held) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """As `value_lists`, and the count of each value."""
    starts, values = value_lists(held)
    return starts, values, list_parts(held.columns[COUNTS])[1].to_numpy(zero_copy_only=False)
