"""Compaction: many runs become one, with times advanced to `since` and what cancels gone.

Runs are tiered by size. When a tier holds `fanout` runs they are merged, together with all that
is smaller, into one that belongs to a higher tier: each update is rewritten at most once per
tier, so a stream of n small batches costs O(log n) writes per update, and a read never has more
than `fanout` runs per tier to merge.

Appends do this for small runs by themselves, every so often, so that a shard that nobody compacts
stays in shape as long as its batches are small.

Compaction adds and removes parts in one commit that neither blocks appends nor is blocked by
them. If another compaction took one of the parts first, its own output is dropped. Readers that
hold the shard at a time find all of its history from there on: `since` does not pass them (see
`holds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.rows.ordering import HIGHEST
from windrow.shard.append import INDEXES_PER_TASK
from windrow.shard.holds import writing
from windrow.shard.log import Log
from windrow.shard.merge import merged_tables
from windrow.shard.part import CONSOLIDATED, PART_BYTES, Part, PartWriter
from windrow.shard.plan import SLICE_ROWS, plan_read, runs_of
from windrow.shard.scan import Counters, Scan, Slice, TimeRange
from windrow.shard.uncommitted import committing
from windrow.spark.session import parallelism
from windrow.spark.tasks import Written, WrittenFile, run_writers
from windrow.storage.names import new_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FANOUT = 8
SMALL_RUN_ROWS = 65_536  # updates; appends merge such runs by themselves
_LOWEST_TIER_ROWS = 64  # runs below are rewritten with every full tier, so keep it small


@dataclass(frozen=True)
class Compacted:
    """What a compaction did, in updates, runs and bytes."""

    updates_read: int = 0
    updates_written: int = 0
    bytes_written: int = 0
    runs_merged: int = 0
    merges: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )


def tier(rows: int, fanout: int) -> int:
    """The tier of a run: 0 up to 64 updates, and one more for each factor of `fanout`.

    >>> [tier(n, 8) for n in (1, 64, 65, 8 * 64, 8 * 64 + 1)]
    [0, 0, 1, 1, 2]
    """
    found, limit = 0, _LOWEST_TIER_ROWS
    while rows > limit:
        found, limit = found + 1, limit * fanout
    return found


def choose(parts: Sequence[Part], fanout: int, everything: bool) -> list[Part]:
    """The parts to merge next into one run; none if the shard is in shape."""
    runs = runs_of(parts)
    if everything:
        done = len(runs) == 1 and all(part.name.form == CONSOLIDATED for part in runs[0])
        return [] if done else [part for run in runs for part in run]
    tiers = [(tier(sum(part.rows for part in run), fanout), run) for run in runs]
    full = [t for t, _ in tiers if sum(1 for u, _ in tiers if u == t) >= fanout]
    if full:
        return [part for t, run in tiers if t <= min(full) for part in run]
    return [part for part in parts if not part.sorted]


def compact(
    log: Log,
    *,
    everything: bool,
    fanout: int,
    part_bytes: int,
    spark: SparkSession | None,
) -> Compacted:
    """Merge until the shard is in shape (or, with `everything`, is a single run)."""
    total = Compacted()
    log.refresh()
    while True:
        # With `everything`, a lone run is rewritten too if its history can now be forgotten.
        chosen = choose(log.parts(), fanout, everything)
        if not chosen and everything and total.merges == 0:
            chosen = [] if _is_settled(log) else log.parts()
        if not chosen:
            return total
        done = _merge(log, chosen, part_bytes, spark)
        if done is None:
            log.refresh()  # another compaction was first
            continue
        total += done
        if everything:
            return total


def compact_small(log: Log) -> Compacted:
    """Merge small runs, if they have become many: little work, whatever the size of the shard."""
    total = Compacted()
    while True:
        runs = [run for run in runs_of(log.parts()) if sum(p.rows for p in run) <= SMALL_RUN_ROWS]
        small = [part for run in runs for part in run if part.sorted]
        chosen = choose(small, FANOUT, everything=False)
        done = _merge(log, chosen, PART_BYTES, None) if chosen else None
        if done is None:
            return total
        total += done


def _is_settled(log: Log) -> bool:
    return all(part.time[0] >= log.since for part in log.parts())


def _merge(
    log: Log, parts: list[Part], part_bytes: int, spark: SparkSession | None
) -> Compacted | None:
    scan = Scan(
        log.store, log.spec, TimeRange(None, HIGHEST, log.since), tuple(log.spec.schema.names)
    )
    rows = sum(part.rows for part in parts)
    wanted = 1 if spark is None else max(1, min(2 * parallelism(spark), rows // 50_000))
    slices = plan_read(scan, parts, max(wanted, rows // SLICE_ROWS if spark else 1)).slices
    job = MergeJob(
        scan,
        slices,
        lower=min(part.name.lower for part in parts),
        upper=max(part.name.upper for part in parts),
        run=new_id(),
        part_bytes=part_bytes,
    )
    with writing(log, job.run):
        written = _in_process(job) if spark is None else _on_spark(spark, job)
        with committing(log, written):
            done = log.replace(parts, written)
        if not done:
            log.store.delete([part.path for part in written])
            return None
    return Compacted(
        updates_read=rows,
        updates_written=sum(part.rows for part in written),
        bytes_written=sum(part.bytes for part in written),
        runs_merged=len(runs_of(parts)),
        merges=1,
    )


@dataclass(frozen=True)
class MergeJob:
    """Merges slices of some runs into parts of one new run. Picklable: tasks carry it."""

    scan: Scan
    slices: tuple[Slice, ...]
    lower: int
    upper: int
    run: str
    part_bytes: int = PART_BYTES

    def write(self, number: int) -> list[WrittenFile]:
        """Merge one slice; its parts stand in the run at the slice's place."""
        writer = PartWriter(
            self.scan.store,
            self.scan.spec,
            lower=self.lower,
            upper=self.upper,
            run=self.run,
            form=CONSOLIDATED,
            first_index=number * INDEXES_PER_TASK,
            part_bytes=self.part_bytes,
        )
        names = self.scan.spec.stored_schema.names
        try:
            for table in merged_tables(self.scan, self.slices[number], Counters()):
                writer.write(table.select(names))
            return writer.close()
        except BaseException:
            writer.abort()
            raise


def _in_process(job: MergeJob) -> list[WrittenFile]:
    written: list[WrittenFile] = []
    try:
        for number in range(len(job.slices)):
            written += job.write(number)
    except BaseException:
        job.scan.store.discard([part.path for part in written])
        raise
    return written


def _on_spark(spark: SparkSession, job: MergeJob) -> list[WrittenFile]:
    def write(batches: Iterator[pa.RecordBatch]) -> Written:
        numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
        return Written([part for number in numbers for part in job.write(number)])

    count = len(job.slices)
    return run_writers(spark.range(0, count, 1, count), job.scan.store, write).parts
