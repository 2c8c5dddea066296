"""What a serving log counted: requests by the hour of their time, logged, left out and lost.

A verdict over logged values says how many there were that it did not see. A writer adds up what it
counts, and appends the sums with each batch; one that ends says so. Requests of a writer that was
killed since its last batch are in neither table: it is one that never ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from windrow.online.log.columns import MOMENT
from windrow.time import HOUR

COUNTS = pa.schema(
    [
        ("writer", pa.string()),
        ("closed", pa.bool_()),  # the last row of a writer that ended
        ("written", MOMENT),  # by the writer's clock
        ("clock_ahead", pa.int64()),  # milliseconds by which that clock is ahead of the store's
        ("version", pa.string()),
        ("hour", MOMENT),  # of the requests' times
        ("requests", pa.int64()),
        ("logged", pa.int64()),
        ("sampled_out", pa.int64()),
        ("dropped", pa.int64()),
        ("last_clock", MOMENT),  # of the last request among them
        ("fresh", pa.map_(pa.string(), MOMENT)),  # the freshest that a group was served
    ]
)
Place = tuple[str, str, int]  # name, version, and hour of the requests' times


@dataclass
class Count:
    """Of the requests of one place."""

    requests: int = 0
    logged: int = 0
    sampled_out: int = 0
    dropped: int = 0
    last_clock: int | None = None
    fresh: dict[str, int] = field(default_factory=dict)

    def add(self, other: Count) -> None:
        self.requests += other.requests
        self.logged += other.logged
        self.sampled_out += other.sampled_out
        self.dropped += other.dropped
        if other.last_clock is not None:
            self.last_clock = max(self.last_clock or other.last_clock, other.last_clock)
        for group, time in other.fresh.items():
            self.fresh[group] = max(time, self.fresh.get(group, time))


def hour_of(time: int) -> int:
    return time - time % HOUR


def counts_table(
    writer: str,
    counts: Mapping[Place, Count],
    *,
    written: int,
    ahead: int | None,
    closed: bool,
) -> pa.Table:
    """Rows of the table of one name."""
    rows: list[dict[str, Any]] = [
        {
            "version": version,
            "hour": hour * 1000,
            "requests": one.requests,
            "logged": one.logged,
            "sampled_out": one.sampled_out,
            "dropped": one.dropped,
            "last_clock": None if one.last_clock is None else one.last_clock * 1000,
            "fresh": {group: time * 1000 for group, time in one.fresh.items()},
        }
        for (_, version, hour), one in counts.items()
    ]
    if closed:
        rows.append({"requests": 0, "logged": 0, "sampled_out": 0, "dropped": 0})
    for row in rows:
        row |= {"writer": writer, "closed": closed, "clock_ahead": ahead, "written": written * 1000}
        row["closed"] = closed and row is rows[-1]
    columns = [pa.array([row.get(name) for row in rows], type_) for name, type_ in _PLAIN.items()]
    return pa.table(columns, names=list(_PLAIN)).cast(COUNTS)


# Times as microseconds, as Arrow makes them from numbers.
_PLAIN = {
    field.name: pa.int64() if field.type == MOMENT else field.type
    for field in COUNTS
    if field.name != "fresh"
} | {"fresh": pa.map_(pa.string(), pa.int64())}
