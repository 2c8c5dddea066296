"""One statement, one batch: updates are written by Spark's tasks and committed once.

A statement reads the project as it is at one version, and is committed only if nothing that it
read has changed since; otherwise it is run again on what is there now. If it fails, what it wrote
is deleted, and nobody has seen it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import CommitConflictError, RelationNotFoundError
from windrow.shard.append import write_dataframe
from windrow.spark.sql_errors import sql_errors
from windrow.spark.tasks import WrittenFile
from windrow.updates import DIFF
from windrow.views.history.collections import Collection
from windrow.views.history.commits import Commit
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.tables.retractions import check_retractions, refuse_retractions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTEMPTS = 10
NOTE = 500  # characters of a statement that the history shows


@dataclass(frozen=True)
class Updates:
    """What a statement does to its table.

    `frame` has the table's columns as queries see them, and `_diff`; `rows` are insertions as they
    are stored, a few that are here already. `reads` names the relations that were read.
    """

    frame: DataFrame | None = None
    rows: pa.Table | None = None
    reads: frozenset[str] = frozenset()
    checked: bool = False  # rows may be retracted that are not there, which is an error
    only_grows: bool = False  # nothing is retracted at all


@dataclass(frozen=True)
class Writing:
    """Writes to the tables of a project."""

    relations: Relations
    history: History
    pause: float = field(default=0.01)  # seconds, before a statement is run again; at first

    def run(self, name: str, make: Callable[[Relation], Updates], note: str) -> int:
        """Write and commit the updates that `make` gives for a table; the time of the commit."""
        for attempt in range(ATTEMPTS):
            self.history.refresh()
            table = self.relations.find(name)
            if table.kind != "table":
                where = "the files that it is read from"
                raise RelationNotFoundError(
                    f"{table.name!r} is a {table.kind}, and only tables can be changed; change "
                    f"{where if table.kind == 'source' else 'what it is computed from'}"
                )
            try:
                return self._attempt(table, make(table), note)
            except CommitConflictError:
                time.sleep(self.pause * random.uniform(0.5, 1.5) * 2**attempt)
        raise CommitConflictError(
            f"table {name}: other statements were first {ATTEMPTS} times in a row, and changed "
            "what this one reads or came later than its time; nothing was written. Run it again"
        )

    def _attempt(self, table: Relation, updates: Updates, note: str) -> int:
        version, at = self.history.version, self.history.next_time()
        collection = self.history.collection(table.collection)
        written = write(table, collection, updates, at)
        if not written:
            return self.history.time  # nothing changes
        commit = Commit(
            "write", at, appends={table.collection: written}, note={"sql": note.strip()}
        )
        try:
            if table.is_append_only and not updates.only_grows:
                refuse_retractions(self.relations.session, table, collection, written)
            if updates.checked:
                check_retractions(self.relations.session, table, collection, written)
            reads = {*updates.reads, table.name} if updates.checked else updates.reads
            self.history.commit(commit, expected=version, reads=self.collections(reads))
        except BaseException:
            self.history.discard(commit)
            raise
        return at

    def collections(self, names: Iterable[str]) -> set[str]:
        """The collections behind relations; of a view, also those of its tables."""
        found: set[str] = set()
        for name in names:
            relation = self.relations.get(name)
            if relation is None:
                continue
            found.add(relation.collection)
            if relation.kind == "view":
                found |= self.collections(self.relations.tables_of(relation.name))
        return found


def write(table: Relation, collection: Collection, updates: Updates, at: int) -> list[WrittenFile]:
    """Write updates as parts of a collection's next batch, at the time `at`."""
    writer = collection.writer(at)
    parts: list[WrittenFile] = []
    if updates.frame is not None:
        with sql_errors():
            frame = table.storable.to_stored(updates.frame, DIFF)
            parts += write_dataframe(frame, writer, None).parts
    if updates.rows is not None and updates.rows.num_rows:
        try:
            parts += writer.write(updates.rows.to_batches()).parts
        except BaseException:
            collection.store.discard([part.path for part in parts])
            raise
    return parts
