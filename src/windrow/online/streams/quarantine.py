"""The quarantine of a stream: messages that became no row, with the reason and where they are.

A Delta table, `quarantine/streams/NAME` beneath the root. Files of a micro-batch are committed with
its number, before its rows are: one that is repeated adds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from windrow.features.strategies.slices import write_file
from windrow.online.streams.messages import QUARANTINE
from windrow.spark.tasks import WrittenFile
from windrow.storage.delta import open_table
from windrow.storage.failures import failure
from windrow.storage.store import Store
from windrow.time import now_millis


@dataclass(frozen=True)
class Quarantine:
    """Of one stream. Picklable: tasks write its files."""

    store: Store

    @staticmethod
    def of(root: Store, name: str) -> Quarantine:
        return Quarantine(root.beneath(f"quarantine/streams/{name}"))

    def write(self, bad: pa.Table) -> WrittenFile:
        """In a task: a file of messages, which no log names yet."""
        at = pa.array([now_millis() * 1000] * bad.num_rows, QUARANTINE.field("at").type)
        return write_file(self.store, bad.append_column("at", at).cast(QUARANTINE), "messages")

    def commit(self, files: Sequence[WrittenFile], stream: str, batch: int) -> bool:
        """Make files part of the table; False, without a trace, if the micro-batch is there."""
        paths = [file.path for file in files]
        try:
            table = open_table(self.store) or self._create()
            done = table.transaction_version(stream)
            if done is not None and done >= batch:
                self.store.discard(paths)
                return False
            now = int(time.time() * 1000)
            table.create_write_transaction(
                [AddAction(f.path, f.bytes, {}, now, True, f.statistics) for f in files],
                "append",
                Schema.from_arrow(QUARANTINE),
                commit_properties=CommitProperties(app_transactions=[Transaction(stream, batch)]),
            )
        except Exception as error:  # delta-rs raises a class of its own for each of its parts
            raise failure(self.store.uri, "messages could not be set aside", error) from error
        return True

    def _create(self) -> DeltaTable:
        return DeltaTable.create(
            self.store.delta_uri,
            Schema.from_arrow(QUARANTINE),
            mode="ignore",
            storage_options=self.store.options_dict,
        )
