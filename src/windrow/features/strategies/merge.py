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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.features import limits
from windrow.features.compute.events import QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.strategies.arranged import Arranged, feature_fields
from windrow.features.strategies.slices import SliceResult, SliceTarget, write_slice
from windrow.features.strategies.sorted_rows import (
    QuerySlices,
)
from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.rows.types import single_chunk
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.scan import Slice
from windrow.shard.spec import PREFIX
from windrow.spark.tasks import Written
from windrow.storage.names import digest
from windrow.updates import int64_values


@dataclass(frozen=True)
class SliceJob:
    """One pass of a backfill, cut into slices. Picklable: tasks carry it."""

    arranged: tuple[Arranged, ...]
    event_slices: tuple[tuple[Slice, ...], ...]  # for each group, its slices
    queries: QuerySlices
    carried: tuple[str, ...]  # columns of the queries that go into the result
    counted: tuple[str, ...] | None  # left keys whose NULLs are counted, in the last pass
    output: pa.Schema

    @property
    def slices(self) -> int:
        return len(self.queries.cuts) + 1

    @property
    def rows(self) -> int:
        """Events and queries that are merged."""
        several = self.event_slices
        parts = {part for slices in several for one in slices for part in one.parts}
        return self.queries.rows + sum(part.rows for part in parts)

    def compute(self, number: int) -> SliceResult:
        """The queries of one slice with their features."""
        table = self.queries.read(number)
        queries = self.query_times(table)
        base = self.carried_of(table)
        columns, rejected, counters = base.table.columns, [], base.counters
        if table.num_rows:
            for arranged, slices in zip(self.arranged, self.event_slices, strict=True):
                events, missing = arranged.events(slices[number], queries)
                if missing.num_rows:
                    counters["missing"] = counters.get("missing", 0) + missing.num_rows
                    rejected.append(arranged.rejected(missing))
                counters["events"] = counters.get("events", 0) + events.times.size
                columns += group_features(arranged.group.group, events, queries)
        else:
            columns += [pa.nulls(0, f.type) for f in list(self.output)[len(columns) :]]
        return SliceResult(pa.table(columns, schema=self.output), rejected, counters)

    def query_times(self, table: pa.Table) -> QueryTimes:
        keys = table.select(list(self.queries.spec.key))
        times = single_chunk(table.column(QUERY_TIME))
        return QueryTimes(
            keys.rename_columns([f"k{i}" for i in range(keys.num_columns)]),
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
        tables = [self.queries.read(number) for number in range(self.slices)]
        return pa.concat_tables(tables).combine_chunks()

    def write(self, number: int, target: SliceTarget) -> Written:
        """Compute one slice and store it as a file."""
        written = write_slice(self.compute(number), target)
        target.finished(number, written)
        return written

    @property
    def digest(self) -> str:
        """Names the cut into slices: work that was cut otherwise cannot be gone on with."""
        parts = [sorted(p.path for s in slices for p in s.parts) for slices in self.event_slices]
        return digest(self.queries.cuts, parts, str(self.output))


def _null_keys(table: pa.Table, names: Sequence[str]) -> int:
    null = np.zeros(table.num_rows, np.bool_)
    for name in names:
        null |= single_chunk(table.column(name)).is_null().to_numpy(zero_copy_only=False)
    return int(null.sum())


def plan_pass(
    arranged: Sequence[Arranged],
    queries: QuerySlices,
    carried: Sequence[str],
    counted: tuple[str, ...] | None,
    tasks: int,
    apart: Iterable[int] = (),
) -> SliceJob:
    """Cut both sides of a pass at the same prefixes, evenly by rows; each of `apart` by itself."""
    parts = [*(part for one in arranged for part in one.parts), *queries.parts]
    rows = sum(part.rows for part in parts)
    wanted = max(min(2 * tasks, rows // 50_000), -(-rows // limits.SLICE_ROWS), 1)
    if wanted > tasks:
        wanted = -(-wanted // tasks) * tasks  # no last round in which most tasks wait
    cuts = even_cuts(parts, wanted, None)
    for prefix in apart:
        cuts += [(prefix, LOWEST), *([(prefix + 1, LOWEST)] if prefix < HIGHEST else [])]
    cuts = sorted(set(cuts))
    output = [queries.spec.schema.field(name) for name in carried]
    for one in arranged:
        output += feature_fields(one.group, one.scan.spec.schema, one.inputs)
    return SliceJob(
        tuple(arranged),
        tuple(tuple(slices_between(one.parts, cuts)) for one in arranged),
        replace(queries, cuts=tuple(cuts)),
        tuple(carried),
        counted,
        pa.schema(output),
    )
