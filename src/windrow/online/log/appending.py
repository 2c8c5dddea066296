"""Appending to a Delta table, by several writers at once, each row once.

A file is written first, then a commit names it. If nobody can tell whether a commit succeeded, the
table is looked at before it is tried again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from windrow.storage.delta import create_table, hides_ntz, is_failure, open_table
from windrow.storage.encoding import encoding
from windrow.storage.failures import failure
from windrow.storage.names import new_id
from windrow.storage.store import Store

_TRIES = 5  # of a commit that another one gets in the way of


@dataclass
class Appender:
    """One table, and the files of it that wait for a commit. What fails is a StorageError."""

    store: Store
    schema: pa.Schema
    waiting: dict[str, AddAction] = field(default_factory=dict)
    unsure: bool = False  # a commit was begun, and nobody knows how it ended

    def write(self, rows: pa.Table) -> int:
        """Write a file, for the next commit; the store's time of it, in milliseconds."""
        name, sink = f"{new_id()}.parquet", pa.BufferOutputStream()
        pq.write_table(rows, sink, **encoding(rows))
        data = sink.getvalue()
        self.store.write(name, [data])
        modified = self.store.modified(name)
        counted = f'{{"numRecords":{rows.num_rows}}}'
        self.waiting[name] = AddAction(name, data.size, {}, modified, True, counted)
        return modified

    def commit(self) -> None:
        """Commit the files that wait."""
        if not self.waiting:
            return
        for left in reversed(range(_TRIES)):
            try:
                self._commit()
                break
            except BaseException as error:
                if isinstance(error, CommitFailedError) and left:
                    continue  # another writer created the table meanwhile
                if not is_failure(error):
                    raise
                raise failure(self.store.uri, "the commit failed", error) from error
        self.waiting.clear()
        self.unsure = False

    def _commit(self) -> None:
        table = self._table()
        there = {uri.rpartition("/")[2] for uri in table.file_uris()} if self.unsure else set()
        actions: list[AddAction | RemoveAction] = [
            one for name, one in self.waiting.items() if name not in there
        ]
        self.unsure = True
        if actions:
            table.create_write_transaction(actions, "append", Schema.from_arrow(self.schema))

    def _table(self) -> DeltaTable:
        table = open_table(self.store)
        if table is None:
            if hides_ntz(self.schema):
                with contextlib.suppress(FileExistsError):  # another writer was first
                    create_table(self.store, self.schema)
            else:
                DeltaTable.create(
                    self.store.delta_uri,
                    Schema.from_arrow(self.schema),
                    mode="ignore",
                    storage_options=self.store.options_dict,
                )
            table = open_table(self.store)
        assert table is not None
        return table
