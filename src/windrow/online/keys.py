"""Keys of records as bytes: equal where Spark's GROUP BY puts rows together, and only there.

Each column is written at its own width, texts and binaries after their length. A key that would be
longer than the stores take is its SHA-256 instead. Before it comes the generation, 8 bytes, and a
byte that tells the two apart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.algebra.codec import binary_array, binary_parts
from windrow.errors import DefinitionError, RequestError
from windrow.rows.hashing import decimal_halves, fixed_width
from windrow.rows.types import canonical_values, single_chunk

t = pa.types
LONGEST = 300  # bytes of a key; longer ones are hashed
_PLAIN, _HASHED = b"\0", b"\1"
_INT64, _LENGTH = struct.Struct("<q").pack, struct.Struct("<I").pack
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)

Encode = Callable[[Any], bytes]
_REFUSED = (
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    struct.error,
    InvalidOperation,
    UnicodeEncodeError,
)


def prefix(generation: int) -> bytes:
    """What the keys of all records of a generation begin with."""
    return struct.pack(">Q", generation)


def check_key_type(type_: pa.DataType, what: str) -> None:
    if t.is_nested(type_):
        raise DefinitionError(
            f"{what} is {type_}: a list, struct or map cannot be a key online; use its parts, or "
            "do not serve it"
        )


def key_bytes(generation: int, keys: pa.Table) -> list[bytes]:
    """The keys of records, for rows without a NULL in any key."""
    columns = [_column(canonical_values(single_chunk(column))) for column in keys.columns]
    joined = columns[0]
    if len(columns) > 1:
        joined = pc.binary_join_element_wise(*columns, b"")
    start = prefix(generation)
    return [start + _short(key) for key in joined.to_pylist()]


def _short(key: bytes) -> bytes:
    if len(key) > LONGEST:
        return _HASHED + hashlib.sha256(key).digest()
    return _PLAIN + key


def _column(values: pa.Array) -> pa.Array:
    type_, count = values.type, len(values)
    if t.is_string(type_) or t.is_binary(type_):
        offsets, _ = binary_parts(values)
        lengths = np.diff(offsets).astype("<u4")
        heads = binary_array(4 * np.arange(count + 1), lengths.view(np.uint8))
        return pc.binary_join_element_wise(heads, values.cast(pa.binary()), b"")
    if t.is_decimal(type_):
        raw = np.ascontiguousarray(decimal_halves(values)).view(np.uint8).ravel()
        width = 16
    else:
        words = np.ascontiguousarray(fixed_width(values))
        raw, width = words.view(np.uint8), words.dtype.itemsize
    return binary_array(width * np.arange(count + 1), raw)


class KeyReader:
    """Turns the keys of requests into those of records: names and types are checked."""

    def __init__(self, name: str, keys: Sequence[tuple[str, pa.DataType]]) -> None:
        self._name = name
        self._keys = [(key, _encoder(type_), type_) for key, type_ in keys]

    def read(self, generation: int, row: Mapping[str, Any]) -> bytes | None:
        """The key of a record; None where a key is NULL, which no row has."""
        return self.read_all(generation, [row])[0]

    def read_all(self, generation: int, rows: Sequence[Mapping[str, Any]]) -> list[bytes | None]:
        """The keys of several records."""
        start = prefix(generation)
        if len(self._keys) > 1:
            return [self._joined(start, row) for row in rows]
        name, encode, _ = self._keys[0]
        plain = start + _PLAIN
        found: list[bytes | None] = []
        try:
            if encode is _integer and len(rows) > 1:
                values = [row[name] for row in rows]
                if set(map(type, values)) == {int}:  # as a rule: all of them at once
                    raws = struct.pack(f"<{len(values)}q", *values)
                    return [plain + raws[i : i + 8] for i in range(0, len(raws), 8)]
            for row in rows:
                value = row[name]
                if value is None:
                    found.append(None)
                    continue
                raw = encode(value)
                found.append(plain + raw if len(raw) <= LONGEST else start + _short(raw))
        except _REFUSED:
            return [self._joined(start, row) for row in rows]  # which says what is wrong
        return found

    def _joined(self, start: bytes, row: Mapping[str, Any]) -> bytes | None:
        found = []
        for name, encode, type_ in self._keys:
            try:
                value = row[name]
            except KeyError:
                raise RequestError(
                    f"{self._name}: the key {name!r} is missing; give "
                    f"{', '.join(key for key, _, _ in self._keys)}"
                ) from None
            if value is None:
                return None
            try:
                found.append(encode(value))
            except _REFUSED:
                raise RequestError(
                    f"{self._name}: the key {name!r} is {_shown(value)}, which is not {type_}"
                ) from None
        return start + _short(b"".join(found))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _encoder(type_: pa.DataType) -> Encode:
    if t.is_integer(type_):
        return _integer
    if t.is_floating(type_):
        return _float
    if t.is_string(type_):
        return _text
    if t.is_binary(type_):
        return _binary
    if t.is_boolean(type_):
        return _boolean
    if t.is_date32(type_):
        return _date
    if t.is_timestamp(type_):
        return _timestamp
    if t.is_decimal(type_):
        return lambda value: _decimal(value, type_)
    raise DefinitionError(f"keys of type {type_} cannot be served")


def _integer(value: Any) -> bytes:
    if type(value) is int:
        return _INT64(value)
    if isinstance(value, bool | str) or (isinstance(value, float) and not value.is_integer()):
        raise TypeError
    return _INT64(int(value))


def _float(value: Any) -> bytes:
    if isinstance(value, bool | str):
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            value = float(value.replace("Infinity", "inf"))
        else:
            raise TypeError
    number = float(value)
    if number != number:
        number = np.nan
    return struct.pack("<d", number + 0.0 if number else 0.0)


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    raw = value.encode()
    return _LENGTH(len(raw)) + raw


def _binary(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            value = base64.b64decode(value, validate=True)
        except binascii.Error:
            raise TypeError from None
    if not isinstance(value, bytes | bytearray):
        raise TypeError
    return struct.pack("<I", len(value)) + bytes(value)


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError
    return b"\1" if value else b"\0"


def _date(value: Any) -> bytes:
    if isinstance(value, str):
        value = date.fromisoformat(value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError
    return struct.pack("<i", (value - _EPOCH_DAY).days)


def _timestamp(value: Any) -> bytes:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise TypeError
    since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    return struct.pack("<q", (since.days * 86400 + since.seconds) * 10**6 + since.microseconds)


def _decimal(value: Any, type_: pa.DataType) -> bytes:
    if isinstance(value, bool | float):
        raise TypeError
    scaled = Decimal(value).scaleb(type_.scale)
    if scaled != scaled.to_integral_value() or abs(scaled) >= 10**type_.precision:
        raise ValueError
    return int(scaled).to_bytes(16, "little", signed=True)
