"""The shard's log: a Delta table's transaction log, committed with delta-rs.

What rests where: parts are add actions; `upper` and `since` are application transactions; key
and order are table properties; the bounds and token of each append are commit metadata.

Every commit is a compare-and-swap on the table's version. A writer that loses refreshes, checks
again that what it wants still makes sense, and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from windrow.errors import (
    CommitConflictError,
    ShardExistsError,
    ShardNotFoundError,
    StorageError,
    UpperMismatchError,
)
from windrow.shard.part import Part, parts_from_log
from windrow.shard.spec import FORMAT_VERSION, ShardSpec
from windrow.spark.tasks import WrittenFile
from windrow.storage.delta import create_table, hides_ntz
from windrow.storage.store import Store

UPPER = "windrow.upper"
SINCE = "windrow.since"
MARK = "windrow.mark"  # marks of appends, each an application transaction of its own
_ATTEMPTS = 100


class Log:
    """One handle on the log. Not for use by several threads at once."""

    def __init__(self, store: Store, table: DeltaTable, spec: ShardSpec) -> None:
        self.store = store
        self.spec = spec
        self._table = table
        self._schema = table.schema()
        self._parts: tuple[int, list[Part]] | None = None

    @staticmethod
    def create(store: Store, spec: ShardSpec, properties: Mapping[str, str]) -> Log:
        frontiers = [Transaction(UPPER, 0), Transaction(SINCE, 0)]
        configuration = {**spec.to_properties(), **properties}
        if hides_ntz(spec.stored_schema):
            return Log._create(store, spec, configuration, frontiers)
        try:
            table = DeltaTable.create(
                store.uri,
                spec.stored_schema,
                mode="error",
                name="windrow shard",
                configuration=configuration,
                storage_options=store.options_dict,
                commit_properties=CommitProperties(
                    max_commit_retries=0, app_transactions=frontiers
                ),
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            # Without retries a commit fails if another creator was first. With them, it would be
            # made on top of the other's, and move the frontiers back to 0.
            lost = isinstance(error, CommitFailedError)
            if lost or "already exists" in str(error).lower():
                raise ShardExistsError(
                    f"{store.uri}: there is a table already; open it, or choose another URI"
                ) from error
            raise StorageError(f"{store.uri}: cannot create the shard: {error}") from error
        return Log(store, table, spec)

    @staticmethod
    def _create(
        store: Store,
        spec: ShardSpec,
        configuration: Mapping[str, str],
        frontiers: Sequence[Transaction],
    ) -> Log:
        """Create a shard that delta-rs cannot create."""
        name = "windrow shard"
        try:
            create_table(
                store,
                spec.stored_schema,
                name=name,
                configuration=configuration,
                transactions=frontiers,
            )
        except FileExistsError as error:
            raise ShardExistsError(
                f"{store.uri}: there is a table already; open it, or choose another URI"
            ) from error
        except OSError as error:
            raise StorageError(f"{store.uri}: cannot create the shard: {error}") from error
        return Log.open(store)

    @staticmethod
    def open(store: Store) -> Log:
        try:
            table = DeltaTable(store.uri, storage_options=store.options_dict)
        except TableNotFoundError as error:
            raise ShardNotFoundError(
                f"{store.uri}: there is no shard; create one with Shard.create(...)"
            ) from error
        except (DeltaError, OSError) as error:
            raise StorageError(f"{store.uri}: cannot open the shard: {error}") from error
        properties = table.metadata().configuration
        if "windrow.format" not in properties:
            raise ShardNotFoundError(
                f"{store.uri}: this Delta table is not a shard; create a shard at another URI "
                "and append the table's rows to it"
            )
        if int(properties["windrow.format"]) > FORMAT_VERSION:
            raise StorageError(
                f"{store.uri}: written in format {properties['windrow.format']}, this release "
                f"reads up to {FORMAT_VERSION}; upgrade windrow"
            )
        schema = pa.schema(table.schema().to_arrow())
        return Log(store, table, ShardSpec.from_properties(schema, properties))

    @property
    def id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def upper(self) -> int:
        return int(self._table.transaction_version(UPPER) or 0)

    @property
    def since(self) -> int:
        return int(self._table.transaction_version(SINCE) or 0)

    def marked(self, mark: str) -> int | None:
        """The `upper` of the append that carried `mark`."""
        found = self._table.transaction_version(f"{MARK}.{mark}")
        return None if found is None else int(found)

    def refresh(self) -> None:
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise StorageError(f"{self.store.uri}: cannot read the log: {error}") from error

    def parts(self) -> list[Part]:
        """All parts of this version of the shard."""
        if self._parts is None or self._parts[0] != self.version:
            stream = self._table.get_add_actions(flatten=False)
            actions = pa.RecordBatchReader.from_stream(stream).read_all()
            self._parts = (self.version, list(parts_from_log(actions, self.spec)))
        return self._parts[1]

    def append(
        self,
        parts: Sequence[WrittenFile],
        lower: int,
        upper: int,
        token: str,
        mark: str | None = None,
    ) -> bool:
        """Add `parts` and move `upper`, if it is at `lower`. False if this very append is there."""
        frontiers = [Transaction(UPPER, upper)]
        if mark is not None:
            frontiers.append(Transaction(f"{MARK}.{mark}", upper))

        def check() -> bool:
            if self.upper == lower:
                return True
            if self.has_append(lower, upper, token):
                return False
            raise self.mismatch(lower, upper)

        return self._commit(
            check,
            lambda: _adds(parts, data_change=True),
            frontiers,
            {"windrow": {"lower": lower, "upper": upper, "token": token}},
        )

    def mismatch(self, lower: int, upper: int) -> UpperMismatchError:
        return UpperMismatchError(
            f"{self.store.uri}: cannot append [{lower}, {upper}): the shard's upper is "
            f"{self.upper}, another writer was first. Nothing was appended; refresh, and append "
            f"from {self.upper} what is not there yet",
            upper=self.upper,
        )

    def has_append(self, lower: int, upper: int, token: str) -> bool:
        """Whether the append of exactly this content to [lower, upper) is in the history."""
        if self.upper < upper:
            return False
        seen, limit = 0, 4
        while True:
            history = self._table.history(limit)
            for commit in history[seen:]:
                note = commit.get("windrow")
                if note and "lower" in note:
                    if (note["lower"], note["upper"]) == (lower, upper):
                        return bool(note["token"] == token)
                    if note["upper"] <= lower:
                        return False
            if len(history) < limit:
                return False
            seen, limit = len(history), limit * 8

    def move_since(self, since: int) -> bool:
        """Move `since` forward; False if it is there or beyond already."""
        return self._commit(lambda: self.since < since, list, [Transaction(SINCE, since)], {})

    def replace(self, removed: Sequence[Part], parts: Sequence[WrittenFile]) -> bool:
        """Swap parts for others that hold the same history. False if one is gone already."""
        paths = {part.path for part in removed}
        now = int(time.time() * 1000)

        def actions() -> list[Any]:
            removes = [
                RemoveAction(part.path, False, now, size=part.bytes, partition_values={})
                for part in removed
            ]
            return [*removes, *_adds(parts, data_change=False)]

        return self._commit(
            lambda: paths <= {part.path for part in self.parts()},
            actions,
            [],
            {"windrow": {"compacted": len(removed)}},
        )

    def _commit(
        self,
        check: Callable[[], bool],
        actions: Callable[[], list[Any]],
        frontiers: list[Any],
        note: dict[str, Any],
    ) -> bool:
        for attempt in range(_ATTEMPTS):
            if attempt or self._is_stale(check):
                self.refresh()
                if not check():
                    return False
            try:
                self._table.create_write_transaction(
                    actions(),
                    "append",
                    self._schema,
                    commit_properties=CommitProperties(
                        custom_metadata=note, max_commit_retries=0, app_transactions=frontiers
                    ),
                )
            except CommitFailedError:
                # Another writer took this version. Back off a little, more each time.
                time.sleep(min(0.2, 0.001 * attempt))
                continue
            except (DeltaError, OSError) as error:
                raise StorageError(f"{self.store.uri}: the commit failed: {error}") from error
            self.refresh()
            return True
        raise CommitConflictError(
            f"{self.store.uri}: {_ATTEMPTS} attempts to commit lost to other writers; nothing was "
            "changed. Try again, or let fewer processes write to this shard"
        )

    def _is_stale(self, check: Callable[[], bool]) -> bool:
        """Whether what this handle knows stands in the way of the commit; it may be outdated."""
        try:
            return not check()
        except UpperMismatchError:
            return True

    def vacuum(self, retention_hours: int) -> list[str]:
        self.refresh()  # a part that this handle does not know yet would pass for an orphan
        try:
            removed: list[str] = self._table.vacuum(
                retention_hours=retention_hours,
                enforce_retention_duration=False,
                dry_run=False,
                full=True,
            )
        except (DeltaError, OSError) as error:
            raise StorageError(
                f"{self.store.uri}: vacuum stopped: {error}. What it deleted nobody needed; run "
                "it again for the rest"
            ) from error
        self.refresh()
        return removed


def _adds(parts: Sequence[WrittenFile], data_change: bool) -> list[Any]:
    now = int(time.time() * 1000)
    return [
        AddAction(part.path, part.bytes, {}, now, data_change, part.statistics) for part in parts
    ]
