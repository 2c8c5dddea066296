"""Rows with weights: what operators compute with inside a task.

A change of a collection within one tick, and a collection at one time, are both rows with a weight
each: how often a row appears (or, negative, disappears). Times play no part here, since everything
that a tick computes happens at one time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.hashing import hash_rows
from windrow.rows.types import canonical_schema, conform, single_chunk, table_of_columns
from windrow.updates import DIFF, TIME, int64_values
from windrow.words.consolidation import consolidate_unsorted
from windrow.words.groups import group_rows

BATCH_ROWS = 65_536  # of what a task passes on to Spark


@dataclass(frozen=True)
class Weighted:
    """Rows (canonical, each column one chunk) and a weight (int64) for each."""

    rows: pa.Table
    weights: np.ndarray

    @staticmethod
    def of(updates: pa.Table) -> Weighted:
        """Of a table with a column `_diff`; a column `_time` is left out."""
        names = [name for name in updates.column_names if name not in (DIFF, TIME)]
        rows = updates.select(names)
        rows = conform(rows, canonical_schema(rows.schema), "rows of a task")
        return Weighted(rows, int64_values(updates, DIFF))

    @staticmethod
    def empty(schema: pa.Schema) -> Weighted:
        return Weighted(canonical_schema(schema).empty_table(), np.zeros(0, np.int64))

    @property
    def size(self) -> int:
        return int(self.weights.size)

    def take(self, positions: np.ndarray) -> Weighted:
        return Weighted(take(self.rows, positions), self.weights[positions])

    def consolidated(self) -> Weighted:
        """Each row once, with the sum of its weights; sums of zero are dropped."""
        if not self.size:
            return self
        columns = chunks(self.rows)
        found = consolidate_unsorted(_words(columns, self.size), self.weights, columns)
        return Weighted(take(self.rows, found.rows), found.diffs)

    def negated(self) -> Weighted:
        return Weighted(self.rows, -self.weights)

    def updates(self) -> pa.Table:
        """As a table with a column `_diff`."""
        return self.rows.append_column(DIFF, pa.array(self.weights, pa.int64()))

    def repeated(self) -> pa.Table:
        """Each row as often as its weight says, which is never negative."""
        if not self.size or self.weights.max() == 1:
            return self.rows
        return take(self.rows, np.repeat(np.arange(self.size), self.weights))


def chunks(table: pa.Table) -> list[pa.Array]:
    return [single_chunk(column) for column in table.columns]


def take(table: pa.Table, positions: np.ndarray) -> pa.Table:
    """Some rows of a table, which may have no columns at all."""
    if not table.num_columns:
        return table_of_columns([], table.schema, positions.size)
    taken = table.take(pa.array(positions))
    return pa.table(chunks(taken), schema=table.schema)


def concatenated(several: Sequence[Weighted]) -> Weighted:
    """All of them; they have the same columns."""
    rows = pa.concat_tables([one.rows for one in several])
    weights = np.concatenate([one.weights for one in several])
    return Weighted(table_of_columns(chunks(rows), rows.schema, weights.size), weights)


def _words(columns: Sequence[pa.Array], rows: int) -> np.ndarray:
    hashes = hash_rows(columns) if columns else np.zeros(rows, np.int64)
    return hashes.reshape(1, -1)


def number_rows(tables: Sequence[pa.Table]) -> tuple[list[np.ndarray], int]:
    """A number for each row of each table, equal exactly for equal rows; and how many there are.

    The tables have the same types, column by column; names do not matter.

    >>> a, b = pa.table({"k": [5, 6, 5]}), pa.table({"j": [6, None]})
    >>> [numbers.tolist() for numbers in number_rows([a, b])[0]]
    [[0, 1, 0], [1, 2]]
    """
    names = [f"c{i}" for i in range(tables[0].num_columns)]
    sizes = [table.num_rows for table in tables]
    if not names:
        return [np.zeros(size, np.int64) for size in sizes], int(sum(sizes) > 0)
    together = pa.concat_tables([table.rename_columns(names) for table in tables])
    columns = chunks(together)
    groups, leaders = group_rows(_words(columns, sum(sizes)), columns)
    return np.split(groups.astype(np.int64), np.cumsum(sizes)[:-1]), int(leaders.size)


@dataclass(frozen=True)
class Groups:
    """The groups that changes touch, by their keys."""

    keys: pa.Table

    @property
    def count(self) -> int:
        return int(self.keys.num_rows)

    def of(self, keys: pa.Table) -> np.ndarray:
        """The number of each of these keys, all of which are touched."""
        (own, others), count = number_rows([self.keys, keys])
        places = np.empty(count, np.int64)
        places[own] = np.arange(own.size)
        found: np.ndarray = places[others]
        return found


def distinct(table: pa.Table) -> pa.Table:
    """Each row once, in order of first appearance."""
    if not table.num_rows:
        return table
    columns = chunks(table)
    _, leaders = group_rows(_words(columns, table.num_rows), columns)
    return take(table, np.sort(leaders))


def pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of positions with the same number; a negative number has no pair.

    >>> [p.tolist() for p in pairs(np.array([7, 8, 7]), np.array([7, 9, 7]))]
    [[0, 0, 2, 2], [0, 2, 0, 2]]
    """
    order = np.argsort(right, kind="stable")
    ranked = right[order]
    starts = np.searchsorted(ranked, left, "left")
    counts = np.searchsorted(ranked, left, "right") - starts
    counts[left < 0] = 0
    rows = np.repeat(np.arange(left.size), counts)
    within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, order[starts[rows] + within]


def batches_of(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A table as batches of `schema`, whose columns have the same order but perhaps other names."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    yield from pa.table(arrays, schema=schema).to_batches(max_chunksize=BATCH_ROWS)


def table_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """All batches of a task. Reads its input to the end, as every Python task has to."""
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return schema.empty_table()
    return pa.Table.from_batches(found).rename_columns(schema.names)
