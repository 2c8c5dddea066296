"""Arranging: a source's events become a shard, sorted by the hash of the key and by time.

An arrangement holds what one group needs of its source: the keys, the event's time in
milliseconds, the columns that aggregations read, and where their conditions hold. It is named by
what it contains, so that it is built once and used by every backfill that needs the same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import SchemaError
from windrow.features.compute import feature_type
from windrow.features.definitions import GroupBy
from windrow.rows.types import canonical_schema, single_chunk
from windrow.shard.spec import by_hash
from windrow.sources.bound import BoundTable, bind_table
from windrow.sources.files import FileRows, Moments, Taken
from windrow.sources.tables import require_columns
from windrow.sources.times import check_time_type, millis_sql
from windrow.spark import arrow_to_spark_schema, parallelism, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT_TIME = "__time"
EVENT_ORDER = by_hash(EVENT_TIME)


def key_type(type_: pa.DataType) -> pa.DataType:
    """Integers of any width are one kind of key, and so are floats."""
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else type_


@dataclass(frozen=True)
class EventInputs:
    """What a group reads of its source, once bound to the source's columns.

    `schema` is that of the arrangement: keys, `__time`, inputs, conditions. `rows` are read by
    tasks; without them Spark's reader is used. `reason` says why the one or the other.
    """

    group: GroupBy
    table: BoundTable
    schema: pa.Schema
    inputs: tuple[str, ...]
    conditions: tuple[str, ...]
    rows: FileRows | None
    reason: str

    @staticmethod
    def bind(
        group: GroupBy, spark: SparkSession, options: dict[str, str] | None = None
    ) -> EventInputs:
        """Check the group against its table's columns and types."""
        source = group.source
        what = f"EventSource {source.name!r}"
        table = bind_table(
            spark,
            source.table,
            what,
            select=source.selected,
            where=source.where,
            partitions=source.partitions,
            options=options,
        )
        frame, found = table.frame, table.schema
        require_columns(frame, [source.time], f"{what}: time")
        require_columns(frame, list(group.keys), f"GroupBy {group.name!r}: keys")
        check_time_type(found.field(source.time).type, f"{what}: time {source.time!r}")
        inputs = _input_columns(group)
        for name in inputs:
            require_columns(frame, [name], f"GroupBy {group.name!r}")
        types = canonical_schema(pa.schema([found.field(name) for name in inputs]))
        for aggregation in group.aggregations:
            where = f"GroupBy {group.name!r}: {aggregation.column} {aggregation.label}"
            feature_type(aggregation, types, where)
        conditions = tuple(
            dict.fromkeys(a.condition for a in group.aggregations if a.condition is not None)
        )
        keys = canonical_schema(pa.schema([found.field(name) for name in group.keys]))
        schema = pa.schema(
            [
                *(pa.field(f"k{i}", key_type(f.type)) for i, f in enumerate(keys)),
                pa.field(EVENT_TIME, pa.int64()),
                *(pa.field(f"v{i}", f.type) for i, f in enumerate(types)),
                *(pa.field(f"w{i}", pa.bool_()) for i in range(len(conditions))),
            ]
        )
        rows, reason = None, "where of an aggregation is SQL"
        if not conditions:
            columns = (*group.keys, source.time, *inputs)
            taken = [
                Taken(f.name, name, f.type, as_millis=f.name == EVENT_TIME)
                for f, name in zip(schema, columns, strict=True)
            ]
            rows, reason = table.rows(taken, Moments(EVENT_TIME), parallelism(spark))
        return EventInputs(group, table, schema, inputs, conditions, rows, reason)

    @property
    def key_names(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.group.keys))]

    @property
    def fingerprint(self) -> str:
        """Names the arrangement by what it contains."""
        source = self.group.source
        parts = [self.table.text, source.time, source.selected, source.where, self.inputs]
        parts += [tuple(self.group.keys), self.conditions, str(self.schema)]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]

    def arranged(self) -> DataFrame:
        """Rows of the arrangement; those without a time are left out."""
        from pyspark.sql import functions as F  # noqa: N812

        source = self.group.source
        types = arrow_to_spark_schema(self.schema)
        frame, found = self.table.frame, self.table.schema
        columns = [
            F.col(quoted(name)).cast(types[f"k{i}"].dataType).alias(f"k{i}")
            for i, name in enumerate(self.group.keys)
        ]
        columns.append(
            F.expr(millis_sql(quoted(source.time), found.field(source.time).type)).alias(EVENT_TIME)
        )
        columns += [F.col(quoted(name)).alias(f"v{i}") for i, name in enumerate(self.inputs)]
        try:
            columns += [F.expr(text).alias(f"w{i}") for i, text in enumerate(self.conditions)]
            frame = frame.where(F.col(quoted(source.time)).isNotNull()).select(*columns)
            frame.schema  # noqa: B018  forces Spark to check the conditions
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise SchemaError(f"GroupBy {self.group.name!r}: where: {reason}") from error
        return frame

    def without_time(self) -> DataFrame:
        """The source's rows that have no time, for the quarantine."""
        from pyspark.sql import functions as F  # noqa: N812

        return self.table.frame.where(F.col(quoted(self.group.source.time)).isNull())


def _input_columns(group: GroupBy) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for aggregation in group.aggregations:
        names[aggregation.column] = None
        if aggregation.bucket is not None:
            names[aggregation.bucket] = None
    return tuple(names)


def condition_mask(table: pa.Table, name: str) -> np.ndarray:
    """Where a condition is true; NULL is not."""
    mask: Any = pc.fill_null(single_chunk(table.column(name)), False)
    found: np.ndarray = mask.to_numpy(zero_copy_only=False)
    return found
