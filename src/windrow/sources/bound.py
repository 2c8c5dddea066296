"""A table bound to its data: its columns and types are known, and how its rows will be read.

    table, select, where, partitions ──▶ BoundTable ──▶ a DataFrame, or files that tasks read

Nothing is read yet but schemas, footers and names of files.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.sources.columns import Form, Taken
from windrow.sources.files import NO_VALUE, FileRows, ParquetFiles, TimeFilter, partition_values
from windrow.sources.layout import are_parquet, list_parquet, spark_schema
from windrow.sources.partitions import PartitionRange
from windrow.sources.tables import (
    files_of,
    folders_of,
    home_of,
    load_table,
    require_columns,
    select_columns,
)
from windrow.spark.schemas import quoted, spark_to_arrow_schema
from windrow.spark.session import Engine
from windrow.spark.settings import check_settings, moved
from windrow.storage.failures import failure
from windrow.storage.names import written
from windrow.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Load = Callable[[Sequence[str] | None], DataFrame]


@dataclass(frozen=True)
class BoundTable:
    """A table with its columns, and how its rows are read.

    `schema` is Spark's, as Arrow. `uris` are the files, if it is files. `parquet` are their
    footers, if tasks may read them; otherwise `obstacle` says why not. `load` makes a DataFrame
    of all files, or of those given; Spark is not used before one is needed.
    """

    what: str
    text: str
    schema: pa.Schema
    uris: tuple[str, ...] | None
    parquet: ParquetFiles | None
    sources: Mapping[str, str]  # for each column, the file's column it is a plain copy of
    obstacle: str | None
    options: tuple[tuple[str, str], ...] = field(repr=False)
    load: Load
    chosen: tuple[str, ...] | None = None  # files to load, if not all of them
    folders: tuple[str, ...] = ()  # columns that the files' folders name
    home: SparkSession | None = None  # of a DataFrame or a temporary view

    @property
    def shown(self) -> str:
        """What the table is, as the user wrote it."""
        return written(self.text)

    @functools.cached_property
    def frame(self) -> DataFrame:
        return self.load(self.chosen)

    def executed(self, frame: DataFrame) -> DataFrame:
        """`frame`, made of this table's, in the session that it is to be executed in."""
        return frame if self.home is None else moved(frame, self.home)

    def check_sql(self) -> None:
        """Refuse SQL over this table if its session would give it another meaning."""
        if self.home is not None:
            check_settings(self.home, self.what)

    def changed(
        self, change: Callable[[DataFrame], DataFrame], more: Sequence[pa.Field] = ()
    ) -> BoundTable:
        """The same table, its frame changed; `more` are the columns that gives it."""
        load = self.load
        schema = pa.schema([*self.schema, *more])
        return replace(self, load=lambda files: change(load(files)), schema=schema)

    def rows(
        self, columns: Sequence[Taken], keep: Sequence[TimeFilter], parallelism: int
    ) -> tuple[FileRows | None, str]:
        """Rows that tasks read by themselves, or None; and the reason."""
        if self.parquet is None:
            return None, self.obstacle or ""
        if any(column.form is Form.SQL for column in columns):
            return None, "where of an aggregation is SQL"
        read = [c for c in columns if c.reads is not None]
        for column in read:
            if column.source not in self.sources:
                return None, f"column {column.source!r} is an expression"
        wanted = [(self.sources[c.source], self.schema.field(c.source).type) for c in read]
        obstacle = self.parquet.obstacle(wanted)
        if obstacle is not None:
            return None, obstacle
        taken = tuple(replace(c, source=self.sources.get(c.source, c.source)) for c in columns)
        shares = self.parquet.shares(parallelism)
        rows = FileRows(shares, taken, tuple(keep), self.options, folders=self.parquet.folders)
        return rows, "plain columns of Parquet files"

    def only(self, uris: Iterable[str]) -> BoundTable:
        """The same table, reduced to some of its files."""
        wanted = set(uris)
        kept = tuple(uri for uri in self.uris or () if uri in wanted)
        if kept == self.uris:
            return self
        parquet = None if self.parquet is None else self.parquet.only(wanted)
        return replace(self, uris=kept, parquet=parquet, chosen=kept)

    def within(self, column: str, start: int | None, end: int | None) -> BoundTable:
        """Only files that may hold a row with a time in [start, end), or without one.

        One is kept in any case: it has the columns.
        """
        source = self.sources.get(column)
        if self.parquet is None or source is None or (start is None and end is None):
            return self
        found = [file.uri for file in self.parquet.within(source, start, end).files]
        return self.only(found or [file.uri for file in self.parquet.files[:1]])

    def times(self, column: str) -> tuple[int, int] | None:
        """The first and last millisecond of a column of times; None if unknown."""
        source = self.sources.get(column)
        return None if self.parquet is None or source is None else self.parquet.times(source)

    def has_no_null(self, column: str) -> bool:
        """Whether it is known, without reading, that `column` is never NULL."""
        source = self.sources.get(column)
        return self.parquet is not None and source is not None and self.parquet.has_no_null(source)

    def files_without(self, column: str) -> list[str]:
        """The Parquet files of a table that lack a column which others have."""
        source = self.sources.get(column)
        if source is None or self.uris is None or not are_parquet(self.uris):
            return []
        parquet = self.parquet or ParquetFiles.read(self.uris, dict(self.options) or None)
        return parquet.without(source)

    def stamps(self) -> dict[str, str] | None:
        """For each file a stamp that changes when it is rewritten; None for other tables."""
        if self.uris is None:
            return None
        if self.parquet is not None:
            return {file.uri: file.stamp for file in self.parquet.files}
        found = {}
        for uri in self.uris:
            store, name = Store.of_file(uri, dict(self.options) or None)
            found[uri] = store.stamp(name)
        return found


