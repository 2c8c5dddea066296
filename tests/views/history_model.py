"""A project's history, and the naive truth about it: a list of updates for each collection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from oracle import Oracle, count_updates
from windrow.spark.tasks import WrittenFile
from windrow.views.history.collections import Collection
from windrow.views.history.commits import Commit
from windrow.views.history.history import History

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])

Update = tuple[int, str, int]  # k, v, diff


def table_of(updates: Iterable[Update]) -> pa.Table:
    columns = list(zip(*updates, strict=True)) or [(), (), ()]
    types = (pa.int64(), pa.string(), pa.int64())
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["k", "v", "_diff"])


def written(history: History, id: str, time: int, updates: Iterable[Update]) -> list[WrittenFile]:
    """Parts of the batch at `time`, which wait for their commit."""
    return history.collection(id).writer(time).write(table_of(updates).to_batches()).parts


def define(history: History, count: int = 1, **facts: Any) -> list[str]:
    """New collections of a history."""
    ids = [history.create_collection(SCHEMA, ["k"]) for _ in range(count)]
    created = dict.fromkeys(ids, facts)
    history.commit(Commit("define", history.time, created=created))
    return ids


def write(history: History, updates: dict[str, list[Update]], time: int | None = None) -> int:
    """Commit a write to some collections; its time."""
    time = history.time + 1 if time is None else time
    appends = {id: written(history, id, time, rows) for id, rows in updates.items()}
    history.commit(Commit("write", time, appends))
    return time


def content(collection: Collection, as_of: int | None = None) -> dict[tuple[Any, ...], int]:
    """Each row and its multiplicity."""
    return dict(count_updates(collection.snapshot(as_of).to_table(), with_time=False))


@dataclass
class Model:
    """What a project should hold."""

    time: int = 0
    ticked: int = 0
    collections: dict[str, Oracle] = field(default_factory=dict)

    def append(self, id: str, time: int, updates: Iterable[Update]) -> None:
        rows = [({"k": k, "v": v}, time, diff) for k, v, diff in updates]
        self.collections[id].append(rows)

    def check(self, history: History) -> None:
        """Every collection is right at every time that can be read."""
        assert (history.time, history.ticked) == (self.time, self.ticked)
        assert set(history.collections()) == set(self.collections)
        for id, oracle in self.collections.items():
            self.check_collection(history.collection(id), oracle)

    def check_collection(self, found: Collection, oracle: Oracle) -> None:
        assert found.since <= max(self.ticked, 0)
        oracle.since = found.since
        for time in range(found.since, self.time + 2):
            rows = count_updates(found.snapshot(time).to_table(), with_time=False)
            assert rows == oracle.snapshot(time)
            changes = found.changes(time, self.time + 1) if time <= self.time + 1 else None
            if changes is not None:
                counted = count_updates(changes.to_table(), with_time=True)
                assert counted == oracle.changes(time, self.time + 1)
