"""Partial states that are exact sums: sum, avg, the moments, bool and/or.

Every field adds and subtracts without loss: counts as integers, sums as wide numbers (see `wide`).
NaN and infinities are counted apart, so that they can be subtracted again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import as_float64, as_int64
from windrow.algebra.codec import binary_array, binary_parts
from windrow.algebra.grouping import group_rows, group_sums
from windrow.algebra.kinds.kind import Columns, Held, Kind, Rows
from windrow.algebra.kinds.wide import (
    Bytes,
    add_wide,
    is_wide,
    multiply_wide,
    sum_halves,
    sum_powers,
    to_floats,
)
from windrow.rows.hashing import decimal_halves

t = pa.types
POWERS = ("total", "squares", "cubes", "fourths")
SPECIAL = ("nans", "infinities", "negative_infinities")
TRUES = "trues"


@dataclass(frozen=True)
class Numbers(Kind):
    """The sums of the first `powers` powers; or, of booleans, the number of trues."""

    value_type: pa.DataType
    powers: int = 0
    trues: bool = False

    @property
    def _as_floats(self) -> bool:
        """Whether values are summed as doubles, which may be NaN or infinite."""
        return self.powers > 1 or (self.powers == 1 and bool(t.is_floating(self.value_type)))

    @property
    def fields(self) -> list[pa.Field]:
        counts = [*(SPECIAL if self._as_floats else ()), *([TRUES] if self.trues else [])]
        return [
            *(pa.field(name, pa.int64()) for name in counts),
            *(pa.field(name, pa.binary()) for name in POWERS[: self.powers]),
        ]

    def lift(self, rows: Rows, count: int) -> Columns:
        if self.trues:
            return [_tally(rows, rows.values.to_numpy(zero_copy_only=False), count)]
        parts = _Parts.of(rows, count)
        if not self._as_floats:
            return [parts.sums(sum_halves, _halves(rows.values))]
        floats = as_float64(rows.values)
        odd = np.flatnonzero(~np.isfinite(floats))
        which = floats[odd]
        special = (np.isnan(which), which == np.inf, which == -np.inf)
        columns = [_tally(rows, odd[chosen], count) for chosen in special]
        bits = floats.view(np.int64)
        for power in range(1, self.powers + 1):
            columns.append(parts.sums(sum_powers, bits, power))
        return columns

    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        return self._add(columns, np.ones(groups.size, np.int64), groups, count)

    def invert(self, columns: Columns) -> Columns:
        size = len(columns[0])
        return self._add(columns, np.full(size, -1), np.arange(size), size)

    def _add(self, columns: Columns, signs: np.ndarray, groups: np.ndarray, count: int) -> Columns:
        added: Columns = []
        order, starts = group_rows(groups, count) if self.powers else (groups, groups)
        for column in columns:
            if t.is_int64(column.type):
                values = column.to_numpy(zero_copy_only=False) * signs
                added.append(pa.array(group_sums(values, groups, count)))
            else:
                sums = add_wide(*binary_parts(column), signs, order, starts)
                added.append(binary_array(*sums))
        return added

    def is_whole(self, held: Held) -> bool:
        counted = [held.integers(f.name) for f in self.fields if t.is_int64(f.type)]
        if any((number < 0).any() for number in counted):
            return False
        if counted and (np.sum(counted, axis=0) > held.count).any():
            return False
        sums = [binary_parts(held.columns[name])[0] for name in POWERS[: self.powers]]
        return not any((np.diff(offsets)[held.empty] > 0).any() for offsets in sums)

    def is_sound(self, held: Held) -> bool:
        """Whether the sums are wide numbers."""
        return all(
            is_wide(*binary_parts(held.columns[name]), power).all()
            for power, name in enumerate(POWERS[: self.powers], 1)
        )


@dataclass(frozen=True)
class _Parts:
    """Rows by what is summed together, and how these sums are added up to those of groups.

    Rows with diffs 1 and -1 are summed by group; rows with larger diffs one by one, and
    are multiplied. Without diffs the sums are those of groups already.
    """

    order: np.ndarray
    starts: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray
    count: int

    @staticmethod
    def of(rows: Rows, count: int) -> _Parts:
        groups, diffs = rows.groups, rows.diffs
        if diffs is None:
            order, starts = group_rows(groups, count)
            return _Parts(order, starts, None, groups, count)
        many = np.abs(diffs) != 1
        part = np.where(diffs < 0, groups + count, groups)
        part[many] = 2 * count + np.arange(np.count_nonzero(many))
        signs = np.repeat(np.array([1, -1]), count)
        order, starts = group_rows(part, 2 * count + np.count_nonzero(many))
        weights = np.concatenate([signs, diffs[many]])
        return _Parts(
            order,
            starts,
            weights,
            np.concatenate([np.tile(np.arange(count), 2), groups[many]]),
            count,
        )

    def sums(self, kernel: Callable[..., Bytes], values: np.ndarray, *power: int) -> pa.Array:
        offsets, data = kernel(values, self.order, self.starts, *power)
        if self.weights is not None:
            signs = self.weights
            if signs.size > 2 * self.count:
                offsets, data = multiply_wide(offsets, data, signs)
                signs = np.ones_like(signs)
            order, starts = group_rows(self.groups, self.count)
            offsets, data = add_wide(offsets, data, signs, order, starts)
        return binary_array(offsets, data)


def _tally(rows: Rows, chosen: np.ndarray, count: int) -> pa.Array:
    """How many of the chosen rows each group has."""
    groups = rows.groups[chosen]
    if rows.diffs is None:
        found = np.bincount(groups, minlength=count).astype(np.int64, copy=False)
    else:
        found = group_sums(rows.diffs[chosen], groups, count)
    return pa.array(found)


def _halves(values: pa.Array) -> np.ndarray:
    """Integers or decimals as (n, 2) uint64: low and high half of 128 bits."""
    if t.is_decimal(values.type):
        return np.ascontiguousarray(decimal_halves(values))
    numbers = as_int64(values)
    return np.stack([numbers, numbers >> 63], axis=1).view(np.uint64)


def float_sums(held: Held) -> np.ndarray:
    """The nearest doubles of sums; of decimals, of their unscaled values."""
    totals: np.ndarray = to_floats(*binary_parts(held.columns[POWERS[0]]))
    if SPECIAL[0] not in held.columns:
        return totals
    nans, up, down = (held.integers(name) > 0 for name in SPECIAL)
    totals = np.where(up, np.inf, np.where(down, -np.inf, totals))
    return np.where(nans | (up & down), np.nan, totals)
