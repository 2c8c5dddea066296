"""A parsed plan of Spark as a statement: which fields of which class say what.

Py4J shows Scala's case classes; whatever a release of Spark renames is renamed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from windrow.errors import UnsupportedSQL
from windrow.spark.nodes import items, kind
from windrow.spark.plans import mapping, names_of, option, origin
from windrow.spark.statements import (
    Action,
    AlterTable,
    Assignment,
    Column,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    DescribeQuery,
    Drop,
    Explain,
    Files,
    Insert,
    Merge,
    Plan,
    Query,
    Refresh,
    Setting,
    Show,
    ShowColumns,
    ShowCreate,
    Statement,
    Truncate,
    Update,
)
from windrow.spark.tokens import tokens

FORMATS = ("parquet", "delta", "csv", "json")  # of files that a source may be made of


@dataclass(frozen=True)
class Reading:
    """Reads the plan of one statement."""

    text: str
    replace: bool

    def statement(self, plan: Plan) -> Statement:
        ctes = None
        if kind(plan) == "UnresolvedWith" and kind(plan.child()) in _CHANGES:
            ctes, plan = plan, plan.child()
        what = kind(plan)
        if what == "Union" and kind(plan.children().apply(0)) == "InsertIntoStatement":
            self.refuse(plan, "several INSERTs in one statement", "write them one by one")
        if what in _CHANGES:
            return _CHANGES[what](self, plan, ctes)
        read = _READERS.get(what)
        if read is not None:
            return read(self, plan)
        hint = _HINTS.get(what)
        package = str(plan.getClass().getName())
        is_query = ".logical." in package or ".analysis." in package
        command = what in _COMMANDS or ".execution." in package or _is_command(plan)
        if hint is not None or command or not is_query:
            self.refuse(plan, self._words(), hint or "it is not part of what a project does")
        return Query(self.text, plan)

    def refuse(self, node: Any, what: str, hint: str) -> NoReturn:
        place = origin(node) or (1, 1)
        raise UnsupportedSQL(
            f"line {place[0]}, column {place[1]}: {what} is not supported; {hint}",
            line=place[0],
            column=place[1],
        )

    def _words(self) -> str:
        """The statement by its first words."""
        words: list[str] = []
        for token in tokens(self.text):
            if token.word not in _VERBS or len(words) == 3:
                break
            words.append(token.word)
        return " ".join(words) or "this statement"

    def name(self, node: Any) -> str:
        """A name of the project: one word."""
        what = kind(node)
        if what == "SubqueryAlias":
            return self.name(node.child())
        if what == "UnresolvedIdentifier":
            parts = names_of(node.nameParts())
        elif (
            what in ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView")
            or what == "UnresolvedView"
        ):
            parts = names_of(node.multipartIdentifier())
        else:
            self.refuse(node, "a name that is computed", "write the name itself")
        if len(parts) > 1:
            self.refuse(
                node,
                f"the qualified name {'.'.join(parts)}",
                f"a project has one space of names; write {parts[-1]}",
            )
        return parts[0]

    def _create_table(self, plan: Plan) -> CreateTable:
        spec = plan.tableSpec()
        columns = tuple(self._column(one) for one in items(plan.columns()))
        files = self._files(plan, spec, columns)
        if files is None:
            self._check_table_spec(plan, spec)
        return CreateTable(
            self.text,
            self.name(plan.name()),
            columns,
            self._key(plan, spec, [one.name for one in columns]),
            bool(plan.ignoreIfExists()),
            option(spec.comment()),
            None,
            mapping(spec.properties()),
            files,
        )

    def _files(self, plan: Plan, spec: Any, columns: tuple[Column, ...]) -> Files | None:
        """USING and LOCATION together; one without the other is refused elsewhere."""
        provider, location = option(spec.provider()), option(spec.location())
        if provider is None or location is None:
            return None
        format = str(provider).lower()
        if format not in FORMATS:
            self.refuse(plan, f"USING {provider}", f"a source is one of {', '.join(FORMATS)}")
        if plan.partitioning().nonEmpty():
            hint = "leave it out: folders that are named like ds=2024-05-01 become columns"
            self.refuse(plan, "PARTITIONED BY and CLUSTER BY of a source", hint)
        for one in columns:
            if not one.nullable:
                hint = "leave it out: what is in files is not in our hands"
                self.refuse(plan, f"NOT NULL of {one.name}, a column of a source,", hint)
            if one.default is not None:
                hint = "leave it out: nothing is inserted into a source"
                self.refuse(plan, f"DEFAULT of {one.name}, a column of a source,", hint)
        options = {}
        for pair in items(spec.optionExpression().options()):
            if kind(pair._2()) != "Literal":
                self.refuse(plan, f"the option {pair._1()} that is computed", "write its value")
            options[str(pair._1())] = str(pair._2().toString())
        return Files(format, str(location), options)

    def _create_table_as(self, plan: Plan) -> CreateTable:
        spec = plan.tableSpec()
        self._check_table_spec(plan, spec)
        key = self._key(plan, spec, None)
        return CreateTable(
            self.text,
            self.name(plan.name()),
            (),
            key,
            bool(plan.ignoreIfExists()),
            option(spec.comment()),
            plan.query(),
            mapping(spec.properties()),
        )

    def _check_table_spec(self, plan: Plan, spec: Any) -> None:
        if option(spec.provider()) is not None:
            self.refuse(
                plan,
                f"USING {spec.provider().get()}",
                "leave it out: the project stores tables itself. (Of files that others write, "
                "CREATE TABLE ... USING parquet LOCATION '...' makes a source)",
            )
        if option(spec.location()) is not None:
            self.refuse(
                plan,
                "LOCATION",
                "tables are stored beneath the project's root. (Of files that others write, "
                "CREATE TABLE ... USING parquet LOCATION '...' makes a source)",
            )
        if plan.partitioning().nonEmpty():
            self.refuse(plan, "PARTITIONED BY and CLUSTER BY", "leave it out")

    def _column(self, one: Any) -> Column:
        name = str(one.name())
        if one.generationExpression().isDefined():
            self.refuse(one, f"the generated column {name}", "compute it in a view")
        if one.identityColumnSpec().isDefined():
            self.refuse(one, f"the identity column {name}", "give keys when rows are inserted")
        default = option(one.defaultValue())
        return Column(
            name,
            str(one.dataType().json()),
            bool(one.nullable()),
            option(one.comment()),
            None if default is None else str(default.originalSQL()),
        )

    def _key(self, plan: Plan, spec: Any, known: list[str] | None) -> tuple[str, ...]:
        key: tuple[str, ...] = ()
        for one in items(spec.constraints()):
            if kind(one) != "PrimaryKeyConstraint":
                what = _CONSTRAINTS.get(kind(one), kind(one))
                self.refuse(one, what, "a table can have a PRIMARY KEY, and NOT NULL columns")
            key = names_of(one.columns())
        return key

    def _create_view(self, plan: Plan) -> CreateView:
        spec = plan.tableSpec()
        if plan.columns().nonEmpty():
            self.refuse(plan, "a list of columns", "leave types out: VIEW v (a, b) AS")
        if plan.partitioning().nonEmpty():
            self.refuse(plan, "PARTITIONED BY and CLUSTER BY", "leave it out")
        return CreateView(
            self.text,
            self.name(plan.name()),
            plan.query(),
            str(plan.originalText()),
            bool(plan.ifNotExists()),
            self.replace,
            option(spec.comment()),
            mapping(spec.properties()),
        )

    def _insert(self, plan: Plan, ctes: Plan | None) -> Insert:
        if plan.partitionSpec().nonEmpty():
            self.refuse(plan, "PARTITION", "give the column a value like any other")
        if _has(plan, "replaceCriteriaOpt") and plan.replaceCriteriaOpt().isDefined():
            self.refuse(plan, "INSERT ... REPLACE", "write DELETE and INSERT, or MERGE")
        if _has(plan, "withSchemaEvolution") and plan.withSchemaEvolution():
            self.refuse(plan, "WITH SCHEMA EVOLUTION", "leave it out: a table keeps its columns")
        return Insert(
            self.text,
            self.name(plan.table()),
            ctes or plan,
            ctes,
            plan.query(),
            names_of(plan.userSpecifiedCols()),
            bool(plan.byName()),
            bool(plan.overwrite()),
        )

    def _update(self, plan: Plan, ctes: Plan | None) -> Update:
        table = self.name(plan.table())
        return Update(
            self.text,
            table,
            ctes or plan,
            ctes,
            _alias(plan.table(), table),
            self._assignments(plan.assignments()),
            option(plan.condition()),
        )

    def _assignments(self, found: Any) -> tuple[Assignment, ...]:
        return tuple(
            Assignment(names_of(one.key().nameParts()), one.value()) for one in items(found)
        )

    def _delete(self, plan: Plan, ctes: Plan | None) -> Delete:
        table = self.name(plan.table())
        alias, whole = _alias(plan.table(), table), ctes or plan
        return Delete(self.text, table, whole, ctes, alias, plan.condition())

    def _merge(self, plan: Plan, ctes: Plan | None) -> Merge:
        if plan.withSchemaEvolution():
            self.refuse(plan, "WITH SCHEMA EVOLUTION", "leave it out: a table keeps its columns")
        table = self.name(plan.targetTable())
        return Merge(
            self.text,
            table,
            ctes or plan,
            ctes,
            _alias(plan.targetTable(), table),
            plan.sourceTable(),
            plan.mergeCondition(),
            tuple(self._action(one) for one in items(plan.matchedActions())),
            tuple(self._action(one) for one in items(plan.notMatchedActions())),
            tuple(self._action(one) for one in items(plan.notMatchedBySourceActions())),
        )

    def _action(self, one: Any) -> Action:
        what, condition = kind(one), option(one.condition())
        match what:
            case "DeleteAction":
                return Action("delete", condition)
            case "UpdateStarAction" | "InsertStarAction":
                return Action(what[:6].lower(), condition, None)
        assignments = self._assignments(one.assignments())  # UpdateAction or InsertAction
        return Action(what[:6].lower(), condition, assignments)

    def _describe(self, plan: Plan) -> Describe:
        return Describe(self.text, self.name(plan.relation()), bool(plan.isExtended()))

    def _explain(self, plan: Plan) -> Explain:
        mode = str(plan.mode().name()).lower()
        inner = self.statement(plan.logicalPlan())
        if isinstance(inner, CreateView):
            return Explain(self.text, mode, view=inner)
        if not isinstance(inner, Query):
            self.refuse(plan, f"EXPLAIN of {type(inner).__name__}", "explain a query or a view")
        return Explain(self.text, mode, plan=inner.plan)

    def _show(self, plan: Plan, what: str) -> Show:
        pattern = plan.pattern()
        if not isinstance(pattern, str):
            pattern = option(pattern)
        return Show(self.text, what, pattern)


def _alias(node: Any, name: str) -> str:
    return str(node.alias()) if kind(node) == "SubqueryAlias" else name


def _has(plan: Plan, name: str) -> bool:
    """Whether a node has a field: releases of Spark add some."""
    return any(plan.productElementName(i) == name for i in range(plan.productArity()))


def _is_command(plan: Plan) -> bool:
    loader = plan.getClass().getClassLoader()
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    kinds = (loader.loadClass(f"{logical}.{name}") for name in ("Command", "ParsedStatement"))
    return any(one.isInstance(plan) for one in kinds)


_Change = Callable[[Reading, Any, Any], Statement]
_CHANGES: Mapping[str, _Change] = {
    "InsertIntoStatement": Reading._insert,
    "UpdateTable": Reading._update,
    "DeleteFromTable": Reading._delete,
    "MergeIntoTable": Reading._merge,
}
_READERS: Mapping[str, Callable[[Reading, Any], Statement]] = {
    "CreateTable": Reading._create_table,
    "CreateTableAsSelect": Reading._create_table_as,
    "CreateMaterializedViewAsSelect": Reading._create_view,
    "SetTableProperties": lambda r, p: AlterTable(
        r.text, r.name(p.table()), dict(mapping(p.properties()))
    ),
    "UnsetTableProperties": lambda r, p: AlterTable(
        r.text, r.name(p.table()), dict.fromkeys(map(str, items(p.propertyKeys())))
    ),
    "SetViewProperties": lambda r, p: AlterTable(
        r.text, r.name(p.child()), dict(mapping(p.properties()))
    ),
    "UnsetViewProperties": lambda r, p: AlterTable(
        r.text, r.name(p.child()), dict.fromkeys(map(str, items(p.propertyKeys())))
    ),
    "TruncateTable": lambda r, p: Truncate(r.text, r.name(p.table())),
    "DropTable": lambda r, p: Drop(r.text, "table", r.name(p.child()), bool(p.ifExists())),
    "DropView": lambda r, p: Drop(r.text, "view", r.name(p.child()), bool(p.ifExists())),
    "RefreshTable": lambda r, p: Refresh(r.text, r.name(p.child())),
    "ShowTables": lambda r, p: r._show(p, "tables"),
    "ShowViews": lambda r, p: r._show(p, "views"),
    "ShowColumns": lambda r, p: ShowColumns(r.text, r.name(p.child())),
    "ShowCreateTable": lambda r, p: ShowCreate(r.text, r.name(p.child())),
    "DescribeRelation": Reading._describe,
    "DescribeQueryCommand": lambda r, p: DescribeQuery(r.text, p.plan()),
    "ExplainCommand": Reading._explain,
    "SetCommand": lambda r, p: Setting(r.text, p),
    "ResetCommand": lambda r, p: Setting(r.text, p, reset=True, name=option(p.config())),
}
_CONSTRAINTS = {
    "UniqueConstraint": "UNIQUE",
    "CheckConstraint": "CHECK",
    "ForeignKeyConstraint": "FOREIGN KEY",
}
_COMMANDS = frozenset({"Call", "CompoundBody", "UnresolvedExecuteImmediate"})
_HINTS: Mapping[str, str] = {
    "CreateView": "write CREATE MATERIALIZED VIEW",
    "CreateViewCommand": "write CREATE MATERIALIZED VIEW, or a WITH clause",
    "ReplaceTable": "DROP the table first, or INSERT OVERWRITE it",
    "ReplaceTableAsSelect": "write INSERT OVERWRITE",
    "CreateTableLikeCommand": "write CREATE TABLE ... AS SELECT * FROM ... WHERE false",
    "CreateTableLike": "write CREATE TABLE ... AS SELECT * FROM ... WHERE false",
    "AddColumns": "create another table and INSERT INTO it",
    "AlterColumns": "create another table and INSERT INTO it",
    "CompoundBody": "run its statements one by one",
    "DescribeColumn": "write DESCRIBE and the name of the table",
    "TruncatePartition": "write DELETE ... WHERE",
    "OverwriteByExpression": "write DELETE and INSERT, or MERGE",
}
_NAMED = ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView")
_VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        ADD ALTER ANALYZE BEGIN CACHE CALL CATALOG CATALOGS CLEAR COMMENT CREATE DATABASE DATABASES
        DECLARE DESC DESCRIBE DROP EXECUTE FUNCTION FUNCTIONS IMMEDIATE INDEX INSERT LIST LOAD MSCK
        NAMESPACE NAMESPACES OR PARTITIONS PROCEDURE REPAIR REPLACE SCHEMA SCHEMAS SET SHOW TABLE
        TEMP TEMPORARY TRUNCATE UNCACHE USE VAR VARIABLE VIEW
        """,
    )
)
