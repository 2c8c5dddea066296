"""Values as JSON, by their type.

| type | as JSON |
| --- | --- |
| integers | numbers, all 64 bits of them |
| floats | numbers; the texts `"NaN"`, `"Infinity"` and `"-Infinity"` |
| decimals | texts, without exponent |
| dates, timestamps | texts of ISO 8601; timestamps in UTC, with a `Z` |
| binary | texts, base64 |
| lists, structs | arrays, objects |
| maps | objects; a key that is no text is written as its value would be, as a text |

Most values need nothing: msgspec writes them, a whole answer in one call. What has to be changed
before is known from the type (`Changes.always`); what has to be looked for, a float that is not
finite, is looked for only if an answer has a `null` in it, which is how msgspec writes such a
float (`Changes.looking`).
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

Change = Callable[[Any], Any]
_UTC = dt.UTC


@dataclass(frozen=True)
class Changes:
    """What to do to the values of a type before they are written; None if there is nothing."""

    always: Change | None
    looking: Change | None


def changes(type: pa.DataType, *, seconds: bool = False) -> Changes:
    """Of a type. With `seconds`, as Feast has it, timestamps are integers: seconds since 1970."""
    return Changes(_change(type, seconds, False), _change(type, seconds, True))


def changed(values: list[Any], change: Change | None) -> list[Any]:
    """A column, changed where it has values."""
    if change is None:
        return values
    return [None if value is None else change(value) for value in values]


def finite(value: float) -> float | str:
    """A number, or the text that stands for it.

    >>> [finite(x) for x in (0.5, math.nan, math.inf, -math.inf)]
    [0.5, 'NaN', 'Infinity', '-Infinity']
    """
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _change(type: pa.DataType, seconds: bool, looking: bool) -> Change | None:
    if pa.types.is_floating(type):
        return finite if looking else None
    if pa.types.is_decimal(type):
        return _plain
    if pa.types.is_timestamp(type):
        if seconds:
            return _seconds
        return _utc if type.tz is not None else None
    if pa.types.is_dictionary(type):
        return _change(type.value_type, seconds, looking)
    if pa.types.is_map(type):
        return _map_change(type, seconds, looking)
    if pa.types.is_struct(type):
        fields = {f.name: _change(f.type, seconds, looking) for f in type.fields}
        known = {name: change for name, change in fields.items() if change is not None}
        return (lambda value: _struct(value, known)) if known else None
    if isinstance(type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        element = _change(type.value_type, seconds, looking)
        return None if element is None else (lambda value: changed(value, element))
    return None


def _map_change(type: pa.MapType, seconds: bool, looking: bool) -> Change:
    item = _change(type.item_type, seconds, looking)

    def change(value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        # Arrow gives the entries of a map as pairs.
        pairs = value.items() if isinstance(value, Mapping) else value
        return {
            as_text(key): one if item is None or one is None else item(one) for key, one in pairs
        }

    return change


def as_text(key: Any) -> str:
    """A key of a map.

    >>> [as_text(key) for key in ("a", 7, True, 0.5, math.nan, Decimal("1E2"), b"ab")]
    ['a', '7', 'true', '0.5', 'NaN', '100', 'YWI=']
    """
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case float():
            return str(finite(key))
        case Decimal():
            return _plain(key)
        case bytes():
            return base64.b64encode(key).decode()
        case dt.datetime():
            return key.isoformat().replace("+00:00", "Z")
        case dt.date():
            return key.isoformat()
        case None:
            return "null"
        case _:
            return str(key)


def _plain(value: Decimal) -> str:
    return format(value, "f")


def _utc(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=_UTC) if value.tzinfo is None else value.astimezone(_UTC)


def _seconds(value: dt.datetime) -> int:
    return math.floor(_utc(value).timestamp())


def _struct(value: Mapping[str, Any], known: Mapping[str, Change]) -> dict[str, Any]:
    return {
        name: one if one is None or name not in known else known[name](one)
        for name, one in value.items()
    }
