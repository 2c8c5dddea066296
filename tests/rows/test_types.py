"""Types and values as they rest: one layout for each type, one form of each value."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semantics import SCALAR_TYPES, deep_fields, grouped
from strategies import NAN, SCALARS, UTC
from windrow.errors import DataError, SchemaError
from windrow.rows.types import (
    canonical_schema,
    canonical_type,
    canonical_values,
    check_schema,
    conform,
    describe,
    has_type,
    list_parts,
    only_update_columns,
    single_chunk,
)

STRING_LIST = pa.list_(pa.field("element", pa.string()))

# A layout that Arrow has, the canonical one, and values to carry over.
VARIANTS: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None, "a"]),
    (pa.dictionary(pa.int64(), pa.large_binary()), pa.binary(), [b"a", None]),
    (pa.dictionary(pa.int32(), pa.float64()), pa.float64(), [1.5, None]),
    (pa.large_string(), pa.string(), ["", None, "é"]),
    (pa.string_view(), pa.string(), ["a", None, "longer than twelve bytes"]),
    (pa.large_binary(), pa.binary(), [b"", None, b"\xff"]),
    (pa.binary_view(), pa.binary(), [b"a", None, b"longer than twelve bytes"]),
    (pa.binary(2), pa.binary(), [b"ab", None, b"\x00\x00"]),
    (pa.timestamp("s"), pa.timestamp("us"), [dt.datetime(1969, 1, 1), None]),
    (pa.timestamp("ms"), pa.timestamp("us"), [dt.datetime(2024, 1, 1, 0, 0, 0, 1000), None]),
    (pa.timestamp("ns"), pa.timestamp("us"), [dt.datetime(2024, 1, 1, 0, 0, 0, 1), None]),
    (
        pa.timestamp("ns", "Europe/Berlin"),
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 1, tzinfo=UTC), None],
    ),
    (pa.date64(), pa.date32(), [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)]),
    (pa.decimal32(5, 2), pa.decimal128(5, 2), [Decimal("-1.50"), None]),
    (pa.decimal64(12, 2), pa.decimal128(12, 2), [Decimal("-1.50"), None]),
    (
        pa.decimal256(38, 2),
        pa.decimal128(38, 2),
        [Decimal("-1.50"), None, Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")],
    ),
    (pa.list_(pa.string(), 2), STRING_LIST, [["a", None], None, ["b", "c"]]),
    (pa.large_list(pa.large_string()), STRING_LIST, [["a", None], None, []]),
    (
        pa.list_(pa.field("item", pa.string_view(), nullable=False)),
        STRING_LIST,
        [["a", "b"], None, []],
    ),
    (
        pa.struct([("a", pa.large_list(pa.timestamp("ms"))), ("b", pa.binary(1))]),
        pa.struct([("a", pa.list_(pa.timestamp("us"))), ("b", pa.binary())]),
        [{"a": [dt.datetime(2000, 1, 1)], "b": b"x"}, None, {"a": None, "b": None}],
    ),
    (
        pa.map_(pa.large_string(), pa.list_(pa.float32(), 1)),
        pa.map_(pa.string(), pa.list_(pa.float32())),
        [[("a", [1.5]), ("b", None)], None, []],
    ),
]

REFUSED = [
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.null(),
    pa.time32("s"),
    pa.time64("us"),
    pa.duration("us"),
    pa.month_day_nano_interval(),
    pa.decimal256(39, 2),
    pa.decimal128(5, -2),
    pa.decimal128(5, 6),
    pa.dense_union([pa.field("a", pa.int32())]),
    pa.sparse_union([pa.field("a", pa.int32())]),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.uuid(),
    # Arrow casts them to lists with wrong offsets.
    pa.list_view(pa.int32()),
    pa.large_list_view(pa.int32()),
]


def conformed(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    table = pa.table({"x": array})
    found = conform(table, canonical_schema(table.schema), "test")
    found.validate(full=True)
    return found.column("x").chunk(0)


def padded(array: pa.Array) -> pa.Array:
    """The same values behind an offset, and with more after them."""
    return pa.concat_arrays([array, array, array]).slice(len(array), len(array))


@pytest.mark.parametrize("type_", [*SCALAR_TYPES, pa.decimal128(38, 38)], ids=str)
def test_scalar_types_stay(type_: pa.DataType) -> None:
    assert canonical_type(type_, "x") == type_


@pytest.mark.parametrize(
    ("variant", "canonical", "values"), VARIANTS, ids=[str(v[0]) for v in VARIANTS]
)
def test_layouts_become_one(
    variant: pa.DataType, canonical: pa.DataType, values: list[Any]
) -> None:
    assert canonical_type(variant, "x") == canonical
    array = pa.array(values, variant)
    for given_ in (array, padded(array), pa.chunked_array([array.slice(0, 1), array.slice(1)])):
        found = conformed(given_)
        assert found.type == canonical
        assert found.to_pylist() == values
    assert conformed(array.slice(1)).to_pylist() == values[1:]
    assert conformed(array.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize("type_", REFUSED, ids=str)
def test_other_types_are_refused_by_name_and_type(type_: pa.DataType) -> None:
    said = re.escape(str(type_))
    with pytest.raises(SchemaError, match=rf"column 'odd'.*{said}"):
        canonical_schema(pa.schema([("fine", pa.int64()), ("odd", type_)]))
    with pytest.raises(SchemaError, match=rf"column 'odd' element.*{said}"):
        canonical_schema(pa.schema([("odd", pa.list_(type_))]))
    with pytest.raises(SchemaError, match=rf"column 'odd'\.a\.b.*{said}"):
        canonical_schema(pa.schema([("odd", pa.struct([("a", pa.struct([("b", type_)]))]))]))
    with pytest.raises(SchemaError, match=rf"column 'odd' value.*{said}"):
        canonical_schema(pa.schema([("odd", pa.map_(pa.string(), type_))]))
    if type_ == pa.null():
        return  # Arrow itself refuses them as keys
    with pytest.raises(SchemaError, match=rf"column 'odd' key.*{said}"):
        canonical_schema(pa.schema([("odd", pa.map_(type_, pa.string()))]))


def test_dictionaries_and_structs_are_refused_for_what_they_hold() -> None:
    with pytest.raises(SchemaError, match=r"column 'odd': type uint8 is not supported"):
        canonical_schema(pa.schema([("odd", pa.dictionary(pa.int8(), pa.uint8()))]))
    with pytest.raises(SchemaError, match=r"column 'odd': a struct without fields"):
        canonical_schema(pa.schema([("odd", pa.struct([]))]))


@pytest.mark.parametrize(
    ("type_", "hint"),
    [
        (pa.null(), "CAST(NULL AS STRING)"),
        (pa.float16(), "cast it to float"),
        (pa.uint32(), "next larger signed type"),
        (pa.duration("s"), "BIGINT microseconds"),
        (pa.time64("us"), "BIGINT microseconds or to STRING"),
        (pa.decimal256(50, 2), "DECIMAL(38, s)"),
    ],
    ids=str,
)
def test_a_refusal_says_what_to_do(type_: pa.DataType, hint: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(hint)):
        canonical_type(type_, "x")


def test_fields_become_nullable_and_lists_have_elements() -> None:
    found = canonical_schema(
        pa.schema(
            [
                pa.field("a", pa.int64(), nullable=False, metadata={"note": "x"}),
                pa.field("b", pa.list_(pa.field("item", pa.int64(), nullable=False))),
                pa.field("c", pa.struct([pa.field("d", pa.int64(), nullable=False)])),
            ]
        )
    )
    assert found.field("a").nullable
    assert found.field("b").type.value_field.name == "element"
    assert found.field("b").type.value_field.nullable
    assert found.field("c").type.field("d").nullable


def test_names_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"column 'CITY' occurs twice"):
        canonical_schema(pa.schema([("city", pa.string()), ("CITY", pa.string())]))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1000, 1], pa.timestamp("ns")),
        pa.array([1001], pa.timestamp("ns", "UTC")),
        pa.array([2**62], pa.timestamp("s")),
        pa.array([-(2**60)], pa.timestamp("ms")),
        pa.array([[1]], pa.list_(pa.timestamp("ns"))),
        pa.array([{"a": 1}], pa.struct([("a", pa.timestamp("ns"))])),
        pa.Array.from_buffers(
            pa.date64(), 1, [None, pa.py_buffer(np.array([86_400_001], np.int64))]
        ),
        pa.Array.from_buffers(pa.date64(), 1, [None, pa.py_buffer(np.array([-1], np.int64))]),
    ],
    ids=lambda array: str(array.type),
)
def test_values_that_do_not_fit_exactly_are_refused(array: pa.Array) -> None:
    with pytest.raises(DataError, match=r"test: column 'x' holds a value that .* cannot hold"):
        conformed(array)


def test_conform_puts_columns_in_order() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    table = pa.table({"b": pa.array(["x"], pa.large_string()), "a": [1]})
    found = conform(table, schema, "test")
    assert found.schema.equals(schema, check_metadata=True)
    assert found.to_pylist() == [{"a": 1, "b": "x"}]
    assert [found.column(n).num_chunks for n in range(2)] == [1, 1]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([("a", pa.int64())], [r"column 'b' \(string\) is missing"]),
        (
            [("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())],
            [r"column 'c' \(bool\) is not in the schema"],
        ),
        (
            [("a", pa.int32()), ("b", pa.string())],
            [r"column 'a' is int32, the schema says int64"],
        ),
        (
            [("a", pa.float64()), ("c", pa.string())],
            ["'b'.*is missing", "'c'.*not in the schema", "'a' is double"],
        ),
        ([("a", pa.int64()), ("b", pa.uint8())], ["column 'b': type uint8 is not supported"]),
        ([("a", pa.int64()), ("a", pa.int64()), ("b", pa.string())], ["'a' occurs twice"]),
        ([("A", pa.int64()), ("b", pa.string())], ["'a'.*is missing", "'A'.*not in the schema"]),
    ],
)
def test_conform_names_every_difference(
    found: list[tuple[str, pa.DataType]], said: list[str]
) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    for part in said:
        with pytest.raises(SchemaError, match=f"here: .*{part}"):
            check_schema(pa.schema(found), schema, "here")
        with pytest.raises(SchemaError, match=f"here: .*{part}"):
            conform(pa.schema(found).empty_table(), schema, "here")


def test_the_schema_is_part_of_the_message() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert describe(schema) == "(a int64, b string)"
    with pytest.raises(SchemaError, match=re.escape("The schema is (a int64, b string)")):
        check_schema(pa.schema([]), schema, "here")


@pytest.mark.parametrize(("wanted", "values"), SCALARS, ids=[str(t) for t, _ in SCALARS])
def test_nothing_is_widened_narrowed_or_parsed(wanted: pa.DataType, values: list[Any]) -> None:
    for type_ in SCALAR_TYPES:
        table = pa.table({"x": pa.array(values, wanted)})
        schema = pa.schema([("x", type_)])
        if type_ == wanted:
            assert conform(table, schema, "test").schema == schema
        else:
            with pytest.raises(SchemaError, match="'x' is "):
                conform(table, schema, "test")


def test_own_names_are_refused() -> None:
    only_update_columns(["time", "__time", "_times"])
    for name in ("_time", "_diff", "_prefix", "_hash", "_TIME"):
        with pytest.raises(SchemaError, match=f"column '{name}': the names"):
            only_update_columns(["a", name])


def bits(array: pa.Array) -> list[Any]:
    """Values of which two are equal only if their bits are."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    return [plain(value) for value in array.to_pylist()]


