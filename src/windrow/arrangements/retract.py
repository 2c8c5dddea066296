"""Retractions: the rows that files held before they were rewritten or removed.

The files no longer hold these rows, but the arrangement does, each with the number of its file:
tasks read them from there, and append them with negated diffs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.arrangements.content import FILE
from windrow.shard.append import TaskRows
from windrow.shard.merge import Consolidation, read_slice
from windrow.shard.predicate import bind, col
from windrow.shard.scan import Counters, Scan, Slice
from windrow.shard.shard import Shard
from windrow.updates import TIME, negate


@dataclass(frozen=True)
class RetractedRows:
    """The rows of some inputs, with negative diffs, in slices of the arrangement. Picklable."""

    scan: Scan
    slices: tuple[Slice, ...]

    @staticmethod
    def of(shard: Shard, numbers: Sequence[int], tasks: int) -> RetractedRows:
        read = shard.snapshot(where=col(FILE).is_in(list(numbers)))
        return RetractedRows(replace(read.scan, cache=None), read.plan(tasks).slices)

    @property
    def tasks(self) -> int:
        return len(self.slices)

    def counter(self, task: int) -> str:
        return "retracted"

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        for batch in read_slice(self.scan, self.slices[task], Consolidation.FULL, Counters()):
            rows = negate(pa.Table.from_batches([batch])).drop_columns([TIME])
            yield from rows.to_batches()


@dataclass(frozen=True)
class BothRows:
    """Two sets of rows that tasks read, appended together. Picklable."""

    first: TaskRows
    second: TaskRows

    @property
    def tasks(self) -> int:
        return self.first.tasks + self.second.tasks

    def counter(self, task: int) -> str:
        part = self.first if task < self.first.tasks else self.second
        return "retracted" if isinstance(part, RetractedRows) else "rows"

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        own = self.first.tasks
        yield from self.first.batches(task) if task < own else self.second.batches(task - own)


def wanted(scan: Scan, chosen: Sequence[int] | None) -> Scan:
    """A scan of the rows of chosen inputs only; None chooses all."""
    if chosen is None:
        return scan
    return replace(scan, where=bind(col(FILE).is_in(list(chosen)), scan.spec.schema))
