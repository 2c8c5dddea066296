"""Columns as integers: in the order of the values, as Spark sorts them."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semantics import SCALAR_TYPES, any_values, decimals, order_key, scalar_values
from strategies import NAN
from windrow.errors import SchemaError
from windrow.rows.ordering import (
    LOWEST,
    check_orderable,
    coarse,
    coarse_scalar,
    exact,
    exact_words,
    is_lossless,
)
from windrow.rows.types import canonical_values
from windrow.spark.schemas import arrow_to_spark_schema

TYPES = [*SCALAR_TYPES, pa.decimal128(18, 4), pa.decimal128(19, 4)]


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if type_ in SCALAR_TYPES:
        return any_values(type_)
    return st.none() | decimals(type_.precision, type_.scale)


def ranks(keys: list[Any]) -> list[int]:
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return [places[key] for key in keys]


def check_order(array: pa.Array, values: list[Any]) -> None:
    keys = [order_key(value) for value in values]
    rough, fine = coarse(array), exact(array)
    assert rough.dtype == fine.dtype == np.int64
    assert ranks(fine.tolist()) == ranks(keys)
    by_value = sorted(range(len(values)), key=lambda i: keys[i])
    for a, b in itertools.pairwise(by_value):
        assert rough[a] <= rough[b]
        assert keys[a] != keys[b] or rough[a] == rough[b]
    if is_lossless(array.type) and not array.null_count:
        assert ranks(rough.tolist()) == ranks(keys)
    assert [coarse_scalar(value, array.type) for value in values] == rough.tolist()


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=50)
@given(data=st.data())
def test_integers_are_in_the_order_of_values(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(values_of(type_), max_size=20))
    cut = data.draw(st.integers(0, len(values)))
    array = canonical_values(pa.array(values, type_))
    check_order(array, values)
    check_order(array.slice(cut), values[cut:])
    check_order(array.slice(0, cut), values[:cut])


@pytest.mark.parametrize("type_", SCALAR_TYPES, ids=str)
def test_integers_are_in_the_order_of_spark(spark: Any, type_: pa.DataType) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    values = [None, *scalar_values(type_), *scalar_values(type_)[::-1], None]
    table = pa.table({"x": pa.array(values, type_), "i": pa.array(range(len(values)))})
    frame = spark.createDataFrame(table, schema=arrow_to_spark_schema(table.schema))
    ranked = frame.select("i", F.dense_rank().over(Window.orderBy("x")).alias("rank"))
    found = {row["i"]: row["rank"] for row in ranked.collect()}
    theirs = [found[i] - 1 for i in range(len(values))]
    array = canonical_values(table.column("x").chunk(0))
    assert ranks(exact(array).tolist()) == theirs
    rough = coarse(array)
    for a, b in itertools.pairwise(np.argsort(theirs, kind="stable")):
        assert rough[a] <= rough[b]
    by_spark = [row["i"] for row in frame.orderBy("x").select("i").collect()]
    assert [theirs[i] for i in by_spark] == sorted(theirs)


def test_the_smallest_integer_is_not_null() -> None:
    column = pa.array([None, -(2**63), -(2**63) + 1, None])
    assert coarse(column).tolist() == [LOWEST, LOWEST, LOWEST + 1, LOWEST]
    assert ranks(exact(column).tolist()) == [0, 1, 2, 0]
    assert exact(column.slice(1, 2)).tolist() == [-(2**63), -(2**63) + 1]


def test_wide_decimals_that_differ_in_their_low_half_alone() -> None:
    numbers = [-(2**64) - 1, -(2**64), -(2**64) + 1, -1, 0, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
    numbers += [10**37, 10**37 + 1, 10**38 - 1]
    column = pa.array([Decimal(n) for n in numbers], pa.decimal128(38, 0))
    assert coarse(column).tolist() == [n >> 64 for n in numbers]
    assert ranks(exact(column).tolist()) == list(range(len(numbers)))


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
def test_floats(type_: pa.DataType) -> None:
    tiny = 2.0**-149 if pa.types.is_float32(type_) else 5e-324
    inf = float("inf")
    ascending = [None, -inf, -1.5, -tiny, 0.0, tiny, 1.5, inf, NAN]
    column = pa.array(ascending, type_)
    assert (np.diff(coarse(column)) > 0).all()
    assert (np.diff(exact(column)) > 0).all()
    assert coarse_scalar(-0.0, type_) == coarse_scalar(0.0, type_) == 0


def test_strings_compare_by_their_bytes() -> None:
    # In UTF-16 the emoji would come before U+FFFF.
    ascending = [
        "",
        "\x00",
        "A",
        "eight by",
        "eight by\x00",
        "eight bz",
        "é",
        "\uffff",
        "\U0001f600",
    ]
    column = pa.array(ascending)
    assert ranks(exact(column).tolist()) == list(range(len(ascending)))
    rough = coarse(column).tolist()
    assert rough == sorted(rough)
    # Eight bytes, padded with zeros: that is all `coarse` sees.
    assert rough[0] == rough[1]
    assert rough[3] == rough[4] < rough[5]


def test_exact_words_are_one_for_each_column() -> None:
    words = exact_words([pa.array([2, 1]), pa.array(["b", "a"])])
    assert [word.tolist() for word in words] == [[2, 1], [2, 1]]


@pytest.mark.parametrize(
    "type_",
    [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())],
    ids=str,
)
def test_nested_columns_have_no_order(type_: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"'tags'.*cannot be an order column"):
        check_orderable(pa.field("tags", type_))
