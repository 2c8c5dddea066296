"""The newest rows and changes of a relation, read from its parts without Spark, some of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.shard.predicate import Predicate, col
from windrow.updates import DIFF, TIME
from windrow.views.history.collections import Collection
from windrow.views.sources.numbers import BASE, MISSING, NUMBER

SHOWN = 20  # rows and changes on a page
READ = 2_000  # updates that are read at most to find them


@dataclass(frozen=True)
class Change:
    """An update: when, how often a row came or went, and the row."""

    time: int
    diff: int
    row: Sequence[Any]


@dataclass(frozen=True)
class Newest:
    """Of a relation at a time: its columns, rows that came last, and the last changes.

    `all_changes` and `all_rows` say whether these are all that there are.
    """

    columns: tuple[str, ...]
    upper: int
    rows: tuple[Change, ...] = ()
    changes: tuple[Change, ...] = ()
    all_rows: bool = True
    all_changes: bool = True


def newest(
    collection: Collection,
    columns: Sequence[str],
    upper: int | None = None,
    where: Predicate | None = None,
) -> Newest:
    """What is newest before `upper`, by default of all; of rows that fulfil `where`."""
    names = [name for name in columns if name in collection.spec.schema.names]
    end = min(collection.upper if upper is None else upper, collection.upper)
    if end <= collection.since and not collection.parts:
        return Newest(tuple(names), end)
    updates, complete = _last_updates(collection, names, end, where)
    latest: dict[Any, list[Any]] = {}
    for time, diff, row in updates:  # the newest first
        known = latest.setdefault(_key(row), [0, time, row])
        known[0] += diff
    rows = [Change(time, net, row) for net, time, row in latest.values() if net > 0]
    if not complete and len(rows) < SHOWN:
        seen = {_key(one.row) for one in rows}
        as_of = max(end - 1, collection.since)
        read = collection.snapshot(as_of, columns=names, where=where, limit=2 * SHOWN)
        table = read.to_table()
        for _, net, row in _tuples(table, names):
            if _key(row) not in seen and net > 0:
                rows.append(Change(0, net, row))
    changes = [Change(*one) for one in updates]
    return Newest(
        tuple(names),
        end,
        tuple(rows[:SHOWN]),
        tuple(changes[:SHOWN]),
        complete and len(rows) <= SHOWN,
        complete and len(changes) <= SHOWN,
    )


def _last_updates(
    collection: Collection, names: Sequence[str], end: int, where: Predicate | None
) -> tuple[list[tuple[int, int, Sequence[Any]]], bool]:
    """Some of the last updates, the newest first; and whether these are all of them.

    Parts are taken from the newest back, as long as all of their updates can be read.
    """
    lower, found, complete = end, 0, True
    parts = sorted(collection.parts, key=lambda part: part.time[1], reverse=True)
    for part in parts:
        if part.time[0] >= end:
            continue
        if found and found + part.rows > READ:
            complete = False
            break
        found += part.rows
        lower = min(lower, part.time[0])
    lower = max(lower, collection.since)
    if lower >= end:
        return [], not parts
    read = collection.changes(lower, end, columns=list(names), where=where, limit=READ)
    table = read.to_table()
    complete = complete and table.num_rows < READ
    updates = sorted(_tuples(table, names), key=lambda one: one[0], reverse=True)
    return updates, complete


def _tuples(table: pa.Table, names: Sequence[str]) -> list[tuple[int, int, Sequence[Any]]]:
    times, diffs = table.column(TIME).to_pylist(), table.column(DIFF).to_pylist()
    columns = [table.column(name).to_pylist() for name in names]
    rows: list[Sequence[Any]] = list(zip(*columns, strict=True)) if columns else [()] * len(times)
    return list(zip(times, diffs, rows, strict=True))


def _key(row: Sequence[Any]) -> str:
    """Equal for equal rows; values may be lists or maps."""
    return repr(row)


def left_out(collection: Collection, columns: Sequence[str], most: int = SHOWN) -> list[Change]:
    """Some of the changes in the quarantine of a source; `time` is -1 for those without one."""
    names = [name for name in columns if name in collection.spec.schema.names]
    if NUMBER not in collection.spec.schema.names or not collection.parts:
        return []
    read = collection.snapshot(
        columns=[*names, NUMBER], where=col(NUMBER) <= MISSING, limit=4 * most
    )
    table = read.to_table()
    numbers = table.column(NUMBER).to_pylist()
    found = []
    for number, (_, diff, row) in zip(numbers, _tuples(table, names), strict=True):
        if number == MISSING or number % 2 == 0:  # not what cancels them
            found.append(Change(0 if number == MISSING else -1, abs(diff), row))
    return found[:most]


def rows_of_source(collection: Collection) -> Predicate | None:
    """What tells the rows of a source from its quarantine; None where there is none."""
    if NUMBER not in collection.spec.schema.names:
        return None
    found: Predicate = col(NUMBER) >= BASE
    return found
