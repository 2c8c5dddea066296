"""Aggregations over the values of their column: by ranges, or by spans."""

from __future__ import annotations

import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.spans import SpannedColumn
from windrow.algebra.states import States, about


def evaluate(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    """The result for each range of the column's values, of the function's result type."""
    with about(aggregation.column):
        found = aggregation.function.over_ranges(column, ranges)
    return _typed(aggregation, found, column.values.type)


def evaluate_spans(aggregation: Aggregation, column: SpannedColumn) -> pa.Array:
    """The result for each query, of the function's result type."""
    with about(aggregation.column):
        found = aggregation.function.over_spans(column)
    return _typed(aggregation, found, column.values.type)


def _typed(aggregation: Aggregation, found: pa.Array, value_type: pa.DataType) -> pa.Array:
    expected = aggregation.function.result(value_type)
    return found if found.type == expected else found.cast(expected)


def states_of(aggregation: Aggregation, value_type: pa.DataType) -> States:
    """The partial states of an aggregation over values of a type."""
    return States.of(aggregation.function, value_type, aggregation.column)
