"""The files of a project's history: records, each chained to the one before, and checkpoints.

    history/00000000000000000007.json                 a record: one commit, or a maintenance
    history/checkpoint-00000000000000000050.json      the state after record 50
    history/head.json                                 the newest record and checkpoint: a hint

A file has two lines: a checksum, and the JSON that it is the checksum of. A record holds the
checksum of the one before, so one that is lost or changed shows. The head may lag, since its writer
may die before writing it; it is never ahead of the records, so it tells when the last one is lost.

Records up to a checkpoint are not needed any more. They are deleted in ascending order, some time
later: so whoever finds the record of its own version gone knows that it is far behind.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from windrow.errors import StorageError
from windrow.storage.checksum import checksum
from windrow.storage.new_files import put_new
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store
from windrow.views.history.state import State

FOLDER = "history"
HEAD = "head.json"
CHECKPOINT_EVERY = 50  # records
KEPT_SECONDS = 3600.0  # for which records before a checkpoint stay
_LOOKS = 3
_RECORD = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"checkpoint-(\d{20})\.json")


@dataclass(frozen=True)
class HistoryFiles:
    """The folder of a history."""

    folder: Store

    def load(self) -> State:
        """The newest state there is: that of the newest checkpoint and the records after it."""
        state, damaged = State(), ""
        for look in range(_LOOKS):
            head = self.head()
            newest = head["version"] if head else max(self.records(), default=0)
            # A head that lags may name a checkpoint whose records are deleted: not twice.
            hint = head.get("checkpoint") if head and not look else None
            base, damaged = self._base(hint)
            state = self._replay(base)
            if state.version >= newest:
                return state
            # A record is missing; or others have checkpointed and deleted it while this looked.
        if damaged:
            raise self.damaged(damaged, "is damaged, and so is the one before, if there is one")
        raise self.damaged(record_name(state.version + 1), "is missing")

    def refresh(self, state: State) -> State:
        """The newest state, from a state that was the newest some time ago."""
        found = self._replay(state)
        if found.version > state.version:
            return found
        head = self.head()
        newest = head["version"] if head else max(self.records(), default=0)
        if newest <= found.version:
            return found
        found = self._replay(found)  # it was committed just now, or deleted long ago
        return found if found.version > state.version else self.load()

    def append(self, state: State, body: Mapping[str, Any]) -> State | None:
        """Add the record after `state`; None if another process has added one."""
        version = state.version + 1
        name = record_name(version)
        data = encode({"version": version, "previous": state.checksum, **body})
        try:
            done = put_new(self.folder, name, data)
        except StorageError:
            # Perhaps only the answer was lost.
            with suppress(StorageError):
                if self.folder.get(name) == data:
                    return self._apply(state, name, data)
            raise
        if not done:
            return None
        if state.version and not self.folder.exists(record_name(state.version)):
            # Others are so far ahead that the records of that time, this number too, are deleted.
            self.folder.delete([name])
            return None
        found = self._apply(state, name, data)
        with suppress(StorageError):  # it is committed
            if version % CHECKPOINT_EVERY == 0:
                self.checkpoint(found)
            self.write_head(found)
            if version % CHECKPOINT_EVERY == 0:
                self.tidy()
        return found

    def checkpoint(self, state: State) -> None:
        self.folder.put(checkpoint_name(state.version), encode(state.to_json()))

    def write_head(self, state: State) -> None:
        base = state.version - state.version % CHECKPOINT_EVERY
        head = {"version": state.version, "checksum": state.checksum, "checkpoint": base}
        write_record(self.folder, HEAD, head)

    def tidy(self) -> None:
        """Delete records and checkpoints that nobody will need."""
        old = [v for v in self.checkpoints()[:-1] if self._age(checkpoint_name(v)) >= KEPT_SECONDS]
        if not old:
            return
        for version in self.records():
            if version < old[-1]:
                self.folder.delete([record_name(version)])
        self.folder.delete([checkpoint_name(version) for version in old[:-1]])

    def records(self) -> list[int]:
        """The versions of the records that are there, in order."""
        return self._versions(_RECORD)

    def checkpoints(self) -> list[int]:
        """The versions of the checkpoints that are there, in order."""
        return self._versions(_CHECKPOINT)

    def recent(self, version: int) -> Iterator[dict[str, Any]]:
        """The records up to a version, the newest first, as far back as they are there."""
        while version > 0:
            found = decode(self.folder.get(record_name(version)))
            if isinstance(found, str):
                return
            yield found.body
            version -= 1

    def _versions(self, pattern: re.Pattern[str]) -> list[int]:
        matches = map(pattern.fullmatch, self.folder.names())
        return sorted(int(match[1]) for match in matches if match is not None)

    def _age(self, name: str) -> float:
        written = int(self.folder.stamp(name).split()[1]) / 1e9
        return time.time() - written

    def head(self) -> dict[str, Any] | None:
        """None if there is none, or if it is damaged."""
        head = read_record(self.folder, HEAD)
        return head if head is not None and isinstance(head.get("version"), int) else None

    def _base(self, hint: int | None) -> tuple[State, str]:
        """The newest checkpoint that can be read, and the name of one that cannot, if any."""
        if hint:
            found = decode(self.folder.get(checkpoint_name(hint)))
            if isinstance(found, Decoded):
                return State.from_json(found.body), ""
        damaged = ""
        for version in reversed(self.checkpoints()):
            found = decode(self.folder.get(checkpoint_name(version)))
            if isinstance(found, Decoded):
                return State.from_json(found.body), damaged
            damaged = damaged or checkpoint_name(version)
        return State(), damaged

    def _replay(self, state: State) -> State:
        while True:
            name = record_name(state.version + 1)
            data = self.folder.get(name)
            if data is None:
                return state
            state = self._apply(state, name, data)

    def _apply(self, state: State, name: str, data: bytes) -> State:
        found = decode(data)
        if isinstance(found, str):
            raise self.damaged(name, found)
        if found.body.get("version") != state.version + 1:
            raise self.damaged(name, "is another record than its name says")
        if found.body.get("previous") != state.checksum:
            both = f"{record_name(state.version)} or {name}"
            raise self.damaged(both, "is not what it was")
        return state.after(found.body, found.checksum)

    def damaged(self, name: str, what: str) -> StorageError:
        return StorageError(
            f"{self.folder.uri}/{name} {what}. Nothing is read, since commits may be missing. "
            "Restore the file from a copy; `windrow doctor` says what else is wrong"
        )


@dataclass(frozen=True)
class Decoded:
    """What a file holds, and its checksum."""

    body: dict[str, Any]
    checksum: str


def encode(body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    return json.dumps({"checksum": _sum(data)}).encode() + b"\n" + data + b"\n"


def decode(data: bytes | None) -> Decoded | str:
    """What a file says; or what is wrong with it."""
    if data is None:
        return "is missing"
    try:
        first, second, rest = data.split(b"\n")
        found = json.loads(first)["checksum"]
        if rest or found != _sum(second):
            return "is damaged"
        return Decoded(json.loads(second), found)
    except (ValueError, TypeError, KeyError):
        return "is damaged"


def record_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"checkpoint-{version:020d}.json"


def _sum(data: bytes) -> str:
    return f"{checksum(data):016x}"
