"""Appending to a Delta table, by several writers at once, each row once.

A file is written first, then a commit names it. If nobody can tell whether a commit succeeded, the
table tells the number of the last one that did, before it is tried again. (Its files would not
tell: others may have merged them since.)
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
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
    name: str = field(default_factory=new_id)  # of the appender
    number: int = 0  # of the last commit that was begun
    unsure: tuple[str, ...] = ()  # its files, if nobody knows how it ended

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
        self.unsure = ()

    def _commit(self) -> None:
        table = self._table()
        if self.unsure and table.transaction_version(self.name) == self.number:
            for name in self.unsure:
                del self.waiting[name]
        self.unsure = ()
        if not self.waiting:
            return
        self.number += 1
        self.unsure = tuple(self.waiting)
        actions: list[AddAction | RemoveAction] = list(self.waiting.values())
        done = CommitProperties(app_transactions=[Transaction(self.name, self.number)])
        schema = Schema.from_arrow(self.schema)
        table.create_write_transaction(actions, "append", schema, commit_properties=done)

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
