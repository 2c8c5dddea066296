"""What a serving log counted, and how much of what was served it has."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from windrow.online.log.counts import COUNTS
from windrow.online.log.places import counts_table_of
from windrow.storage.delta import open_table
from windrow.storage.store import Store
from windrow.time import HOUR


@dataclass(frozen=True)
class Coverage:
    """How many requests there were in the hours of a span, and what became of them.

    `unclosed` are writers that have not ended, or were killed: what they served since they last
    wrote is in no count.
    """

    requests: int = 0
    logged: int = 0
    sampled_out: int = 0
    dropped: int = 0
    unclosed: int = 0


def counts(root: Store, name: str) -> pa.Table:
    """All that was counted: see `windrow.online.log.counts`."""
    table = open_table(counts_table_of(root, name))
    if table is None:
        return COUNTS.empty_table()
    return pa.table(table.to_pyarrow_table()).select(COUNTS.names)


def coverage(found: pa.Table, start: int | None = None, end: int | None = None) -> Coverage:
    """Of the hours that have a part in [start, end), in milliseconds."""
    hours = pc.cast(found["hour"], pa.int64())
    wanted = pc.is_valid(hours)
    if start is not None:
        wanted = pc.and_kleene(wanted, pc.greater(hours, (start - HOUR) * 1000))
    if end is not None:
        wanted = pc.and_kleene(wanted, pc.less(hours, end * 1000))
    rows = found.filter(pc.fill_null(wanted, False))
    closed = set(found.filter(found["closed"])["writer"].to_pylist())
    writers = set(rows["writer"].to_pylist())

    def added(name: str) -> int:
        return pc.sum(rows[name]).as_py() or 0

    return Coverage(
        added("requests"),
        added("logged"),
        added("sampled_out"),
        added("dropped"),
        len(writers - closed),
    )
