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

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.operations import Law
from windrow.algebra.ranges import enumerate_lists, list_offsets
from windrow.errors import DataError, DefinitionError
from windrow.merging import sort_words
from windrow.rows.lists import list_parts
from windrow.rows.ordering import exact
from windrow.rows.types import canonical_values

t = pa.types


@dataclass(frozen=True)
class Order:
    """Which values are best: by value, or by (time, value); the smallest first, or the largest."""

    by_time: bool = False
    descending: bool = False
    unique: bool = False
    single: bool = False  # the one best value, not a list


def list_type(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


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
class Bests:
    """The best k values (all for k None), best first, with their times where those decide."""

    aggregation: Aggregation
    value_type: pa.DataType
    order: Order
    k: int | None

    @property
    def type(self) -> pa.DataType:
        fields = [pa.field("values", list_type(self.value_type))]
        if self.order.by_time:
            fields.append(pa.field("times", list_type(pa.int64())))
        return pa.struct(fields)

    @property
    def invertible(self) -> bool:
        return False

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        values = canonical_values(values)
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
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _ranked(self, words: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """The rows that are kept: by group, the best first."""
        # The position comes last, so that rows which are equal stay in their order.
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

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        columns = states.flatten()
        starts, values = list_parts(columns[0])
        owner = np.repeat(groups, np.diff(starts))
        times = np.zeros(0, np.int64)
        if self.order.by_time:
            times = list_parts(columns[1])[1].to_numpy(zero_copy_only=False)
        return self.lift(values, times, owner, count)

    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array:
        raise not_invertible(self.aggregation)

    def lower(self, states: pa.Array) -> pa.Array:
        starts, values = list_parts(states.flatten()[0])
        lengths = np.diff(starts)
        if self.aggregation.operation.of_nothing == 0:
            return pa.array(lengths, pa.int64())
        if self.order.single:
            return values.take(pa.array(starts[:-1], mask=lengths == 0))
        return pa.ListArray.from_arrays(
            list_offsets(lengths), values, type=list_type(self.value_type)
        )

    def check(self, states: pa.Array) -> bool:
        return True


@dataclass(frozen=True)
class Counts:
    """Every value with how often it occurs, by value; counts of zero are left out."""

    aggregation: Aggregation
    value_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return pa.struct(
            [
                pa.field("values", list_type(self.value_type)),
                pa.field("counts", list_type(pa.int64())),
            ]
        )

    @property
    def invertible(self) -> bool:
        return True

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        return self._add(canonical_values(values), np.ones(len(values), np.int64), groups, count)

    def _add(
        self, values: pa.Array, counts: np.ndarray, groups: np.ndarray, count: int
    ) -> pa.Array:
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
        columns = [_lists(starts, values.take(pa.array(rows))), _lists(starts, pa.array(sums))]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _parts(self, states: pa.Array) -> tuple[np.ndarray, pa.Array, np.ndarray]:
        """Offsets, values and counts of all states."""
        values, counts = states.flatten()
        starts, elements = list_parts(values)
        return starts, elements, list_parts(counts)[1].to_numpy(zero_copy_only=False)

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        starts, values, counts = self._parts(states)
        return self._add(values, counts, np.repeat(groups, np.diff(starts)), count)

    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array:
        n = len(states)
        starts, values, counts = self._parts(states)
        taken, less, without = self._parts(others)
        groups = np.repeat(np.tile(np.arange(n), 2), np.append(np.diff(starts), np.diff(taken)))
        both = pa.concat_arrays([values, less])
        return self._add(both, np.append(counts, -without), groups, n)

    def lower(self, states: pa.Array) -> pa.Array:
        starts, values, counts = self._parts(states)
        if (counts < 0).any():
            raise DataError(
                f"{self.aggregation.column}: more was subtracted from a state of "
                f"{self.aggregation.operation.name} than it held"
            )
        lengths = np.diff(starts)
        if self.aggregation.operation.of_nothing == 0:
            return pa.array(lengths, pa.int64())
        if self.aggregation.k is not None:
            owner, _ = enumerate_lists(lengths)
            order = np.lexsort((np.arange(counts.size), -counts, owner))
            _, within = enumerate_lists(lengths)
            order = order[within < self.aggregation.k]
            lengths = np.minimum(lengths, self.aggregation.k)
            values, counts = values.take(pa.array(order)), counts[order]
        return pa.MapArray.from_arrays(list_offsets(lengths), values, pa.array(counts))

    def check(self, states: pa.Array) -> bool:
        return True


def not_invertible(aggregation: Aggregation) -> DefinitionError:
    operation = aggregation.operation
    needs = "every value" if operation.law is Law.BASIC else "the values"
    return DefinitionError(
        f"{aggregation.column}: states of {operation.name} (class {operation.law.value}) cannot be "
        f"subtracted; rebuild them from {needs} that remain"
    )
