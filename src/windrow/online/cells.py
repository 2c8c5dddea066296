"""Cells of many keys: lifted from rows, combined with others, in any grouping and order.

key      int64      the number of the cell's key, ascending
start    int64      see `grid`, ascending within a key
words    (n, w)     machine words, see `algebra.words` and `served.WordParts`
states   per lane   the partial states of all other aggregates, by cell and bucket
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.words import Part, lift_words, merge_rows, value_words
from windrow.features.compute.buckets import lanes_of
from windrow.features.compute.elements import Elements
from windrow.features.compute.events import Events
from windrow.features.compute.timeline import Timelines
from windrow.online.grid import EXPIRED
from windrow.online.served import Lane, ServedGroup, WordParts
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk


@dataclass(frozen=True)
class CellStates:
    """The states of a lane: each of a cell (its number), and of the buckets in `levels`."""

    cell: np.ndarray
    levels: tuple[pa.Array, ...]
    states: pa.Array


@dataclass(frozen=True)
class Cells:
    key: np.ndarray
    start: np.ndarray
    words: np.ndarray
    states: tuple[CellStates, ...]

    @property
    def size(self) -> int:
        return int(self.key.size)

    def per_key(self, keys: int) -> np.ndarray:
        """Where the cells of each of `keys` keys begin, and last where they all end."""
        return np.searchsorted(self.key, np.arange(keys + 1))


def lifted(served: ServedGroup, events: Events, key: np.ndarray, sealed: np.ndarray) -> Cells:
    """The cells of some rows: `key` is the number of each row's key, `sealed` by that number.

    Rows are in any order.
    """
    start = served.grid.cells(events.times, sealed[key])
    kept = start != EXPIRED
    if not kept.all():
        some = np.flatnonzero(kept)
        events, key, start = _some(events, some), key[some], start[some]
    groups, leader = _grouped(key, start)
    words = _lifted_words(served.word_parts, events, groups, leader.size)
    states = tuple(_lifted_states(lane, events, groups) for lane in served.lanes)
    return Cells(key[leader], start[leader], words, states)


def _lifted_words(parts: WordParts, events: Events, groups: np.ndarray, cells: int) -> np.ndarray:
    """The machine words of cells, of the rows that `groups` puts into each."""
    words = np.zeros((cells, parts.width), np.int64)
    for source in dict.fromkeys(parts.inputs):
        own = [place for place, one in enumerate(parts.inputs) if one == source]
        values = single_chunk(events.inputs.column(source[0]))
        made = np.empty((len(own) - 1, len(values)), np.int64)  # the last is the count
        for place, row in zip(own, made, strict=False):
            row[:] = value_words(Part(parts.parts[place]), values)
        counted = _counts(events, values, source[1])
        kinds, columns = parts.parts[own], parts.columns[own]
        lift_words(made, events.times, counted, groups, kinds, columns, words)
    return words


def _counts(events: Events, values: pa.Array, condition: str | None) -> np.ndarray:
    """Whether each row counts: its value is not null, and its condition holds."""
    kept = np.ones(len(values), np.bool_)
    if values.null_count:
        kept = values.is_valid().to_numpy(zero_copy_only=False)
    return kept if condition is None else kept & events.conditions[condition]


def _some(events: Events, rows: np.ndarray) -> Events:
    return Events(
        events.keys.take(pa.array(rows)),
        events.times[rows],
        events.inputs.take(pa.array(rows)),
        {text: mask[rows] for text, mask in events.conditions.items()},
    )


def _grouped(key: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's cell, ascending by key and start; and a row of each cell."""
    if not key.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ordered = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (start[1:] >= start[:-1]))
    if ordered.all():
        new = np.ones(key.size, np.bool_)
        new[1:] = (key[1:] != key[:-1]) | (start[1:] != start[:-1])
        return np.cumsum(new) - 1, np.flatnonzero(new)
    return lanes_of(np.vstack([key, start]))


def _lifted_states(lane: Lane, events: Events, groups: np.ndarray) -> CellStates:
    none = np.zeros(0, np.int64)
    zeros = np.zeros(groups.size, np.int64)
    rows = Timelines(None, zeros, events.times, zeros, None, none, none, none, none)
    elements = Elements.make(lane.aggregation, events, rows)
    cell = groups[elements.events]
    codes = [exact(level) for level in elements.buckets]
    lanes, leader = lanes_of(np.vstack([cell, *codes]))
    times = events.times[elements.events]
    states = lane.states.lift(elements.values, times, lanes, leader.size)
    levels = tuple(level.take(pa.array(leader)) for level in elements.buckets)
    return CellStates(cell[leader], levels, states)


def combined(served: ServedGroup, several: Sequence[Cells], sealed: np.ndarray) -> Cells:
    """All of these cells as those of one sealed time for each key; what expired is gone."""
    key = np.concatenate([one.key for one in several])
    before = np.concatenate([one.start for one in several])
    start = served.grid.cells(before, sealed[key])
    kept = start != EXPIRED
    groups = np.full(key.size, -1)
    some = np.flatnonzero(kept)
    groups[some], leader = _grouped(key[some], start[some])
    leader = some[leader]
    parts = served.word_parts
    words = np.concatenate([one.words for one in several])
    if some.size < key.size:
        words = words[some]
    words = merge_rows(
        words, groups[some], leader.size, parts.counts, parts.parts, parts.columns, parts.widths
    )
    bases = np.cumsum([0, *(one.size for one in several)])
    states = []
    for number, lane in enumerate(served.lanes):
        found = [one.states[number] for one in several]
        cell = np.concatenate([s.cell + b for s, b in zip(found, bases, strict=False)])
        # Beyond the windows of this lane nothing reads it.
        reached = lane.grid.cells(before[cell], sealed[key[cell]]) != EXPIRED
        rows = np.flatnonzero(reached & (groups[cell] >= 0))
        levels = [pa.concat_arrays(parts) for parts in zip(*(s.levels for s in found), strict=True)]
        levels = [level.take(pa.array(rows)) for level in levels]
        state = pa.concat_arrays([s.states for s in found]).take(pa.array(rows))
        states.append(_combined_states(lane, groups[cell[rows]], levels, state))
    return Cells(key[leader], start[leader], words, tuple(states))


def _combined_states(
    lane: Lane, cell: np.ndarray, levels: Sequence[pa.Array], states: pa.Array
) -> CellStates:
    codes = [exact(level) for level in levels]
    lanes, leader = lanes_of(np.vstack([cell, *codes]))
    made = lane.states.combine(states, lanes, leader.size)
    return CellStates(cell[leader], tuple(level.take(pa.array(leader)) for level in levels), made)
