"""The days of `--start` and `--end`, checked before Spark takes its seconds to start."""

from __future__ import annotations

from datetime import date

from windrow.errors import OptionError


def check_days(start: str | None, end: str | None) -> None:
    """Both are days, and in order; a range that ends before it starts would answer nothing."""
    days = [_day(text, what) for text, what in ((start, "--start"), (end, "--end"))]
    if days[0] is not None and days[1] is not None and days[0] > days[1]:
        raise OptionError(f"--start {start} is after --end {end}; both days are included")


def _day(text: str | None, what: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError as error:
        raise OptionError(f"{what} is {text!r}; write a day like 2021-09-30") from error
