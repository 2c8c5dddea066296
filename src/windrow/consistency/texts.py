"""Values as JSON, for reports: every one as a person would write it, none too long."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

_LONGEST = 500  # characters of a text, and elements of a list or map


def as_json(value: Any) -> Any:
    """A value of Arrow's as JSON can hold it.

    >>> as_json([1, math.nan, Decimal("1.50")]), as_json([("rake", 2)])
    ([1, 'NaN', '1.50'], {'rake': 2})
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"
        case str():
            return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        case bytes():
            return as_json(base64.b64encode(value).decode())
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return moment(value)
        case dict():
            return {str(key): as_json(one) for key, one in list(value.items())[:_LONGEST]}
        case [(_, _), *_] if all(isinstance(one, tuple) for one in value):  # a map of Arrow's
            return {str(as_json(key)): as_json(one) for key, one in value[:_LONGEST]}
        case list():
            return [as_json(one) for one in value[:_LONGEST]]
        case _:
            return str(value)


def moment(value: dt.datetime | int) -> str:
    """A time, or milliseconds, in UTC.

    >>> moment(1_715_923_103_596)
    '2024-05-17T05:18:23.596Z'
    """
    if isinstance(value, int):
        value = _EPOCH + dt.timedelta(milliseconds=value)
    aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    text = aware.astimezone(dt.UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def length(milliseconds: int) -> str:
    """A length of time, for people.

    >>> length(3_600_000), length(90_500), length(250)
    ('1 h 0 min', '1 min 30 s', '250 ms')
    """
    milliseconds = abs(milliseconds)
    seconds, rest = divmod(milliseconds, 1000)
    if seconds < 10:
        return f"{milliseconds} ms" if seconds < 1 else f"{seconds}.{rest // 100} s"
    minutes, seconds = divmod(seconds, 60)
    if not minutes:
        return f"{seconds} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {seconds} s"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
