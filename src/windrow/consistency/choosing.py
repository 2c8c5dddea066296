"""Which examples a report shows: the worst, of every feature, hour and key some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from windrow.consistency.compare import EXAMPLES, VERSION
from windrow.consistency.replay import Replay
from windrow.consistency.report import Example
from windrow.consistency.texts import as_json
from windrow.online.log.columns import AT, CLOCK, FRESH, KEY, REQUEST, WRITER
from windrow.time import HOUR


@dataclass(frozen=True)
class Chosen:
    """An example, the group of its feature (None: derived), and its row of comparisons."""

    example: Example
    group: str | None
    row: pa.Table
    values: Mapping[str, Any]  # the same, in Python

    @property
    def request(self) -> tuple[Any, ...]:
        """The same for all examples of one row of the log."""
        names = (AT, WRITER, REQUEST, KEY)
        return tuple(self.values.get(name) for name in names) + tuple(
            str(value) for value in self.example.keys.values()
        )


def choose_examples(
    found: Sequence[pa.Table],
    most: int,
    keys: Sequence[str],
    replays: Sequence[Replay],
) -> list[Chosen]:
    """At most so many."""
    groups = {one.name: one.group for replay in replays for one in replay.sides.features}
    turns: list[dict[str, Any]] = []
    for number, table in enumerate(found):
        names = [name.removeprefix("__") for name in EXAMPLES.names]
        own = table.select(EXAMPLES.names).rename_columns(names).to_pylist()
        turns += [{**row, "place": (number, place)} for place, row in enumerate(own)]
    chosen: list[Chosen] = []
    for one in _in_turns(turns)[:most]:
        number, place = one["place"]
        row = found[number].slice(place, 1).drop_columns(EXAMPLES.names)
        values = row.to_pylist()[0]
        group = groups.get(one["feature"])
        example = _example(one["feature"], one["at"], values, keys, group)
        chosen.append(Chosen(example, group, row, values))
    return chosen


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
    """Features take turns. Of each the worst of every hour comes first, further keys before more
    of the same."""
    places: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda one: (-one["severity"], one["at"], one["row"])):
        places.setdefault((row["feature"], row["at"] // HOUR), []).append(row)
    features: dict[str, list[tuple[bool, int, int, dict[str, Any]]]] = {}
    for (feature, hour), several in places.items():
        seen: set[int] = set()
        for turn, row in enumerate(several):
            features.setdefault(feature, []).append((row["key"] in seen, turn, hour, row))
            seen.add(row["key"])
    ranked = [
        (rank, feature, row)
        for feature, own in features.items()
        for rank, (*_, row) in enumerate(sorted(own, key=lambda one: one[:3]))
    ]
    return [row for *_, row in sorted(ranked, key=lambda one: one[:2])]


def millis(value: datetime | None) -> int | None:
    """Milliseconds of a time that Arrow gave."""
    return None if value is None else round(value.timestamp() * 1000)
