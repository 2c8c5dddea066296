"""Running a plan, step by step: arrange, sort, compute, store.

Each step leaves its work where the next finds it, and nothing is visible before it is whole: an
arrangement by its commit, a result by its own. Intermediate data is stored beneath
`tmp/`. A run that is interrupted leaves it there, and the next run of the same plan over the same
data resumes after the last finished slice.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.arrangements.catalogue import note_use
from windrow.errors import SchemaError, StorageError, StorageUnavailableError, WindrowError
from windrow.features import limits
from windrow.features.inputs.queries import (
    QUERY_TIME,
    query_spec,
    sorted_columns,
    sorted_queries,
    sorted_schema,
    with_keys,
)
from windrow.features.plan.backfill import BackfillPlan, record_slices
from windrow.features.plan.passes import PassPlan
from windrow.features.plan.strategy import BROADCAST, GATHER, MERGE, TILES
from windrow.features.run.build_tiles import build_tiles
from windrow.features.run.ingest import gather, hold_sources, ingest, quarantine
from windrow.features.run.results import commit_result, frame_schema, read_result, write_frame
from windrow.features.strategies.broadcast import BroadcastJob, EventShape, ReduceJob
from windrow.features.strategies.group_events import REJECTED, GroupEvents
from windrow.features.strategies.merge import SliceJob, even_slices, slice_job
from windrow.features.strategies.queries import FewQueries, StoredQueries
from windrow.features.strategies.shares import RowShares
from windrow.features.strategies.slices import Job, SliceTarget, write_file
from windrow.rows.types import canonical_schema
from windrow.shard.shard import Shard
from windrow.sources.files import FileRows, ParquetFiles, TimeFilter
from windrow.sources.pieces import Piece
from windrow.sources.tables import select_columns
from windrow.spark.memory import peak_memory
from windrow.spark.schemas import arrow_to_spark_schema, empty_frame, quoted
from windrow.spark.stages import Stages
from windrow.spark.tasks import Written, run_numbered, run_writers, together
from windrow.storage.delta import check_storable
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.storage.work import work_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BackfillSummary:
    """What a backfill did.

    `queries` are the rows of the result. Those with a null key (of any group) or a null time are
    among them, with the features of an empty window. `rows_read` are the events and queries that
    were merged, `raw_rows_read` the rows of raw tables that were read to arrange them.
    `quarantined` are rows without a time, of arrangements that this backfill built, and changes of
    rows that were not there. `early_mutations` are those up to the first snapshot, which holds
    them already: they were ignored.
    `peak_memory`, in bytes, is the most that the process of a task held, or that the run added to
    the driver's Python, whichever is more.
    """

    queries: int
    rows_read: int
    raw_rows_read: int
    null_keys: int
    null_times: int
    quarantined: int
    seconds: float
    peak_memory: int
    early_mutations: int = 0
    slices_resumed: int = 0  # of an interrupted run of the same, and not done again
    stages: Mapping[str, float] = field(default_factory=dict)  # seconds of each

    def __str__(self) -> str:
        early = f"{self.early_mutations:,} mutations up to the first snapshot ignored, "
        return (
            f"{self.queries:,} queries answered in {self.seconds:.1f} s; {self.rows_read:,} rows "
            f"read and {self.raw_rows_read:,} of raw tables, {self.quarantined:,} quarantined, "
            f"{early if self.early_mutations else ''}"
            f"{self.null_keys:,} queries with a null key, {self.null_times:,} with a null time; "
            f"peak memory of a task {self.peak_memory / 2**20:,.0f} MiB"
        )


@dataclass
class BackfillRun:
    """One run of a plan."""

    stages: Stages
    plan: BackfillPlan

    def run(self) -> tuple[DataFrame, BackfillSummary]:
        started = time.perf_counter()
        schema, written = self.write()
        found = self.stages.counters
        summary = BackfillSummary(
            queries=sum(part.rows for part in written.parts),
            rows_read=found.get("events", 0) + found.get("queries", 0),
            raw_rows_read=found.get("raw_rows", 0),
            null_keys=found.get("null_keys", 0),
            null_times=found.get("null_times", 0),
            quarantined=found.get("quarantined", 0) + found.get("missing", 0),
            seconds=time.perf_counter() - started,
            peak_memory=max(found.get("peak_memory", 0), self.stages.memory.look()),
            early_mutations=found.get("early_mutations", 0),
            slices_resumed=found.get("slices_resumed", 0),
            stages=self.stages.seconds,
        )
        return read_result(self.stages.given, self.plan.result, written.parts, schema), summary

    def write(self, *, commit: bool = True) -> tuple[pa.Schema, Written]:
        """Write the result's files, and make them a table, unless they are for the caller alone."""
        self._check_result()
        try:
            with work_folder(self.stages.store, self.plan.fingerprint) as work, ExitStack() as held:
                record_slices(self.plan, work)
                hold_sources(self.plan.arrangements, self._name, held)
                shards = {n: self._ingest(n, work, held) for n in sorted(self.plan.arranged)}
                schema, written = self._features(shards, work)
                if commit:
                    commit_result(self.plan.result, schema, written.parts)
        except WindrowError as error:
            resumable = self.plan.fingerprint is not None or not self.plan.result.is_local
            if not (resumable and isinstance(error, StorageUnavailableError)):
                self._drop_files()
            raise
        self.stages.count(written)
        return schema, written

    def _check_result(self) -> None:
        """Refuse a result that could not be stored or derived, before anything is computed."""
        what = self._name
        try:
            schema = self.schema
        except SchemaError as error:
            raise SchemaError(str(error) if what in str(error) else f"{what}: {error}") from error
        check_storable(schema, what)

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result, derived ones included."""
        schema = canonical_schema(self.plan.schema)  # refuses a name that occurs twice
        if not self.plan.join.derive:
            return schema
        empty = empty_frame(self.stages.spark, arrow_to_spark_schema(self.plan.schema))
        return frame_schema(self._derived(empty))

    @property
    def _name(self) -> str:
        return f"Join {self.plan.join.name!r}"

    def _ingest(self, number: int, work: Store, held: ExitStack) -> Shard:
        known = list(self.plan.arrangements)
        shard, one = ingest(self.stages, known[number], work, self._name, held)
        known[number] = one
        self.plan = replace(self.plan, arrangements=tuple(known))
        if one.inputs.shard is None and one.todo.uri is not None:
            note_use(one.inputs.content, self.stages.store, self._name)
        return shard

    def _drop_files(self) -> None:
        """Remove the files of this run from the result's folder: no log names them."""
        with suppress(StorageError):  # what is told is why the run failed
            names = self.plan.result.names()
            self.plan.result.delete([name for name in names if name.startswith(self.stages.id)])

    def _features(self, arranged: dict[int, Shard], work: Store) -> tuple[pa.Schema, Written]:
        """Write the queries with their features and derived columns, pass by pass."""
        plan, join = self.plan, self.plan.join
        if not plan.passes:
            return self._write_frame(plan.queries.frame().drop(QUERY_TIME))
        schema, rows = plan.queries.schema, plan.reading.rows
        frame = None if rows is not None else plan.queries.frame()
        for number, one in enumerate(plan.passes):
            last = number == len(plan.passes) - 1
            queries = self._sort(one, rows, frame, schema, f"{work.uri}/queries-{number}")
            target = Store.at(f"{work.uri}/features-{number}", work.options_dict)
            if last and not join.derive:
                target = plan.result
            if one.strategy == GATHER:
                base = slice_job([], queries, (), schema.names, None)
                shards = gather(self.stages, plan.arrangements, one, base, work)
                job = self._job(one, shards, queries, schema, last)
                written = self._write_job(job, target, work)
            elif one.strategy == BROADCAST:
                job = self._job(one, {}, queries, schema, last)
                written = self._broadcast(one, job, target, work)
            elif one.strategy == TILES:
                job = self._job(one, arranged, queries, schema, last)
                known = plan.arrangements
                tiles = build_tiles(self.stages, known, one, job, arranged, work)
                written = self._write_job(tiles, target, work)
            else:
                job = self._job(one, arranged, queries, schema, last)
                written = self._write_job(job, target, work)
            schema = job.output
            if last and not join.derive:
                return schema, written
            self.stages.count(written)
            if not last:
                rows = self._pass_rows(target, written, schema, plan.passes[number + 1])
        frame = read_result(self.stages.spark, target, written.parts, schema)
        return self._write_frame(self._derived(frame))

    def _sort(
        self,
        one: PassPlan,
        rows: FileRows | None,
        frame: DataFrame | None,
        schema: pa.Schema,
        uri: str,
    ) -> StoredQueries | FewQueries:
        """The queries, with the features they have, by the keys of a pass."""
        left_keys = one.keys.left_keys
        columns = sorted_schema(schema, left_keys)
        if not one.sorts:
            assert rows is not None
            spec = query_spec(columns)
            return FewQueries(rows, spec, one.queries or 0, self.plan.queries.times)
        shard = sorted_queries(uri, columns, self.stages.store.options_dict)
        if shard.upper > 0:
            return StoredQueries.of(shard)  # an interrupted run has sorted them
        with self.stages.stage(f"sort queries by {', '.join(left_keys)}", one.queries):
            if rows is not None:
                shard.append_tasks(self.stages.given, rows, lower=0, upper=1, token="sorted")
            else:
                assert frame is not None
                shard.append(with_keys(frame, schema, left_keys), lower=0, upper=1)
        return StoredQueries.of(shard)

    def _pass_rows(
        self, store: Store, written: Written, schema: pa.Schema, following: PassPlan
    ) -> FileRows:
        """What one pass wrote, as the next one sorts it."""
        uris = [f"{store.uri}/{part.path}" for part in written.parts]
        files = ParquetFiles.read(uris, store.options_dict)
        taken = sorted_columns(schema, following.keys.left_keys, self.plan.join.left.time)
        keep = (TimeFilter(QUERY_TIME, nulls=True),)
        return FileRows(files.shares(self.stages.engine.tasks), taken, keep, store.options)

    def _job(
        self,
        one: PassPlan,
        shards: dict[int, Shard],
        queries: StoredQueries | FewQueries,
        schema: pa.Schema,
        last: bool,
    ) -> SliceJob:
        requested = queries.times if one.strategy == MERGE else None
        events = []
        for group, n in zip(one.keys.groups, one.arrangements, strict=True):
            if one.strategy != BROADCAST:
                known = self.plan.arrangements[n]
                inputs, todo = known.inputs, known.todo
                if one.strategy == GATHER:  # for this run alone, whatever is arranged
                    inputs = replace(inputs, shard=None)
                    events.append(GroupEvents.make(group, inputs, shards[n]))
                    continue
                retracted = todo.manifest.retractions > 0
                made = GroupEvents.make(group, inputs, shards[n], requested, todo.chosen, retracted)
                events.append(made)
        counted = None
        if last:
            counted = tuple(sorted({name for g in self.plan.join.groups for name in g.left_keys}))
        cuts = one.cuts
        if cuts is None:
            parts = [*(part for e in events for part in e.parts), *queries.parts]
            rows = sum(part.rows for part in parts) + (0 if queries.parts else queries.rows)
            cuts = tuple(even_slices(parts, rows, self.stages.engine.tasks, one.large))
        job = slice_job(events, queries, cuts, schema.names, counted)
        if one.strategy == BROADCAST:
            fields = [f for shape in self._shapes(one) for f in shape.fields()]
            job = replace(job, output=pa.schema([*job.output, *fields]))
        return job

    def _shapes(self, one: PassPlan) -> list[EventShape]:
        return [
            EventShape.make(group, self.plan.arrangements[n].inputs)
            for group, n in zip(one.keys.groups, one.arrangements, strict=True)
        ]

    def _broadcast(self, one: PassPlan, job: SliceJob, target: Store, work: Store) -> Written:
        """Send the queries to the events, share by share; then bring the partials together."""
        store = Store.at(f"{work.uri}/partials-{new_id()}", work.options_dict)
        shapes, paths = self._shapes(one), []
        with self.stages.stage("stream events past queries", one.events):
            for shape, number in zip(shapes, one.arrangements, strict=True):
                planned = self.plan.arrangements[number]
                found: list[str] = []
                for place, piece in enumerate(planned.inputs.content.pieces):
                    quarantine(self.stages, piece, f"{planned.name}-{place}")
                    written = self._stream(piece, BroadcastJob(shape, job, store))
                    self.stages.count(written)
                    found += [part.path for part in written.parts]
                paths.append(tuple(found))
        name, shares = self.stages.id, self._shares(target)
        reduce = ReduceJob(tuple(shapes), job, store, tuple(paths))

        def write(_: int) -> Written:
            result = reduce.compute()
            parts = []
            if result.table.num_rows:
                parts.append(write_file(target, result.table, name, shares))
            return Written(parts, 0, {**result.counters, "peak_memory": peak_memory()})

        with self.stages.stage("combine partials", one.queries):
            return run_numbered(self.stages.given, 1, target, write)

    def _stream(self, piece: Piece, job: BroadcastJob) -> Written:
        rows = piece.rows
        if rows is not None:
            several = limits.BROADCAST_SHARES
            count = max(-(-rows.tasks // several), min(rows.tasks, self.stages.engine.tasks))

            def write_shares(number: int) -> Written:
                shares = range(number, rows.tasks, count)
                return job.write(itertools.chain.from_iterable(map(rows.batches, shares)))

            return run_numbered(self.stages.given, count, job.store, write_shares)
        frame = piece.frame()
        names = frame.columns

        def write(batches: Iterator[pa.RecordBatch]) -> Written:
            return job.write(batch.rename_columns(names) for batch in batches)

        # mapInArrow takes no dots in names
        return run_writers(frame.toDF(*(f"c{i}" for i in range(len(names)))), job.store, write)

    def _write_job(self, job: Job, target: Store, work: Store) -> Written:
        job_target = SliceTarget(
            self.stages.id,
            target,
            self._rejected_store,
            Store.at(f"{work.uri}/done-{job.digest}", work.options_dict),
            self._shares(target),
        )
        finished = job_target.done()
        shares = job.shares(self.stages.engine.tasks, finished)

        def write(number: int) -> Written:
            return together(list(job.write(shares[number], job_target)))

        with self.stages.stage("compute features", job.rows):
            written = run_numbered(self.stages.given, len(shares), target, write, noted=True)
        self.stages.add("slices_resumed", len(finished))
        written = together([*finished.values(), written])
        if written.rejected:
            commit_result(self._rejected_store, REJECTED, written.rejected)
        return written

    @property
    def _rejected_store(self) -> Store:
        name = f"{self.stages.store.uri}/quarantine/{self.plan.join.name}-missing-rows"
        return Store.at(name, self.stages.store.options_dict)

    def _derived(self, frame: DataFrame) -> DataFrame:
        for name, expression in self.plan.join.derive.items():
            columns = (*((c, quoted(c)) for c in frame.columns), (name, expression))
            what = f"Join {self.plan.join.name!r}: derive[{name!r}]"
            frame = select_columns(frame, columns, None, what)
        return frame

    def _write_frame(self, frame: DataFrame) -> tuple[pa.Schema, Written]:
        """Write what Spark still has to work on: derived columns, or the queries alone."""
        with self.stages.stage("derive and store"):
            shares = self.plan.shares
            return frame_schema(frame), write_frame(frame, self.plan.result, self.stages.id, shares)

    def _shares(self, target: Store) -> RowShares | None:
        """How files of a pass are laid out: those of the result, as the plan says."""
        return self.plan.shares if target == self.plan.result else None
