"""Time as Windrow counts it: int64 milliseconds since the epoch, UTC; lengths, and days."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from windrow.errors import DefinitionError, OptionError

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_LONGEST = 2**62


def parse_length(text: str, what: str = "window") -> int:
    """Milliseconds of a length such as `90s`, `5m`, `5h`, `7d` or `2w`.

    >>> parse_length("90s"), parse_length("2w") == 14 * DAY
    (90000, True)
    """
    match = re.fullmatch(r"\s*(-?\d+)\s*([a-zA-Z]*)\s*", text) if isinstance(text, str) else None
    if match is None:
        raise DefinitionError(f"{what} {text!r} is not a length; write for example '5h' or '7d'")
    amount, unit = int(match[1]), match[2]
    if unit not in _UNITS:
        raise DefinitionError(
            f"{what} {text!r} has the unit {unit!r}; the units are {', '.join(_UNITS)}"
        )
    if amount <= 0:
        raise DefinitionError(f"{what} {text!r} is not positive")
    length = amount * _UNITS[unit]
    if length > _LONGEST:
        raise DefinitionError(f"{what} {text!r} is longer than all of time; leave it out instead")
    return length


def now_millis() -> int:
    """The time of this machine's clock."""
    return time.time_ns() // 1_000_000


def floor_to(times: np.ndarray, step: int) -> np.ndarray:
    """The greatest multiple of `step` not above each time (also before the epoch)."""
    floored: np.ndarray = times // step * step
    return floored


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def is_day(text: Any) -> bool:
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def first_millisecond(value: Any, what: str) -> int | None:
    """The first millisecond of a day, UTC."""
    if value is None:
        return None
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else value
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    except (ValueError, AttributeError) as error:
        raise OptionError(f"{what} is {value!r}; write a day like '2021-09-30'") from error
    return (midnight - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
