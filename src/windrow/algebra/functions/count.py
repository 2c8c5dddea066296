"""How many values there are."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from windrow.algebra.both import Both
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Held, Kind, Nothing
from windrow.algebra.law import Law
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.spans import SpannedColumn
from windrow.algebra.types import ANYTHING
from windrow.algebra.words import Part, Result, Words


@declare
@dataclass(frozen=True)
class Count(Function):
    """How many values are not null."""

    name = "count"
    law = Law.GROUP
    takes = ANYTHING
    of_nothing = 0
    code = 1

    def result(self, value: pa.DataType) -> pa.DataType:
        return pa.int64()

    def state(self, value: pa.DataType) -> Kind:
        return Nothing()

    def lower(self, held: Held) -> pa.Array:
        return pa.array(held.count)

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        return pa.array(ranges.end - ranges.start, pa.int64())

    def over_spans(self, column: SpannedColumn) -> pa.Array:
        return pa.array(column.spans.counts, pa.int64())

    def over_both(self, both: Both) -> pa.Array:
        return pa.array(both.counts, pa.int64())

    def words(self, value: pa.DataType) -> Words:
        return Words(Part.COUNT, Result.COUNT)
