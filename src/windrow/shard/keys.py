"""A set of keys to look up: sorted by prefix, so that statistics and searches can use it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import OptionError
from windrow.rows.equality import equal_pairs
from windrow.rows.hashing import hash_keys
from windrow.rows.types import conform, single_chunk
from windrow.shard.spec import ShardSpec


@dataclass(frozen=True)
class KeySet:
    """Canonical key rows and their prefixes (int64), in the order of the prefixes.

    `prefixes` is empty where the shard's prefix does not come from key columns; then nothing can
    be ruled out by prefix, and rows are compared by their key hash, kept in `hashes`.
    """

    spec: ShardSpec
    table: pa.Table
    hashes: np.ndarray
    prefixes: np.ndarray

    @staticmethod
    def make(keys: pa.Table, spec: ShardSpec) -> KeySet:
        if not spec.key:
            raise OptionError("this shard has no key columns, so there are no keys to look up")
        key_schema = pa.schema([spec.schema.field(name) for name in spec.key])
        table = conform(keys, key_schema, "keys to look up")
        hashes = _key_hashes(table, spec)
        order = np.argsort(hashes, kind="stable")
        table = table.take(pa.array(order))
        table = pa.table([single_chunk(c) for c in table.columns], schema=table.schema)
        by_prefix = set(spec.prefix_columns) <= set(spec.key)
        prefixes = np.unique(spec.prefix(table)) if by_prefix else np.zeros(0, np.int64)
        return KeySet(spec, table, hashes[order], prefixes)

    @property
    def by_prefix(self) -> bool:
        """Whether keys with different prefixes differ, so that rows can be found by them."""
        return set(self.spec.prefix_columns) <= set(self.spec.key)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def overlaps(self, low: int, high: int) -> bool:
        """Whether a key may have its prefix in [low, high]."""
        if not len(self):
            return False
        if not self.by_prefix:
            return True
        at = int(np.searchsorted(self.prefixes, low))
        return at < self.prefixes.size and bool(self.prefixes[at] <= high)

    def rows_in_sorted(self, prefix: np.ndarray) -> np.ndarray:
        """Positions in the sorted array `prefix` of all rows that share a prefix with a key."""
        if not self.by_prefix:
            return np.arange(prefix.size)
        return positions_in_sorted(prefix, self.prefixes)

    def contains(self, table: pa.Table, prefix: np.ndarray) -> np.ndarray:
        """Which rows of `table` have one of the keys: by hash, then value by value."""
        out = np.zeros(table.num_rows, np.bool_)
        if not len(self) or not table.num_rows:
            return out
        candidates = np.arange(table.num_rows)
        if self.by_prefix:
            at = np.minimum(np.searchsorted(self.prefixes, prefix), self.prefixes.size - 1)
            candidates = np.flatnonzero(self.prefixes[at] == prefix)
        if not candidates.size:
            return out
        rows = table.select(list(self.spec.key)).take(pa.array(candidates))
        hashes = _key_hashes(rows, self.spec)
        start = np.searchsorted(self.hashes, hashes, "left")
        end = np.searchsorted(self.hashes, hashes, "right")
        # Rows and the keys in reach side by side: key k stands at shift + k.
        first, last = int(start.min()), int(end.max())
        near = self.table.slice(first, last - first)
        shift = rows.num_rows - first
        both = [single_chunk(c) for c in pa.concat_tables([rows, near]).columns]
        for step in range(int((end - start).max())):
            open_ = np.flatnonzero((start + step < end) & ~out[candidates])
            same = equal_pairs(both, open_, shift + start[open_] + step)
            out[candidates[open_[same]]] = True
        return out


def _key_hashes(table: pa.Table, spec: ShardSpec) -> np.ndarray:
    return hash_keys([single_chunk(table.column(name)) for name in spec.key])


def positions_in_sorted(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where the sorted array `values` holds one of `wanted`, which are sorted and few.

    >>> positions_in_sorted(np.array([1, 1, 3, 5, 5]), np.array([1, 5, 7])).tolist()
    [0, 1, 3, 4]
    """
    if not values.size:
        return np.zeros(0, np.int64)
    first = np.searchsorted(wanted, values[0])
    last = np.searchsorted(wanted, values[-1], "right")
    wanted = wanted[first:last]
    starts = np.searchsorted(values, wanted, "left")
    counts = np.searchsorted(values, wanted, "right") - starts
    offsets = np.repeat(np.cumsum(counts) - counts, counts)
    rows: np.ndarray = np.repeat(starts, counts) + np.arange(int(counts.sum())) - offsets
    return rows
