"""Aggregates by group inside a task: states of groups, updated by the rows that come and go.

    changes ─▶ groups ─┬─▶ states lifted from rows ─────────────▶ combined with those of the totals
                       ├─▶ sets of distinct values, counted ────▶ the same, from what comes and goes
                       └─▶ values of min and max ───────────────▶ the least or largest that is left

A group's totals are one row: how many rows the group has, and the state of each function. The
result of a group before the tick follows from its totals before it, so results are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.algebra.grouping import group_sums
from windrow.algebra.kinds.kind import ROWS
from windrow.errors import DataError
from windrow.rows.types import single_chunk
from windrow.updates import DIFF
from windrow.views.plan.reductions import Accumulated, Extreme
from windrow.views.run.extremes import Extremes
from windrow.views.run.joining import side_of
from windrow.views.run.results import lowered, states_of
from windrow.views.run.stages import GONE, ROW, UNTOUCHED, Stage, check_weights, ordered
from windrow.views.run.task import Arranged, Task
from windrow.views.run.weighted import (
    Groups,
    Weighted,
    concatenated,
    distinct,
    number_rows,
    take,
)

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Reduce(Stage):
    """Takes key columns, values and `_diff`; gives key columns, results and `_diff`.

    `types` are those of the results. `extremes` say how min and max are maintained, and `sets` are
    the state of distinct values, both by the numbers of the values.
    """

    functions: tuple[Accumulated | Extreme, ...]
    types: tuple[pa.DataType, ...]
    totals: Arranged
    extremes: tuple[tuple[int, Extremes], ...]
    sets: tuple[tuple[tuple[int, ...], Arranged], ...]

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        delta = self._delta(table, 0, len(self.given) - 1)
        groups = self._groups(task, delta.rows)
        if groups is not None:
            for found in _different(*self._updated(task, delta, groups), self._given_out):
                yield found.rename_columns(self.gives.names)

    def _given_out(self, totals: Weighted) -> pa.Table:
        columns = [*self._keys(totals), *self._results(totals)]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])

    def _delta(self, table: pa.Table, start: int, end: int) -> Weighted:
        """The changes of some columns, after those of the key: v0, v1 and so on."""
        keys = list(self.totals.key)
        width, names = len(keys), table.column_names
        chosen = [*names[:width], *names[width + start : end], names[-1]]
        own = [*keys, *(f"v{i}" for i in range(end - width - start)), DIFF]
        return Weighted.of(table.select(chosen).rename_columns(own)).consolidated()

    def _groups(self, task: Task, *changed: pa.Table) -> Groups | None:
        """The touched groups; None if there is none. What has no key is a group without rows."""
        keys = list(self.totals.key)
        rows = pa.concat_tables([one.select(keys) for one in changed])
        if not rows.num_rows:
            if self.totals.has_key or not task.run.fill:
                return None
            only = pa.table({keys[0]: pa.array([0], self.totals.schema.field(keys[0]).type)})
            return Groups(only)
        return Groups(distinct(rows))

    def _updated(self, task: Task, delta: Weighted, groups: Groups) -> tuple[Weighted, Weighted]:
        """The totals of touched groups after the change, and before it."""
        keys = list(self.totals.key)
        numbers = groups.of(delta.rows.select(keys))
        old = task.old(self.totals, groups.keys)
        at = groups.of(old.rows.select(keys))
        before = _Totals.of(old.rows.drop_columns(keys), at, groups.count)
        changed = {one: self._entered(task, delta, one) for one, _ in self.sets}
        values = {
            value: extremes.updated(task, self._values(delta, value), groups)
            for value, extremes in self.extremes
        }
        rows = before.rows + group_sums(delta.weights, numbers, groups.count)
        _check_rows(groups.keys, rows)
        columns: list[pa.Array] = [pa.array(rows)]
        for one in self.functions:
            place = len(columns)
            if isinstance(one, Extreme):
                was = before.columns[place]
                columns.append(values[one.value].best(one.largest, was))
                continue
            entered, owners = delta, numbers
            if one.distinct:
                entered = changed[one.values]
                owners = groups.of(entered.rows.select(keys))
            was = before.columns[place : place + len(one.fields)]
            columns += _accumulated(one, entered, owners, was, before, len(keys))
        stays = rows > 0 if self.totals.has_key else np.ones(groups.count, np.bool_)
        new = pa.array(np.flatnonzero(stays))
        kept = pa.table(
            [*(single_chunk(c) for c in groups.keys.columns), *columns], schema=self.totals.schema
        ).take(new)
        ones = pa.array(np.ones(kept.num_rows, np.int64))
        after = Weighted.of(kept.append_column(DIFF, ones))
        task.write(self.totals, concatenated([after, old.negated()]).consolidated())
        return after, old

    def _keys(self, totals: Weighted) -> list[pa.Array]:
        return [single_chunk(totals.rows.column(name)) for name in self.totals.key]

    def _results(self, totals: Weighted) -> list[pa.Array]:
        """The results of groups, from their totals."""
        return lowered(self.functions, self.types, self.totals.key, totals)

    def _entered(self, task: Task, delta: Weighted, numbers: tuple[int, ...]) -> Weighted:
        """What enters and leaves a set of distinct values, once each."""
        arranged = dict(self.sets)[numbers]
        known = _known(delta, [f"v{n}" for n in numbers])
        names = [*self.totals.key, *(f"v{n}" for n in numbers)]
        counted = Weighted(
            known.rows.select(names).rename_columns(arranged.schema.names), known.weights
        ).consolidated()
        task.write(arranged, counted)
        side = side_of(task.old(arranged, counted.rows), counted)
        if (side.new < 0).any():
            raise DataError(
                "values are retracted that are not there. State and inputs do not agree; REFRESH "
                "the view to rebuild it"
            )
        change = (side.new > 0).astype(np.int64) - (side.old > 0)
        at = np.flatnonzero(change)
        return Weighted(take(side.rows, at), change[at])

    def _values(self, delta: Weighted, value: int) -> Weighted:
        """The changes of a column's values: key columns, and the value, which is never NULL."""
        column = f"v{value}"
        known = _known(delta, [column])
        return Weighted(known.rows.select([*self.totals.key, column]), known.weights).consolidated()


