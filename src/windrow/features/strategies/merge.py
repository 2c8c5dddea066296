"""The backfill: features for every query, as they were at its moment.

    events   ── arrange, once ──▶ shard by (hash of key, time) ─┐
                                                                ├─ slice by slice ─▶ result
    queries  ── sort ───────────▶ shard by (hash of key, time) ─┘

Both sides are cut at the same prefixes. A task reads its slice of each, finds the events of every
query's windows, and computes all features in one pass. Nothing is shuffled, no row passes through
the driver, and a task holds no more than its slice.

Groups that share their keys are computed together; for other keys the queries are sorted anew,
carrying the features they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.features import limits
from windrow.features.compute.events import QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.inputs.layout import positional
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.strategies.arranged import Arranged, EventReader, feature_fields
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

    arranged: tuple[Arranged, ...]
    queries: QuerySlices
    cuts: tuple[Bound, ...]
    carried: tuple[str, ...]  # columns of the queries that go into the result
    counted: tuple[str, ...] | None  # left keys whose NULLs are counted, in the last pass
    output: pa.Schema

    @property
    def slices(self) -> int:
        return len(self.cuts) + 1

    @property
    def rows(self) -> int:
        """Events and queries that are merged."""
        parts = {part for one in self.arranged for part in one.parts}
        return self.queries.rows + sum(part.rows for part in parts)

    def results(self, numbers: range) -> Iterator[SliceResult]:
        """The queries of neighbouring slices with their features, slice by slice."""
        readers = [one.reader(self.cuts, numbers) for one in self.arranged]
        for number, table in zip(numbers, self.queries.slices(self.cuts, numbers), strict=True):
            yield self._result(number, table, readers)

    def _result(self, number: int, table: pa.Table, readers: Sequence[EventReader]) -> SliceResult:
        queries = self.query_times(table)
        base = self.carried_of(table)
        columns, rejected, counters = base.table.columns, [], base.counters
        if not table.num_rows:
            columns += [pa.nulls(0, f.type) for f in list(self.output)[len(columns) :]]
            return SliceResult(pa.table(columns, schema=self.output), [], counters)
        for arranged, reader in zip(self.arranged, readers, strict=True):
            found = reader.read(number, queries)
            if found.unmatched.num_rows:
                counters["missing"] = counters.get("missing", 0) + found.unmatched.num_rows
                rejected.append(arranged.rejected(found.unmatched))
            counters["events"] = counters.get("events", 0) + found.events.times.size
            columns += group_features(arranged.group.group, found.events, queries)
        return SliceResult(pa.table(columns, schema=self.output), rejected, counters)

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
        `tasks` that run at a time keep all of them busy to the end.
        """
        done = set(finished)
        size = -(-self.slices // (limits.SHARES * tasks))
        shares: list[range] = []
        for number in range(self.slices):
            if number in done:
                continue
            last = shares[-1] if shares else range(0)
            if last and last.stop == number and len(last) < size:
                shares[-1] = range(last.start, number + 1)
            else:
                shares.append(range(number, number + 1))
        return shares

    def write(self, numbers: range, target: SliceTarget) -> Iterator[Written]:
        """Compute neighbouring slices and store each as a file."""
        for number, result in zip(numbers, self.results(numbers), strict=True):
            written = write_slice(result, target)
            target.finished(number, written)
            yield written

    @property
    def digest(self) -> str:
        """Names the slices: a run sliced differently cannot be resumed."""
        parts = [sorted(part.path for part in one.parts) for one in self.arranged]
        return digest(self.cuts, parts, str(self.output))


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
    arranged: Sequence[Arranged],
    queries: QuerySlices,
    cuts: Sequence[Bound],
    carried: Sequence[str],
    counted: tuple[str, ...] | None,
) -> SliceJob:
    """Both sides of a pass, cut at the same prefixes."""
    output = [queries.spec.schema.field(name) for name in carried]
    for one in arranged:
        output += feature_fields(one.group, one.layout)
    return SliceJob(
        tuple(arranged), queries, tuple(cuts), tuple(carried), counted, pa.schema(output)
    )
