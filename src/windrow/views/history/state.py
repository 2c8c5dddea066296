"""The state of a project's history: what all records up to a version add up to.

A state is a value. Applying a record gives the next state, and nothing else does: so two processes
that have read the same records know the same, and a checkpoint is a state that was written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.spark.tasks import WrittenFile
from windrow.views.history.commits import DEFINE, TICK


@dataclass(frozen=True)
class Batch:
    """What one record appended to a collection: all its updates up to `upper`."""

    version: int
    upper: int
    files: tuple[WrittenFile, ...]

    def to_json(self) -> list[Any]:
        files = [[file.path, file.rows, file.bytes, file.statistics] for file in self.files]
        return [self.version, self.upper, files]

    @staticmethod
    def from_json(data: list[Any]) -> Batch:
        version, upper, files = data
        return Batch(version, upper, tuple(WrittenFile(*file) for file in files))


@dataclass(frozen=True)
class Entry:
    """A collection as the history knows it.

    Its shard's log has reached at least `log_version`, and `log_upper` there. The batches in
    `pending` lie above: they may or may not be in the shard's log by now, which tells by its upper.
    """

    facts: Mapping[str, Any]
    upper: int = 0
    appended: int = 0  # the version that appended last
    log_version: int = 0
    log_upper: int = 0
    pending: tuple[Batch, ...] = ()

    def after(self, batch: Batch) -> Entry:
        pending = (*self.pending, batch)
        return replace(self, upper=batch.upper, appended=batch.version, pending=pending)

    def rolled(self, log_version: int, log_upper: int) -> Entry:
        """With what is known of the shard's log; it never goes back."""
        version, upper = max(self.log_version, log_version), max(self.log_upper, log_upper)
        pending = tuple(batch for batch in self.pending if batch.upper > upper)
        return replace(self, log_version=version, log_upper=upper, pending=pending)

    def to_json(self) -> dict[str, Any]:
        return {
            "facts": dict(self.facts),
            "upper": self.upper,
            "appended": self.appended,
            "log_version": self.log_version,
            "log_upper": self.log_upper,
            "pending": [batch.to_json() for batch in self.pending],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Entry:
        pending = tuple(map(Batch.from_json, data["pending"]))
        return Entry(**{**data, "pending": pending})


@dataclass(frozen=True)
class State:
    """A project after the record `version`, which has `checksum`."""

    version: int = 0
    checksum: str = ""
    time: int = 0  # the newest of all records
    ticked: int = 0
    defined: int = 0  # the version of the newest tick or definition
    catalogue: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    collections: Mapping[str, Entry] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)  # and when; until they are removed

    def after(self, record: Mapping[str, Any], checksum: str) -> State:
        """The state after the record that follows this one."""
        version = self.version + 1
        collections = dict(self.collections)
        dropped = dict(self.dropped)
        for id, facts in record.get("created", {}).items():
            collections[id] = Entry(facts)
        for id, files in record.get("appends", {}).items():
            parts = tuple(WrittenFile(*file) for file in files)
            collections[id] = collections[id].after(Batch(version, record["time"] + 1, parts))
        for id, (log_version, log_upper) in record.get("shards", {}).items():
            if id in collections:  # else it was dropped meanwhile
                collections[id] = collections[id].rolled(log_version, log_upper)
        for id in record.get("dropped", ()):
            del collections[id]
            dropped[id] = record["at"]
        for id in record.get("removed", ()):
            dropped.pop(id, None)
        changed = record.get("catalogue", {})
        catalogue = {n: d for n, d in self.catalogue.items() if n not in changed}
        catalogue |= {n: d for n, d in changed.items() if d is not None}
        return State(
            version=version,
            checksum=checksum,
            time=max(self.time, record["time"]),
            ticked=max(self.ticked, record.get("ticked", 0)),
            defined=version if record["kind"] in (TICK, DEFINE) else self.defined,
            catalogue=catalogue if changed else self.catalogue,
            collections=collections,
            dropped=dropped,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "checksum": self.checksum,
            "time": self.time,
            "ticked": self.ticked,
            "defined": self.defined,
            "catalogue": {name: dict(one) for name, one in self.catalogue.items()},
            "collections": {id: entry.to_json() for id, entry in self.collections.items()},
            "dropped": dict(self.dropped),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> State:
        entries = {id: Entry.from_json(entry) for id, entry in data["collections"].items()}
        return State(**{**data, "collections": entries})
