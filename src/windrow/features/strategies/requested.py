"""Rows of requested keys: what few queries need of a table that changes.

Changes of one row have to meet, wherever they are in the log, so they cannot be lifted share by
share as events are. But those of keys that no query has can be left out at once: tasks filter
their shares, and what remains is arranged for this backfill alone, and merged.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.features.compute.events import Events, QueryTimes, canonical_table
from windrow.features.compute.lifetimes import ALWAYS, NEVER
from windrow.features.compute.spanned import LiveQueries
from windrow.features.compute.timeline import Timelines
from windrow.features.definitions import GroupBy
from windrow.features.inputs.layout import key_names
from windrow.features.strategies.merge import SliceJob
from windrow.rows.equality import equal_pairs
from windrow.rows.hashing import hash_keys
from windrow.rows.types import conform, single_chunk
from windrow.shard.append import TaskRows
from windrow.words.groups import group_ids
from windrow.words.sorting import sort_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RequestedRows:
    """The rows of a table whose keys are among those of the queries. Picklable."""

    queries: SliceJob
    keys: pa.Schema
    rows: TaskRows | None = None

    @property
    def tasks(self) -> int:
        return 0 if self.rows is None else self.rows.tasks

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        assert self.rows is not None
        return self.filter(self.rows.batches(task))

    def filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        requested = RequestedKeys.make(self.queries.all_queries())
        for batch in batches:
            keys = pa.Table.from_batches([batch]).select(self.keys.names)
            yield batch.filter(pa.array(requested.mask(conform(keys, self.keys, "broadcast"))))

    def over(self, rows: TaskRows) -> RequestedRows:
        """The requested ones of rows that tasks read."""
        return replace(self, rows=rows)

    def frame(self, frame: DataFrame) -> DataFrame:
        """The same of rows that Spark reads."""
        names = frame.columns
        plain = frame.toDF(*(f"c{i}" for i in range(len(names))))  # no dots in names

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in self.filter(b.rename_columns(names) for b in batches):
                yield batch.rename_columns([f"c{i}" for i in range(len(names))])

        return plain.mapInArrow(run, plain.schema).toDF(*names)


@njit(cache=True, nogil=True)
def _are_members(hashes: Any, members: Any, bits: Any) -> Any:
    """Which of `hashes` are among `members`, which are sorted."""
    found = np.zeros(hashes.size, np.bool_)
    low_bits = bits.size - 1
    for i in range(hashes.size):
        if bits[hashes[i] & low_bits]:
            at = np.searchsorted(members, hashes[i])
            found[i] = at < members.size and members[at] == hashes[i]
    return found


@dataclass(frozen=True)
class RequestedKeys:
    """The queries that have a key and a time, by key and time, and the keys among them.

    `order` are their places among all queries. Key g has the hash `hashes[g]` (ascending; equal
    for different keys only where hashes collide) and the queries [first[g], last[g]).
    """

    order: np.ndarray
    times: np.ndarray
    keys: pa.Table
    hashes: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def make(queries: QueryTimes) -> RequestedKeys:
        keys = canonical_table(queries.keys)
        place = np.flatnonzero(queries.live)
        keys, times = keys.take(pa.array(place)), queries.times[place]
        columns = [single_chunk(column) for column in keys.columns]
        hashes = hash_keys(columns)
        ids = group_ids(hashes[None, :], columns)
        order = sort_words(np.vstack([ids, times]))
        new = np.ones(order.size, np.bool_)
        new[1:] = ids[order[1:]] != ids[order[:-1]]
        first = np.flatnonzero(new)
        leaders = order[first]
        return RequestedKeys(
            place[order],
            times[order],
            keys.take(pa.array(leaders)),
            hashes[leaders],
            first,
            np.append(first[1:], order.size)[: first.size],
        )

    def filter(self, table: pa.Table) -> pa.Table:
        """Only rows whose key may be among those requested."""
        return table.filter(pa.array(self.mask(table)))

    def mask(self, table: pa.Table) -> np.ndarray:
        """Which rows have a key that may be among those requested."""
        columns = [single_chunk(table.column(name)) for name in key_names(self.keys.num_columns)]
        found: np.ndarray = _are_members(hash_keys(columns), self.hashes, self._bits)
        return found

    @functools.cached_property
    def _bits(self) -> np.ndarray:
        """A flag for each value of the low bits of a hash: whether a key may have it.

        It fits a processor's cache, and spares most rows the search among the keys.
        """
        size = 1 << min(max(self.hashes.size, 1).bit_length() + 4, 20)
        bits = np.zeros(size, np.bool_)
        bits[self.hashes & (size - 1)] = True
        return bits

    def place(self, events: Events, group: GroupBy) -> tuple[Timelines, LiveQueries]:
        """Events beside the queries of their keys; in their given order."""
        times = group.effective_times(self.times)
        key = self._keys_of(canonical_table(events.keys))
        first, last = np.append(self.first, 0)[key], np.append(self.last, 0)[key]  # of -1: none
        none = np.zeros(0, np.int64)
        timelines = Timelines(
            order=None,
            keys=key,
            times=events.times,
            ties=np.zeros_like(key),
            query_order=None,
            query_keys=none,
            queries=times,
            first=none,
            last=none,
        )
        always = np.full(key.size, ALWAYS), np.full(key.size, NEVER)
        return timelines, LiveQueries(times, first, last, events.times, *(events.lives or always))

    def _keys_of(self, keys: pa.Table) -> np.ndarray:
        """The number of each event's key; -1 if it is not requested. Values decide, not hashes."""
        columns = [single_chunk(column) for column in keys.columns]
        hashes = hash_keys(columns)
        low = np.searchsorted(self.hashes, hashes, "left")
        high = np.searchsorted(self.hashes, hashes, "right")
        found = np.full(hashes.size, -1)
        own = [single_chunk(column) for column in self.keys.columns]
        for step in range(int((high - low).max(initial=0))):  # one, unless hashes collide
            at = np.flatnonzero((low + step < high) & (found < 0))
            candidate = low[at] + step
            pairs = [
                pa.concat_arrays([a.take(pa.array(candidate)), b.take(pa.array(at))])
                for a, b in zip(own, columns, strict=True)
            ]
            place = np.arange(at.size)
            same = equal_pairs(pairs, place, place + at.size)
            found[at[same]] = candidate[same]
        return found
