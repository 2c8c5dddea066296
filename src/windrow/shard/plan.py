"""Planning a read: which parts, cut into which slices.

Slices are disjoint ranges of the shard's order with about the same number of updates each, found
from the parts' statistics alone. One slice is one task; no slice needs another's updates.

A prefix that holds more than a slice's share (a hot key) is cut by the minor column, where the
parts that hold nothing else tell how it is spread.
"""

from __future__ import annotations

import itertools
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
    wanted = [part for part in parts if scan.may_hold(part)]
    skipped = tuple(part for part in parts if not scan.may_hold(part))
    unsorted = sum(part.rows for part in wanted if not part.sorted)
    slices = max(slices, -(-unsorted // UNSORTED_ROWS), 1)
    cuts = even_cuts(wanted, slices, scan.spec)
    found = slices_between(wanted, cuts)
    return ReadPlan(tuple(s for s in found if s.runs), skipped)


def slices_between(parts: Sequence[Part], cuts: Sequence[Bound]) -> list[Slice]:
    """One slice more than there are cuts; each with the parts that overlap it."""
    runs = runs_of(parts)
    bounds = [START, *cuts, None]
    found = []
    for start, end in itertools.pairwise(bounds):
        assert start is not None
        inside = [[part for part in run if _overlaps(part, start, end)] for run in runs]
        found.append(Slice(start, end, tuple(tuple(run) for run in inside if run)))
    return found


def runs_of(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts by run, each run in order; an unsorted part is a run of its own."""
    runs: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        runs[part.name.run if part.sorted else part.path].append(part)
    return [sorted(run, key=lambda part: part.order) for run in runs.values()]


def _overlaps(part: Part, start: Bound, end: Bound | None) -> bool:
    return part.prefix[1] >= start[0] and (end is None or (part.prefix[0], LOWEST) < end)


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
    below = np.zeros(edges.size)
    upto = np.zeros(edges.size)
    for part in parts:
        low, high = part.prefix
        if low == high:
            below += np.where(edges > low, part.rows, 0)
            upto += np.where(edges >= low, part.rows, 0)
        else:
            spread = np.clip((edges.astype(float) - low) / (float(high) - low), 0, 1) * part.rows
            below += spread
            upto += spread
    return below, upto


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
