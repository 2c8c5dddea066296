"""Which events can count for queries at all: by their times, and by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.features import limits
from windrow.features.compute.events import QueryTimes
from windrow.features.definitions import GroupBy
from windrow.features.inputs.layout import EVENT_TIME
from windrow.shard.keys import positions_in_sorted
from windrow.shard.part import Part
from windrow.shard.predicate import bind, col
from windrow.shard.scan import Scan
from windrow.shard.spec import PREFIX
from windrow.updates import int64_values

TimeBounds = tuple[int, int]  # the first and the last millisecond


def counted_span(group: GroupBy, times: np.ndarray) -> TimeBounds:
    """The times [start, end) of events that can count for queries at `times`."""
    times = group.effective_times(times)
    bounds = [feature.window.bounds(times) for feature in group.features] if times.size else []
    return (
        min((int(start.min()) for start, _ in bounds), default=0),
        max((int(end.max()) for _, end in bounds), default=0),
    )


def within(scan: Scan, parts: Sequence[Part], span: TimeBounds) -> tuple[Scan, tuple[Part, ...]]:
    """The scan and its parts, reduced to events with times in [start, end).

    Others do no harm: where they are few, parts are left out, but not single rows.
    """
    condition = (col(EVENT_TIME) >= span[0]) & (col(EVENT_TIME) < span[1])
    if scan.where is not None:
        condition = scan.where & condition
    reduced = replace(scan, where=bind(condition, scan.spec.schema))
    kept = tuple(part for part in parts if reduced.may_hold(part))
    rows = sum(part.rows for part in kept)
    wanted = sum(part.rows * _share(time_bounds([part], EVENT_TIME), span) for part in kept)
    return (scan if wanted > limits.NEARLY_ALL * rows else reduced), kept


def _share(known: TimeBounds | None, span: TimeBounds) -> float:
    """How much of the times between two bounds is in [start, end); 0 if they are unknown."""
    if known is None:
        return 0.0
    overlap = min(known[1], span[1] - 1) - max(known[0], span[0]) + 1
    return max(overlap, 0) / (known[1] - known[0] + 1)


def time_bounds(parts: Sequence[Part], column: str) -> TimeBounds | None:
    """The first and last time in a column, from the parts' statistics; None if unknown."""
    known = [part.bounds.get(column) for part in parts]
    if any(one is None or one.low is None for one in known) or not known:
        return None
    return min(b.low for b in known if b), max(b.high for b in known if b)


@dataclass(frozen=True)
class EventFilter:
    """What few queries request of a slice: rows with these prefixes and a time in the span."""

    prefixes: np.ndarray  # sorted
    start: int
    end: int

    @staticmethod
    def of(group: GroupBy, queries: QueryTimes) -> EventFilter:
        assert queries.hashes is not None
        span = counted_span(group, queries.times[queries.valid])
        return EventFilter(np.unique(queries.hashes[queries.valid]), *span)

    def filter(self, table: pa.Table) -> pa.Table:
        """Of rows that are sorted by prefix, those that can count."""
        rows = positions_in_sorted(int64_values(table, PREFIX), self.prefixes)
        times = int64_values(table, EVENT_TIME)[rows]
        return table.take(pa.array(rows[(times >= self.start) & (times < self.end)]))
