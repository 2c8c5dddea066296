"""equal_pairs against equality in plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semantics import SCALAR_TYPES, any_values, deep_fields, grouped
from windrow.rows.equality import equal_pairs
from windrow.rows.types import canonical_values


def embedded(array: pa.Array, before: int, after: int) -> pa.Array:
    """`array` in the middle of a longer one, as a slice."""
    whole = pa.concat_arrays([array.slice(0, before), array, array.slice(0, after)])
    return whole.slice(min(before, len(array)), len(array))


@settings(max_examples=200)
@given(st.data())
def test_pairs_are_equal_where_spark_groups_them(data: st.DataObject) -> None:
    fields = data.draw(st.lists(deep_fields(), min_size=1, max_size=3))
    # Rows are picks from a few values of each column: equal and nearly equal ones abound.
    pools = [[None, *data.draw(st.lists(values, min_size=2, max_size=4))] for _, values in fields]
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = [tuple(pool[random.integers(len(pool))] for pool in pools) for _ in range(12)]
    columns = []
    for n, (type_, _) in enumerate(fields):
        array = pa.array([values[n] for values in rows], type_)
        before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
        if data.draw(st.booleans()):
            columns.append(embedded(canonical_values(array), before, after))
        else:
            columns.append(canonical_values(embedded(array, before, after)))
    left, right = random.integers(0, len(rows), (2, 100))
    same = [
        tuple(grouped(value, type_) for value, (type_, _) in zip(values, fields, strict=True))
        for values in rows
    ]
    expected = [same[a] == same[b] for a, b in zip(left, right, strict=True)]
    assert equal_pairs(columns, left, right).tolist() == expected


@pytest.mark.parametrize("type_", SCALAR_TYPES, ids=str)
@settings(max_examples=30)
@given(data=st.data())
def test_all_pairs_of_scalars(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(any_values(type_), max_size=12))
    array = canonical_values(pa.array(values, type_))
    left, right = (side.ravel() for side in np.indices((len(values), len(values))))
    same = [grouped(value, type_) for value in values]
    expected = [same[a] == same[b] for a, b in zip(left, right, strict=True)]
    assert equal_pairs([array], left, right).tolist() == expected


def all_pairs(column: pa.Array) -> list[list[bool]]:
    left, right = (side.ravel() for side in np.indices((len(column), len(column))))
    return equal_pairs([column], left, right).reshape(len(column), -1).tolist()


def test_what_lies_beneath_a_null_does_not_count() -> None:
    valid = pa.array([True, False, False])
    children = [pa.array([1, 2, 3]), pa.array(["a", "b", None])]
    structs = pa.StructArray.from_arrays(children, names=["a", "b"], mask=pa.array([False] * 3))
    hidden = pa.StructArray.from_buffers(structs.type, 3, [valid.buffers()[1]], children=children)
    assert hidden.to_pylist() == [{"a": 1, "b": "a"}, None, None]
    assert all_pairs(hidden) == [[True, False, False], [False, True, True], [False, True, True]]

    offsets = pa.py_buffer(np.array([0, 2, 3, 5], np.int32))
    values = pa.array([1, 2, 1, 3, 4])
    lists = pa.ListArray.from_buffers(
        pa.list_(pa.int64()), 3, [valid.buffers()[1], offsets], children=[values]
    )
    assert lists.to_pylist() == [[1, 2], None, None]
    assert all_pairs(lists) == [[True, False, False], [False, True, True], [False, True, True]]
    assert all_pairs(lists.slice(1)) == [[True, True], [True, True]]


def test_lists_that_begin_alike_are_not_equal() -> None:
    column = pa.array([[1], [1, 2], [1, None], [], None, [1, 2]])
    same = [["1"], ["1", "2"], ["1", "-"], [], None, ["1", "2"]]
    assert all_pairs(column) == [[a == b for b in same] for a in same]


def test_no_pairs_and_no_columns() -> None:
    nothing = np.zeros(0, np.int64)
    assert equal_pairs([pa.array([1])], nothing, nothing).tolist() == []
    assert equal_pairs([pa.array([], pa.string())], nothing, nothing).tolist() == []
    # Rows without columns are all the same row.
    assert equal_pairs([], np.array([0, 1]), np.array([1, 0])).tolist() == [True, True]
