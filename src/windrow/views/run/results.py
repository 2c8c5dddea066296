"""Results of groups, from their totals: rows of a group, and the state of each function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import DataError, WindrowError
from windrow.rows.types import single_chunk
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.updates import DIFF
from windrow.views.plan.nodes import Results
from windrow.views.plan.reductions import Accumulated, Extreme
from windrow.views.plan.texts import EVERYTHING
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
        columns.append(_lowered(one, states, type_, totals.rows.select(list(key))))
        place += width
    return columns


def states_of(one: Accumulated, rows: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
    """States from the columns that are kept of them. Of distinct values, each is a row."""
    counts = columns[0] if one.distinct else rows
    arrays = [counts, *columns]
    return pa.StructArray.from_arrays(arrays, fields=one.states.fields)


def _lowered(one: Accumulated, states: pa.Array, type_: pa.DataType, keys: pa.Table) -> pa.Array:
    """The results of states in the type that Spark gives them; `keys` are their groups."""

    def results(part: pa.Array) -> pa.Array:
        found = one.states.lower(part)
        return found if found.type == type_ else found.cast(type_)

    try:
        return results(states)
    except (WindrowError, pa.ArrowInvalid) as error:
        row = _first_failing(results, states)
        columns = [name for name in keys.column_names if name != EVERYTHING]
        group = {name: keys.column(name)[row].as_py() for name in columns}
        of = f" of the group {group}" if group else ""
        raise DataError(
            f"[ARITHMETIC_OVERFLOW] a result of {one.function.name}{of} does not fit "
            f"{_sql_name(type_)}; cast the values to DOUBLE, or to a smaller DECIMAL, first"
        ) from error


def _sql_name(type_: pa.DataType) -> str:
    (field,) = arrow_to_spark_schema(pa.schema([("result", type_)]))
    return str(field.dataType.simpleString()).upper()


def _first_failing(attempt: Callable[[pa.Array], Any], values: pa.Array) -> int:
    """The position of the first value with which an attempt fails, of which there is one."""
    start, end = 0, len(values)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            attempt(values.take(pa.array(np.arange(start, middle))))
            start = middle
        except (WindrowError, pa.ArrowInvalid):
            end = middle
    return start
