"""The backfill: features for every query, as they were at its moment.

    events   ── arrange, once ──▶ shard by (hash of key, time) ─┐
                                                                ├─ slice by slice ─▶ result
    queries  ── sort ───────────▶ shard by (hash of key, time) ─┘

Both sides are cut at the same prefixes. A task reads its slice of each, finds the events of every
query's windows, and computes all features in one pass. Nothing is shuffled, no row passes through
the driver, and a task holds no more than its slice.

Groups that share their keys are computed together; for other keys the queries are sorted anew,
carrying the features they have.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import DefinitionError, ShardNotFoundError
from windrow.features.arrange import EVENT_TIME, MOMENT, GroupInputs, condition_mask, key_type
from windrow.features.compute import Events, QueryTimes, feature_type, group_features
from windrow.features.definitions import Join, JoinedGroup
from windrow.features.lifetimes import lifetimes_in_place
from windrow.features.queries import KEY, QUERY_TIME
from windrow.features.results import write_file
from windrow.features.slices import (
    EventFilter,
    QuerySlices,
    TimeBounds,
    counted_span,
    read_sorted,
    row_scan,
    within,
)
from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.rows.types import single_chunk
from windrow.shard.part import Part, WrittenPart
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.report import Written, peak_memory
from windrow.shard.scan import Scan, Slice
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX, ShardSpec, by_hash
from windrow.shard.store import Store
from windrow.sources.definitions import (
    EntitySource,
    EventSource,
    PreAggregatedSource,
    Source,
)
from windrow.updates import DIFF, int64_values

SLICE_ROWS = 1_000_000  # events and queries that a task holds
FEW_ASKED = 50  # events for each query of a slice, from which on filtering first pays


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
            few = queries.times.size * FEW_ASKED < rows
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


@dataclass(frozen=True)
class SliceTarget:
    """Where slices go: their files, rows that cannot be used, and notes of what is finished.

    A note is written once a slice's files are whole, so that a run that was interrupted can go on
    after the slices that are done. Picklable.
    """

    name: str  # begins the names of files
    store: Store
    quarantine: Store
    notes: Store

    def finished(self, number: int, written: Written) -> None:
        text = json.dumps(asdict(written))
        with self.notes.open_output(f"{number}.json") as out:
            out.write(text.encode())

    def done(self) -> dict[int, Written]:
        """The slices that an earlier run finished, and whose files are still there."""
        found: dict[int, Written] = {}
        names = self.notes.names()
        there = {*self.store.names(), *self.quarantine.names()} if names else set()
        for name in names:
            try:
                note = json.loads(self.notes.open_input(name).read())
                number = int(name.removesuffix(".json"))
                parts, rejected = (
                    [WrittenPart(**part) for part in note[kind]] for kind in ("parts", "rejected")
                )
            except (ValueError, KeyError, TypeError):
                continue  # the process died while it wrote the note: the slice is done again
            if there.issuperset(part.path for part in [*parts, *rejected]):
                found[number] = Written(parts, 0, note["counters"], rejected)
        return found


REJECTED = pa.schema([("source", pa.string()), ("row", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True)
class SliceResult:
    """Queries with their features; rows that could not be used; and what was counted."""

    table: pa.Table
    rejected: list[pa.Table]
    counters: dict[str, int]


def write_slice(found: SliceResult, target: SliceTarget) -> Written:
    """Store what was computed of one slice."""
    parts = []
    if found.table.num_rows:
        parts = [write_file(target.store, found.table, target.name)]
    rejected = [write_file(target.quarantine, table, target.name) for table in found.rejected]
    return Written(parts, 0, {**found.counters, "peak_memory": peak_memory()}, rejected)


@dataclass(frozen=True)
class SliceJob:
    """One pass of a backfill, cut into slices. Picklable: tasks carry it."""

    arranged: tuple[Arranged, ...]
    event_slices: tuple[tuple[Slice, ...], ...]  # for each group, its slices
    queries: QuerySlices
    carried: tuple[str, ...]  # columns of the queries that go into the result
    counted: tuple[str, ...] | None  # left keys whose NULLs are counted, in the last pass
    output: pa.Schema

    @property
    def slices(self) -> int:
        return len(self.queries.cuts) + 1

    @property
    def rows(self) -> int:
        """Events and queries that are merged."""
        several = self.event_slices
        parts = {part for slices in several for one in slices for part in one.parts}
        return self.queries.rows + sum(part.rows for part in parts)

    def compute(self, number: int) -> SliceResult:
        """The queries of one slice with their features."""
        table = self.queries.read(number)
        queries = self.query_times(table)
        base = self.carried_of(table)
        columns, rejected, counters = base.table.columns, [], base.counters
        if table.num_rows:
            for arranged, slices in zip(self.arranged, self.event_slices, strict=True):
                events, missing = arranged.events(slices[number], queries)
                if missing.num_rows:
                    counters["missing"] = counters.get("missing", 0) + missing.num_rows
                    rejected.append(arranged.rejected(missing))
                counters["events"] = counters.get("events", 0) + events.times.size
                columns += group_features(arranged.group.group, events, queries)
        else:
            columns += [pa.nulls(0, f.type) for f in list(self.output)[len(columns) :]]
        return SliceResult(pa.table(columns, schema=self.output), rejected, counters)

    def query_times(self, table: pa.Table) -> QueryTimes:
        keys = table.select(list(self.queries.spec.key))
        times = single_chunk(table.column(QUERY_TIME))
        return QueryTimes(
            keys.rename_columns([f"k{i}" for i in range(keys.num_columns)]),
            times.fill_null(0).to_numpy(zero_copy_only=False),
            times.is_valid().to_numpy(zero_copy_only=False),
            int64_values(table, PREFIX),
        )

    def carried_of(self, table: pa.Table) -> SliceResult:
        """The columns of queries that go into the result, and what is counted of them."""
        counters = {"queries": table.num_rows}
        if self.counted is not None:
            counters["null_times"] = table.column(QUERY_TIME).null_count
            counters["null_keys"] = _null_keys(table, self.counted)
        columns = [single_chunk(table.column(name)) for name in self.carried]
        return SliceResult(pa.table(columns, names=list(self.carried)), [], counters)

    def all_queries(self) -> QueryTimes:
        """The queries of all slices; for few of them."""
        return self.query_times(self._all())

    def without_features(self) -> SliceResult:
        """All queries, in the order of `all_queries`."""
        return self.carried_of(self._all())

    def _all(self) -> pa.Table:
        tables = [self.queries.read(number) for number in range(self.slices)]
        return pa.concat_tables(tables).combine_chunks()

    def write(self, number: int, target: SliceTarget) -> Written:
        """Compute one slice and store it as a file."""
        written = write_slice(self.compute(number), target)
        target.finished(number, written)
        return written

    @property
    def digest(self) -> str:
        """Names the cut into slices: work that was cut otherwise cannot be gone on with."""
        parts = [sorted(p.path for s in slices for p in s.parts) for slices in self.event_slices]
        text = json.dumps([self.queries.cuts, parts, str(self.output)], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _null_keys(table: pa.Table, names: Sequence[str]) -> int:
    null = np.zeros(table.num_rows, np.bool_)
    for name in names:
        null |= single_chunk(table.column(name)).is_null().to_numpy(zero_copy_only=False)
    return int(null.sum())


def plan_pass(
    arranged: Sequence[Arranged],
    queries: QuerySlices,
    carried: Sequence[str],
    counted: tuple[str, ...] | None,
    tasks: int,
    apart: Iterable[int] = (),
) -> SliceJob:
    """Cut both sides of a pass at the same prefixes, evenly by rows; each of `apart` by itself."""
    parts = [*(part for one in arranged for part in one.parts), *queries.parts]
    rows = sum(part.rows for part in parts)
    wanted = max(min(2 * tasks, rows // 50_000), -(-rows // SLICE_ROWS), 1)
    if wanted > tasks:
        wanted = -(-wanted // tasks) * tasks  # no last round in which most tasks wait
    cuts = even_cuts(parts, wanted, None)
    for prefix in apart:
        cuts += [(prefix, LOWEST), *([(prefix + 1, LOWEST)] if prefix < HIGHEST else [])]
    cuts = sorted(set(cuts))
    output = [queries.spec.schema.field(name) for name in carried]
    for one in arranged:
        output += feature_fields(one.group, one.scan.spec.schema, one.inputs)
    return SliceJob(
        tuple(arranged),
        tuple(tuple(slices_between(one.parts, cuts)) for one in arranged),
        replace(queries, cuts=tuple(cuts)),
        tuple(carried),
        counted,
        pa.schema(output),
    )


def feature_fields(group: JoinedGroup, schema: pa.Schema, names: Sequence[str]) -> list[pa.Field]:
    """The columns of a group's features; `schema` is that of its arrangement."""
    inputs = pa.schema([(name, schema.field(f"v{i}").type) for i, name in enumerate(names)])
    return [
        pa.field(group.column(f), feature_type(f.aggregation, inputs, f.name))
        for f in group.group.features
    ]


