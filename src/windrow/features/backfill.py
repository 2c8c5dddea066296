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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from windrow.errors import DefinitionError
from windrow.features.arrange import EVENT_TIME, EventInputs, condition_mask, key_type
from windrow.features.compute import Events, QueryTimes, feature_type, group_features
from windrow.features.definitions import Join, JoinedGroup
from windrow.rows.ordering import HIGHEST
from windrow.rows.types import canonical_schema, single_chunk
from windrow.shard.part import Part
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.scan import Counters, RunReader, Scan, Slice, TimeRange
from windrow.shard.shard import Shard
from windrow.shard.spec import by_hash
from windrow.spark import arrow_to_spark_schema, quoted, spark_to_arrow_schema
from windrow.updates import DIFF, int64_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_TIME = "__query_time"
_KEY = "__key_"
SLICE_ROWS = 1_000_000  # events and queries that a task holds


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
        table = read_rows(self.scan, slice_)
        names = self.scan.spec.schema.names
        values = [name for name in names if name.startswith("v")]
        return Events(
            table.select(list(self.scan.spec.key)),
            int64_values(table, EVENT_TIME),
            table.select(values).rename_columns(list(self.inputs)),
            {text: condition_mask(table, f"w{i}") for i, text in enumerate(self.conditions)},
        )


def row_scan(scan: Scan) -> Scan:
    """A scan of everything, at no particular time."""
    return Scan(scan.store, scan.spec, TimeRange(None, HIGHEST, 0), scan.columns)


def read_rows(scan: Scan, slice_: Slice) -> pa.Table:
    """All rows of a slice, each as often as it is there, in no particular order."""
    counters = Counters()
    tables = [
        chunk.table.select([*scan.columns, DIFF])
        for run in slice_.runs
        for chunk in RunReader(scan, slice_, run, False, counters, 65_536).chunks()
    ]
    schema = pa.schema([*scan.spec.schema, pa.field(DIFF, pa.int64())])
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    table = table.combine_chunks()
    diffs = int64_values(table, DIFF)
    if diffs.size and diffs.max() > 1:
        table = table.take(pa.array(np.repeat(np.arange(diffs.size), diffs)))
    return table.drop_columns([DIFF]).combine_chunks()


@dataclass(frozen=True)
class SliceJob:
    """One pass of a backfill, cut into slices. Picklable: tasks carry it."""

    arranged: tuple[Arranged, ...]
    event_slices: tuple[tuple[Slice, ...], ...]  # for each group, its slices
    queries: Scan
    query_slices: tuple[Slice, ...]
    carried: tuple[str, ...]  # columns of the queries that go into the result
    output: pa.Schema

    def compute(self, number: int) -> pa.Table:
        """The queries of one slice with their features."""
        table = read_rows(self.queries, self.query_slices[number])
        keys = table.select(list(self.queries.spec.key))
        keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        times = single_chunk(table.column(QUERY_TIME))
        queries = QueryTimes(
            keys,
            times.fill_null(0).to_numpy(zero_copy_only=False),
            times.is_valid().to_numpy(zero_copy_only=False),
        )
        columns = [single_chunk(table.column(name)) for name in self.carried]
        if table.num_rows:
            for arranged, slices in zip(self.arranged, self.event_slices, strict=True):
                events = arranged.events(slices[number])
                columns += group_features(arranged.group.group, events, queries)
        else:
            columns += [pa.nulls(0, f.type) for f in list(self.output)[len(columns) :]]
        return pa.table(columns, schema=self.output)


def plan_pass(
    arranged: Sequence[Arranged], queries: Shard, carried: Sequence[str], tasks: int
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
        pa.schema(output),
    )


def run_pass(spark: SparkSession, job: SliceJob) -> DataFrame:
    """The result of a pass; one task per slice."""
    count = len(job.query_slices)
    names = job.output.names
    plain = pa.schema([pa.field(f"c{i}", f.type) for i, f in enumerate(job.output)])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                table = job.compute(number).rename_columns(plain.names)
                yield from table.to_batches(max_chunksize=65_536)

    frame = spark.range(0, count, 1, count).mapInArrow(run, arrow_to_spark_schema(plain))
    return frame.toDF(*names)


def sorted_queries(
    frame: DataFrame, uri: str, options: dict[str, str] | None, keys: Sequence[tuple[str, Any]]
) -> Shard:
    """A shard of the queries by key and time. `keys` are (left column, Spark type) pairs.

    `frame` has the column `__query_time`; all others are carried.
    """
    from pyspark.sql import functions as F  # noqa: N812

    keyed = [
        F.col(quoted(name)).cast(type_).alias(f"{_KEY}{i}") for i, (name, type_) in enumerate(keys)
    ]
    carried = [F.col(quoted(name)) for name in frame.columns if name != QUERY_TIME]
    frame = frame.select(*carried, *keyed, QUERY_TIME)
    shard = Shard.create(
        uri,
        frame.schema,
        key=[f"{_KEY}{i}" for i in range(len(keys))],
        order=by_hash(QUERY_TIME),
        storage_options=options,
    )
    shard.append(frame, lower=0, upper=1)
    return shard


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


def left_schema(frame: DataFrame) -> pa.Schema:
    return canonical_schema(spark_to_arrow_schema(frame.schema))
