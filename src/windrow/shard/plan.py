"""Planning a read: which parts, cut into which slices.

Slices are disjoint ranges of the shard's order with about the same number of updates each, found
from the parts' statistics alone. One slice is one task; no slice needs another's updates.

A prefix that holds more than a slice's share (a hot key) is cut by the minor column, where the
parts that hold nothing else tell how it is spread.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from windrow.rows.ordering import HIGHEST, LOWEST, coarse_scalar
from windrow.shard.part import Part
from windrow.shard.scan import START, Bound, Scan, Slice
from windrow.shard.spec import HASH, ShardSpec

SLICE_ROWS = 16_000_000  # a slice is streamed: it is bounded by time, not by memory
UNSORTED_ROWS = 2_000_000  # unsorted updates that one slice may hold in memory


@dataclass(frozen=True)
class ReadPlan:
    """The slices of a read, in order, and the parts that statistics ruled out."""

    slices: tuple[Slice, ...]
    skipped: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Updates in the parts to read: at most this many will be read."""
        return sum({part.path: part.rows for s in self.slices for part in s.parts}.values())


def plan_read(scan: Scan, parts: Sequence[Part], slices: int) -> ReadPlan:
    """Cut the parts that `scan` may need into about `slices` even slices."""
    wanted: list[Part] = []
    skipped: list[Part] = []
    for part in parts:
        (wanted if scan.may_hold(part) else skipped).append(part)
    unsorted = sum(part.rows for part in wanted if not part.sorted)
    slices = max(slices, -(-unsorted // UNSORTED_ROWS), 1)
    cuts = even_cuts(wanted, slices, scan.spec)
    found = slices_between(wanted, cuts)
    return ReadPlan(tuple(s for s in found if s.runs), tuple(skipped))


def slices_between(parts: Sequence[Part], cuts: Sequence[Bound]) -> list[Slice]:
    """One slice more than there are cuts; each with the parts that overlap it."""
    prefixes = [prefix for prefix, _ in cuts]
    inside: list[list[tuple[Part, ...]]] = [[] for _ in range(len(cuts) + 1)]
    for run in runs_of(parts):
        found: dict[int, list[Part]] = defaultdict(list)
        for part in run:
            first = bisect_right(cuts, (part.prefix[0], LOWEST))
            for number in range(first, bisect_right(prefixes, part.prefix[1]) + 1):
                found[number].append(part)
        for number, own in found.items():
            inside[number].append(tuple(own))
    bounds = itertools.pairwise([START, *cuts, None])
    return [
        Slice(start or START, end, tuple(runs))
        for (start, end), runs in zip(bounds, inside, strict=True)
    ]


def runs_of(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts by run, each run in order; an unsorted part is a run of its own."""
    runs: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        runs[part.name.run if part.sorted else part.path].append(part)
    return [sorted(run, key=lambda part: part.order) for run in runs.values()]


def even_cuts(parts: Sequence[Part], slices: int, spec: ShardSpec | None) -> list[Bound]:
    """The bounds between `slices` slices of about equal rows, ascending, without repeats.

    Without a spec no prefix is cut in two.
    """
    total = sum(part.rows for part in parts)
    if slices <= 1 or not total:
        return []
    share = total / slices
    # The rows up to each prefix, if rows lie evenly between each part's bounds.
    edges = np.unique(np.array([bound for part in parts for bound in part.prefix], np.int64))
    targets = share * np.arange(1, slices)
    below, upto = _rows_at(parts, edges)
    cuts: set[Bound] = set()
    for target in targets:
        i = int(np.searchsorted(upto, target))
        i = min(i, edges.size - 1)
        edge = int(edges[i])
        if spec is not None and target >= below[i] and upto[i] - below[i] > share / 2:
            # The target falls into one prefix that is large by itself.
            cuts.add(_cut_hot(parts, edge, (target - below[i]) / (upto[i] - below[i]), spec))
            continue
        left = int(edges[i - 1]) if i else edge
        before = upto[i - 1] if i else 0.0
        width = below[i] - before
        fraction = (target - before) / width if width > 0 else 1.0
        cuts.add((left + int((edge - left) * min(max(fraction, 0.0), 1.0)) + (i > 0), LOWEST))
    return sorted(cut for cut in cuts if cut[0] < HIGHEST)


def _rows_at(parts: Sequence[Part], edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimated rows with a prefix below, and up to, each edge."""
    low, high = np.array([part.prefix for part in parts], np.int64).T
    rows = np.array([part.rows for part in parts], np.float64)
    single = low == high
    order = np.argsort(low[single])
    at, total = low[single][order], np.concatenate([[0.0], np.cumsum(rows[single][order])])
    below = total[np.searchsorted(at, edges, "left")]
    upto = total[np.searchsorted(at, edges, "right")]
    # Float sums of very different densities would not cancel where a dense part ends, and the
    # remainder would count over a wide range: so parts are added up by the scale of their width.
    scale = np.frexp(_distance(low, high))[1] // 8
    for one in np.unique(scale[~single]):
        same = (scale == one) & ~single
        spread = _spread(low[same], high[same], rows[same], edges)
        below, upto = below + spread, upto + spread
    return below, upto


def _spread(low: np.ndarray, high: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Rows below each edge, if each part's lie evenly between its bounds."""
    ends = np.unique(np.concatenate([low, high]))
    slope, active = np.zeros(ends.size), np.zeros(ends.size, np.int64)
    for bounds, sign in ((low, 1), (high, -1)):
        places = np.searchsorted(ends, bounds)
        np.add.at(slope, places, sign * rows / _distance(low, high))
        np.add.at(active, places, sign)
    slope = np.where(np.cumsum(active) > 0, np.maximum(np.cumsum(slope), 0.0), 0.0)
    upto = np.concatenate([[0.0], np.cumsum(slope[:-1] * _distance(ends[:-1], ends[1:]))])
    place = np.searchsorted(ends, edges, "right") - 1
    before, place = place < 0, np.maximum(place, 0)
    beyond = np.where(before, 0.0, _distance(ends[place], edges))
    found: np.ndarray = upto[place] + slope[place] * beyond
    return found


def _distance(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How far `high` is above `low`; neither overflows nor loses neighbours of large numbers."""
    distance: np.ndarray = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
    return distance


def _cut_hot(parts: Sequence[Part], prefix: int, fraction: float, spec: ShardSpec) -> Bound:
    """A bound at about `fraction` of one prefix's updates."""
    minor = spec.minor_column
    if minor is None or (spec.order.kind == "natural" and prefix == LOWEST):
        return (prefix, LOWEST)
    if minor == HASH:
        # Row hashes are spread evenly over all integers.
        return (prefix, min(int(LOWEST + fraction * (float(HIGHEST) - float(LOWEST))), HIGHEST))
    type_ = spec.schema.field(minor).type
    spans = []
    for part in parts:
        known = part.bounds.get(minor)
        if part.prefix == (prefix, prefix) and known is not None and known.low is not None:
            spans.append(
                (coarse_scalar(known.low, type_), coarse_scalar(known.high, type_), part.rows)
            )
    if not spans:
        return (prefix, LOWEST)
    edges = np.unique([bound for low, high, _ in spans for bound in (low, high)])
    upto = np.zeros(edges.size)
    for low, high, rows in spans:
        width = max(float(high) - float(low), 1.0)
        upto += np.clip((edges.astype(float) - low) / width, 0, 1) * rows
    target = fraction * sum(rows for _, _, rows in spans)
    at = float(np.interp(target, upto, edges.astype(float)))
    return (prefix, int(min(max(at, float(edges[0])), float(edges[-1]))))
