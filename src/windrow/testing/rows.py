"""Rows written by hand, as Arrow tables: typed as Spark would type the same Python values.

The rows are kept as they were given beside the table, so that a test gets back what it wrote: a
time as the text it was, a datetime without the zone it did not have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa

from windrow.errors import DataError, OptionError, SchemaError
from windrow.rows.types import single_chunk

t = pa.types
NULL = pa.null()
_SCALARS: tuple[tuple[type, pa.DataType], ...] = (
    # In this order: a bool is an int, and a datetime is a date.
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    (bytearray, pa.binary()),
    (Decimal, pa.decimal128(38, 18)),
    (dt.datetime, pa.timestamp("us", tz="UTC")),
    (dt.date, pa.date32()),
)


@dataclass(frozen=True)
class Rows:
    """Rows as a table, and as they were given: `given` has the values of some columns.

    `open` rows are none at all, without a schema: they may have any column.
    """

    table: pa.Table
    given: Mapping[str, Sequence[Any]]
    open: bool = False

    @staticmethod
    def make(data: Any, what: str, times: Sequence[str], schema: pa.Schema | None = None) -> Rows:
        """`data` is a list of dicts or an Arrow table; the columns `times` may be ISO texts."""
        if schema is not None and not isinstance(schema, pa.Schema):
            raise OptionError(f"{what}: schema is {schema!r}; give a pyarrow schema")
        if isinstance(data, pa.Table):
            return _from_table(data, what, schema)
        given = _columns_of(data, what)
        types = {field.name: field.type for field in schema or ()}
        for name in types:
            given.setdefault(name, [None] * len(data))
        spelled = {name.lower() for name in times}  # Spark's names know no case
        arrays = {}
        for name, values in given.items():
            where = f"{what}: column {name!r}"
            if name.lower() in spelled:
                values = [_timestamp(value, where) for value in values]
            type_ = types.get(name) or infer(values, where)
            arrays[name] = _array(values, type_, where)
        return Rows(pa.table(arrays), given, open=not data and schema is None)

    def column(self, name: str) -> pa.Array:
        return single_chunk(self.table.column(name))

    def filter(self, mask: Sequence[bool]) -> Rows:
        given = {
            name: [value for value, keep in zip(values, mask, strict=True) if keep]
            for name, values in self.given.items()
        }
        return replace(self, table=self.table.filter(pa.array(mask, pa.bool_())), given=given)

    def extended(self, names: Iterable[str]) -> Rows:
        """With those of `names` that are missing, if these rows may have any column."""
        table = self.table
        for name in names if self.open else ():
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(table.num_rows))
        return replace(self, table=table)

    def to_python(self) -> list[dict[str, Any]]:
        """The rows as dicts: as given, or as computed."""
        names = self.table.column_names
        columns = [
            self.given[n] if n in self.given else python_values(self.column(n)) for n in names
        ]
        return [
            dict(zip(names, (c[i] for c in columns), strict=True))
            for i in range(self.table.num_rows)
        ]


def _from_table(table: pa.Table, what: str, schema: pa.Schema | None) -> Rows:
    for field in schema or ():
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        elif table.schema.field(field.name).type != field.type:
            where = f"{what}: column {field.name!r}"
            values = python_values(single_chunk(table.column(field.name)))
            index = table.column_names.index(field.name)
            table = table.set_column(index, field, _array(values, field.type, where))
    return Rows(table, {})


def _columns_of(data: Any, what: str) -> dict[str, list[Any]]:
    """The values of each column, in the order in which columns first occur; a gap is null."""
    if not isinstance(data, list | tuple) or not all(isinstance(row, Mapping) for row in data):
        raise OptionError(f"{what}: the rows are {data!r}; give a list of dicts or a pyarrow Table")
    names: dict[Any, None] = {name: None for row in data for name in row}
    for name in names:
        if not isinstance(name, str):
            raise OptionError(f"{what}: {name!r} is not the name of a column")
    return {name: [row.get(name) for row in data] for name in names}


def _timestamp(value: Any, where: str) -> Any:
    """A time given as text is parsed; the datetime is UTC unless the text says otherwise."""
    if not isinstance(value, str):
        return value
    try:
        return dt.datetime.fromisoformat(value)
    except ValueError as error:
        raise DataError(
            f"{where}: {value!r} is not a time; write it like '2021-09-30 05:24'"
        ) from error


def _array(values: Sequence[Any], type_: pa.DataType, where: str) -> pa.Array:
    try:
        return pa.array([_plain(value, type_) for value in values], type_)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{where}: a value does not fit {type_}: {error}") from error


def _plain(value: Any, type_: pa.DataType) -> Any:
    """The value as Arrow takes it: maps as pairs, timestamps in UTC."""
    if isinstance(value, dt.datetime) and t.is_timestamp(type_) and value.tzinfo is not None:
        return (
            value.astimezone(dt.UTC) if type_.tz else value.astimezone(dt.UTC).replace(tzinfo=None)
        )
    if isinstance(value, Mapping) and t.is_map(type_):
        return [(_plain(k, type_.key_type), _plain(v, type_.item_type)) for k, v in value.items()]
    if isinstance(value, list) and (t.is_list(type_) or t.is_large_list(type_)):
        return [_plain(item, type_.value_type) for item in value]
    return value


def infer(values: Iterable[Any], where: str) -> pa.DataType:
    """The one type of all values; null if there is none but null."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, list) for value in there):
        return pa.list_(infer(chain.from_iterable(there), where))
    if there and all(isinstance(value, Mapping) for value in there):
        key = infer(chain.from_iterable(there), where)
        item = infer(chain.from_iterable(value.values() for value in there), where)
        return pa.map_(settled(key, pa.string()), item)
    types = {_type_of(value, where): None for value in there}
    if len(types) > 1 and types.keys() == {pa.int64(), pa.float64()}:
        return pa.float64()
    if len(types) > 1:
        names = " and some ".join(str(type_) for type_ in types)
        raise SchemaError(f"{where}: some values are {names}; a column has one type")
    return next(iter(types), NULL)


