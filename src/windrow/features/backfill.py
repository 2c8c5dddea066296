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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.errors import DefinitionError
from windrow.features.arrange import EVENT_TIME, EventInputs, condition_mask, key_type
from windrow.features.compute import Events, QueryTimes, feature_type, group_features
from windrow.features.definitions import Join, JoinedGroup
from windrow.features.queries import KEY, QUERY_TIME
from windrow.features.results import write_file
from windrow.merging import merge_segments
from windrow.rows.ordering import HIGHEST, exact
from windrow.rows.types import single_chunk
from windrow.shard.part import Part
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.report import Written, peak_memory
from windrow.shard.scan import Counters, RunReader, Scan, Slice, TimeRange
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX, by_hash
from windrow.shard.store import Store
from windrow.updates import DIFF, int64_values

SLICE_ROWS = 1_000_000  # events and queries that a task holds
CHUNK_ROWS = 65_536


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

    @staticmethod
    def make(group: JoinedGroup, bound: EventInputs, shard: Shard) -> Arranged:
        read = shard.snapshot(consolidate="none")
        scan = row_scan(read.scan)
        # The table is not needed in tasks, and may be a DataFrame, which does not travel.
        source = replace(group.group.source, table="arranged")
        group = replace(group, group=replace(group.group, source=source))
        return Arranged(group, scan, tuple(read.parts), bound.inputs, bound.conditions)

    def events(self, slice_: Slice) -> Events:
        table = read_sorted(self.scan, slice_)
        values = [name for name in self.scan.spec.schema.names if name.startswith("v")]
        return Events(
            table.select(list(self.scan.spec.key)),
            int64_values(table, EVENT_TIME),
            table.select(values).rename_columns(list(self.inputs)),
            {text: condition_mask(table, f"w{i}") for i, text in enumerate(self.conditions)},
            int64_values(table, PREFIX),
        )


def row_scan(scan: Scan) -> Scan:
    """A scan of everything, at no particular time."""
    return Scan(scan.store, scan.spec, TimeRange(None, HIGHEST, 0), scan.columns)


def read_sorted(scan: Scan, slice_: Slice) -> pa.Table:
    """All rows of a slice, each as often as it is there, with `_prefix`.

    They are in order of the prefix and the first order column: runs are merged, not sorted anew.
    """
    counters = Counters()
    names = [*scan.columns, DIFF, PREFIX]
    tables: list[pa.Table] = []
    lengths: list[int] = []
    for run in slice_.runs:
        reader = RunReader(scan, slice_, run, False, counters, CHUNK_ROWS)
        found = [chunk.table.select(names) for chunk in reader.chunks()]
        tables += found
        lengths.append(sum(table.num_rows for table in found))
    if not tables:
        own = [pa.field(DIFF, pa.int64()), pa.field(PREFIX, pa.int64())]
        return pa.schema([*scan.spec.schema, *own]).empty_table().drop_columns([DIFF])
    table = pa.concat_tables(tables).combine_chunks()
    diffs = int64_values(table, DIFF)
    order: np.ndarray | None = None
    if sum(length > 0 for length in lengths) > 1:
        moments = exact(single_chunk(table.column(scan.spec.order.columns[0])))
        order = merge_segments(np.vstack([int64_values(table, PREFIX), moments]), lengths)
    if diffs.size and diffs.max() > 1:
        order = np.arange(diffs.size) if order is None else order
        order = np.repeat(order, diffs[order])
    table = table.drop_columns([DIFF])
    return table if order is None else table.take(pa.array(order))


