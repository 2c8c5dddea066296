"""Approximate percentiles, from KLL sketches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import as_float64, lists_of
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.sketches import NANS, SKETCH, Percentiles
from windrow.algebra.law import Law
from windrow.algebra.quantiles import quantiles, sketch_quantiles
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.types import NUMBERS, list_type
from windrow.errors import DefinitionError


@declare
@dataclass(frozen=True)
class ApproxPercentile(Function):
    """About the values below which these fractions (0 to 1) of all values lie."""

    name = "approx_percentile"
    law = Law.MONOID
    takes = NUMBERS
    code = 19

    percentiles: Sequence[float] = (0.5,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "percentiles", _checked(self.percentiles))

    def result(self, value: pa.DataType) -> pa.DataType:
        return list_type(pa.float64())

    def state(self, value: pa.DataType) -> Kind:
        return Percentiles(value)

    def lower(self, held: Held) -> pa.Array:
        kind, fractions = Percentiles(held.value_type), list(self.percentiles)
        nans, sketches = held.integers(NANS).tolist(), held.columns[SKETCH].to_pylist()
        found = [
            sketch_quantiles(kind.opened(data) if data else None, nan, fractions)
            for data, nan in zip(sketches, nans, strict=True)
            if data or nan
        ]
        flat = np.concatenate(found) if found else np.zeros(0)
        return lists_of(pa.array(flat), np.where(held.empty, 0, len(fractions)))

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        fractions = list(self.percentiles)
        found = quantiles(as_float64(column.values), ranges.start, ranges.end, fractions)
        lengths = np.where(ranges.empty, 0, len(fractions))
        return lists_of(pa.array(found[~ranges.empty].ravel()), lengths)


def _checked(values: Any) -> tuple[float, ...]:
    given = tuple(values) if isinstance(values, Iterable) else ()
    if not given or not all(isinstance(v, int | float) and 0 <= v <= 1 for v in given):
        shown = list(given) if isinstance(values, Iterable) else values
        raise DefinitionError(
            f"agg.approx_percentile: percentiles are {shown}; give numbers from 0 to 1, in a list"
        )
    return given
