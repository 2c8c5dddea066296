"""What a client has to send for a column of some type.

`accepted` is a Python type, by which msgspec decodes and checks a request in one call; `settled`
does what is left for a few types, and refuses what no row of the column can be.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

_BOUNDS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
}
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def accepted(type: pa.DataType) -> Any:
    """The Python type of what may be sent, null included; `Any` if the column's says too little."""
    given = _given(type)
    return given if given is Any else given | None


def settled(type: pa.DataType) -> Callable[[Any], Any] | None:
    """Makes a value of what was sent, or raises a ValueError; None if it is one already."""
    if pa.types.is_floating(type):
        return lambda value: _FLOATS[value] if isinstance(value, str) else value
    if pa.types.is_decimal(type):
        return lambda value: _decimal(value, type)
    if pa.types.is_timestamp(type):
        return _aware if type.tz else _naive
    if pa.types.is_dictionary(type):
        return settled(type.value_type)
    return None


def _given(type: pa.DataType) -> Any:
    if type in _BOUNDS:
        least, most = _BOUNDS[type]
        return Annotated[int, msgspec.Meta(ge=least, le=most)]
    if pa.types.is_boolean(type):
        return bool
    if pa.types.is_floating(type):
        return float | Literal["NaN", "Infinity", "-Infinity"]
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return str
    if pa.types.is_binary(type) or pa.types.is_large_binary(type):
        return bytes
    if pa.types.is_decimal(type):
        return Decimal
    if pa.types.is_date(type):
        return dt.date
    if pa.types.is_timestamp(type):
        return dt.datetime
    if pa.types.is_dictionary(type):
        return _given(type.value_type)
    return Any


def _decimal(value: Decimal, type: pa.DataType) -> Decimal:
    # Looked at before it is rounded: 1e999999999 would be written out.
    if not value.is_finite() or (value and value.adjusted() >= type.precision - type.scale):
        raise ValueError(f"{_short(value)} is no {type}")
    fitted: Decimal = round(value, type.scale)
    if fitted != value:
        raise ValueError(f"{_short(value)} has more than {type.scale} digits after the point")
    return fitted


def _aware(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


def _naive(value: dt.datetime) -> dt.datetime:
    return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
