"""Running a plan, step by step: arrange, sort, compute, store.

Each step leaves its work where the next finds it, and nothing is visible before it is whole: an
arrangement by its commit, a result by its own. What is only needed on the way rests beneath
`tmp/` and is removed at the end, whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import ShardNotFoundError
from windrow.features.arrange import EVENT_ORDER
from windrow.features.backfill import Arranged, SliceJob, plan_pass, sorted_queries
from windrow.features.plan import Arranging, BackfillPlan, Merging
from windrow.features.queries import QUERY_TIME, sorted_columns, sorted_schema, with_keys
from windrow.features.results import commit_result, read_result, write_frame
from windrow.progress import Progress
from windrow.rows.types import canonical_schema
from windrow.shard.part import new_id
from windrow.shard.report import Written, add_counters, peak_memory, run_numbered
from windrow.shard.shard import Shard
from windrow.shard.store import Store
from windrow.sources.files import FileRows, Moments, ParquetFiles
from windrow.sources.tables import select_columns
from windrow.spark import parallelism, quoted, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BackfillSummary:
    """What a backfill did.

    `queries` are the rows of the result. Those with a null key (of any group) or a null time are
    among them, with the features of an empty window. `rows_read` are the events and queries that
    were merged, `raw_rows_read` the rows of raw tables that were read to arrange them.
    `quarantined` are events without a time, of arrangements that this backfill built.
    `peak_memory` is the most that a task, or the driver's Python, held, in bytes.
    """

    queries: int
    rows_read: int
    raw_rows_read: int
    null_keys: int
    null_times: int
    quarantined: int
    seconds: float
    peak_memory: int
    stages: Mapping[str, float] = field(default_factory=dict)  # seconds of each

    def __str__(self) -> str:
        return (
            f"{self.queries:,} queries answered in {self.seconds:.1f} s; {self.rows_read:,} rows "
            f"read and {self.raw_rows_read:,} of raw tables, {self.quarantined:,} quarantined, "
            f"{self.null_keys:,} queries with a null key, {self.null_times:,} with a null time; "
            f"peak memory of a task {self.peak_memory / 2**20:,.0f} MiB"
        )


@dataclass
class BackfillRun:
    """One run of a plan."""

    spark: SparkSession
    store: Store
    plan: BackfillPlan
    progress: Progress
    counters: dict[str, int] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def _stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        started = time.perf_counter()
        with self.progress.stage(title, rows):
            yield
        seconds = time.perf_counter() - started
        self.stages[title] = self.stages.get(title, 0.0) + seconds

    def run(self) -> tuple[DataFrame, BackfillSummary]:
        started = time.perf_counter()
        work = Store.at(f"{self.store.uri}/tmp/{new_id()}", self.store.options_dict)
        try:
            shards = [self._arrange(one, work) for one in self.plan.arrangements]
            schema, written = self._features(shards, work)
            commit_result(self.plan.result, schema, written.parts)
        finally:
            work.remove()
        self._count(written)
        found = self.counters
        summary = BackfillSummary(
            queries=sum(part.rows for part in written.parts),
            rows_read=found.get("events", 0) + found.get("queries", 0),
            raw_rows_read=found.get("raw_rows", 0),
            null_keys=found.get("null_keys", 0),
            null_times=found.get("null_times", 0),
            quarantined=found.get("quarantined", 0),
            seconds=time.perf_counter() - started,
            peak_memory=max(found.get("peak_memory", 0), peak_memory()),
            stages=self.stages,
        )
        frame = read_result(self.spark, self.plan.result, written.parts, schema)
        return frame, summary

    def _count(self, written: Written) -> None:
        self.counters = add_counters([self.counters, written.counters])

    def _arrange(self, one: Arranging, work: Store) -> Shard:
        """The arrangement, built if it is not there."""
        folder = f"{self.store.uri}/arrangements" if one.kept else work.uri
        uri, options = f"{folder}/{one.name}", self.store.options_dict
        inputs = one.inputs
        try:
            shard = Shard.open(uri, storage_options=options)
        except ShardNotFoundError:
            shard = Shard.create(
                uri, inputs.schema, key=inputs.key_names, order=EVENT_ORDER, storage_options=options
            )
        if shard.upper > 0:
            return shard
        self._quarantine(one)
        title = f"arrange {inputs.group.source.name}"
        with self._stage(title, one.estimated_rows):
            if inputs.rows is not None:
                shard.append_tasks(self.spark, inputs.rows, lower=0, upper=1, token="arranged")
            else:
                shard.append(inputs.arranged(), lower=0, upper=1, token="arranged")
        arranged = shard.stats().rows
        self.counters = add_counters([self.counters, {"raw_rows": arranged}])
        return shard

    def _quarantine(self, one: Arranging) -> None:
        """Keep the events that have no time where someone can look at them."""
        from pyspark.sql import functions as F  # noqa: N812

        source = one.inputs.group.source
        if one.inputs.table.has_no_null(source.time):
            return
        rows = one.inputs.without_time()
        with self._stage(f"look for bad times in {source.name}"):
            if rows.isEmpty():
                return
            rows = rows.select("*", F.lit(f"{source.time} is null").alias("reason"))
            store = Store.at(f"{self.store.uri}/quarantine/{one.name}", self.store.options_dict)
            written = write_frame(rows, store)
            commit_result(store, _schema(rows), written.parts)
        found = sum(part.rows for part in written.parts)
        self.counters = add_counters([self.counters, {"quarantined": found, "raw_rows": found}])

    def _features(self, shards: list[Shard], work: Store) -> tuple[pa.Schema, Written]:
        """Write the queries with their features and derived columns, pass by pass."""
        plan, join = self.plan, self.plan.join
        if not plan.passes:
            return self._write_frame(plan.queries.frame().drop(QUERY_TIME))
        schema, rows = plan.queries.schema, plan.reading.rows
        frame = None if rows is not None else plan.queries.frame()
        for number, one in enumerate(plan.passes):
            last = number == len(plan.passes) - 1
            queries = self._sort(one, rows, frame, schema, f"{work.uri}/queries-{number}")
            job = self._job(one, shards, queries, schema, last)
            if last and not join.derive:
                return job.output, self._write_job(job, plan.result)
            target = Store.at(f"{work.uri}/features-{number}", work.options_dict)
            written = self._write_job(job, target)
            self._count(written)
            schema = job.output
            if not last:
                rows = self._pass_rows(target, written, schema, plan.passes[number + 1])
        frame = read_result(self.spark, target, written.parts, schema)
        return self._write_frame(self._derived(frame))

    def _sort(
        self,
        one: Merging,
        rows: FileRows | None,
        frame: DataFrame | None,
        schema: pa.Schema,
        uri: str,
    ) -> Shard:
        """The queries, with the features they have, by the keys of a pass."""
        left_keys = one.keys.left_keys
        shard = sorted_queries(uri, sorted_schema(schema, left_keys), self.store.options_dict)
        with self._stage(f"sort queries by {', '.join(left_keys)}", one.queries):
            if rows is not None:
                shard.append_tasks(self.spark, rows, lower=0, upper=1)
            else:
                assert frame is not None
                shard.append(with_keys(frame, schema, left_keys), lower=0, upper=1)
        return shard

    def _pass_rows(
        self, store: Store, written: Written, schema: pa.Schema, following: Merging
    ) -> FileRows:
        """What one pass wrote, as the next one sorts it."""
        uris = [f"{store.uri}/{part.path}" for part in written.parts]
        files = ParquetFiles.read(uris, store.options_dict)
        taken = sorted_columns(schema, following.keys.left_keys, self.plan.join.left.time)
        keep = Moments(QUERY_TIME, nulls=True)
        return FileRows(files.shares(parallelism(self.spark)), taken, keep, store.options)

    def _job(
        self, one: Merging, shards: list[Shard], queries: Shard, schema: pa.Schema, last: bool
    ) -> SliceJob:
        arranged = [
            Arranged.make(group, self.plan.arrangements[n].inputs, shards[n])
            for group, n in zip(one.keys.groups, one.arrangements, strict=True)
        ]
        counted = None
        if last:
            counted = tuple(sorted({name for g in self.plan.join.groups for name in g.left_keys}))
        return plan_pass(arranged, queries, schema.names, counted, parallelism(self.spark))

    def _write_job(self, job: SliceJob, target: Store) -> Written:
        with self._stage("compute features", job.rows):
            return run_numbered(
                self.spark, job.slices, target, lambda number: job.write(number, target)
            )

    def _derived(self, frame: DataFrame) -> DataFrame:
        for name, expression in self.plan.join.derive.items():
            columns = (*((c, quoted(c)) for c in frame.columns), (name, expression))
            what = f"Join {self.plan.join.name!r}: derive[{name!r}]"
            frame = select_columns(frame, columns, None, what)
        return frame

    def _write_frame(self, frame: DataFrame) -> tuple[pa.Schema, Written]:
        """Write what Spark still has to work on: derived columns, or the queries alone."""
        with self._stage("derive and store"):
            return _schema(frame), write_frame(frame, self.plan.result)


def _schema(frame: DataFrame) -> pa.Schema:
    return canonical_schema(spark_to_arrow_schema(frame.schema))