@dataclass(frozen=True)
class ReduceSome(Reduce):
    """As `Reduce`, beside functions that Spark computes of the rows of touched groups.

    Takes key columns, values, other columns, and `_diff`. Gives a flag (see `stages`), whether it
    is the row of a result, key columns, other columns, results.
    """

    rows: Arranged

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        others = len(self.rows.schema) - len(self.totals.key)
        end = len(self.given) - 1 - others
        delta = self._delta(table, 0, end)
        changed = self._delta(table, end - len(self.totals.key), len(self.given) - 1)
        groups = self._groups(task, delta.rows, changed.rows)
        if groups is None:
            if not self.totals.has_key:
                yield self._flagged(UNTOUCHED, 1, [], [])
            return
        changed = Weighted(changed.rows.rename_columns(self.rows.schema.names), changed.weights)
        task.write(self.rows, changed)
        keys = groups.keys.rename_columns(list(self.rows.key))
        old = task.old(self.rows, keys)
        new = concatenated([old, changed]).consolidated() if old.size else changed
        check_weights(new.rows, new.weights)
        after, _ = self._updated(task, delta, groups)
        rows = ordered(new).repeated()
        yield self._flagged(ROW, rows.num_rows, rows.columns, [])
        yield self._flagged(ROW, after.size, self._keys(after), self._results(after))
        gone = np.ones(groups.count, np.bool_)
        gone[groups.of(after.rows.select(list(self.totals.key)))] = False
        lost = take(groups.keys, np.flatnonzero(gone))
        yield self._flagged(GONE, lost.num_rows, lost.columns, [])

    def _flagged(
        self,
        flag: int,
        count: int,
        keys: Sequence[pa.Array],
        results: Sequence[pa.Array],
    ) -> pa.Table:
        """Rows to give; what is not said is NULL. `keys` may be followed by other columns."""
        types = [field.type for field in self.gives]
        columns: list[Any] = [
            pa.array(np.full(count, flag, np.int8)),
            pa.array(np.full(count, bool(results))),
            *keys,
        ]
        end = len(types) - len(results)
        columns += [pa.nulls(count, type_) for type_ in types[len(columns) : end]]
        return pa.table([*columns, *results], names=self.gives.names)


