"""Passes: the groups of a join that are computed together, since they share their keys; and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windrow.features import limits
from windrow.features.definitions import Join, JoinedGroup
from windrow.features.inputs.layout import EVENT_TIME
from windrow.features.inputs.queries import QueryInputs
from windrow.features.plan.arrangement import PlannedArrangement, many
from windrow.features.plan.strategy import BROADCAST, GATHER, MERGE, TILES, choose_strategy
from windrow.features.strategies.merge import even_slices, slice_count
from windrow.features.strategies.relevant import TimeBounds, counted_span, time_bounds
from windrow.rows.ordering import LOWEST
from windrow.shard.part import Part
from windrow.shard.scan import Bound


@dataclass(frozen=True)
class Pass:
    """Groups whose keys are the same left columns; they are computed together."""

    left_keys: tuple[str, ...]
    groups: tuple[JoinedGroup, ...]


def passes_of(join: Join) -> list[Pass]:
    """The groups of a join by their left keys, in the order in which keys first occur."""
    by_keys: dict[tuple[str, ...], list[JoinedGroup]] = {}
    for group in join.groups:
        by_keys.setdefault(group.left_keys, []).append(group)
    return [Pass(keys, tuple(groups)) for keys, groups in by_keys.items()]


@dataclass(frozen=True)
class PassPlan:
    """Groups computed together, beside the queries sorted by the same keys; how, and why so.

    `arrangements` are numbers of the plan's arrangements, one per group. `sorts`: the queries are
    sorted by a job of their own; otherwise they are few, and every task sorts them. `cuts` are the
    prefixes between slices; None if the rows are counted only once they are arranged. `large` are
    the prefixes of keys that have tiles, with their events; none of them: all keys have.
    """

    keys: Pass
    arrangements: tuple[int, ...]
    events: int | None
    queries: int | None
    strategy: str
    reason: str
    sorts: bool
    cuts: tuple[Bound, ...] | None = None
    large: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        features = sum(len(g.group.features) for g in self.keys.groups)
        windows = {f.window for g in self.keys.groups for f in g.group.features}
        names = ", ".join(g.group.name for g in self.keys.groups)
        text = (
            f"{names}: {self.strategy} by {', '.join(self.keys.left_keys)} ({self.reason}); "
            f"{many(features, 'feature')} in {many(len(windows), 'window')}"
        )
        if self.strategy == BROADCAST:
            return f"{text}; events are neither sorted nor stored"
        if self.strategy == GATHER:
            text += "; only rows of requested keys are arranged, for this run"
        if self.strategy == TILES:
            whose = f"{many(len(self.large), 'large key')}" if self.large else "all keys"
            text += f"; tiles of 5 min, 1 h and 1 d for {whose}, raw events at the ends of windows"
        return f"{text}; {self._slices()}"

    def _slices(self) -> str:
        if self.cuts is None:
            return f"slices of at most {limits.SLICE_ROWS:,} rows, counted once they are arranged"
        rows = (self.events or 0) + (self.queries or 0)
        count = len(self.cuts) + 1
        return f"{many(count, 'slice')} of about {-(-rows // count):,} rows"


def plan_pass(
    keys: Pass,
    numbers: tuple[int, ...],
    known: Sequence[PlannedArrangement],
    queries: QueryInputs,
    forced: str | None,
    *,
    direct: bool,
    tasks: int,
) -> PassPlan:
    """`direct`: tasks read the queries by themselves. `tasks` run at a time."""
    arrangements = [known[n] for n in sorted(set(numbers))]
    rows = [one.estimated_rows for one in arrangements]
    events = None if None in rows else sum(r for r in rows if r is not None)
    parquet = queries.table.parquet
    count = None if parquet is None else parquet.rows
    strategy, reason = choose_strategy(arrangements, events, count, forced)
    large = _large_keys(arrangements) if strategy == TILES else {}
    cuts: tuple[Bound, ...] | None = None
    if strategy == BROADCAST:
        cuts = ()
    elif strategy != GATHER:
        requested = queries.times if strategy == MERGE else None  # tiles are made of all events
        parts, pending = _parts(keys, numbers, known, requested)
        if pending is not None and count is not None:
            events = sum(part.rows for part in parts) + pending
            cuts = _cuts(parts, events + count, tasks, large)
    sorts = not direct or count is None or count > limits.FEW_QUERIES
    return PassPlan(keys, numbers, events, count, strategy, reason, sorts, cuts, large)


def _large_keys(arrangements: Sequence[PlannedArrangement]) -> dict[int, int]:
    """Prefixes of keys with more events than a slice has rows, and how many."""
    found: dict[int, int] = {}
    for one in arrangements:
        for prefix, rows in (one.todo.large or {}).items():
            if rows > limits.SLICE_ROWS:
                found[prefix] = max(rows, found.get(prefix, 0))
    return found


def _parts(
    keys: Pass,
    numbers: Sequence[int],
    known: Sequence[PlannedArrangement],
    requested: TimeBounds | None,
) -> tuple[list[Part], int | None]:
    """The parts that are there and can count, and the rows still to come (None: unknown)."""
    parts: list[Part] = []
    pending: int | None = 0
    for group, number in zip(keys.groups, numbers, strict=True):
        one = known[number]
        found = one.parts
        if requested is not None and not one.inputs.layout.changing:
            start, end = counted_span(group.group, np.array(requested))
            found = [part for part in found if _overlaps(part, start, end)]
        parts += found
        more = one.pending_rows
        pending = None if pending is None or more is None else pending + more
    return parts, pending


def _overlaps(part: Part, start: int, end: int) -> bool:
    known = time_bounds([part], EVENT_TIME)
    return known is None or (known[1] >= start and known[0] < end)


def _cuts(
    parts: Sequence[Part], rows: int, tasks: int, large: Mapping[int, int]
) -> tuple[Bound, ...]:
    if sum(part.rows for part in parts) * 2 > rows:
        return tuple(even_slices(parts, rows, tasks, large))
    # Most rows are still to be arranged: hashes are spread evenly over all integers.
    count = slice_count(rows, tasks)
    return tuple((LOWEST + number * 2**64 // count, LOWEST) for number in range(1, count))
