"""Sources: data that others write, as relations of a project.

The rows of a source are kept in a collection of its own, each with a number that says which of its
files it is from. Looking at a source compares what is there (names and stamps of files, a log, a
shard's upper) with what was taken over: what is new is read, and what is gone is retracted. All of
that, and how far it was read, is one commit; a view over a source only sees changes of a
collection.

    definition ──▶ SourceTable      which files, which rows of them, which sign   source_tables
    look       ──▶ Found            what is new: files      source_lots, source_look
                                                 snapshots  source_snapshots
                                                 a shard    source_shard
                                                 a stream   source_stream
    take over  ──▶ parts, a commit  rows that are missing   source_missing
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import (
    CommitConflictError,
    DataError,
    RelationExistsError,
    SchemaError,
    StorageError,
)
from windrow.shard.append import write_dataframe
from windrow.shard.shard import Shard
from windrow.sources.definitions import Source
from windrow.sources.stream_columns import declared_columns
from windrow.sources.stream_shard import open_stream, taken_in
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.spark.settings import settings_of
from windrow.spark.statements import CreateTable, Files
from windrow.spark.tasks import WrittenFile
from windrow.storage.store import Store
from windrow.updates import update_schema
from windrow.views.history.commits import Commit
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.sources.files import SourceFiles, source_errors
from windrow.views.sources.found import BoundSource, Found, both
from windrow.views.sources.look import look_at_files
from windrow.views.sources.missing import (
    count_quarantined,
    has_quarantined,
    make_up,
    quarantined_rows,
)
from windrow.views.sources.numbers import FIRST, NUMBER
from windrow.views.sources.shard import look_at_shard
from windrow.views.sources.snapshots import look_at_snapshots
from windrow.views.sources.stream import look_at_stream
from windrow.views.sources.tables import (
    AT,
    Place,
    SourceTable,
    check_alike,
    from_json,
    places_of,
    to_json,
)
from windrow.views.storable import Storable, key_columns
from windrow.views.tables.retractions import give_up, retracted_row
from windrow.views.tables.tables import APPEND_ONLY, declared, definition_of
from windrow.views.tables.writing import ATTEMPTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PAUSE = 0.01  # seconds, before a source is looked at again; at first
_OWN = (NUMBER, AT)
_SHARDS = ("shard", "stream")  # tables that are not files


class Sources:
    """Creates sources, and takes over what is new in them."""

    def __init__(self, relations: Relations, history: History, store: Store) -> None:
        self._relations, self._history, self._root = relations, history, store
        self._storage_options = store.options_dict

    # Defining.

    def create(self, statement: CreateTable, files: Files) -> None:
        """CREATE TABLE ... USING ... LOCATION. Rows are read when they are needed first."""
        store = self._store(files.location)
        # An option of ours is a property: it is not for Spark, and can be unset.
        own = {k.lower(): v for k, v in files.options.items() if k.lower() == APPEND_ONLY}
        options = {k: v for k, v in files.options.items() if k.lower() not in own}
        statement = replace(statement, properties={**statement.properties, **own})
        self._define(statement, {"table": Place(files.format, store.uri, options)}, None)

    def define(self, name: str, definition: Source, append_only: bool = False) -> None:
        """A source from Python; that it is there already, and the same, is no error."""
        definition = taken_in(definition, self._root)
        places = places_of(name, definition, self._storage_options)
        found = self._relations.get(name)
        if found is not None and found.kind == "source":
            same = _same(found.definition, definition, places)
            if same and append_only == found.is_append_only:
                return
            raise RelationExistsError(
                f"source {found.name} is there, and reads other files or reads them otherwise; "
                "DROP it first, or choose another name"
            )
        properties = {APPEND_ONLY: "true"} if append_only else {}
        statement = CreateTable(f"source {name} (Python)", name, (), properties=properties)
        self._define(statement, places, definition)

    def _define(
        self, statement: CreateTable, places: Mapping[str, Place], source: Source | None
    ) -> None:
        for _ in range(ATTEMPTS):
            self._history.refresh()
            may = "source" if statement.if_not_exists else None
            if self._relations.refuse_taken(statement.name, but=may) is not None:
                return
            try:
                self._create(statement, places, source)
                return
            except CommitConflictError:
                continue  # another definition was first; perhaps of this very name
        raise CommitConflictError(
            f"source {statement.name}: other definitions were first {ATTEMPTS} times in a row; "
            "nothing was created. Run the statement again"
        )

    def _create(
        self, statement: CreateTable, places: Mapping[str, Place], source: Source | None
    ) -> None:
        name, what = statement.name, f"source {statement.name}"
        tables: dict[str, Any] = {}
        bound: list[SourceTable] = []
        for role, place in places.items():
            files = None if role in _SHARDS else self._files(name, place, source)
            if role == "stream":
                assert source is not None
                columns = self._stream_columns(source, place, bound)
            else:
                columns = self._columns(statement, place, files)
            bound.append(SourceTable(role, files, columns, source))
            tables[role] = {
                "format": place.format,
                "location": place.location,
                "options": dict(place.options),
                "files": {},
            }
            if place.pattern is not None:
                tables[role]["pattern"] = place.pattern
            if source is not None:
                tables[role]["columns"] = columns.jsonValue()
        schemas = [table.schema(self._relations.session) for table in bound]
        schema = schemas[0]
        for table, other in zip(bound[1:], schemas[1:], strict=True):
            check_alike(schema, other, table.what)
        storable = Storable.of(schema, what)
        for own in _OWN:
            if own in {column.lower() for column in schema.names}:
                raise SchemaError(f"{what}: the name {own} belongs to Windrow; rename it")
        at = self._history.next_time()
        columns = storable.arrow.append(pa.field(NUMBER, pa.int32()))
        if {"snapshots", "mutations"} <= set(tables):
            columns = columns.append(pa.field(AT, pa.int64()))
        key = key_columns(storable.stored) or [NUMBER]
        id = self._history.create_collection(columns, key)
        definition = {
            **definition_of(statement, schema),
            "kind": "source",
            "collection": id,
            "created": at,
            "tables": tables,
            "next": FIRST,
        }
        if source is not None:
            definition["source"] = to_json(source)
            definition["settings"] = settings_of(self._relations.session)
        commit = Commit(
            "define",
            at,
            created={id: {"retain": "history"}},
            catalogue={name: definition},
            note={"sql": statement.text.strip()},
        )
        try:
            self._history.commit(commit)
        except BaseException:
            self._history.discard(commit)
            raise

    def _columns(
        self, statement: CreateTable, place: Place, files: SourceFiles | None
    ) -> StructType:
        """The columns that a table has, as it is read."""
        if files is None:
            shard = Shard.open(place.location, storage_options=self._storage_options)
            return arrow_to_spark_schema(update_schema(shard.schema))
        if statement.columns:
            files.stamps()  # it has to be there
            return declared(self._relations.session, statement.columns)
        return files.schema(self._relations.session)

    def _stream_columns(
        self, source: Source, place: Place, others: Sequence[SourceTable]
    ) -> StructType:
        """Those of its shard; before it ever ran, of the table it continues, or as declared."""
        shard = open_stream(place.location, self._storage_options)
        if shard is not None:
            return arrow_to_spark_schema(shard.schema)
        if others:
            return others[0].columns
        session = self._relations.session
        return arrow_to_spark_schema(declared_columns(session, source))

    def _files(self, name: str, place: Place, source: Source | None) -> SourceFiles:
        return SourceFiles(
            name,
            place.format,
            self._store(place.location),
            place.options,
            place.pattern,
            None if source is None else source.partitions,
        )

    def _store(self, location: str) -> Store:
        return Store.at(location, self._storage_options)

    def bound(self, relation: Relation) -> BoundSource:
        """A source as it was defined, over what is stored of it."""
        from pyspark.sql.types import StructType

        definition, source = relation.definition, None
        if "source" in definition:
            locations = {role: one["location"] for role, one in definition["tables"].items()}
            source = from_json(definition["source"], locations)
        tables = {}
        for role, one in definition["tables"].items():
            place = Place(one["format"], one["location"], one["options"], one.get("pattern"))
            columns = relation.schema
            if "columns" in one:
                columns = StructType.fromJson(one["columns"])
            files = None if role in _SHARDS else self._files(relation.name, place, source)
            tables[role] = SourceTable(role, files, columns, source)
        collection = self._history.collection(relation.collection)
        return BoundSource(relation, tables, collection, self._relations.session_of(relation))

    # Looking.

    def ingest(self, names: Names[str] | None = None) -> None:
        """Take over what changed in sources: in all, or in those of these names."""
        for source in self._relations.known("source"):
            if names is None or source.name.lower() in names:
                self._ingest(source.name)

    def _ingest(self, name: str) -> None:
        for attempt in range(ATTEMPTS):
            source = self._relations.get(name)
            if source is None or source.kind != "source":
                return  # another process has dropped it
            bound = self.bound(source)
            found = self._look(bound)
            if found is None:
                return
            try:
                self._take_over(bound, found)
                return
            except CommitConflictError:
                time.sleep(_PAUSE * random.uniform(0.5, 1.5) * 2**attempt)
                self._history.refresh()
        raise CommitConflictError(
            f"source {name}: {ATTEMPTS} times in a row its files, or the project, changed while "
            "they were read; nothing was taken over. Try again when they are at rest"
        )

    def _look(self, bound: BoundSource) -> Found | None:
        if "shard" in bound.tables:
            return look_at_shard(bound, self._storage_options)
        if "snapshots" in bound.tables:
            return look_at_snapshots(bound)
        if "stream" not in bound.tables:
            return look_at_files(bound)
        stream = look_at_stream(bound, self._storage_options)
        files = look_at_files(bound) if len(bound.tables) > 1 else None
        return stream if files is None else files if stream is None else both(files, stream)

    def _take_over(self, bound: BoundSource, found: Found) -> None:
        """Write what changed, and commit it with how far it was read."""
        version, at = self._history.version, self._history.next_time()
        source, id = bound.relation, bound.relation.collection
        definition = {
            **source.definition,
            **found.state,
            "tables": {**source.definition["tables"], **found.state["tables"]},
        }
        parts: list[WrittenFile] = []
        note = {"source": source.name, **found.note}
        try:
            with found.held(), source_errors(bound.what):
                frame = found.updates()
                if frame is not None:
                    parts += write_dataframe(frame, bound.collection.writer(at), None).parts
                if found.retracts:
                    parts += make_up(bound, parts, at)
                    if has_quarantined(bound, parts):
                        definition["quarantined"] = count_quarantined(bound, parts)
                        note["quarantined"] = definition["quarantined"]
            commit = Commit(
                "write", at, appends={id: parts}, catalogue={source.name: definition}, note=note
            )
            if found.moved():
                raise _moving(bound, None)
            if source.is_append_only and found.gone and parts:
                _refuse_retractions(bound, found, parts)
            self._history.commit(commit, expected=version, reads=[id])
        except StorageError as error:
            self._discard(source, parts, at)
            if found.moved():
                raise _moving(bound, error) from error
            raise
        except BaseException:
            self._discard(source, parts, at)
            raise

    def _discard(self, source: Relation, parts: list[Any], at: int) -> None:
        self._history.discard(Commit("write", at, appends={source.collection: parts}))

    # What was left out.

    def quarantined(self) -> int:
        """How many changes of all sources are in quarantine."""
        sources = self._relations.known("source")
        return sum(int(one.definition.get("quarantined", 0)) for one in sources)

    def quarantine(self, name: str) -> DataFrame:
        """The changes of a source that are left out, each with the reason and how often."""
        return quarantined_rows(self.bound(self._relations.find(name, "source")))


def _same(stored: Mapping[str, Any], source: Source, places: Mapping[str, Place]) -> bool:
    """Whether a source in the catalogue is what a definition says."""
    found = {
        role: Place(one["format"], one["location"], one["options"], one.get("pattern"))
        for role, one in stored["tables"].items()
    }
    if "source" not in stored:  # of CREATE TABLE
        return found == dict(places) and set(to_json(source)) <= {"type", "name", "time"}
    return found == dict(places) and dict(stored["source"]) == to_json(source)


def _refuse_retractions(bound: BoundSource, found: Found, parts: Sequence[WrittenFile]) -> None:
    """Raise DataError if a row is gone. Files may grow, be written again, or merged."""
    source = bound.relation
    row = retracted_row(bound.session, source, bound.collection, parts, bound.names)
    if row is None:
        return
    shown = ", ".join(found.gone[:5]) + (", ..." if len(found.gone) > 5 else "")
    raise DataError(
        f"{bound.what} is append-only, and a row is gone that was in {shown}: {row!r:.300}; "
        f"nothing was taken over. Restore what was there. {give_up(source)}"
    )


def _moving(bound: BoundSource, error: Exception | None) -> CommitConflictError:
    reason = "" if error is None else f" ({error})"
    return CommitConflictError(f"{bound.what}: it changed while it was read{reason}")
