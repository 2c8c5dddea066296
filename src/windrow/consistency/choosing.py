"""Which examples a report shows: the worst, of every feature, hour and key some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.consistency.compare import EXAMPLES, VERSION
from windrow.consistency.replay import Replay
from windrow.consistency.report import Example
from windrow.consistency.texts import as_json
from windrow.online.log.columns import CLOCK, FRESH
from windrow.storage.store import Store
from windrow.time import HOUR


@dataclass(frozen=True)
class Chosen:
    """An example, the group of its feature (None: derived), and its row of comparisons."""

    example: Example
    group: str | None
    row: pa.Table
    values: Mapping[str, Any]  # the same, in Python
    place: tuple[str, int]  # the file of the row, and its number there


def choose_examples(
    found: Sequence[pa.Table],
    target: Store,
    most: int,
    keys: Sequence[str],
    replays: Sequence[Replay],
) -> list[Chosen]:
    """At most so many."""
    table = pa.concat_tables(found) if found else EXAMPLES.empty_table()
    groups = {one.name: one.group for replay in replays for one in replay.sides.features}
    chosen: list[Chosen] = []
    rows: dict[tuple[str, int], pa.Table] = {}
    for one in _in_turns(table.to_pylist())[:most]:
        place = (one["path"], one["row"])
        if place not in rows:
            with pq.ParquetFile(target.open_input(one["path"])) as file:
                rows[place] = _row(file, one["row"])
        values = rows[place].to_pylist()[0]
        group = groups.get(one["feature"])
        example = _example(one["feature"], one["at"], values, keys, group)
        chosen.append(Chosen(example, group, rows[place], values, place))
    return chosen


def _row(file: pq.ParquetFile, number: int) -> pa.Table:
    """One row; only the row group that has it is read."""
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if number < size:
            return file.read_row_group(group, use_threads=False).slice(number, 1)
        number -= size
    raise IndexError(number)


def _example(
    feature: str, at: int, values: Mapping[str, Any], keys: Sequence[str], group: str | None
) -> Example:
    value, fresh = values[feature], values.get(FRESH) or {}
    times = [time for time in fresh.values() if time is not None]
    return Example(
        feature,
        {key: as_json(values[key]) for key in keys},
        at,
        value["outcome"],
        as_json(value["online"]),
        as_json(value["offline"]),
        value["error"],
        values[VERSION],
        millis(values.get(CLOCK)),
        millis(fresh.get(group) if group is not None else min(times, default=None)),
    )


def _in_turns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each feature and hour the worst; those of further keys before those of the same."""
    places: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda one: (-one["severity"], one["at"], one["row"])):
        places.setdefault((row["feature"], row["at"] // HOUR), []).append(row)
    turns: list[tuple[bool, int, int, dict[str, Any]]] = []
    for number, (_, several) in enumerate(sorted(places.items())):
        seen: set[int] = set()
        for turn, row in enumerate(several):
            turns.append((row["key"] in seen, turn, number, row))
            seen.add(row["key"])
    return [row for *_, row in sorted(turns, key=lambda one: one[:3])]


def millis(value: datetime | None) -> int | None:
    """Milliseconds of a time that Arrow gave."""
    return None if value is None else round(value.timestamp() * 1000)
