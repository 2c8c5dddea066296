"""Rows as bytes: equal rows, and only those, have equal bytes. Written by column, read by row.

    number, date, timestamp     1 byte: is it there; then its own width, zero if it is not
    boolean                     the same, of 1 byte
    decimal                     the same, of 16 bytes: the unscaled value
    string, binary              is it there; length (4 bytes); bytes
    list, map                   is it there; how many (4 bytes); elements, or keys with values
    struct                      is it there; its fields, none of which is there if it is not

All is little endian. The fields of a row stand one after the other. Values are in the canonical
form of `windrow.rows.types`, so that a row that is retracted is known by its bytes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.algebra.codec import binary_array, binary_parts
from windrow.errors import DataError
from windrow.rows.hashing import decimal_halves, fixed_width
from windrow.rows.lists import list_parts
from windrow.rows.types import canonical_values, single_chunk

t = pa.types
_EPOCH, _DAY = datetime(1970, 1, 1), date(1970, 1, 1).toordinal()
_LENGTH = struct.Struct("<?I")

Decode = Callable[[bytes, int], tuple[Any, int]]  # bytes and a place; a value and the next place
Several = Callable[[bytes, int], tuple[list[Any], int]]  # the same of neighbouring columns


def encode_rows(columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> pa.Array:
    """The bytes of each of `count` rows, which may have no columns."""
    found = [_encoded(canonical_values(single_chunk(column))) for column in columns]
    return _joined(found) if found else pa.array([b""] * count, pa.binary())


def _encoded(values: pa.Array) -> pa.Array:
    type_, count = values.type, len(values)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if t.is_struct(type_):
        return _joined([_heads(valid), *map(_encoded, values.flatten())])
    if t.is_list(type_) or t.is_map(type_):
        starts, elements = list_parts(values)
        if t.is_map(type_):
            elements = _joined([_encoded(one) for one in elements.flatten()])
        else:
            elements = _encoded(elements)
        offsets, data = binary_parts(elements)
        listed = binary_array(offsets[starts], data)
        return _joined([_heads(valid, np.diff(starts)), listed])
    if t.is_string(type_) or t.is_binary(type_):
        if values.null_count:
            values = pc.fill_null(values, "" if t.is_string(type_) else b"")
        offsets, _ = binary_parts(values)
        return _joined([_heads(valid, np.diff(offsets)), values.cast(pa.binary())])
    if t.is_decimal(type_):
        raw = np.ascontiguousarray(decimal_halves(values)).view(np.uint8).reshape(count, 16)
    else:
        words = np.ascontiguousarray(fixed_width(values))
        raw = words.view(np.uint8).reshape(count, words.dtype.itemsize)
    out = np.zeros((count, 1 + raw.shape[1]), np.uint8)
    out[:, 0] = valid
    out[:, 1:] = np.where(valid[:, None], raw, 0)
    return binary_array(out.shape[1] * np.arange(count + 1), out.ravel())


def _heads(valid: np.ndarray, lengths: np.ndarray | None = None) -> pa.Array:
    """Whether each is there, and how long it is."""
    width = 1 if lengths is None else 5
    out = np.zeros((valid.size, width), np.uint8)
    out[:, 0] = valid
    if lengths is not None:
        out[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return binary_array(width * np.arange(valid.size + 1), out.ravel())


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, b"")


class RowDecoder:
    """Reads rows of some types; neighbouring columns of fixed width are read at once."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._steps: list[Several] = []
        for is_fixed, run in itertools.groupby(types, lambda type_: _code(type_) is not None):
            if is_fixed:
                self._steps.append(_fixed_decoder(list(run)))
            else:
                self._steps += [_as_several(_decoder(type_)) for type_ in run]

    def __call__(self, raw: bytes) -> list[Any]:
        """The values of a row, as Python's own."""
        values: list[Any] = []
        at = 0
        try:
            for decode in self._steps:
                found, at = decode(raw, at)
                values += found
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise DataError("the bytes of a row are damaged") from error
        if at != len(raw):
            raise DataError("the bytes of a row are damaged: there are more than its columns take")
        return values


