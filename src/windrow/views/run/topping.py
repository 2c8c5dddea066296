"""The first rows of groups inside a task: which they are, and what is given of them.

Every plan of the first rows computes with rows that carry an *order key*: a string of bytes that
compares as the rows do, ties decided by the whole row. What differs from plan to plan is what is
kept, and so what a change costs:

    monotonic    the first rows                                        `top_monotonic`
    stack        all rows, and the first ones of ever coarser buckets  `top_stack`
    sorted       all rows in order, and the first rows                 `top_sorted`
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.ordering import exact
from windrow.rows.sortkeys import Direction, sort_keys
from windrow.rows.types import single_chunk
from windrow.shard.firsts import Rows, consolidated
from windrow.updates import DIFF
from windrow.views.run.weighted import Groups, Weighted, concatenated

ROW_NUMBER, RANK, DENSE_RANK = "row_number", "rank", "dense_rank"


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
class Ranked:
    """Rows with order keys, and which of a group are the first.

    `schema` has the columns of rows, then the order key; of ranks also the peer key, which is equal
    for rows of equal rank. `directions` say which columns make the order, the first `peers` of them
    as it is written; the others break ties. Of the columns, the first `width` are given, and
    perhaps the rank (`shows`).
    """

    schema: pa.Schema
    key: tuple[str, ...]
    top: Top
    directions: tuple[tuple[int, Direction], ...]
    peers: int
    width: int
    shows: bool

    @property
    def own(self) -> int:
        """How many columns are keys of the order."""
        return 1 if self.top.function == ROW_NUMBER else 2

    @property
    def order(self) -> str:
        """The column of order keys."""
        return str(self.schema.names[-self.own])

    @property
    def peer(self) -> str:
        """The column that is equal for rows of equal rank."""
        return str(self.schema.names[-1])

    def delta(self, table: pa.Table) -> Weighted:
        """Changes as they come: columns of rows, others to order by, and `_diff`."""
        names = self.schema.names[: -self.own]
        others = table.num_columns - 1 - len(names)
        given = [*names, *(f"_order{i}" for i in range(others)), DIFF]
        return Weighted.of(table.rename_columns(given)).consolidated()

    def keyed(self, delta: Weighted) -> Weighted:
        """The same with order keys, and without the others."""
        columns = [single_chunk(column) for column in delta.rows.columns]
        order = [(columns[at], direction) for at, direction in self.directions]
        made = [sort_keys(order, delta.size)]
        if self.own == 2:
            made.append(sort_keys(order[: self.peers], delta.size))
        known = {field.name: field for field in delta.rows.schema}
        schema = pa.schema([known.get(field.name, field) for field in self.schema])
        columns = [*columns[: len(self.schema) - self.own], *made]
        return Weighted(pa.table(columns, schema=schema), delta.weights)

    def numbered(self, groups: pa.Table, rows: Weighted) -> Rows:
        """Rows by the number of their group, and in order."""
        numbers = Groups(groups).of(rows.rows.select(groups.column_names))
        return consolidated(Rows(rows.rows, numbers, rows.weights), self.order)

    def before(self, rows: Rows) -> np.ndarray:
        return self.top.before(rows, exact(single_chunk(rows.table.column(self.peer))))

    def first(self, rows: Rows) -> Rows:
        """The first rows of each group, and no more copies of the last than belong to them."""
        before = self.before(rows)
        at = np.flatnonzero(before < self.top.depth)
        found = rows.take(at)
        if self.top.function != ROW_NUMBER:
            return found
        weights = np.minimum(found.weights, self.top.depth - before[at])
        return Rows(found.table, found.keys, weights)

    def behind(self, rows: Rows) -> Rows:
        """All that `first` leaves: other rows, and other copies of the last."""
        before = self.before(rows)
        if self.top.function != ROW_NUMBER:
            return rows.take(np.flatnonzero(before >= self.top.depth))
        weights = np.minimum(rows.weights, before + rows.weights - self.top.depth)
        at = np.flatnonzero(weights > 0)
        found = rows.take(at)
        return Rows(found.table, found.keys, weights[at])

    def changes(self, now: Rows, was: Rows, names: list[str]) -> pa.Table:
        """What is given: the rows that are now among the first, less those that were.

        Both have at least the first rows of each touched group, in order.
        """
        given = [self._given(rows, sign, names) for rows, sign in ((now, 1), (was, -1))]
        found = concatenated([Weighted.of(one) for one in given]).consolidated()
        return found.updates()

    def _given(self, rows: Rows, sign: int, names: list[str]) -> pa.Table:
        """What is given of the first rows, with their ranks if they are shown."""
        before = self.before(rows)
        top, weights = self.top, rows.weights
        ranks = before + 1
        if top.function == ROW_NUMBER:
            end = np.minimum(before + weights, top.depth)
            weights = np.maximum(end - np.maximum(before, top.offset), 0)
            at = np.flatnonzero(weights)
            if self.shows:  # each copy has a number of its own
                at = np.repeat(np.arange(rows.size), weights)
                within = np.arange(at.size) - np.repeat(np.cumsum(weights) - weights, weights)
                ranks = before[at] + 1 + within
                weights = np.ones(at.size, np.int64)
            else:
                ranks, weights = ranks[at], weights[at]
        else:
            at = np.flatnonzero(before < top.depth)
            ranks, weights = ranks[at], weights[at]
        columns = [single_chunk(c) for c in rows.table.take(pa.array(at)).columns[: self.width]]
        if self.shows:
            columns.append(pa.array(ranks.astype(np.int32)))
        names = [*(f"c{i}" for i in range(len(names) - 1)), DIFF]
        return pa.table([*columns, pa.array(weights * sign)], names=names)
