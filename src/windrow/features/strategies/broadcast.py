"""The broadcast strategy: few queries, over events that are not arranged.

    queries  ── sort ──▶ small shard ── a copy to every task ─┐
                                                              ├─▶ partials ── combine ──▶ result
    events   ── as they are read, a share to each task ───────┘

A task keeps the events of requested keys, finds for each the span of queries that count
it, and lifts the events of equal spans together. Events are neither shuffled nor sorted, and
what a task returns is the size of the queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.features import limits
from windrow.features.compute.events import Events
from windrow.features.compute.lifetimes import NEVER
from windrow.features.compute.partials import combine_features, no_partials, partial_features
from windrow.features.definitions import JoinedGroup
from windrow.features.inputs.groups import GroupInputs
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.features.strategies.group_events import feature_fields, travelling
from windrow.features.strategies.merge import SliceJob
from windrow.features.strategies.requested import RequestedKeys
from windrow.features.strategies.slices import SliceResult
from windrow.rows.types import conform, single_chunk
from windrow.sources.columns import KNOWN_AT
from windrow.spark.memory import peak_memory
from windrow.spark.tasks import Written, WrittenFile
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.updates import DIFF, int64_values

_SCHEMA = pa.schema([("feature", pa.int64()), ("partial", pa.large_binary())])


@dataclass(frozen=True)
class EventShape:
    """The columns of a group's events, as an arrangement would hold them."""

    group: JoinedGroup
    layout: Layout

    @staticmethod
    def make(group: JoinedGroup, bound: GroupInputs) -> EventShape:
        return EventShape(travelling(group), bound.layout)

    def fields(self) -> list[pa.Field]:
        return feature_fields(self.group, self.layout)

    def events(self, table: pa.Table) -> Events:
        lives = None
        if self.layout.changing:
            born = int64_values(table, KNOWN_AT)
            lives = (born, np.full(born.size, NEVER))
        return Events(
            table.select(self.layout.keys),
            int64_values(table, EVENT_TIME),
            self.layout.input_table(table),
            self.layout.condition_masks(table),
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
        """Lift a share of the events; write the partials as a file."""
        requested = RequestedKeys.make(self.queries.all_queries())
        group = self.shape.group.group
        found = [no_partials(group, self.shape.layout.input_schema)]
        rows = kept = 0
        for table, read in self._requested(batches, requested):
            rows += read
            kept += table.num_rows
            if table.num_rows:
                events = self.shape.events(table)
                timelines, places = requested.place(events, group)
                found.append(partial_features(group, events, timelines, places))
        part = write_partials(self.store, found)
        counters = {"events": kept, "raw_rows": rows, "peak_memory": peak_memory()}
        return Written([part], 0, counters)

    def _requested(
        self, batches: Iterable[pa.RecordBatch], requested: RequestedKeys
    ) -> Iterator[tuple[pa.Table, int]]:
        """Events of requested keys, many at a time, and how many rows were read for them."""
        held: list[pa.Table] = []
        rows = read = 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if DIFF in table.column_names:
                table = table.drop_columns([DIFF])
            table = requested.filter(conform(table, self.shape.layout.schema, "broadcast"))
            held.append(table)
            rows += table.num_rows
            read += batch.num_rows
            if rows >= limits.BROADCAST_EVENTS:
                yield pa.concat_tables(held).combine_chunks(), read
                held, rows, read = [], 0, 0
        if held:
            yield pa.concat_tables(held).combine_chunks(), read


def write_partials(store: Store, several: list[list[pa.Table]]) -> WrittenFile:
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
    store.write(name, [sink.getvalue()])
    return WrittenFile(name, made.num_rows, made.nbytes, "{}")


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
        requested = RequestedKeys.make(self.queries.all_queries())
        count = requested.order.size
        place = np.full(base.table.num_rows, count)  # those without key or time: no events
        place[requested.order] = np.arange(count)
        columns = [single_chunk(c) for c in base.table.columns]
        for shape, paths in zip(self.shapes, self.paths, strict=True):
            group = shape.group.group
            partials = read_partials(self.store, paths, len(group.features))
            nothing = no_partials(group, shape.layout.input_schema)
            tables = [[n, *found] for n, found in zip(nothing, partials, strict=True)]
            results = combine_features(group, shape.layout.input_schema, tables, count)
            columns += [result.take(pa.array(place)) for result in results]
        return SliceResult(pa.table(columns, schema=self.queries.output), [], base.counters)
