"""Updates: `(row, time, diff)`, the one currency of Windrow.

A collection of updates is an Arrow table of the row's own columns plus `_time` (int64
milliseconds since the epoch) and `_diff` (int64). At `_time`, `_diff` copies of the row appear,
or disappear where it is negative. Rows are equal as in Spark's GROUP BY: NULL equals NULL, NaN
equals NaN, -0.0 equals 0.0.

>>> import pyarrow as pa
>>> log = pa.table({"city": ["Bern", "Bern", "Oslo"], "_time": [1, 2, 2], "_diff": [1, -1, 1]})
>>> accumulate(log, as_of=1).to_pylist()
[{'city': 'Bern', '_time': 1, '_diff': 1}]
>>> accumulate(log, as_of=2).to_pylist()
[{'city': 'Oslo', '_time': 2, '_diff': 1}]
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.errors import DataError, SchemaError
from windrow.rows.hashing import hash_rows
from windrow.rows.types import canonical_schema, conform
from windrow.words.consolidation import consolidate_words

TIME = "_time"
DIFF = "_diff"
UPDATE_FIELDS = (pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()))


def update_schema(row_schema: pa.Schema) -> pa.Schema:
    """The columns of updates whose rows have `row_schema`."""
    return pa.schema([*row_schema, *UPDATE_FIELDS])


def row_columns(updates: pa.Table) -> list[str]:
    return [name for name in updates.column_names if name not in (TIME, DIFF)]


def as_updates(
    data: pa.Table, row_schema: pa.Schema, *, default_time: int | None, where: str
) -> pa.Table:
    """`data` as canonical updates: columns of `row_schema`, then `_time` and `_diff`.

    Rows without `_diff` are insertions; rows without `_time` happen at `default_time`. Raises
    SchemaError for columns that do not fit and DataError for a null time or diff.
    """
    if DIFF not in data.column_names:
        data = data.append_column(UPDATE_FIELDS[1], pa.array(np.ones(data.num_rows, np.int64)))
    if TIME not in data.column_names:
        if default_time is None:
            raise SchemaError(f"{where}: column '_time' is missing")
        times = np.full(data.num_rows, default_time, np.int64)
        data = data.append_column(UPDATE_FIELDS[0], pa.array(times))
    updates = conform(data, update_schema(row_schema), where)
    for name in (TIME, DIFF):
        nulls = updates.column(name).null_count
        if nulls:
            raise DataError(f"{where}: {nulls} of {updates.num_rows} updates have a null {name!r}")
    return updates


def int64_values(updates: pa.Table, name: str) -> np.ndarray:
    """A column of int64 as NumPy. Raises DataError if it holds nulls."""
    column = updates.column(name)
    if column.null_count:
        raise DataError(f"{column.null_count} of {len(column)} updates have a null {name!r}")
    if column.num_chunks == 1:
        values: np.ndarray = column.chunk(0).to_numpy()
    else:
        values = column.to_numpy()
    return values


def replace_column(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    index = table.column_names.index(name)
    return table.set_column(index, table.schema.field(index), pa.array(values))


def consolidate(updates: pa.Table) -> pa.Table:
    """Each (row, time) once, with the sum of its diffs; sums of zero are dropped.

    >>> import pyarrow as pa
    >>> log = pa.table({"x": [0.0, -0.0, None], "_time": [1, 1, 1], "_diff": [2, -1, 1]})
    >>> sorted(consolidate(log).column("_diff").to_pylist())
    [1, 1]
    """
    names = row_columns(updates)
    schema = canonical_schema(updates.select(names).schema)
    updates = as_updates(updates, schema, default_time=None, where="consolidate")
    times, diffs = int64_values(updates, TIME), int64_values(updates, DIFF)
    columns = [updates.column(name).chunk(0) for name in names]
    hashes = hash_rows(columns) if columns else np.zeros(updates.num_rows, np.int64)
    words = np.vstack([hashes, times])
    found = consolidate_words(words, diffs, columns)
    kept = updates.take(pa.array(found.rows))
    return replace_column(kept, DIFF, found.diffs)


def negate(updates: pa.Table) -> pa.Table:
    """The updates that undo `updates`.

    >>> import pyarrow as pa
    >>> log = pa.table({"x": [1], "_time": [5], "_diff": [3]})
    >>> negate(log).to_pylist()
    [{'x': 1, '_time': 5, '_diff': -3}]
    """
    diffs = int64_values(updates, DIFF)
    if diffs.size and diffs.min() == np.iinfo(np.int64).min:
        raise DataError("a _diff of -2**63 cannot be negated in 64 bits")
    return replace_column(updates, DIFF, -diffs)


def advance(updates: pa.Table, frontier: int) -> pa.Table:
    """Times before `frontier` become `frontier`: history before it can no longer be told apart.

    >>> import pyarrow as pa
    >>> log = pa.table({"x": [1, 2], "_time": [3, 9], "_diff": [1, 1]})
    >>> advance(log, 5).column("_time").to_pylist()
    [5, 9]
    """
    return replace_column(updates, TIME, np.maximum(int64_values(updates, TIME), frontier))


def accumulate(updates: pa.Table, as_of: int) -> pa.Table:
    """The collection at time `as_of`: each row once, its multiplicity in `_diff`."""
    past = updates.filter(pa.array(int64_values(updates, TIME) <= as_of))
    return consolidate(advance(past, as_of))
