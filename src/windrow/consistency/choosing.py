"""Which examples a report shows: the worst, of every feature, hour and key some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.algebra.arrays import enumerate_lists
from windrow.consistency.compare import EXAMPLES, VERSION
from windrow.consistency.replay import Replay
from windrow.consistency.report import Example
from windrow.consistency.texts import as_json
from windrow.online.log.columns import AT, CLOCK, FRESH, KEY, REQUEST, WRITER
from windrow.rows.types import single_chunk
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
    if not found:
        return []
    every = pa.concat_tables([table.select(EXAMPLES.names) for table in found])
    ends = np.cumsum([table.num_rows for table in found])
    chosen: list[Chosen] = []
    for place in _in_turns(every)[:most].tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        row = found[number].slice(place - int(ends[number]) + found[number].num_rows, 1)
        feature, at = (row.column(name)[0].as_py() for name in ("__feature", "__at"))
        row = row.drop_columns(EXAMPLES.names)
        values = row.to_pylist()[0]
        group = groups.get(feature)
        chosen.append(Chosen(_example(feature, at, values, keys, group), group, row, values))
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


def _in_turns(rows: pa.Table) -> np.ndarray:
    """The places of rows with the columns of `EXAMPLES`: features take turns.

    Of each the worst of every hour comes first, further keys before more of the same.
    """
    names = single_chunk(rows.column("__feature")).dictionary_encode()
    features = pc.rank(names.dictionary).to_numpy()[names.indices.to_numpy()]
    row, severity, at, keys = (
        single_chunk(rows.column(name)).to_numpy() for name in EXAMPLES.names[1:]
    )
    hours = at // HOUR
    worst = np.lexsort([row, at, -severity])
    turns = _ranks([hours, features], worst)
    again = _ranks([keys, hours, features], worst) > 0
    ranks = _ranks([features], np.lexsort([hours, turns, again]))
    return np.lexsort([features, ranks])


def _ranks(groups: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """The place of each row among those of its group, which agree in `groups`, in this order."""
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    sorted_ = np.lexsort([places, *groups])
    new = np.ones(order.size, np.bool_)
    new[1:] = np.logical_or.reduce([g[sorted_[1:]] != g[sorted_[:-1]] for g in groups])
    ranks = np.empty(order.size, np.int64)
    ranks[sorted_] = enumerate_lists(np.diff(np.append(np.flatnonzero(new), new.size)))[1]
    return ranks


def millis(value: datetime | None) -> int | None:
    """Milliseconds of a time that Arrow gave."""
    return None if value is None else round(value.timestamp() * 1000)
