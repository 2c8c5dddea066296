"""The first rows of groups inside a task, kept as what they are and refilled by a search.

    changes ─▶ order keys ─┬─▶ sorted rows, by group and order
                           └─▶ the first rows of each touched group, as they were ─▶ as they are

The first rows of a group are kept apart: what comes or goes behind the last changes nothing.
Only where more of them go than come are the next ones looked up, in the sorted rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.ordering import exact
from windrow.rows.sortkeys import Direction, sort_keys
from windrow.rows.types import single_chunk
from windrow.shard.firsts import Rows, consolidated, first_rows
from windrow.updates import DIFF
from windrow.views.run.stages import Stage, check_weights
from windrow.views.run.task import Arranged, Task
from windrow.views.run.weighted import Groups, Weighted, concatenated, distinct, take

ROW_NUMBER, RANK, DENSE_RANK = "row_number", "rank", "dense_rank"
_LOOK = 32  # rows of each part that a search looks at, at least


@dataclass(frozen=True)
class Top:
    """Which rows are the first: those whose `function` is at most `limit`, less `offset` rows."""

    function: str
    limit: int
    offset: int

    @property
    def depth(self) -> int:
        return self.limit + self.offset

    def before(self, rows: Rows, peers: np.ndarray) -> np.ndarray:
        """For each row how many come before it: rows, or of DENSE_RANK different values.

        `rows` are in order; `peers` are numbers that are equal for rows of equal rank.
        """
        if not rows.size:
            return np.zeros(0, np.int64)
        first = _starts(rows.keys)
        new = first.copy()
        new[1:] |= peers[1:] != peers[:-1]
        if self.function == DENSE_RANK:
            counted = np.cumsum(new) - 1
        else:
            counted = np.cumsum(rows.weights) - rows.weights
            if self.function == RANK:
                counted = counted[np.maximum.accumulate(np.where(new, np.arange(rows.size), 0))]
        starts = np.maximum.accumulate(np.where(first, np.arange(rows.size), 0))
        found: np.ndarray = counted - counted[starts]
        return found

    def measures(self, rows: Rows, before: np.ndarray, count: int) -> np.ndarray:
        """How many rows, or different values, each of `count` groups has."""
        found = np.zeros(count, np.int64)
        if self.function == DENSE_RANK:
            np.maximum.at(found, rows.keys, before + 1)
        else:
            np.add.at(found, rows.keys, rows.weights)
        return found


def _starts(keys: np.ndarray) -> np.ndarray:
    new = np.ones(keys.size, np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return new


@dataclass(frozen=True)
class TopRows(Stage):
    """Takes the columns of rows, others to order by, and `_diff`; gives rows, perhaps with a rank.

    `directions` say which columns make the order, the first `peers` of them as it is written; the
    others break ties. Of the columns of rows, the first `width` are given.
    """

    rows: Arranged
    tops: Arranged
    top: Top
    directions: tuple[tuple[int, Direction], ...]
    peers: int
    width: int
    shows: bool

    @property
    def order(self) -> str:
        """The column of order keys."""
        return self.rows.order[0]

    @property
    def peer(self) -> str:
        """The column that is equal for rows of equal rank."""
        return str(self.rows.schema.names[-1])

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        delta = self._keyed(table)
        if not delta.size:
            return
        task.write(self.rows, delta)
        keys = list(self.rows.key)
        groups = distinct(delta.rows.select(keys))
        old = task.old(self.tops, groups)
        was = self._numbered(groups, old)
        change = self._numbered(groups, delta)
        now = self._after(task, groups, was, change)
        kept = Weighted(now.table, now.weights)
        task.write(self.tops, concatenated([kept, old.negated()]).consolidated())
        for rows, sign in ((now, 1), (was, -1)):
            if rows.size:
                yield self._given_rows(rows, sign)

    def _keyed(self, table: pa.Table) -> Weighted:
        """The changes with their order keys."""
        own = 2 if self.top.function != ROW_NUMBER else 1
        names = self.rows.schema.names
        others = table.num_columns - 1 - (len(names) - own)
        given = [*names[:-own], *(f"_order{i}" for i in range(others)), DIFF]
        delta = Weighted.of(table.rename_columns(given)).consolidated()
        columns = [single_chunk(column) for column in delta.rows.columns]
        order = [(columns[at], direction) for at, direction in self.directions]
        made = [sort_keys(order, delta.size)]
        if own == 2:
            made.append(sort_keys(order[: self.peers], delta.size))
        rows = pa.table([*columns[: len(names) - own], *made], names=names)
        return Weighted(pa.table(rows.columns, schema=self._schema(delta)), delta.weights)

    def _schema(self, delta: Weighted) -> pa.Schema:
        known = {field.name: field for field in delta.rows.schema}
        return pa.schema([known.get(f.name, f) for f in self.rows.schema])

    def _numbered(self, groups: pa.Table, rows: Weighted) -> Rows:
        """Rows by the number of their group, and in order."""
        numbers = Groups(groups).of(rows.rows.select(groups.column_names))
        return consolidated(Rows(rows.rows, numbers, rows.weights), self.order)

    def _before(self, rows: Rows) -> np.ndarray:
        return self.top.before(rows, exact(single_chunk(rows.table.column(self.peer))))

    def _after(self, task: Task, groups: pa.Table, was: Rows, change: Rows) -> Rows:
        """The first rows of each group after the change."""
        count, depth = groups.num_rows, self.top.depth
        # A group with fewer rows has no others: all that is known of it is all that there is.
        whole = self.top.measures(was, self._before(was), count) < depth
        matters = whole[change.keys] | self._within(was, change, count)
        found = Rows.together([was, change.take(np.flatnonzero(matters))])
        candidates = consolidated(found, self.order)
        check_weights(candidates.table, candidates.weights)
        before = self._before(candidates)
        measures = self.top.measures(candidates, before, count)
        open_ = np.flatnonzero(~whole & (measures < depth))
        kept = candidates.take(np.flatnonzero((before < depth) & ~np.isin(candidates.keys, open_)))
        if not open_.size:
            return kept
        places = np.full(count, -1)
        places[open_] = np.arange(open_.size)
        mine = change.take(np.flatnonzero(places[change.keys] >= 0))
        read = task.collection(self.rows.collection).snapshot(task.run.lower - 1)
        next_ = first_rows(
            read,
            take(groups, open_),
            self.order,
            Rows(mine.table, places[mine.keys], mine.weights),
            self._enough,
            depth=max(_LOOK, 2 * depth),
        )
        next_ = consolidated(next_, self.order)
        check_weights(next_.table, next_.weights)
        next_ = next_.take(np.flatnonzero(self._before(next_) < depth))
        return Rows.together([kept, Rows(next_.table, open_[next_.keys], next_.weights)])

    def _within(self, was: Rows, change: Rows, count: int) -> np.ndarray:
        """Which changes are not behind the last row that was known of their group."""
        column = self.order if self.top.function == ROW_NUMBER else self.peer
        own = single_chunk(was.table.column(column))
        other = single_chunk(change.table.column(column))
        ranks = exact(pa.concat_arrays([own, other.cast(own.type)]))
        last = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(last, was.keys, ranks[: was.size])
        found: np.ndarray = ranks[was.size :] <= last[change.keys]
        return found

    def _enough(self, rows: Rows, count: int) -> np.ndarray:
        before = self._before(rows)
        seen = np.zeros(count, np.bool_)
        seen[rows.keys[before >= self.top.depth]] = True  # the first that is not one of them
        if self.top.function == ROW_NUMBER:
            seen |= self.top.measures(rows, before, count) >= self.top.depth
        return seen

    def _given_rows(self, rows: Rows, sign: int) -> pa.Table:
        """What is given of the first rows, with their ranks if they are shown."""
        rows = consolidated(rows, self.order)
        before = self._before(rows)
        top, weights = self.top, rows.weights
        at = np.arange(rows.size)
        ranks = before + 1
        if top.function == ROW_NUMBER:
            end = np.minimum(before + weights, top.depth)
            weights = np.maximum(end - np.maximum(before, top.offset), 0)
            if self.shows:  # each copy has a number of its own
                at = np.repeat(at, weights)
                within = np.arange(at.size) - np.repeat(np.cumsum(weights) - weights, weights)
                ranks = before[at] + 1 + within
                weights = np.ones(at.size, np.int64)
        columns = [single_chunk(c) for c in rows.table.take(pa.array(at)).columns[: self.width]]
        if self.shows:
            columns.append(pa.array(ranks.astype(np.int32)))
        return pa.table([*columns, pa.array(weights * sign)], names=self.gives.names)