@dataclass(frozen=True)
class SliceJob:
    """One pass of a backfill, cut into slices. Picklable: tasks carry it."""

    arranged: tuple[Arranged, ...]
    event_slices: tuple[tuple[Slice, ...], ...]  # for each group, its slices
    queries: Scan
    query_slices: tuple[Slice, ...]
    carried: tuple[str, ...]  # columns of the queries that go into the result
    counted: tuple[str, ...] | None  # left keys whose NULLs are counted, in the last pass
    output: pa.Schema

    @property
    def slices(self) -> int:
        return len(self.query_slices)

    @property
    def rows(self) -> int:
        """Events and queries that are merged."""
        several = [self.query_slices, *self.event_slices]
        parts = {part for slices in several for one in slices for part in one.parts}
        return sum(part.rows for part in parts)

    def compute(self, number: int) -> tuple[pa.Table, dict[str, int]]:
        """The queries of one slice with their features, and what was counted."""
        table = read_sorted(self.queries, self.query_slices[number])
        keys = table.select(list(self.queries.spec.key))
        keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        times = single_chunk(table.column(QUERY_TIME))
        queries = QueryTimes(
            keys,
            times.fill_null(0).to_numpy(zero_copy_only=False),
            times.is_valid().to_numpy(zero_copy_only=False),
            int64_values(table, PREFIX),
        )
        counters = {"queries": table.num_rows}
        if self.counted is not None:
            counters["null_times"] = times.null_count
            counters["null_keys"] = _null_keys(table, self.counted)
        columns = [single_chunk(table.column(name)) for name in self.carried]
        if table.num_rows:
            for arranged, slices in zip(self.arranged, self.event_slices, strict=True):
                events = arranged.events(slices[number])
                counters["events"] = counters.get("events", 0) + events.times.size
                columns += group_features(arranged.group.group, events, queries)
        else:
            columns += [pa.nulls(0, f.type) for f in list(self.output)[len(columns) :]]
        return pa.table(columns, schema=self.output), counters

    def write(self, number: int, store: Store) -> Written:
        """Compute one slice and store it as a file."""
        table, counters = self.compute(number)
        parts = [write_file(store, table)] if table.num_rows else []
        return Written(parts, 0, {**counters, "peak_memory": peak_memory()})


def _null_keys(table: pa.Table, names: Sequence[str]) -> int:
    null = np.zeros(table.num_rows, np.bool_)
    for name in names:
        null |= single_chunk(table.column(name)).is_null().to_numpy(zero_copy_only=False)
    return int(null.sum())


def plan_pass(
    arranged: Sequence[Arranged],
    queries: Shard,
    carried: Sequence[str],
    counted: tuple[str, ...] | None,
    tasks: int,
) -> SliceJob:
    """Cut both sides of a pass at the same prefixes, evenly by rows."""
    read = queries.snapshot(consolidate="none")
    scan = row_scan(read.scan)
    parts = [part for one in arranged for part in one.parts] + read.parts
    rows = sum(part.rows for part in parts)
    wanted = max(min(2 * tasks, rows // 50_000), -(-rows // SLICE_ROWS), 1)
    cuts = even_cuts(parts, wanted, None)
    output = [scan.spec.schema.field(name) for name in carried]
    for one in arranged:
        inputs = pa.schema(
            [
                pa.field(name, one.scan.spec.schema.field(f"v{i}").type)
                for i, name in enumerate(one.inputs)
            ]
        )
        for feature in one.group.group.features:
            type_ = feature_type(feature.aggregation, inputs, feature.name)
            output.append(pa.field(one.group.column(feature), type_))
    return SliceJob(
        tuple(arranged),
        tuple(tuple(slices_between(one.parts, cuts)) for one in arranged),
        scan,
        tuple(slices_between(read.parts, cuts)),
        tuple(carried),
        counted,
        pa.schema(output),
    )


def sorted_queries(uri: str, schema: pa.Schema, options: dict[str, str] | None) -> Shard:
    """An empty shard for queries by key and time, with the columns of `sorted_schema`."""
    return Shard.create(
        uri,
        schema,
        key=[name for name in schema.names if name.startswith(KEY)],
        order=by_hash(QUERY_TIME),
        storage_options=options,
    )


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
