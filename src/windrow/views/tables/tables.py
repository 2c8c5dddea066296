"""Tables of a project: creating and dropping them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from windrow.errors import (
    CommitConflictError,
    OptionError,
    SchemaError,
    WindrowError,
    unknown_column,
)
from windrow.spark.nodes import java
from windrow.spark.plans import active, schema_of
from windrow.spark.sql_errors import sql_errors
from windrow.spark.statements import AlterTable, Column, CreateTable
from windrow.updates import DIFF
from windrow.views.history.commits import Commit
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.online import ONLINE
from windrow.views.relations.relations import Relations
from windrow.views.storable import Storable, key_columns
from windrow.views.tables.dml import check_defaults
from windrow.views.tables.writing import ATTEMPTS, NOTE, Updates, Writing, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Check = Callable[
    [str, str, "StructType", Mapping[str, str]], None
]  # name, kind, columns, properties
APPEND_ONLY = "append_only"  # the property of a table or a source whose rows never go


class Tables:
    """Creates, alters and drops tables, each in one commit."""

    def __init__(self, relations: Relations, history: History, writing: Writing) -> None:
        self._relations, self._history, self._writing = relations, history, writing

    def create(self, statement: CreateTable, check: Check) -> None:
        """CREATE TABLE, empty or AS SELECT; `check` refuses what cannot be served."""
        for _ in range(ATTEMPTS):
            self._history.refresh()
            if self._exists(statement):
                return
            try:
                self._create(statement, check)
                return
            except CommitConflictError:
                continue  # another definition was first; perhaps of this very name
        raise CommitConflictError(
            f"table {statement.name}: other definitions were first {ATTEMPTS} times in a row; "
            "nothing was created. Run the statement again"
        )

    def _exists(self, statement: CreateTable) -> bool:
        may = "table" if statement.if_not_exists else None
        return self._relations.refuse_taken(statement.name, but=may) is not None

    def _create(self, statement: CreateTable, check: Check) -> None:
        frame: DataFrame | None = None
        reads: list[str] = []
        if statement.query is not None:
            reads = self._relations.mentioned([statement.query])
            frame = self._relations.query(statement.query)
            schema = _without_nullability(frame.schema)
        else:
            schema = declared(self._relations.session, statement.columns)
        definition = definition_of(statement, schema)
        table = Relation(statement.name, definition)
        storable = Storable.of(schema, f"table {statement.name}")
        key = key_columns(storable.stored)
        if not key:
            raise SchemaError(
                f"table {statement.name}: all of its columns are maps; give it one that is not"
            )
        check_defaults(self._relations.session, table)
        check(statement.name, "table", schema, statement.properties)
        version, at = self._history.version, self._history.next_time()
        id = self._history.create_collection(storable.arrow, key)
        commit = Commit(
            "define",
            at,
            created={id: {"retain": "history"}},
            catalogue={statement.name: {**definition, "collection": id, "created": at}},
            note={"sql": statement.text.strip()[:NOTE]},
        )
        try:
            if frame is not None:
                from pyspark.sql import functions as F  # noqa: N812

                updates = Updates(frame.withColumn(DIFF, F.lit(1).cast("long")))
                written = write(table, self._history.collection(id), updates, at)
                if written:
                    commit = _with_appends(commit, id, written)
            reads_ids = self._writing.collections(reads)
            self._history.commit(commit, expected=version, reads=reads_ids)
        except BaseException:
            self._history.discard(commit)
            raise

    def alter(self, statement: AlterTable) -> None:
        """ALTER TABLE ... SET or UNSET TBLPROPERTIES, of a table, a source or a view."""
        for _ in range(ATTEMPTS):
            self._history.refresh()
            table = self._relations.find(statement.name)
            properties = altered(table, statement.properties)
            if table.kind == "view":
                definition = {**table.definition, "properties": properties}
            else:
                without = ("properties", APPEND_ONLY)
                definition = {k: v for k, v in table.definition.items() if k not in without}
                definition |= with_properties(table.name, properties)
            at, version = self._history.next_time(), self._history.version
            note = {"sql": statement.text.strip()[:NOTE]}
            commit = Commit("define", at, catalogue={table.name: definition}, note=note)
            try:
                self._history.commit(commit, expected=version)
                return
            except CommitConflictError:
                continue
        raise CommitConflictError(
            f"table {statement.name} was not altered: others kept changing the project"
        )

    def drop(
        self, name: str, if_exists: bool, text: str, before: Callable[[Relation], None]
    ) -> None:
        """DROP TABLE; refused while views are computed from it. `before` is told that it goes."""
        for _ in range(ATTEMPTS):
            self._history.refresh()
            found = self._relations.get(name)
            if if_exists and found is None:
                return
            is_source = found is not None and found.kind == "source"
            table = self._relations.find(name, "source" if is_source else "table")
            users = self._relations.users_of(table.name)
            if users:
                raise WindrowError(
                    f"{table.kind} {table.name} is used by the views {', '.join(users)}; drop "
                    "them first"
                )
            before(table)
            at = self._history.next_time()
            commit = Commit(
                "define",
                at,
                dropped=[table.collection],
                catalogue={table.name: None},
                note={"sql": text.strip()[:NOTE]},
            )
            try:
                self._history.commit(commit)
            except CommitConflictError:
                continue
            self._relations.forget(table.name)
            return
        raise CommitConflictError(f"table {name} was not dropped: others kept changing the project")


def altered(relation: Relation, changes: Mapping[str, str | None]) -> dict[str, str]:
    """The properties of a relation after some are set and, by None, unset."""
    if relation.kind == "view":
        _refuse_plans(relation.name, changes)
    properties = dict(relation.definition.get("properties") or {})
    for key, value in changes.items():
        properties = {k: v for k, v in properties.items() if k.lower() != key.lower()}
        if value is not None:
            properties[key] = value
    return properties


def _refuse_plans(name: str, changes: Mapping[str, str | None]) -> None:
    """Of a view, all properties but one choose its plan, which is what its state belongs to."""
    for key in changes:
        if key.lower() != ONLINE:
            raise OptionError(
                f"view {name}: the property {key} belongs to its plan; only {ONLINE} can be "
                "altered. CREATE OR REPLACE MATERIALIZED VIEW makes it by another plan"
            )


def declared(session: SparkSession, columns: tuple[Column, ...]) -> StructType:
    """Columns of CREATE TABLE as a schema: CHAR and VARCHAR as strings that know their length."""
    fields = []
    for one in columns:
        metadata = {} if one.comment is None else {"comment": one.comment}
        type_ = json.loads(one.type_json)
        fields.append(
            {"name": one.name, "type": type_, "nullable": one.nullable, "metadata": metadata}
        )
    text = json.dumps({"type": "struct", "fields": fields})
    with sql_errors(), active(session):
        utils = java(session, "org.apache.spark.sql.catalyst.util.CharVarcharUtils")
        found = utils.replaceCharVarcharWithStringInSchema(
            session._jsparkSession.parseDataType(text)
        )
    return schema_of(found)


def _without_nullability(schema: StructType) -> StructType:
    """Of AS SELECT: whether a column can be NULL is a matter of the query, not of the table."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema])


