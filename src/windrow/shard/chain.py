"""The chain of a log's entries: one that is lost, cut short or changed shows.

    _delta_log/00000000000000000006.json                  an entry
    _delta_log/00000000000000000007.json                  holds the checksum of entry 6
    _delta_log/_windrow/head.json                         the checksum of the newest entry, and of
                                                          the newest checkpoint

delta-rs passes over an empty entry, and cannot know of a last one that is gone. So each commit
says what the entry before it adds up to, and after it the head says so of the commit itself. The
head is a hint that may lag: a writer may die before it writes it, and of two that race the slower
one may win. It is never ahead of the log, and if it is lost, nothing else is.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from windrow.errors import StorageError
from windrow.storage.checksum import checksum
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store

LOG_FOLDER = "_delta_log"
_HEAD = "_windrow/head.json"
_LAST_CHECKPOINT = "_last_checkpoint"
_REQUESTS = 16


@dataclass(frozen=True)
class Head:
    """What the last writer left: the newest entry, the newest checkpoint, and their checksums."""

    version: int
    sum: str
    checkpoint: int | None = None
    checkpoint_sum: str | None = None


@dataclass(frozen=True)
class Entry:
    """An entry of the log: the checksum of its bytes, and that of the entry before, as it says."""

    version: int
    sum: str
    previous: str | None  # None: written by an earlier release, or by another program


class Chain:
    """What one handle on a log knows of its entries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = Store.at(f"{store.uri}/{LOG_FOLDER}", store.options_dict)
        self._newest: Entry | None = None
        self._at_least = -1  # the version that the head has seen
        self._checkpoint: tuple[int | None, str | None] = (None, None)

    def link(self) -> dict[str, Any]:
        """What the next commit has to say of the newest entry."""
        return {} if self._newest is None else {"previous": self._newest.sum}

    def check_checkpoint(self) -> None:
        """Raise StorageError if the checkpoint that readers start from is damaged."""
        head = self.head()
        if head is None or head.checkpoint is None or head.checkpoint != self._base():
            return
        self._checkpoint = head.checkpoint, head.checkpoint_sum
        name = checkpoint_name(head.checkpoint)
        wrong = self.wrong_with_checkpoint(head)
        if wrong:
            raise self._damaged(name, wrong)

    def wrong_with_checkpoint(self, head: Head) -> str:
        """What is wrong with the checkpoint that the head knows; empty if nothing is."""
        assert head.checkpoint is not None
        data = self._log.get(checkpoint_name(head.checkpoint))
        if data is None:
            return "is missing"
        return "" if _sum(data) == head.checkpoint_sum else "is damaged"

    def check(self, version: int) -> int:
        """Check the entries up to `version`, as far as that was not done; the newest there is.

        Raises StorageError if one of them is not as it was written.
        """
        newest = self._newest
        first = version if newest is None else newest.version + 1
        base = self._base() if newest is None or first < version else -1
        if base >= first or newest is None:
            # What a checkpoint holds may be gone from the log. At least the newest entry is read,
            # if it is there: the next commit has to name it.
            first, newest = min(base + 1, version), None
        for entry in self.entries(range(first, version + 1), base):
            if newest is not None and entry.previous not in (None, newest.sum):
                both = f"{entry_name(newest.version)} or {entry_name(entry.version)}"
                raise self._damaged(both, "is not what it was")
            newest = entry
        if self._newest is None:
            head = self.head()
            if head is not None and newest is not None:
                if head.version == newest.version and head.sum != newest.sum:
                    raise self._damaged(entry_name(version), "is not what it was")
                self._at_least = head.version
        self._newest = newest
        return max(self._at_least, version)

    def check_all(self) -> None:
        """Check whatever there is of a log that cannot be opened."""
        versions, head = self.versions(), self.head()
        newest = max([*versions, *([head.version] if head else [])], default=-1)
        if newest >= 0:
            Chain(self._store).check(newest)

    def missing(self, version: int) -> StorageError:
        return self._damaged(entry_name(version), "is missing")

    def seal(self, *, checkpointed: bool) -> None:
        """Write the head, after a commit; `checkpointed` if there may be a new checkpoint."""
        if self._newest is None:
            return
        version = self._newest.version
        if checkpointed:
            base = self._base()
            data = self._log.get(checkpoint_name(base)) if base >= 0 else None
            if data is not None:
                self._checkpoint = base, _sum(data)
        write_record(self._log, _HEAD, asdict(Head(version, self._newest.sum, *self._checkpoint)))

    def entries(self, versions: range, base: int) -> list[Entry]:
        """The entries of `versions`; those up to `base`, or to any checkpoint, may be gone.

        Raises StorageError if another is missing, or if one is damaged.
        """
        names = [entry_name(version) for version in versions]
        if self._log.is_local or len(names) < 2:
            found = list(map(self._log.get, names))
        else:
            with ThreadPoolExecutor(_REQUESTS) as pool:
                found = list(pool.map(self._log.get, names))
        entries = []
        for version, data in zip(versions, found, strict=True):
            entry = _entry(version, data)
            if isinstance(entry, Entry):
                entries.append(entry)
            elif data is not None or version > max([base, *self.checkpoints()]):
                raise self._damaged(entry_name(version), entry)
        return entries

    def entry(self, version: int) -> Entry | str:
        """One entry; or what is wrong with it."""
        return _entry(version, self._log.get(entry_name(version)))

    def versions(self) -> list[int]:
        """The entries that are there, in order."""
        names = [name.removesuffix(".json") for name in self._log.names() if "/" not in name]
        return sorted(int(name) for name in names if name.isdecimal())

    def checkpoints(self) -> list[int]:
        """The checkpoints that are there, in order."""
        ending = ".checkpoint.parquet"
        names = [name.removesuffix(ending) for name in self._log.names() if name.endswith(ending)]
        return sorted(int(name) for name in names if name.isdecimal())

    def drop_checkpoint(self, version: int) -> None:
        """Let readers start from the entries instead."""
        self._log.delete([checkpoint_name(version), _LAST_CHECKPOINT])

    def head(self) -> Head | None:
        """None if there is none, or if it is damaged."""
        record = read_record(self._log, _HEAD)
        if record is None:
            return None
        try:
            return Head(**record)
        except TypeError:
            return None

    def _base(self) -> int:
        """The version of the newest checkpoint, as the log says; -1 if there is none."""
        try:
            found = json.loads(self._log.get(_LAST_CHECKPOINT) or b"{}")["version"]
        except (ValueError, TypeError, KeyError):
            return -1
        return found if isinstance(found, int) else -1

    def _damaged(self, name: str, what: str) -> StorageError:
        return StorageError(
            f"{self._store.uri}: {LOG_FOLDER}/{name} {what}. Nothing is read, since rows may be "
            f"missing. `windrow doctor {self._store.uri}` says what can be repaired; or restore "
            "the file from a copy"
        )


def _entry(version: int, data: bytes | None) -> Entry | str:
    if data is None:
        return "is missing"
    if not data.strip():
        return "is empty"
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        previous = (info.get("windrow") or {}).get("previous")
    except (ValueError, TypeError, AttributeError):
        return "is damaged"
    return Entry(version, _sum(data), previous)


def entry_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _sum(data: bytes) -> str:
    return f"{checksum(data):016x}"
