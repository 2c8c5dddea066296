"""Looking at a project: its catalogue, refreshed when its history or its store has moved on.

A look costs a read of the history's head and of the notes of served groups, and happens at most
once a second; what did not change is not read again. What takes longer to read and changes less
(arrangements of backfills, streams) is looked at every few seconds.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from deltalake import DeltaTable

from windrow.console.catalogue import (
    Arranged,
    Catalogue,
    Generation,
    Group,
    Joined,
    Relation,
    StreamState,
)
from windrow.errors import OptionError, WindrowError
from windrow.features.definitions import GroupBy, Join
from windrow.online.generations import GROUPS
from windrow.online.plans import JOINS, ServedJoin
from windrow.online.served import ServedGroup
from windrow.online.served_view import is_view
from windrow.project import Project
from windrow.shard.shard import Shard
from windrow.sources.definitions import Source
from windrow.sources.stream_shard import open_stream, stream_uri
from windrow.storage.delta import open_table
from windrow.storage.records import read_record
from windrow.storage.store import Store
from windrow.views.history.history import History

EVERY = 1.0  # seconds between two looks
SELDOM = 10.0  # at what changes less
RECORDS = 100  # of the history whose notes are kept
T = TypeVar("T")


@dataclass(frozen=True)
class Definitions:
    """What the Python files of a project define, by name."""

    joins: Mapping[str, Join] = field(default_factory=dict)
    groups: Mapping[str, GroupBy] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)


class Looking:
    """The eyes of the console: for several threads at once."""

    def __init__(
        self,
        project: Project,
        definitions: Definitions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.project = project
        self.definitions = definitions or Definitions()
        self._clock = clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._seen: tuple[Any, ...] = ()
        self._catalogue = Catalogue()
        self._history: History | None = None
        self._served: dict[str, tuple[int, ServedGroup]] = {}
        self._groups: dict[str, tuple[bytes, Group]] = {}  # and the notes that they were made of
        self._notes: tuple[Mapping[str, Any], ...] = ()
        self._noted = 0
        self._kept: dict[str, tuple[float, Any]] = {}
        self._shards: dict[str, Shard] = {}

    @property
    def store(self) -> Store:
        """The project's root."""
        return self.project.store

    @property
    def history(self) -> History:
        """The history, at the version of the last look."""
        if self._history is None:
            self._history = History(self.store)
        return self._history

    def catalogue(self) -> Catalogue:
        """What there is now, or was a second ago."""
        with self._lock:
            if self._clock() >= self._until:
                self._look()
                self._until = self._clock() + EVERY
            return self._catalogue

    def _look(self) -> None:
        self.history.refresh()
        records = self._records()
        arranged = self._seldom("arrangements", lambda: tuple(_arranged(self.store)))
        streams = self._streams()
        seen = (self.history.version, records, arranged, streams)
        if seen != self._seen:
            self._catalogue, self._seen = self._made(records, arranged, dict(streams)), seen

    def _made(
        self,
        records: tuple[str | None, str | None, tuple[tuple[str, bytes | None], ...]],
        arranged: tuple[Arranged, ...],
        streams: Mapping[str, StreamState],
    ) -> Catalogue:
        history = self.history
        address, failure, notes = records
        entries = history.entries()
        relations = {}
        for name, definition in history.catalogue.items():
            entry = entries.get(str(definition["collection"]))
            changed = entry.upper - 1 if entry is not None and entry.upper else None
            version = 0 if entry is None else entry.appended
            kind = str(definition["kind"])
            relations[name] = Relation(name, kind, definition, changed, version)
        groups, joins = self._online(notes)
        return Catalogue(
            version=history.version,
            time=history.time,
            ticked=history.ticked,
            relations=relations,
            groups=groups,
            joins=joins,
            sources=self.definitions.sources,
            streams=streams,
            arrangements=arranged,
            notes=self._newest_notes(),
            store=address,
            failure=failure,
            facts=history.collections(),
        )

    def _newest_notes(self) -> tuple[Mapping[str, Any], ...]:
        """Notes of the newest records; those that are known are not read again."""
        version = self.history.version
        if version > self._noted:
            new = islice(self.history.notes(RECORDS), min(RECORDS, version - self._noted))
            self._notes = (*new, *self._notes)[:RECORDS]
            self._noted = version
        return self._notes

    # What is online

    def _records(self) -> tuple[str | None, str | None, tuple[tuple[str, bytes | None], ...]]:
        """The store's address, why it cannot be read, and its notes."""
        try:
            if not self._is_online():
                return None, None, ()
            store = self.project.records
            names = [*store.notes(GROUPS), *store.notes(JOINS)]
            raws, _ = store.read(names, [])
        except WindrowError as error:
            return None, str(error), ()
        return store.address, None, tuple(zip(names, raws, strict=True))

    def _is_online(self) -> bool:
        """Whether there is a store; to open one in a folder would make it."""
        try:
            store = self.project.records
        except OptionError:
            return False  # a root in an object store, and no store is named
        return not store.is_local or os.path.exists(os.path.join(store.address, "data.mdb"))

    def _online(
        self, notes: Iterable[tuple[str, bytes | None]]
    ) -> tuple[dict[str, Group], dict[str, Joined]]:
        groups = {n: Group(n, one) for n, one in self.definitions.groups.items()}
        joins = {n: Joined(n, one, None) for n, one in self.definitions.joins.items()}
        for note, raw in notes:
            if raw is None:
                continue
            if note.startswith(JOINS):
                name = note.removeprefix(JOINS)
                joins[name] = Joined(name, self.definitions.joins.get(name), ServedJoin.read(raw))
                continue
            name = note.removeprefix(GROUPS)
            known = self._groups.get(name)
            if known is not None and known[0] == raw:
                groups[name] = known[1]
                continue
            found = json.loads(raw)
            served = (found["current"] or found["staged"] or {}).get("served", {})
            if is_view(served):
                continue  # a view that is served by key: it is shown as a view
            current = self._generation(f"{name} current", found["current"])
            staged = self._generation(f"{name} staged", found["staged"])
            defined = self.definitions.groups.get(name)
            if defined is not None or current is not None or staged is not None:
                groups[name] = Group(name, defined, current, staged, len(found["retired"]))
                self._groups[name] = raw, groups[name]
        return groups, joins

    def _generation(self, place: str, found: Mapping[str, Any] | None) -> Generation | None:
        """A generation; its plan is read once."""
        if found is None:
            return None
        number = int(found["number"])
        known = self._served.get(place)
        if known is None or known[0] != number:
            known = self._served[place] = number, ServedGroup.from_json(found["served"])
        return Generation(number, known[1], found["sealed"], tuple(found["fresh"]), found["loaded"])

    # What is looked at seldom

    def _seldom(self, name: str, look: Callable[[], T], every: float = SELDOM) -> T:
        until, known = self._kept.get(name, (float("-inf"), None))
        if self._clock() < until:
            return known  # type: ignore[no-any-return]
        found = look()
        self._kept[name] = self._clock() + every, found
        return found

    def _streams(self) -> tuple[tuple[str, StreamState], ...]:
        names = [name for name, one in self.definitions.sources.items() if one.stream is not None]
        if not names:
            return ()

        def look() -> tuple[tuple[str, StreamState], ...]:
            found = ((name, self._stream(name)) for name in names)
            return tuple((name, state) for name, state in found if state is not None)

        return self._seldom("streams", look, every=2 * EVERY)

    def _stream(self, name: str) -> StreamState | None:
        uri, options = stream_uri(self.store, name), self.store.options_dict
        try:
            shard = self._shards.get(name)
            shard = open_stream(uri, options) if shard is None else shard.refresh()
        except WindrowError:
            shard = None
        if shard is None:
            self._shards.pop(name, None)
            return None
        self._shards[name] = shard
        rows = sum(part.rows for part in shard.parts())
        begun, ended = (_numbers(uri, part, options) for part in ("offsets", "commits"))
        state = StreamState(shard.upper, rows, quarantined=_quarantined(self.store, name))
        if not begun:
            return state
        newest = max(begun)
        under_way = newest not in ended
        at = begun[newest] if under_way else ended[newest]
        return replace(state, batch=newest, batch_at=at, under_way=under_way)


