"""The shard of a stream: where its rows are, once they have been taken in.

    streams/NAME                  the shard: rows with the columns of the source's table
    streams/NAME/_checkpoint      how far the stream was read, by Spark

A shard of a stream begins with `since` at the time it was created. One that was removed and begun
again cannot be mistaken for the one before: whoever read that was further back than the new one
reaches, and reads everything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from windrow.errors import ShardExistsError, ShardNotFoundError, UpperMismatchError
from windrow.rows.types import canonical_schema
from windrow.shard.shard import Shard
from windrow.shard.spec import by_columns, by_hash
from windrow.sources.definitions import Source
from windrow.sources.streams import TakenIn
from windrow.spark.schemas import quoted
from windrow.storage.names import Anchored
from windrow.storage.store import Store
from windrow.time import now_millis
from windrow.updates import DIFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FOLDER = "streams"
_TIMES = "__windrow_times"

_AnySource = TypeVar("_AnySource", bound=Source)


def stream_uri(root: Store, name: str) -> str:
    """Where the shard of a source's stream is, beneath the root of a project."""
    return f"{root.uri}/{_FOLDER}/{name}"


def taken_in(source: _AnySource, root: Store) -> _AnySource:
    """The same source, its stream replaced by what the project at `root` has taken in of it."""
    stream = source.stream
    if stream is None or isinstance(stream, TakenIn):
        return source
    uri = Anchored(stream_uri(root, source.name), f"stream {source.name}")
    found = TakenIn(uri, schema=stream.schema, envelope=stream.envelope, select=stream.select)
    return replace(source, stream=found)  # type: ignore[type-var]


def open_stream(uri: str, options: Mapping[str, str] | None) -> Shard | None:
    """The shard of a stream; None if it never ran."""
    try:
        shard = Shard.open(uri, storage_options=options)
    except ShardNotFoundError:
        return None
    # Its maker appends nothing, and then says from when on it can be read: not before that.
    return shard if shard.since else None


def create_stream(
    uri: str, schema: pa.Schema, time: str, options: Mapping[str, str] | None
) -> Shard:
    """A new shard for rows of `schema`, sorted by `time` where that is a plain column.

    One that is there already, of whatever columns, is opened.
    """
    schema = canonical_schema(schema)
    sortable = [field.name for field in schema if _is_sortable(field.type)]
    first = time if time in sortable else next(iter(sortable), None)
    order = by_hash() if first is None else by_columns(first)
    key = [schema.names[0]] if first is None else []
    try:
        shard = Shard.create(uri, schema, key=key, order=order, storage_options=options)
    except ShardExistsError:
        shard = Shard.open(uri, storage_options=options)
    if shard.upper == 0:  # new, or its maker died right here
        now = now_millis()
        with suppress(UpperMismatchError):  # another process does the same
            shard.append(schema.empty_table(), lower=0, upper=now + 1, token="begin")
        shard.refresh()
    if shard.since == 0:
        shard.advance_since(shard.upper - 1)
    return shard.refresh()


def _is_sortable(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_timestamp(type_) or t.is_integer(type_) or t.is_date(type_) or t.is_string(type_)
    )


def stream_rows(shard: Shard, span: tuple[int, int], spark: SparkSession) -> DataFrame:
    """The rows that were taken in at times in [lower, upper), each as often as it came."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = shard.changes(*span).dataframe(spark)
    columns = [F.col(quoted(name)) for name in shard.schema.names]
    bad = f"raise_error('{_FOLDER}: a row is retracted, and rows of a stream are only ever added')"
    times = F.expr(f"array_repeat(0, CASE WHEN {DIFF} < 0 THEN {bad} ELSE int({DIFF}) END)")
    return frame.select(*columns, F.explode(times).alias(_TIMES)).select(*columns)
