"""Appending: updates become sorted, consolidated runs, in this process or in Spark tasks.

Rows arrive in batches, are buffered up to a bounded amount, sorted, consolidated and written as a
run of parts. The driver sees the names of parts, never rows; the log entry that makes them part
of the shard comes last and is one commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from windrow.errors import DataError, OptionError, SchemaError
from windrow.rows.types import check_schema, describe, single_chunk
from windrow.shard.part import CONSOLIDATED, PART_BYTES, PartWriter, fingerprint, stored_table
from windrow.shard.recent import remember
from windrow.shard.scan import order_words
from windrow.shard.spec import ShardSpec
from windrow.spark.memory import peak_memory
from windrow.spark.schemas import quoted, spark_to_arrow_schema
from windrow.spark.tasks import Written, WrittenFile, run_numbered, run_writers
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.updates import DIFF, TIME, as_updates, int64_values, replace_column, update_schema
from windrow.words.consolidation import consolidate_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUFFER_ROWS = 2_000_000
BUFFER_BYTES = 512 << 20
INDEXES_PER_TASK = 10_000


@dataclass(frozen=True)
class BatchWriter:
    """Writes updates of [lower, upper) into a store. Picklable: tasks carry it.

    Without `run`, each buffer becomes a run of its own. With it, the first buffer of a task
    belongs to that run, at the place of `task`: for tasks whose prefixes do not overlap.
    """

    store: Store
    spec: ShardSpec
    lower: int
    upper: int
    run: str | None = None
    part_bytes: int = PART_BYTES
    dry: bool = False  # compute the digest, write nothing
    at: int | None = None  # the time of rows that come without one; `lower` by default
    remembered: bool = False  # whether this process is likely to look keys up in what it writes

    def write(self, batches: Iterable[pa.RecordBatch], task: int = 0) -> Written:
        parts: list[WrittenFile] = []
        digest = 0
        run, first = self.run, task * INDEXES_PER_TASK
        rows = 0
        try:
            for table in _buffered(batches):
                rows += table.num_rows
                stored = self.prepare(table, "append")
                digest = (digest + fingerprint(stored)) % 2**64
                if self.dry:
                    continue
                parts += self._write_run(stored, run or new_id(), first)
                run, first = None, 0
        except BaseException:
            self.store.discard([part.path for part in parts])
            raise
        return Written(parts, digest, {"rows": rows, "peak_memory": peak_memory()})

    def prepare(self, table: pa.Table, where: str) -> pa.Table:
        """Canonical, checked, with `_prefix` and `_hash`; in the order of arrival."""
        at = self.lower if self.at is None else self.at
        updates = as_updates(table, self.spec.schema, default_time=at, where=where)
        times = int64_values(updates, TIME)
        outside = (times < self.lower) | (times >= self.upper)
        if outside.any():
            at = int(outside.argmax())
            row = {name: updates.column(name)[at].as_py() for name in self.spec.schema.names}
            raise DataError(
                f"{where}: {int(outside.sum())} of {times.size} updates lie outside "
                f"[{self.lower}, {self.upper}), the first at {int(times[at])}: {_short(row)}. "
                "Append them with a later upper, or correct their _time"
            )
        return stored_table(updates, self.spec)

    def _write_run(self, stored: pa.Table, run: str, first_index: int) -> list[WrittenFile]:
        writer = PartWriter(
            self.store,
            self.spec,
            lower=self.lower,
            upper=self.upper,
            run=run,
            form=CONSOLIDATED,
            first_index=first_index,
            part_bytes=self.part_bytes,
        )
        try:
            table = sort_and_consolidate(stored, self.spec)
            writer.write(table)
            parts = writer.close()
        except BaseException:
            writer.abort()
            raise
        if self.remembered and len(parts) == 1:
            remember(self.store, parts[0].path, table)
        return parts


def sort_and_consolidate(stored: pa.Table, spec: ShardSpec) -> pa.Table:
    """Stored updates in the shard's order, each (row, time) once."""
    words = order_words(spec, stored, with_time=True)
    columns = [single_chunk(stored.column(name)) for name in spec.schema.names]
    found = consolidate_words(words, int64_values(stored, DIFF), columns)
    del words
    return replace_column(_taken(stored, found.rows), DIFF, found.diffs)


