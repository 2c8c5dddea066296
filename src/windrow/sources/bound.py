"""A table bound to its data: its columns and types are known, and how its rows will be read.

    table, select, where, partitions ──▶ BoundTable ──▶ a DataFrame, or files that tasks read

Nothing is read yet but schemas, footers and names of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from windrow.shard.store import Store
from windrow.sources.columns import Form, Taken
from windrow.sources.files import FileRows, Moments, ParquetFiles
from windrow.sources.partitions import PartitionRange
from windrow.sources.tables import files_of, load_table, require_columns, select_columns
from windrow.spark import quoted, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BoundTable:
    """A table with its columns, and how its rows are read.

    `schema` is Spark's, as Arrow. `uris` are the files, if it is files. `parquet` are their
    footers, if tasks may read them; otherwise `obstacle` says why not.
    """

    what: str
    text: str
    frame: DataFrame
    schema: pa.Schema
    uris: tuple[str, ...] | None
    parquet: ParquetFiles | None
    sources: Mapping[str, str]  # for each column, the file's column it is a plain copy of
    obstacle: str | None
    options: tuple[tuple[str, str], ...]
    again: Callable[[Sequence[str]], DataFrame]  # the frame over some of the files

    def rows(
        self, columns: Sequence[Taken], keep: Sequence[Moments], parallelism: int
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
        return FileRows(shares, taken, tuple(keep), self.options), "plain columns of Parquet files"

    def only(self, uris: Iterable[str]) -> BoundTable:
        """The same table, reduced to some of its files."""
        wanted = set(uris)
        kept = tuple(uri for uri in self.uris or () if uri in wanted)
        if kept == self.uris:
            return self
        parquet = None if self.parquet is None else self.parquet.only(wanted)
        return replace(self, uris=kept, parquet=parquet, frame=self.again(kept))

    def has_no_null(self, column: str) -> bool:
        """Whether it is known, without reading, that `column` is never NULL."""
        source = self.sources.get(column)
        return self.parquet is not None and source is not None and self.parquet.has_no_null(source)

    def stamps(self) -> dict[str, str] | None:
        """For each file what changes when it is written anew; None if the table is not files."""
        if self.uris is None:
            return None
        found = {}
        for uri in self.uris:
            store, name = Store.of_file(uri, dict(self.options) or None)
            found[uri] = store.stamp(name)
        return found


def bind_table(
    spark: SparkSession,
    table: Any,
    what: str,
    *,
    select: tuple[tuple[str, str], ...] = (),
    where: str | None = None,
    partitions: PartitionRange | None = None,
    options: Mapping[str, str] | None = None,
) -> BoundTable:
    """Find a table's columns, types and files."""
    frame = load_table(spark, table, what, options)
    uris = files_of(spark, table, frame)
    if partitions is not None:
        frame, uris = _in_range(frame, uris, partitions, what)
    sources = _plain_columns(frame.columns, select)
    frame = select_columns(frame, select, where, what)

    def again(files: Sequence[str]) -> DataFrame:
        return select_columns(load_table(spark, table, what, options, files), select, where, what)

    obstacle, parquet = _direct(uris, where, options)
    return BoundTable(
        what=what,
        text=os.fspath(table) if isinstance(table, str | os.PathLike) else "a DataFrame",
        frame=frame,
        schema=spark_to_arrow_schema(frame.schema),
        uris=uris,
        parquet=parquet,
        sources=sources,
        obstacle=obstacle,
        options=tuple(sorted((options or {}).items())),
        again=again,
    )


def _plain_columns(names: list[str], select: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """For each selected column that is a plain column of the table, that column."""
    if not select:
        return {name: name for name in names}
    bare = {(name, text.strip().strip("`")) for name, text in select}
    return {name: column for name, column in bare if column in names}


def _direct(
    uris: tuple[str, ...] | None, where: str | None, options: Mapping[str, str] | None
) -> tuple[str | None, ParquetFiles | None]:
    """Whether tasks may read the files: the reason why not, or the footers."""
    if uris is None:
        return "not given as files", None
    if where is not None:
        return "where is SQL", None
    if not uris or not all(uri.lower().endswith((".parquet", ".parq")) for uri in uris):
        return "not Parquet files", None
    return None, ParquetFiles.read(uris, dict(options) if options else None)


def _in_range(
    frame: DataFrame, uris: tuple[str, ...] | None, partitions: PartitionRange, what: str
) -> tuple[DataFrame, tuple[str, ...] | None]:
    """Only the partitions of the range; they all have to be there."""
    from pyspark.sql import functions as F  # noqa: N812

    require_columns(frame.columns, [partitions.column], f"{what}: partition")
    if partitions.start is None and partitions.end is None:
        return frame, uris
    column = F.col(quoted(partitions.column)).cast("string")
    by_file = file_days(uris, partitions.column)
    if by_file is not None:
        days = sorted(set(by_file.values()))
        uris = tuple(uri for uri, day in by_file.items() if day in partitions)
    else:
        # Names of partitions, not rows: a day each.
        days = sorted(str(r[0]) for r in frame.select(column).distinct().collect() if r[0])
        uris = None  # rows are chosen within files
    partitions.check(days, what)
    condition = F.lit(True)
    if partitions.start is not None:
        condition &= column >= partitions.start
    if partitions.end is not None:
        condition &= column <= partitions.end
    return frame.where(condition), uris


def file_days(uris: tuple[str, ...] | None, column: str) -> dict[str, str] | None:
    """The partition of each file, from its folder's name; None if the folders do not tell."""
    if uris is None:
        return None
    found: dict[str, str] = {}
    for uri in uris:
        match = re.search(rf"/{re.escape(column)}=([^/]*)/", unquote(uri))
        if match is None:
            return None
        found[uri] = match[1]
    return found
