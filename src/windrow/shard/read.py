"""A read of a shard: a lazy description that streams locally or becomes a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import OptionError
from windrow.rows.types import check_schema
from windrow.shard.keys import KeySet
from windrow.shard.merge import Consolidation, read_slice
from windrow.shard.part import Part
from windrow.shard.plan import SLICE_ROWS, ReadPlan, plan_read
from windrow.shard.scan import Counters, Scan, Slice
from windrow.spark.schemas import arrow_to_spark_schema, quoted, spark_to_arrow_schema
from windrow.spark.session import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_SMALLEST_SLICE_ROWS = 50_000
_LOOKUP_BITS = 12  # keys that share these leading bits of their hash are looked up together


@dataclass
class Read:
    """Updates to be read, as `Shard.snapshot` and `Shard.changes` describe them.

    Nothing is read until one of the methods is called; each call reads again.
    """

    scan: Scan
    parts: list[Part]
    level: Consolidation
    counters: Counters = field(default_factory=Counters)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result: those requested, then `_time` and `_diff`."""
        return self.scan.output_schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The updates as a local stream. At level FULL they come in the shard's order."""
        self.counters = Counters()
        plan = plan_read(self.scan, self.parts, 1)
        self._count_skipped(plan, self.counters)
        left = self.scan.limit
        for slice_ in plan.slices:
            scan = replace(self.scan, limit=left)
            for batch in read_slice(scan, slice_, self.level, self.counters):
                if left is not None:
                    left -= batch.num_rows
                yield batch
            if left == 0:
                return

    def to_table(self) -> pa.Table:
        """All updates at once, as an Arrow table."""
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)

    def plan(self, slices: int) -> ReadPlan:
        """The slices that a parallel read would use."""
        return plan_read(self.scan, self.parts, slices)

    def dataframe(
        self, spark: SparkSession, *, slices: int | None = None, observe: Observation | None = None
    ) -> DataFrame:
        """The updates as a Spark DataFrame; each slice is one task, and nothing is shuffled.

        `slices` sets how many; by default enough to keep the session busy. `observe` collects
        the tasks' counters once an action has run: `observe.get` then maps the names of
        `Counters` to their sums.
        """
        if slices is None:
            rows = sum(part.rows for part in self.parts)
            wanted = max(2 * parallelism(spark), -(-rows // SLICE_ROWS))
            slices = max(1, min(wanted, rows // _SMALLEST_SLICE_ROWS))
        plan = self.plan(slices)
        task = _slice_task(self.scan, plan.slices, self.level)
        skipped = Counters()
        self._count_skipped(plan, skipped)
        frame = _run_tasks(spark, len(plan.slices), task, self.schema, observe, skipped)
        return frame if self.scan.limit is None else frame.limit(self.scan.limit)

    def lookup(self, keys: DataFrame, *, slices: int | None = None) -> DataFrame:
        """The updates of the keys in the DataFrame `keys`, which may be large.

        Keys whose hashes lie close together go to one task, which looks up its share of them.
        """
        spec = self.scan.spec
        if not spec.key:
            raise OptionError("this shard has no key columns, so there are no keys to look up")
        if self.scan.keys is not None or self.scan.limit is not None:
            raise OptionError("lookup(keys) takes neither keys= nor limit= of the read as well")
        from pyspark.sql import functions as F  # noqa: N812

        count = slices or 2 * parallelism(keys.sparkSession)
        found = spark_to_arrow_schema(keys.schema)
        key_schema = pa.schema([spec.schema.field(name) for name in spec.key])
        given = pa.schema([field for field in found if field.name in spec.key])
        check_schema(given, key_schema, "keys to look up")
        names = [quoted(name) for name in spec.key]
        near = F.shiftright(F.xxhash64(*names), 64 - _LOOKUP_BITS)
        spread = keys.select(*names).distinct().repartition(count, near)
        unnamed = spread.toDF(*(f"c{i}" for i in range(len(names))))  # dots fail in mapInArrow
        return unnamed.mapInArrow(
            _lookup_task(self.scan, self.parts, self.level), arrow_to_spark_schema(self.schema)
        )

    def _count_skipped(self, plan: ReadPlan, counters: Counters) -> None:
        counters.parts_skipped += len(plan.skipped)
        counters.bytes_skipped += sum(part.bytes for part in plan.skipped)


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _slice_task(
    scan: Scan, slices: tuple[Slice, ...], level: Consolidation
) -> Callable[[int, Counters], Iterator[pa.RecordBatch]]:
    """Reads the slice with a given number."""

    def run(number: int, counters: Counters) -> Iterator[pa.RecordBatch]:
        return read_slice(scan, slices[number], level, counters)

    return run


def _run_tasks(
    spark: SparkSession,
    count: int,
    task: Callable[[int, Counters], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    observe: Observation | None,
    skipped: Counters,
) -> DataFrame:
    """One task for each of `count` numbers, its batches as a DataFrame of `schema`."""
    numbers = spark.range(0, count, 1, max(count, 1))
    if observe is None:

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from task(number, Counters())

        return numbers.mapInArrow(run, arrow_to_spark_schema(schema))
    return _observed(numbers, task, schema, observe, skipped)


def _observed(
    numbers: DataFrame,
    task: Callable[[int, Counters], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    observe: Observation,
    skipped: Counters,
) -> DataFrame:
    """As above; each task ends with one more row that carries its counters and is dropped.

    `skipped` are the counters of what planning ruled out, before any task.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = [name for name in vars(Counters()) if name != "seconds_to_first_batch"]
    counted = pa.schema([*schema, *(pa.field(f"_counter_{name}", pa.int64()) for name in names)])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbered in batches:
            for number in numbered.column(0).to_pylist():
                counters = Counters()
                for batch in task(number, counters):
                    nothing = [pa.nulls(batch.num_rows, pa.int64())] * len(names)
                    yield pa.RecordBatch.from_arrays([*batch.columns, *nothing], schema=counted)
                values = [pa.array([getattr(counters, name)], pa.int64()) for name in names]
                empty = [pa.nulls(1, field.type) for field in schema]
                yield pa.RecordBatch.from_arrays([*empty, *values], schema=counted)

    frame = numbers.mapInArrow(run, arrow_to_spark_schema(counted))
    sums = [
        (F.coalesce(F.sum(f"_counter_{name}"), F.lit(0)) + getattr(skipped, name)).alias(name)
        for name in names
    ]
    frame = frame.observe(observe, *sums)
    kept = frame.where(F.col(f"_counter_{names[0]}").isNull())
    return kept.select(*map(quoted, schema.names))


def _lookup_task(scan: Scan, parts: list[Part], level: Consolidation) -> Task:
    """Looks up the keys that arrive."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived = [batch for batch in batches if batch.num_rows]
        if not arrived:
            return
        keys = pa.Table.from_batches(arrived).rename_columns(list(scan.spec.key))
        narrowed = replace(scan, keys=KeySet.make(keys, scan.spec))
        for slice_ in plan_read(narrowed, parts, 1).slices:
            yield from read_slice(narrowed, slice_, level, Counters())

    return run
