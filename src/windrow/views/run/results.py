"""Results of groups, from their totals: rows of a group, and the state of each function."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from windrow.errors import DataError
from windrow.rows.types import single_chunk
from windrow.updates import DIFF
from windrow.views.plan.nodes import Results
from windrow.views.plan.reductions import Accumulated, Extreme
from windrow.views.run.weighted import Weighted


def results_of(about: Results, schema: pa.Schema, totals: Weighted) -> Weighted:
    """Groups and their results, from totals that were looked up: an arrangement by group.

    `schema` has the columns of the group first.
    """
    key = schema.names[: len(schema) - len(about.types)]
    keys = [single_chunk(totals.rows.column(name)) for name in key]
    columns = [*keys, *lowered(about.functions, about.types, key, totals)]
    rows = pa.table(columns, schema=schema)
    return Weighted.of(rows.append_column(DIFF, pa.array(totals.weights)))


def lowered(
    functions: Sequence[Accumulated | Extreme],
    types: Sequence[pa.DataType],
    key: Sequence[str],
    totals: Weighted,
) -> list[pa.Array]:
    """The result of each function, from the states that are kept of it."""
    stored = [single_chunk(c) for c in totals.rows.drop_columns(list(key)).columns]
    columns = []
    place = 1
    for one, type_ in zip(functions, types, strict=True):
        if isinstance(one, Extreme):
            columns.append(stored[place])
            place += 1
            continue
        width = len(one.fields)
        states = states_of(one, stored[0], stored[place : place + width])
        columns.append(_cast(one.states.lower(states), type_, one.function.name))
        place += width
    return columns


def states_of(one: Accumulated, rows: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
    """States from the columns that are kept of them. Of distinct values, each is a row."""
    counts = columns[0] if one.distinct else rows
    arrays = [counts, *columns]
    return pa.StructArray.from_arrays(arrays, fields=one.states.fields)


def _cast(result: pa.Array, type_: pa.DataType, name: str) -> pa.Array:
    if result.type == type_:
        return result
    try:
        return result.cast(type_)
    except pa.ArrowInvalid as error:
        raise DataError(f"[ARITHMETIC_OVERFLOW] a result of {name} does not fit {type_}") from error