def _numbers(uri: str, part: str, options: Mapping[str, str] | None) -> dict[int, int]:
    """The micro-batches that a checkpoint of Spark names, and when it did, in milliseconds."""
    folder = Store.at(f"{uri}/_checkpoint/{part}", options)
    found = {name: stamp for name, stamp in folder.stamps().items() if name.isdecimal()}
    return {int(name): int(stamp.split()[1]) // 10**6 for name, stamp in found.items()}


def _quarantined(root: Store, name: str) -> int:
    """How many messages of a stream became no row."""
    store = root.beneath(f"quarantine/streams/{name}")
    try:
        table: DeltaTable | None = open_table(store)
        if table is None:
            return 0
        return sum(int(n or 0) for n in _counts(table))
    except Exception:  # delta-rs raises a class of its own for each of its parts
        return 0


def _counts(table: DeltaTable) -> list[int | None]:
    actions: Any = table.get_add_actions(flatten=True)
    found: list[int | None] = actions.column("num_records").to_pylist()
    return found


def _arranged(root: Store) -> Iterable[Arranged]:
    """The arrangements that a catalogue names."""
    folder = root.beneath("catalogue/arrangements")
    names = folder.names()
    for name in names:
        if not name.endswith("/content.json"):
            continue
        id = name.partition("/")[0]
        found = read_record(folder, name) or {}
        users = [read_record(folder, one) for one in names if one.startswith(f"{id}/users/")]
        yield Arranged(
            id,
            str(found.get("title", id)),
            tuple(map(str, found.get("tables", ()))),
            tuple(map(str, found.get("key", ()))),
            tuple(map(str, found.get("columns", ()))),
            tuple((str(user["name"]), int(user["at"])) for user in users if user),
        )
