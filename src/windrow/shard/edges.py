"""The first or the last value of a key, found where it is stored and not by reading the key.

A shard whose order is the hash of the key, then a column, has the values of a key sorted within
each part. The least one that is there is then among the first few of each part: as many as
retractions have left to skip, whatever the size of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.equality import equal_pairs
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.shard.files import open_part
from windrow.shard.part import Part
from windrow.shard.read import Read
from windrow.shard.scan import Scan
from windrow.shard.spec import PREFIX
from windrow.updates import DIFF, TIME, int64_values

_FIRST, _GROWTH = 16, 8  # rows of each part and key to look at, and how much more if all are gone


@dataclass(frozen=True)
class Change:
    """Updates that are not stored yet: the number of a key, a value, and how often it comes."""

    keys: np.ndarray
    values: pa.Array
    diffs: np.ndarray


def edges(read: Read, keys: pa.Table, column: str, *, largest: bool, change: Change) -> pa.Array:
    """For each key the least (or largest) value that it has after `change`; NULL if it has none.

    `read` is a snapshot of a shard in the order of its key's hash, then `column`; `keys` has the
    key columns, each key once. Values that are NULL are not there.
    """
    found = _Search(read, keys, column, largest, change)
    return found.run()


class _Search:
    def __init__(
        self, read: Read, keys: pa.Table, column: str, largest: bool, change: Change
    ) -> None:
        self._read, self._keys, self._column, self._largest = read, keys, column, largest
        self._change = change
        spec = read.scan.spec
        self._type = spec.schema.field(column).type
        prefixes = spec.prefix(keys)
        self._parts: list[tuple[pa.Table, np.ndarray, np.ndarray]] = []
        names = [*spec.key, column, TIME, DIFF]
        for part in read.parts:
            if read.scan.times.overlaps(part):
                table = part_table(read.scan, part, [column])
                stored = int64_values(table, PREFIX)
                starts = np.searchsorted(stored, prefixes, "left")
                ends = np.searchsorted(stored, prefixes, "right")
                self._parts.append((table.select(names), starts, ends))

    def run(self) -> pa.Array:
        count = self._keys.num_rows
        open_ = np.arange(count)
        chosen: list[pa.Array] = []
        owners: list[np.ndarray] = []
        depth = _FIRST
        while open_.size:
            values, found, settled = self._look(open_, depth)
            chosen.append(values)
            owners.append(found)
            open_ = open_[~settled]
            depth *= _GROWTH
        owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        values = pa.concat_arrays(chosen) if chosen else pa.nulls(0, self._type)
        places = np.full(count, -1)
        places[owner] = np.arange(owner.size)
        return values.take(pa.array(places, mask=places < 0))

    def _look(self, open_: np.ndarray, depth: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """Look at `depth` rows of each part for each open key.

        Returns the values found, the keys that they are of, and which of `open_` are settled.
        """
        owners, values, diffs = self._changed(open_)
        horizons: list[tuple[np.ndarray, pa.Array]] = []
        taken: list[pa.Table] = []
        owner: list[np.ndarray] = []
        for table, starts, ends in self._parts:
            first, last = starts[open_], ends[open_]
            size = np.minimum(last - first, depth)
            begin = last - size if self._largest else first
            taken.append(table.take(pa.array(ranges(begin, size))))
            owner.append(np.repeat(np.arange(open_.size), size))
            more = np.flatnonzero(last - first > depth)
            if more.size:
                edge = begin[more] if self._largest else begin[more] + depth - 1
                column = table.column(self._column)
                horizons.append((more, single_chunk(column.take(pa.array(edge)))))
        if taken:
            places = np.concatenate(owner)
            seen, mask = self._rows(pa.concat_tables(taken), open_[places])
            owners.append(places[mask])
            values.append(seen[0].filter(pa.array(mask)))
            diffs.append(seen[1][mask])
        return self._best(open_, owners, values, diffs, horizons)

    def _best(
        self,
        open_: np.ndarray,
        owners: list[np.ndarray],
        values: list[pa.Array],
        diffs: list[np.ndarray],
        horizons: list[tuple[np.ndarray, pa.Array]],
    ) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        together = pa.concat_arrays([*values, *(edge for _, edge in horizons)])
        ranks = exact(together)
        if self._largest:
            ranks = ~ranks  # reverses the order, and never overflows
        count = sum(len(one) for one in values)
        owner = np.concatenate(owners)
        diff = np.concatenate(diffs)
        # Of what lies at or beyond the last row that was looked at, there may be more.
        horizon = np.full(open_.size, np.iinfo(np.int64).max)
        limited = np.zeros(open_.size, np.bool_)
        beyond = [keys for keys, _ in horizons]
        if beyond:
            np.minimum.at(horizon, np.concatenate(beyond), ranks[count:])
            limited[np.concatenate(beyond)] = True
        order = np.lexsort((ranks[:count], owner))
        owner, rank, diff = owner[order], ranks[:count][order], diff[order]
        if not owner.size:
            return together[:0], np.zeros(0, np.int64), ~limited
        new = np.ones(owner.size, np.bool_)
        new[1:] = (owner[1:] != owner[:-1]) | (rank[1:] != rank[:-1])
        starts = np.flatnonzero(new)
        sums = np.add.reduceat(diff, starts)
        of = owner[starts]
        there = starts[(sums > 0) & (~limited[of] | (rank[starts] < horizon[of]))]
        keys, first = np.unique(owner[there], return_index=True)
        settled = ~limited
        settled[keys] = True
        return together.take(pa.array(order[there[first]])), open_[keys], settled

    def _changed(
        self, open_: np.ndarray
    ) -> tuple[list[np.ndarray], list[pa.Array], list[np.ndarray]]:
        places = np.full(self._keys.num_rows, -1)
        places[open_] = np.arange(open_.size)
        owner = places[self._change.keys]
        mine = owner >= 0
        values = single_chunk(self._change.values).filter(pa.array(mine)).cast(self._type)
        return [owner[mine]], [values], [self._change.diffs[mine]]

    def _rows(
        self, taken: pa.Table, keys: np.ndarray
    ) -> tuple[tuple[pa.Array, np.ndarray], np.ndarray]:
        """Values and diffs of stored rows, and which of them count: of the key, in time, not NULL.

        A hash may be that of several keys.
        """
        values = single_chunk(taken.column(self._column))
        mask = self._read.scan.times.mask(int64_values(taken, TIME))
        if values.null_count:
            mask &= values.is_valid().to_numpy(zero_copy_only=False)
        size = taken.num_rows
        both = [
            single_chunk(pa.chunked_array([single_chunk(taken.column(name)), own]))
            for name, own in (
                (name, single_chunk(self._keys.column(name).take(pa.array(keys))))
                for name in self._read.scan.spec.key
            )
        ]
        mask &= equal_pairs(both, np.arange(size), size + np.arange(size))
        return (values, int64_values(taken, DIFF)), mask


def part_table(scan: Scan, part: Part, columns: Sequence[str]) -> pa.Table:
    """A part whose rows can be taken by their place: some columns, and those of updates."""
    if scan.cache is not None and scan.cache.takes(scan, part):
        cached: pa.Table | None = scan.cache.part(
            scan, part, lambda one: open_part(scan.store, one)
        )
        if cached is not None:
            return cached
    file = open_part(scan.store, part)
    try:
        names = [*scan.spec.key, *columns, TIME, DIFF, PREFIX]
        return file.read(columns=list(dict.fromkeys(names)), use_threads=False)
    finally:
        file.close(force=True)


def ranges(begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The numbers of ranges, one after another."""
    offsets = np.cumsum(size) - size
    found: np.ndarray = np.repeat(begin - offsets, size) + np.arange(int(size.sum()))
    return found
