"""The hashes: fixed forever, the same as Spark's, and blind to how Arrow lays values out."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from semantics import SCALAR_TYPES, grouped, scalar_values
from strategies import NAN, UTC, any_fields
from windrow.rows.hashing import hash_keys, hash_rows
from windrow.rows.types import canonical_schema, canonical_values, conform
from windrow.spark.schemas import arrow_to_spark_schema

POINT = pa.struct([("x", pa.float64()), ("y", pa.int32())])

# Type, value, key hash, row hash. Hashes rest in files: a change of any of these numbers makes
# shards that exist unreadable.
GOLDEN: list[tuple[pa.DataType, Any, int, int]] = [
    (pa.bool_(), True, -6698625589789238999, -6698625589789238999),
    (pa.int8(), -128, 4160238337661960656, 4160238337661960656),
    (pa.int32(), 7, 2786828215451145335, 2786828215451145335),
    (pa.int64(), None, 42, 6468443801323862008),
    (pa.int64(), -(2**63), -8619748838626508300, -8619748838626508300),
    (pa.float32(), 1.5, 6163473420726370430, 6163473420726370430),
    (pa.float64(), -0.0, -5252525462095825812, -5252525462095825812),
    (pa.float64(), NAN, -3127944061524951246, -3127944061524951246),
    (pa.decimal128(10, 2), Decimal("-1.50"), -3700955262752989823, -3700955262752989823),
    (pa.decimal128(38, 0), Decimal(10**37), -5413593087337273940, -5413593087337273940),
    (pa.date32(), dt.date(2024, 2, 29), 4183429117450946631, 4183429117450946631),
    (
        pa.timestamp("us", "UTC"),
        dt.datetime(2024, 1, 1, tzinfo=UTC),
        3859582417520161651,
        3859582417520161651,
    ),
    (pa.string(), "", -7444071767201028348, -7444071767201028348),
    (pa.string(), "Zürich", -2199928141300491114, -2199928141300491114),
    (pa.binary(), b"\x00" * 33, -8153091140015036756, -8153091140015036756),
    (pa.list_(pa.int64()), [], 42, -5252525462095825812),
    (pa.list_(pa.int64()), [1, None, 2], -8198029865082835910, -3098166663989639329),
    (POINT, {"x": 0.1, "y": None}, -4684694357984311926, 7216760544235105194),
    (
        pa.map_(pa.string(), pa.int64()),
        [("b", 2), ("a", 1)],
        8825905859789611693,
        -7389762373259901936,
    ),
]


def one(value: Any, type_: pa.DataType) -> pa.Array:
    return canonical_values(pa.array([value], type_))


def signed(digest: int) -> int:
    return digest - 2**64 if digest >= 2**63 else digest


def encoded(value: Any, type_: pa.DataType) -> bytes:
    """The bytes of a scalar that are hashed."""
    t = pa.types
    if t.is_string(type_):
        return str(value).encode()
    if t.is_binary(type_):
        return bytes(value)
    if t.is_floating(type_):
        value = math.nan if math.isnan(value) else value + 0.0
        return struct.pack("<f" if t.is_float32(type_) else "<d", value)
    if t.is_decimal(type_):
        unscaled = int(f"{value:.{type_.scale}f}".replace(".", ""))
        if type_.precision > 18:
            length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
            return unscaled.to_bytes(length, "big", signed=True)
        return struct.pack("<q", unscaled)
    if t.is_date(type_):
        return struct.pack("<i", (value - dt.date(1970, 1, 1)).days)
    if t.is_timestamp(type_):
        epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return struct.pack("<q", (value - epoch) // dt.timedelta(microseconds=1))
    return struct.pack("<q" if t.is_int64(type_) else "<i", value)


def mark(value: int, seed: int) -> int:
    return xxhash.xxh64_intdigest(struct.pack("<q", value), seed)


def reference(value: Any, type_: pa.DataType, seed: int, marks: bool) -> int:
    """The hash of one value by the book, with the `xxhash` package."""
    t = pa.types
    if value is None:
        return mark(int.from_bytes(b"null", "big"), seed) if marks else seed
    if t.is_map(type_):
        value = [{"key": k, "value": v} for k, v in sorted(value)]
        type_ = pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))
    if t.is_struct(type_):
        seed = mark(1, seed) if marks else seed
        for field in type_:
            seed = reference(value[field.name], field.type, seed, marks)
        return seed
    if t.is_list(type_):
        seed = mark(len(value), seed) if marks else seed
        for item in value:
            seed = reference(item, type_.value_type, seed, marks)
        return seed
    return xxhash.xxh64_intdigest(encoded(value, type_), seed)


@pytest.mark.parametrize(
    ("type_", "value", "key_hash", "row_hash"), GOLDEN, ids=[f"{g[0]} {g[1]!r:.20}" for g in GOLDEN]
)
def test_hashes_never_change(type_: pa.DataType, value: Any, key_hash: int, row_hash: int) -> None:
    column = one(value, type_)
    assert hash_keys([column]).tolist() == [key_hash]
    assert hash_rows([column]).tolist() == [row_hash]


def test_hashes_of_several_columns_never_change() -> None:
    columns = [one(value, type_) for type_, value, _, _ in GOLDEN]
    assert hash_keys(columns).tolist() == [-69106586749953630]
    assert hash_rows(columns).tolist() == [-4358626689998440936]
    assert hash_rows(columns[::-1]).tolist() == [-4910136894133630354]


def test_strings_hash_as_xxhash_says() -> None:
    alphabet = bytes(range(256))
    values = [(alphabet[7 * n % 256 :] + alphabet)[:n] for n in range(101)]
    expected = [signed(xxhash.xxh64_intdigest(value, 42)) for value in values]
    column = pa.array(values, pa.binary())
    assert hash_keys([column]).tolist() == expected
    assert hash_rows([column]).tolist() == expected
    text = ["é" * (n // 2) + "x" * (n % 2) for n in range(101)]
    expected = [signed(xxhash.xxh64_intdigest(value.encode(), 42)) for value in text]
    assert hash_keys([pa.array(text)]).tolist() == expected


def test_an_empty_column_has_no_hashes() -> None:
    for type_ in (*SCALAR_TYPES, POINT, pa.list_(pa.string()), pa.map_(pa.string(), POINT)):
        for column in (pa.array([], type_), pa.array([None, None], type_).slice(2)):
            assert hash_keys([column]).shape == hash_rows([column]).shape == (0,)
            assert hash_keys([column]).dtype == np.int64


def test_only_the_row_hash_sees_nulls_and_lengths() -> None:
    pair = pa.array([1, None]), pa.array([None, 1])
    assert len(set(hash_keys(pair))) == 1
    assert len(set(hash_rows(pair))) == 2
    lists = [pa.array([[1], [1, 2], [], None]), pa.array([[2, 3], [3], [1, 2, 3], [1, 2, 3]])]
    assert len(set(hash_keys(lists))) == 1
    assert len(set(hash_rows(lists))) == 4
    one = pa.struct([("x", pa.int64())])
    structs = pa.array([None, {"x": None}], one), pa.array([{"x": None}, None], one)
    assert len(set(hash_keys(structs))) == 1
    assert len(set(hash_rows(structs))) == 2
    nested = pa.array([None, {"s": None}, {"s": {"x": None}}], pa.struct([("s", one)]))
    assert len(set(hash_keys([nested]))) == 1
    assert len(set(hash_rows([nested]))) == 3


@st.composite
def columns_of_values(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    type_, values = draw(any_fields())
    return type_, draw(st.just([]) | st.lists(st.none() | values, min_size=3, max_size=8))


@settings(max_examples=200)
@given(columns_of_values(), st.booleans())
def test_hashes_are_by_the_book(column: tuple[pa.DataType, list[Any]], marks: bool) -> None:
    type_, values = column
    first = [i % 3 for i in range(len(values))]
    columns = [pa.array(first, pa.int64()), canonical_values(pa.array(values, type_))]
    seeds = [xxhash.xxh64_intdigest(struct.pack("<q", i), 42) for i in first]
    expected = [
        signed(reference(value, type_, seed, marks))
        for value, seed in zip(values, seeds, strict=True)
    ]
    assert (hash_rows if marks else hash_keys)(columns).tolist() == expected


@settings(max_examples=200)
@given(columns_of_values(), st.data())
def test_layout_does_not_count(column: tuple[pa.DataType, list[Any]], data: st.DataObject) -> None:
    type_, values = column
    array = pa.array(values, type_)
    plain = canonical_values(array)
    cut = data.draw(st.integers(0, len(values)))
    around = pa.concat_arrays([array.slice(cut), array, array.slice(0, cut)])
    inside = around.slice(len(values) - cut, len(values))
    layouts = {
        "offset": canonical_values(inside),
        "canonical, then offset": canonical_values(around).slice(len(values) - cut, len(values)),
        "chunks": conformed(pa.chunked_array([array.slice(0, cut), inside.slice(cut)])),
    }
    if not pa.types.is_nested(type_):
        layouts["dictionary"] = conformed(pa.chunked_array([inside.dictionary_encode()]))
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        large = pa.large_string() if pa.types.is_string(type_) else pa.large_binary()
        layouts["large"] = conformed(pa.chunked_array([inside.cast(large)]))
    for name, other in layouts.items():
        assert hash_keys([other]).tolist() == hash_keys([plain]).tolist(), name
        assert hash_rows([other]).tolist() == hash_rows([plain]).tolist(), name


def conformed(column: pa.ChunkedArray) -> pa.Array:
    table = pa.table({"x": column})
    return conform(table, canonical_schema(table.schema), "test").column("x").chunk(0)


@settings(max_examples=200)
@given(columns_of_values())
def test_equal_values_have_equal_hashes_and_others_do_not(
    column: tuple[pa.DataType, list[Any]],
) -> None:
    type_, values = column
    array = canonical_values(pa.array(values, type_))
    keys, rows = hash_keys([array]), hash_rows([array])
    value_of: dict[int, Any] = {}
    hash_of: dict[Any, tuple[int, int]] = {}
    for value, key_hash, row_hash in zip(values, keys.tolist(), rows.tolist(), strict=True):
        same = grouped(value, type_)
        assert hash_of.setdefault(same, (key_hash, row_hash)) == (key_hash, row_hash)
        assert value_of.setdefault(row_hash, same) == same


def strange_floats(type_: pa.DataType) -> pa.Array:
    """NaNs with other bits than the usual, and both zeros."""
    if pa.types.is_float32(type_):
        bits = np.array([0x7FC00001, 0xFFC00000, 0x7F800001, 0x80000000, 0], np.uint32)
        return pa.array(bits.view(np.float32))
    bits = np.array([0x7FF8 << 48 | 1, 0xFFF8 << 48, 0x7FF0 << 48 | 1, 1 << 63, 0], np.uint64)
    return pa.array(bits.view(np.float64))


def hashed_by_spark(spark: Any, table: pa.Table, keys: list[list[str]]) -> list[list[list[int]]]:
    """xxhash64 of each of `keys` over the rows of `table`: interpreted, and as compiled code."""
    from pyspark.sql import functions as F  # noqa: N812

    table = table.append_column("i", pa.array(range(table.num_rows), pa.int32()))
    frame = spark.createDataFrame(table, schema=arrow_to_spark_schema(table.schema))
    found = []
    # The optimizer computes a projection of local rows itself, so only an exchange in between
    # brings generated code into play.
    for rows in (frame, frame.repartition(2)):
        hashes = [F.xxhash64(*names).alias(f"h{n}") for n, names in enumerate(keys)]
        collected = sorted(rows.select("i", *hashes).collect(), key=lambda row: row["i"])
        found.append([[row[f"h{n}"] for row in collected] for n in range(len(keys))])
    return found


def test_key_hash_is_spark_xxhash64(spark: Any) -> None:
    columns: dict[str, pa.Array] = {}
    rows = 1 + max(len(scalar_values(type_)) for type_ in SCALAR_TYPES)
    for n, type_ in enumerate(SCALAR_TYPES):
        values = [None, *scalar_values(type_)]
        cycle = [values[(i + n) % len(values)] for i in range(rows)]
        next_ = cycle[1:] + cycle[:1]
        pairs = list(zip(cycle, next_, strict=True))
        columns[f"scalar{n}"] = pa.array(cycle, type_)
        columns[f"list{n}"] = pa.array(
            [[], None, *([a, b, a][: 1 + i % 3] for i, (a, b) in enumerate(pairs[2:]))],
            pa.list_(type_),
        )
        columns[f"struct{n}"] = pa.array(
            [None, *({"a": a, "b": {"c": [b]}} for a, b in pairs[1:])],
            pa.struct([("a", type_), ("b", pa.struct([("c", pa.list_(type_))]))]),
        )
    table = pa.table(columns)
    scalars = [name for name in columns if name.startswith("scalar")]
    keys = [[name] for name in columns]
    keys += [scalars, scalars[::-1], list(columns)]
    keys += [[f"struct{n}", f"scalar{n}"] for n in range(len(SCALAR_TYPES))]
    canonical = {name: canonical_values(array) for name, array in columns.items()}
    expected = [hash_keys([canonical[name] for name in names]).tolist() for names in keys]
    for found in hashed_by_spark(spark, table, keys):
        for names, ours, theirs in zip(keys, expected, found, strict=True):
            assert ours == theirs, names


def test_key_hash_of_strange_floats_is_spark_xxhash64(spark: Any) -> None:
    columns = {"f": strange_floats(pa.float32()), "d": strange_floats(pa.float64())}
    columns["l"] = pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], columns["d"])
    columns["s"] = pa.StructArray.from_arrays([columns["f"]], ["f"])
    expected = [hash_keys([canonical_values(array)]).tolist() for array in columns.values()]
    found = hashed_by_spark(spark, pa.table(columns), [[name] for name in columns])
    assert found == [expected, expected]
    assert [len(set(hashes)) for hashes in expected] == [2, 2, 2, 2]  # one NaN, one zero


def test_key_hash_of_long_strings_is_spark_xxhash64(spark: Any) -> None:
    values = ["x" * n + "é" for n in range(100)]
    columns = {"s": pa.array(values), "b": pa.array([v.encode() for v in values])}
    expected = [hash_keys([array]).tolist() for array in columns.values()]
    assert hashed_by_spark(spark, pa.table(columns), [["s"], ["b"]]) == [expected, expected]
