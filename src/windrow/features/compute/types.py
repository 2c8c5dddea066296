"""The types of features, from the types of the columns that they are computed over."""

from __future__ import annotations

import pyarrow as pa

from windrow.algebra.aggregation import Aggregation

t = pa.types


def input_type(column: pa.DataType) -> pa.DataType:
    """The type of the values that a column contributes: elements of lists, values of maps."""
    if t.is_map(column):
        return column.item_type
    return column.value_type if t.is_list(column) else column


def feature_type(aggregation: Aggregation, inputs: pa.Schema, where: str) -> pa.DataType:
    """The type of an aggregation's result, given the types of the columns it reads."""
    column = inputs.field(aggregation.column).type
    result = aggregation.function.result_type(input_type(column), where)
    if t.is_map(column):
        result = pa.map_(column.key_type, result)
    if aggregation.bucket is not None:
        result = pa.map_(inputs.field(aggregation.bucket).type, result)
    return result
