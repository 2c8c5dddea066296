"""The rows of a group's sources for some keys, each with when it arrived.

Rows of a stream arrived when they were taken in: that is their time in the stream's shard. Rows of
a changing table became known at the time of their change. Of other tables nobody knows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from windrow.features.compute.events import QueryTimes
from windrow.features.inputs.groups import GroupInputs
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.features.strategies.requested import RequestedKeys
from windrow.rows.types import canonical_values, conform, single_chunk
from windrow.sources.columns import KNOWN_AT
from windrow.sources.pieces import Piece
from windrow.sources.tables import select_columns
from windrow.spark.errors import known_errors
from windrow.spark.schemas import arrow_to_spark_schema, quoted
from windrow.spark.session import Engine
from windrow.spark.settings import is_remote
from windrow.updates import DIFF, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ARRIVED = "__arrived"  # milliseconds, by the clock of whoever took it in; NULL if nobody knows
NAME = "__name"  # of the source
MOST = 100_000  # rows that are looked at; of keys with more, some differences stay unexplained


@dataclass(frozen=True)
class Evidence:
    """Rows of a group, as its arrangement has them, with `ARRIVED`, `NAME` and `_diff`."""

    inputs: GroupInputs
    rows: pa.Table

    @property
    def layout(self) -> Layout:
        return self.inputs.layout

    def of_key(self, key: Sequence[Any]) -> pa.Table:
        """The rows of one key, in the order of their times."""
        return self._sorted.take(pa.array(self._places.get(tuple(key), []), pa.int64()))

    @functools.cached_property
    def _sorted(self) -> pa.Table:
        return self.rows.sort_by(EVENT_TIME).combine_chunks()

    @functools.cached_property
    def _places(self) -> dict[tuple[Any, ...], list[int]]:
        """For each key, as Python has it, the places of its rows."""
        names, place = self.layout.keys, "__place"
        keys = [canonical_values(single_chunk(self._sorted.column(name))) for name in names]
        every = pa.table([*keys, np.arange(self._sorted.num_rows)], names=[*names, place])
        found = every.group_by(names, use_threads=False).aggregate([(place, "list")])
        values = zip(*(found.column(name).to_pylist() for name in names), strict=True)
        return dict(zip(values, found.column(f"{place}_list").to_pylist(), strict=True))


def evidence(inputs: GroupInputs, engine: Engine, keys: pa.Table) -> Evidence:
    """The rows of all `keys`, which have the columns of the layout's keys."""
    tables = []
    for piece in inputs.content.pieces:
        if piece.rows is not None and not is_remote(engine.given):
            tables.append(_by_tasks(piece, engine, keys))
            continue
        frame = _arrived(piece, engine)
        for name in inputs.layout.keys:
            frame = frame.where(f"{quoted(name)} IS NOT NULL")
        frame = _of_keys(frame, keys, engine)
        with known_errors():
            tables.append(pa.table(piece.table.executed(frame.limit(MOST)).toArrow()))
    names = [*inputs.layout.schema.names, DIFF, ARRIVED, NAME]
    types = pa.schema(
        [*inputs.layout.schema, (DIFF, pa.int64()), (ARRIVED, pa.int64()), (NAME, pa.string())]
    )
    return Evidence(inputs, pa.concat_tables([t.select(names).cast(types) for t in tables]))


