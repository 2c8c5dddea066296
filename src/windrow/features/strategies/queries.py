"""The queries of a pass, slice by slice: sorted by a job of their own, or by every task.

Queries that are few are not worth a shard: each task reads all of them and sorts them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.arrangements.rows import SortedRows, bounds_of, expanded, row_scan
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.strategies.relevant import TimeBounds, time_bounds
from windrow.rows.ordering import LOWEST
from windrow.shard.append import TaskRows
from windrow.shard.part import Part, stored_table
from windrow.shard.scan import Bound, Scan, order_words
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX, ShardSpec
from windrow.updates import as_updates, int64_values
from windrow.words.sorting import sort_words


@dataclass(frozen=True)
class StoredQueries:
    """Queries that are stored, sorted, in a shard."""

    scan: Scan
    parts: tuple[Part, ...]

    @staticmethod
    def of(shard: Shard) -> StoredQueries:
        read = shard.snapshot(consolidate="none")
        return StoredQueries(row_scan(read.scan), tuple(read.parts))

    @property
    def spec(self) -> ShardSpec:
        return self.scan.spec

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def times(self) -> TimeBounds | None:
        """The first and last of their times; None if that is not known."""
        return time_bounds(self.parts, QUERY_TIME)

    def slices(self, cuts: Sequence[Bound], numbers: range) -> Iterator[pa.Table]:
        """The queries of neighbouring slices, with `_prefix`."""
        if not numbers:
            return
        rows = SortedRows(self.scan, self.parts, bounds_of(cuts, numbers[0], numbers[-1]))
        for number in numbers:
            yield expanded(rows.below(bounds_of(cuts, number, number)[1]))


@dataclass(frozen=True)
class FewQueries:
    """Queries that each task reads from their files, and sorts."""

    source: TaskRows
    spec: ShardSpec
    rows: int
    times: TimeBounds | None

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    def slices(self, cuts: Sequence[Bound], numbers: range) -> Iterator[pa.Table]:
        """The queries of neighbouring slices, with `_prefix`."""
        shares = range(self.source.tasks)
        batches = [batch for task in shares for batch in self.source.batches(task)]
        schema = batches[0].schema if batches else self.spec.schema
        table = pa.Table.from_batches(batches, schema)
        stored = stored_table(
            as_updates(table, self.spec.schema, default_time=0, where="queries"), self.spec
        )
        stored = stored.take(pa.array(sort_words(order_words(self.spec, stored, with_time=False))))
        prefixes = int64_values(stored, PREFIX)
        stored = stored.select([*self.spec.schema.names, PREFIX])
        edges = np.searchsorted(prefixes, [LOWEST, *(cut[0] for cut in cuts)]).tolist()
        edges.append(prefixes.size)
        for number in numbers:
            first, last = edges[number], edges[number + 1]
            yield stored.slice(first, last - first).combine_chunks()


QuerySlices = StoredQueries | FewQueries  # the queries of a pass; picklable
