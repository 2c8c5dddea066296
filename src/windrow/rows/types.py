"""The types a row may have, and the one canonical form of each value.

Spark calls two rows equal if GROUP BY puts them together: NULL equals NULL, NaN equals NaN,
-0.0 equals 0.0, and a map equals a map with the same entries in any order. Values are brought
into a form in which equal means the same bits, once, where rows enter Windrow; hashing and
comparing are then plain work on buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import DataError, SchemaError
from windrow.rows.hashing import hash_rows
from windrow.rows.lists import list_parts

_SAME = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
)


def canonical_type(type_: pa.DataType, where: str) -> pa.DataType:
    """The Arrow type that a shard stores for `type_`, or a SchemaError that names `where`.

    Variants of layout (dictionary, large and view strings, fixed-size lists, time units) become
    the one layout that Spark and Delta use.
    """
    t = pa.types
    if any(same(type_) for same in _SAME):
        return type_
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return pa.string()
    if (
        t.is_binary(type_)
        or t.is_large_binary(type_)
        or t.is_binary_view(type_)
        or t.is_fixed_size_binary(type_)
    ):
        return pa.binary()
    if t.is_decimal(type_):
        if type_.precision > 38 or not 0 <= type_.scale <= type_.precision:
            raise SchemaError(f"{where}: {type_} has no Spark type; use at most DECIMAL(38, s)")
        return pa.decimal128(type_.precision, type_.scale)
    if t.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC" if type_.tz else None)
    if t.is_date64(type_):
        return pa.date32()
    if t.is_dictionary(type_):
        return canonical_type(type_.value_type, where)
    if t.is_struct(type_):
        if type_.num_fields == 0:
            raise SchemaError(f"{where}: a struct without fields cannot be stored")
        return pa.struct([canonical_field(f, f"{where}.{f.name}") for f in type_])
    if t.is_map(type_):
        return pa.map_(
            canonical_type(type_.key_type, f"{where} key"),
            canonical_type(type_.item_type, f"{where} value"),
        )
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return pa.list_(pa.field("element", canonical_type(type_.value_type, f"{where} element")))
    hint = {
        "null": "give the column a type, for example CAST(NULL AS STRING)",
        "halffloat": "cast it to float",
    }.get(str(type_))
    if hint is None:
        if t.is_unsigned_integer(type_):
            hint = "Spark has no unsigned integers; cast to the next larger signed type"
        elif t.is_duration(type_) or t.is_interval(type_):
            hint = "Delta tables cannot store intervals; cast to BIGINT microseconds"
        elif t.is_time(type_):
            hint = "cast it to BIGINT microseconds or to STRING"
        elif t.is_list_view(type_) or t.is_large_list_view(type_):
            # Nor can `conform` cast it: see apache/arrow#50994.
            hint = "make it a list, but not by Arrow's cast, which gives wrong ones"
        else:
            hint = "cast it to a Spark type"
    raise SchemaError(f"{where}: type {type_} is not supported; {hint}")


def is_storable(type_: pa.DataType) -> bool:
    """Whether a shard can store a column of this type."""
    try:
        canonical_type(type_, "")
    except SchemaError:
        return False
    return True


def canonical_field(field: pa.Field, where: str) -> pa.Field:
    return pa.field(field.name, canonical_type(field.type, where), nullable=True)


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with every type canonical and every field nullable; duplicate names refused."""
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise SchemaError(f"column {name!r} occurs twice (names are compared without case)")
        seen.add(name.lower())
    return pa.schema([canonical_field(f, f"column {f.name!r}") for f in schema])


def has_type(type_: pa.DataType, test: Any) -> bool:
    """Whether `test` holds for `type_` or any type nested in it."""
    if test(type_):
        return True
    return any(has_type(type_.field(i).type, test) for i in range(type_.num_fields))


def is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


def conform(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """`table` with exactly the columns of `schema` (canonical), in its order, values canonical.

    Raises SchemaError for a column that is missing, unknown, or of another type: nothing is
    widened, narrowed or parsed on the way in.
    """
    check_schema(table.schema, schema, where)
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"{where}: column {field.name!r} holds a value that {field.type} cannot hold "
                    f"exactly ({error}); round or cast it first"
                ) from error
        columns.append(canonical_values(single_chunk(column)))
    return table_of_columns(columns, schema, table.num_rows)


