"""A group with its arrangement: its events and rows that change, read slice by slice."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.features import limits
from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.lifetimes import lifetimes_in_place
from windrow.features.compute.types import feature_type
from windrow.features.definitions import JoinedGroup
from windrow.features.inputs.groups import EVENT_TIME, MOMENT, GroupInputs, condition_mask
from windrow.features.strategies.sorted_rows import (
    EventFilter,
    TimeBounds,
    counted_span,
    read_sorted,
    row_scan,
    within,
)
from windrow.rows.types import single_chunk
from windrow.shard.part import Part
from windrow.shard.scan import Scan, Slice
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX
from windrow.sources.definitions import EntitySource, EventSource, PreAggregatedSource, Source
from windrow.updates import DIFF, int64_values


@dataclass(frozen=True)
class Arranged:
    """A group with its arrangement: where its events rest. Picklable."""

    group: JoinedGroup
    scan: Scan
    parts: tuple[Part, ...]
    inputs: tuple[str, ...]
    conditions: tuple[str, ...]
    snapshots: tuple[int, ...] = ()  # moments at which the sum of all updates is the truth

    @staticmethod
    def make(
        group: JoinedGroup,
        bound: GroupInputs,
        shard: Shard,
        asked: TimeBounds | None = None,
        without: tuple[int, ...] = (),
    ) -> Arranged:
        """All events; or, with the first and last time asked for, those that can count.

        Updates at the shard's times `without` are left out.
        """
        read = shard.snapshot(consolidate="none")
        scan = row_scan(read.scan, without)
        # The table is not needed in tasks, and may be a DataFrame, which does not travel.
        sources = [without_tables(source) for source in group.group.sources]
        group = replace(group, group=replace(group.group, source=sources))
        parts = tuple(part for part in read.parts if scan.may_hold(part))
        if asked is not None:
            scan, parts = within(scan, parts, counted_span(group.group, np.array(asked)))
        return Arranged(group, scan, parts, bound.inputs, bound.conditions, bound.snapshots)

    def events(self, slice_: Slice, queries: QueryTimes) -> tuple[Events, pa.Table]:
        """The rows of a slice, and those that take away what is not there.

        If queries are few, events that none of them can count are left out from the start.
        """
        if MOMENT not in self.scan.spec.schema.names:
            rows = sum(part.rows for part in slice_.parts)
            few = queries.times.size * limits.FEW_REQUESTED < rows
            asked = EventFilter.of(self.group.group, queries) if few else None
            table = read_sorted(self.scan, slice_, asked=asked)
            return self.events_of(table), table.slice(0, 0)
        table = read_sorted(self.scan, slice_, once=True)
        diffs = int64_values(table, DIFF)
        moments = int64_values(table, MOMENT)
        table = table.drop_columns([DIFF])
        columns = [single_chunk(c) for c in table.drop_columns([MOMENT, PREFIX]).columns]
        prefixes, times = int64_values(table, PREFIX), int64_values(table, EVENT_TIME)
        # Equal rows have the same key and time, by which the table is sorted.
        new = (prefixes[1:] != prefixes[:-1]) | (times[1:] != times[:-1])
        near = np.concatenate([[0], np.cumsum(new)])[: times.size]
        found = lifetimes_in_place(columns, moments, diffs, self.snapshots, near)
        missing = table.take(pa.array(found.missing))
        lives = (found.born, found.died)
        if found.rows.size != table.num_rows or (np.diff(found.rows) != 1).any():
            order = found.rows.argsort(kind="stable")  # back into the order of keys and times
            table = table.take(pa.array(found.rows[order]))
            lives = (found.born[order], found.died[order])
        return self._events(table, lives), missing

    def rejected(self, missing: pa.Table) -> pa.Table:
        """Rows for the quarantine: deletions of what is not there. There should be none."""
        group = self.group.group
        names = [*group.keys, group.sources[0].time, *self.inputs]
        rows = missing.select([*self.scan.spec.key, EVENT_TIME, *self._values, MOMENT]).to_pylist()
        moments = [dt.datetime.fromtimestamp(row[MOMENT] / 1000, dt.UTC) for row in rows]
        texts = [
            json.dumps(dict(zip(names, row.values(), strict=False)), default=_text) for row in rows
        ]
        reasons = [f"taken away at {moment.isoformat()}, but not there" for moment in moments]
        sources = [", ".join(source.name for source in group.sources)] * len(rows)
        return pa.table([sources, texts, reasons], schema=REJECTED)

    @property
    def _values(self) -> list[str]:
        return [name for name in self.scan.spec.schema.names if name.startswith("v")]

    def events_of(self, table: pa.Table) -> Events:
        """Rows of the arrangement, in its order, as events."""
        return self._events(table, None)

    def _events(self, table: pa.Table, lives: tuple[np.ndarray, np.ndarray] | None) -> Events:
        return Events(
            table.select(list(self.scan.spec.key)),
            int64_values(table, EVENT_TIME),
            table.select(self._values).rename_columns(list(self.inputs)),
            {text: condition_mask(table, f"w{i}") for i, text in enumerate(self.conditions)},
            int64_values(table, PREFIX),
            lives,
        )


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def without_tables(source: Source) -> Source:
    """A source that travels to tasks: what it reads stays behind."""
    if isinstance(source, EntitySource):
        return EntitySource(source.name, source.time, changes="arranged")
    assert isinstance(source, EventSource | PreAggregatedSource)
    return replace(source, table="arranged")


REJECTED = pa.schema([("source", pa.string()), ("row", pa.string()), ("reason", pa.string())])


def feature_fields(group: JoinedGroup, schema: pa.Schema, names: Sequence[str]) -> list[pa.Field]:
    """The columns of a group's features; `schema` is that of its arrangement."""
    inputs = pa.schema([(name, schema.field(f"v{i}").type) for i, name in enumerate(names)])
    return [
        pa.field(group.column(f), feature_type(f.aggregation, inputs, f.name))
        for f in group.group.features
    ]
