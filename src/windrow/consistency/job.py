"""The consistency job: replay what was logged, compare, explain, report.

log ──▶ replay: a backfill of the logged requests ──▶ compare, row by row of the log ──▶ comparisons
                                                          │
                          worst examples, with rows ◀── tallies ──▶ verdict ──▶ report
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.consistency.choosing import Chosen, choose_examples
from windrow.consistency.compare import CompareJob, comparison_schema
from windrow.consistency.equality import OUTCOMES
from windrow.consistency.explain import Explainer
from windrow.consistency.history import ServedHistory
from windrow.consistency.logs import Log, as_files, foreign_log, own_logs
from windrow.consistency.replay import OWN, ROW, Replay, plan_replay
from windrow.consistency.report import (
    NO_DATA,
    QUANTILES,
    Counted,
    Example,
    FeatureReport,
    Report,
    verdict_of,
)
from windrow.consistency.stored import CONSISTENCY, comparisons, new_run, store_report
from windrow.consistency.tally import FeatureTally, Tally
from windrow.errors import OptionError, WindrowError
from windrow.features.definitions import GroupBy, Join
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.plan.backfill import BackfillPlan
from windrow.features.run.backfill import BackfillRun
from windrow.features.run.results import commit_result
from windrow.online.log.columns import AT
from windrow.online.log.reading import Coverage, counts, coverage
from windrow.sources.columns import Form, Taken
from windrow.sources.files import FileRows
from windrow.spark.progress import Progress
from windrow.spark.session import Engine
from windrow.spark.stages import Stages
from windrow.spark.tasks import Written, run_numbered
from windrow.storage.delta import open_table
from windrow.storage.store import Store
from windrow.storage.work import work_folder
from windrow.time import DAY, first_millisecond, now_millis

# Of a backfill of the days that are asked for, with a column of the queries' numbers.
Plan = Callable[[Join, str], BackfillPlan]
_TEXTS = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Request:
    """What is to be compared, and how strictly."""

    definition: Join | GroupBy
    start: str | None = None
    end: str | None = None
    threshold: float = 0.999
    examples: int = 50
    log: Any = field(default=None, repr=False)
    time: str | None = None
    keys: Mapping[str, str] | None = None
    values: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise OptionError(f"threshold is {self.threshold}; give a share, such as 0.999")
        low, high = self.span
        if low is not None and high is not None and low >= high:
            raise OptionError(f"start {self.start} is after end {self.end}")
        given = [name for name in ("time", "keys", "values") if getattr(self, name)]
        if self.log is None and given:
            raise OptionError(f"{given[0]} is for the log of another system; give log, too")

    @property
    def span(self) -> tuple[int | None, int | None]:
        """The first millisecond, and the one after the last."""
        low = first_millisecond(self.start, "start")
        high = first_millisecond(self.end, "end")
        return low, None if high is None else high + DAY


@dataclass
class Found:
    """What the replays of all versions of a log gave."""

    tally: Tally = field(default_factory=Tally)
    examples: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    notes: list[str] = field(default_factory=list)


Explain = Callable[[Sequence[Chosen], pa.Table], Sequence[Example]]  # with the log's counts


@dataclass
class ConsistencyJob:
    """One run of the job in a project."""

    engine: Engine
    root: Store
    progress: Progress
    plan: Plan
    request: Request
    version: str | None  # of the definition as it is now
    explain: Explain

    def run(self) -> Report:
        request, root = self.request, self.root
        name = request.definition.name
        run = new_run(root, name, now_millis())
        stages = Stages(self.engine, root, self.progress)
        found = Found()
        counted = counts(root, name)
        covered: Coverage | None = coverage(counted, *request.span)
        if request.log is not None:
            covered = None
        examples: Sequence[Example] = ()
        # The table is committed, and what was replayed removed, while examples are explained.
        with ThreadPoolExecutor(1) as aside:
            done: list[Future[None]] = []
            with ExitStack() as after:
                work = after.enter_context(work_folder(root, None))
                replays = self._replays(work)
                if replays:
                    written, schema = self._compare(stages, replays, work, found, after)
                    target = comparisons(root, name)
                    done.append(aside.submit(commit_result, target, schema, written.parts))
                    done.append(aside.submit(after.pop_all().close))
            chosen: list[Chosen] = []
            if replays:
                keys = replays[0].sides.keys
                chosen = choose_examples(found.examples, request.examples, keys, replays)
            if chosen:
                with stages.stage("explain"):
                    examples = self.explain(chosen, counted)
            for one in done:
                one.result()
        features = tuple(_feature(one, tally) for one, tally in found.tally.features.items())
        report = Report(
            name,
            run,
            self.version,
            request.start,
            request.end,
            request.threshold,
            verdict_of(features, request.threshold) if features else NO_DATA,
            _total(features),
            features,
            tuple(examples),
            covered,
            tuple(dict.fromkeys(one for r in replays for one in r.left_out)),
            tuple(found.notes),
            stages.seconds,
        )
        stored = store_report(root, report)
        return replace(report, page=stored.html)

    def _replays(self, work: Store) -> list[Replay]:
        """A replay for each version that was logged in the span."""
        request = self.request
        if request.log is not None:
            logs: list[Log] = [
                foreign_log(
                    self.engine,
                    self.root,
                    request.definition,
                    request.log,
                    request.time,
                    request.keys,
                    request.values,
                )
            ]
        else:
            logs = own_logs(self.engine, self.root, request.definition.name)
            logs = [one for one in logs if self._has(one)]
        # The version that is defined now comes first: others may lack columns.
        logs.sort(key=lambda log: (log.version != self.version, log.version or ""))
        replays = []
        for number, log in enumerate(logs):
            replay = plan_replay(request.definition, log)
            # Statuses of Windrow's own log are by the places of its columns: all of them stay.
            columns = log.columns if log.own else replay.sides.logged
            needed = dict.fromkeys(columns.values())
            files = as_files(self.engine, log, needed, work.beneath(f"log-{number}"))
            if files is not None and files is not log:
                replay = plan_replay(request.definition, files)
            if files is not None:
                replays.append(replay)
        return replays

    def _has(self, log: Log) -> bool:
        """Whether a table of the log has a row in the span."""
        low, high = self.request.span
        if low is None and high is None:
            return True  # it has files
        table = open_table(Store.at(log.table, self.root.options_dict))
        assert table is not None
        where = pc.is_valid(pc.field(AT))
        if low is not None:
            where &= pc.field(AT) >= _moment(low)
        if high is not None:
            where &= pc.field(AT) < _moment(high)
        rows = table.to_pyarrow_dataset().scanner(columns=[AT], filter=where, batch_size=1024)
        return any(batch.num_rows for batch in rows.to_batches())

    def _compare(
        self,
        stages: Stages,
        replays: list[Replay],
        work: Store,
        found: Found,
        after: ExitStack,
    ) -> tuple[Written, pa.Schema]:
        """Replay each version, then compare them all into files of one table."""
        name = self.request.definition.name
        runs: list[BackfillRun] = []
        kept: list[Replay] = []
        for replay in list(replays):
            place = f"{CONSISTENCY}/{name}/replayed-{replay.sides.version or 'other'}"
            result = self.root.beneath(place)
            after.callback(result.remove)
            try:
                planned = self.plan(replay.join, ROW)
            except WindrowError as error:
                if replay.sides.version in (None, self.version):
                    raise
                found.notes.append(f"version {replay.sides.version} cannot be replayed: {error}")
                continue
            assert planned.shares is not None
            shares = replace(planned.shares, columns=tuple(replay.sides.computed))
            runs.append(BackfillRun(stages, replace(planned, result=result, shares=shares)))
            kept.append(replay)
        replays[:] = kept
        schema = comparison_schema(kept, [run.schema for run in runs])
        target = comparisons(self.root, name)
        written = Written([])
        for replay, run in zip(kept, runs, strict=True):
            _, replayed = run.write(commit=False)
            job = self._job(stages, replay, run.plan, replayed, target, work, schema)
            with stages.stage("compare"):
                one = run_numbered(self.engine.given, job.log.tasks, target, job.write)
            found.rows += one.counters.get("rows", 0)
            if one.counters.get("no_time"):
                found.notes.append(f"{one.counters['no_time']:,} rows of the log have no time")
            written = Written([*written.parts, *one.parts])
        for file in work.names():
            data = work.get(file)
            assert data is not None
            if file.startswith("tally-"):
                found.tally.merge(Tally.from_bytes(data))
            elif file.startswith("examples-"):
                found.examples.append(pa.ipc.open_stream(data).read_all())
        return written, schema

    def _job(
        self,
        stages: Stages,
        replay: Replay,
        plan: BackfillPlan,
        replayed: Written,
        target: Store,
        work: Store,
        schema: pa.Schema,
    ) -> CompareJob:
        """Compares the files that were replayed with what was replayed."""
        queries, sides = plan.queries, replay.sides
        assert plan.shares is not None
        assert queries.table.parquet is not None
        # Texts of Windrow's own columns repeat; they are read and written as dictionaries.
        texts = [f.name for f in replay.types if f.name in OWN and pa.types.is_string(f.type)]
        taken = [
            Taken(f.name, sides.logged[f.name], _TEXTS if f.name in texts else f.type)
            for f in replay.types
        ]
        taken.append(Taken(QUERY_TIME, sides.logged[AT], pa.int64(), Form.MILLIS))
        parquet = queries.table.parquet
        log = FileRows(
            queries.shares(self.engine.tasks),
            tuple(taken),
            (queries.span,),
            self.root.options,
            folders=parquet.folders,
            numbered=(ROW, parquet.starts),
            dictionaries=tuple(texts),
        )
        paths = tuple(part.path for part in replayed.parts)
        run = f"{stages.id}-{sides.version or 'other'}"
        return CompareJob(sides, log, plan.shares, plan.result, paths, target, work, run, schema)


def _feature(name: str, tally: FeatureTally) -> FeatureReport:
    quantiles = dict(zip(QUANTILES, tally.quantiles(QUANTILES.values()), strict=True))
    hours = {hour: _counted(row.tolist()) for hour, row in sorted(tally.hours.items())}
    return FeatureReport(name, _counted(tally.counts.tolist()), quantiles, hours)


def _counted(row: Sequence[int]) -> Counted:
    return Counted(**dict(zip(OUTCOMES, row, strict=True)))


def _total(features: Sequence[FeatureReport]) -> Counted:
    return Counted(**{n: sum(getattr(f.counted, n) for f in features) for n in OUTCOMES})


def _moment(millis: int) -> pa.Scalar:
    return pa.scalar(millis * 1000, pa.timestamp("us", tz="UTC"))


def check_consistency(
    engine: Engine,
    root: Store,
    progress: Progress,
    request: Request,
    plan: Plan,
    resolve: Callable[[GroupBy], GroupBy],
    version: Callable[[Join | GroupBy], str] | None,
) -> Report:
    """Run the job. `resolve` gives a group over shards; `version` is that of a definition."""
    now = None if version is None else version(request.definition)

    def explain(chosen: Sequence[Chosen], counted: pa.Table) -> Sequence[Example]:
        history = ServedHistory.of(counted if request.log is None else counted.slice(0, 0))
        options = root.options_dict
        explainer = Explainer(engine, options, request.definition, now, resolve, history)
        return explainer.explain(chosen)

    return ConsistencyJob(engine, root, progress, plan, request, now, explain).run()
