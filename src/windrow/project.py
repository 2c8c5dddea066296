"""The front door: one object, one state root."""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.algebra.windows import DAY
from windrow.errors import OptionError, SchemaError, ShardNotFoundError
from windrow.features.arrange import EVENT_ORDER, EventInputs, key_type
from windrow.features.backfill import (
    QUERY_TIME,
    Arranged,
    Pass,
    check_keys,
    left_schema,
    passes_of,
    plan_pass,
    run_pass,
    sorted_queries,
)
from windrow.features.definitions import Join
from windrow.features.results import read_result, store_result
from windrow.features.times import check_time_type, millis_sql
from windrow.shard.part import new_id
from windrow.shard.shard import Shard
from windrow.shard.store import Store
from windrow.sources.tables import is_path, load_table, require_columns, select_columns
from windrow.spark import arrow_to_spark_schema, local_session, parallelism, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BackfillSummary:
    """What a backfill did.

    `queries` are the rows of the result. Those with a null key (of any group) or a null time are
    among them, with the features of an empty window. `quarantined` are events without a time,
    of arrangements that were built by this backfill.
    """

    queries: int
    null_keys: int
    null_times: int
    quarantined: int
    seconds: float


class Project:
    """A state root and the Spark session that works on it (a local one by default)."""

    def __init__(
        self,
        root: str | Path,
        *,
        spark: SparkSession | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._store = Store.at(root, storage_options)
        self._spark = spark
        self._quarantined = 0
        self.summary: BackfillSummary | None = None  # of the last backfill

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            self._spark = local_session()
        return self._spark

    def backfill(
        self, join: Join, *, start: str | date | None = None, end: str | date | None = None
    ) -> DataFrame:
        """The join's queries with their features, as they were at each query's time.

        `start` and `end` are days (UTC), both included; without them all queries are answered.
        The result is stored as a Delta table, `results/NAME` beneath the root, in place of that
        of an earlier backfill, and returned as a DataFrame. `summary` says what was done.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        started = time.perf_counter()
        self._quarantined = 0
        work = Store.at(f"{self._store.uri}/tmp/{new_id()}", self._store.options_dict)
        left = self._queries(join, start, end)
        keys = {name for group in join.groups for name in group.left_keys} & set(left.columns)
        nulls = (F.col(quoted(name)).isNull() for name in sorted(keys))
        null_key = functools.reduce(or_, nulls, F.lit(False))
        counts = Observation()
        left = left.observe(
            counts,
            F.count_if(null_key).alias("null_keys"),
            F.count_if(F.col(QUERY_TIME).isNull()).alias("null_times"),
        )
        try:
            frame = self._features(join, left, work.uri)
            schema = left_schema(frame)
            target = self._result_store(join.name)
            parts = store_result(frame, target)
        finally:
            work.remove()
        self.summary = BackfillSummary(
            queries=sum(part.rows for part in parts),
            null_keys=int(counts.get["null_keys"]),
            null_times=int(counts.get["null_times"]),
            quarantined=self._quarantined,
            seconds=time.perf_counter() - started,
        )
        return read_result(self.spark, target, parts, schema)

    def _result_store(self, name: str) -> Store:
        return Store.at(f"{self._store.uri}/results/{name}", self._store.options_dict)

    def _features(self, join: Join, left: DataFrame, work: str) -> DataFrame:
        """The queries with their features and derived columns."""
        result, carried = left, left.columns[:-1]
        for number, one in enumerate(passes_of(join)):
            result = self._pass(one, result, carried, f"{work}/{number}")
            carried = result.columns
            result = result.withColumn(QUERY_TIME, self._query_time(join, result))
        result = result.drop(QUERY_TIME)
        for name, expression in join.derive.items():
            columns = (*((c, quoted(c)) for c in result.columns), (name, expression))
            what = f"Join {join.name!r}: derive[{name!r}]"
            result = select_columns(result, columns, None, what)
        return result

    def _queries(self, join: Join, start: Any, end: Any) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        what = f"Join {join.name!r}: left"
        frame = load_table(self.spark, join.left.table, what)
        frame = select_columns(frame, join.left.selected, join.left.where, what)
        require_columns(frame, [join.left.time], f"{what}: time")
        for name in frame.columns:
            if name.startswith("__"):
                raise SchemaError(
                    f"{what}: column {name!r}: names that start with two underscores belong to "
                    "Windrow; rename it in select"
                )
        frame = frame.withColumn(QUERY_TIME, self._query_time(join, frame))
        low, high = _day(start, "start"), _day(end, "end")
        moment = F.col(QUERY_TIME)
        if low is not None:
            frame = frame.where(moment.isNull() | (moment >= low))
        if high is not None:
            frame = frame.where(moment.isNull() | (moment < high + DAY))
        return frame

    def _query_time(self, join: Join, frame: DataFrame) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        type_ = left_schema(frame.select(quoted(join.left.time)))[0].type
        check_time_type(type_, f"Join {join.name!r}: time {join.left.time!r}")
        return F.expr(millis_sql(quoted(join.left.time), type_))

    def _pass(self, one: Pass, left: DataFrame, carried: Sequence[str], work: str) -> DataFrame:
        schema = left_schema(left)
        arranged = []
        for group in one.groups:
            bound = EventInputs.bind(group.group, self.spark)
            check_keys(group, schema, bound.schema)
            arranged.append(Arranged.make(group, bound, self._arrangement(bound, work)))
        types = [key_type(schema.field(name).type) for name in one.left_keys]
        spark_types = arrow_to_spark_schema(pa.schema([(str(i), t) for i, t in enumerate(types)]))
        keys = [(name, spark_types[i].dataType) for i, name in enumerate(one.left_keys)]
        queries = sorted_queries(left, f"{work}-queries", self._store.options_dict, keys)
        job = plan_pass(arranged, queries, carried, parallelism(self.spark))
        return run_pass(self.spark, job)

    def _arrangement(self, bound: EventInputs, work: str) -> Shard:
        """The arrangement of a group's events, built if it is not there.

        It can be kept only if a change of its source would be noticed: if the source is files.
        What a view, a table name or a DataFrame stands for may be another thing next time.
        """
        name = f"{bound.group.source.name}-{bound.fingerprint}"
        version = self._data_version(bound)
        if version is None:
            uri = f"{work}-{bound.group.name}"
        else:
            name = f"{name}-{version}"
            uri = f"{self._store.uri}/arrangements/{name}"
        options = self._store.options_dict
        try:
            shard = Shard.open(uri, storage_options=options)
        except ShardNotFoundError:
            shard = Shard.create(
                uri, bound.schema, key=bound.key_names, order=EVENT_ORDER, storage_options=options
            )
        if shard.upper == 0:
            self._quarantine(bound, name)
            shard.append(bound.arranged(), lower=0, upper=1, token="arranged")
        return shard

    def _data_version(self, bound: EventInputs) -> str | None:
        """Changes whenever the files of a source do; None if the source is not files."""
        table = bound.group.source.table
        if not isinstance(table, str | os.PathLike) or not is_path(os.fspath(table)):
            return None
        digest = hashlib.sha256()
        for file in sorted(bound.frame.inputFiles()):
            store, name = Store.of_file(file, self._store.options_dict)
            digest.update(f"{file} {store.stamp(name)}\n".encode())
        return digest.hexdigest()[:16]

    def _quarantine(self, bound: EventInputs, name: str) -> None:
        """Keep the events that have no time where someone can look at them."""
        from pyspark.sql import functions as F  # noqa: N812

        rows = bound.without_time()
        if rows.isEmpty():
            return
        reason = F.lit(f"{bound.group.source.time} is null").alias("reason")
        store = Store.at(f"{self._store.uri}/quarantine/{name}", self._store.options_dict)
        parts = store_result(rows.select("*", reason), store)
        self._quarantined += sum(part.rows for part in parts)


def _day(value: str | date | None, what: str) -> int | None:
    """The first millisecond of a day, UTC."""
    if value is None:
        return None
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else value
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
    except (ValueError, AttributeError) as error:
        raise OptionError(f"{what} is {value!r}; write a day like '2021-09-30'") from error
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
