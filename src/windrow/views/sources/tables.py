"""The tables of a source: their files, and how rows of these become updates of the relation.

What a definition of `windrow.sources` says of its tables is what it says to a backfill: `select`,
`where`, ranges of days, which column has the sign of an update and which its time. The relation has
the columns of the rows themselves, without those that say when and how a row changed:

    table (events)          all columns, or those of `select`, and `known`
    changes, mutations      without the time and the sign; the day; _commit_version of a feed
    snapshots               without the day
    shard                   without _time and _diff
    stream                  as the table, the changes or the mutations that it continues
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import SchemaError, StorageError, UnsupportedSQL
from windrow.shard.shard import Shard
from windrow.sources.changes import UpdateColumns
from windrow.sources.columns import Form, Taken
from windrow.sources.definitions import EntitySource, EventSource, Source
from windrow.sources.patterns import split_pattern
from windrow.sources.streams import TakenIn
from windrow.sources.tables import format_of, is_path, require_columns, select_columns
from windrow.sources.times import check_time_type
from windrow.spark.schemas import empty_frame, quoted, spark_to_arrow_schema
from windrow.storage.store import Store
from windrow.updates import DIFF
from windrow.views.sources.files import CHANGE, SourceFiles
from windrow.views.sources.numbers import MISSING, NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

AT = "__windrow_at"  # the column that says when a stored update became known, in milliseconds
_SIGN = "__windrow_sign"  # of a row of change data
_VERSION = "_commit_version"
# Options that name tables.
TABLES = ("table", "snapshots", "mutations", "changes", "shard", "stream")


@dataclass(frozen=True)
class SourceTable:
    """A table of a source, under one of the names of `TABLES`.

    `columns` are those that its files (or its shard) have; `source` is the definition from Python,
    None for CREATE TABLE.
    """

    role: str
    files: SourceFiles | None
    columns: StructType
    source: Source | None = None

    @property
    def what(self) -> str:
        if self.source is None:
            return "" if self.files is None else self.files.what
        return f"{self.source.what}: {self.role}"

    @property
    def signs(self) -> UpdateColumns | None:
        """Where rows have their time and their sign; None if they are only ever added."""
        if self.role in ("table", "snapshots") or isinstance(self.source, EventSource):
            return None
        assert isinstance(self.source, EntitySource)
        return UpdateColumns.of(self.source, self._form)

    @property
    def _form(self) -> str:
        """The role; of a stream, that of the table that it continues."""
        if self.role != "stream":
            return self.role
        return self.source.feed if isinstance(self.source, EntitySource) else "table"

    def updates(self, rows: DataFrame, *, feed: bool = False, at: bool = False) -> DataFrame:
        """Rows of files, each with `NUMBER`, as updates: own columns, `NUMBER`, `_diff`.

        With `feed`, they are rows of Delta's change data. With `at`, the time at which an update
        became known comes too. One without a time comes twice, so that it cancels (see
        `source_missing`).
        """
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import LongType

        sign: Any = F.lit(1).cast("long").alias(_SIGN)
        if feed:
            taken = Taken(_SIGN, CHANGE, pa.int64(), Form.CHANGE)
            sign = taken.sql(pa.schema([]), LongType())
        own = [F.col(quoted(name)) for name in self.columns.names]
        frame = rows.select(*own, F.col(NUMBER), sign)
        if self.source is not None:
            frame = self._selected(frame)
        names = [F.col(quoted(name)) for name in self._own(frame.columns)]
        signs = self.signs
        if signs is None:
            return frame.select(*names, F.col(NUMBER), F.col(_SIGN).alias(DIFF))
        taken = Taken(DIFF, signs.sign, pa.int64(), signs.form)
        diff = F.col(_SIGN) * taken.sql(pa.schema([]), LongType())
        more = []
        if at:
            found = spark_to_arrow_schema(frame.select(quoted(signs.known_at)).schema)
            taken = Taken(AT, signs.known_at, pa.int64(), Form.MILLIS)
            more.append(F.coalesce(taken.sql(found, LongType()), F.lit(0)).alias(AT))
        number = F.col(NUMBER)
        if self.role not in ("shard", "stream"):  # neither has changes without a time
            timeless = F.col(quoted(signs.known_at)).isNull()
            twice = F.array(-2 * number, -2 * number - 1)
            number = F.explode(F.when(timeless, twice).otherwise(F.array(number)))
        updates = frame.select(*names, number.alias(NUMBER), *more, diff.alias(DIFF))
        cancels = (F.col(NUMBER) < MISSING) & (F.col(NUMBER) % 2 != 0)  # see `source_numbers`
        return updates.withColumn(DIFF, F.when(cancels, -F.col(DIFF)).otherwise(F.col(DIFF)))

    def _selected(self, frame: DataFrame) -> DataFrame:
        """What the definition selects, and the columns that are needed besides."""
        source = self.source
        assert source is not None
        partitions = None if self.role == "stream" else source.partitions
        if partitions is not None and not partitions.is_open:
            require_columns(frame.columns, [partitions.column], f"{source.what}: partition")
            frame = frame.where(partitions.condition())
        select = source.selected
        if select:
            given = {name for name, _ in select}
            also = [NUMBER, _SIGN, *(name for name in self._also() if name not in given)]
            select += tuple((name, quoted(name)) for name in also)
        return select_columns(frame, select, source.where, self.what)

    def _also(self) -> list[str]:
        """Columns that are read whatever `select` says."""
        if isinstance(self.source, EventSource):
            return [] if self.source.known is None else [self.source.known]
        if self.role == "snapshots":
            assert self.source is not None
            return [str(self.source.partitions and self.source.partitions.column)]
        assert self.signs is not None
        return self.signs.names

    def _own(self, names: Sequence[str]) -> list[str]:
        """The columns of the relation among those of a frame."""
        left = {NUMBER, _SIGN}
        if isinstance(self.source, EntitySource):
            if self.signs is not None:
                left |= {*self.signs.names}
            if self.source.partition is not None and (
                self.source.snapshots is not None or not self.source.selected
            ):
                left.add(self.source.partition)
            if self._form == "changes" and not self.source.selected:
                left.add(_VERSION)
        return [name for name in names if name not in left]

    def schema(self, session: SparkSession) -> StructType:
        """The columns of the relation, checked."""
        from pyspark.sql.types import IntegerType, StructField, StructType

        if self.source is None:
            return self.columns
        with_number = StructType([*self.columns, StructField(NUMBER, IntegerType())])
        self._check(self._selected_schema(empty_frame(session, with_number)))
        found = self.updates(empty_frame(session, with_number)).schema
        own = self._own([name for name in found.names if name != DIFF])
        return StructType([StructField(n, found[n].dataType, True) for n in own])

    def _selected_schema(self, empty: DataFrame) -> StructType:
        from pyspark.sql import functions as F  # noqa: N812

        return self._selected(empty.withColumn(_SIGN, F.lit(1).cast("long"))).schema

    def _check(self, found: StructType) -> None:
        """The columns that the definition names have to be there, and of the right types."""
        source, signs = self.source, self.signs
        assert source is not None
        if self.role != "mutations" or getattr(source, "snapshots", None) is None:
            require_columns(found.names, [source.time], f"{source.what}: time")
        if isinstance(source, EventSource) and source.known is not None:
            require_columns(found.names, [source.known], f"{source.what}: known")
        if self.role == "snapshots":
            assert source.partitions is not None
            require_columns(found.names, [source.partitions.column], f"{source.what}: partition")
        if signs is not None:
            assert isinstance(source, EntitySource)
            require_columns(found.names, [signs.known_at], f"{source.what}: mutation_time")
            time = _arrow_type(found, signs.known_at)
            check_time_type(time, f"{source.what}: mutation_time {signs.known_at!r}")
            require_columns(found.names, [signs.sign], f"{source.what}: {signs.option}")
            signs.check(_arrow_type(found, signs.sign), source)


def _arrow_type(schema: StructType, name: str) -> pa.DataType:
    from pyspark.sql.types import StructType

    return spark_to_arrow_schema(StructType([schema[name]])).field(0).type


def check_alike(known: StructType, found: StructType, what: str) -> None:
    """Raise unless rows of one table have the columns of another, of the same types."""
    require_columns(found.names, list(known.names), what)
    for field in known:
        if found[field.name].dataType != field.dataType:
            raise SchemaError(
                f"{what}: column {field.name!r} is {found[field.name].dataType.simpleString()}, "
                f"and in the other table {field.dataType.simpleString()}; cast it in select"
            )


# Definitions as data, for the catalogue.


def to_json(source: Source) -> dict[str, Any]:
    """A definition without its tables."""
    found: dict[str, Any] = {"type": type(source).__name__}
    for field in fields(source):  # type: ignore[arg-type]
        value = getattr(source, field.name)
        if field.name not in (*TABLES, "view", "select") and value != field.default:
            found[field.name] = value
    if source.selected:
        found["select"] = [list(one) for one in source.selected]
    return found


def from_json(data: Mapping[str, Any], tables: Mapping[str, str]) -> Source:
    """The definition again; `tables` says where each of its tables is."""
    given = {name: value for name, value in data.items() if name not in ("type", "select")}
    if "select" in data:
        given["select"] = dict(data["select"])
    if "stream" in tables:
        given["stream"] = TakenIn(tables["stream"])
    others = {name: place for name, place in tables.items() if name != "stream"}
    kind: Any = EventSource if data["type"] == "EventSource" else EntitySource
    found: Source = kind(**given, **others)
    return found


@dataclass(frozen=True)
class Place:
    """Where a table of a definition is: files of a format, a shard, or that of a stream."""

    format: str
    location: str
    options: Mapping[str, str]
    pattern: str | None = None


def places_of(
    name: str, source: Source, storage_options: Mapping[str, str] | None
) -> dict[str, Place]:
    """Where the tables of a definition are, by name; what cannot be a relation is refused."""
    what = f"source {name}"
    if isinstance(source, EntitySource) and source.view is not None:
        raise UnsupportedSQL(
            f"{what}: view={source.view!r} is a relation of the project already; query it by its "
            "name"
        )
    if not isinstance(source, EventSource | EntitySource):
        raise UnsupportedSQL(
            f"{what}: {type(source).__name__} cannot be a relation: a row of it is there only once "
            "its interval has passed, and a relation does not change with the clock. Use an "
            "EventSource of the same files, and write the interval as a condition of a query"
        )
    found = {}
    for role in TABLES:
        table = getattr(source, role, None)
        if table is None:
            continue
        if role == "shard":
            uri = (
                table.uri
                if isinstance(table, Shard)
                else Shard.open(table, storage_options=storage_options).uri
            )
            found[role] = Place("shard", uri, {})
            continue
        if role == "stream":
            assert isinstance(table, TakenIn)
            found[role] = Place("stream", str(table.uri), {})
            continue
        found[role] = _files(f"{what}: its {role}", table, storage_options)
    return found


def _files(what: str, table: Any, storage_options: Mapping[str, str] | None) -> Place:
    if not isinstance(table, str | os.PathLike) or not is_path(os.fspath(table)):
        raise UnsupportedSQL(
            f"{what} is not the path of files; queries read tables and views of Spark by their "
            "names, and a materialized view reads files"
        )
    path = os.fspath(table)
    store, pattern = Store.at(path, storage_options), None
    if not store.is_there():
        base, pattern = split_pattern(store.uri)
        store = store if pattern is None else Store.at(base, storage_options)
    format = format_of(store, path)
    if format is None:
        raise StorageError(
            f"{what}: {path!r} holds no Parquet, Delta, CSV or JSON files; check the path"
        )
    options = {"header": "true", "inferSchema": "true"} if format == "csv" else {}
    return Place(format, store.uri, options, pattern)