def _code(type_: pa.DataType) -> str | None:
    """The letter by which `struct` reads a value; None if its width is not fixed, or too large."""
    if t.is_boolean(type_):
        return "?"
    if t.is_floating(type_):
        return "d" if type_.bit_width == 64 else "f"
    if t.is_date32(type_):
        return "i"
    if t.is_timestamp(type_):
        return "q"
    if t.is_integer(type_):
        return {8: "b", 16: "h", 32: "i", 64: "q"}[type_.bit_width]
    return None


def _maker(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes a value of the number that is stored; None if it is the value."""
    if t.is_date32(type_):
        return lambda days: date.fromordinal(_DAY + days)
    if t.is_timestamp(type_):
        epoch = _EPOCH if type_.tz is None else _EPOCH.replace(tzinfo=UTC)
        return lambda micros: epoch + timedelta(0, 0, micros)
    return None


def _fixed_decoder(types: Sequence[pa.DataType]) -> Several:
    form = struct.Struct("<" + "".join(f"?{_code(type_)}" for type_ in types))
    read, size = form.unpack_from, form.size
    makers = [(place, make) for place, one in enumerate(types) if (make := _maker(one)) is not None]

    def decode(raw: bytes, at: int) -> tuple[list[Any], int]:
        words = read(raw, at)
        there = words[::2]
        values = list(words[1::2])
        for place, make in makers:
            if there[place]:
                values[place] = make(values[place])
        if False in there:
            values = [value if one else None for value, one in zip(values, there, strict=True)]
        return values, at + size

    return decode


def _as_several(decode: Decode) -> Several:
    def one(raw: bytes, at: int) -> tuple[list[Any], int]:
        value, at = decode(raw, at)
        return [value], at

    return one


def _decoder(type_: pa.DataType) -> Decode:
    if t.is_struct(type_):
        return _struct_decoder(type_)
    if t.is_map(type_):
        return _map_decoder(type_)
    if t.is_list(type_):
        return _list_decoder(type_)
    if t.is_string(type_):
        return _text
    if t.is_binary(type_):
        return _bytes
    if t.is_decimal(type_):
        return _decimal_decoder(type_.scale)
    fixed = _fixed_decoder([type_])

    def decode(raw: bytes, at: int) -> tuple[Any, int]:
        (value,), at = fixed(raw, at)
        return value, at

    return decode


def _bytes(raw: bytes, at: int) -> tuple[Any, int]:
    there, length = _LENGTH.unpack_from(raw, at)
    end = at + 5 + length
    if end > len(raw):
        raise IndexError
    return (raw[at + 5 : end] if there else None), end


def _text(raw: bytes, at: int) -> tuple[Any, int]:
    found, end = _bytes(raw, at)
    return (None if found is None else found.decode()), end


def _decimal_decoder(scale: int) -> Decode:
    def decode(raw: bytes, at: int) -> tuple[Any, int]:
        unscaled = int.from_bytes(raw[at + 1 : at + 17], "little", signed=True)
        if not raw[at]:
            return None, at + 17
        # Of all its digits: arithmetic on decimals would round to those of the context.
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -scale)), at + 17

    return decode


def _list_decoder(type_: pa.DataType) -> Decode:
    element = _decoder(type_.value_type)

    def decode(raw: bytes, at: int) -> tuple[Any, int]:
        there, count = _LENGTH.unpack_from(raw, at)
        at += 5
        found = []
        for _ in range(count):
            value, at = element(raw, at)
            found.append(value)
        return (found if there else None), at

    return decode


def _map_decoder(type_: pa.DataType) -> Decode:
    key, item = _decoder(type_.key_type), _decoder(type_.item_type)
    hashable = not t.is_nested(type_.key_type)  # a list or dict is no key of a dict: pairs, then

    def decode(raw: bytes, at: int) -> tuple[Any, int]:
        there, count = _LENGTH.unpack_from(raw, at)
        at += 5
        found = []
        for _ in range(count):
            name, at = key(raw, at)
            value, at = item(raw, at)
            found.append((name, value))
        if not there:
            return None, at
        return (dict(found) if hashable else found), at

    return decode


def _struct_decoder(type_: pa.DataType) -> Decode:
    fields = [(field.name, _decoder(field.type)) for field in type_]

    def decode(raw: bytes, at: int) -> tuple[Any, int]:
        there = raw[at]
        at += 1
        found = {}
        for name, field in fields:
            found[name], at = field(raw, at)
        return (found if there else None), at

    return decode
