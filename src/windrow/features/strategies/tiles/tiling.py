"""Tiles: the states of a key's events, added up over hops of time, and kept.

    1 d   ├───────────────────────┼───────────────────────┤
    1 h   ├┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┼┤
    5 m   ┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆┆
    raw   ·····················································
               ├╌┼┼┼──────────────────────┼──────┼┼┼┼╌╌┤q
                a window: raw, 5 m, 1 h, 1 d, 1 h, 5 m, raw

An aggregation's tiles are stored as a shard beside the arrangement that they are built from,
whatever its windows. A row is the state of a key (and bucket) over one hop. New batches of the
arrangement add rows; a hop may have several, which are combined by readers. If the aggregate is a
group, retractions add rows too, whose states are negative; otherwise tiles are rebuilt after one.

    k0, k1, ...   keys                          b0, b1   buckets, outermost first
    __time        the start of the hop, ms      __state  bytes, see windrow.algebra.states
    __hop         its length, ms
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.evaluate import states_of
from windrow.algebra.states import States
from windrow.arrangements.rows import SortedRows
from windrow.features.compute.buckets import lanes_of
from windrow.features.compute.elements import Elements
from windrow.features.compute.events import Events, canonical_table
from windrow.features.compute.timeline import Timelines, key_ids
from windrow.features.compute.types import input_type
from windrow.features.inputs.layout import EVENT_TIME
from windrow.features.strategies.group_events import GroupEvents
from windrow.rows.ordering import HIGHEST, LOWEST, exact
from windrow.rows.types import single_chunk
from windrow.shard.merge import Consolidation
from windrow.shard.scan import Scan, Slice
from windrow.shard.spec import by_hash
from windrow.storage.names import digest
from windrow.time import DAY, HOUR, MINUTE, floor_to

HOPS = (5 * MINUTE, HOUR, DAY)
HOP, TILE_STATE = "__hop", "__state"
TILE_ORDER = by_hash(EVENT_TIME)
QUERY_BLOCK = 65_536  # queries that are given their tiles at a time


@dataclass(frozen=True)
class Tiling:
    """How the tiles of one aggregation are made from a group's arrangement. Picklable."""

    aggregation: Aggregation
    events: GroupEvents

    @property
    def name(self) -> str:
        """Names the tiles, whatever the windows: of one input and one kind of states."""
        one = self.aggregation
        return digest(self.states.header.written.hex(), one.column, one.bucket, one.condition)

    @property
    def states(self) -> States:
        return states_of(self.aggregation, input_type(self._type(self.aggregation.column)))

    def _type(self, column: str) -> pa.DataType:
        return self.events.layout.input_schema.field(column).type

    @property
    def level_types(self) -> list[pa.DataType]:
        levels = []
        if self.aggregation.bucket is not None:
            levels.append(self._type(self.aggregation.bucket))
        if pa.types.is_map(self._type(self.aggregation.column)):
            levels.append(self._type(self.aggregation.column).key_type)
        return levels

    @property
    def levels(self) -> list[str]:
        """The columns of buckets, outermost first."""
        return [f"b{i}" for i in range(len(self.level_types))]

    @property
    def schema(self) -> pa.Schema:
        layout = self.events.layout
        keys = [layout.schema.field(name) for name in layout.keys]
        return pa.schema(
            [
                *keys,
                pa.field(EVENT_TIME, pa.int64()),
                pa.field(HOP, pa.int64()),
                *(pa.field(n, t) for n, t in zip(self.levels, self.level_types, strict=True)),
                pa.field(TILE_STATE, pa.binary()),
            ]
        )

    @property
    def takes_retractions(self) -> bool:
        """Whether what a retraction leaves can be told from the tiles; if not, they are rebuilt."""
        return self.aggregation.function.law.invertible

    def tiles(self, events: Events, diffs: np.ndarray | None = None) -> Iterator[pa.Table]:
        """The tiles of some events, which are in order of key and time: a table for each hop.

        `diffs` say how often each event is there; those of retractions are negative.
        """
        keys = canonical_table(events.keys)
        ids = key_ids(keys)
        elements = Elements.make(self.aggregation, events, without_queries(ids, events.times))
        states = self.states
        codes = [exact(level) for level in elements.buckets]
        owner = ids[elements.events]
        times = events.times[elements.events]
        rows = np.arange(owner.size)  # the element that leads each state
        found: pa.Array | None = None
        for hop in HOPS:
            words = np.vstack([owner[rows], floor_to(times[rows], hop), *(c[rows] for c in codes)])
            lanes, leader = lanes_of(words)
            if found is None:
                often = None if diffs is None else diffs[elements.events]
                found = states.lift(elements.values, times, lanes, leader.size, often)
            else:
                found = states.combine(found, lanes, leader.size)
            rows = rows[leader]
            yield pa.table(
                [
                    *(single_chunk(c).take(pa.array(elements.events[rows])) for c in keys.columns),
                    pa.array(floor_to(times[rows], hop)),
                    pa.array(np.full(rows.size, hop)),
                    *(level.take(pa.array(rows)) for level in elements.buckets),
                    states.serialise(found),
                ],
                schema=self.schema,
            )


@dataclass(frozen=True)
class TileRows:
    """Tiles as tasks make them, slice by slice of an arrangement's new batches. Picklable."""

    tiling: Tiling
    scan: Scan
    slices: tuple[Slice, ...]

    @staticmethod
    def make(tiling: Tiling, lower: int, slices: Sequence[Slice]) -> TileRows:
        """The tiles of events that were ingested at `lower` or later."""
        known = tiling.events.scan
        times = replace(known.times, start=lower) if lower else known.times
        scan = replace(known, times=times)
        return TileRows(tiling, scan, tuple(slices))

    @property
    def tasks(self) -> int:
        return len(self.slices)

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        events, one = self.tiling.events, self.slices[task]
        # Retractions that tiles do not take have to meet their rows here.
        level = Consolidation.NONE if self.tiling.takes_retractions else events.level
        rows = SortedRows(self.scan, one.parts, (one.start, one.end), level)
        for table in self.tiling.tiles(*events.updates_of(rows.below(None))):
            yield from table.combine_chunks().to_batches()


def without_queries(ids: np.ndarray, times: np.ndarray) -> Timelines:
    none = np.zeros(0, np.int64)
    return Timelines(None, ids, times, np.zeros_like(ids), None, none, none, none, none)


def _inner(start: np.ndarray, end: np.ndarray, hop: int) -> tuple[np.ndarray, np.ndarray]:
    """The whole hops within [start, end): from, to. From is above to if there is none."""
    up = np.where(start == LOWEST, LOWEST, -floor_to(-np.maximum(start, -HIGHEST), hop))
    return up, floor_to(end, hop)