def _type_of(value: Any, where: str) -> pa.DataType:
    for class_, type_ in _SCALARS:
        if isinstance(value, class_):
            return type_
    if isinstance(value, list | Mapping):
        return infer([value], where)
    raise SchemaError(
        f"{where}: {value!r} is a {type(value).__name__}, of which the Spark type is not known; "
        "give the rows as a pyarrow Table, or a schema"
    )


def settled(type_: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    """`type_` with every part of which nothing is known, for want of values, as `leaf`."""
    if t.is_null(type_):
        return leaf
    if t.is_list(type_):
        return pa.list_(settled(type_.value_type, leaf))
    if t.is_map(type_):
        return pa.map_(settled(type_.key_type, pa.string()), settled(type_.item_type, leaf))
    return type_


def filled(type_: pa.DataType, like: pa.DataType) -> pa.DataType:
    """`type_` with every part of which nothing is known as it is in `like`."""
    if t.is_null(type_):
        return like
    if t.is_list(type_) and t.is_list(like):
        return pa.list_(filled(type_.value_type, like.value_type))
    if t.is_map(type_) and t.is_map(like):
        return pa.map_(
            filled(type_.key_type, like.key_type), filled(type_.item_type, like.item_type)
        )
    return type_


def with_types(table: pa.Table, change: Callable[[pa.Field], pa.DataType]) -> pa.Table:
    """`table` with each column cast to the type that `change` gives for its field."""
    for index, field in enumerate(table.schema):
        type_ = change(field)
        if type_ != field.type:
            try:
                column = table.column(index).cast(type_)
            except pa.ArrowInvalid as error:
                where = f"column {field.name!r}"
                raise DataError(f"{where}: a value does not fit {type_}: {error}") from error
            table = table.set_column(index, pa.field(field.name, type_), column)
    return table


def python_values(array: pa.Array) -> list[Any]:
    """Python values; maps are dicts, unless their keys cannot be keys of one."""
    if t.is_map(array.type) and t.is_nested(array.type.key_type):
        return list(array.to_pylist())
    return list(array.to_pylist(maps_as_pydicts="strict"))