def _by_tasks(piece: Piece, engine: Engine, keys: pa.Table) -> pa.Table:
    """Rows of files, of some keys: tasks read them as those of a backfill do."""
    rows = piece.rows
    assert rows is not None
    name, schema = piece.source.name, pa.schema([(c.name, c.type) for c in piece.columns])
    times, valid = np.zeros(keys.num_rows, np.int64), np.ones(keys.num_rows, np.bool_)
    wanted = RequestedKeys.make(QueryTimes(keys, times, valid))  # whatever the time

    def read(numbers: Iterable[int]) -> Iterator[bytes]:
        kept = 0
        for number in numbers:
            for batch in rows.batches(number):
                found = pa.Table.from_batches([batch])
                own = conform(found.select(keys.schema.names), keys.schema, name)
                # By hashes: what is too much goes when one key is looked at.
                found = found.filter(pa.array(wanted.mask(own)))
                if found.num_rows and kept < MOST:
                    kept += found.num_rows
                    sink = pa.BufferOutputStream()
                    with pa.ipc.new_stream(sink, found.schema) as out:
                        out.write_table(found)
                    yield bytes(sink.getvalue())

    tasks = max(min(rows.tasks, engine.tasks), 1)  # starting one takes as long as reading a file
    numbers = engine.given.sparkContext.parallelize(range(rows.tasks), tasks)
    with known_errors():
        found = [
            pa.ipc.open_stream(data).read_all() for data in numbers.mapPartitions(read).collect()
        ]
    table = pa.concat_tables([schema.empty_table(), *(one.select(schema.names) for one in found)])
    if DIFF not in table.column_names:
        table = table.append_column(DIFF, pa.array([1] * table.num_rows, pa.int64()))
    count = table.num_rows
    table = table.append_column(ARRIVED, pa.nulls(count, pa.int64()))
    return table.append_column(NAME, pa.array([name] * count, pa.string()))


def _of_keys(frame: DataFrame, keys: pa.Table, engine: Engine) -> DataFrame:
    """The rows of some keys: few, so they are part of the query."""
    from pyspark.sql import functions as F  # noqa: N812

    types = arrow_to_spark_schema(keys.schema)
    wanted = F.lit(False)
    for row in keys.to_pylist():
        same = F.lit(True)
        for name, value in row.items():
            same &= F.col(quoted(name)) == F.lit(value).cast(types[name].dataType)
        wanted |= same
    return frame.where(wanted)


def _arrived(piece: Piece, engine: Engine) -> DataFrame:
    """Rows of a piece in the layout of its group, with what is known of their arrival."""
    from pyspark.sql import functions as F  # noqa: N812

    if piece.streamed and piece.shard is not None:
        frame = _taken_in(piece, engine)
    else:
        frame = piece.frame()
        known = F.lit(None).cast("long")
        if piece.shard is not None:  # a table or view of the project: its own times
            known = F.col(KNOWN_AT)
        frame = frame.withColumn(ARRIVED, known)
    if DIFF not in frame.columns:
        frame = frame.withColumn(DIFF, F.lit(1).cast("long"))
    return frame.withColumn(NAME, F.lit(piece.source.name))


def _taken_in(piece: Piece, engine: Engine) -> DataFrame:
    """The rows of a stream with the times at which they were taken in."""
    from pyspark.sql import functions as F  # noqa: N812

    shard, source = piece.shard, piece.source
    assert shard is not None
    # Within the stream's rows no column has this name.
    copies = "__copies"
    frame = shard.changes(shard.since, shard.upper).dataframe(engine.spark)
    frame = frame.withColumnsRenamed({TIME: ARRIVED, DIFF: copies})
    if source.selected or source.where is not None:
        kept = source.selected or tuple((n, quoted(n)) for n in shard.schema.names)
        known = {name for name, _ in kept}
        more = [n for n in (*piece.table.schema.names, ARRIVED, copies) if n not in known]
        kept += tuple((name, quoted(name)) for name in more)
        frame = select_columns(frame, kept, source.where, f"{source.what}: stream")
    types = arrow_to_spark_schema(pa.schema([(c.name, c.type) for c in piece.columns]))
    columns = [c.sql(piece.table.schema, types[c.name].dataType) for c in piece.columns]
    frame = frame.select(*columns, F.col(ARRIVED), F.col(copies))
    for name in piece.required:
        frame = frame.where(F.col(name).isNotNull())
    if DIFF in frame.columns:
        return frame.withColumn(DIFF, F.col(DIFF) * F.col(copies)).drop(copies)
    return frame.withColumnRenamed(copies, DIFF)
