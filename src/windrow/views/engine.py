"""The engine of views: creates them, and brings them up to date, all to one time.

A tick takes the changes of all tables since the last one. Views are computed in the order of their
dependencies, each by one job that reads state as it was and writes parts that nobody sees yet; a
view over another reads what that one has just written. One commit then makes all of it visible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from windrow.views.names import Relation
from windrow.views.plan.join_sides import Known
from windrow.views.plan.monotonic import growth, relied_on
from windrow.views.plan.nodes import Arrangement, ViewPlan
from windrow.views.plan.planner import Planner
from windrow.views.plan.refusals import refuse
from windrow.views.relations import Relations
from windrow.views.run.task import Reported
from windrow.views.sweep import SWEEP_HOURS
from windrow.views.tick_failures import note_failure
from windrow.views.ticking import Tick, extended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

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
    quarantined: int = 0  # changes that sources have left out

    def __str__(self) -> str:
        left = f", {self.quarantined:,} in quarantine" if self.quarantined else ""
        return self._changes() + left

    def _changes(self) -> str:
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


@dataclass(frozen=True)
class _Wanted:
    """A view to be made, or made again. `frame` gives its query over leaves as they are by then."""

    name: str
    frame: Callable[[], DataFrame]
    text: str | None
    properties: Mapping[str, str]
    comment: str | None


@dataclass
class _Made:
    """Views as they are planned, before they are filled.

    `rows_by_key` are relations, with the collections for their rows by key, that are filled before
    a view; `wider` maps collections to those with more columns that take their places.
    """

    jobs: list[tuple[ViewJob, ViewDefinition]] = field(default_factory=list)
    rows_by_key: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    wider: dict[str, str] = field(default_factory=dict)


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
        self._store = store
        self._progress = progress
        self._folders = JobFolders(store)
        self._catalysts: dict[tuple[tuple[str, str], ...], Catalyst] = {}
        self._jobs: dict[str, tuple[Mapping[str, Any], ViewJob]] = {}
        self._lost: dict[str, tuple[str, ...]] = {}  # what is append-only no more, by job
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
                    own = _Wanted(found.name, lambda: frame, text, properties or {}, comment)
                    self._rebuild(own, same_columns=True)
                    return
                raise RelationExistsError(
                    f"there is a {found.kind} {found.name!r} already; drop it first, or choose "
                    "another name"
                )
            self._define([_Wanted(name, lambda: frame, text, properties or {}, comment)])

    def _define(self, wanted: Sequence[_Wanted], replaced: Sequence[str] = ()) -> None:
        """Make views, in place of those that are `replaced`, in one commit.

        Each comes after those that it reads. All are planned before one is filled.
        """
        frames = dict(self._frames)
        created: dict[str, dict[str, Any]] = {}
        try:
            made = self._defined(wanted, replaced, created)
            # A view that is replaced may be one that cannot be ticked. The others are, in the
            # commit that replaces it: a tick of its own would be one that has left a view behind.
            pending = self._pending(replaced) if replaced else None
            if not replaced:
                self._tick()
            at = self._history.ticked if pending is None else pending.upto
            known = {} if pending is None else dict(pending.collections)
            before = {} if pending is None else pending.appends
            appends: dict[str, Sequence[WrittenFile]] = {}
            runs = {} if pending is None else dict(pending.runs)
            rows_by_key = {id for several in made.rows_by_key.values() for _, id in several}
            for job, definition in made.jobs:
                for source, id in made.rows_by_key.get(job.name, ()):
                    appends[id] = self._fill_rows(source, id, at, known, definition.settings)
                own = {id for id in job.places.values() if id in created}
                own -= rows_by_key | set(appends)
                started = time.perf_counter()
                reported = self._fill(job, own, at, known)
                runs[job.name] = ticks.noted(job, reported, time.perf_counter() - started)
                appends |= {id: reported.parts.get(id, []) for id in own}
                output = definition.collection
                known[output] = extended(self._history.collection(output), appends[output], at)
            names = [job.name for job, _ in made.jobs]
            seconds = round(sum(runs[name]["seconds"] for name in names), 3)
            dropped = [*self._unused_without(replaced), *made.wider]
            self._history.commit(
                Commit(
                    DEFINE,
                    at,
                    appends={
                        **{id: one for id, one in before.items() if id not in made.wider},
                        **appends,
                    },
                    created=created,
                    dropped=list(dict.fromkeys(dropped)),
                    catalogue={
                        **self._moved(made.wider, [*names, *replaced]),
                        **{job.name: definition.to_json() for job, definition in made.jobs},
                    },
                    ticked=None if pending is None else at,
                    note={"view": ", ".join(names), "seconds": seconds, ticks.NOTE: runs},
                ),
                expected=None if pending is None else pending.version,
            )
        except BaseException:
            for id in created:
                self._history.discard_collection(id)
            self._frames = frames
            raise
        for job, _ in made.jobs:
            self._jobs[job.name] = (self._history.catalogue[job.name], job)

    def _defined(
        self,
        wanted: Sequence[_Wanted],
        replaced: Sequence[str],
        created: dict[str, dict[str, Any]],
    ) -> _Made:
        """Plans, and collections for what they keep, which are noted in `created`."""
        shared = self._arrangements(without=replaced)
        catalogue: dict[str, Mapping[str, Any]] = {}
        made = _Made()
        planned: list[tuple[ViewPlan, ViewDefinition]] = []
        for one in wanted:
            with self._relations.as_if(catalogue):
                frame = one.frame()
                settings = settings_of(frame.sparkSession)
                plan = self.plan(one.name, frame, settings, one.properties)
                inputs = dict.fromkeys(each.relation for each in plan.inputs)
                if one.text is not None:  # what the optimiser leaves out is mentioned all the same
                    inputs |= dict.fromkeys(self._relations.mentioned_by(one.text))
                else:
                    self._frames[one.name] = frame
                    self._refuse_nullable(one.name, inputs, catalogue)
            for name in inputs:
                if name in replaced and name not in catalogue:
                    raise WindrowError(
                        f"view {one.name} cannot be replaced by a query that reads it"
                        + ("" if name == one.name else f", through {name}")
                    )
            for arrangement in plan.arrangements.values():
                self._place(arrangement, one.name, shared, created, made)
            output = self._history.create_collection(plan.output.schema, plan.output.key)
            created[output] = {"retain": "history", "view": one.name}
            places = {name: shared[name] for name in plan.arrangements}
            expected = self._estimates(plan, settings)
            definition = ViewDefinition(
                output,
                frame.schema.json(),
                one.text,
                settings,
                tuple(inputs),
                places,
                str(plan),
                dict(one.properties),
                one.comment,
                choices=dict(plan.choices),
                append_only=relied_on(plan.root),
                only_grows=growth(plan.root).only_grows,
                keeps=keeps(plan, {**places, plan.output.name: output}, expected),
            )
            catalogue[one.name] = definition.to_json()
            planned.append((plan, definition))
        for one, (plan, definition) in zip(wanted, planned, strict=True):
            # A later view may have made what an earlier one keeps wider.
            final = ViewDefinition.from_json(_moved(definition.to_json(), made.wider))
            made.jobs.append((self._job_of(one.name, plan, final), final))
        self._forget_narrow(created, made)
        return made

    def _place(
        self,
        arrangement: Arrangement,
        view: str,
        shared: dict[str, str],
        created: dict[str, dict[str, Any]],
        made: _Made,
    ) -> None:
        """Find the collection of what an operator keeps, or make one."""
        existing = shared.get(arrangement.name)
        if arrangement.source is not None:  # its columns are those that any view needs
            found = placed(self._history, arrangement, existing)
            shared[arrangement.name] = found.id
            if found.is_new:
                created[found.id] = _facts(arrangement, view)
                made.rows_by_key.setdefault(view, []).append((arrangement.source, found.id))
            if found.replaces is not None:
                replaced = {found.replaces, *_sources(made.wider, found.replaces)}
                made.wider |= dict.fromkeys(replaced, found.id)
        elif existing is None:
            order = by_hash(*arrangement.order)
            id = self._history.create_collection(arrangement.schema, arrangement.key, order)
            created[id] = _facts(arrangement, view)
            shared[arrangement.name] = id

    def _forget_narrow(self, created: dict[str, dict[str, Any]], made: _Made) -> None:
        """Discard collections that were made wider before they were ever filled."""
        for id in [id for id in made.wider if id in created]:
            del created[id], made.wider[id]
            self._history.discard_collection(id)
            for several in made.rows_by_key.values():
                several[:] = [one for one in several if one[1] != id]

    def _refuse_nullable(
        self, name: str, inputs: Iterable[str], catalogue: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """A DataFrame was analysed over columns as they were; it may rely on having no NULLs."""
        for one in inputs:
            if one not in catalogue:
                continue
            before = Relation(one, self._history.catalogue[one]).schema
            after = Relation(one, catalogue[one]).schema
            if any(b.nullable > a.nullable for a, b in zip(before, after, strict=True)):
                raise WindrowError(
                    f"view {name} was made of a DataFrame over {one} before it could hold NULL; "
                    "drop it first, and make it again"
                )

    def _fill_rows(
        self,
        source: str,
        id: str,
        at: int,
        known: Mapping[str, Collection],
        settings: Mapping[str, str],
    ) -> Sequence[WrittenFile]:
        """Fill the rows of a relation by key; `known` has what is about to be committed."""
        rows = known.get(source) or self._history.collection(source)
        target = self._history.collection(id)
        partitions = self._partitions(rows.updates_since(0))
        spark = self._catalyst(settings).spark
        return fill(spark, self._folders, rows, target, at, partitions)

    def _moved(self, wider: Mapping[str, str], but: Sequence[str]) -> dict[str, Any]:
        """Definitions of views whose rows of relations are now found in wider collections."""
        return {
            view.name: _moved(self._history.catalogue[view.name], wider)
            for view in self._relations.known("view")
            if view.name not in but
            and not wider.keys().isdisjoint(view.definition["arrangements"].values())
        }

    def _fill(
        self, job: ViewJob, written: set[str], at: int, known: Mapping[str, Collection]
    ) -> Reported:
        """Compute a view from all that there is; `known` has what is about to be committed."""
        collections = {id: known.get(id) or self._history.collection(id) for id in job.collections}
        rows = sum(collections[one.collection].updates_since(0) for one in job.plan.inputs)
        with self._stage(f"filling {job.name}", rows):
            return job.run(
                collections,
                written,
                lower=0,
                time=at,
                fill=True,
                partitions=self._partitions(rows),
            )

    def _pending(self, replaced: Sequence[str]) -> _Computed | None:
        """What a tick of the other views changes, to be committed together with those replaced.

        None if nothing does, or if one of the others cannot be ticked now: then what is replaced is
        at the time of the last tick, as all are.
        """
        try:
            return self._computed(without=replaced)
        except WindrowError:
            return None

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
            dropped = self._unused_without([found.name])
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
        """Rebuild a view, and all that read it, from their inputs as they are, in one commit."""
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.find(name, "view")
            definition = ViewDefinition.from_json(found.definition)
            self._rebuild(self._same(found.name, definition), same_columns=False)

    def _same(self, name: str, definition: ViewDefinition) -> _Wanted:
        """A view as it was defined, to be made again."""
        return _Wanted(
            name,
            lambda: self._frame_of(name, definition),
            definition.sql,
            definition.properties,
            definition.comment,
        )

    def _rebuild(self, wanted: _Wanted, *, same_columns: bool) -> None:
        """Rebuild a view, and with it all views that read it: their state belongs to its rows."""
        readers = self._relations.readers_of(wanted.name)
        if readers and same_columns:
            before = _types(self._relations.find(wanted.name).schema)
            after = _types(wanted.frame().schema)
            if before != after:
                raise WindrowError(
                    f"view {wanted.name} is read by {', '.join(readers)}, and would have other "
                    f"columns: ({after}) instead of ({before}). Drop "
                    f"{'it' if len(readers) == 1 else 'them'} first, or keep the columns"
                )
        known = [ViewDefinition.from_json(self._history.catalogue[name]) for name in readers]
        rest = [self._same(name, one) for name, one in zip(readers, known, strict=True)]
        self._define([wanted, *rest], replaced=[wanted.name, *readers])

    # Ticks.

    def tick(self) -> TickSummary:
        """Bring all views to the newest time of their inputs."""
        self._history.refresh()
        if self._history.ticked == self._history.time:
            return TickSummary(self._history.ticked)
        with self._history.claim_ticks():
            self._history.refresh()
            before = self._ticks
            try:
                done = self._tick()
            except WindrowError as error:
                note_failure(self._store, error, self._history.time, self._named_by(error))
                raise
        # Without the claim: meanwhile, other processes may tick.
        if self._ticks > before and self._ticks % UPKEEP_TICKS == 0:
            self._upkeep()
        return done

    def _named_by(self, error: WindrowError) -> str | None:
        """The view whose job failed: its error begins with its name."""
        text = str(error)
        views = (one.name for one in self._relations.known("view"))
        found = (name for name in views if text.startswith((f"view {name}:", f"view {name},")))
        return max(found, key=len, default=None)

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
        places = {one.name: one.collection for one in self._relations.known()}
        growing = {
            one
            for one in places
            if self._relations.only_grows(one) and (append_only is None or one in append_only)
        }
        keys = {one.name: one.key for one in self._relations.known() if one.key}
        known = Known(
            lambda id: self._history.collection(id).updates_since(0),
            {one.collection: one.key for one in self._relations.known("table")},
            frozenset(self._arrangements()),
            choices or {},
        )
        leaves = self._relations.leaves
        planner = Planner(c, leaves, places, settings, properties, growing, keys, known)
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
        # Of a view that is being rebuilt, the rows that it has are about those that it will have.
        places = {one.collection: self._history.catalogue[one.relation] for one in plan.inputs}
        collections = {
            id: self._history.collection(str(known["collection"])) for id, known in places.items()
        }
        return estimated(self._catalyst(settings), plan, collections, always=always)

    def _job(self, name: str, definition: ViewDefinition) -> ViewJob:
        stored = self._history.catalogue[name]
        known = self._jobs.get(name)
        lost = tuple(one for one in definition.append_only if not self._relations.only_grows(one))
        if known is not None and known[0] == stored and self._lost.get(name, ()) == lost:
            return known[1]
        frame = self._frame_of(name, definition)
        plan = self._plan_again(name, frame, definition)
        if str(plan) != definition.plan or set(plan.arrangements) != set(definition.arrangements):
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
        self._jobs[name], self._lost[name] = (stored, job), lost
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
            self._frames[name] = frame  # for REFRESH
            raise RelationExistsError(
                f"view {name} exists, and was made of another DataFrame, or by a release of Spark "
                f"or Windrow that planned it differently. REFRESH MATERIALIZED VIEW {name} makes "
                "it of this one; or drop it first, or choose another name"
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

    def _arrangements(self, without: Sequence[str] = ()) -> dict[str, str]:
        """All arrangements of the project by name, with their collections."""
        return {
            name: id
            for view in self._relations.known("view")
            if view.name not in without
            for name, id in view.definition["arrangements"].items()
        }

    def _unused_without(self, views: Sequence[str]) -> list[str]:
        """The collections that nobody needs once some views are gone."""
        kept = set(self._arrangements(without=views).values())
        gone = [ViewDefinition.from_json(self._history.catalogue[name]) for name in views]
        own = [id for one in gone for id in (one.collection, *one.arrangements.values())]
        return [id for id in dict.fromkeys(own) if id not in kept]

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


def _types(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)


def _sources(wider: Mapping[str, str], id: str) -> list[str]:
    """The collections whose place `id` has taken."""
    return [old for old, new in wider.items() if new == id]


def _moved(definition: Mapping[str, Any], wider: Mapping[str, str]) -> dict[str, Any]:
    """A view's definition, with what it keeps in the collections that took the place of others."""
    kept = [
        {**one, "collection": wider.get(one["collection"], one["collection"])}
        for one in definition.get("keeps", ())
    ]
    places = {name: wider.get(id, id) for name, id in definition["arrangements"].items()}
    return {**definition, "arrangements": places, "keeps": kept}


def _facts(arrangement: Arrangement, view: str) -> dict[str, Any]:
    """What the history says of a collection that an operator keeps."""
    return {"retain": "latest", "what": str(arrangement), "view": view}
