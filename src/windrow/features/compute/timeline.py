"""Events and queries of one slice on common timelines: one per key.

Everything is positions: events are sorted by key and time, queries too, and a window of a query
is a range of event positions. Keys are compared by value wherever their hashes meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.ranges import Ranges
from windrow.algebra.windows import Window
from windrow.rows.equality import equal_pairs
from windrow.rows.hashing import hash_keys
from windrow.rows.types import single_chunk
from windrow.words.groups import group_ids
from windrow.words.sorting import sort_words


def key_ids(keys: pa.Table) -> np.ndarray:
    """A number for each row, equal exactly for equal keys (NULL equals NULL). Canonical values."""
    columns = [single_chunk(column) for column in keys.columns]
    return group_ids(hash_keys(columns)[None, :], columns)


@njit(cache=True, nogil=True)
def search(values: Any, first: Any, last: Any, bounds: Any) -> Any:
    """For each bound the first position in [first, last) with a value >= it; sorted in there.

    Where bounds ascend within the same positions, the search resumes at the place before.
    """
    out = np.empty(bounds.size, np.int64)
    for q in range(bounds.size):
        low, high, bound = first[q], last[q], bounds[q]
        if q and low == first[q - 1] and high == last[q - 1] and bound >= bounds[q - 1]:
            low = out[q - 1]
            probe, step = low, 1
            while probe < high and values[probe] < bound:
                low = probe + 1
                probe = low + step
                step += step
            high = min(high, probe)
        while low < high:
            middle = (low + high) // 2
            if values[middle] < bound:
                low = middle + 1
            else:
                high = middle
        out[q] = low
    return out


@njit(cache=True, nogil=True)
def _compacted(kept: Any, keys: Any, times: Any, ties: Any) -> Any:
    """The positions that are kept, how many are below each, and the rows there."""
    below = np.empty(kept.size + 1, np.int64)
    below[0] = 0
    for i in range(kept.size):
        below[i + 1] = below[i] + kept[i]
    size = below[kept.size]
    some = np.empty(size, np.int64)
    some_keys, some_times = np.empty(size, np.int64), np.empty(size, np.int64)
    some_ties = np.empty(size, np.int64)
    for i in range(kept.size):
        if kept[i]:
            at = below[i]
            some[at], some_keys[at] = i, keys[i]
            some_times[at], some_ties[at] = times[i], ties[i]
    return some, below, some_keys, some_times, some_ties


@dataclass(frozen=True)
class Lane:
    """Rows in the order of (hash of the key, time)."""

    keys: pa.Table
    hashes: np.ndarray
    times: np.ndarray


@dataclass(frozen=True)
class Timelines:
    """Sorted events beside sorted queries; keys are numbers that the two share.

    `order` sorts the events given by (key, time), `query_order` the queries (None: they are
    sorted already); the other arrays are in sorted order. `ties` numbers the distinct (key,
    time) of events. `first` and `last` delimit, for each query, the positions of its key's events.
    """

    order: np.ndarray | None
    keys: np.ndarray
    times: np.ndarray
    ties: np.ndarray
    query_order: np.ndarray | None
    query_keys: np.ndarray
    queries: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def make(
        event_keys: pa.Table,
        event_times: np.ndarray,
        query_keys: pa.Table,
        queries: np.ndarray,
        dead: np.ndarray,
    ) -> Timelines:
        """Key tables have the same columns; times are int64 milliseconds.

        `dead` queries have a null key or time: no event is theirs.
        """
        both = pa.concat_tables([event_keys, query_keys]).combine_chunks()
        ids = key_ids(both)
        event_ids, query_ids = ids[: event_times.size], ids[event_times.size :]
        order = sort_words(np.vstack([event_ids, event_times]))
        query_order = sort_words(np.vstack([query_ids, queries]))
        keys, times = event_ids[order], event_times[order]
        changed = (keys[1:] != keys[:-1]) | (times[1:] != times[:-1])
        wanted = query_ids[query_order]
        first = np.searchsorted(keys, wanted, "left")
        last = np.searchsorted(keys, wanted, "right")
        return Timelines(
            order=order,
            keys=keys,
            times=times,
            ties=np.concatenate([[0], np.cumsum(changed)])[: order.size],
            query_order=query_order,
            query_keys=wanted,
            queries=queries[query_order],
            first=first,
            last=np.where(dead[query_order], first, last),
        )

    @staticmethod
    def of_sorted(events: Lane, queries: Lane, dead: np.ndarray) -> Timelines | None:
        """Timelines of rows that are sorted by the hash of their key; the hash numbers the keys.

        None if two keys share a hash: then the rows have to be sorted by key.
        """
        hashes, times = events.hashes, events.times
        same = hashes[1:] == hashes[:-1]
        tied = np.flatnonzero(same)
        columns = [single_chunk(column) for column in events.keys.columns]
        if not equal_pairs(columns, tied, tied + 1).all():
            return None
        first = np.searchsorted(hashes, queries.hashes, "left")
        last = np.searchsorted(hashes, queries.hashes, "right")
        last = np.where(dead, first, last)
        met = np.flatnonzero(first < last)
        leaders = [column.take(pa.array(first[met])) for column in columns]
        asking = [single_chunk(column).take(pa.array(met)) for column in queries.keys.columns]
        pairs = [pa.concat_arrays([a, b]) for a, b in zip(leaders, asking, strict=True)]
        at = np.arange(met.size)
        if not equal_pairs(pairs, at, at + met.size).all():
            return None
        changed = ~same | (times[1:] != times[:-1])
        return Timelines(
            order=None,
            keys=hashes,
            times=times,
            ties=np.concatenate([[0], np.cumsum(changed)])[: times.size],
            query_order=None,
            query_keys=queries.hashes,
            queries=queries.times,
            first=first,
            last=last,
        )

    def only(self, kept: np.ndarray) -> Timelines:
        """The same with some of the events: those that are `kept`, by position."""
        some, below, keys, times, ties = _compacted(kept, self.keys, self.times, self.ties)
        return replace(
            self,
            order=some if self.order is None else self.order[some],
            keys=keys,
            times=times,
            ties=ties,
            first=below[self.first],
            last=below[self.last],
        )

    def asked(self, some: np.ndarray) -> Timelines:
        """The same with some of the queries, in sorted order: their numbers mean nothing."""
        if some.all():
            return self
        return replace(
            self,
            query_order=None,
            query_keys=self.query_keys[some],
            queries=self.queries[some],
            first=self.first[some],
            last=self.last[some],
        )

    def ranges(self, window: Window) -> Ranges:
        """The events of each query's window, as positions."""
        start_time, end_time = window.bounds(self.queries)
        start = search(self.times, self.first, self.last, start_time)
        end = search(self.times, self.first, self.last, end_time)
        return Ranges(start, np.maximum(start, end))