@settings(max_examples=200)
@given(st.data())
def test_canonical_values_are_equal_values_with_equal_bits(data: st.DataObject) -> None:
    type_, one = data.draw(deep_fields())
    values = data.draw(st.just([]) | st.lists(st.none() | one, min_size=3, max_size=8))
    array = pa.array(values, type_)
    found = canonical_values(array)
    found.validate(full=True)
    assert found.type == type_
    same = [grouped(value, type_) for value in values]
    assert [grouped(value, type_) for value in found.to_pylist()] == same
    form: dict[Any, Any] = {}
    for key, seen in zip(same, bits(found), strict=True):
        assert form.setdefault(key, seen) == seen
    start = data.draw(st.integers(0, len(values)))
    for other in (canonical_values(found), canonical_values(padded(array))):
        other.validate(full=True)
        assert bits(other) == bits(found)
    assert bits(canonical_values(array.slice(start))) == bits(found)[start:]


@pytest.mark.parametrize(("type_", "word"), [(pa.float32(), np.uint32), (pa.float64(), np.uint64)])
def test_there_is_one_zero_and_one_nan(type_: pa.DataType, word: Any) -> None:
    width = np.dtype(word).itemsize * 8
    top = 1 << (width - 1)
    quiet = int(np.array([np.nan], type_.to_pandas_dtype()).view(word)[0])
    infinite = int(np.array([np.inf], type_.to_pandas_dtype()).view(word)[0])
    strange = np.array(
        [top, 0, quiet | top, quiet | 1, infinite | 1, infinite, infinite | top], word
    )
    array = pa.array(strange.view(type_.to_pandas_dtype()))
    expected = [0, 0, quiet, quiet, quiet, infinite, infinite | top]
    assert canonical_values(array).to_numpy().view(word).tolist() == expected
    with_null = pa.concat_arrays([pa.array([None], type_), array])
    found = canonical_values(with_null)
    assert found.null_count == 1
    assert found.slice(1).to_numpy(zero_copy_only=False).view(word).tolist() == expected


