"""Names of a project (tables, sources, views) as DataFrames: their rows at a time, or as leaves.

A statement is parsed by Spark; the relations of the project that it mentions are then put into
its plan in place of their names. Nothing is registered for that: what a name means is decided
here, once for each statement, and a name that WITH defines is left to Spark. Names that are not
the project's are looked up in the session that the user gave.

For planning, a view's query is analysed over leaves instead of rows (see `leaves`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windrow.errors import RelationNotFoundError, TimeRangeError, UnsupportedSQL
from windrow.shard.read import Read
from windrow.spark.hints import GroupSizes
from windrow.spark.nodes import kind
from windrow.spark.parsing import parse
from windrow.spark.plans import TRAVEL, Rewriting, aliased, frame_of, names_of, plan_of
from windrow.spark.schemas import quoted
from windrow.spark.session import Engine
from windrow.spark.settings import FIXED, fixed_session, moved, settings_of
from windrow.spark.sql_errors import sql_errors
from windrow.spark.statements import Query
from windrow.time import now_millis
from windrow.views.history.history import History
from windrow.views.relations.leaves import Leaves, marked, over_leaves
from windrow.views.relations.names import Names, Relation
from windrow.views.relations.pruning import LARGE, needed
from windrow.views.relations.rows import rows_frame
from windrow.views.relations.travel import place, refuse_travel, travel_time
from windrow.views.times import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {"spark.sql.storeAssignmentPolicy": "ANSI"}


class Relations(Names):
    """What the names of a project stand for, as of the version that its history is at."""

    def __init__(self, engine: Engine, history: History) -> None:
        super().__init__(history)
        self._engine = engine
        self._session: SparkSession | None = None
        self._sessions: dict[tuple[tuple[str, str], ...], SparkSession] = {}

    @property
    def session(self) -> SparkSession:
        """The project's session: a clone of the user's with fixed meanings; SET changes it."""
        if self._session is None:
            self._session = fixed_session(self._engine.given)
            for name, value in SETTINGS.items():
                self._session.conf.set(name, value)
        return self._session

    def reset(self, name: str | None) -> None:
        """After RESET: what a project fixes is as it was at first, not as Spark has it."""
        for own, value in {**FIXED, **SETTINGS}.items():
            if name is None or name == own:
                self.session.conf.set(own, value)

    # Rows

    def frame(
        self, name: str, as_of: int | None = None, columns: Collection[str] | None = None
    ) -> DataFrame:
        """The rows of a relation at a time, by default the newest that is there.

        Of columns that are not in `columns` nothing is read: they may be NULL.
        """
        relation = self.find(name)
        if as_of is not None:
            self._check_time(relation, as_of)
        if relation.kind == "view" and as_of is not None and not self._holds(relation, as_of):
            return self._computed(relation, as_of)
        if as_of is None and relation.kind == "view":
            as_of = self._history.ticked
        rows = self._stored(relation, as_of, columns)
        return frame_of(self.session, marked(self.session, relation.name, plan_of(rows)))

    def snapshot(self, relation: Relation, as_of: int | None = None) -> Read:
        """What is stored of a relation, as updates."""
        return self._history.collection(relation.collection).snapshot(as_of)

    def _stored(
        self, relation: Relation, as_of: int | None, columns: Collection[str] | None
    ) -> DataFrame:
        collection = self._history.collection(relation.collection)
        storable = relation.storable
        if columns is None:  # of a source, more is stored than queries see
            everything = collection.snapshot(as_of, columns=relation.schema.names)
            return storable.from_stored(rows_frame(self.session, everything))
        # Where NULL is ruled out there has to be a value: Spark may have counted on it.
        read = [f.name for f in relation.schema if f.name in columns or not f.nullable]
        rows = rows_frame(self.session, collection.snapshot(as_of, columns=read))
        return storable.from_stored(rows, read=read)

    def _holds(self, view: Relation, as_of: int) -> bool:
        """Whether a view's collection is what its query gives at `as_of`.

        It is at the time of the last tick, and as long as nothing changed after it; what was
        between earlier ticks is not remembered.
        """
        ticked = self._history.ticked
        if as_of == ticked:
            return True
        if as_of < ticked or view.definition.get("sql") is None:
            return view.definition.get("sql") is None
        inputs = [self.find(one) for one in self.tables_of(view.name)]
        uppers = [self._history.collection(one.collection).upper for one in inputs]
        return all(upper <= ticked + 1 for upper in uppers)

    def _computed(self, view: Relation, as_of: int) -> DataFrame:
        """A view at a time at which it was not brought up to date: its query over its inputs."""
        session = self.session_of(view)
        plan = self.resolved(self._parsed(view, session), as_of)
        with sql_errors():
            return moved(frame_of(session, plan), self.session)

    def session_of(self, relation: Relation) -> SparkSession:
        """A session with the settings that were in force when a relation was created."""
        settings = dict(relation.definition.get("settings") or {})
        if not settings or settings == settings_of(self.session):
            return self.session
        known = tuple(sorted(settings.items()))
        if known in self._sessions:
            return self._sessions[known]
        session = self._sessions[known] = fixed_session(self._engine.given)
        for name, value in {**SETTINGS, **settings}.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        return session

    def _check_time(self, relation: Relation, as_of: int) -> None:
        since = self._history.collection(relation.collection).since
        since = max(since, relation.definition.get("created", 0))
        newest = max(self._history.time, now_millis())
        if not since <= as_of <= newest:
            raise TimeRangeError(
                f"{relation.kind} {relation.name}: it cannot be read at {shown(as_of)}; it can be "
                f"from {shown(since)} to {shown(newest)}"
            )

    def tables_of(self, view: str) -> list[str]:
        """The tables and sources that a view is computed from, through other views."""
        found: dict[str, None] = {}
        for name in self.inputs_of(self.find(view)):
            one = self.get(name)
            if one is not None and one.kind == "view":
                found |= dict.fromkeys(self.tables_of(one.name))
            elif one is not None:
                found[one.name] = None
        return list(found)

    def inputs_of(self, view: Relation) -> list[str]:
        """The names that a view's query mentions."""
        given = view.definition.get("inputs")
        if given is not None:
            return [str(one) for one in given]
        return self.mentioned([self._parsed(view, self.session)])

    def users_of(self, name: str) -> list[str]:
        """The views whose queries mention a relation."""
        wanted = name.lower()
        return [
            view.name
            for view in self.known("view")
            if wanted in {one.lower() for one in self.inputs_of(view)}
        ]

    def readers_of(self, name: str) -> list[str]:
        """The views that read a relation, also through others; each after those that it reads."""
        found: dict[str, None] = {}

        def add(one: str) -> None:
            for reader in self.users_of(one):
                if reader not in found:
                    add(reader)
                    found[reader] = None

        add(name)
        return list(reversed(found))

    # Statements

    def mentioned_by(self, text: str) -> list[str]:
        """The relations of the project that the text of a query mentions."""
        statement = parse(self.session, text)
        assert isinstance(statement, Query)
        return self.mentioned([statement.plan])

    def mentioned(self, plans: Iterable[Any]) -> list[str]:
        """The relations of the project that parsed plans mention."""
        found: dict[str, None] = {}

        def note(node: Any, hidden: frozenset[str]) -> None:
            relation = node.relation() if kind(node) == TRAVEL else node
            parts = names_of(relation.multipartIdentifier())
            if len(parts) == 1 and parts[0].lower() not in hidden:
                one = self.get(parts[0])
                if one is not None:
                    found[one.name] = None

        rewriting = Rewriting(self.session, note)
        for plan in plans:
            rewriting.plan(plan)
        return list(found)

    def resolved(self, plan: Any, as_of: int | None = None) -> Any:
        """A parsed plan with the rows of relations in place of their names."""
        columns = self._needed(plan)
        plans: dict[tuple[str, int | None], Any] = {}

        def put(node: Any, hidden: frozenset[str]) -> Any | None:
            at, relation = as_of, node
            if kind(node) == TRAVEL:
                relation, at = node.relation(), travel_time(self.session, node)
            parts = names_of(relation.multipartIdentifier())
            if len(parts) != 1 or parts[0].lower() in hidden:
                return None
            own = self.get(parts[0])
            if own is None:
                return self._foreign(node, parts[0])
            key = own.name, at
            if key not in plans:
                wanted = None if columns is None else columns.get(own.name, set())
                plans[key] = plan_of(self.frame(own.name, at, wanted))
            return aliased(self.session, parts[0], plans[key])

        return Rewriting(self.session, put).plan(plan)

    def _needed(self, plan: Any) -> Mapping[str, Collection[str]] | None:
        """The columns that a parsed query needs, by relation; None if all will do."""
        large = [one for one in self.mentioned([plan]) if self._updates(one) > LARGE]
        if not large:
            return None

        def put(node: Any, hidden: frozenset[str]) -> Any | None:
            parts = names_of(
                (node.relation() if kind(node) == TRAVEL else node).multipartIdentifier()
            )
            own = self.get(parts[0]) if len(parts) == 1 else None
            if len(parts) != 1 or parts[0].lower() in hidden:
                return None
            if own is None:
                return self._foreign(node, parts[0])
            return aliased(self.session, parts[0], plan_of(self.leaf(own.name)))

        frame = frame_of(self.session, Rewriting(self.session, put).plan(plan))
        return needed(frame, self.relation_of)

    def _updates(self, name: str) -> int:
        parts = self._history.collection(self.find(name).collection).parts
        return sum(part.rows for part in parts)

    def query(self, plan: Any, as_of: int | None = None) -> DataFrame:
        """The rows that a parsed query gives."""
        with sql_errors():
            return frame_of(self.session, self.resolved(plan, as_of))

    def _foreign(self, node: Any, name: str) -> Any:
        """A table or view of the user's session."""
        given = self._engine.given
        if not given.catalog.tableExists(quoted(name)):
            raise RelationNotFoundError(
                f"{place(node)}: there is no table or view {name!r}; {self.hint(name)}"
            )
        if kind(node) == TRAVEL:
            raise UnsupportedSQL(f"AS OF is for relations of the project, and {name!r} is none")
        return aliased(self.session, name, plan_of(moved(given.table(quoted(name)), self.session)))

    # Leaves

    @functools.cached_property
    def _leaves(self) -> Leaves:
        return Leaves(self.session)

    def leaf(self, name: str) -> DataFrame:
        """A frame that stands for a relation in plans; also a temporary view of its name."""
        return self._leaves.leaf(self.find(name))

    @property
    def leaves(self) -> Mapping[int, str]:
        """The relation of each leaf that was made, by the id of its RDD."""
        return self._leaves.names

    def relation_of(self, rdd_id: int) -> str | None:
        """The relation whose leaf has this RDD; None if it is no leaf."""
        return self._leaves.relation_of(rdd_id)

    def forget(self, name: str) -> None:
        """A relation that was dropped: its leaf goes, too."""
        self._leaves.forget(name)

    def planned(self, plan: Any, session: SparkSession | None = None) -> DataFrame:
        """A parsed query analysed over leaves. Only relations of the project can be mentioned."""

        def put(node: Any, hidden: frozenset[str]) -> Any | None:
            if kind(node) == TRAVEL:
                refuse_travel(node)
            parts = names_of(node.multipartIdentifier())
            if len(parts) == 1 and parts[0].lower() in hidden:
                return None
            own = self.get(parts[0]) if len(parts) == 1 else None
            if own is None:
                name = ".".join(parts)
                raise RelationNotFoundError(
                    f"{place(node)}: there is no table, source or view {name!r} in the project, "
                    f"and a view is made of those; {self.hint(name)}"
                )
            return aliased(self.session, parts[0], plan_of(self.leaf(own.name)))

        with sql_errors():
            sizes = GroupSizes(session or self.session)
            parsed = Rewriting(self.session, put).plan(sizes.taken(plan))
            return sizes.carried(frame_of(session or self.session, parsed))

    def planned_view(self, view: Relation) -> DataFrame:
        """The query of a view over leaves, under the settings it was created with."""
        session = self.session_of(view)
        return self.planned(self._parsed(view, session), session)

    def planned_frame(self, frame: DataFrame) -> DataFrame:
        """A DataFrame that was made of the project's relations, over leaves."""
        with sql_errors():
            return over_leaves(moved(frame, self.session), self.leaf)

    def _parsed(self, view: Relation, session: SparkSession) -> Any:
        statement = parse(session, str(view.definition["sql"]))
        assert isinstance(statement, Query)
        return statement.plan
