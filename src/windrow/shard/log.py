"""The shard's log: a Delta table's transaction log, committed with delta-rs.

What is stored where: parts are add actions; `upper` and `since` are application transactions; key
and order are table properties; the bounds and token of each append are commit metadata.

Every commit is a compare-and-swap on the table's version. A writer that loses refreshes, checks
again that what it wants still makes sense, and tries again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from windrow.errors import (
    CommitConflictError,
    ShardExistsError,
    ShardNotFoundError,
    ShardRetiredError,
    StorageError,
    UpperMismatchError,
    WindrowError,
)
from windrow.shard.actions import parts_from_log
from windrow.shard.chain import LOG_FOLDER, Chain, entry_name
from windrow.shard.part import Part
from windrow.shard.spec import FORMAT_VERSION, ShardSpec
from windrow.spark.tasks import WrittenFile
from windrow.storage.delta import create_table, hides_ntz, is_failure
from windrow.storage.failures import failure
from windrow.storage.store import Store

UPPER = "windrow.upper"
SINCE = "windrow.since"
GOAL = "windrow.goal"  # where `since` is about to move; see `holds`
MARK = "windrow.mark"  # marks of appends, each an application transaction of its own
LATEST = 2**62  # times lie below
_ATTEMPTS = 100
_CHECKPOINT_INTERVAL = 100  # of delta-rs


class Log:
    """One handle on the log. Not for use by several threads at once."""

    def __init__(
        self, store: Store, table: DeltaTable, spec: ShardSpec, chain: Chain | None = None
    ) -> None:
        self.store = store
        self.spec = spec
        self._table = table
        self.pinned = False  # stays at the version it knows, whatever others commit
        self._schema = table.schema()
        self._parts: tuple[int, list[Part]] | None = None
        self._transactions: tuple[int, dict[str, int | None]] = (-1, {})  # of one version
        self._chain = Chain(store) if chain is None else chain
        interval = table.metadata().configuration.get("delta.checkpointInterval")
        self._interval = int(interval or _CHECKPOINT_INTERVAL)
        self._check_chain()

    @staticmethod
    def create(store: Store, spec: ShardSpec, properties: Mapping[str, str]) -> Log:
        frontiers = [Transaction(UPPER, 0), Transaction(SINCE, 0)]
        configuration = {**spec.to_properties(), **properties}
        uri = store.delta_uri
        if hides_ntz(spec.stored_schema):
            return Log._create(store, spec, configuration, frontiers)
        try:
            table = DeltaTable.create(
                uri,
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
            raise failure(store.uri, "cannot create the shard", error) from error
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
            raise failure(store.uri, "cannot create the shard", error) from error
        return Log.open(store)

    @staticmethod
    def open(store: Store) -> Log:
        chain = Chain(store)
        try:
            chain.check_checkpoint()
            table = DeltaTable(store.delta_uri, storage_options=store.options_dict)
            chain.check(int(table.version()))  # before anything is believed
        except WindrowError:
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            chain.check_all()  # it knows which file is to blame, if it is one of the log's
            if isinstance(error, TableNotFoundError):
                raise ShardNotFoundError(
                    f"{store.uri}: there is no shard; create one with Shard.create(...)"
                ) from error
            raise failure(store.uri, "cannot open the shard", error) from error
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
        return Log(store, table, ShardSpec.from_properties(schema, properties), chain)

    @property
    def id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def upper(self) -> int:
        return self._transaction(UPPER) or 0

    @property
    def since(self) -> int:
        return self._transaction(SINCE) or 0

    @property
    def goal(self) -> int:
        """How far `since` may move before this log is read again; `since`, if it does not move."""
        return max(self.since, self._transaction(GOAL) or 0)

    @property
    def retired(self) -> bool:
        """Whether nobody may use the shard any more: then `upper` is beyond all times too.

        So an append, which knows `upper`, need not look for `since`, far back in the log.
        """
        return self.upper >= LATEST

    def retired_error(self) -> ShardRetiredError:
        return ShardRetiredError(f"{self.store.uri}: the shard is retired, and about to be removed")

    def marked(self, mark: str) -> int | None:
        """The number of the last append that carried `mark`: by default its `upper`."""
        return self._transaction(f"{MARK}.{mark}")

    def _transaction(self, name: str) -> int | None:
        """The number of an application transaction, which is read from the log once a version."""
        if self._transactions[0] != self.version:
            self._transactions = (self.version, {})
        known = self._transactions[1]
        if name not in known:
            try:
                found = self._table.transaction_version(name)
            except (DeltaError, OSError) as error:
                raise self._unreadable(error) from error
            known[name] = None if found is None else int(found)
        return known[name]

    def refresh(self) -> None:
        if self.pinned:
            return
        self._update()
        self._check_chain()

    def _update(self) -> None:
        try:
            self._table.update_incremental()
        except BaseException as error:
            if not is_failure(error):
                raise
            raise self._unreadable(error) from error

    def _check_chain(self) -> None:
        """Raise StorageError if an entry of the log is missing or damaged."""
        newest = self._chain.check(self.version)
        if newest > self.version:  # committed a moment ago, or lost
            self._update()
            if newest > self.version:
                raise self._chain.missing(self.version + 1)
            self._chain.check(self.version)

    def _unreadable(self, error: BaseException) -> StorageError:
        return failure(self.store.uri, "cannot read the log", error)

    def parts(self) -> list[Part]:
        """All parts of this version of the shard."""
        if self._parts is None or self._parts[0] != self.version:
            try:
                stream = self._table.get_add_actions(flatten=False)
                actions = pa.RecordBatchReader.from_stream(stream).read_all()
            except BaseException as error:
                if not is_failure(error):
                    raise
                raise self._unreadable(error) from error
            known = {} if self._parts is None else {part.path: part for part in self._parts[1]}
            self._parts = (self.version, parts_from_log(actions, self.spec, known))
        return self._parts[1]

    def append(
        self,
        parts: Sequence[WrittenFile],
        lower: int,
        upper: int,
        token: str,
        mark: str | None = None,
        number: int | None = None,
    ) -> bool:
        """Add `parts` and move `upper`, if it is at `lower`. False if this very append is there."""
        frontiers = [Transaction(UPPER, upper)]
        if mark is not None:
            marked = upper if number is None else number
            frontiers.append(Transaction(f"{MARK}.{mark}", marked))

        def check() -> bool:
            if self.retired:
                raise self.retired_error()
            if self.upper == lower:
                return True
            if self.has_append(lower, upper, token):
                return False
            raise self.mismatch(lower, upper)

        return self._commit(
            check,
            lambda: _adds(parts, data_change=True),
            frontiers,
            {"lower": lower, "upper": upper, "token": token},
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

    def move_since(self, since: int, allowed: Callable[[], int]) -> int:
        """Move `since` forward, no further than `allowed` says; where it is then.

        `allowed` is evaluated again after each look at the log; why is said in `holds`.
        """
        for attempt in range(_ATTEMPTS):
            self.refresh()
            target = min(since, allowed())
            if target <= self.since:
                if self.goal > self.since:  # announced, and then held back; or by one who died
                    self._try([], [Transaction(GOAL, self.since)], {}, attempt)
                return self.since
            if self.goal < target:
                self._try([], [Transaction(GOAL, target)], {}, attempt)
                continue
            moved = [Transaction(SINCE, target), Transaction(GOAL, target)]
            if target >= LATEST:
                moved.append(Transaction(UPPER, LATEST))
            if self._try([], moved, {}, attempt):
                return target
        raise self._conflict()

    def fence(self, time: int) -> None:
        """Make whoever is about to move `since` beyond `time` look at the holds again."""

        def is_moving() -> bool:
            return self.since <= time < self.goal

        if is_moving():
            self._commit(is_moving, list, [], {})

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
            {"compacted": len(removed)},
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
            if self._try(actions(), frontiers, note, attempt):
                return True
        raise self._conflict()

    def _try(
        self, actions: list[Any], frontiers: list[Any], note: dict[str, Any], attempt: int
    ) -> bool:
        """Commit the next version; False if another writer took it."""
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._schema,
                commit_properties=CommitProperties(
                    custom_metadata={"windrow": {**note, **self._chain.link()}},
                    max_commit_retries=0,
                    app_transactions=frontiers,
                ),
            )
        except CommitFailedError:
            time.sleep(min(0.2, 0.001 * attempt))  # a little, more each time
            return False
        except (DeltaError, OSError) as error:
            raise failure(self.store.uri, "the commit failed", error) from error
        self.refresh()
        with suppress(StorageError):  # it is committed, and the head may lag
            checkpointed = self.version % self._interval in (0, self._interval - 1)
            self._chain.seal(checkpointed=checkpointed)
        return True

    def _conflict(self) -> CommitConflictError:
        return CommitConflictError(
            f"{self.store.uri}: {_ATTEMPTS} attempts to commit lost to other writers; nothing was "
            "changed. Try again, or let fewer processes write to this shard"
        )

    def _is_stale(self, check: Callable[[], bool]) -> bool:
        """Whether what this handle knows stands in the way of the commit; it may be outdated."""
        try:
            return not check()
        except UpperMismatchError:
            return True

    def unused(self, retention_hours: int) -> set[str]:
        """Files that this version does not name, and that no version did for so long.

        Parts are stored right in the root: what is in a folder beneath it is someone else's.
        """
        try:
            found: list[str] = self._table.vacuum(
                retention_hours=retention_hours,
                enforce_retention_duration=False,
                dry_run=True,
                full=True,
            )
        except (DeltaError, OSError) as error:
            raise failure(self.store.uri, "cannot list files", error) from error
        return {name for name in found if "/" not in name}

    def commits(self) -> list[tuple[int, int, bool]]:
        """Of each entry its version, its time, and whether it is a compaction; newest first."""
        try:
            history = self._table.history()
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error
        return [
            (
                int(commit["version"]),
                int(commit.get("timestamp", 0)),
                "compacted" in (commit.get("windrow") or {}),
            )
            for commit in history
        ]

    def added_and_removed(
        self, version: int, until: int | None = None
    ) -> tuple[set[str], set[str]] | None:
        """The parts that were added and removed after `version`; None if the log is too short."""
        added: set[str] = set()
        removed: set[str] = set()
        entries = Store.at(f"{self.store.uri}/{LOG_FOLDER}", self.store.options_dict)
        for number in range(version + 1, (self.version if until is None else until) + 1):
            entry = entries.get(entry_name(number))
            if entry is None:
                return None
            for action in map(json.loads, entry.splitlines()):
                for kind, paths in (("add", added), ("remove", removed)):
                    if kind in action:
                        paths.add(unquote(action[kind]["path"]))
        return added, removed


def _adds(parts: Sequence[WrittenFile], data_change: bool) -> list[Any]:
    now = int(time.time() * 1000)
    return [
        AddAction(part.path, part.bytes, {}, now, data_change, part.statistics) for part in parts
    ]
