"""Events beside the queries that count them: each event counts for a span of queries."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.evaluate import evaluate_spans
from windrow.algebra.spans import SpannedColumn
from windrow.algebra.windows import Window, WindowKind
from windrow.features.compute.buckets import bucket_maps
from windrow.features.compute.lifetimes import NEVER
from windrow.features.compute.timeline import Timelines, search
from windrow.rows.ordering import exact
from windrow.words.sorting import sort_words


@dataclass(frozen=True)
class LiveQueries:
    """Queries with a key and a time, sorted, beside the events that may count for them.

    For each event `first` and `last` delimit the queries of its key.
    """

    times: np.ndarray
    first: np.ndarray
    last: np.ndarray
    event_times: np.ndarray
    born: np.ndarray
    died: np.ndarray

    @property
    def size(self) -> int:
        return int(self.times.size)

    @staticmethod
    def make(
        timelines: Timelines, lives: tuple[np.ndarray, np.ndarray], dead: np.ndarray
    ) -> LiveQueries:
        keys = timelines.query_keys[~dead]
        born, died = lives
        if timelines.order is not None:
            born, died = born[timelines.order], died[timelines.order]
        # Events of a key are adjacent: each key is searched once.
        size = timelines.keys.size
        new = np.flatnonzero(timelines.keys[1:] != timelines.keys[:-1]) + 1
        starts = np.concatenate([[0], new])[:size]
        lengths = np.diff(np.append(starts, size))
        leaders = timelines.keys[starts]
        return LiveQueries(
            timelines.queries[~dead],
            np.repeat(np.searchsorted(keys, leaders, "left"), lengths),
            np.repeat(np.searchsorted(keys, leaders, "right"), lengths),
            timelines.times,
            born,
            died,
        )

    def spans(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """For each event the queries [first, last) whose window holds it while it lives."""
        start, end = window.bounds(self.times)
        # In the window: start <= t < end. Alive: born < q <= died. All switch once as q grows.
        alive = self._alive
        begins = self._begins(window, end)
        return _spans(start, self.first, self.last, self.event_times, begins, *alive)

    @functools.cached_property
    def _alive(self) -> tuple[np.ndarray, np.ndarray]:
        """For each event the queries that it lives through, whatever the window."""
        died = self.last
        if (self.died < NEVER).any():
            died = search(self.times, self.first, self.last, self.died + 1)
        return search(self.times, self.first, self.last, self.born + 1), died

    def _begins(self, window: Window, end: np.ndarray) -> np.ndarray:
        """The first query whose window ends after the event; windows that end alike share it."""
        hops = window.hop if window.kind is WindowKind.HOPPING else 0
        if hops not in self._begun:
            self._begun[hops] = search(end, self.first, self.last, self.event_times + 1)
        return self._begun[hops]

    @functools.cached_property
    def _begun(self) -> dict[int, np.ndarray]:
        return {}


@njit(cache=True, nogil=True)
def _spans(
    start: Any, first: Any, last: Any, times: Any, begins: Any, born: Any, died: Any
) -> tuple[Any, Any]:
    """For each event the queries from `begins` and `born` on, up to `died`, while start <= t."""
    low, high = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    ends = search(start, first, last, times + 1)
    for e in range(times.size):
        low[e] = max(begins[e], born[e])
        high[e] = max(low[e], min(ends[e], died[e]))
    return low, high


@dataclass(frozen=True)
class Spanned:
    """Elements with the spans of queries that count them.

    With buckets (`levels`) the spans are over places: each is a query in one bucket. `places`
    then gives, for each, the query, and an element that has its buckets.
    """

    column: SpannedColumn
    queries: int
    levels: list[pa.Array]
    places: tuple[np.ndarray, np.ndarray] | None

    def query(self, there: np.ndarray) -> np.ndarray:
        return there if self.places is None else self.places[0][there]

    def leader(self, there: np.ndarray) -> np.ndarray:
        return there if self.places is None else self.places[1][there]

    def evaluate(self, aggregation: Aggregation) -> pa.Array:
        """The result for each live query, and last for one that no row counts for."""
        found = evaluate_spans(aggregation, self.column)
        if not self.levels:
            return found
        there = np.flatnonzero(self.column.spans.counts > 0)
        codes = [exact(level) for level in self.levels]
        query, leader = self.query(there), self.leader(there)
        order = sort_words(np.vstack([query, *(code[leader] for code in codes)]))
        return bucket_maps(
            found.take(pa.array(there[order])),
            query[order],
            leader[order],
            self.levels,
            codes,
            self.queries,
        )
