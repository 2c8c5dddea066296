"""Running a plan, step by step: arrange, sort, compute, store.

Each step leaves its work where the next finds it, and nothing is visible before it is whole: an
arrangement by its commit, a result by its own. What is only needed on the way rests beneath
`tmp/`. A run that is interrupted leaves it there, and the next run of the same plan over the same
data goes on after the last finished slice.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import ShardNotFoundError, WindrowError
from windrow.features.arrange import EVENT_ORDER, GroupInputs
from windrow.features.arrangements import Step, Take, sweep, whole
from windrow.features.backfill import (
    REJECTED,
    SLICE_ROWS,
    Arranged,
    SliceJob,
    SliceTarget,
    plan_pass,
    query_spec,
    sorted_queries,
)
from windrow.features.broadcast import BroadcastJob, EventShape, ReduceJob
from windrow.features.gather import AskedRows
from windrow.features.pieces import Piece
from windrow.features.plan import BROADCAST, MERGE, TILES, Arranging, BackfillPlan, PassPlan
from windrow.features.queries import QUERY_TIME, sorted_columns, sorted_schema, with_keys
from windrow.features.results import commit_result, read_result, write_file, write_frame
from windrow.features.slices import FewQueries, StoredQueries, row_scan
from windrow.features.tiled import TiledJob, hot_slices, plan_tiles
from windrow.features.tiles import TILE_ORDER, Tiled, TileRows, Tiling, tile_name
from windrow.features.work import work_folder
from windrow.progress import Progress
from windrow.rows.types import canonical_schema
from windrow.shard.append import TaskRows
from windrow.shard.part import new_id
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.report import (
    Written,
    add_counters,
    peak_memory,
    run_numbered,
    run_writers,
    together,
)
from windrow.shard.shard import Shard
from windrow.shard.store import Store
from windrow.sources.files import FileRows, Moments, ParquetFiles
from windrow.sources.tables import select_columns
from windrow.spark import known_errors, parallelism, quoted, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 64  # of about one size, that an arrangement may have before they are merged


@dataclass(frozen=True)
class BackfillSummary:
    """What a backfill did.

    `queries` are the rows of the result. Those with a null key (of any group) or a null time are
    among them, with the features of an empty window. `rows_read` are the events and queries that
    were merged, `raw_rows_read` the rows of raw tables that were read to arrange them.
    `quarantined` are rows without a time, of arrangements that this backfill built, and changes of
    rows that were not there.
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
    slices_resumed: int = 0  # of an interrupted run of the same, and not done again
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
    id: str = field(default_factory=new_id)  # begins the names of the result's files

    @contextmanager
    def _stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        started = time.perf_counter()
        with self.progress.stage(title, rows):
            yield
        seconds = time.perf_counter() - started
        self.stages[title] = self.stages.get(title, 0.0) + seconds

    def run(self) -> tuple[DataFrame, BackfillSummary]:
        started = time.perf_counter()
        try:
            with work_folder(self.store, self.plan.fingerprint) as work:
                shards = {
                    number: self._arrange(self.plan.arrangements[number], work)
                    for number in sorted(self.plan.arranged)
                }
                schema, written = self._features(shards, work)
                commit_result(self.plan.result, schema, written.parts)
        except WindrowError:
            self._drop_files()
            raise
        self._count(written)
        found = self.counters
        summary = BackfillSummary(
            queries=sum(part.rows for part in written.parts),
            rows_read=found.get("events", 0) + found.get("queries", 0),
            raw_rows_read=found.get("raw_rows", 0),
            null_keys=found.get("null_keys", 0),
            null_times=found.get("null_times", 0),
            quarantined=found.get("quarantined", 0) + found.get("missing", 0),
            seconds=time.perf_counter() - started,
            peak_memory=max(found.get("peak_memory", 0), peak_memory()),
            slices_resumed=found.get("slices_resumed", 0),
            stages=self.stages,
        )
        frame = read_result(self.spark, self.plan.result, written.parts, schema)
        return frame, summary

    def _drop_files(self) -> None:
        """Remove the files of this run from the result's folder: no log names them."""
        mine = [name for name in self.plan.result.names() if name.startswith(self.id)]
        self.plan.result.delete(mine)

    def _count(self, written: Written) -> None:
        self.counters = add_counters([self.counters, written.counters])

    def _arrange(self, one: Arranging, work: Store) -> Shard:
        """The arrangement, with everything taken in that is not there yet."""
        todo, inputs, options = one.todo, one.inputs, self.store.options_dict
        uri = todo.uri or f"{work.uri}/{one.name}"
        shard = self._shard(uri, inputs)
        if not todo.pending:
            return shard
        todo.manifest.write(Store.at(uri, options))
        titles = ", ".join(source.name for source in inputs.group.sources)
        with self._stage(f"arrange {titles}", one.pending_rows):
            for number, step in enumerate(todo.manifest.steps):
                if number >= todo.done:
                    token = f"{todo.manifest.digest}-{number}"
                    pieces = [self._taken(inputs.pieces[take.piece], take) for take in step.takes]
                    for piece, take in zip(pieces, step.takes, strict=True):
                        if take.back is None:
                            self._quarantine(piece, f"{one.name}-{token}-{take.piece}")
                    self._append(shard, step, pieces, token, todo.manifest.digest)
        if todo.uri is not None:
            self._merge_runs(shard, titles)
            sweep(todo, inputs, self.store)
        return shard

    def _shard(self, uri: str, inputs: GroupInputs) -> Shard:
        """The shard of an arrangement, new or as it is."""
        options = self.store.options_dict
        try:
            return Shard.open(uri, storage_options=options)
        except ShardNotFoundError:
            return Shard.create(
                uri, inputs.schema, key=inputs.key_names, order=EVENT_ORDER, storage_options=options
            )

    def _merge_runs(self, shard: Shard, titles: str) -> None:
        """Merge the runs of an arrangement once there are many, as after months of new days."""
        if shard.is_untidy(fanout=RUNS):
            with self._stage(f"merge runs of {titles}", shard.stats().rows):
                shard.compact(fanout=RUNS, spark=self.spark)
                shard.vacuum()  # of what is older than any reader

    def _taken(self, piece: Piece, take: Take) -> Piece:
        return piece if take.uris is None else piece.only(take.uris, self.spark)

    def _append(
        self,
        shard: Shard,
        step: Step,
        pieces: list[Piece],
        token: str,
        mark: str,
        asked: AskedRows | None = None,
    ) -> None:
        """Append the rows of a step; or of them those that are `asked` for."""
        bounds = {"lower": step.lower, "upper": step.upper}
        if not pieces:
            shard.append(shard.schema.empty_table(), token=token, mark=mark, **bounds)
        elif len(pieces) == 1 and pieces[0].rows is not None:
            rows: TaskRows = replace(pieces[0].rows, times=step.times())
            rows = rows if asked is None else replace(asked, rows=rows)
            shard.append_tasks(self.spark, rows, token=token, mark=mark, **bounds)
        else:
            frames = [p.frame(take.back) for p, take in zip(pieces, step.takes, strict=True)]
            frame = functools.reduce(lambda a, b: a.unionByName(b), frames)
            frame = frame if asked is None else asked.frame(frame)
            exchanged = any(piece.exchanged for piece in pieces)
            tasks = 2 * parallelism(self.spark) if exchanged else None
            shard.append(frame, token=token, mark=mark, exchange=tasks, **bounds)
        raw = shard.appended.get("rows", 0)
        if asked is not None:  # of rows that Spark reads, only those that remain are counted
            known = [piece.table.parquet for piece in pieces]
            raw = max(raw, sum(parquet.rows for parquet in known if parquet is not None))
        self._add("raw_rows", raw)
        self._add("peak_memory", shard.appended.get("peak_memory", 0))

    def _add(self, counter: str, value: int) -> None:
        self.counters = add_counters([self.counters, {counter: value}])

    def _quarantine(self, piece: Piece, name: str) -> None:
        """Keep the rows that have no time where someone can look at them."""
        if piece.never_rejects():
            return
        rows = piece.rejected()
        with known_errors():
            if rows.isEmpty():
                return
        store = Store.at(f"{self.store.uri}/quarantine/{name}", self.store.options_dict)
        written = write_frame(rows, store, self.id)
        commit_result(store, _schema(rows), written.parts)
        found = sum(part.rows for part in written.parts)
        self._add("quarantined", found)
        self._add("raw_rows", found)

    def _features(self, shards: dict[int, Shard], work: Store) -> tuple[pa.Schema, Written]:
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
            target = Store.at(f"{work.uri}/features-{number}", work.options_dict)
            if last and not join.derive:
                target = plan.result
            if one.strategy == BROADCAST and one.gathers:
                gathered = self._gather(one, job, work)
                job = self._job(replace(one, strategy=MERGE), gathered, queries, schema, last)
                written = self._write_job(job, target, work)
            elif one.strategy == BROADCAST:
                written = self._broadcast(one, job, target, work)
            elif one.strategy == TILES:
                written = self._write_job(self._tiled(one, job, shards, work), target, work)
            else:
                written = self._write_job(job, target, work)
            schema = job.output
            if last and not join.derive:
                return schema, written
            self._count(written)
            if not last:
                rows = self._pass_rows(target, written, schema, plan.passes[number + 1])
        frame = read_result(self.spark, target, written.parts, schema)
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
        shard = sorted_queries(uri, columns, self.store.options_dict)
        if shard.upper > 0:
            return StoredQueries.of(shard)  # an interrupted run has sorted them
        with self._stage(f"sort queries by {', '.join(left_keys)}", one.queries):
            if rows is not None:
                shard.append_tasks(self.spark, rows, lower=0, upper=1, token="sorted")
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
        keep = (Moments(QUERY_TIME, nulls=True),)
        return FileRows(files.shares(parallelism(self.spark)), taken, keep, store.options)

    def _job(
        self,
        one: PassPlan,
        shards: dict[int, Shard],
        queries: StoredQueries | FewQueries,
        schema: pa.Schema,
        last: bool,
    ) -> SliceJob:
        asked = queries.times if one.strategy == MERGE else None  # tiles are made of all events
        arranged = []
        for group, n in zip(one.keys.groups, one.arrangements, strict=True):
            if one.strategy != BROADCAST:
                known = self.plan.arrangements[n]
                without = known.todo.without
                arranged.append(Arranged.make(group, known.inputs, shards[n], asked, without))
        counted = None
        if last:
            counted = tuple(sorted({name for g in self.plan.join.groups for name in g.left_keys}))
        apart = self._hot(one, shards) if one.strategy == TILES else ()
        job = plan_pass(arranged, queries, schema.names, counted, parallelism(self.spark), apart)
        if one.strategy == BROADCAST:
            fields = [f for shape in self._shapes(one) for f in shape.fields()]
            job = replace(job, output=pa.schema([*job.output, *fields]))
        return job

    def _hot(self, one: PassPlan, shards: dict[int, Shard]) -> dict[int, int]:
        """Prefixes with more events than a slice has rows, and how many."""
        found: dict[int, int] = {}
        for number in one.arrangements:
            for prefix, rows in shards[number].hot_prefixes().items():
                if rows > SLICE_ROWS:
                    found[prefix] = max(rows, found.get(prefix, 0))
        return found

    def _tiled(
        self, one: PassPlan, job: SliceJob, shards: dict[int, Shard], work: Store
    ) -> TiledJob:
        """The pass by tiles; tiles that are not there yet are made."""
        tiled, parts = [], []
        hot = self._hot(one, shards)
        with self._stage("make tiles", sum(hot.values()) or job.rows):
            for arranged, number in zip(job.arranged, one.arrangements, strict=True):
                tilings = [Tiling(a, arranged) for a in arranged.group.group.aggregations]
                made = [self._tiles(tiling, shards[number], work, hot) for tiling in tilings]
                reads = [shard.snapshot(consolidate="none") for shard in made]
                scans = tuple(row_scan(read.scan) for read in reads)
                tiled.append(Tiled(arranged, tuple(tilings), scans))
                parts.append([read.parts for read in reads])
        return plan_tiles(job, tiled, parts, hot)

    def _tiles(self, tiling: Tiling, arrangement: Shard, work: Store, hot: dict[int, int]) -> Shard:
        """The tiles of an aggregation, with every batch of its arrangement taken in."""
        kept = arrangement.uri.startswith(f"{self.store.uri}/arrangements/")
        place = "/".join(arrangement.uri.split("/")[-2:])
        root = self.store.uri if kept else work.uri
        # Tiles do not say which file a row came from: without some files, or of other keys, they
        # are others.
        chosen = (tiling.arranged.scan.times.without, sorted(hot))
        name = hashlib.sha256(str(chosen).encode()).hexdigest()[:16]
        uri = f"{root}/tiles/{place}/{tile_name(tiling.aggregation)}-{name}"
        options = self.store.options_dict
        try:
            shard = Shard.open(uri, storage_options=options)
        except ShardNotFoundError:
            keys = list(tiling.arranged.scan.spec.key)
            shard = Shard.create(
                uri, tiling.schema, key=keys, order=TILE_ORDER, storage_options=options
            )
        lower, upper = shard.upper, arrangement.upper
        if lower < upper:
            scan = tiling.arranged.scan
            times = replace(scan.times, start=lower, end=upper - 1)
            new = [part for part in tiling.arranged.parts if times.overlaps(part)]
            rows = sum(part.rows for part in new)
            wanted = max(parallelism(self.spark), -(-rows // SLICE_ROWS))
            slices = slices_between(new, even_cuts(new, wanted, scan.spec))
            if hot:
                slices = hot_slices(new, hot, parallelism(self.spark))
            made = TileRows.make(tiling, lower, upper, slices)
            shard.append_tasks(self.spark, made, lower=lower, upper=upper, token=f"tiles-{upper}")
        return shard

    def _shapes(self, one: PassPlan) -> list[EventShape]:
        return [
            EventShape.make(group, self.plan.arrangements[n].inputs)
            for group, n in zip(one.keys.groups, one.arrangements, strict=True)
        ]

    def _broadcast(self, one: PassPlan, job: SliceJob, target: Store, work: Store) -> Written:
        """Send the queries to the events, share by share; then bring the partials together."""
        store = Store.at(f"{work.uri}/partials-{new_id()}", work.options_dict)
        shapes, paths = self._shapes(one), []
        with self._stage("stream events past queries", one.events):
            for shape, number in zip(shapes, one.arrangements, strict=True):
                arranging = self.plan.arrangements[number]
                found: list[str] = []
                for place, piece in enumerate(arranging.inputs.pieces):
                    self._quarantine(piece, f"{arranging.name}-{place}")
                    written = self._stream(piece, BroadcastJob(shape, job, store))
                    self._count(written)
                    found += [part.path for part in written.parts]
                paths.append(tuple(found))
        name = self.id
        reduce = ReduceJob(tuple(shapes), job, store, tuple(paths))

        def write(_: int) -> Written:
            result = reduce.compute()
            parts = [write_file(target, result.table, name)] if result.table.num_rows else []
            return Written(parts, 0, {**result.counters, "peak_memory": peak_memory()})

        with self._stage("combine partials", one.queries):
            return run_numbered(self.spark, 1, target, write)

    def _gather(self, one: PassPlan, job: SliceJob, work: Store) -> dict[int, Shard]:
        """Arrange the rows of asked keys, for this run alone."""
        shards = {}
        with self._stage("gather rows of asked keys", one.events):
            for number in sorted(set(one.arrangements)):
                known = self.plan.arrangements[number]
                inputs, steps = known.inputs, whole(known.inputs)
                shard = self._shard(f"{work.uri}/asked-{known.name}", inputs)
                keys = pa.schema([inputs.schema.field(name) for name in inputs.key_names])
                for step in steps[shard.upper :]:
                    pieces = [inputs.pieces[take.piece] for take in step.takes]
                    for take, piece in zip(step.takes, pieces, strict=True):
                        self._quarantine(piece, f"{known.name}-{take.piece}")
                    token = f"asked-{step.lower}"
                    self._append(shard, step, pieces, token, token, AskedRows(job, keys))
                shards[number] = shard
        return shards

    def _stream(self, piece: Piece, job: BroadcastJob) -> Written:
        rows = piece.rows
        if rows is not None:
            return run_numbered(
                self.spark, rows.tasks, job.store, lambda n: job.write(rows.batches(n))
            )
        frame = piece.frame()
        names = frame.columns

        def write(batches: Iterator[pa.RecordBatch]) -> Written:
            return job.write(batch.rename_columns(names) for batch in batches)

        # mapInArrow takes no dots in names
        return run_writers(frame.toDF(*(f"c{i}" for i in range(len(names)))), job.store, write)

    def _write_job(self, job: SliceJob | TiledJob, target: Store, work: Store) -> Written:
        job_target = SliceTarget(
            self.id,
            target,
            self._rejected_store,
            Store.at(f"{work.uri}/done-{job.digest}", work.options_dict),
        )
        finished = job_target.done()
        pending = [number for number in range(job.slices) if number not in finished]

        def write(number: int) -> Written:
            return job.write(pending[number], job_target)

        with self._stage("compute features", job.rows):
            written = run_numbered(self.spark, len(pending), target, write)
        self._add("slices_resumed", len(finished))
        written = together([*finished.values(), written])
        if written.rejected:
            commit_result(self._rejected_store, REJECTED, written.rejected)
        return written

    @property
    def _rejected_store(self) -> Store:
        name = f"{self.store.uri}/quarantine/{self.plan.join.name}-missing-rows"
        return Store.at(name, self.store.options_dict)

    def _derived(self, frame: DataFrame) -> DataFrame:
        for name, expression in self.plan.join.derive.items():
            columns = (*((c, quoted(c)) for c in frame.columns), (name, expression))
            what = f"Join {self.plan.join.name!r}: derive[{name!r}]"
            frame = select_columns(frame, columns, None, what)
        return frame

    def _write_frame(self, frame: DataFrame) -> tuple[pa.Schema, Written]:
        """Write what Spark still has to work on: derived columns, or the queries alone."""
        with self._stage("derive and store"):
            return _schema(frame), write_frame(frame, self.plan.result, self.id)


def _schema(frame: DataFrame) -> pa.Schema:
    return canonical_schema(spark_to_arrow_schema(frame.schema))