def query_spec(schema: pa.Schema) -> ShardSpec:
    """How queries with the columns of `sorted_schema` are sorted: by key and time."""
    keys = [name for name in schema.names if name.startswith(KEY)]
    return ShardSpec.make(schema, keys, by_hash(QUERY_TIME))


def sorted_queries(uri: str, schema: pa.Schema, options: dict[str, str] | None) -> Shard:
    """The shard for queries by key and time."""
    with contextlib.suppress(ShardNotFoundError):
        return Shard.open(uri, storage_options=options)
    spec = query_spec(schema)
    return Shard.create(uri, schema, key=spec.key, order=spec.order, storage_options=options)


def check_keys(group: JoinedGroup, left: pa.Schema, events: pa.Schema) -> None:
    """Keys on both sides have to be of one kind, or nothing would ever match."""
    for i, (key, name) in enumerate(zip(group.group.keys, group.left_keys, strict=True)):
        if name not in left.names:
            raise DefinitionError(
                f"GroupBy {group.group.name!r}: key {key!r} is joined on the left column {name!r}, "
                f"which is not there; left columns: {left.names}. Use .on({key}='...')"
            )
        found, wanted = key_type(left.field(name).type), events.field(f"k{i}").type
        if found != wanted:
            raise DefinitionError(
                f"GroupBy {group.group.name!r}: key {key!r} is {wanted}, the left column {name!r} "
                f"is {left.field(name).type}; cast one of them in select"
            )
