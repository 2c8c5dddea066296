"""Each way of writing to a shard, and what it leads to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from oracle import Oracle, count_updates
from windrow import Shard
from windrow.updates import update_schema

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
BATCHES = 3
Options = dict[str, str] | None


def batch(number: int) -> list[tuple[dict[str, Any], int, int]]:
    """Updates at one time; each batch retracts half of the one before it."""
    rows = [({"k": k, "v": f"{number}-{k}" * 8}, number, 1) for k in range(40)]
    gone = [({"k": k, "v": f"{number - 1}-{k}" * 8}, number, -1) for k in range(20)]
    return [*rows, *(gone if number else [])]


def append(shard: Shard, number: int) -> bool:
    updates = [{**row, "_time": time, "_diff": diff} for row, time, diff in batch(number)]
    table = pa.Table.from_pylist(updates, update_schema(SCHEMA))
    return shard.append(table, lower=number, upper=number + 1)


def filled(uri: str, options: Options = None) -> Shard:
    """A shard of some batches, and parts that compaction has replaced."""
    shard = Shard.create(uri, SCHEMA, key=["k"], storage_options=options)
    for number in range(BATCHES - 1):
        append(shard, number)
    shard.compact(everything=True)
    append(shard, BATCHES - 1)
    return shard


def check(uri: str, batches: int, since: int, options: Options = None) -> None:
    """The shard holds what so many batches lead to, at every time that it may be read."""
    shard = Shard.open(uri, storage_options=options)
    assert (shard.upper, shard.since) == (batches, since)
    oracle = Oracle(SCHEMA, [one for number in range(batches) for one in batch(number)], since)
    for as_of in range(since, batches):
        found = shard.snapshot(as_of, cache=None).to_table()
        assert count_updates(found, with_time=False) == oracle.snapshot(as_of)


@dataclass(frozen=True)
class Operation:
    """Something that writes. `done` tells whether it has happened, `batches` what is there then."""

    run: Callable[[Shard], Any]
    done: Callable[[Shard], bool]
    batches: int = BATCHES
    since: int = 0

    def check(self, uri: str, options: Options = None) -> bool:
        """The shard is as before, or as after it; which of the two."""
        found = self.done(Shard.open(uri, storage_options=options))
        check(uri, self.batches if found else BATCHES, self.since if found else 0, options)
        return found


def _hold(shard: Shard) -> None:
    with shard.hold(1):
        shard.snapshot(1).to_table()


OPERATIONS = {
    "append": Operation(
        lambda shard: append(shard, BATCHES), lambda shard: shard.upper > BATCHES, BATCHES + 1
    ),
    "compact": Operation(
        lambda shard: shard.compact(everything=True), lambda shard: shard.stats().runs == 1
    ),
    "advance_since": Operation(
        lambda shard: shard.advance_since(1), lambda shard: shard.since == 1, since=1
    ),
    "hold": Operation(_hold, lambda shard: False),
    "vacuum": Operation(
        lambda shard: shard.vacuum(retention_hours=0),
        lambda shard: len(shard._log.store.names()) == len(shard.parts()),
    ),
}


def tree(folder: str | Path) -> set[str]:
    """All files beneath a folder, but for the entries of logs."""
    found = {os.path.join(at, name) for at, _, names in os.walk(folder) for name in names}
    return {path for path in found if "_delta_log" not in path}