def _taken(stored: pa.Table, rows: np.ndarray) -> pa.Table:
    """`rows` of a table, but for `_diff`, which is replaced. Where all values of a column are the
    same, as times and numbers of files often are, nothing has to be moved."""
    at = pa.array(rows)
    columns = []
    for name, column in zip(stored.column_names, stored.columns, strict=True):
        same = name == DIFF or _is_constant(single_chunk(column))
        columns.append(column.slice(0, rows.size) if same else column.take(at))
    return pa.table(columns, schema=stored.schema)


def _is_constant(column: pa.Array) -> bool:
    """Whether a column of integers has one value only."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return False
    values = column.to_numpy()
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _buffered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of many batches, each within the bounds of what a task may hold.

    Batches without rows count too: their columns are checked like all others.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise OptionError(
                f"cannot append {type(batch).__name__}; give an Arrow table, record batches or a "
                "Spark DataFrame"
            )
        if held and batch.schema != held[0].schema:
            raise SchemaError(
                f"append: a batch has columns {describe(batch.schema)}, the one before it "
                f"{describe(held[0].schema)}"
            )
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BUFFER_ROWS or size >= BUFFER_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _short(row: dict[str, Any]) -> str:
    text = repr(row)
    return text if len(text) <= 300 else text[:297] + "..."


def write_dataframe(frame: DataFrame, writer: BatchWriter, exchange: int | None) -> Written:
    """Write a DataFrame's rows from Spark's tasks.

    `exchange` brings rows together by prefix, into that many tasks, so that all parts form one
    run; without it each task writes a run of its own and nothing is shuffled.
    """
    found = spark_to_arrow_schema(frame.schema)
    own = [n for n in found.names if n in (TIME, DIFF)]
    expected = pa.schema(
        [
            f
            for f in update_schema(writer.spec.schema)
            if f.name not in (TIME, DIFF) or f.name in own
        ]
    )
    check_schema(found, expected, "append")
    if exchange is not None:
        frame = _exchange(frame, writer.spec, exchange)
        writer = replace(writer, run=new_id())
    names = frame.columns
    frame = frame.toDF(*(f"c{i}" for i in range(len(names))))  # mapInArrow takes no dots in names

    def write(batches: Iterator[pa.RecordBatch]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        named = (batch.rename_columns(names) for batch in batches)
        return writer.write(named, context.partitionId() if context is not None else 0)

    return run_writers(frame, writer.store, write)


class TaskRows(Protocol):
    """Rows that tasks read by themselves, without Spark's readers. Picklable.

    With a method `counter`, the rows of a task are counted under the name that it gives.
    """

    @property
    def tasks(self) -> int: ...

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, with the columns of the shard they are for."""
        ...


def write_tasks(spark: SparkSession, rows: TaskRows, writer: BatchWriter) -> Written:
    """Write rows that tasks read by themselves; each task writes runs of its own."""

    def write(task: int) -> Written:
        written = writer.write(rows.batches(task), task)
        counter = getattr(rows, "counter", None)
        if counter is None:
            return written
        counters = dict(written.counters)
        counters[counter(task)] = counters.pop("rows")
        return replace(written, counters=counters)

    return run_numbered(spark, rows.tasks, writer.store, write)


def _exchange(frame: DataFrame, spec: ShardSpec, tasks: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    if spec.order.kind == "natural":
        return frame.repartitionByRange(tasks, F.col(quoted(spec.order.columns[0])))
    return frame.repartitionByRange(tasks, F.xxhash64(*[F.col(quoted(n)) for n in spec.key]))