def _different(
    after: Weighted, before: Weighted, given_out: Callable[[Weighted], pa.Table]
) -> Iterator[pa.Table]:
    """What is given out of totals after and before a change, where it is not the same."""
    tables = {sign: given_out(one) for sign, one in ((1, after), (-1, before)) if one.size}
    numbers = (
        dict(zip(tables, number_rows(list(tables.values()))[0], strict=True)) if tables else {}
    )
    for sign, table in tables.items():
        other = numbers.get(-sign, _NONE)
        at = np.flatnonzero(~np.isin(numbers[sign], other))
        if at.size:
            yield take(table, at).append_column(DIFF, pa.array(np.full(at.size, sign)))


@dataclass(frozen=True)
class _Totals:
    """The totals of all touched groups: rows (0 where a group is new), and all columns."""

    rows: np.ndarray
    columns: Sequence[pa.Array]

    @staticmethod
    def of(stored: pa.Table, at: np.ndarray, count: int) -> _Totals:
        """From those that are stored, which are of the groups `at`; others are NULL."""
        places = np.full(count, -1)
        places[at] = np.arange(at.size)
        taken = pa.array(places, mask=places < 0)
        columns = [single_chunk(column.take(taken)) for column in stored.columns]
        return _Totals(columns[0].fill_null(0).to_numpy(), columns)


def _accumulated(
    one: Accumulated,
    entered: Weighted,
    numbers: np.ndarray,
    was: Sequence[pa.Array],
    before: _Totals,
    keys: int,
) -> list[pa.Array]:
    """The columns of a function's states after a change."""
    states = one.states
    count = before.rows.size
    if one.distinct:
        values = (
            pa.array(np.ones(entered.size, np.bool_))
            if len(one.values) > 1 or pa.types.is_boolean(one.type)
            else single_chunk(entered.rows.column(keys))
        )
    elif one.values:
        values = single_chunk(entered.rows.column(f"v{one.values[0]}"))
    else:
        values = pa.array(np.ones(entered.size, np.bool_))
    lifted = states.lift(values, None, numbers, count, entered.weights)
    known = np.flatnonzero(before.columns[0].is_valid().to_numpy(zero_copy_only=False))
    there = pa.array(known)
    old = states_of(one, before.columns[0].take(there), [column.take(there) for column in was])
    both = pa.concat_arrays([old, lifted])
    made = states.combine(both, np.concatenate([known, np.arange(count)]), count)
    fields = [field.name for field in states.fields]
    return [column for name, column in zip(fields, made.flatten(), strict=True) if name != ROWS]


def _known(delta: Weighted, names: Sequence[str]) -> Weighted:
    """The changes whose values are all known."""
    mask = np.ones(delta.size, np.bool_)
    for name in names:
        column = delta.rows.column(name)
        if column.null_count:
            mask &= single_chunk(column).is_valid().to_numpy(zero_copy_only=False)
    return delta if mask.all() else delta.take(np.flatnonzero(mask))


def _check_rows(keys: pa.Table, rows: np.ndarray) -> None:
    below = np.flatnonzero(rows < 0)
    if below.size:
        key = {name: keys.column(name)[int(below[0])].as_py() for name in keys.column_names}
        raise DataError(
            f"{below.size} groups lose rows that are not there, the first is {key}. State and "
            "inputs do not agree; REFRESH the view to rebuild it"
        )
