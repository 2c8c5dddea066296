"""What the tables of an entity source mean: the one place, on Spark and for rows in memory.

- Mutations, a change feed and a shard are updates: a time at which each became known, and a sign.
- A snapshot is the whole table at the last millisecond of its day. It replaces the state that
  updates led to: each earlier update is retracted at its time, and its own rows are added.
- What the first snapshot replaces is ignored, since the snapshot holds it.

`end_of_day` and `replaces` are plain arithmetic: their arguments are numbers, NumPy arrays or
Spark columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from windrow.errors import DataError, SchemaError
from windrow.sources.columns import Form
from windrow.sources.definitions import EntitySource
from windrow.time import DAY
from windrow.updates import DIFF, TIME

_SQL_NAMES = {pa.bool_(): "BOOLEAN", pa.string(): "STRING", pa.int64(): "BIGINT"}


@dataclass(frozen=True)
class UpdateColumns:
    """Where a table of updates has the time and the sign of each.

    `sign` is a column of `type`, in a `form`; `option` is the option of the source that names it.
    """

    known_at: str
    sign: str
    form: Form
    type: pa.DataType
    option: str

    @staticmethod
    def of(source: EntitySource, table: str) -> UpdateColumns:
        """`table` is `mutations`, `changes` or `shard`."""
        if table == "mutations":
            form = Form.BEFORE, pa.bool_(), "is_before"
            return UpdateColumns(source.known_at, source.is_before, *form)
        if table == "changes":
            form = Form.CHANGE, pa.string(), "change_type"
            return UpdateColumns(source.known_at, source.change_type, *form)
        assert table == "shard"
        return UpdateColumns(TIME, DIFF, Form.PLAIN, pa.int64(), table)

    @property
    def names(self) -> list[str]:
        return [self.known_at, self.sign]

    def check(self, found: pa.DataType, source: EntitySource) -> None:
        """`found` is the type of the column with the signs."""
        if found != self.type:
            what = f"{source.what}: {self.option} {self.sign!r}"
            raise SchemaError(f"{what} is {found}; it has to be {_SQL_NAMES[self.type]}")


def end_of_day(days: Any) -> Any:
    """The time of a snapshot, by the days from the epoch to its own.

    >>> end_of_day(0)
    86399999
    """
    return days * DAY + DAY - 1


def snapshot_times(source: EntitySource, days: Sequence[str]) -> tuple[int, ...]:
    """The times of the snapshots of `days`."""
    what = f"{source.what}: snapshots"
    try:
        found = [date.fromisoformat(day) - date(1970, 1, 1) for day in days]
    except ValueError as error:
        raise DataError(
            f"{what}: {source.partition!r} holds {list(days[:3])}; it has to hold days like "
            "'2021-09-30'"
        ) from error
    if not found:
        raise DataError(f"{what}: there are none; load one, or leave snapshots= out")
    return tuple(end_of_day(since // timedelta(days=1)) for since in found)


def replaces(snapshot: Any, known_at: Any, by_snapshot: bool) -> Any:
    """Whether a snapshot retracts an update known at a time, or a row of a snapshot then.

    A snapshot of the same time holds an update, but does not retract itself.

    >>> replaces(7, 7, by_snapshot=False), replaces(7, 7, by_snapshot=True)
    (True, False)
    """
    return snapshot > known_at if by_snapshot else snapshot >= known_at
