"""The backfill: features for every query, as they were just before its time.

    events   ── arrange, once ──▶ shard by (hash of key, time) ─┐
                                                                ├─ slice by slice ─▶ result
    queries  ── sort ───────────▶ shard by (hash of key, time) ─┘

Both sides are cut at the same prefixes. A task reads its slice of each, finds the events of every
query's windows, and computes all features in one pass. Nothing is shuffled, no row passes through
the driver, and a task holds no more than its slice, of which it computes some keys at a time.

Groups that share their keys are computed together; for other keys the queries are sorted again,
carrying the features they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.arrangements.rows import bounds_of
from windrow.features import limits
from windrow.features.compute.events import QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.inputs.layout import positional
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.strategies.group_events import EventReader, GroupEvents, feature_fields
from windrow.features.strategies.queries import (
    QuerySlices,
)
from windrow.features.strategies.slices import SliceResult, SliceTarget, write_slice
from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.rows.types import single_chunk
from windrow.shard.part import Part
from windrow.shard.plan import even_cuts
from windrow.shard.scan import Bound
from windrow.shard.spec import PREFIX
from windrow.spark.tasks import Written
from windrow.storage.names import digest
from windrow.updates import int64_values


@dataclass(frozen=True)
class SliceJob:
    """One pass of a backfill, cut into slices at the prefixes `cuts`. Picklable: tasks carry it."""

    events: tuple[GroupEvents, ...]
    queries: QuerySlices
    cuts: tuple[Bound, ...]
    carried: tuple[str, ...]  # columns of the queries that go into the result
    counted: tuple[str, ...] | None  # left keys whose NULLs are counted, in the last pass
    output: pa.Schema
    batches: int = 1  # of a slice: some keys at a time are read and computed

    @property
    def slices(self) -> int:
        return len(self.cuts) + 1

    @property
    def rows(self) -> int:
        """Events and queries that are merged."""
        parts = {part for one in self.events for part in one.parts}
        return self.queries.rows + sum(part.rows for part in parts)

    @property
    def few_queries(self) -> bool:
        """Little is left of each slice, once events that cannot count are filtered."""
        return self.queries.rows * limits.FEW_REQUESTED < self.rows

    def results(self, numbers: range) -> Iterator[SliceResult]:
        """The queries of neighbouring slices with their features, slice by slice."""
        readers = [one.reader(self.cuts, numbers) for one in self.events]
        for number, table in zip(numbers, self.queries.slices(self.cuts, numbers), strict=True):
            yield self._result(number, table, readers)

    def _result(self, number: int, table: pa.Table, readers: Sequence[EventReader]) -> SliceResult:
        base = self.carried_of(table)
        rejected: list[pa.Table] = []
        counters = base.counters
        features = pa.schema(list(self.output)[len(self.carried) :])
        found = [features.empty_table()]
        for reader in readers:
            reader.start(number)
        for queries, end in self._batches(number, table):
            columns: list[pa.Array] = []
            for one, reader in zip(self.events, readers, strict=True):
                rows = one.rows // (self.slices * self.batches)
                few = queries.times.size * limits.FEW_REQUESTED < rows
                read = reader.below(end, queries, few)
                if read.unmatched.num_rows:
                    counters["missing"] = counters.get("missing", 0) + read.unmatched.num_rows
                    rejected.append(one.rejected(read.unmatched))
                counters["events"] = counters.get("events", 0) + read.events.times.size
                columns += group_features(one.group.group, read.events, queries)
            found.append(pa.table(columns, schema=features))
        columns = [*base.table.columns, *pa.concat_tables(found).columns]
        return SliceResult(pa.table(columns, schema=self.output), rejected, counters)

    def _batches(self, number: int, table: pa.Table) -> Iterator[tuple[QueryTimes, Bound | None]]:
        """The queries of a slice, some neighbouring keys at a time, and where their events end."""
        start, end = bounds_of(self.cuts, number, number)
        low, high = LOWEST if start is None else start[0], HIGHEST if end is None else end[0]
        # Hashes are spread evenly between the bounds of the slice.
        steps = (low + (high - low) * i // self.batches for i in range(1, self.batches))
        inner = sorted({*steps} - {low})
        edges = np.searchsorted(int64_values(table, PREFIX), inner).tolist()
        bounds: list[Bound | None] = [*((prefix, LOWEST) for prefix in inner), end]
        for first, last, bound in zip([0, *edges], [*edges, table.num_rows], bounds, strict=True):
            if first < last:
                yield self.query_times(table.slice(first, last - first)), bound

    def query_times(self, table: pa.Table) -> QueryTimes:
        times = single_chunk(table.column(QUERY_TIME))
        return QueryTimes(
            positional(table.select(list(self.queries.spec.key))),
            times.fill_null(0).to_numpy(zero_copy_only=False),
            times.is_valid().to_numpy(zero_copy_only=False),
            int64_values(table, PREFIX),
        )

    def carried_of(self, table: pa.Table) -> SliceResult:
        """The columns of queries that go into the result, and what is counted of them."""
        counters = {"queries": table.num_rows}
        if self.counted is not None:
            counters["null_times"] = table.column(QUERY_TIME).null_count
            counters["null_keys"] = _null_keys(table, self.counted)
        columns = [single_chunk(table.column(name)) for name in self.carried]
        return SliceResult(pa.table(columns, names=list(self.carried)), [], counters)

    def all_queries(self) -> QueryTimes:
        """The queries of all slices; for few of them."""
        return self.query_times(self._all())

    def without_features(self) -> SliceResult:
        """All queries, in the order of `all_queries`."""
        return self.carried_of(self._all())

    def _all(self) -> pa.Table:
        (table,) = self.queries.slices((), range(1))
        return table

    def shares(self, tasks: int, finished: Iterable[int] = ()) -> list[range]:
        """Neighbouring slices for one task each, without those that are finished.

        A task reads what two of its slices share only once; several shares for each of the
        `tasks` that run at a time keep all of them busy to the end, unless there is so little to
        do that starting them would take longer.
        """
        most = tasks if self.few_queries else limits.SHARES * tasks
        return dealt(self.slices, tasks, most, set(finished))

    def write(self, numbers: range, target: SliceTarget) -> Iterator[Written]:
        """Compute neighbouring slices and store each as a file."""
        for number, result in zip(numbers, self.results(numbers), strict=True):
            written = write_slice(result, target)
            target.finished(number, written)
            yield written

    @property
    def digest(self) -> str:
        """Names the slices: a run sliced differently cannot be resumed."""
        parts = [sorted(part.path for part in one.parts) for one in self.events]
        return digest(self.cuts, parts, str(self.output))


def dealt(slices: int, tasks: int, most: int, finished: Collection[int] = ()) -> list[range]:
    """Neighbouring slices in up to `most` shares, without those that are finished.

    Shares are a multiple of `tasks`, if there are as many slices, and the larger ones come first:
    so no task is left with a share when the others are through.

    >>> dealt(7, tasks=2, most=4)
    [range(0, 2), range(2, 4), range(4, 6), range(6, 7)]
    """
    largest = -(-slices // most)
    count = min(-(-slices // (largest * tasks)) * tasks, slices)
    sizes = [slices // count + (number < slices % count) for number in range(count)]
    shares: list[range] = []
    for start, size in zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False):
        left = [number for number in range(start, start + size) if number not in finished]
        for number in left:
            if shares and shares[-1].stop == number > start:
                shares[-1] = range(shares[-1].start, number + 1)
            else:
                shares.append(range(number, number + 1))
    return shares


def _null_keys(table: pa.Table, names: Sequence[str]) -> int:
    null = np.zeros(table.num_rows, np.bool_)
    for name in names:
        null |= single_chunk(table.column(name)).is_null().to_numpy(zero_copy_only=False)
    return int(null.sum())


def even_slices(parts: Sequence[Part], rows: int, tasks: int, apart: Iterable[int]) -> list[Bound]:
    """The prefixes at which a pass is cut, evenly by `rows`; each of `apart` is by itself."""
    wanted = slice_count(rows, tasks)
    cuts = even_cuts(parts, wanted, None)
    for prefix in apart:
        cuts += [(prefix, LOWEST), *([(prefix + 1, LOWEST)] if prefix < HIGHEST else [])]
    return sorted(set(cuts))


def slice_count(rows: int, tasks: int) -> int:
    """Into how many slices a pass over `rows` events and queries is cut."""
    wanted = max(min(2 * tasks, rows // limits.SMALLEST_SLICE), -(-rows // limits.SLICE_ROWS), 1)
    return -(-wanted // tasks) * tasks if wanted > tasks else wanted


def slice_job(
    events: Sequence[GroupEvents],
    queries: QuerySlices,
    cuts: Sequence[Bound],
    carried: Sequence[str],
    counted: tuple[str, ...] | None,
) -> SliceJob:
    """Both sides of a pass, cut at the same prefixes."""
    output = [queries.spec.schema.field(name) for name in carried]
    for one in events:
        output += feature_fields(one.group, one.layout)
    job = SliceJob(tuple(events), queries, tuple(cuts), tuple(carried), counted, pa.schema(output))
    if job.few_queries:
        return job
    return replace(job, batches=max(job.rows // job.slices // limits.BATCH_ROWS, 1))
