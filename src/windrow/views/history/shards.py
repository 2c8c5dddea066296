"""The shards of a project's collections: their logs, opened when first used and then kept.

Opening a log takes milliseconds, and a project may have hundreds. A log that was opened is read
again only when the history says that it has moved on: it was rolled forward, or compacted, perhaps
by another process. A shard's own commits are therefore recorded in the history, and parts that a
compaction has replaced are deleted only after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.errors import StorageError, TimeRangeError
from windrow.shard.log import Log
from windrow.shard.part import Part
from windrow.shard.spec import Order, ShardSpec, by_hash
from windrow.storage.store import Store
from windrow.views.history.collections import Collection, collection_store
from windrow.views.history.pending import part_of
from windrow.views.history.state import Entry


@dataclass
class Shards:
    """The logs that a handle on the history has opened, and the collections it has made of them."""

    root: Store
    _logs: dict[str, Log] = field(default_factory=dict)
    _made: dict[str, tuple[Entry, int, Collection]] = field(default_factory=dict)
    _parts: dict[str, dict[str, Part]] = field(default_factory=dict)  # pending ones, by path

    def create(self, id: str, schema: pa.Schema, key: Sequence[str], order: Order | None) -> None:
        spec = ShardSpec.make(schema, list(key), order if order is not None else by_hash())
        store = collection_store(self.root, id)
        with store.creating():
            self._logs[id] = Log.create(store, spec, {"windrow.collection": id})

    def log(self, id: str, entry: Entry) -> Log:
        """The log of a collection's shard, at least as new as the history says."""
        log = self._logs.get(id)
        if log is None:
            log = self._logs[id] = Log.open(collection_store(self.root, id))
        elif log.version < entry.log_version:
            log.refresh()
        if log.version < entry.log_version or log.upper < entry.log_upper:
            raise StorageError(
                f"{log.store.uri}: the history knows of version {entry.log_version} of this "
                f"shard's log, with upper {entry.log_upper}, and the log ends at version "
                f"{log.version} with upper {log.upper}. Restore the folder from a copy"
            )
        return log

    def collection(self, id: str, entry: Entry) -> Collection:
        log = self.log(id, entry)
        made = self._made.get(id)
        if made is not None and made[0] is entry and made[1] == log.version:
            return made[2]
        if log.since >= max(entry.upper, 1):
            raise TimeRangeError(
                f"{log.store.uri}: the history goes on, and this version of the collection, up to "
                f"{entry.upper}, has been forgotten: it can be read from {log.since} on. Refresh "
                "the history, and read again"
            )
        # An append may be in the log by now; its upper tells.
        pending = self._pending(id, entry, log.spec.schema, log.upper)
        parts = (*log.parts(), *pending)
        found = Collection(id, log.store, log.spec, log.since, entry.upper, parts)
        self._made[id] = entry, log.version, found
        return found

    def _pending(self, id: str, entry: Entry, schema: pa.Schema, upper: int) -> list[Part]:
        known = self._parts.get(id, {})
        files = [file for batch in entry.pending if batch.upper > upper for file in batch.files]
        parts = {file.path: known.get(file.path) or part_of(file, schema) for file in files}
        self._parts[id] = parts
        return list(parts.values())

    def news(self, entries: Mapping[str, Entry]) -> dict[str, tuple[int, int]]:
        """What the opened logs say that the history does not know: version and upper of each."""
        known = ((id, log, entries.get(id)) for id, log in self._logs.items())
        return {
            id: (log.version, log.upper)
            for id, log, entry in known
            if entry is not None and log.version > entry.log_version and not log.retired
        }

    def ahead(self, id: str, entry: Entry) -> StorageError:
        log = self.log(id, entry)
        return StorageError(
            f"{log.store.uri}: the shard is known up to {log.upper - 1}, and the history up to "
            f"{entry.upper - 1}. Records are missing, or someone appended to the shard itself; "
            "restore the project's folder from a copy"
        )

    def discard(self, id: str, entry: Entry, paths: set[str]) -> None:
        """Delete those of the files that neither the history nor the shard's log names."""
        log = self.log(id, entry)
        log.refresh()
        waiting = {file.path for batch in entry.pending for file in batch.files}
        log.store.discard(sorted(paths - waiting - {part.path for part in log.parts()}))

    def forget(self, id: str) -> None:
        for known in (self._logs, self._made, self._parts):
            known.pop(id, None)
