"""The engine of views: creates them, and brings them up to date, all to one time.

A tick takes the changes of all tables since the last one. Views are computed in the order of their
dependencies, each by one job that reads state as it was and writes parts that nobody sees yet; a
view over another reads what that one has just written. One commit then makes all of it visible.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windrow.errors import RelationExistsError, SchemaError, UnsupportedSQL, WindrowError
from windrow.rows.types import RESERVED
from windrow.shard.spec import by_hash
from windrow.spark.catalyst import PLANNING, Catalyst
from windrow.spark.errors import planning_errors
from windrow.spark.progress import Progress
from windrow.spark.session import Engine, has_own_jobs, parallelism
from windrow.spark.settings import fixed_session, is_remote, settings_of
from windrow.spark.tasks import WrittenFile
from windrow.storage.store import Store
from windrow.views.arranging import fill, placed
from windrow.views.collections import Collection
from windrow.views.commits import DEFINE, TICK, Commit
from windrow.views.costs import ticks
from windrow.views.costs.catalogue import RECORDS, arrangements, keeps, stored_estimates
from windrow.views.costs.estimates import Estimate, estimated
from windrow.views.costs.explain import analyzed, with_estimates
from windrow.views.definition import ViewDefinition
from windrow.views.history import History
from windrow.views.jobs import JobFolders, ViewJob
from windrow.views.plan.join_sides import Known
from windrow.views.plan.monotonic import growth, relied_on
from windrow.views.plan.nodes import Arrangement, ViewPlan
from windrow.views.plan.planner import Planner
from windrow.views.plan.refusals import refuse
from windrow.views.relations import Relations
from windrow.views.run.task import Reported
from windrow.views.sweep import SWEEP_HOURS
from windrow.views.ticking import Tick, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LARGE = 200_000  # changes; from then on rows are exchanged between several tasks
ROWS_PER_TASK = 1_000_000
ANALYZED = 3  # runs of a view that EXPLAIN ANALYZE shows
MOST_THREADS = 8  # that run jobs of one tick
UPKEEP_TICKS = 64  # of one process, from one upkeep of the collections to the next


@dataclass(frozen=True)
class TickSummary:
    """What a tick did: the time that all views are at, and the changes of each that it touched."""

    time: int
    changes_in: int = 0
    changes_out: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.changes_out:
            return f"no changes, {self.seconds:.2f} s"
        out = sum(self.changes_out.values())
        views = len(self.changes_out)
        return (
            f"{self.changes_in:,} changes in, {out:,} out, {views} "
            f"view{'s' if views != 1 else ''}, {self.seconds:.2f} s"
        )


@dataclass(frozen=True)
class _Computed:
    """What a tick changes, before it is committed; based on a version of the history.

    `collections` are those that it has read, with what it has added to views.
    """

    version: int
    upto: int
    appends: Mapping[str, Sequence[WrittenFile]]
    changes: Mapping[str, int]
    changes_in: int
    collections: Mapping[str, Collection]
    runs: Mapping[str, Any]  # what the operators of each view did, to be noted


class ViewEngine:
    """Creates, maintains, explains and drops the views of a project."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        history: History,
        relations: Relations,
        progress: Progress | None = None,
    ) -> None:
        self._engine, self._history, self._relations = engine, history, relations
        self._progress = progress
        self._folders = JobFolders(store)
        self._catalysts: dict[tuple[tuple[str, str], ...], Catalyst] = {}
        self._jobs: dict[str, tuple[Mapping[str, Any], ViewJob]] = {}
        self._frames: dict[str, DataFrame] = {}  # of views made of DataFrames
        self._pool: ThreadPoolExecutor | None = None
        self._ticks = 0  # that this process has committed
        self._swept = False

    # Defining.

    def create(
        self,
        name: str,
        frame: DataFrame,
        *,
        text: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
        comment: str | None = None,
    ) -> None:
        """Create a view of `frame`, a query over leaves, and fill it from what is there.

        With `replace`, in place of one that there may be, which stays if anything fails.
        """
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.get(name)
            if found is not None:
                if text is None and found.kind == "view" and found.definition.get("sql") is None:
                    self._attach(found.name, frame)
                    return
                if if_not_exists and found.kind == "view":
                    return
                if replace and found.kind == "view":
                    self._refuse_read(found.name)
                    self._create(found.name, frame, text, properties or {}, comment, [found.name])
                    self._relations.forget(found.name)
                    return
                raise RelationExistsError(
                    f"there is a {found.kind} {found.name!r} already; drop it first, or choose "
                    "another name"
                )
            self._create(name, frame, text, properties or {}, comment)

    def _create(
        self,
        name: str,
        frame: DataFrame,
        text: str | None,
        properties: Mapping[str, str],
        comment: str | None,
        replaced: Sequence[str] = (),
    ) -> None:
        settings = settings_of(frame.sparkSession)
        plan = self.plan(name, frame, settings, properties)
        if any(one.relation in replaced for one in plan.inputs):
            raise WindrowError(f"view {name} cannot be replaced by a query that reads it")
        if text is None:
            self._frames[name] = frame
        # A view that is replaced may be one that cannot be ticked. The others are, in the commit
        # that replaces it: a tick of its own would be one that has left a view behind.
        pending = self._computed(without=replaced) if replaced else None
        if not replaced:
            self._tick()
        at = self._history.ticked if pending is None else pending.upto
        expected = self._estimates(plan, settings)
        shared = self._arrangements(without=replaced)
        created: dict[str, dict[str, Any]] = {}
        places: dict[str, str] = {}
        rows_by_key: list[tuple[str, str]] = []  # relations, and what is kept of them by key
        wider: dict[str, str] = {}  # what is replaced by one with more columns
        try:
            for arrangement in plan.arrangements.values():
                if arrangement.source is not None:
                    found = placed(self._history, arrangement, shared.get(arrangement.name))
                    places[arrangement.name] = found.id
                    if found.is_new:
                        rows_by_key.append((arrangement.source, found.id))
                        created[found.id] = _facts(arrangement, name)
                    if found.replaces is not None:
                        wider[found.replaces] = found.id
                    continue
                if arrangement.name in shared:
                    places[arrangement.name] = shared[arrangement.name]
                    continue
                order = by_hash(*arrangement.order)
                id = self._history.create_collection(arrangement.schema, arrangement.key, order)
                places[arrangement.name] = id
                created[id] = _facts(arrangement, name)
            output = self._history.create_collection(plan.output.schema, plan.output.key)
            created[output] = {"retain": "history", "view": name}
            definition = ViewDefinition(
                output,
                frame.schema.json(),
                text,
                settings,
                tuple(dict.fromkeys(one.relation for one in plan.inputs)),
                dict(places),
                str(plan),
                dict(properties),
                comment,
                choices=dict(plan.choices),
                append_only=relied_on(plan.root),
                only_grows=growth(plan.root).only_grows,
                keeps=keeps(plan, {**places, plan.output.name: output}, expected),
            )
            job = self._job_of(name, plan, definition)
            parts = {
                id: self._fill_rows(source, id, at, pending, definition.settings)
                for source, id in rows_by_key
            }
            seconds, reported = self._fill(job, set(created) - set(parts), at, pending)
            runs = {} if pending is None else pending.runs
            runs = {**runs, name: ticks.noted(job, reported, seconds)}
            appends = {id: parts.get(id) or reported.parts.get(id, []) for id in created}
            dropped = [id for one in replaced for id in self._unused_after(one)]
            dropped += [id for id in wider if id not in dropped]
            before = {} if pending is None else pending.appends
            self._history.commit(
                Commit(
                    DEFINE,
                    at,
                    appends={**{i: one for i, one in before.items() if i not in wider}, **appends},
                    created=created,
                    dropped=dropped,
                    catalogue={
                        **self._moved(wider, [name, *replaced]),
                        name: definition.to_json(),
                    },
                    ticked=None if pending is None else at,
                    note={"view": name, "seconds": round(seconds, 3), ticks.NOTE: runs},
                ),
                expected=None if pending is None else pending.version,
            )
        except BaseException:
            for id in created:
                self._history.discard_collection(id)
            self._frames.pop(name, None)
            raise
        self._jobs[name] = (self._history.catalogue[name], job)

    def _fill_rows(
        self,
        source: str,
        id: str,
        at: int,
        pending: _Computed | None,
        settings: Mapping[str, str],
    ) -> Sequence[WrittenFile]:
        """Fill the rows of a relation by key."""
        known = {} if pending is None else pending.collections
        rows = known.get(source) or self._history.collection(source)
        target = self._history.collection(id)
        partitions = self._partitions(rows_of(rows))
        spark = self._catalyst(settings).spark
        return fill(spark, self._folders, rows, target, at, partitions)

    def _moved(self, wider: Mapping[str, str], but: Sequence[str]) -> dict[str, Any]:
        """Definitions of views whose rows of relations are now found in wider collections."""
        moved = {}
        for view in self._relations.known("view"):
            places = view.definition["arrangements"]
            if view.name not in but and not wider.keys().isdisjoint(places.values()):
                stored = self._history.catalogue[view.name]
                kept = [
                    {**one, "collection": wider.get(one["collection"], one["collection"])}
                    for one in stored.get("keeps", ())
                ]
                found = {name: wider.get(id, id) for name, id in places.items()}
                moved[view.name] = {**stored, "arrangements": found, "keeps": kept}
        return moved

    def _fill(
        self, job: ViewJob, created: set[str], at: int, pending: _Computed | None
    ) -> tuple[float, Reported]:
        """Compute a view from all that there is, and what a tick is about to add to it."""
        started = time.perf_counter()
        collections = self._collections(job)
        if pending is not None:
            known = pending.collections
            collections = {id: known.get(id, one) for id, one in collections.items()}
        rows = sum(rows_of(collections[one.collection]) for one in job.plan.inputs)
        with self._stage(f"filling {job.name}", rows):
            reported = job.run(
                collections,
                created,
                lower=0,
                time=at,
                fill=True,
                partitions=self._partitions(rows),
            )
        return time.perf_counter() - started, reported

    def drop(self, name: str) -> None:
        """Remove a view, and what it kept that no other view needs."""
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.find(name, "view")
            users = self._relations.users_of(found.name)
            if users:
                raise WindrowError(
                    f"view {found.name} is used by {', '.join(users)}; drop "
                    f"{'it' if len(users) == 1 else 'them'} first"
                )
            dropped = self._unused_after(found.name)
            commit = Commit(
                DEFINE,
                self._history.next_time(),
                dropped=dropped,
                catalogue={found.name: None},
                note={"dropped": found.name},
            )
            self._history.commit(commit)
            self._jobs.pop(found.name, None)
            self._frames.pop(found.name, None)
            self._relations.forget(found.name)

    def refresh_view(self, name: str) -> None:
        """Rebuild a view, and what only it keeps, from its inputs as they are."""
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.find(name, "view")
            self._refuse_read(found.name)
            definition = ViewDefinition.from_json(found.definition)
            frame = self._frame_of(found.name, definition)
            self._jobs.pop(found.name, None)
            self._create(
                found.name,
                frame,
                definition.sql,
                definition.properties,
                definition.comment,
                replaced=[found.name],
            )

    def _refuse_read(self, name: str) -> None:
        """A view that others read cannot be rebuilt: their state belongs to its present rows."""
        users = self._relations.users_of(name)
        if users:
            them = "it" if len(users) == 1 else "them"
            raise WindrowError(
                f"view {name} is read by {', '.join(users)}, whose state belongs to its rows as "
                f"they are; drop {them}, rebuild {name}, and create {them} again"
            )

    # Ticks.

    def tick(self) -> TickSummary:
        """Bring all views to the newest time of their inputs."""
        self._history.refresh()
        if self._history.ticked == self._history.time:
            return TickSummary(self._history.ticked)
        with self._history.claim_ticks():
            self._history.refresh()
            before = self._ticks
            done = self._tick()
        # Without the claim: meanwhile, other processes may tick.
        if self._ticks > before and self._ticks % UPKEEP_TICKS == 0:
            self._upkeep()
        return done

    def _upkeep(self) -> None:
        """Merge what many ticks have written, and remove what is dead, once in a process."""
        with suppress(WindrowError):  # the tick is committed; upkeep comes again
            self._history.maintain()
            if not self._swept:
                self._swept = True
                self.sweep()

    def sweep(self, *, hours: int = SWEEP_HOURS) -> list[str]:
        """Remove what dead processes left, so many hours ago; the names of what was removed.

        With 0 hours, no other process may be writing.
        """
        return [*self._history.sweep(hours=hours), *self._folders.sweep(hours)]

    def _tick(self) -> TickSummary:
        started = time.perf_counter()
        found = self._computed()
        if found is None:
            return TickSummary(self._history.ticked)
        at, note = found.upto, {"changes": found.changes, ticks.NOTE: found.runs}
        self._history.commit(
            Commit(TICK, at, appends=found.appends, ticked=at, note=note), expected=found.version
        )
        self._ticks += 1
        return TickSummary(at, found.changes_in, found.changes, time.perf_counter() - started)

    def _computed(self, without: Sequence[str] = ()) -> _Computed | None:
        """What a tick of all views but some changes; None if nothing has changed since the last.

        Others may not read those that are left out, which are about to be replaced.
        """
        history = self._history
        lower, upto, version = history.ticked + 1, history.time, history.version
        if upto < lower:
            return None
        jobs = self._ordered_jobs(without)
        tick = Tick(history, lower, upto, self._threads(), self._partitions)
        tick.run(jobs)
        return _Computed(
            version,
            upto,
            tick.appends,
            tick.changes,
            tick.changes_in,
            tick.collections,
            tick.runs,
        )

    def _ordered_jobs(self, without: Sequence[str] = ()) -> list[ViewJob]:
        """The jobs of all views but some, those that others read first."""
        known = self._relations.known("view")
        views = {one.name: one for one in known if one.name not in without}
        ordered: dict[str, ViewJob] = {}

        def add(name: str) -> None:
            if name in ordered or name not in views:
                return
            definition = ViewDefinition.from_json(views[name].definition)
            for one in definition.inputs:
                add(one)
            ordered[name] = self._job(name, definition)

        for name in views:
            add(name)
        return list(ordered.values())

    # Plans.

    def plan(
        self,
        name: str,
        frame: DataFrame,
        settings: Mapping[str, str],
        properties: Mapping[str, str] | None = None,
        append_only: Sequence[str] | None = None,
        choices: Mapping[str, Sequence[str]] | None = None,
    ) -> ViewPlan:
        """The plan of a query over leaves; UnsupportedSQL if it cannot be maintained.

        It relies on relations being append-only: on all that are, or on those of `append_only`.
        """
        c = self._catalyst(settings)
        what = f"view {name}"
        refuse(c, c.analyzed(frame), what)
        columns = frame.columns
        leaves = {int(plan.rdd().id()): leaf for leaf, plan in self._relations.leaves.items()}
        places = {one.name: one.collection for one in self._relations.known()}
        growing = {
            one
            for one in places
            if self._relations.only_grows(one) and (append_only is None or one in append_only)
        }
        known = Known(
            lambda id: rows_of(self._history.collection(id)),
            {one.collection: one.key for one in self._relations.known("table")},
            frozenset(self._arrangements()),
            choices or {},
        )
        planner = Planner(c, leaves, places, settings, properties, growing, known)
        try:
            _refuse_names(columns)
            with planning_errors():
                return planner.plan(name, c.optimized(frame), columns)
        except (UnsupportedSQL, SchemaError) as error:  # the latter: a type that cannot be stored
            found = error if isinstance(error, UnsupportedSQL) else UnsupportedSQL("")
            place = found.line, found.column
            if found.line is None:  # the optimiser does not keep all places
                place = c.place(c.analyzed(frame)) or place
            where = "" if place[0] is None else f" (line {place[0]}, column {place[1]})"
            why = f"{what}{where}: {error}"
            raise UnsupportedSQL(why, line=place[0], column=place[1]) from None

    def explain(
        self,
        what: str | DataFrame,
        extended: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """The plan of a view, or of a query that could be one."""
        if not isinstance(what, str):
            plan = self.plan("explained", what, settings_of(what.sparkSession), properties)
            return str(plan)
        self._history.refresh()
        found = self._relations.find(what, "view")
        definition = ViewDefinition.from_json(found.definition)
        lines = [definition.plan]
        if extended:
            frame = self._frame_of(found.name, definition)
            text = self._catalyst(definition.settings).optimized_text(frame)
            lines += ["", "Spark's optimised plan:", text]
        return "\n".join(lines)

    def explain_cost(
        self, what: str | DataFrame, properties: Mapping[str, str] | None = None
    ) -> str:
        """The plan of a view, or of a query that could be one, with estimates of what it keeps.

        Those of a view are the ones that were made before it was filled.
        """
        if isinstance(what, str):
            found = self._relations.find(what, "view")
            definition = ViewDefinition.from_json(found.definition)
            job = self._job(found.name, definition)
            return with_estimates(job.plan, stored_estimates(found, job.places))
        settings = settings_of(what.sparkSession)
        plan = self.plan("explained", what, settings, properties)
        return with_estimates(plan, self._estimates(plan, settings, always=True))

    def explain_analyze(self, name: str) -> str:
        """The plan of a view with the size of what it keeps, and what the last ticks did."""
        self._history.refresh()
        found = self._relations.find(name, "view")
        job = self._job(found.name, ViewDefinition.from_json(found.definition))
        lines = arrangements(self._relations, self._history, found.name)
        runs = ticks.last_runs(self._history.notes(RECORDS), [found.name], ANALYZED)
        return analyzed(job.plan, lines, job.places, runs[found.name])

    def _estimates(
        self, plan: ViewPlan, settings: Mapping[str, str], *, always: bool = False
    ) -> dict[str, Estimate]:
        ids = dict.fromkeys(one.collection for one in plan.inputs)
        collections = {id: self._history.collection(id) for id in ids}
        return estimated(self._catalyst(settings), plan, collections, always=always)

    def _job(self, name: str, definition: ViewDefinition) -> ViewJob:
        stored = self._history.catalogue[name]
        known = self._jobs.get(name)
        if known is not None and known[0] == stored:
            return known[1]
        frame = self._frame_of(name, definition)
        plan = self._plan_again(name, frame, definition)
        if str(plan) != definition.plan or set(plan.arrangements) != set(definition.arrangements):
            lost = [one for one in definition.append_only if not self._relations.only_grows(one)]
            if lost:
                raise WindrowError(
                    f"view {name}: its plan relies on {', '.join(lost)} being append-only, which "
                    f"is not so any more. REFRESH MATERIALIZED VIEW {name} rebuilds it"
                )
            raise WindrowError(
                f"view {name}: this release of Spark or Windrow plans it differently from the one "
                f"that created it. REFRESH MATERIALIZED VIEW {name} rebuilds it"
            )
        job = self._job_of(name, plan, definition)
        self._jobs[name] = (stored, job)
        return job

    def _plan_again(self, name: str, frame: DataFrame, definition: ViewDefinition) -> ViewPlan:
        """The plan of a view that is there. What was declared append-only later is not used."""
        return self.plan(
            name,
            frame,
            definition.settings,
            definition.properties,
            definition.append_only,
            definition.choices,
        )

    def _job_of(self, name: str, plan: ViewPlan, definition: ViewDefinition) -> ViewJob:
        places = {**definition.arrangements, plan.output.name: definition.collection}
        return ViewJob(name, plan, places, self._catalyst(definition.settings), self._folders)

    def _frame_of(self, name: str, definition: ViewDefinition) -> DataFrame:
        """The query of a view over leaves."""
        if definition.sql is not None:
            return self._relations.planned_view(self._relations.find(name, "view"))
        if name not in self._frames:
            raise WindrowError(
                f"view {name} was made of a DataFrame, which only its program knows: call "
                f"project.view({name!r}, df) with the same DataFrame first"
            )
        return self._frames[name]

    def _attach(self, name: str, frame: DataFrame) -> None:
        """Give a view that was made of a DataFrame its DataFrame again."""
        definition = ViewDefinition.from_json(self._history.catalogue[name])
        plan = self._plan_again(name, frame, definition)
        if set(plan.arrangements) != set(definition.arrangements):
            raise RelationExistsError(
                f"view {name} exists, and was made of another DataFrame; drop it first, or choose "
                "another name"
            )
        self._frames[name] = frame

    def _catalyst(self, settings: Mapping[str, str]) -> Catalyst:
        key = tuple(sorted(settings.items()))
        if key not in self._catalysts:
            given = self._engine.given
            if is_remote(given):
                raise UnsupportedSQL(
                    "views need a classic Spark session: Spark Connect has no plans to look at"
                )
            session = fixed_session(given)
            for name, value in {**settings, **PLANNING}.items():
                if session.conf.isModifiable(name):
                    session.conf.set(name, value)
            self._catalysts[key] = Catalyst(session)
        return self._catalysts[key]

    # Collections.

    def _collections(self, job: ViewJob) -> dict[str, Collection]:
        return {id: self._history.collection(id) for id in job.collections}

    def _arrangements(self, without: Sequence[str] = ()) -> dict[str, str]:
        """All arrangements of the project by name, with their collections."""
        return {
            name: id
            for view in self._relations.known("view")
            if view.name not in without
            for name, id in view.definition["arrangements"].items()
        }

    def _unused_after(self, name: str) -> list[str]:
        """The collections that nobody needs once a view is gone."""
        definition = ViewDefinition.from_json(self._history.catalogue[name])
        kept = set(self._arrangements(without=[name]).values())
        own = [definition.collection, *definition.arrangements.values()]
        return [id for id in own if id not in kept]

    def _partitions(self, rows: int) -> int | None:
        if rows < LARGE:
            return None
        return max(2 * parallelism(self._engine.given), -(-rows // ROWS_PER_TASK))

    def _threads(self) -> ThreadPoolExecutor:
        """Threads that run jobs: kept, since each has a connection to the JVM."""
        if self._pool is None:
            given = self._engine.given
            count = min(parallelism(given), MOST_THREADS) if has_own_jobs(given) else 1
            self._pool = ThreadPoolExecutor(max(1, count), "windrow-tick")
        return self._pool

    @contextmanager
    def _stage(self, title: str, rows: int) -> Iterator[None]:
        if self._progress is None:
            yield
        else:
            with self._progress.stage(title, rows):
                yield

    def close(self) -> None:
        """Remove the folders of jobs. A view that is needed again gets a new job."""
        self._jobs.clear()
        self._folders.close()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _refuse_names(columns: Sequence[str]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.lower() in RESERVED:
            raise UnsupportedSQL(
                f"a column is named {column!r}, which belongs to Windrow; rename it"
            )
        if column.lower() in seen:
            raise UnsupportedSQL(f"two columns are named {column!r}; rename one")
        seen.add(column.lower())


def _facts(arrangement: Arrangement, view: str) -> dict[str, Any]:
    """What the history says of a collection that an operator keeps."""
    return {"retain": "latest", "what": str(arrangement), "view": view}
