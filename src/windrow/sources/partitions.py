"""Ranges of date partitions, and the error if a day is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from windrow.errors import DataError, DefinitionError
from windrow.spark.schemas import quoted
from windrow.time import is_day

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class PartitionRange:
    """The days of a table to read, by the column that it is laid out by. Both ends included.

    Every day between the two has to be there, unless `missing` is "ignore".
    """

    column: str
    start: str | None = None
    end: str | None = None
    missing: str = "error"

    def __post_init__(self) -> None:
        for what, day in (("start_partition", self.start), ("end_partition", self.end)):
            if day is not None and not is_day(day):
                raise DefinitionError(f"{what} is {day!r}; write a day like '2021-09-30'")
        if self.start is not None and self.end is not None and self.start > self.end:
            raise DefinitionError(
                f"start_partition {self.start!r} is after end_partition {self.end!r}"
            )
        if self.missing not in ("error", "ignore"):
            raise DefinitionError(
                f"missing_partitions is {self.missing!r}; it is 'error' or 'ignore'"
            )

    @property
    def is_open(self) -> bool:
        """Whether all partitions are read."""
        return self.start is None and self.end is None

    def __contains__(self, day: str) -> bool:
        return (self.start is None or self.start <= day) and (self.end is None or day <= self.end)

    def condition(self) -> Column:
        """For Spark: whether a row's day is in the range."""
        from pyspark.sql import functions as F  # noqa: N812

        day, holds = F.col(quoted(self.column)).cast("string"), F.lit(True)
        if self.start is not None:
            holds &= day >= self.start
        return holds if self.end is None else holds & (day <= self.end)

    def check(self, found: Sequence[str], what: str) -> None:
        """All days of the range have to be among those found."""
        if self.missing == "ignore" or self.is_open:
            return
        days = sorted(day for day in found if is_day(day))
        first, last = self.start or next(iter(days), None), self.end or next(iter(days[::-1]), None)
        if first is None or last is None:
            raise DataError(f"{what}: there is no partition of {self.column!r}; found {found[:5]}")
        gone = [day for day in _days(first, last) if day not in set(days)]
        if gone:
            shown = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
            there = f"there are {days[0]} to {days[-1]}" if days else "there are none"
            raise DataError(
                f"{what}: partitions of {self.column!r} are missing: {shown}; {there}. Load "
                "them, narrow start_partition and end_partition, or set "
                "missing_partitions='ignore'"
            )


def _days(first: str, last: str) -> Iterator[str]:
    day, end = date.fromisoformat(first), date.fromisoformat(last)
    while day <= end:
        yield day.isoformat()
        day += timedelta(days=1)
