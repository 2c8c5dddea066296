"""Moments as users give them, as milliseconds; and as they are shown in messages."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from windrow.errors import OptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def millis(moment: Any, what: str, zone: str = "UTC") -> int:
    """A moment as milliseconds since the epoch: a number of them, a datetime, a date or text.

    What has no zone of its own is in `zone`.

    >>> millis("2024-05-01 00:00:00", "as_of"), millis(1714521600000, "as_of")
    (1714521600000, 1714521600000)
    """
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if isinstance(moment, str):
        text = moment.strip()
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            if text.lstrip("-").isdecimal():
                return int(text)
            raise OptionError(
                f"{what} is {moment!r}; give milliseconds since the epoch, or a time such as "
                "'2024-05-01 12:30:00'"
            ) from None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=ZoneInfo(zone))
        return int((moment - _EPOCH) // timedelta(milliseconds=1))
    raise OptionError(
        f"{what} is a {type(moment).__name__}; give milliseconds since the epoch, a datetime or "
        "a time as text"
    )


def shown(time: int) -> str:
    """A time for people: as UTC, and as the number that it is.

    >>> shown(1714521600123)
    '2024-05-01 00:00:00.123 UTC (1714521600123)'
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=time)
    except OverflowError:
        return str(time)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time % 1000:03} UTC ({time})"
