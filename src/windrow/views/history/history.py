"""The history of a project: one log of everything that is committed to its tables and views.

A commit is one record, which is there entirely or not at all, however many collections it appends
to. The shards follow later (see `roll_forward`).

>>> import pyarrow as pa, tempfile
>>> history = History(Store.at(tempfile.mkdtemp()))
>>> id = history.create_collection(pa.schema([("user", pa.string())]), ["user"])
>>> time = history.next_time()
>>> history.commit(Commit("define", time, created={id: {}}, catalogue={"users": {"id": id}}))
1
>>> time = history.next_time()
>>> written = history.collection(id).writer(time).write(pa.table({"user": ["ann"]}).to_batches())
>>> history.commit(Commit("write", time, appends={id: written.parts}))
2
>>> history.collection(id).snapshot(columns=["user"]).to_table().column("user").to_pylist()
['ann']
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Ids
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import StorageError, StorageUnavailableError, TimeRangeError, WindrowError
from windrow.shard import holds
from windrow.shard.compact import Compacted
from windrow.shard.holds import Hold
from windrow.shard.log import Log
from windrow.shard.spec import Order
from windrow.storage.durable import sync
from windrow.storage.leases import Lease, drop_leases, found_leases
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.time import now_millis
from windrow.views.history.claims import CLAIM_SECONDS, NestedClaim, is_claimed
from windrow.views.history.collections import Collection, collection_store
from windrow.views.history.commits import MAINTAIN, Commit
from windrow.views.history.conflicts import check
from windrow.views.history.files import FOLDER, HistoryFiles
from windrow.views.history.maintain import HISTORY_KEPT, oldest_kept, open_rolled, tidy
from windrow.views.history.roll_forward import ROLL_AFTER, most_waiting, roll_forward
from windrow.views.history.shards import Shards
from windrow.views.history.state import Entry, State
from windrow.views.history.sweep import CREATES, SWEEP_HOURS, remove_dropped, unnamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASES = "leases"  # beneath the history: who makes collections, and who ticks
_ATTEMPTS = 10
_TIMES = 1_000  # versions whose times are remembered


class History:
    """A handle on the history of the project at `store`. For several threads at once.

    After a commit, shards for which more than `roll_after` batches wait are rolled forward, a few
    at a time.
    """

    def __init__(self, store: Store, *, roll_after: int = ROLL_AFTER) -> None:
        self._store = store
        self._files = HistoryFiles(store.beneath(FOLDER))
        self._leases = store.beneath(f"{FOLDER}/{LEASES}")
        self._roll_after = roll_after
        self._lock = threading.RLock()
        self._ticks = NestedClaim(self._leases, "tick")
        self._publishing = NestedClaim(self._leases, "publish")
        self._shards = Shards(store)
        self._creating: dict[str, Lease] = {}  # made, and not named by a commit yet
        # Appended to by a commit that an object store has not answered: it may yet arrive.
        self._doubtful: set[str] = set()
        self._state = self._files.load()
        self._times = {self._state.version: self._state.time}

    def __repr__(self) -> str:
        return f"History({self._store.uri!r}, version={self.version}, time={self.time})"

    @property
    def version(self) -> int:
        """The number of the newest record that this handle knows; 0 if there is none."""
        return self._state.version

    @property
    def time(self) -> int:
        """The newest time of all records. It never goes back, also if a clock does."""
        return self._state.time

    @property
    def ticked(self) -> int:
        """The time that all views are at."""
        return self._state.ticked

    @property
    def catalogue(self) -> Mapping[str, Mapping[str, Any]]:
        """Definitions by name, as of `version`."""
        return self._state.catalogue

    def collections(self) -> Mapping[str, Mapping[str, Any]]:
        """The facts about each collection, by id, as of `version`."""
        return {id: entry.facts for id, entry in self._state.collections.items()}

    def entries(self) -> Mapping[str, Entry]:
        """What is known of each collection, by id, as of `version`."""
        return self._state.collections

    def notes(self, most: int) -> Iterator[Mapping[str, Any]]:
        """What the newest records say for people, of the last `most` records that are there.

        Each with the kind, the version and the time of its record.
        """
        for record in itertools.islice(self._files.recent(self.version), most):
            about = {key: record[key] for key in ("kind", "version", "time")}
            yield {**record.get("note", {}), **about}

    def next_time(self) -> int:
        """A time for the next write: now, and after all that has been committed."""
        return max(now_millis(), self._state.time + 1)

    def refresh(self) -> None:
        """See what other processes have committed."""
        with self._lock:
            self._move(self._files.refresh(self._state))

    def collection(self, id: str) -> Collection:
        """A collection as of `version`; also one that was created here and is not committed yet."""
        with self._lock:
            entry = self._entry(id)
            found = self._shards.collection(id, entry)
            if self._log(id).upper > entry.upper:
                self._check_behind(id)
            return found

    def create_collection(
        self, schema: pa.Schema, key: Sequence[str], order: Order | None = None
    ) -> str:
        """Make an empty shard for a collection, and return its id.

        It belongs to the project once a commit of this handle names it in `created`; until then
        it is kept for as long as this process lives.
        """
        id = new_id()
        with self._lock:
            lease = Lease.take(self._leases, {CREATES: id})  # before there is something to sweep
            try:
                self._shards.create(id, schema, key, order)
            except BaseException:
                lease.release()
                raise
            self._creating[id] = lease
        return id

    def commit(self, commit: Commit, *, expected: int | None = None, reads: Ids[str] = ()) -> int:
        """Commit all that `commit` says in one record, and return its version.

        `expected` is the version on which the commit is based, by default this handle's. It is
        refused with CommitConflictError, and nothing is committed, if since then

        - another process has committed a later time than that of a `write`;
        - a collection in `reads` was appended to, or dropped;
        - there was another tick or definition, for a `tick` or a `define`, or an earlier time that
          it has not seen.

        The parts that it names are then for the caller to delete (see `discard`) or write again.
        """
        with self._lock:
            based = self.version if expected is None else expected
            known = self._times.get(based)
            # Before the record that names them: of what a power failure leaves, nothing is missing.
            sync(
                (collection_store(self._store, id), file.path)
                for id, files in commit.appends.items()
                for file in files
            )
            try:
                self._append(
                    commit.to_json(),
                    lambda: check(self._state, commit, based, known, reads, self._creating),
                )
            except StorageUnavailableError:
                if not self._store.is_local:
                    self._doubtful |= {*commit.appends, *commit.created}
                raise
            for id in commit.created:
                self._creating.pop(id).release()
            version = self.version
            with suppress(WindrowError):  # it is committed; this is done again after the next one
                for id in most_waiting(self._state.collections, self._roll_after):
                    roll_forward(self._log(id), self._state.collections[id])
            return version

    def _append(self, body: Mapping[str, Any], check: Callable[[], None] | None = None) -> None:
        """Add a record, as soon as no other process comes first."""
        body = {"id": new_id(), **body}
        while True:
            self._move(self._files.refresh(self._state))
            if check is not None:
                check()
            news = {**self._shards.news(self._state.collections), **body.get("shards", {})}
            stamped = {**body, "at": now_millis(), "shards": news}
            found = self._files.append(self._state, stamped)
            if found is not None:
                return self._move(found)

    def discard(self, commit: Commit) -> None:
        """Delete the parts and the new collections of a commit that was refused.

        After any error: what was committed all the same, or may yet be, stays (see `sweep`).
        """
        with self._lock, suppress(StorageError):
            self.refresh()
            for id, files in commit.appends.items():
                if id in self._state.collections and id not in self._doubtful:
                    paths = {file.path for file in files}
                    self._shards.discard(id, self._state.collections[id], paths)
            for id in commit.created:
                self.discard_collection(id)

    def discard_collection(self, id: str) -> None:
        """Remove a collection that was created here, and that no commit has named."""
        with self._lock, suppress(StorageError):
            self.refresh()
            if id not in self._creating:
                return
            if id not in self._state.collections and id not in self._doubtful:
                self._shards.forget(id)
                collection_store(self._store, id).remove()
            self._creating.pop(id).release()

    @contextmanager
    def claim_ticks(self, wait: float = CLAIM_SECONDS) -> Iterator[None]:
        """A block in which no other process ticks or defines; waits up to `wait` seconds.

        Raises CommitConflictError, which names the process that has the claim, if it does not end.
        The history is refreshed first. Within the block, the same thread may claim again.
        """
        with self._ticks.claimed(wait) as first:
            if first:
                self.refresh()
            yield

    @contextmanager
    def claim_publishing(self, wait: float = CLAIM_SECONDS) -> Iterator[None]:
        """A block in which no other process publishes what is served of views; as `claim_ticks`."""
        with self._publishing.claimed(wait) as first:
            if first:
                self.refresh()
            yield

    @contextmanager
    def hold(
        self, ids: Iterable[str], as_of: int | None = None, *, reader: str = ""
    ) -> Iterator[Mapping[str, Collection]]:
        """Collections that stay readable for a block of code, whoever maintains or drops them.

        They are as of `version`; their history from `as_of` on is kept. By default that is the
        newest time, and the history is refreshed if what this handle knows is forgotten already.
        As `Shard.hold`, this is a small file beside each shard's log.
        """
        wanted, reader = list(ids), reader or f"process {os.getpid()}"
        with ExitStack() as held:
            for attempt in range(_ATTEMPTS):
                try:
                    with self._lock:
                        for id in wanted:
                            held.enter_context(self._held(id, as_of, reader))
                        found = {id: self.collection(id) for id in wanted}
                    break
                except TimeRangeError:
                    held.close()
                    if as_of is not None or attempt == _ATTEMPTS - 1:
                        raise
                    self.refresh()  # the newest time that this handle knew is forgotten
            yield found

    def _held(self, id: str, as_of: int | None, reader: str) -> AbstractContextManager[Hold]:
        log = self._log(id)
        log.refresh()
        # The shard may lag: then it is held at an earlier time, which keeps no less.
        time = max(log.upper - 1, log.since) if as_of is None else min(as_of, log.upper)
        return holds.hold(log, time, reader, None)

    def roll_forward(self, ids: Iterable[str] | None = None) -> None:
        """Bring shards up to the history, for those who read them without it; None: all of them."""
        with self._lock:
            self.refresh()
            for id in self._chosen(ids):
                if self._state.collections[id].pending:
                    roll_forward(self._log(id), self._state.collections[id])
            if self._shards.news(self._state.collections):
                self._append({"kind": MAINTAIN, "time": self.time})

    def maintain(
        self,
        ids: Iterable[str] | None = None,
        *,
        spark: SparkSession | None = None,
        kept: int = HISTORY_KEPT,
    ) -> Mapping[str, Compacted]:
        """Roll forward, forget old history and merge runs; what was merged, by collection.

        Collections whose fact `retain` is "latest" keep no history before `ticked`; others keep
        `kept` milliseconds of it. Nothing is done if another process maintains the project.
        """
        done: dict[str, Compacted] = {}
        with is_claimed(self._leases, "maintain") as claimed:
            if not claimed:
                return done
            self.refresh()
            state, logs = self._state, {}
            for id in self._chosen(ids):
                entry = state.collections[id]
                with self._unless_dropped(id):
                    log = open_rolled(self._store, id, entry)
                    merged = tidy(log, oldest_kept(entry.facts, state.ticked, kept), spark)
                    logs[id] = log
                    if merged.merges:
                        done[id] = merged
            self._record(logs)
        return done

    def sweep(self, *, hours: int = SWEEP_HOURS) -> list[str]:
        """Remove what is certainly dead, for so many hours; the names of what was removed.

        See `windrow.views.history.sweep`. With 0 hours, no other process may be writing.
        """
        removed: list[str] = []
        with is_claimed(self._leases, "maintain") as claimed:
            if not claimed:
                return removed
            left = list(unnamed(self._store, self._leases, hours))
            self.refresh()
            state = self._state
            for id in left:
                if id not in state.collections and id not in state.dropped:
                    collection_store(self._store, id).remove()
                    removed.append(f"collections/{id}")
            gone = list(remove_dropped(self._store, state.dropped, hours))
            # What vacuum finds in no log is dead to it; what it deletes, no other handle looks for.
            logs = {}
            for id, entry in state.collections.items():
                with self._unless_dropped(id):
                    logs[id] = open_rolled(self._store, id, entry)
            self._record(logs, gone)
            for id, log in logs.items():
                with self._unless_dropped(id):
                    removed += [f"collections/{id}/{name}" for name in holds.vacuum(log, hours)]
            self._files.folder.drop_half_written()
            ended = [lease for lease in found_leases(self._leases) if not lease.is_live()]
            drop_leases(self._leases, ended)
        return [*removed, *(f"collections/{id}" for id in gone)]

    def _record(self, logs: Mapping[str, Log], removed: Sequence[str] = ()) -> None:
        """Tell other handles which logs to read again, and which collections are gone for good."""
        with self._lock:
            known = self._state.collections
            news = {
                id: (log.version, log.upper)
                for id, log in logs.items()
                if id in known and log.version > known[id].log_version
            }
            for id in removed:
                self._shards.forget(id)
            if news or removed:
                body = {"kind": MAINTAIN, "time": self.time, "shards": news}
                self._append({**body, "removed": list(removed)} if removed else body)

    def close(self) -> None:
        """Roll everything forward. A handle that is not closed loses nothing."""
        self.roll_forward()

    def _chosen(self, ids: Iterable[str] | None) -> list[str]:
        chosen = list(self._state.collections) if ids is None else list(ids)
        for id in chosen:
            self._entry(id)
        return [id for id in chosen if id in self._state.collections]

    @contextmanager
    def _unless_dropped(self, id: str) -> Iterator[None]:
        """A block about a collection that another process may drop meanwhile."""
        try:
            yield
        except WindrowError:
            self.refresh()
            if id in self._state.collections:
                raise

    def _log(self, id: str) -> Log:
        return self._shards.log(id, self._entry(id))

    def _entry(self, id: str) -> Entry:
        entry = self._state.collections.get(id)
        if entry is not None:
            return entry
        if id in self._creating:
            return Entry({})
        raise WindrowError(
            f"{self._store.uri}: there is no collection {id!r} in version {self.version} of the "
            "history; it was dropped, or never committed"
        )

    def _check_behind(self, id: str) -> None:
        """Raise StorageError if a shard has what no record of the history has appended."""
        if self._files.refresh(self._state).version == self.version:
            raise self._shards.ahead(id, self._entry(id))

    def _move(self, state: State) -> None:
        self._state = state
        self._times[state.version] = state.time
        while len(self._times) > _TIMES:
            self._times.pop(next(iter(self._times)))
