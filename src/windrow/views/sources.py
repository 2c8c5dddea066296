"""Sources: files that others write, as relations of a project.

The rows of a source are kept in a collection of its own, each with the number of its file. Looking
at a source compares the files that are there with those that were read: new ones are read, the
rows of those that are gone are retracted, and a file that was rewritten is both. All of that, and
the list of the files, is one commit; a view over a source only sees changes of a collection.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import (
    CommitConflictError,
    DataError,
    RelationExistsError,
    SchemaError,
    StorageError,
    UnsupportedSQL,
)
from windrow.shard.append import write_dataframe
from windrow.shard.predicate import col
from windrow.sources.definitions import EventSource, Source
from windrow.sources.tables import format_of, is_path
from windrow.spark.schemas import quoted
from windrow.spark.statements import CreateTable, Files
from windrow.spark.tasks import WrittenFile
from windrow.storage.store import Store
from windrow.updates import DIFF
from windrow.views.collections import Collection
from windrow.views.commits import Commit
from windrow.views.history import History
from windrow.views.names import Relation
from windrow.views.relations import Relations
from windrow.views.retractions import give_up, retracted_row
from windrow.views.source_files import NUMBER, SourceFiles
from windrow.views.storable import Storable, key_columns
from windrow.views.tables import APPEND_ONLY, declared, definition_of
from windrow.views.writing import ATTEMPTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PAUSE = 0.01  # seconds, before files are looked at again; at first
_NOT_YET = ("select", "where", "known", "start_partition", "end_partition")


@dataclass(frozen=True)
class FileChanges:
    """What became of the files of a source: those to read, and numbers of those that are gone.

    `files` is the list afterwards, the number and the stamp of each; `next` is the next number.
    """

    read: Mapping[str, int]
    gone: tuple[int, ...]
    files: Mapping[str, tuple[int, str]]
    next: int

    @staticmethod
    def between(known: Mapping[str, Any], found: Mapping[str, str], next: int) -> FileChanges:
        """From the list of the last commit to the stamps of now. A rewritten file is both.

        >>> found = FileChanges.between({"a": [0, "1"], "b": [1, "1"]}, {"b": "2", "c": "1"}, 2)
        >>> found.read, found.gone, found.next
        ({'b': 1, 'c': 2}, (0, 1), 3)
        """
        files: dict[str, tuple[int, str]] = {}
        read: dict[str, int] = {}
        for name, stamp in found.items():
            if name in known:
                number = int(known[name][0])
            else:
                number, next = next, next + 1
            files[name] = number, stamp
            if name not in known or known[name][1] != stamp:
                read[name] = number
        gone = [int(n) for name, (n, _) in known.items() if name not in found or name in read]
        return FileChanges(read, tuple(sorted(gone)), files, next)

    def __bool__(self) -> bool:
        return bool(self.read or self.gone)


class Sources:
    """Creates sources, and takes over what is new in their files."""

    def __init__(self, relations: Relations, history: History, store: Store) -> None:
        self._relations, self._history = relations, history
        self._storage_options = store.options_dict

    # Defining.

    def create(self, statement: CreateTable, files: Files) -> None:
        """CREATE TABLE ... USING ... LOCATION. Rows are read when they are needed first."""
        for _ in range(ATTEMPTS):
            self._history.refresh()
            may = "source" if statement.if_not_exists else None
            if self._relations.refuse_taken(statement.name, but=may) is not None:
                return
            try:
                self._create(statement, files)
                return
            except CommitConflictError:
                continue  # another definition was first; perhaps of this very name
        raise CommitConflictError(
            f"source {statement.name}: other definitions were first {ATTEMPTS} times in a row; "
            "nothing was created. Run the statement again"
        )

    def define(self, name: str, definition: Source, append_only: bool = False) -> None:
        """A source from Python; that it is there already, and the same, is no error."""
        files = self._files_of(name, definition)
        found = self._relations.get(name)
        if found is not None and found.kind == "source":
            stored = found.definition
            given = (files.format, self._store(files.location).uri, dict(files.options))
            same = given == (stored["format"], stored["location"], dict(stored["options"]))
            if same and append_only == found.is_append_only:
                return
            raise RelationExistsError(
                f"source {found.name} is there, and reads other files or reads them otherwise; "
                "DROP it first, or choose another name"
            )
        text = f"source {name} (Python)"
        properties = {APPEND_ONLY: "true"} if append_only else {}
        self.create(CreateTable(text, name, (), properties=properties, files=files), files)

    def _files_of(self, name: str, definition: Source) -> Files:
        what = f"source {name}"
        if not isinstance(definition, EventSource):
            raise UnsupportedSQL(
                f"{what}: {type(definition).__name__} cannot be a relation; use an EventSource of "
                "files, or a table to which changes are applied"
            )
        for field in _NOT_YET:
            if getattr(definition, field) is not None:
                raise UnsupportedSQL(
                    f"{what}: {field}= is not supported here; leave it out, and write it as a "
                    "query of a materialized view"
                )
        table = definition.table
        if not isinstance(table, str | os.PathLike) or not is_path(os.fspath(table)):
            raise UnsupportedSQL(
                f"{what}: its table is not the path of files; queries read tables and views of "
                "Spark by their names, and a materialized view reads files"
            )
        path = os.fspath(table)
        format = format_of(self._store(path), path)
        if format is None:
            raise StorageError(
                f"{what}: {path!r} holds no Parquet, Delta, CSV or JSON files; check the path"
            )
        options = {"header": "true", "inferSchema": "true"} if format == "csv" else {}
        return Files(format, path, options)

    def _create(self, statement: CreateTable, given: Files) -> None:
        name, session = statement.name, self._relations.session
        # An option of ours is a property: it is not for Spark, and can be unset.
        own = {k.lower(): v for k, v in given.options.items() if k.lower() == APPEND_ONLY}
        options = {k: v for k, v in given.options.items() if k.lower() not in own}
        given = replace(given, options=options)
        statement = replace(statement, properties={**statement.properties, **own})
        files = SourceFiles(name, given.format, self._store(given.location), given.options)
        if statement.columns:
            files.stamps()  # it has to be there
            schema = declared(session, statement.columns)
        else:
            schema = files.schema(session)
        storable = Storable.of(schema, files.what)
        if NUMBER in {column.lower() for column in schema.names}:
            raise SchemaError(f"{files.what}: the name {NUMBER} belongs to Windrow; rename it")
        at = self._history.next_time()
        columns = storable.arrow.append(pa.field(NUMBER, pa.int32()))
        key = key_columns(storable.stored) or [NUMBER]
        id = self._history.create_collection(columns, key)
        definition = {
            **definition_of(statement, schema),
            "kind": "source",
            "collection": id,
            "created": at,
            "format": given.format,
            "location": files.store.uri,
            "options": dict(given.options),
            "files": {},
            "next": 0,
        }
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

    def _store(self, location: str) -> Store:
        return Store.at(location, self._storage_options)

    # Looking.

    def ingest(self, names: Names[str] | None = None) -> None:
        """Take over what changed in the files of sources: of all, or of those of these names."""
        for source in self._relations.known("source"):
            if names is None or source.name.lower() in names:
                self._ingest(source.name)

    def _ingest(self, name: str) -> None:
        for attempt in range(ATTEMPTS):
            source = self._relations.get(name)
            if source is None or source.kind != "source":
                return  # another process has dropped it
            definition = source.definition
            files = SourceFiles(
                source.name,
                str(definition["format"]),
                self._store(str(definition["location"])),
                definition["options"],
            )
            found = files.stamps()
            changes = FileChanges.between(definition["files"], found, int(definition["next"]))
            if not changes:
                return
            try:
                self._take_over(source, files, found, changes)
                return
            except CommitConflictError:
                time.sleep(_PAUSE * random.uniform(0.5, 1.5) * 2**attempt)
                self._history.refresh()
        raise CommitConflictError(
            f"source {name}: {ATTEMPTS} times in a row its files, or the project, changed while "
            "they were read; nothing was taken over. Try again when they are at rest"
        )

    def _take_over(
        self,
        source: Relation,
        files: SourceFiles,
        found: Mapping[str, str],
        changes: FileChanges,
    ) -> None:
        """Write what changed, and commit it with the new list of files."""
        version, at = self._history.version, self._history.next_time()
        id = source.collection
        definition = {
            **source.definition,
            "files": {name: list(one) for name, one in changes.files.items()},
            "next": changes.next,
        }
        try:
            with files.errors():
                frame = self._updates(source, files, changes)
                writer = self._history.collection(id).writer(at)
                written = write_dataframe(frame, writer, None).parts
        except StorageError as error:
            if files.stamps() != found:
                raise _moving(files, error) from error
            raise
        commit = Commit(
            "write",
            at,
            appends={id: written},
            catalogue={source.name: definition},
            note={"source": source.name, "read": len(changes.read), "gone": len(changes.gone)},
        )
        try:
            now = files.stamps()
            if any(now.get(name) != found[name] for name in changes.read):
                raise _moving(files, None)
            if source.is_append_only and changes.gone and written:
                self._refuse_retractions(source, files, changes, written)
            self._history.commit(commit, expected=version, reads=[id])
        except BaseException:
            self._history.discard(commit)
            raise

    def _refuse_retractions(
        self,
        source: Relation,
        files: SourceFiles,
        changes: FileChanges,
        written: Sequence[WrittenFile],
    ) -> None:
        """Raise DataError if a row is gone. Files may grow, be written again, or merged."""
        collection = self._history.collection(source.collection)
        names = source.schema.names
        row = retracted_row(self._relations.session, source, collection, written, names)
        if row is None:
            return
        numbers = {int(number): name for name, (number, _) in source.definition["files"].items()}
        gone = [numbers[number] or files.store.uri for number in changes.gone]
        shown = ", ".join(gone[:5]) + (", ..." if len(gone) > 5 else "")
        raise DataError(
            f"{files.what} is append-only, and a row is gone that was in {shown}: {row!r:.300}; "
            f"nothing was taken over. Restore what was there. {give_up(source)}"
        )

    def _updates(self, source: Relation, files: SourceFiles, changes: FileChanges) -> DataFrame:
        """Rows of files that are new, and retractions of those of files that are gone."""
        from pyspark.sql import functions as F  # noqa: N812

        session, storable = self._relations.session, source.storable
        names = [*source.schema.names, NUMBER]
        found: list[DataFrame] = []
        if changes.read:
            rows = files.rows(session, source.schema, changes.read)
            stored = storable.to_stored(rows, NUMBER)
            columns = [F.col(quoted(name)) for name in names]
            found.append(stored.select(*columns, F.lit(1).cast("long").alias(DIFF)))
        if changes.gone:
            gone = _rows_of(self._history.collection(source.collection), changes.gone)
            columns = [F.col(quoted(name)) for name in names]
            updates = gone.dataframe(session)
            found.append(updates.select(*columns, (-F.col(DIFF)).alias(DIFF)))
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])


def _rows_of(collection: Collection, numbers: tuple[int, ...]) -> Any:
    return collection.snapshot(where=col(NUMBER).is_in(numbers))


def _moving(files: SourceFiles, error: Exception | None) -> CommitConflictError:
    reason = "" if error is None else f" ({error})"
    return CommitConflictError(f"{files.what}: its files changed while they were read{reason}")