def bind_table(
    engine: Engine,
    table: Any,
    what: str,
    *,
    select: tuple[tuple[str, str], ...] = (),
    where: str | None = None,
    partitions: PartitionRange | None = None,
    options: Mapping[str, str] | None = None,
) -> BoundTable:
    """Find a table's columns, types and files."""
    found = None
    if where is None:
        found = _by_footers(engine, table, what, select, partitions, options)
    return found or _by_spark(engine, table, what, select, where, partitions, options)


def _by_footers(
    engine: Engine,
    table: Any,
    what: str,
    select: tuple[tuple[str, str], ...],
    partitions: PartitionRange | None,
    options: Mapping[str, str] | None,
) -> BoundTable | None:
    """A table whose columns its files tell; None if only Spark can tell."""
    known = _known(table, what, options)
    if known is None:
        return None
    schema, parquet = known
    sources = _plain_columns(schema.names, select)
    if len(sources) < len(select or schema):
        return None
    if partitions is not None:
        days = file_days([f.uri for f in parquet.files], partitions.column, parquet.folders)
        if days is None:
            return None
        parquet = parquet.only(set(_days_in_range(days, partitions, what)))
    if select:
        schema = pa.schema([schema.field(sources[name]).with_name(name) for name, _ in select])
    uris = tuple(file.uri for file in parquet.files)

    def load(files: Sequence[str] | None) -> DataFrame:
        chosen = uris if files is None else files
        # Without files Spark would not know the columns.
        frame = load_table(engine, table, what, options, chosen or None)
        frame = frame if chosen else frame.limit(0)
        return select_columns(frame, select, None, what)

    return BoundTable(
        what=what,
        text=_text(table),
        schema=schema,
        uris=uris,
        parquet=parquet,
        sources=sources,
        obstacle=None,
        options=tuple(sorted((options or {}).items())),
        load=load,
        folders=parquet.folders,
    )


def _text(table: Any) -> str:
    return os.fspath(table) if isinstance(table, str | os.PathLike) else "a DataFrame"


def _known(
    table: Any, what: str, options: Mapping[str, str] | None
) -> tuple[pa.Schema, ParquetFiles] | None:
    """The columns and footers of Parquet files; None if only Spark can tell what they are."""
    try:
        listed = list_parquet(table, what, options)
    except OSError as error:
        raise failure(os.fspath(table), f"{what}: cannot list it", error) from error
    if listed is None:
        return None
    parquet = ParquetFiles.read(listed.uris, dict(options) if options else None, listed.folders)
    schema = spark_schema(parquet, listed)
    return None if schema is None else (schema, parquet)


