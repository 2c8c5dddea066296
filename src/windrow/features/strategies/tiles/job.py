"""The tiles strategy: tails of windows from tiles, heads from raw events.

Tasks are cut by key as in a merge. Keys with more events than a slice has rows are by themselves,
and only they have tiles (or, if there is none, all keys). They are cut once more, by the time of
the queries: each task reads the key's tiles, which are few, and the raw events at the ends of its
own windows, which statistics find. All other keys are merged.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.features import limits
from windrow.features.inputs.layout import EVENT_TIME
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.strategies.merge import SliceJob
from windrow.features.strategies.slices import SliceResult, SliceTarget, write_slice
from windrow.features.strategies.tiles.windows import Tiled
from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.rows.types import single_chunk
from windrow.shard.part import Part
from windrow.shard.plan import slices_between
from windrow.shard.scan import Bound, Slice
from windrow.spark.tasks import Written
from windrow.storage.names import digest


@dataclass(frozen=True)
class TimePiece:
    """The queries of a slice with times in [start, end); the first piece has those without."""

    slice: int
    start: int | None = None
    end: int | None = None

    def mask(self, times: pa.Array) -> np.ndarray:
        valid = times.is_valid().to_numpy(zero_copy_only=False)
        values = times.fill_null(0).to_numpy(zero_copy_only=False)
        mask = np.ones(values.size, np.bool_)
        if self.start is not None:
            mask &= valid & (values >= self.start)
        if self.end is not None:
            mask &= ~valid | (values < self.end)
        return mask


@dataclass(frozen=True)
class TiledJob:
    """One pass by tiles, cut into pieces. Picklable: tasks carry it."""

    base: SliceJob  # its queries and events, cut at the same prefixes
    tiled: tuple[Tiled, ...]
    pieces: tuple[TimePiece, ...]
    merged: frozenset[int] = frozenset()  # slices without tiles

    @property
    def slices(self) -> int:
        return len(self.pieces)

    @property
    def rows(self) -> int:
        return self.base.rows

    @property
    def output(self) -> pa.Schema:
        return self.base.output

    @property
    def digest(self) -> str:
        return digest(self.base.digest, [(p.slice, p.start, p.end) for p in self.pieces])

    def compute(self, number: int) -> SliceResult:
        piece, base = self.pieces[number], self.base
        one = range(piece.slice, piece.slice + 1)
        if piece.slice in self.merged:
            (result,) = base.results(one)
            return result
        (table,) = base.queries.slices(base.cuts, one)
        mask = piece.mask(single_chunk(table.column(QUERY_TIME)))
        if not mask.all():
            table = table.filter(pa.array(mask)).combine_chunks()
        queries, carried = base.query_times(table), base.carried_of(table)
        columns, counters = carried.table.columns, carried.counters
        for tiled in self.tiled:
            found, rows = tiled.features(queries, base.cuts, piece.slice)
            counters["events"] = counters.get("events", 0) + rows
            columns += found
        return SliceResult(pa.table(columns, schema=self.output), [], counters)

    def shares(self, tasks: int, finished: Iterable[int] = ()) -> list[range]:
        """The pieces that are not finished, each for one task."""
        done = set(finished)
        return [range(n, n + 1) for n in range(self.slices) if n not in done]

    def write(self, numbers: range, target: SliceTarget) -> Iterator[Written]:
        for number in numbers:
            written = write_slice(self.compute(number), target)
            target.finished(number, written)
            yield written


def plan_tiles(base: SliceJob, tiled: Sequence[Tiled], hot: Mapping[int, int]) -> TiledJob:
    """Cut a pass by tiles: as `base` is cut, and large keys by the time of their queries.

    `hot` are the prefixes that have tiles, with their events; if there are none, all have.
    """
    cuts = base.cuts
    pieces: list[TimePiece] = []
    merged = set()
    for number in range(base.slices):
        prefix = cuts[number - 1][0] if number else LOWEST
        if not hot:
            pieces += split(number, base, pieces_of(number, base))
        elif prefix in hot:
            pieces += split(number, base, max(1, round(hot[prefix] / limits.SLICE_ROWS)))
        else:
            pieces.append(TimePiece(number))
            merged.add(number)
    return TiledJob(base, tuple(tiled), tuple(pieces), frozenset(merged))


def hot_slices(parts: Sequence[Part], hot: Mapping[int, int], least: int) -> list[Slice]:
    """The events of hot prefixes, each cut by time into `least` slices, or more if it is large."""
    found: list[Slice] = []
    for prefix, rows in hot.items():
        own = [part for part in parts if part.prefix[0] <= prefix <= part.prefix[1]]
        known = [part.bounds[EVENT_TIME] for part in own if EVENT_TIME in part.bounds]
        low = min((b.low for b in known if b.low is not None), default=0)
        high = max((b.high for b in known if b.high is not None), default=0)
        count = max(least, -(-rows // limits.SLICE_ROWS))
        times = np.unique(np.linspace(low, high, count + 1).astype(np.int64)[1:-1]).tolist()
        cuts: list[Bound] = [(prefix, LOWEST), *((prefix, time) for time in times)]
        if prefix < HIGHEST:
            cuts.append((prefix + 1, LOWEST))
        slices = slices_between(own, cuts)
        found += slices[1:-1] if prefix < HIGHEST else slices[1:]
    return found


def pieces_of(number: int, base: SliceJob) -> int:
    """Number of tasks to split a slice into, so that none has more events than a slice's rows."""
    parts = [part for one in base.events for part in one.parts]
    slices = slices_between(parts, base.cuts)
    overlaps = Counter(part.path for one in slices for part in one.parts)
    rows = sum(part.rows / overlaps[part.path] for part in slices[number].parts)
    return max(1, round(rows / limits.SLICE_ROWS))


def split(number: int, base: SliceJob, pieces: int) -> list[TimePiece]:
    """A slice's queries in even spans of time."""
    times = base.queries.times
    if pieces < 2 or times is None:
        return [TimePiece(number)]
    low, high = times
    cuts = np.linspace(low, min(high, HIGHEST - 1), pieces + 1).astype(np.int64)[1:-1].tolist()
    bounds = [None, *cuts, None]
    return [TimePiece(number, a, b) for a, b in itertools.pairwise(bounds)]
