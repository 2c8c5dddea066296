"""How a served value came about: the record of a key, and of it what lies in a feature's window.

Of tiles these are cells, each with the value that its rows alone would give; of records of rows,
the rows as they were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.algebra.words import EMPTY, lower_words
from windrow.console.catalogue import Group
from windrow.errors import NotServedError, RequestError
from windrow.features.compute.partials import QUERY, STATE, combine_partials
from windrow.features.inputs.layout import EVENT_TIME, SOURCE
from windrow.online.evaluate import Evaluator, python_values
from windrow.online.fetch import Fetcher
from windrow.online.fetched import Fetched, Status
from windrow.online.generations import note_name
from windrow.online.grid import OLD
from windrow.online.keys import KeyReader
from windrow.online.live_rows import decode_rows
from windrow.online.records import SEALED, Found
from windrow.online.served import TILES, ServedGroup
from windrow.online.stores.store import RecordStore
from windrow.sources.columns import KNOWN_AT
from windrow.updates import DIFF, int64_values

MOST = 400  # cells or rows that are shown


@dataclass(frozen=True)
class Cell:
    """Rows of a key that lie together: from `start` on, `rows` of them, and what they give.

    `start` is None for all that only lifetime aggregates reach. `rows` is None where only states
    are kept. `inside` says whether the feature's window reaches it.
    """

    start: int | None
    rows: int | None
    value: Any
    inside: bool
    sealed: bool


@dataclass(frozen=True)
class KeptRow:
    """A row of a record of rows: its time, when that became known, how often, and its values."""

    time: int
    known_at: int
    diff: int
    values: Mapping[str, Any]
    inside: bool


@dataclass(frozen=True)
class Explained:
    """A value with what it was made of. Times are milliseconds."""

    at: int
    value: Any
    status: Status
    fresh_at: int
    start: int | None  # of the window; None: from the beginning
    end: int
    form: str
    sealed: int | None  # None: there is no record of this key
    bytes: int
    cells: tuple[Cell, ...] = ()
    rows: tuple[KeptRow, ...] = ()
    left_out: int = 0

    @property
    def counted(self) -> int:
        """How many cells or rows are in the window."""
        return sum(one.inside for one in self.cells) + sum(one.inside for one in self.rows)


def explain(
    records: RecordStore,
    fetcher: Fetcher,
    group: Group,
    number: int,
    key: Mapping[str, Any],
    at: int | None,
) -> Explained:
    """The value of a feature for a key, and how it came about. A RequestError if it cannot be."""
    if group.current is None:
        raise NotServedError(f"{group.name} is not online; `windrow upload` puts it there")
    served, generation = group.current.served, group.current.number
    feature = served.features[number]
    fetched: Fetched = fetcher.fetch(group.name, [key], at=at, features=[feature.name])
    reader = KeyReader(
        group.name, list(zip(served.group.keys, served.layout.key_types, strict=True))
    )
    name = reader.read(generation, key)
    raw = None
    if name is not None:
        _, (raw,) = records.read([note_name(group.name)], [name])
    found = Found.of(served, [raw])
    bounds = feature.window.bounds(served.group.effective_times(np.array([fetched.at])))
    start, end = (int(one[0]) for one in bounds)
    sealed = int(found.data[found.at[0] + SEALED]) if found.at[0] >= 0 else None
    cells: tuple[Cell, ...] = ()
    rows: tuple[KeptRow, ...] = ()
    left_out = 0
    if sealed is not None and served.form == TILES:
        cells, left_out = _cells(served, number, found, (start, end), sealed)
    elif sealed is not None:
        rows, left_out = _rows(served, found, (start, end), fetched.at)
    return Explained(
        fetched.at,
        fetched.columns[0][0],
        fetched.statuses[0][0],
        fetched.fresh_at[0],
        None if start <= OLD else start,
        end,
        served.form,
        sealed,
        0 if raw is None else len(raw),
        cells,
        rows,
        left_out,
    )


def _cells(
    served: ServedGroup, number: int, found: Found, window: tuple[int, int], sealed: int
) -> tuple[tuple[Cell, ...], int]:
    cells = found.cells()
    values, counts = _by_cell(served, number, found, cells.size)
    made = []
    for at, start in enumerate(cells.start.tolist()):
        if counts is not None and counts[at] == 0:
            continue  # rows of it count for other features
        if counts is None and values[at] is None:
            continue
        inside = window[0] <= start < window[1]
        shown = None if start == OLD else start
        rows = None if counts is None else counts[at]
        made.append(Cell(shown, rows, values[at], inside, start < sealed))
    made.sort(key=lambda one: (not one.inside, -(one.start or 0)))
    return tuple(made[:MOST]), max(0, len(made) - MOST)


def _by_cell(
    served: ServedGroup, number: int, found: Found, size: int
) -> tuple[list[Any], list[int] | None]:
    """What each cell by itself gives, and of how many values; None if only states are kept."""
    words = next((one for one in served.word_features if one.feature == number), None)
    cells = found.cells()
    if words is None:
        lane = next(
            lane for lane in served.lanes if number in (place for place, _, _ in lane.features)
        )
        lowered = next(states for place, _, states in lane.features if place == number)
        own = cells.states[served.lanes.index(lane)]
        names = [QUERY, *(f"b{i}" for i in range(len(own.levels))), STATE]
        table = pa.table([pa.array(own.cell), *own.levels, own.states], names=names)
        return python_values(combine_partials(lowered, [table], size)), None
    evaluator = Evaluator(served)
    maker = evaluator.maker(number)
    made: list[Any] = []
    counts = cells.words[:, words.count].tolist()
    column, two = words.column, words.words.part.width == 2
    for at, count in enumerate(counts):
        a = cells.words[at, column]
        b = cells.words[at, column + 1] if two else np.int64(0)
        if int(words.words.part) >= 6:  # EARLIEST, LATEST: the time comes first
            a, b = b, np.int64(0)
        whole, real, state = lower_words(int(words.words.result), np.int64(count), a, b)
        value = float(real) if words.words.gives_float else int(whole)
        made.append(None if state == EMPTY else value if maker is None else maker(value))
    return made, counts


def _rows(
    served: ServedGroup, found: Found, window: tuple[int, int], at: int
) -> tuple[tuple[KeptRow, ...], int]:
    live = decode_rows(found)
    layout = served.layout
    times, known = int64_values(live.rows, EVENT_TIME), int64_values(live.rows, KNOWN_AT)
    diffs = int64_values(live.rows, DIFF)
    limit = int(served.group.effective_times(np.array([at]))[0])
    hidden = {EVENT_TIME, KNOWN_AT, DIFF, SOURCE}
    names = dict(zip(layout.values, layout.inputs, strict=True))
    names |= dict(zip(layout.masks, layout.conditions, strict=True))
    columns = {
        names.get(name, name): live.rows.column(name).to_pylist()
        for name in live.rows.column_names
        if name not in hidden
    }
    made = [
        KeptRow(
            int(times[i]),
            int(known[i]),
            int(diffs[i]),
            {name: values[i] for name, values in columns.items()},
            bool(window[0] <= times[i] < window[1] and known[i] < limit),
        )
        for i in range(live.size)
    ]
    made.sort(key=lambda one: (not one.inside, -one.time, -one.known_at))
    return tuple(made[:MOST]), max(0, len(made) - MOST)


def read_key(
    group: Group, given: Mapping[str, str], typed: Any
) -> tuple[dict[str, Any], Sequence[str]]:
    """The key that a form gives, and the columns that it leaves out."""
    if group.current is None:
        raise RequestError(f"{group.name} is not online")
    served = group.current.served
    types = zip(served.group.keys, served.layout.key_types, strict=True)
    key = {name: typed(given[name], str(type_)) for name, type_ in types if name in given}
    return key, [name for name in served.group.keys if name not in given]
