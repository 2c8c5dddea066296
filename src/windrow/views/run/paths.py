"""Inner joins inside a task: changes of inputs on their paths through the others.

    change of A ─▶ B by k ─▶ C by j ─┐
    change of B ─▶ A by k ─▶ C by j ─┼─▶ rows of all inputs, and a weight
    change of C ─▶ B by j ─▶ A by k ─┘

A path sees the inputs before its own as they are after the change (what was, and what changes), and
those after it as they were. So rows that change together are found on one path, the last one's.
On its way, a row is a position in the rows of each input; columns are taken at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.updates import DIFF
from windrow.views.run.joining import PAIRS, key_numbers
from windrow.views.run.stages import Stage
from windrow.views.run.task import EVERYTHING, Arranged, Task
from windrow.views.run.weighted import Weighted, chunks, concatenated, distinct, pairs, take


@dataclass(frozen=True)
class Step:
    """Columns of one input, by their places, look rows of another up; without any, all of them."""

    source: int
    keys: tuple[int, ...]
    target: int
    state: Arranged


@dataclass(frozen=True)
class JoinInputs(Stage):
    """Takes the number of an input, `_diff`, then the columns of all inputs: one row is of one.

    `names` are those of each input's columns, `own` what is kept of inputs here, and `wanted` the
    columns that are given, by input and place, before `_diff`.
    """

    names: tuple[tuple[str, ...], ...]
    paths: tuple[tuple[Step, ...], ...]
    own: tuple[tuple[int, Arranged], ...]
    wanted: tuple[tuple[int, int], ...]

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        deltas = self._deltas(table)
        for number, state in self.own:
            keep(task, state, deltas[number])
        for number, path in enumerate(self.paths):
            # With nothing there before, all rows meet on the last path.
            if deltas[number].size and not (task.run.fill and number + 1 < len(self.paths)):
                yield from self._followed(task, number, path, deltas)

    def _deltas(self, table: pa.Table) -> list[Weighted]:
        sides = table.column(0).to_numpy()
        found, start = [], 2
        for number, names in enumerate(self.names):
            own = table.column_names[start : start + len(names)]
            mine = table.select([*own, table.column_names[1]]).filter(pa.array(sides == number))
            found.append(Weighted.of(mine.rename_columns([*names, DIFF])).consolidated())
            start += len(names)
        return found

    def _followed(
        self, task: Task, number: int, path: Sequence[Step], deltas: Sequence[Weighted]
    ) -> Iterator[pa.Table]:
        known = {number: deltas[number].rows}
        at = {number: np.arange(deltas[number].size)}
        weights = deltas[number].weights
        for step in path:
            keys = known[step.source].select(list(step.keys))
            after = deltas[step.target] if step.target < number else None
            found = looked_up(
                task, step.state, take(keys, at[step.source]), self.names[step.target], after
            )
            by = _key_columns(self.names[step.target], step.state)
            rows, others = _met(keys, at[step.source], found.rows, by)
            at = {one: positions[rows] for one, positions in at.items()}
            at[step.target] = others
            known[step.target] = found.rows
            weights = weights[rows] * found.weights[others]
            if not weights.size:
                return
        for start in range(0, weights.size, PAIRS):
            part = slice(start, start + PAIRS)
            columns: list[pa.Array] = []
            for one, place in self.wanted:
                columns += chunks(take(known[one].select([place]), at[one][part]))
            columns.append(pa.array(weights[part]))
            yield pa.table(columns, names=self.gives.names)


@dataclass(frozen=True)
class HalfJoin(Stage):
    """One step of a path where rows are exchanged by key before each.

    Takes a side (0: on the path, 1: a change of the target), `_diff`, the columns so far, those of
    the target; gives the last two, and `_diff`. `keys` are places among the columns so far.
    """

    width: int
    keys: tuple[int, ...]
    state: Arranged
    names: tuple[str, ...]

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        sides, columns = table.column(0).to_numpy(), table.column_names
        so_far = [f"c{i}" for i in range(self.width)]
        mine = table.select([*columns[2 : 2 + self.width], columns[1]])
        path = Weighted.of(
            mine.filter(pa.array(sides == 0)).rename_columns([*so_far, DIFF])
        ).consolidated()
        theirs = table.select([*columns[2 + self.width :], columns[1]])
        after = Weighted.of(
            theirs.filter(pa.array(sides == 1)).rename_columns([*self.names, DIFF])
        ).consolidated()
        if not path.size:
            return
        keys = path.rows.select(list(self.keys))
        found = looked_up(task, self.state, keys, self.names, after)
        by = _key_columns(self.names, self.state)
        rows, others = _met(keys, np.arange(path.size), found.rows, by)
        for start in range(0, rows.size, PAIRS):
            a, b = rows[start : start + PAIRS], others[start : start + PAIRS]
            made = [*chunks(take(path.rows, a)), *chunks(take(found.rows, b))]
            made.append(pa.array(path.weights[a] * found.weights[b]))
            yield pa.table(made, names=self.gives.names)


@dataclass(frozen=True)
class Keep(Stage):
    """Keeps what flows in, columns and `_diff`, and gives nothing."""

    state: Arranged
    names: tuple[str, ...]

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        rows = table.rename_columns([*self.names, DIFF])
        keep(task, self.state, Weighted.of(rows).consolidated())
        yield from ()


def keep(task: Task, state: Arranged, delta: Weighted) -> None:
    """Write a change; what has no key gets the column that stands for one."""
    rows = delta.rows
    if not state.has_key:
        nothing = pa.array(np.zeros(delta.size, np.int8))
        rows = rows.append_column(EVERYTHING, nothing)
    task.write(state, Weighted(rows.select(state.schema.names), delta.weights))


def looked_up(
    task: Task, state: Arranged, keys: pa.Table, names: Sequence[str], after: Weighted | None
) -> Weighted:
    """The rows of an input that have some keys, as they were; with `after`, as they are now."""
    if keys.num_columns:
        for column in keys.columns:
            if column.null_count:  # a NULL equals nothing
                keys = keys.filter(column.is_valid())
                break
        wanted: pa.Table | None = distinct(keys.rename_columns(list(state.key)))
    else:
        wanted = None
    old = task.old(state, wanted)
    columns = [name for name in old.rows.column_names if name != EVERYTHING]
    rows = old.rows.select(columns).rename_columns(list(names))
    found = Weighted(rows, old.weights)
    if after is None or not after.size:
        return found
    return concatenated([found, after]) if found.size else after


def _key_columns(names: Sequence[str], state: Arranged) -> list[str]:
    """The columns of an input that are the key of what it is looked up in."""
    own = [name for name in state.schema.names if name != EVERYTHING]
    return [names[own.index(name)] for name in state.key if name != EVERYTHING]


def _met(
    keys: pa.Table, at: np.ndarray, rows: pa.Table, by: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of `at` and of `rows` that have the same key; without a key, all pairs."""
    if not keys.num_columns:
        count = rows.num_rows
        return np.repeat(np.arange(at.size), count), np.tile(np.arange(count), at.size)
    (mine, theirs), _ = key_numbers([keys, rows.select(list(by))])
    return pairs(mine[at], theirs)
