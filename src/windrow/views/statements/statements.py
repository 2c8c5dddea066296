"""Statements of a project: each is parsed, and handed to the one that does it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from windrow.errors import OptionError, RelationExistsError, SQLError, UnsupportedSQL, WindrowError
from windrow.features.definitions import Join
from windrow.sources.definitions import Source, check_name
from windrow.spark import statements as st
from windrow.spark.nodes import java
from windrow.spark.parameters import Args, bound
from windrow.spark.parsing import parse
from windrow.spark.plans import active, frame_of
from windrow.spark.progress import Progress, Silent
from windrow.spark.session import Engine
from windrow.spark.settings import is_remote
from windrow.spark.sql_errors import sql_errors
from windrow.storage.store import Store
from windrow.views.costs.catalogue import Line, arrangements, lines_frame
from windrow.views.engine.engine import ViewEngine
from windrow.views.engine.ticker import TickSummary
from windrow.views.history.history import History
from windrow.views.relations.changes import changes_frame
from windrow.views.relations.entities import over_shards, view_names
from windrow.views.relations.names import Relation
from windrow.views.relations.online import online_text
from windrow.views.relations.relations import Relations
from windrow.views.sources.sources import Sources
from windrow.views.statements import describe
from windrow.views.statements.publishing import Online, Publishing
from windrow.views.tables import dml
from windrow.views.tables.merge import merge_updates
from windrow.views.tables.table import Table
from windrow.views.tables.tables import Tables, altered
from windrow.views.tables.writing import Updates, Writing
from windrow.views.times import millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_S = TypeVar("_S", bound=st.Change)


class Statements:
    """Runs statements on the project at `store`."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        progress: Progress | None = None,
        publishing: Callable[[], Publishing] | None = None,
    ) -> None:
        if engine.started and is_remote(engine.given):
            raise UnsupportedSQL(
                "SQL over a project needs a classic Spark session: Spark Connect shows no plans; "
                "make the project with a session that was started in this process"
            )
        self.history = History(store)
        self.relations = Relations(engine, self.history)
        self.writing = Writing(self.relations, self.history)
        self.tables = Tables(self.relations, self.history, self.writing)
        self.sources = Sources(self.relations, self.history, store)
        self.online = Online(self.history, self.relations, publishing)
        self._engine, self._store, self._progress = engine, store, progress or Silent()

    @functools.cached_property
    def views(self) -> ViewEngine:
        """The engine that maintains views; made when the first one is there."""
        return ViewEngine(self._engine, self._store, self.history, self.relations, self._progress)

    def close(self) -> None:
        """Remove the folders of jobs, and bring the shards up to the history."""
        if "views" in vars(self):
            self.views.close()
        self.history.close()

    def run(self, text: str, args: Args | None = None) -> DataFrame | None:
        """Run one statement. Queries give their rows, SHOW and its like a small table."""
        if args is not None:
            text = bound(self.relations.session, text, args)
        statement = parse(self.relations.session, text)
        self.history.refresh()
        return self._run(statement)

    @functools.singledispatchmethod
    def _run(self, statement: Any) -> DataFrame | None:
        raise UnsupportedSQL(f"{type(statement).__name__} is not supported")

    @_run.register(st.Query)
    def _query(self, statement: st.Query) -> DataFrame | None:
        self.tick_for(self.relations.mentioned([statement.plan]))
        return self.relations.query(statement.plan)

    @_run.register(st.Setting)
    def _setting(self, statement: st.Setting) -> DataFrame | None:
        with sql_errors():
            found = frame_of(self.relations.session, statement.plan)
        if statement.reset:
            self.relations.reset(statement.name)
            return None
        return found

    # From Python

    def table(self, name: str) -> Table:
        self.history.refresh()
        return Table(name, self.relations, self.writing)

    def resolved(self, join: Join) -> Join:
        """A join whose sources are relations of the project, over their histories as they are."""
        self.history.refresh()
        self.tick_for(view_names(join))
        return over_shards(join, self.relations, self.history)

    def create_source(self, name: str, definition: Source, append_only: bool = False) -> None:
        self.history.refresh()
        check_name(name, "source")
        self.sources.define(name, definition, append_only)

    def quarantine(self, name: str) -> DataFrame:
        self.history.refresh()
        return self.sources.quarantine(name)

    def create_view(
        self, name: str, frame: DataFrame, properties: Mapping[str, str] | None = None
    ) -> None:
        self.history.refresh()
        check_name(name, "view")
        self.sources.ingest()
        planned = self.relations.planned_frame(frame)
        self.online.check(name, "view", planned.schema, properties)
        self.views.create(name, planned, text=None, properties=properties)
        self.online.publish()

    def read(self, name: str, as_of: Any = None) -> DataFrame:
        self.history.refresh()
        at = None if as_of is None else self._millis(as_of, "as_of")
        return self.relations.frame(name, at)

    def changes(self, name: str, start: Any, end: Any = None) -> DataFrame:
        self.history.refresh()
        until = None if end is None else self._millis(end, "end")
        since = self._millis(start, "start")
        return changes_frame(self.relations, self.history, name, since, until)

    def explain(self, text: str) -> str:
        """What EXPLAIN says of a view, by its name, or of a query as a view."""
        self.history.refresh()
        if self.relations.get(text) is not None:
            return self.explained(st.Explain(text, "simple", name=text))
        statement = parse(self.relations.session, text)
        if isinstance(statement, st.Query):
            return str(self.views.explaining.explain(self.relations.planned(statement.plan), False))
        if isinstance(statement, st.CreateView):
            return self.explained(st.Explain(text, "simple", view=statement))
        raise OptionError("explain takes the name of a view, or a query")

    def _millis(self, moment: Any, what: str) -> int:
        zone = self.relations.session.conf.get("spark.sql.session.timeZone") or "UTC"
        return millis(moment, what, zone)

    # Tables

    @_run.register(st.CreateTable)
    def _create_table(self, statement: st.CreateTable) -> DataFrame | None:
        if statement.files is not None:
            if online_text(statement.properties) is not None:
                self.online.refuse("source", statement.name)
            self.sources.create(statement, statement.files)
            return None
        if statement.query is not None:
            self.tick_for(self.relations.mentioned([statement.query]))
        self.tables.create(statement, self.online.check)
        if online_text(statement.properties) is not None:
            self.tick()
        return None

    @_run.register(st.AlterTable)
    def _alter_table(self, statement: st.AlterTable) -> DataFrame | None:
        before = self.relations.find(statement.name)
        after = altered(before, statement.properties)
        self.online.check(before.name, before.kind, before.schema, after)
        if online_text(after) is None:
            self.online.withdraw(before)
        self.tables.alter(statement)
        if online_text(after) is not None:
            self.tick()
        return None

    @_run.register(st.Drop)
    def _drop(self, statement: st.Drop) -> DataFrame | None:
        if statement.what == "table":
            self.tables.drop(
                statement.name, statement.if_exists, statement.text, self.online.withdraw
            )
            return None
        if statement.if_exists and self.relations.get(statement.name) is None:
            return None
        view = self.relations.find(statement.name, "view")
        users = self.relations.users_of(view.name)
        if users:
            raise WindrowError(
                f"view {view.name} is used by the views {', '.join(users)}; drop them first"
            )
        self.online.withdraw(view)
        self.views.drop(view.name)
        self.relations.forget(view.name)
        return None

    # Changes

    @_run.register(st.Insert)
    def _insert(self, statement: st.Insert) -> DataFrame | None:
        self._change(statement, dml.insert_updates)
        return None

    @_run.register(st.Update)
    def _update(self, statement: st.Update) -> DataFrame | None:
        self._change(statement, dml.update_updates)
        return None

    @_run.register(st.Delete)
    def _delete(self, statement: st.Delete) -> DataFrame | None:
        self._change(statement, dml.delete_updates)
        return None

    @_run.register(st.Merge)
    def _merge(self, statement: st.Merge) -> DataFrame | None:
        self._change(statement, merge_updates)
        return None

    @_run.register(st.Truncate)
    def _truncate(self, statement: st.Truncate) -> DataFrame | None:
        self.writing.run(
            statement.table,
            lambda table: dml.all_retracted(self.relations, table),
            statement.text,
        )
        return None

    def _change(self, statement: _S, updates: Callable[[Relations, _S, Relation], Updates]) -> None:
        """Run a statement that changes a table; views that it reads are brought up to date."""

        def make(table: Relation) -> Updates:
            if self.relations.known("view", "source"):
                self.tick_for(self.relations.mentioned([statement.plan]))
            return updates(self.relations, statement, table)

        self.writing.run(statement.table, make, statement.text)

    # Views

    @_run.register(st.CreateView)
    def _create_view(self, statement: st.CreateView) -> DataFrame | None:
        found = self.relations.refuse_taken(statement.name, but="view")
        if found is not None and statement.if_not_exists:
            return None
        if found is not None and not statement.replace:
            raise RelationExistsError(
                f"there is a view {found.name!r} already; choose another name, DROP it first, or "
                "write CREATE OR REPLACE MATERIALIZED VIEW"
            )
        frame = self._planned_view(statement)
        self.online.check(statement.name, "view", frame.schema, statement.properties)
        self.sources.ingest()
        if online_text(statement.properties) is None:
            self.online.withdraw(found)
        try:
            self.views.create(
                statement.name,
                frame,
                text=statement.sql,
                properties=statement.properties,
                if_not_exists=statement.if_not_exists,
                replace=statement.replace,
                comment=statement.comment,
            )
        except WindrowError:
            self.online.publish(must=False)  # what was to be replaced is still there
            raise
        self.online.publish()
        return None

    def _planned_view(self, statement: st.CreateView) -> DataFrame:
        """The query of a view that is to be, over leaves, with the names of its columns."""
        frame = self.relations.planned(statement.query)
        if not statement.columns:
            return frame
        if len(statement.columns) != len(frame.columns):
            raise SQLError(
                f"view {statement.name} lists {len(statement.columns)} columns, and its query "
                f"gives {len(frame.columns)}"
            )
        return frame.toDF(*statement.columns)

    @_run.register(st.Refresh)
    def _refresh(self, statement: st.Refresh) -> DataFrame | None:
        self.sources.ingest()
        self.views.refresh_view(self.relations.find(statement.name, "view").name)
        self.online.publish()
        return None

    def tick(self) -> TickSummary:
        """Look at sources, and bring all views up to date."""
        done = self._tick()
        self.online.publish()
        return done

    def _tick(self) -> TickSummary:
        self.history.refresh()
        self.sources.ingest()
        return replace(self.views.tick(), quarantined=self.sources.quarantined())

    def tick_for(self, names: Iterable[str]) -> None:
        """Bring views up to date, if one of these names is a view; else sources of these names."""
        wanted = {name.lower() for name in names}
        if any(view.name.lower() in wanted for view in self.relations.known("view")):
            self._tick()
            self.online.publish(must=False)  # a query can do without
            self.history.refresh()
        else:
            self.sources.ingest(wanted)

    # Looking at things

    @_run.register(st.Show)
    def _show(self, statement: st.Show) -> DataFrame | None:
        show = describe.show_tables if statement.what == "tables" else describe.show_views
        return show(self.relations, statement.pattern)

    @_run.register(st.ShowArrangements)
    def _show_arrangements(self, statement: st.ShowArrangements) -> DataFrame | None:
        lines = self.cost_lines(statement.view, exact=statement.exact)
        chosen = [line for line in lines if describe.matches(line.view, statement.pattern)]
        return self._lines_frame(chosen)

    def arrangements(self, view: str | None, exact: bool) -> DataFrame:
        self.history.refresh()
        return self._lines_frame(self.cost_lines(view, exact=exact))

    def cost_lines(self, view: str | None = None, *, exact: bool = False) -> list[Line]:
        """What a view keeps, or all of them; counted, if it is to be exact."""
        spark = self.relations.session if exact else None
        return arrangements(self.relations, self.history, view, spark)

    def _lines_frame(self, lines: Sequence[Line]) -> DataFrame:
        session = self.relations.session
        with active(session):
            return lines_frame(session, lines)

    @_run.register(st.ShowColumns)
    def _show_columns(self, statement: st.ShowColumns) -> DataFrame | None:
        return describe.show_columns(self.relations, statement.name)

    @_run.register(st.ShowCreate)
    def _show_create(self, statement: st.ShowCreate) -> DataFrame | None:
        text = describe.create_text(self.relations.find(statement.name))
        return describe.texts(self.relations, ("createtab_stmt",), [(text,)])

    @_run.register(st.Describe)
    def _describe(self, statement: st.Describe) -> DataFrame | None:
        return describe.describe(self.relations, self.history, statement.name, statement.extended)

    @_run.register(st.DescribeQuery)
    def _describe_query(self, statement: st.DescribeQuery) -> DataFrame | None:
        frame = self.relations.query(statement.plan)
        return describe.described(self.relations, frame.schema)

    @_run.register(st.Explain)
    def _explain(self, statement: st.Explain) -> DataFrame | None:
        return describe.texts(self.relations, ("plan",), [(self.explained(statement),)])

    def explained(self, statement: st.Explain) -> str:
        """The text of EXPLAIN: of a view what maintains it, of a query Spark's own plan."""
        extended = statement.mode == "extended"
        if statement.view is not None:
            frame = self._planned_view(statement.view)
            if statement.mode == "cost":
                return self.views.explaining.explain_cost(frame, statement.view.properties)
            return str(self.views.explaining.explain(frame, extended, statement.view.properties))
        if statement.name is not None:
            relation = self.relations.find(statement.name)
            if relation.kind == "view" and statement.mode == "cost":
                return self.views.explaining.explain_cost(relation.name)
            if relation.kind == "view" and statement.mode == "analyze":
                self.tick()
                return self.views.explaining.explain_analyze(relation.name)
            if relation.kind == "view":
                return str(self.views.explaining.explain(relation.name, extended))
            return f"{relation.kind} {relation.name}: its rows are stored"
        frame = self.relations.query(statement.plan)
        with sql_errors():
            mode = java(frame.sparkSession, "org.apache.spark.sql.execution.ExplainMode")
            return str(
                frame._jdf.queryExecution().explainString(mode.fromString(statement.mode))
            ).strip()
