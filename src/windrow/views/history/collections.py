"""Collections: the shards of a project, as of a version of its history.

The newest batches of a collection may be named by the history alone; `parts` are those of the
shard's log and these. A collection is a value: whatever is committed later, it reads the same.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.errors import OptionError, TimeRangeError
from windrow.shard.append import BatchWriter
from windrow.shard.cache import PartCache
from windrow.shard.keys import KeySet
from windrow.shard.log import LATEST
from windrow.shard.merge import Consolidation
from windrow.shard.part import Part
from windrow.shard.predicate import Predicate, bind
from windrow.shard.read import Read
from windrow.shard.scan import Scan, TimeRange
from windrow.shard.spec import Order, ShardSpec
from windrow.storage.store import Store
from windrow.views.history.pending import part_name

FOLDER = "collections"


@dataclass(frozen=True)
class Collection:
    """A durable collection of updates, as of a version of the history.

    `upper` is the end of its last batch. Nothing more has been committed to it, up to the time of
    the history (for what a tick writes: up to `ticked`), so it can be read at later times as well
    and is then what it was; whoever reads knows up to which time that is final.
    """

    id: str
    store: Store
    spec: ShardSpec
    since: int
    upper: int
    parts: tuple[Part, ...]

    def snapshot(
        self,
        as_of: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        keys: pa.Table | None = None,
        limit: int | None = None,
        consolidate: Consolidation | str = Consolidation.FULL,
        cache: PartCache | bool | None = True,
    ) -> Read:
        """The collection as it was at `as_of`, by default at its last time; as `Shard.snapshot`."""
        if as_of is None:
            as_of = max(self.upper - 1, self.since)
        if as_of < self.since:
            raise self._range_error(f"a snapshot at {as_of}")
        # What comes later than this version of the history may be in the shard's parts already.
        times = TimeRange(None, min(as_of, self.upper - 1), as_of)
        return self._read(times, columns, where, keys, limit, consolidate, cache)

    def changes(
        self,
        lower: int,
        upper: int,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        keys: pa.Table | None = None,
        limit: int | None = None,
        consolidate: Consolidation | str = Consolidation.FULL,
        cache: PartCache | bool | None = True,
    ) -> Read:
        """The updates with times in `[lower, upper)`; as `Shard.changes`.

        With `lower` at `since`, what happened before comes too, at time `since`. A reader that has
        read up to `since` asks for changes from `since + 1` on.
        """
        if not self.since <= lower <= upper:
            raise self._range_error(f"changes in [{lower}, {upper})")
        start = lower if lower > self.since or lower == upper else None
        times = TimeRange(start, min(upper, self.upper) - 1, lower)
        return self._read(times, columns, where, keys, limit, consolidate, cache)

    def updates_since(self, lower: int) -> int:
        """How many updates have times from `lower` on, or a few more."""
        return sum(part.rows for part in self.parts if part.time[1] >= lower)

    def writer(self, time: int) -> BatchWriter:
        """Writes the next batch, up to and with `time`; rows without a `_time` happen then."""
        if not self.upper <= time < LATEST:
            raise TimeRangeError(
                f"collection {self.id}: a batch at {time} is not possible: updates are known up "
                f"to {self.upper - 1}, and a batch comes after"
            )
        return BatchWriter(self.store, self.spec, self.upper, time + 1, at=time, remembered=True)

    def to_json(self) -> dict[str, Any]:
        """All but the store's options, which may be secrets, and bounds of columns; for a task."""
        return {
            "id": self.id,
            "uri": self.store.uri,
            "schema": _schema_text(self.spec.schema),
            "key": list(self.spec.key),
            "order": [self.spec.order.kind, *self.spec.order.columns],
            "since": self.since,
            "upper": self.upper,
            "parts": [[p.path, p.rows, p.bytes, *p.prefix, *p.time] for p in self.parts],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any], options: tuple[tuple[str, str], ...] = ()) -> Collection:
        """The collection that `to_json` wrote down; `options` are those of the project's store."""
        kind, *columns = data["order"]
        key = tuple(data["key"])
        return Collection(
            data["id"],
            Store(data["uri"], options, data["uri"]),
            _spec(data["schema"], key, kind, tuple(columns)),
            data["since"],
            data["upper"],
            tuple(_part(*part) for part in data["parts"]),
        )

    def _range_error(self, what: str) -> TimeRangeError:
        return TimeRangeError(
            f"collection {self.id}: {what} is not possible: it can be read at times from "
            f"{self.since} on. Read at a later time, or hold the time that is needed"
        )

    def _read(
        self,
        times: TimeRange,
        columns: Sequence[str] | None,
        where: Predicate | None,
        keys: pa.Table | None,
        limit: int | None,
        consolidate: Consolidation | str,
        cache: PartCache | bool | None,
    ) -> Read:
        spec = self.spec
        if limit is not None and limit < 0:
            raise OptionError(f"limit is {limit}; it has to be 0 or more")
        scan = Scan(
            store=self.store,
            spec=spec,
            times=times,
            columns=spec.check_columns(spec.schema.names if columns is None else columns, "read"),
            where=bind(where, spec.schema) if where is not None else None,
            keys=KeySet.make(keys, spec) if keys is not None else None,
            limit=limit,
            cache=PartCache.default() if cache is True else cache or None,
        )
        return Read(scan, list(self.parts), Consolidation(consolidate))


def collection_store(root: Store, id: str) -> Store:
    """Where the shard of a project's collection is stored."""
    return root.beneath(f"{FOLDER}/{id}")


@functools.lru_cache(maxsize=16_384)
def _part(path: str, rows: int, size: int, *bounds: int) -> Part:
    first, last, start, end = bounds
    return Part(path, part_name(path), rows, size, (first, last), (start, end))


@functools.lru_cache(maxsize=1_024)
def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


@functools.lru_cache(maxsize=1_024)
def _spec(schema: str, key: tuple[str, ...], kind: str, columns: tuple[str, ...]) -> ShardSpec:
    rows = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    return ShardSpec(rows, key, Order(kind, columns))
