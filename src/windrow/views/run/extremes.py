"""The least and the largest value of groups, by one of three plans.

    growing   the input is append-only: the best of what was and what comes; nothing is kept
    sorted    values are kept in their order: the next one is searched where they begin or end
    levels    values are kept in ever larger subgroups (see `levels`): the next one advances

Each takes in the changes of one column's values, and then says what is best, for min and for max.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.errors import DataError
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.shard.edges import Change, edges
from windrow.views.run.levels import Level, Reached, advanced
from windrow.views.run.task import Arranged, Task
from windrow.views.run.weighted import Groups, Weighted, take


class Updated(Protocol):
    """What became of the values of touched groups."""

    def best(self, largest: bool, was: pa.Array) -> pa.Array:
        """The least or largest value of each group after the change, from the one before it."""


class Extremes(Protocol):
    """How the least and largest of one column of values are maintained."""

    def updated(self, task: Task, values: Weighted, groups: Groups) -> Updated:
        """Take in changes: key columns, the value (never NULL), each row once."""


@dataclass(frozen=True)
class Growing:
    """Of values that only come, the best is known by the last best."""

    def updated(self, task: Task, values: Weighted, groups: Groups) -> Updated:
        gone = np.flatnonzero(values.weights < 0)
        if gone.size:
            row = {name: column[0].as_py() for name, column in _row(values, gone).items()}
            raise DataError(
                f"a value is retracted, {row!r:.300}, and its input is append-only. State and "
                "inputs do not agree; REFRESH the view to rebuild it"
            )
        return _Compared(_change(values, groups), groups)


@dataclass(frozen=True)
class Sorted:
    """Values in their order: the first and the last of a key are found without reading it."""

    arranged: Arranged

    def updated(self, task: Task, values: Weighted, groups: Groups) -> Updated:
        named = Weighted(values.rows.rename_columns(self.arranged.schema.names), values.weights)
        task.write(self.arranged, named)
        return _Searched(_change(values, groups), groups, task, self.arranged)


@dataclass(frozen=True)
class Leveled:
    """Values in levels, of which the last has the best of each group. `sides` are those wanted."""

    levels: tuple[Level, ...]
    sides: tuple[bool, ...]  # whether the largest

    def updated(self, task: Task, values: Weighted, groups: Groups) -> Updated:
        return _Advanced(advanced(task, self.levels, self.sides, values), groups)


@dataclass(frozen=True)
class _Compared:
    change: Change
    groups: Groups

    def best(self, largest: bool, was: pa.Array) -> pa.Array:
        return _after(largest, self.groups.count, self.change, was)[0]


@dataclass(frozen=True)
class _Searched(_Compared):
    task: Task
    arranged: Arranged

    def best(self, largest: bool, was: pa.Array) -> pa.Array:
        count, change, arranged = self.groups.count, self.change, self.arranged
        best, is_gone = _after(largest, count, change, was)
        if not is_gone.any():
            return best
        # The value that a group had is retracted: the next one is looked up.
        open_ = np.flatnonzero(is_gone)
        places = np.full(count, -1)
        places[open_] = np.arange(open_.size)
        mine = places[change.keys] >= 0
        of_open = Change(
            places[change.keys[mine]], change.values.filter(pa.array(mine)), change.diffs[mine]
        )
        read = self.task.collection(arranged.collection).snapshot(self.task.run.lower - 1)
        wanted = take(self.groups.keys, open_).rename_columns(list(arranged.key))
        found = edges(read, wanted, arranged.order[0], largest=largest, change=of_open)
        together = pa.concat_arrays([best, found])
        chosen = np.where(is_gone, count + places, np.arange(count))
        return together.take(pa.array(chosen))


@dataclass(frozen=True)
class _Advanced:
    reached: Reached
    groups: Groups

    def best(self, largest: bool, was: pa.Array) -> pa.Array:
        """Groups that no change has reached at the last level keep their value."""
        count, reached = self.groups.count, self.reached
        owners = self.groups.of(reached.keys)
        places = np.arange(count)
        places[owners] = -1
        positions = reached.best[largest]
        places[owners[positions]] = count + positions
        together = pa.concat_arrays([was, reached.values.cast(was.type)])
        return together.take(pa.array(places, mask=places < 0))


def _row(values: Weighted, at: np.ndarray) -> dict[str, pa.ChunkedArray]:
    row = take(values.rows, at[:1])
    return dict(zip(row.column_names, row.columns, strict=True))


def _change(values: Weighted, groups: Groups) -> Change:
    keys: Sequence[str] = values.rows.column_names[:-1]
    owners = groups.of(values.rows.select(list(keys)))
    return Change(owners, single_chunk(values.rows.columns[-1]), values.weights)


def _after(largest: bool, count: int, change: Change, was: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The best of what was and what comes; and the groups whose best is retracted."""
    owner, changed, weights = change.keys, change.values, change.diffs
    together = pa.concat_arrays([was, changed])
    ranks = exact(together)
    if largest:
        ranks = ~ranks
    had = was.is_valid().to_numpy(zero_copy_only=False)
    before, now = ranks[:count], ranks[count:]
    is_gone = np.zeros(count, np.bool_)
    is_gone[owner[(weights < 0) & had[owner] & (now == before[owner])]] = True
    comes = np.flatnonzero(weights > 0)
    groups = np.concatenate([np.flatnonzero(had), owner[comes]])
    places = np.concatenate([np.flatnonzero(had), count + comes])
    order = np.lexsort((ranks[places], groups))
    found, first = np.unique(groups[order], return_index=True)
    best = np.full(count, -1)
    best[found] = places[order[first]]
    return together.take(pa.array(best, mask=best < 0)), is_gone
