"""The stored events of a group, or its rows that change, read slice by slice."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.arrangements.content import FILE
from windrow.arrangements.rows import SortedRows, bounds_of, expanded, row_scan
from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.lifetimes import lifetimes_in_place
from windrow.features.compute.types import feature_type
from windrow.features.definitions import JoinedGroup
from windrow.features.inputs.groups import GroupInputs
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.features.strategies.relevant import EventFilter, TimeBounds, counted_span, within
from windrow.rows.types import single_chunk
from windrow.shard.merge import Consolidation
from windrow.shard.part import Part
from windrow.shard.predicate import bind, col
from windrow.shard.scan import Bound, Scan
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX
from windrow.sources.columns import KNOWN_AT
from windrow.sources.definitions import EntitySource, EventSource, PreAggregatedSource, Source
from windrow.sources.times import to_millis
from windrow.updates import DIFF, TIME, int64_values
from windrow.words.sorting import sort_words

REJECTED = pa.schema([("source", pa.string()), ("row", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True)
class SliceEvents:
    """The events of a slice, and retractions without a matching row."""

    events: Events
    unmatched: pa.Table


@dataclass(frozen=True)
class GroupEvents:
    """A group, and where its events are stored: in its arrangement. Picklable.

    `level` is how far a read has to consolidate so that no retraction remains. With `as_it_is`, the
    parts are those of the source's own shard, whose columns have the names of the source.
    """

    group: JoinedGroup
    layout: Layout
    scan: Scan
    parts: tuple[Part, ...]
    level: Consolidation = Consolidation.NONE
    snapshots: tuple[int, ...] = ()  # times at which the sum of all updates is the truth
    as_it_is: bool = False

    @staticmethod
    def make(
        group: JoinedGroup,
        bound: GroupInputs,
        shard: Shard,
        requested: TimeBounds | None = None,
        chosen: Sequence[int] | None = None,
        retracted: bool = False,
    ) -> GroupEvents:
        """All events; or, with the first and last time requested, those that can count.

        `chosen` are the numbers of the files whose rows are read, None for all. `retracted`:
        rows of rewritten files may still be stored, with their retractions.
        """
        group, layout = travelling(group), bound.layout
        if bound.shard is not None:
            return GroupEvents._shard(group, bound, shard)
        read = shard.snapshot(columns=layout.schema.names, consolidate="none")
        where = None
        if chosen is not None:
            where = bind(col(FILE).is_in(list(chosen)), read.scan.spec.schema)
        scan = row_scan(read.scan, where)
        level = Consolidation.NONE
        if retracted:  # updates of one row at different times have to meet
            scan = replace(scan, times=read.scan.times, timeless=False)
            level = Consolidation.FULL if layout.changing else Consolidation.MONOTONIC
        parts = tuple(part for part in read.parts if scan.may_hold(part))
        if requested is not None:
            span = counted_span(group.group, np.array(requested))
            scan, parts = within(scan, parts, span)
        return GroupEvents(group, layout, scan, parts, level, bound.content.snapshots)

    @staticmethod
    def _shard(group: JoinedGroup, bound: GroupInputs, shard: Shard) -> GroupEvents:
        """A source that is a shard by the group's keys: its rows as they are stored."""
        (source,) = bound.group.sources
        names = dict.fromkeys([*bound.group.keys, source.time, *bound.layout.inputs])
        read = shard.changes(shard.since, shard.upper, columns=list(names))
        scan = replace(read.scan, cache=None)
        parts = tuple(part for part in read.parts if scan.may_hold(part))
        return GroupEvents(group, bound.layout, scan, parts, Consolidation.FULL, (), as_it_is=True)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def reader(self, cuts: Sequence[Bound], numbers: range) -> EventReader:
        """Reads the events of neighbouring slices."""
        return EventReader(self, tuple(cuts), numbers)

    def sorted_rows(self, bounds: tuple[Bound | None, Bound | None]) -> SortedRows:
        return SortedRows(self.scan, self.parts, bounds, self.level, with_times=self.as_it_is)

    def in_layout(self, table: pa.Table) -> pa.Table:
        """Rows of the source's own shard as rows of an arrangement: columns, times and order."""
        if not self.as_it_is:
            return table
        group, layout = self.group.group, self.layout
        (source,) = group.sources
        times, _ = to_millis(single_chunk(table.column(source.time)))
        prefixes = int64_values(table, PREFIX)
        columns = [table.column(name) for name in group.keys]
        columns += [pa.array(times), *(table.column(name) for name in layout.inputs)]
        columns += [table.column(TIME), table.column(DIFF), pa.array(prefixes)]
        made = pa.table(columns, names=[*layout.schema.names, DIFF, PREFIX])
        return made.take(pa.array(sort_words(np.vstack([prefixes, times]))))

    def events_of(self, table: pa.Table) -> Events:
        """Rows of the arrangement, in its order, as events."""
        return self._events(expanded(table), None)

    def updates_of(self, table: pa.Table) -> tuple[Events, np.ndarray]:
        """Rows of the arrangement, in its order, each once, and their diffs, negative ones too."""
        return self._events(table.drop_columns([DIFF]), None), int64_values(table, DIFF)

    def changing_events(self, table: pa.Table) -> SliceEvents:
        """Rows that change, in the order of the arrangement, with their lifetimes."""
        diffs, known_at = int64_values(table, DIFF), int64_values(table, KNOWN_AT)
        table = table.drop_columns([DIFF])
        columns = [single_chunk(c) for c in table.drop_columns([KNOWN_AT, PREFIX]).columns]
        # Equal rows have the same key and time, by which the table is sorted.
        by = int64_values(table, PREFIX), int64_values(table, EVENT_TIME)
        found = lifetimes_in_place(columns, known_at, diffs, self.snapshots, by)
        unmatched = table.take(pa.array(found.missing))
        lives = (found.born, found.died)
        if not found.in_place:
            order = found.rows.argsort(kind="stable")  # back into the order of keys and times
            table = table.take(pa.array(found.rows[order]))
            lives = (found.born[order], found.died[order])
        return SliceEvents(self._events(table, lives), unmatched)

    def _events(self, table: pa.Table, lives: tuple[np.ndarray, np.ndarray] | None) -> Events:
        return Events(
            table.select(self.layout.keys),
            int64_values(table, EVENT_TIME),
            self.layout.input_table(table),
            self.layout.condition_masks(table),
            int64_values(table, PREFIX),
            lives,
        )

    def rejected(self, unmatched: pa.Table) -> pa.Table:
        """Rows for the quarantine: retractions without a matching row. There should be none."""
        group, layout = self.group.group, self.layout
        names = [*group.keys, group.sources[0].time, *layout.inputs]
        columns = [*layout.keys, EVENT_TIME, *layout.values, KNOWN_AT]
        rows = unmatched.select(columns).to_pylist()
        times = [dt.datetime.fromtimestamp(row[KNOWN_AT] / 1000, dt.UTC) for row in rows]
        texts = [
            json.dumps(dict(zip(names, row.values(), strict=False)), default=_text) for row in rows
        ]
        reasons = [f"retracted at {time.isoformat()}, but not there" for time in times]
        sources = [", ".join(source.name for source in group.sources)] * len(rows)
        return pa.table([sources, texts, reasons], schema=REJECTED)


