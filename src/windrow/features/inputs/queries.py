"""The left side of a join, bound to its data: queries with keys and a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import OptionError, SchemaError, ShardNotFoundError
from windrow.features import limits
from windrow.features.definitions import Join
from windrow.features.inputs.layout import key_type
from windrow.rows.types import RESERVED, canonical_schema
from windrow.shard.shard import Shard
from windrow.shard.spec import ShardSpec, by_hash
from windrow.sources.bound import BoundTable, bind_table
from windrow.sources.columns import Form, Taken
from windrow.sources.files import FileRows, Span, TimeFilter
from windrow.sources.tables import require_columns
from windrow.sources.times import check_time_type, millis_sql
from windrow.spark.schemas import arrow_to_spark_schema, quoted
from windrow.spark.session import Engine
from windrow.time import DAY, first_millisecond

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_TIME = "__query_time"
KEY = "__key_"


def check_left_columns(names: Iterable[str], what: str) -> None:
    """Names that Windrow adds to queries, and to whatever it stores sorted, are its own."""
    for name in names:
        if name.startswith("__") or name.lower() in RESERVED:
            raise SchemaError(
                f"{what}: column {name!r}: names that start with two underscores, and "
                f"{', '.join(sorted(RESERVED))}, belong to Windrow; rename it in select"
            )


def key_columns(left_keys: Sequence[str]) -> list[str]:
    return [f"{KEY}{i}" for i in range(len(left_keys))]


@dataclass(frozen=True)
class QueryInputs:
    """Queries of a join: all left columns, and which rows are requested (`span`).

    With `numbered`, they have one more column of this name: their number among the rows of all
    files. Only tasks that read the files can tell it.
    """

    join: Join
    table: BoundTable
    schema: pa.Schema  # canonical types of the left columns
    span: TimeFilter
    numbered: str | None = None

    @staticmethod
    def bind(
        join: Join,
        engine: Engine,
        start: str | date | None,
        end: str | date | None,
        options: dict[str, str] | None,
        numbered: str | None = None,
    ) -> QueryInputs:
        what = f"Join {join.name!r}: left"
        left = join.left
        table = bind_table(
            engine,
            left.table,
            what,
            select=left.selected,
            where=left.where,
            partitions=left.partitions,
            options=options,
        )
        require_columns(table.schema.names, [left.time], f"{what}: time")
        check_left_columns(table.schema.names, what)
        type_ = table.schema.field(left.time).type
        check_time_type(type_, f"Join {join.name!r}: time {left.time!r}")
        low, high = first_millisecond(start, "start"), first_millisecond(end, "end")
        if low is not None and high is not None and low > high:
            raise OptionError(f"start {start!s} is after end {end!s}")
        high = None if high is None else high + DAY
        span = TimeFilter(QUERY_TIME, low, high, nulls=True)
        table = table.within(left.time, low, high)
        schema = canonical_schema(table.schema)
        if numbered is not None:
            schema = schema.append(pa.field(numbered, pa.int64()))
        return QueryInputs(join, table, schema, span, numbered)

    def rows(self, engine: Engine, left_keys: Sequence[str]) -> tuple[FileRows | None, str]:
        """The sorted queries' rows as tasks read them, or None; and the reason."""
        taken = sorted_columns(self.schema, left_keys, self.join.left.time)
        taken = tuple(one for one in taken if one.name != self.numbered)
        rows, reason = self.table.rows(taken, [self.span], engine.tasks)
        if self.numbered is None:
            return rows, reason
        if rows is None or self.table.parquet is None:
            raise SchemaError(f"Join {self.join.name!r}: left: rows have no numbers: {reason}")
        return replace(rows, numbered=(self.numbered, self.table.parquet.starts)), reason

    def shares(self, tasks: int) -> tuple[tuple[Span, ...], ...]:
        """Neighbouring rows of the files, for whoever compares a numbered result with them."""
        parquet = self.table.parquet
        assert parquet is not None
        most = min(
            max(parquet.rows // limits.NUMBERED_SHARES, limits.BATCH_ROWS), limits.SLICE_ROWS
        )
        return parquet.shares(tasks, most)

    @property
    def times(self) -> tuple[int, int] | None:
        """The first and last millisecond requested, from footers; None if they do not say."""
        found = self.table.times(self.join.left.time)
        if found is None:
            return None
        low, high = found
        start, end = self.span.start, self.span.end
        return (
            low if start is None else max(low, start),
            high if end is None else min(high, end - 1),
        )

    def frame(self) -> DataFrame:
        """The requested queries, through Spark's reader, with their time as `__query_time`."""
        from pyspark.sql import functions as F  # noqa: N812

        time = self.join.left.time
        millis = millis_sql(quoted(time), self.schema.field(time).type)
        frame = self.table.frame.withColumn(QUERY_TIME, F.expr(millis))
        query_time = F.col(QUERY_TIME)
        if self.span.start is not None:
            frame = frame.where(query_time.isNull() | (query_time >= self.span.start))
        if self.span.end is not None:
            frame = frame.where(query_time.isNull() | (query_time < self.span.end))
        return self.table.executed(frame)


def sorted_schema(schema: pa.Schema, left_keys: Sequence[str]) -> pa.Schema:
    """Columns of queries sorted by these keys: those of `schema`, keys, the time."""
    keys = [key_type(schema.field(name).type) for name in left_keys]
    return pa.schema(
        [
            *schema,
            *(pa.field(n, t) for n, t in zip(key_columns(left_keys), keys, strict=True)),
            pa.field(QUERY_TIME, pa.int64()),
        ]
    )


def sorted_columns(schema: pa.Schema, left_keys: Sequence[str], time: str) -> tuple[Taken, ...]:
    """How tasks make the columns of `sorted_schema` from columns of `schema`."""
    sources = [*schema.names, *left_keys, time]
    return tuple(
        Taken(f.name, source, f.type, Form.MILLIS if f.name == QUERY_TIME else Form.PLAIN)
        for f, source in zip(sorted_schema(schema, left_keys), sources, strict=True)
    )


def with_keys(frame: DataFrame, schema: pa.Schema, left_keys: Sequence[str]) -> DataFrame:
    """`frame` (left columns and `__query_time`) with the columns of `sorted_schema`."""
    from pyspark.sql import functions as F  # noqa: N812

    types = arrow_to_spark_schema(sorted_schema(schema, left_keys))
    keys = [
        F.col(quoted(name)).cast(types[key].dataType).alias(key)
        for key, name in zip(key_columns(left_keys), left_keys, strict=True)
    ]
    return frame.select(*(F.col(quoted(name)) for name in schema.names), *keys, QUERY_TIME)


def query_spec(schema: pa.Schema) -> ShardSpec:
    """How queries with the columns of `sorted_schema` are sorted: by key and time."""
    keys = [name for name in schema.names if name.startswith(KEY)]
    return ShardSpec.make(schema, keys, by_hash(QUERY_TIME))


def sorted_queries(uri: str, schema: pa.Schema, options: dict[str, str] | None) -> Shard:
    """The shard for queries by key and time."""
    with contextlib.suppress(ShardNotFoundError):
        return Shard.open(uri, storage_options=options)
    spec = query_spec(schema)
    return Shard.create(uri, schema, key=spec.key, order=spec.order, storage_options=options)