def definition_of(statement: CreateTable, schema: StructType) -> dict[str, Any]:
    """What the catalogue says of a table, but for where it is stored."""
    names = {name.lower(): name for name in schema.names}
    key = []
    for name in statement.key:
        if name.lower() not in names:
            raise unknown_column(name, schema.names, f"table {statement.name}: PRIMARY KEY")
        key.append(names[name.lower()])
    found: dict[str, Any] = {
        "kind": "table",
        "schema": schema.jsonValue(),
        "key": key,
        "defaults": {c.name: c.default for c in statement.columns if c.default is not None},
    }
    if statement.comment is not None:
        found["comment"] = statement.comment
    return found | with_properties(statement.name, statement.properties)


def with_properties(name: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """What the catalogue says of the properties of a table or a source."""
    found: dict[str, Any] = {"properties": dict(properties)} if properties else {}
    for key, value in properties.items():
        if key.lower() == APPEND_ONLY and is_true(name, value):
            found[APPEND_ONLY] = True
    return found


def is_true(name: str, value: str) -> bool:
    """What a table says of being append-only."""
    if value.lower() not in ("true", "false"):
        raise OptionError(f"table {name}: {APPEND_ONLY} is {value!r}; it is true or false")
    return value.lower() == "true"


def _with_appends(commit: Commit, id: str, written: Any) -> Commit:
    from dataclasses import replace

    appends: Mapping[str, Any] = {id: written}
    return replace(commit, appends=appends)