class EventReader:
    """Reads the events of neighbouring slices, one after the other; slices may be left out."""

    def __init__(self, events: GroupEvents, cuts: tuple[Bound, ...], numbers: range) -> None:
        self._events, self._cuts, self._last = events, cuts, numbers[-1]
        self._rows: SortedRows | None = None
        self._number = self._reached = numbers[0]  # the slice to read, the one that runs are in

    def start(self, number: int) -> None:
        """Move on to a slice."""
        self._number = number

    def below(self, end: Bound | None, queries: QueryTimes, few: bool) -> SliceEvents:
        """The events of the slice up to `end`, beyond those read before, for some queries.

        If queries are few, events that none of them can count are left out from the start.
        """
        events = self._events
        if self._rows is None or self._number > self._reached + 1:
            self._rows = events.sorted_rows(bounds_of(self._cuts, self._number, self._last))
        self._reached = self._number
        if events.layout.changing:
            return events.changing_events(events.in_layout(self._rows.below(end)))
        keep = EventFilter.of(events.group.group, queries).filter if few else None
        table = self._rows.below(end, keep)
        return SliceEvents(events.events_of(table), table.slice(0, 0))


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def travelling(group: JoinedGroup) -> JoinedGroup:
    """A group for tasks: the tables of its sources stay behind, they may be DataFrames."""
    sources = [_without_tables(source) for source in group.group.sources]
    return replace(group, group=replace(group.group, source=sources))


def _without_tables(source: Source) -> Source:
    if isinstance(source, EntitySource):
        return EntitySource(source.name, source.time, changes="arranged")
    assert isinstance(source, EventSource | PreAggregatedSource)
    return replace(source, table="arranged")


def feature_fields(group: JoinedGroup, layout: Layout) -> list[pa.Field]:
    """The columns of a group's features."""
    return [
        pa.field(group.column(f), feature_type(f.aggregation, layout.input_schema, f.name))
        for f in group.group.features
    ]
