"""The broadcast strategy: few queries, over events that are not arranged.

    queries  ── sort ──▶ small shard ── a copy to every task ─┐
                                                              ├─▶ partials ── combine ──▶ result
    events   ── as they come, a share to each task ───────────┘

A task keeps the events of keys that are asked for, finds for each the span of queries that count
it, and lifts the events of equal spans together. Events are neither shuffled nor sorted, and what
a task hands on is the size of the queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.algebra.windows import floor_to
from windrow.features.arrange import EVENT_TIME, MOMENT, GroupInputs, condition_mask
from windrow.features.backfill import SliceJob, SliceResult, feature_fields, without_tables
from windrow.features.compute import Asked, Events, QueryTimes, canonical_table
from windrow.features.definitions import JoinedGroup
from windrow.features.lifetimes import ALWAYS, NEVER
from windrow.features.partials import combine_features, no_partials, partial_features
from windrow.features.timeline import Timelines
from windrow.merging import group_ids, sort_words
from windrow.rows.equality import equal_pairs
from windrow.rows.hashing import hash_keys
from windrow.rows.types import conform, single_chunk
from windrow.shard.part import WrittenPart, new_id
from windrow.shard.report import Written, peak_memory
from windrow.shard.store import Store
from windrow.updates import DIFF, int64_values

GATHER_ROWS = 500_000  # events of asked keys that a task holds before it lifts them
_SCHEMA = pa.schema([("feature", pa.int64()), ("partial", pa.large_binary())])


@dataclass(frozen=True)
class EventShape:
    """The columns of a group's events, as an arrangement would hold them."""

    group: JoinedGroup
    schema: pa.Schema
    inputs: tuple[str, ...]
    conditions: tuple[str, ...]

    @staticmethod
    def make(group: JoinedGroup, bound: GroupInputs) -> EventShape:
        sources = [without_tables(source) for source in group.group.sources]
        group = replace(group, group=replace(group.group, source=sources))
        return EventShape(group, bound.schema, bound.inputs, bound.conditions)

    def fields(self) -> list[pa.Field]:
        return feature_fields(self.group, self.schema, self.inputs)

    @property
    def input_schema(self) -> pa.Schema:
        return pa.schema(
            [(name, self.schema.field(f"v{i}").type) for i, name in enumerate(self.inputs)]
        )

    def events(self, table: pa.Table) -> Events:
        keys = [name for name in self.schema.names if name.startswith("k")]
        values = [name for name in self.schema.names if name.startswith("v")]
        lives = None
        if MOMENT in self.schema.names:
            born = int64_values(table, MOMENT)
            lives = (born, np.full(born.size, NEVER))
        return Events(
            table.select(keys),
            int64_values(table, EVENT_TIME),
            table.select(values).rename_columns(list(self.inputs)),
            {text: condition_mask(table, f"w{i}") for i, text in enumerate(self.conditions)},
            None,
            lives,
        )