def table_of_columns(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.Table:
    """A table of so many rows, also if it has no columns: Arrow would say that it has no rows.

    >>> table_of_columns([], pa.schema([]), 3).num_rows
    3
    """
    if len(columns):
        return pa.table(columns, schema=schema)
    return pa.table([pa.nulls(rows)], names=["no column"]).select([])


def check_schema(found: pa.Schema, expected: pa.Schema, where: str) -> None:
    """Raise SchemaError with every difference between `found` and `expected`, by name and type."""
    types = {field.name: field.type for field in expected}
    counts = Counter(found.names)
    problems = [
        f"column {name!r} ({type_}) is missing" for name, type_ in types.items() if not counts[name]
    ]
    for field in found:
        if counts[field.name] > 1:
            raise SchemaError(f"{where}: column {field.name!r} occurs twice")
        want = types.get(field.name)
        if want is None:
            problems.append(f"column {field.name!r} ({field.type}) is not in the schema")
        elif canonical_type(field.type, f"{where}: column {field.name!r}") != want:
            problems.append(f"column {field.name!r} is {field.type}, the schema says {want}")
    if problems:
        raise SchemaError(f"{where}: {'; '.join(problems)}. The schema is {describe(expected)}")


def describe(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"


def single_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array: kernels address rows by one index."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def canonical_values(array: pa.Array) -> pa.Array:
    """`array` with -0.0 as 0.0, one NaN, and map entries sorted by key, at every depth."""
    type_ = array.type
    if pa.types.is_floating(type_):
        return _canonical_floats(array)
    if not is_nested(type_) or not has_type(
        type_, lambda t: pa.types.is_floating(t) or pa.types.is_map(t)
    ):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(type_):
        children = [canonical_values(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    offsets, values = list_parts(array)
    if pa.types.is_map(type_):
        keys = canonical_values(values.field(0))
        items = canonical_values(values.field(1))
        order = _entry_order(offsets, keys)
        if order is not None:
            keys, items = keys.take(order), items.take(order)
        return pa.MapArray.from_arrays(_offsets_with_nulls(offsets, array), keys, items, type=type_)
    return pa.ListArray.from_arrays(
        _offsets_with_nulls(offsets, array), canonical_values(values), type=type_
    )


def _offsets_with_nulls(offsets: np.ndarray, array: pa.Array) -> pa.Array:
    if not array.null_count:
        return pa.array(offsets.astype(np.int32))
    invalid = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(offsets.astype(np.int32), mask=invalid)


def _canonical_floats(array: pa.Array) -> pa.Array:
    valid = array.fill_null(0.0) if array.null_count else array
    values = valid.to_numpy(zero_copy_only=False)
    nan = np.isnan(values)
    negative_zero = (values == 0) & np.signbit(values)
    if not nan.any() and not negative_zero.any():
        return array
    clean = values.copy()
    clean[negative_zero] = 0.0
    clean[nan] = np.nan
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(clean, type=array.type, mask=mask)


def _entry_order(offsets: np.ndarray, keys: pa.Array) -> pa.Array | None:
    """The permutation that sorts each map's entries by key, or None if there is nothing to do."""
    if len(keys) == 0 or np.diff(offsets).max() < 2:
        return None
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if is_nested(keys.type):
        keys = pa.array(hash_rows([keys]))  # any order will do, if it is always the same
    table = pa.table({"row": rows, "key": keys})
    return pc.sort_indices(table, sort_keys=[("row", "ascending"), ("key", "ascending")])


def only_update_columns(names: Iterable[str]) -> None:
    """Refuse column names that Windrow keeps for itself."""
    for name in names:
        if name.lower() in RESERVED:
            raise SchemaError(
                f"column {name!r}: the names {sorted(RESERVED)} belong to Windrow; rename it"
            )


RESERVED = frozenset({"_time", "_diff", "_prefix", "_hash"})
