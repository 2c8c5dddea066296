"""How many different values there are, and how often each occurs.

Over ranges a multiset of the window's values is kept: add what enters, remove what leaves. With
all values of a window at hand the exact answer costs no more than a sketch, and is within any
error: estimates appear where partial states are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from datasketches import frequent_items_error_type

from windrow.algebra.arrays import enumerate_lists, maps_of
from windrow.algebra.function import Function, Limited, check_k
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.sketches import SKETCH, Frequents, Uniques, values_of_text
from windrow.algebra.kinds.values import Bests, Counts, Order, value_counts, value_lists
from windrow.algebra.law import Law
from windrow.algebra.multiset import range_distinct, range_histograms
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.types import SCALARS
from windrow.rows.ordering import exact


def _codes(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Codes in the order of values, and for each code a position that holds its value."""
    _, first, codes = np.unique(exact(values), return_index=True, return_inverse=True)
    return codes.astype(np.int64), first


@dataclass(frozen=True)
class Distinct(Function):
    """The number of different values."""

    takes = SCALARS
    of_nothing = 0

    def result(self, value: pa.DataType) -> pa.DataType:
        return pa.int64()

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        codes, first = _codes(column.values)
        counts = range_distinct(codes, first.size, ranges.start, ranges.end)
        return pa.array(counts, pa.int64())


@dataclass(frozen=True)
class Frequencies(Function):
    """A map from values to how often they occur."""

    takes = SCALARS

    def result(self, value: pa.DataType) -> pa.DataType:
        return pa.map_(value, pa.int64())

    def _over_ranges(self, column: Column, ranges: Ranges, k: int | None) -> pa.Array:
        """Of all values, or of the k most frequent, the smaller of those that are so equally."""
        codes, first = _codes(column.values)
        found, counts, lengths = range_histograms(
            codes, first.size, ranges.start, ranges.end, k or 0
        )
        return maps_of(column.values.take(pa.array(first[found])), counts, lengths)


@dataclass(frozen=True)
class Counted(Function):
    """A function of every value with its count."""

    law = Law.GROUP
    code = 18

    def state(self, value: pa.DataType) -> Kind:
        return Counts(value)


@declare
@dataclass(frozen=True)
class UniqueCount(Counted, Distinct):
    """How many distinct values there are, exactly."""

    name = "unique_count"

    def lower(self, held: Held) -> pa.Array:
        return pa.array(np.diff(value_lists(held)[0]))


@declare
@dataclass(frozen=True)
class BoundedUniqueCount(Limited, Distinct):
    """How many distinct values there are, but at most k."""

    name = "bounded_unique_count"
    law = Law.ORDER
    code = 16

    def state(self, value: pa.DataType) -> Kind:
        return Bests(value, Order(unique=True), self.k)

    def lower(self, held: Held) -> pa.Array:
        return pa.array(np.diff(value_lists(held)[0]))

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        counts = super().over_ranges(column, ranges)
        return pa.array(np.minimum(counts.to_numpy(), self.k))


@declare
@dataclass(frozen=True)
class ApproxUniqueCount(Distinct):
    """About how many distinct values there are."""

    name = "approx_unique_count"
    law = Law.LATTICE
    code = 20

    def state(self, value: pa.DataType) -> Kind:
        return Uniques(value)

    def lower(self, held: Held) -> pa.Array:
        kind = Uniques(held.value_type)
        sketches = held.columns[SKETCH].to_pylist()
        estimates = [round(kind.opened(data).get_estimate()) if data else 0 for data in sketches]
        return pa.array(estimates, pa.int64())


@declare
@dataclass(frozen=True)
class Histogram(Counted, Frequencies):
    """How often each value occurs; with `k`, of the k most frequent values."""

    name = "histogram"

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            check_k(self.name, self.k)

    @property
    def label(self) -> str:
        return self.name if self.k is None else f"{self.name}_{self.k}"

    def lower(self, held: Held) -> pa.Array:
        starts, values, counts = value_counts(held)
        lengths = np.diff(starts)
        if self.k is not None:
            owner, within = enumerate_lists(lengths)
            order = np.lexsort((np.arange(counts.size), -counts, owner))[within < self.k]
            lengths = np.minimum(lengths, self.k)
            values, counts = values.take(pa.array(order)), counts[order]
        return maps_of(values, counts, lengths)

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        return self._over_ranges(column, ranges, self.k)


@declare
@dataclass(frozen=True)
class ApproxFrequentK(Limited, Frequencies):
    """About the k most frequent values and how often they occur."""

    name = "approx_frequent_k"
    law = Law.MONOID
    code = 21

    def state(self, value: pa.DataType) -> Kind:
        return Frequents(value, self.k)

    def lower(self, held: Held) -> pa.Array:
        kind, error = Frequents(held.value_type, self.k), frequent_items_error_type
        texts: list[str] = []
        counts: list[int] = []
        owner: list[int] = []
        for i, data in enumerate(held.columns[SKETCH].to_pylist()):
            if data:
                items = kind.opened(data).get_frequent_items(error.NO_FALSE_NEGATIVES)
                texts += [item[0] for item in items]
                counts += [item[1] for item in items]
                owner += [i] * len(items)
        values = values_of_text(texts, held.value_type)
        numbers, groups = np.array(counts, np.int64), np.array(owner, np.int64)
        order = np.lexsort((exact(values), -numbers, groups))
        sizes = np.bincount(groups, minlength=held.count.size)
        _, within = enumerate_lists(sizes)
        order = order[within < self.k]
        return maps_of(values.take(pa.array(order)), numbers[order], np.minimum(sizes, self.k))

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        return self._over_ranges(column, ranges, self.k)
