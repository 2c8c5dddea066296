"""The algebra of updates, against the oracle and by its laws."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import Oracle, Row, count_updates
from strategies import NAN, schemas, to_table, updates
from windrow.errors import DataError, SchemaError
from windrow.updates import (
    UPDATE_FIELDS,
    accumulate,
    advance,
    as_updates,
    consolidate,
    negate,
    row_columns,
    update_schema,
)

MOST = 2**63 - 1


@st.composite
def histories(draw: st.DrawFn) -> tuple[pa.Schema, list[Any], pa.Table]:
    """Updates as Python and as a table, sometimes of several chunks, behind an offset."""
    schema, values = draw(schemas())
    rows = draw(updates(values, 0, 5))
    table = to_table(rows, schema)
    cut = draw(st.integers(0, len(rows)))
    if draw(st.booleans()):
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    elif draw(st.booleans()):
        table = pa.concat_tables([table, table]).combine_chunks().slice(cut)
        rows = (rows + rows)[cut:]
    return schema, rows, table


def oracle_of(schema: pa.Schema, rows: list[Any]) -> Oracle:
    oracle = Oracle(schema)
    oracle.append(rows)
    return oracle


def truth(table: pa.Table) -> Counter[Row]:
    return count_updates(table, with_time=True)


@settings(max_examples=150)
@given(histories())
def test_consolidate_equals_the_oracle(history: tuple[pa.Schema, list[Any], pa.Table]) -> None:
    schema, rows, table = history
    found = consolidate(table)
    found.validate(full=True)
    expected = oracle_of(schema, rows).changes(0, 5)
    assert truth(found) == expected
    assert found.num_rows == len(expected)
    assert found.schema == update_schema(schema)
    assert 0 not in found.column("_diff").to_pylist()


@settings(max_examples=150)
@given(histories(), st.integers(-1, 6))
def test_accumulate_equals_the_oracle(
    history: tuple[pa.Schema, list[Any], pa.Table], as_of: int
) -> None:
    schema, rows, table = history
    found = accumulate(table, as_of)
    expected = oracle_of(schema, rows).snapshot(as_of)
    assert count_updates(found, with_time=False) == expected
    assert found.num_rows == len(expected)
    assert set(found.column("_time").to_pylist()) <= {as_of}


@settings(max_examples=100)
@given(histories(), st.integers(-1, 6))
def test_advance_equals_the_oracle(
    history: tuple[pa.Schema, list[Any], pa.Table], frontier: int
) -> None:
    schema, rows, table = history
    found = advance(table, frontier)
    assert found.num_rows == table.num_rows
    assert row_columns(found) == schema.names
    oracle = oracle_of(schema, rows)
    oracle.since = frontier
    assert truth(found) == oracle.changes(-1, 7)


@settings(max_examples=100)
@given(histories())
def test_negate_equals_the_oracle(history: tuple[pa.Schema, list[Any], pa.Table]) -> None:
    schema, rows, table = history
    undone = [(row, time, -diff) for row, time, diff in rows]
    assert truth(negate(table)) == oracle_of(schema, undone).changes(0, 5)


@settings(max_examples=150)
@given(histories(), st.integers(0, 5), st.integers(0, 5))
def test_laws(history: tuple[pa.Schema, list[Any], pa.Table], frontier: int, as_of: int) -> None:
    _, _, table = history
    once = consolidate(table)
    # In the same order too: consolidated updates are sorted by words that do not change.
    assert repr(consolidate(once).to_pylist()) == repr(once.to_pylist())
    assert repr(negate(negate(table)).to_pylist()) == repr(table.to_pylist())
    assert consolidate(pa.concat_tables([table, negate(table)])).num_rows == 0
    assert truth(consolidate(negate(table))) == truth(negate(once))
    assert truth(consolidate(pa.concat_tables([once, table]))) == truth(
        consolidate(pa.concat_tables([table, table]))
    )
    assert truth(consolidate(advance(once, frontier))) == truth(
        consolidate(advance(table, frontier))
    )
    frontier = min(frontier, as_of)
    assert truth(accumulate(advance(table, frontier), as_of)) == truth(accumulate(table, as_of))
    assert truth(accumulate(once, as_of)) == truth(accumulate(table, as_of))


def no_rows(schema: pa.Schema) -> list[pa.Table]:
    return [schema.empty_table(), pa.Table.from_batches([], schema)]


def test_empty_tables() -> None:
    schema = update_schema(pa.schema([("x", pa.float64()), ("y", pa.list_(pa.string()))]))
    for table in no_rows(schema):
        for found in (
            consolidate(table),
            negate(table),
            advance(table, 3),
            accumulate(table, 3),
        ):
            assert found.schema == schema
            assert found.num_rows == 0


def test_rows_without_columns_are_all_equal() -> None:
    table = pa.table({"_time": [1, 1, 2, 3], "_diff": [1, 2, 5, -8]})
    assert consolidate(table).to_pylist() == [
        {"_time": 1, "_diff": 3},
        {"_time": 2, "_diff": 5},
        {"_time": 3, "_diff": -8},
    ]
    assert accumulate(table, 2).to_pylist() == [{"_time": 2, "_diff": 8}]
    assert accumulate(table, 3).num_rows == 0
    assert negate(table).column("_diff").to_pylist() == [-1, -2, -5, 8]
    for empty in no_rows(pa.schema(UPDATE_FIELDS)):
        assert consolidate(empty).num_rows == accumulate(empty, 1).num_rows == 0


def test_update_columns_may_stand_anywhere() -> None:
    table = pa.table({"_diff": [1, 1], "x": [NAN, NAN], "_time": [4, 4], "y": [-0.0, 0.0]})
    found = consolidate(table)
    assert found.column_names == ["x", "y", "_time", "_diff"]
    assert found.column("_diff").to_pylist() == [2]
    assert advance(table, 9).column("_time").to_pylist() == [9, 9]


@pytest.mark.parametrize("diffs", [[MOST, 1], [-MOST, -2], [-MOST - 1, -1], [MOST, MOST, MOST]])
def test_counts_beyond_64_bits_are_refused(diffs: list[int]) -> None:
    table = pa.table({"x": ["a"] * len(diffs), "_time": [1] * len(diffs), "_diff": diffs})
    for work in (consolidate, lambda updates: accumulate(updates, 1)):
        with pytest.raises(DataError, match="exceeds 64 bits"):
            work(table)
    other_rows = table.set_column(0, "x", pa.array([str(n) for n in range(len(diffs))]))
    assert consolidate(other_rows).num_rows == len(diffs)


def test_counts_up_to_64_bits_are_exact() -> None:
    table = pa.table({"x": [1, 1, 2, 2], "_time": [1] * 4, "_diff": [MOST - 1, 1, -MOST, -1]})
    counts = {row["x"]: row["_diff"] for row in consolidate(table).to_pylist()}
    assert counts == {1: MOST, 2: -MOST - 1}
    assert negate(table).column("_diff").to_pylist() == [1 - MOST, -1, MOST, 1]
    with pytest.raises(DataError, match="cannot be negated"):
        negate(pa.table({"_time": [1], "_diff": [-MOST - 1]}))


@pytest.mark.parametrize("name", ["_time", "_diff"])
def test_a_null_time_or_diff_is_refused(name: str) -> None:
    columns = {"x": [1, 2], "_time": [1, 2], "_diff": [1, 1]} | {name: [None, 1]}
    table = pa.table({n: pa.array(values, pa.int64()) for n, values in columns.items()})
    for work in (consolidate, lambda updates: accumulate(updates, 5)):
        with pytest.raises(DataError, match=f"1 of 2 updates have a null '{name}'"):
            work(table)


def test_as_updates_fills_in_what_is_missing() -> None:
    schema = pa.schema([("x", pa.int64())])
    rows = pa.table({"x": [1, 2]})
    found = as_updates(rows, schema, default_time=7, where="here")
    assert found.to_pylist() == [
        {"x": 1, "_time": 7, "_diff": 1},
        {"x": 2, "_time": 7, "_diff": 1},
    ]
    with pytest.raises(SchemaError, match="here: column '_time' is missing"):
        as_updates(rows, schema, default_time=None, where="here")
    timed = rows.append_column("_time", pa.array([3, 4]))
    found = as_updates(timed, schema, default_time=7, where="here")
    assert found.column("_time").to_pylist() == [3, 4]


@pytest.mark.parametrize("name", ["_time", "_diff"])
def test_update_columns_have_one_type(name: str) -> None:
    table = pa.table({"x": [1], "_time": [1], "_diff": [1]})
    index = table.column_names.index(name)
    with pytest.raises(SchemaError, match=f"'{name}' is int32, the schema says int64"):
        consolidate(table.set_column(index, name, pa.array([1], pa.int32())))
