"""Rows that change, of which most never do: these are counted by ranges, as events are.

A row is *settled* if it was known by its own time and never disappears. A window ends at the
query's time at the latest, so whoever has such a row in its window counts it, and its lifetime
need not be looked at. All others that ever live are *moving*, and counted by spans.

    settled   ● ● ●   ●  ● ● ●    ranges of positions ─┐
    moving       ○──    ○───      spans of queries ────┴─▶ one result
    a retraction, or a row that is gone when it appears: neither
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.both import Both
from windrow.algebra.ranges import Ranges
from windrow.algebra.spans import SpannedColumn, Spans
from windrow.algebra.windows import Window
from windrow.features.compute.elements import Elements
from windrow.features.compute.lifetimes import NEVER
from windrow.features.compute.spanned import LiveQueries
from windrow.features.compute.timeline import Timelines


@dataclass(frozen=True)
class Split:
    """Which rows are settled and which are moving, in the order of the timelines."""

    settled: np.ndarray
    moving: np.ndarray

    @staticmethod
    def of(timelines: Timelines, lives: tuple[np.ndarray, np.ndarray]) -> Split:
        born, died = lives
        if timelines.order is not None:
            born, died = born[timelines.order], died[timelines.order]
        settled, moving = _split(timelines.times, born, died)
        return Split(settled, moving)

    @functools.cached_property
    def is_settled(self) -> bool:
        """Whether no row is moving."""
        return not self.moving.any()

    @property
    def mostly_settled(self) -> bool:
        """Whether two ways of counting cost less than one for all rows."""
        return bool(np.count_nonzero(self.settled) > 2 * np.count_nonzero(self.moving))


@njit(cache=True, nogil=True)
def _split(times: Any, born: Any, died: Any) -> Any:
    settled, moving = np.empty(times.size, np.bool_), np.empty(times.size, np.bool_)
    for i in range(times.size):
        settled[i] = died[i] >= NEVER and born[i] <= times[i]
        moving[i] = not settled[i] and born[i] < died[i]
    return settled, moving


@dataclass(frozen=True)
class MixedQueries:
    """Queries with a key and a time beside settled rows, and beside moving ones."""

    settled: Timelines
    moving: Timelines
    live: LiveQueries

    @staticmethod
    def make(
        timelines: Timelines,
        split: Split,
        lives: tuple[np.ndarray, np.ndarray],
        dead: np.ndarray,
    ) -> MixedQueries:
        moving = timelines.only(split.moving)
        live = LiveQueries.make(moving, lives, dead)
        return MixedQueries(timelines.only(split.settled).asked(~dead), moving, live)

    @property
    def size(self) -> int:
        """The results of a window: one for each query, and last for one that nothing counts for."""
        return self.live.size + 1

    def ranges(self, windows: Sequence[Window]) -> Ranges:
        """The settled rows of each query in each window, one window after another."""
        found = []
        for window in windows:
            one = self.settled.ranges(window)
            found.append(Ranges(np.append(one.start, 0), np.append(one.end, 0)))
        return Ranges.of(found)

    def both(
        self, settled: Elements, moving: Elements, windows: Sequence[Window], ranges: Ranges
    ) -> Both:
        """The elements of settled rows with their ranges, and those of moving rows with spans."""
        counted, firsts, lasts = [], [], []
        for number, window in enumerate(windows):
            first, last = self.live.spans(window)
            if moving.below is not None:
                first, last = first[moving.events], last[moving.events]
            some = np.flatnonzero(first < last)
            counted.append(some)
            firsts.append(first[some] + number * self.size)
            lasts.append(last[some] + number * self.size)
        at = np.concatenate(counted)
        spans = Spans(np.concatenate(firsts), np.concatenate(lasts), len(windows) * self.size)
        values = moving.values.take(pa.array(at))
        spanned = SpannedColumn(values, self.moving.times[moving.events[at]], spans)
        times = self.settled.times
        if settled.below is not None:
            times = times[settled.events]
        return Both(settled.column, times, settled.within(ranges), spanned)
