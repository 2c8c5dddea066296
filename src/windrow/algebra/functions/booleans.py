"""Whether all, or any, of some booleans are true: from the count of those that are."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import null_where
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.numbers import TRUES, Numbers
from windrow.algebra.law import Law
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.spans import SpannedColumn, Spans
from windrow.algebra.types import BOOLEANS
from windrow.algebra.words import Part, Result, Words


@dataclass(frozen=True)
class Truth(Function):
    """A function of the counts of values, and of those that are true."""

    law = Law.GROUP
    takes = BOOLEANS
    code = 6

    @abstractmethod
    def _of(self, trues: np.ndarray, counts: np.ndarray) -> np.ndarray: ...

    def result(self, value: pa.DataType) -> pa.DataType:
        return value

    def state(self, value: pa.DataType) -> Kind:
        return Numbers(value, trues=True)

    def lower(self, held: Held) -> pa.Array:
        result = self._of(held.integers(TRUES), held.count)
        return null_where(result, held.empty, pa.bool_())

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        trues = np.concatenate([[0], np.cumsum(column.values.to_numpy(zero_copy_only=False))])
        found = (trues[ranges.end] - trues[ranges.start]).astype(np.int64)
        return null_where(self._of(found, ranges.end - ranges.start), ranges.empty, pa.bool_())

    def over_spans(self, column: SpannedColumn) -> pa.Array:
        spans, counts = column.spans, column.spans.counts
        chosen = column.values.to_numpy(zero_copy_only=False)
        trues = Spans(spans.first[chosen], spans.last[chosen], spans.queries).counts
        return null_where(self._of(trues, counts), counts == 0, pa.bool_())


@declare
@dataclass(frozen=True)
class BoolAnd(Truth):
    """Whether all values are true."""

    name = "bool_and"

    def _of(self, trues: np.ndarray, counts: np.ndarray) -> np.ndarray:
        every: np.ndarray = trues == counts
        return every

    def words(self, value: pa.DataType) -> Words:
        return Words(Part.TRUES, Result.ALL_TRUE)


@declare
@dataclass(frozen=True)
class BoolOr(Truth):
    """Whether any value is true."""

    name = "bool_or"

    def _of(self, trues: np.ndarray, counts: np.ndarray) -> np.ndarray:
        some: np.ndarray = trues > 0
        return some

    def words(self, value: pa.DataType) -> Words:
        return Words(Part.TRUES, Result.ANY_TRUE)
