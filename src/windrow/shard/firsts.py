"""The first rows of a key, found where they are stored and not by reading the key.

A shard whose order is the hash of the key, then a column that no two different rows of a key share,
has the rows of a key sorted within each part. What the first of them are is then known from a few
rows of each part, however many the key has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.equality import equal_pairs
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.shard.edges import part_table, ranges
from windrow.shard.read import Read
from windrow.shard.spec import PREFIX
from windrow.updates import DIFF, TIME, int64_values

_GROWTH = 8  # how many more rows are looked at where some are not enough


@dataclass(frozen=True)
class Rows:
    """Rows of several keys, by key and then in order: their key's number, and their weights."""

    table: pa.Table
    keys: np.ndarray
    weights: np.ndarray

    @property
    def size(self) -> int:
        return int(self.weights.size)

    def take(self, positions: np.ndarray) -> Rows:
        table = self.table.take(pa.array(positions))
        return Rows(table, self.keys[positions], self.weights[positions])

    @staticmethod
    def together(several: list[Rows]) -> Rows:
        return Rows(
            pa.concat_tables([one.table for one in several]).combine_chunks(),
            np.concatenate([one.keys for one in several]),
            np.concatenate([one.weights for one in several]),
        )


Enough = Callable[[Rows, int], np.ndarray]  # whether what is known of each of so many keys is


def consolidated(rows: Rows, column: str) -> Rows:
    """Rows by key and in the order of `column`, each once; those that cancel are gone."""
    found, _ = _known(rows, column, [], [], 0)
    return found


def first_rows(
    read: Read, keys: pa.Table, column: str, change: Rows, enough: Enough, *, depth: int
) -> Rows:
    """The first rows of each key after `change`, as many as are enough, or all.

    `read` is a snapshot of a shard in the order of its key's hash, then `column`; `keys` has the
    key columns, each key once. `depth` rows of each part are looked at first.
    """
    spec = read.scan.spec
    names = spec.schema.names
    prefixes = spec.prefix(keys)
    parts = []
    for part in read.parts:
        if read.scan.times.overlaps(part):
            table = part_table(read.scan, part, names)
            stored = int64_values(table, PREFIX)
            starts = np.searchsorted(stored, prefixes, "left")
            parts.append((table, starts, np.searchsorted(stored, prefixes, "right")))
    open_ = np.arange(keys.num_rows)
    found = [Rows(spec.schema.empty_table(), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    while open_.size:
        places = np.full(keys.num_rows, -1)
        places[open_] = np.arange(open_.size)
        owner = places[change.keys]
        mine = change.take(np.flatnonzero(owner >= 0))
        seen = [Rows(mine.table.select(names), owner[owner >= 0], mine.weights)]
        beyond: list[np.ndarray] = []
        edges: list[pa.Array] = []
        for table, starts, ends in parts:
            first, size = starts[open_], np.minimum((ends - starts)[open_], depth)
            own = np.repeat(np.arange(open_.size), size)
            taken = table.select([*names, TIME, DIFF]).take(pa.array(ranges(first, size)))
            counts = read.scan.times.mask(int64_values(taken, TIME))
            counts &= _same_keys(taken, keys, open_[own], spec.key)
            diffs = int64_values(taken, DIFF)
            seen.append(Rows(taken.select(names), own, diffs).take(np.flatnonzero(counts)))
            more = np.flatnonzero((ends - starts)[open_] > depth)
            beyond.append(more)
            last = pa.array(first[more] + depth - 1)
            edges.append(single_chunk(table.column(column).take(last)))
        known, limited = _known(Rows.together(seen), column, beyond, edges, open_.size)
        settled = ~limited | enough(known, open_.size)
        done = known.take(np.flatnonzero(settled[known.keys]))
        found.append(Rows(done.table, open_[done.keys], done.weights))
        open_ = open_[~settled]
        depth *= _GROWTH
    return Rows.together(found)


def _same_keys(
    taken: pa.Table, keys: pa.Table, wanted: np.ndarray, names: tuple[str, ...]
) -> np.ndarray:
    """Which rows have the key that they were found for: a hash may be that of several."""
    own = keys.take(pa.array(wanted))
    both = [
        single_chunk(pa.chunked_array([*taken.column(name).chunks, *own.column(name).chunks]))
        for name in names
    ]
    size = taken.num_rows
    return equal_pairs(both, np.arange(size), size + np.arange(size))


def _known(
    rows: Rows, column: str, beyond: list[np.ndarray], edges: list[pa.Array], count: int
) -> tuple[Rows, np.ndarray]:
    """The rows of which all copies were seen, in order; and the keys that may have more.

    Of what is at or beyond the last row that was seen of a part, there may be more.
    """
    own = single_chunk(rows.table.column(column))
    ranks = exact(pa.concat_arrays([own, *(edge.cast(own.type) for edge in edges)]))
    horizon = np.full(count, np.iinfo(np.int64).max)
    limited = np.zeros(count, np.bool_)
    if beyond:
        np.minimum.at(horizon, np.concatenate(beyond), ranks[rows.size :])
        limited[np.concatenate(beyond)] = True
    if not rows.size:
        return rows, limited
    order = np.lexsort((ranks[: rows.size], rows.keys))
    owner, rank, diff = rows.keys[order], ranks[order], rows.weights[order]
    new = np.ones(owner.size, np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (rank[1:] != rank[:-1])
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(diff, starts)
    there = sums != 0
    if count:
        of = owner[starts]
        there &= ~limited[of] | (rank[starts] < horizon[of])
    kept = rows.take(order[starts[there]])
    return Rows(kept.table, kept.keys, sums[there]), limited
