"""The left side of a join, bound to its data: queries with keys and a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.algebra.windows import DAY
from windrow.errors import OptionError, SchemaError
from windrow.features.arrange import key_type
from windrow.features.definitions import Join
from windrow.rows.types import canonical_schema
from windrow.sources.bound import BoundTable, bind_table
from windrow.sources.columns import Form, Taken
from windrow.sources.files import FileRows, Moments
from windrow.sources.tables import require_columns
from windrow.sources.times import check_time_type, millis_sql
from windrow.spark import arrow_to_spark_schema, parallelism, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_TIME = "__query_time"
KEY = "__key_"


def key_columns(left_keys: Sequence[str]) -> list[str]:
    return [f"{KEY}{i}" for i in range(len(left_keys))]


@dataclass(frozen=True)
class QueryInputs:
    """Queries of a join: all left columns, and which rows are asked for (`span`)."""

    join: Join
    table: BoundTable
    schema: pa.Schema  # canonical types of the left columns
    span: Moments

    @staticmethod
    def bind(
        join: Join,
        spark: SparkSession,
        start: str | date | None,
        end: str | date | None,
        options: dict[str, str] | None,
    ) -> QueryInputs:
        what = f"Join {join.name!r}: left"
        left = join.left
        table = bind_table(
            spark,
            left.table,
            what,
            select=left.selected,
            where=left.where,
            partitions=left.partitions,
            options=options,
        )
        require_columns(table.schema.names, [left.time], f"{what}: time")
        for name in table.schema.names:
            if name.startswith("__"):
                raise SchemaError(
                    f"{what}: column {name!r}: names that start with two underscores belong to "
                    "Windrow; rename it in select"
                )
        type_ = table.schema.field(left.time).type
        check_time_type(type_, f"Join {join.name!r}: time {left.time!r}")
        low, high = first_millisecond(start, "start"), first_millisecond(end, "end")
        if low is not None and high is not None and low > high:
            raise OptionError(f"start {start!s} comes after end {end!s}")
        high = None if high is None else high + DAY
        span = Moments(QUERY_TIME, low, high, nulls=True)
        table = table.within(left.time, low, high)
        return QueryInputs(join, table, canonical_schema(table.schema), span)

    def rows(self, spark: SparkSession, left_keys: Sequence[str]) -> tuple[FileRows | None, str]:
        """The sorted queries' rows as tasks read them, or None; and the reason."""
        taken = sorted_columns(self.schema, left_keys, self.join.left.time)
        return self.table.rows(taken, [self.span], parallelism(spark))

    @property
    def times(self) -> tuple[int, int] | None:
        """The first and last millisecond asked for, as far as footers tell; None if they do not."""
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
        """The queries asked for, through Spark's reader, with their time as `__query_time`."""
        from pyspark.sql import functions as F  # noqa: N812

        time = self.join.left.time
        millis = millis_sql(quoted(time), self.schema.field(time).type)
        frame = self.table.frame.withColumn(QUERY_TIME, F.expr(millis))
        moment = F.col(QUERY_TIME)
        if self.span.start is not None:
            frame = frame.where(moment.isNull() | (moment >= self.span.start))
        if self.span.end is not None:
            frame = frame.where(moment.isNull() | (moment < self.span.end))
        return frame


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


def first_millisecond(value: Any, what: str) -> int | None:
    """The first millisecond of a day, UTC."""
    if value is None:
        return None
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else value
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
    except (ValueError, AttributeError) as error:
        raise OptionError(f"{what} is {value!r}; write a day like '2021-09-30'") from error
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
