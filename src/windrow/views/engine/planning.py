"""Plans of views, and their jobs: made once, and again only where a definition has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windrow.errors import RelationExistsError, SchemaError, UnsupportedSQL, WindrowError
from windrow.rows.types import RESERVED
from windrow.spark.catalyst import PLANNING, Catalyst
from windrow.spark.errors import planning_errors
from windrow.spark.plans import active
from windrow.spark.session import Engine
from windrow.spark.settings import fixed_session, is_remote
from windrow.spark.sql_errors import sql_errors
from windrow.views.costs.estimates import Estimate, estimated
from windrow.views.engine.definition import ViewDefinition
from windrow.views.history.history import History
from windrow.views.plan.join_sides import Known
from windrow.views.plan.nodes import ViewPlan
from windrow.views.plan.planner import Planner
from windrow.views.plan.refusals import refuse, refuse_drawn
from windrow.views.relations.relations import Relations
from windrow.views.run.jobs import JobFolders, ViewJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Planning:
    """The plans of a project's views, and the jobs that run them.

    `frames` are the queries of views that were made of DataFrames.
    """

    def __init__(
        self, engine: Engine, history: History, relations: Relations, folders: JobFolders
    ) -> None:
        self._engine, self._history, self._relations = engine, history, relations
        self._folders = folders
        self.frames: dict[str, DataFrame] = {}
        self._catalysts: dict[tuple[tuple[str, str], ...], Catalyst] = {}
        self._jobs: dict[str, tuple[Mapping[str, Any], ViewJob]] = {}
        self._lost: dict[str, tuple[str, ...]] = {}  # what is append-only no more, by job

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
        c = self.catalyst(settings)
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
            frozenset(self.arrangements()),
            choices or {},
        )
        leaves = self._relations.leaves
        planner = Planner(c, leaves, places, settings, properties, growing, keys, known)
        try:
            _refuse_names(columns)
            with sql_errors(), planning_errors(), active(c.spark):
                optimized = c.optimized(frame)
                refuse_drawn(c, optimized, what)
                return planner.plan(name, optimized, columns)
        except (UnsupportedSQL, SchemaError) as error:  # the latter: a type that cannot be stored
            found = error if isinstance(error, UnsupportedSQL) else UnsupportedSQL("")
            place = found.line, found.column
            if found.line is None:  # the optimiser does not keep all places
                place = c.place(c.analyzed(frame)) or place
            where = "" if place[0] is None else f" (line {place[0]}, column {place[1]})"
            why = f"{what}{where}: {error}"
            raise UnsupportedSQL(why, line=place[0], column=place[1]) from None

    def estimates(
        self, plan: ViewPlan, settings: Mapping[str, str], *, always: bool = False
    ) -> dict[str, Estimate]:
        # Of a view that is being rebuilt, the rows that it has are about those that it will have.
        places = {one.collection: self._history.catalogue[one.relation] for one in plan.inputs}
        collections = {
            id: self._history.collection(str(known["collection"])) for id, known in places.items()
        }
        return estimated(self.catalyst(settings), plan, collections, always=always)

    def job(self, name: str, definition: ViewDefinition) -> ViewJob:
        stored = self._history.catalogue[name]
        known = self._jobs.get(name)
        lost = tuple(one for one in definition.append_only if not self._relations.only_grows(one))
        if known is not None and known[0] == stored and self._lost.get(name, ()) == lost:
            return known[1]
        frame = self.frame_of(name, definition)
        plan = self.plan_again(name, frame, definition)
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
        job = self.job_of(name, plan, definition)
        self._jobs[name], self._lost[name] = (stored, job), lost
        return job

    def ordered_jobs(self, without: Sequence[str] = ()) -> list[ViewJob]:
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
            ordered[name] = self.job(name, definition)

        for name in views:
            add(name)
        return list(ordered.values())

    def plan_again(self, name: str, frame: DataFrame, definition: ViewDefinition) -> ViewPlan:
        """The plan of a view that is there. What was declared append-only later is not used."""
        return self.plan(
            name,
            frame,
            definition.settings,
            definition.properties,
            definition.append_only,
            definition.choices,
        )

    def job_of(self, name: str, plan: ViewPlan, definition: ViewDefinition) -> ViewJob:
        places = {**definition.arrangements, plan.output.name: definition.collection}
        return ViewJob(name, plan, places, self.catalyst(definition.settings), self._folders)

    def frame_of(self, name: str, definition: ViewDefinition) -> DataFrame:
        """The query of a view over leaves."""
        if definition.sql is not None:
            return self._relations.planned_view(self._relations.find(name, "view"))
        if name not in self.frames:
            raise WindrowError(
                f"view {name} was made of a DataFrame, which only its program knows: call "
                f"project.view({name!r}, df) with the same DataFrame first"
            )
        return self.frames[name]

    def attach(self, name: str, frame: DataFrame) -> None:
        """Give a view that was made of a DataFrame its DataFrame again."""
        definition = ViewDefinition.from_json(self._history.catalogue[name])
        plan = self.plan_again(name, frame, definition)
        if set(plan.arrangements) != set(definition.arrangements):
            self.frames[name] = frame  # for REFRESH
            raise RelationExistsError(
                f"view {name} exists, and was made of another DataFrame, or by a release of Spark "
                f"or Windrow that planned it differently. REFRESH MATERIALIZED VIEW {name} makes "
                "it of this one; or drop it first, or choose another name"
            )
        self.frames[name] = frame

    def catalyst(self, settings: Mapping[str, str]) -> Catalyst:
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

    def arrangements(self, without: Sequence[str] = ()) -> dict[str, str]:
        """All arrangements of the project by name, with their collections."""
        return {
            name: id
            for view in self._relations.known("view")
            if view.name not in without
            for name, id in view.definition["arrangements"].items()
        }

    def unused_without(self, views: Sequence[str]) -> list[str]:
        """The collections that nobody needs once some views are gone."""
        kept = set(self.arrangements(without=views).values())
        gone = [ViewDefinition.from_json(self._history.catalogue[name]) for name in views]
        own = [id for one in gone for id in (one.collection, *one.arrangements.values())]
        return [id for id in dict.fromkeys(own) if id not in kept]

    def keep(self, job: ViewJob) -> None:
        """Keep the job of a view that has just been committed."""
        self._jobs[job.name] = (self._history.catalogue[job.name], job)

    def forget(self, name: str) -> None:
        """Forget a view that was dropped."""
        self._jobs.pop(name, None)
        self.frames.pop(name, None)

    def close(self) -> None:
        """Forget all jobs. A view that is needed again gets a new one."""
        self._jobs.clear()


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
