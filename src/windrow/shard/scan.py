"""A scan: what to read of a slice of a shard, as data that travels to a task.

A `Scan` says which updates and columns are read; a `Slice` says where they are stored.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.rows.ordering import LOWEST, exact
from windrow.rows.types import single_chunk
from windrow.shard.ahead import Ahead
from windrow.shard.keys import KeySet
from windrow.shard.part import Part
from windrow.shard.predicate import Predicate, columns_of, may_match
from windrow.shard.spec import HASH, PREFIX, ShardSpec
from windrow.storage.store import Store
from windrow.updates import DIFF, TIME, int64_values, update_schema

ROUND_ROWS = 500_000  # updates that a merge holds at a time, over all runs
_CHUNK_ROWS = (2_048, 65_536)
_LIMITED_CHUNK_ROWS = 4_096

Bound = tuple[int, int]  # (prefix, minor): a place in the shard's order
START: Bound = (LOWEST, LOWEST)


@dataclass(frozen=True)
class TimeRange:
    """Which updates count, by time, and the time they are given.

    Those with `start <= time <= end`, at `max(time, advance_to)`; `start` None is no bound. Times
    in `without` (ascending) are left out.
    """

    start: int | None
    end: int
    advance_to: int
    without: tuple[int, ...] = ()

    @property
    def is_single(self) -> bool:
        """All updates come out at one time, so that time does not tell rows apart."""
        return self.advance_to >= self.end

    def overlaps(self, part: Part) -> bool:
        low, high = part.time
        if low == high and low in self.without:
            return False
        return low <= self.end and (self.start is None or high >= self.start)

    def covers(self, part: Part) -> bool:
        low, high = part.time
        at = bisect_left(self.without, low)
        if at < len(self.without) and self.without[at] <= high:
            return False
        return high <= self.end and (self.start is None or low >= self.start)

    def mask(self, times: np.ndarray) -> np.ndarray:
        mask: np.ndarray = times <= self.end
        if self.start is not None:
            mask &= times >= self.start
        if self.without:
            mask &= ~np.isin(times, self.without)
        return mask


@dataclass(frozen=True)
class Slice:
    """The updates of `runs` in [start, end) of the shard's order; `end` None is its end.

    Each run is a sequence of sorted, non-overlapping parts, or one unsorted part.
    """

    start: Bound
    end: Bound | None
    runs: tuple[tuple[Part, ...], ...]

    @property
    def parts(self) -> list[Part]:
        return [part for run in self.runs for part in run]


@dataclass
class Counters:
    """What a read did. Bytes and parts skipped are those that statistics or keys ruled out."""

    updates_read: int = 0
    updates_emitted: int = 0
    parts_fetched: int = 0
    parts_skipped: int = 0
    row_groups_fetched: int = 0
    row_groups_skipped: int = 0
    bytes_fetched: int = 0
    bytes_skipped: int = 0
    seconds_to_first_batch: float | None = None

    def add(self, other: Counters) -> None:
        for name, value in vars(other).items():
            if name != "seconds_to_first_batch":
                setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Scan:
    """Which updates and columns to read. Picklable; `where` is bound to the schema.

    With `timeless`, the times of updates are not requested, and chunks may lack them.
    """

    store: Store
    spec: ShardSpec
    times: TimeRange
    columns: tuple[str, ...]
    where: Predicate | None = None
    keys: KeySet | None = None
    limit: int | None = None
    cache: Any = None  # windrow.shard.cache.PartCache, if lookups may keep parts on local disk
    timeless: bool = False
    ahead: Ahead = field(default_factory=Ahead.default)

    @property
    def output_schema(self) -> pa.Schema:
        return update_schema(pa.schema([self.spec.schema.field(name) for name in self.columns]))

    def chunk_rows(self, runs: int) -> int:
        """How many updates of each run to hold at a time."""
        low, high = _CHUNK_ROWS
        rows = min(high, max(low, ROUND_ROWS // max(runs, 1)))
        return rows if self.limit is None else min(rows, _LIMITED_CHUNK_ROWS)

    def may_hold(self, part: Part) -> bool:
        """False only if the log's statistics rule the part out."""
        if not self.times.overlaps(part):
            return False
        if self.where is not None and not may_match(self.where, part.bounds):
            return False
        return self.keys is None or self.keys.overlaps(*part.prefix)

    def file_columns(self, merging: bool) -> list[str]:
        """The columns to read of a sorted part."""
        names = dict.fromkeys(self.columns)
        if self.where is not None:
            names |= dict.fromkeys(sorted(columns_of(self.where)))
        if self.keys is not None:
            names |= dict.fromkeys(self.spec.key)
        if merging:
            names |= dict.fromkeys(self.spec.order.columns)
            names[HASH] = None
        own = [DIFF, PREFIX] if self.timeless and not merging else [TIME, DIFF, PREFIX]
        return [*names, *own]


def order_words(spec: ShardSpec, table: pa.Table, with_time: bool) -> np.ndarray:
    """The words that the shard's order compares, for sorted or unsorted updates.

    Words of order columns may be ranks among the rows of `table`: comparable within it only.
    """
    words = [int64_values(table, PREFIX)]
    words += [exact(single_chunk(table.column(name))) for name in spec.order.columns]
    words.append(int64_values(table, HASH))
    if with_time:
        words.append(int64_values(table, TIME))
    return np.vstack(words)
