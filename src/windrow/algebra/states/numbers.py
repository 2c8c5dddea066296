"""Partial states that are counts and exact sums: count, sum, avg, the moments, bool and/or.

Every field adds and subtracts without loss: counts as integers, sums as wide numbers (see
`wide`). NaN and infinities are counted apart, so that they go as they came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.states.codec import binary_array, binary_parts
from windrow.algebra.states.moments import moment
from windrow.algebra.states.wide import (
    add_wide,
    group_rows,
    is_wide,
    sum_halves,
    sum_powers,
    to_floats,
    to_halves,
)
from windrow.errors import DataError
from windrow.rows.hashing import decimal_halves

t = pa.types
POWERS = ("total", "squares", "cubes", "fourths")
SPECIAL = ("nans", "infinities", "negative_infinities")
_LIMIT = 10**38  # the first unscaled value that DECIMAL(38, s) cannot hold


def number_fields(value_type: pa.DataType, powers: int, trues: bool) -> pa.DataType:
    """The type of a state with the sums of `powers` powers, or the count of trues."""
    names = ["count"]
    if powers > 1 or (powers and t.is_floating(value_type)):
        names += SPECIAL
    if trues:
        names.append("trues")
    fields = [pa.field(name, pa.int64()) for name in names]
    return pa.struct([*fields, *(pa.field(name, pa.binary()) for name in POWERS[:powers])])


def _sum_groups(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    out = np.zeros(count, np.int64)
    np.add.at(out, groups, values)
    return out


@dataclass(frozen=True)
class Numbers:
    """States of counts and sums; `type` decides which."""

    aggregation: Aggregation
    value_type: pa.DataType
    type: pa.DataType

    @property
    def invertible(self) -> bool:
        return True

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        names = [field.name for field in self.type]
        columns = {"count": np.bincount(groups, minlength=count)}
        if "trues" in names:
            flags = values.to_numpy(zero_copy_only=False)
            columns["trues"] = np.bincount(groups[flags], minlength=count)
        sums: dict[str, pa.Array] = {}
        if "total" in names:
            order, starts = group_rows(groups, count)
            if "nans" in names:
                floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                odd = np.flatnonzero(~np.isfinite(floats))
                which, where = floats[odd], groups[odd]
                for name, chosen in zip(
                    SPECIAL, (np.isnan(which), which == np.inf, which == -np.inf), strict=True
                ):
                    columns[name] = np.bincount(where[chosen], minlength=count)
                bits = floats.view(np.int64)
                for power, name in enumerate(POWERS, 1):
                    if name in names:
                        sums[name] = binary_array(*sum_powers(bits, order, starts, power))
            else:
                sums["total"] = binary_array(*sum_halves(_halves(values), order, starts))
        return self._made({n: pa.array(c.astype(np.int64)) for n, c in columns.items()} | sums)

    def _made(self, columns: dict[str, pa.Array]) -> pa.Array:
        fields = list(self.type)
        return pa.StructArray.from_arrays([columns[f.name] for f in fields], fields=fields)

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        return self._add(states, np.ones(len(states), np.int64), groups, count)

    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array:
        n = len(states)
        signs = np.repeat(np.array([1, -1]), n)
        return self._add(pa.concat_arrays([states, others]), signs, np.tile(np.arange(n), 2), n)

    def _add(self, states: pa.Array, signs: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        order, starts = group_rows(groups, count)
        columns: dict[str, pa.Array] = {}
        for field, column in zip(self.type, states.flatten(), strict=True):
            if t.is_int64(field.type):
                values = column.to_numpy(zero_copy_only=False) * signs
                columns[field.name] = pa.array(_sum_groups(values, groups, count))
            else:
                added = add_wide(*binary_parts(column), signs, order, starts)
                columns[field.name] = binary_array(*added)
        return self._made(columns)

    def lower(self, states: pa.Array) -> pa.Array:
        columns = dict(zip([f.name for f in self.type], states.flatten(), strict=True))
        numbers = {
            name: column.to_numpy(zero_copy_only=False)
            for name, column in columns.items()
            if t.is_int64(column.type)
        }
        if any((column < 0).any() for column in numbers.values()):
            raise DataError(
                f"{self.aggregation.column}: more was subtracted from a state of "
                f"{self.aggregation.operation.name} than it held"
            )
        name = self.aggregation.operation.name
        count = numbers["count"]
        empty = count == 0
        if name == "count":
            return columns["count"]
        if name == "bool_and":
            return pa.array(numbers["trues"] == count, mask=empty)
        if name == "bool_or":
            return pa.array(numbers["trues"] > 0, mask=empty)
        sums = [binary_parts(columns[power]) for power in POWERS if power in columns]
        if name == "sum" and not t.is_floating(self.value_type):
            return self._whole_sums(sums[0], empty)
        if name in ("sum", "avg"):
            totals = to_floats(*sums[0])
            if numbers.keys() & SPECIAL:
                totals = _with_special(totals, numbers)
            with np.errstate(all="ignore"):
                if name == "avg":
                    totals = totals / np.maximum(count, 1)
                    if t.is_decimal(self.value_type):
                        totals = totals / 10.0**self.value_type.scale
            return pa.array(totals, pa.float64(), mask=empty)
        return self._moments(sums, numbers)

    def _moments(
        self, sums: list[tuple[np.ndarray, np.ndarray]], numbers: dict[str, np.ndarray]
    ) -> pa.Array:
        name = self.aggregation.operation.name
        count = numbers["count"]
        special = numbers["nans"] + numbers["infinities"] + numbers["negative_infinities"] > 0
        result = moment(name, count, sums)
        nothing = count < (2 if name.endswith("_samp") else 1)
        if name in ("skewness", "kurtosis"):
            # Without a spread there is no shape: 0 / 0 is the only NaN that finite sums give.
            nothing = nothing | (np.isnan(result) & ~special)
        if not name.startswith("var"):
            # A variance that DOUBLE does not hold is infinite, and what is derived from it is as
            # in DOUBLE's arithmetic, though wide sums would know better.
            beyond = np.isinf(moment("var_pop", count, sums[:2]))
            shape = name in ("skewness", "kurtosis")
            result = np.where(beyond, np.nan if shape else np.inf, result)
        return pa.array(np.where(special, np.nan, result), pa.float64(), mask=nothing)

    def _whole_sums(self, sums: tuple[np.ndarray, np.ndarray], empty: np.ndarray) -> pa.Array:
        halves, fits = to_halves(*sums)
        low, high = halves[:, 0], halves[:, 1].view(np.int64)
        if t.is_decimal(self.value_type):
            # |sum| < 10**38: compare the magnitude's halves.
            negative = high < 0
            magnitude_low = np.where(negative, ~low + np.uint64(1), low)
            magnitude_high = np.where(negative, ~high + (magnitude_low == 0), high)
            top, rest = np.int64(_LIMIT >> 64), np.uint64(_LIMIT & (2**64 - 1))
            fits &= (magnitude_high >= 0) & (
                (magnitude_high < top) | ((magnitude_high == top) & (magnitude_low < rest))
            )
            self._check(fits, "DECIMAL(38)")
            type_ = pa.decimal128(38, self.value_type.scale)
            valid = pa.array(~empty).buffers()[1]
            return pa.Array.from_buffers(type_, empty.size, [valid, pa.py_buffer(halves)])
        found = np.ascontiguousarray(low).view(np.int64)
        self._check(fits & (high == found >> 63), "BIGINT")
        return pa.array(found, pa.int64(), mask=empty)

    def _check(self, fits: np.ndarray, type_: str) -> None:
        if not fits.all():
            raise DataError(
                f"{self.aggregation.column}: a sum does not fit {type_}; cast the column to "
                "DOUBLE or to a smaller DECIMAL in the source's select"
            )

    def check(self, states: pa.Array) -> bool:
        """Whether the sums of states that were read are wide numbers."""
        columns = [c for c in states.flatten() if t.is_binary(c.type)]
        return all(
            is_wide(*binary_parts(column), power).all() for power, column in enumerate(columns, 1)
        )


def _halves(values: pa.Array) -> np.ndarray:
    """Integers or decimals as (n, 2) uint64: low and high half of 128 bits."""
    if t.is_decimal(values.type):
        return np.ascontiguousarray(decimal_halves(values))
    numbers = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.stack([numbers, numbers >> 63], axis=1).view(np.uint64)


def _with_special(totals: np.ndarray, numbers: dict[str, np.ndarray]) -> np.ndarray:
    up, down = numbers["infinities"] > 0, numbers["negative_infinities"] > 0
    totals = np.where(up, np.inf, np.where(down, -np.inf, totals))
    return np.where((numbers["nans"] > 0) | (up & down), np.nan, totals)