def test_maps_are_sorted_by_key() -> None:
    type_ = pa.map_(pa.string(), pa.float64())
    array = pa.array([[("b", -0.0), ("a", NAN)], None, [], [("z", None), ("é", 1.0)]], type_)
    expected = [[["a", "NaN"], ["b", (0.0, 1.0)]], None, [], [["z", None], ["é", (1.0, 1.0)]]]
    for given_ in (array, padded(array)):
        assert bits(canonical_values(given_)) == expected
    assert bits(canonical_values(array.slice(2))) == expected[2:]


@pytest.mark.parametrize(
    ("keys", "type_"),
    [
        ([3, -1, 2], pa.int16()),
        ([NAN, -0.0, -1.5], pa.float64()),
        ([True, False], pa.bool_()),
        ([b"\xff", b"", b"\x00"], pa.binary()),
        ([Decimal("1.50"), Decimal("-1.50")], pa.decimal128(10, 2)),
        ([dt.date(2024, 1, 1), dt.date(1969, 1, 1)], pa.date32()),
        ([dt.datetime(2024, 1, 1), dt.datetime(1969, 1, 1)], pa.timestamp("us")),
        ([[2, None], [], [1, 2]], pa.list_(pa.int64())),
        ([{"a": "x"}, {"a": None}, {"a": "w"}], pa.struct([("a", pa.string())])),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_maps_with_the_same_entries_get_the_same_form(keys: list[Any], type_: pa.DataType) -> None:
    entries = [(key, n) for n, key in enumerate(keys)]
    array = pa.array([entries, entries[::-1], entries[1:] + entries[:1]], pa.map_(type_, pa.int8()))
    first, *others = bits(canonical_values(array))
    assert others == [first, first]
    assert len(first) == len(keys)


def test_maps_within_maps() -> None:
    inner = pa.map_(pa.string(), pa.float64())
    a, b = [("x", -0.0), ("y", 1.0)], [("y", 1.0), ("x", 0.0)]
    array = pa.array([[(2, a), (1, b)], [(1, a), (2, b)]], pa.map_(pa.int64(), inner))
    first, second = bits(canonical_values(array))
    assert first == second


def list_with_hidden_values(type_: pa.DataType, values: pa.Array, valid: list[bool]) -> pa.Array:
    """Two values for each list, also for those that are null."""
    offsets = pa.py_buffer(np.arange(0, 2 * len(valid) + 1, 2, dtype=np.int32))
    mask = pa.array(valid).buffers()[1]
    children = [values]
    if pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays(
            [values, values], fields=[type_.key_field, type_.item_field]
        )
        children = [entries]
    array = pa.Array.from_buffers(type_, len(valid), [mask, offsets], children=children)
    array.validate(full=True)
    return array


@pytest.mark.parametrize("map_", [False, True])
def test_null_lists_with_values_beneath(map_: bool) -> None:
    type_ = pa.map_(pa.float64(), pa.float64()) if map_ else pa.list_(pa.float64())
    values = pa.array([4.0, -0.0, 7.0, NAN, 3.0, 2.0, 6.0, 5.0])
    array = list_with_hidden_values(type_, values, [True, False, True, False])
    assert array.null_count == 2
    offsets, inside = list_parts(array)
    assert offsets.tolist() == [0, 2, 2, 4, 4]
    assert len(inside) == 4
    found = canonical_values(array)
    found.validate(full=True)
    if map_:
        expected = [[(0.0, 0.0), (4.0, 4.0)], None, [(2.0, 2.0), (3.0, 3.0)], None]
    else:
        expected = [[4.0, 0.0], None, [3.0, 2.0], None]
    assert found.to_pylist() == expected
    for start, stop in ((1, 4), (1, 2), (2, 3), (3, 4), (0, 1), (4, 4)):
        part = array.slice(start, stop - start)
        offsets, inside = list_parts(part)
        assert offsets[0] == 0
        assert offsets[-1] == len(inside) == sum(2 * (row is not None) for row in part.to_pylist())
        found = canonical_values(part)
        found.validate(full=True)
        assert found.to_pylist() == expected[start:stop]


def test_nulls_beneath_null_parents() -> None:
    children = [
        pa.array([-0.0, -0.0, NAN]),
        list_with_hidden_values(
            pa.list_(pa.float64()), pa.array([1.0, -0.0, NAN, 2.0, 3.0, -0.0]), [True, True, False]
        ),
    ]
    type_ = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.float64()))])
    mask = pa.array([True, False, True]).buffers()[1]
    array = pa.StructArray.from_buffers(type_, 3, [mask], children=children)
    found = canonical_values(array)
    found.validate(full=True)
    assert bits(found) == [
        {"a": (0.0, 1.0), "b": [(1.0, 1.0), (0.0, 1.0)]},
        None,
        {"a": "NaN", "b": None},
    ]
    assert bits(canonical_values(array.slice(1))) == bits(found)[1:]
    nested = pa.ListArray.from_arrays([0, 1, 3], array)
    assert bits(canonical_values(nested)) == [bits(found)[:1], bits(found)[1:]]


def test_columns_without_floats_and_maps_are_not_copied() -> None:
    for array in (
        pa.array(["a", None]),
        pa.array([[1], None]),
        pa.array([{"a": 1}]),
        pa.array([0.0, 1.5, None]),
    ):
        assert canonical_values(array) is array


def test_single_chunk() -> None:
    array = pa.array([1, 2])
    assert single_chunk(array) is array
    assert single_chunk(pa.chunked_array([array])).equals(array)
    assert single_chunk(pa.chunked_array([array, array])).to_pylist() == [1, 2, 1, 2]
    assert single_chunk(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))


def test_has_type_looks_at_every_depth() -> None:
    deep = pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.list_(pa.float32())))]))
    assert has_type(deep, pa.types.is_float32)
    assert has_type(deep, pa.types.is_map)
    assert not has_type(deep, pa.types.is_float64)