def _by_spark(
    engine: Engine,
    table: Any,
    what: str,
    select: tuple[tuple[str, str], ...],
    where: str | None,
    partitions: PartitionRange | None,
    options: Mapping[str, str] | None,
) -> BoundTable:
    """A table whose columns only Spark knows."""
    home = home_of(engine, table)
    if home is not None and (select or where is not None):
        check_settings(home, what)
    whole = load_table(engine, table, what, options)
    uris = files_of(engine.spark, table, whole)
    folders = folders_of(engine.spark, table, uris, options)
    if partitions is not None:
        whole, uris = _in_range(whole, uris, folders, partitions, what, home)
    sources = _plain_columns(whole.columns, select)
    frame = select_columns(whole, select, where, what)

    def load(files: Sequence[str] | None) -> DataFrame:
        if files is None:
            return frame
        return select_columns(load_table(engine, table, what, options, files), select, where, what)

    obstacle, parquet = _direct(uris, folders, where, options)
    return BoundTable(
        what=what,
        text=_text(table),
        schema=spark_to_arrow_schema(frame.schema),
        uris=uris,
        parquet=parquet,
        sources=sources,
        obstacle=obstacle,
        options=tuple(sorted((options or {}).items())),
        load=load,
        home=home,
        folders=folders,
    )


def _plain_columns(names: list[str], select: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """For each selected column that is a plain column of the table, that column."""
    if not select:
        return {name: name for name in names}
    bare = {(name, text.strip().strip("`")) for name, text in select}
    return {name: column for name, column in bare if column in names}


def _direct(
    uris: tuple[str, ...] | None,
    folders: tuple[str, ...],
    where: str | None,
    options: Mapping[str, str] | None,
) -> tuple[str | None, ParquetFiles | None]:
    """Whether tasks may read the files: the reason why not, or the footers."""
    if uris is None:
        return "not given as files", None
    if where is not None:
        return "where is SQL", None
    if not are_parquet(uris):
        return "not Parquet files", None
    return None, ParquetFiles.read(uris, dict(options) if options else None, folders)


def _in_range(
    frame: DataFrame,
    uris: tuple[str, ...] | None,
    folders: tuple[str, ...],
    partitions: PartitionRange,
    what: str,
    home: SparkSession | None,
) -> tuple[DataFrame, tuple[str, ...] | None]:
    """Only the partitions of the range; they all have to be there."""
    from pyspark.sql import functions as F  # noqa: N812

    require_columns(frame.columns, [partitions.column], f"{what}: partition")
    if partitions.start is None and partitions.end is None:
        return frame, uris
    column = F.col(quoted(partitions.column)).cast("string")
    by_file = file_days(uris, partitions.column, folders)
    if by_file is not None:
        uris = _days_in_range(by_file, partitions, what)
    else:
        # Names of partitions, not rows: a day each.
        names = frame.select(column).distinct()
        names = names if home is None else moved(names, home)
        days = sorted(str(r[0]) for r in names.collect() if r[0])
        uris = None  # rows are chosen within files
        partitions.check(days, what)
    return frame.where(partitions.condition()), uris


def _days_in_range(
    by_file: Mapping[str, str], partitions: PartitionRange, what: str
) -> tuple[str, ...]:
    """The files of the requested partitions, all of which have to exist."""
    partitions.check(sorted(set(by_file.values())), what)
    return tuple(uri for uri, day in by_file.items() if day in partitions)


def file_days(
    uris: Sequence[str] | None, column: str, folders: tuple[str, ...]
) -> dict[str, str] | None:
    """The partition of each file, from its folder's name; None if the folders do not tell."""
    if uris is None or (column not in folders and uris):
        return None
    values = {uri: partition_values(uri, folders)[column] for uri in uris}
    return {uri: NO_VALUE if value is None else value for uri, value in values.items()}