@dataclass(frozen=True)
class BroadcastJob:
    """What every task knows: the queries, and a group's columns. Picklable."""

    shape: EventShape
    queries: SliceJob  # its queries, all in one slice
    store: Store

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Take in a share of the events; write the partials as a file."""
        asked = AskedKeys.make(self.queries.all_queries())
        group = self.shape.group.group
        found = [no_partials(group, self.shape.input_schema)]
        rows = kept = 0
        for table, read in self._gather(batches, asked):
            rows += read
            kept += table.num_rows
            if table.num_rows:
                events = self.shape.events(table)
                timelines, places = asked.place(events, group.accuracy, group.refresh)
                found.append(partial_features(group, events, timelines, places))
        part = write_partials(self.store, found)
        counters = {"events": kept, "raw_rows": rows, "peak_memory": peak_memory()}
        return Written([part], 0, counters)

    def _gather(
        self, batches: Iterable[pa.RecordBatch], asked: AskedKeys
    ) -> Iterator[tuple[pa.Table, int]]:
        """Events of asked keys, many at a time, and how many rows were read for them."""
        held: list[pa.Table] = []
        rows = read = 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if DIFF in table.column_names:
                table = table.drop_columns([DIFF])
            table = asked.filter(conform(table, self.shape.schema, "broadcast"))
            held.append(table)
            rows += table.num_rows
            read += batch.num_rows
            if rows >= GATHER_ROWS:
                yield pa.concat_tables(held).combine_chunks(), read
                held, rows, read = [], 0, 0
        if held:
            yield pa.concat_tables(held).combine_chunks(), read


@dataclass(frozen=True)
class AskedKeys:
    """The queries that have a key and a time, by key and time, and the keys among them.

    `order` are their places among all queries. Key g has the hash `hashes[g]` (ascending; equal
    for different keys only where hashes collide) and the queries [first[g], last[g]).
    """

    order: np.ndarray
    times: np.ndarray
    keys: pa.Table
    hashes: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def make(queries: QueryTimes) -> AskedKeys:
        keys = canonical_table(queries.keys)
        live = queries.valid.copy()
        for column in keys.columns:
            live &= single_chunk(column).is_valid().to_numpy(zero_copy_only=False)
        place = np.flatnonzero(live)
        keys, times = keys.take(pa.array(place)), queries.times[live]
        columns = [single_chunk(column) for column in keys.columns]
        hashes = hash_keys(columns)
        ids = group_ids(hashes[None, :], columns)
        order = sort_words(np.vstack([ids, times]))
        new = np.ones(order.size, np.bool_)
        new[1:] = ids[order[1:]] != ids[order[:-1]]
        first = np.flatnonzero(new)
        leaders = order[first]
        return AskedKeys(
            place[order],
            times[order],
            keys.take(pa.array(leaders)),
            hashes[leaders],
            first,
            np.append(first[1:], order.size)[: first.size],
        )

    def filter(self, table: pa.Table) -> pa.Table:
        """Only rows whose key may be among those asked for."""
        return table.filter(pa.array(self.mask(table)))

    def mask(self, table: pa.Table) -> np.ndarray:
        """Which rows have a key that may be among those asked for."""
        columns = [single_chunk(table.column(f"k{i}")) for i in range(self.keys.num_columns)]
        hashes = hash_keys(columns)
        if not self.hashes.size:
            return np.zeros(hashes.size, np.bool_)
        at = np.minimum(np.searchsorted(self.hashes, hashes), self.hashes.size - 1)
        found: np.ndarray = self.hashes[at] == hashes
        return found

    def place(self, events: Events, accuracy: str, refresh: int) -> tuple[Timelines, Asked]:
        """Events beside the queries of their keys; in the order in which they came."""
        times = floor_to(self.times, refresh) if accuracy == "snapshot" else self.times
        key = self._keys_of(canonical_table(events.keys))
        first, last = np.append(self.first, 0)[key], np.append(self.last, 0)[key]  # of -1: none
        none = np.zeros(0, np.int64)
        timelines = Timelines(
            order=None,
            keys=key,
            times=events.times,
            moments=np.zeros_like(key),
            query_order=None,
            query_keys=none,
            queries=times,
            first=none,
            last=none,
        )
        always = np.full(key.size, ALWAYS), np.full(key.size, NEVER)
        return timelines, Asked(times, first, last, events.times, *(events.lives or always))

    def _keys_of(self, keys: pa.Table) -> np.ndarray:
        """The number of each event's key; -1 if it is not asked for. Values decide, not hashes."""
        columns = [single_chunk(column) for column in keys.columns]
        hashes = hash_keys(columns)
        low = np.searchsorted(self.hashes, hashes, "left")
        high = np.searchsorted(self.hashes, hashes, "right")
        found = np.full(hashes.size, -1)
        own = [single_chunk(column) for column in self.keys.columns]
        for step in range(int((high - low).max(initial=0))):  # one, unless hashes collide
            at = np.flatnonzero((low + step < high) & (found < 0))
            candidate = low[at] + step
            pairs = [
                pa.concat_arrays([a.take(pa.array(candidate)), b.take(pa.array(at))])
                for a, b in zip(own, columns, strict=True)
            ]
            place = np.arange(at.size)
            same = equal_pairs(pairs, place, place + at.size)
            found[at[same]] = candidate[same]
        return found


def write_partials(store: Store, several: list[list[pa.Table]]) -> WrittenPart:
    """A file with the partials of every feature, each an Arrow stream."""
    numbers, streams = [], []
    for tables in several:
        for number, table in enumerate(tables):
            if table.num_rows:
                numbers.append(number)
                streams.append(_stream(table))
    made = pa.table([numbers, streams], schema=_SCHEMA)
    name = f"{new_id()}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink, compression="lz4")
    with store.open_output(name) as out:
        out.write(sink.getvalue())
    return WrittenPart(name, made.num_rows, made.nbytes, "{}")


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_partials(store: Store, paths: Iterable[str], features: int) -> list[list[pa.Table]]:
    """For each feature the partials of all files."""
    found: list[list[pa.Table]] = [[] for _ in range(features)]
    for path in paths:
        table = pq.read_table(store.open_input(path))
        for row in table.to_pylist():  # a row per feature
            found[row["feature"]].append(pa.ipc.open_stream(row["partial"]).read_all())
    return found


@dataclass(frozen=True)
class ReduceJob:
    """The partials of all groups become the result: one task, of the size of the queries."""

    shapes: tuple[EventShape, ...]
    queries: SliceJob
    store: Store
    paths: tuple[tuple[str, ...], ...]  # for each group the files of its partials

    def compute(self) -> SliceResult:
        base = self.queries.without_features()
        asked = AskedKeys.make(self.queries.all_queries())
        count = asked.order.size
        place = np.full(base.table.num_rows, count)  # those without key or time: no events
        place[asked.order] = np.arange(count)
        columns = [single_chunk(c) for c in base.table.columns]
        for shape, paths in zip(self.shapes, self.paths, strict=True):
            group = shape.group.group
            partials = read_partials(self.store, paths, len(group.features))
            nothing = no_partials(group, shape.input_schema)
            tables = [[n, *found] for n, found in zip(nothing, partials, strict=True)]
            results = combine_features(group, shape.input_schema, tables, count)
            columns += [result.take(pa.array(place)) for result in results]
        return SliceResult(pa.table(columns, schema=self.queries.output), [], base.counters)
