"""Parquet files that tasks read by themselves, with Arrow, instead of through Spark's reader.

Bringing rows from Spark's reader into Python costs several times what reading them with Arrow
does. So where a table is Parquet files, and the columns that are needed are plain columns of
those files, tasks read them directly; everything else goes through Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import SchemaError, StorageError
from windrow.rows.types import canonical_type
from windrow.shard.store import Store
from windrow.sources.columns import Taken

TASK_ROWS = 2_000_000  # a task sorts as many rows at a time, and writes them as one run
_BATCH_ROWS = 65_536
_FOOTER_THREADS = 16
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows whose partition is NULL


@dataclass(frozen=True)
class Moments:
    """Which rows to keep by a column of milliseconds: [start, end), NULL or not."""

    column: str
    start: int | None = None
    end: int | None = None
    nulls: bool = False

    def mask(self, times: pa.Array) -> np.ndarray:
        valid = times.is_valid().to_numpy(zero_copy_only=False)
        values = times.fill_null(0).to_numpy(zero_copy_only=False)
        within = np.ones(values.size, np.bool_)
        if self.start is not None:
            within &= values >= self.start
        if self.end is not None:
            within &= values < self.end
        mask: np.ndarray = np.where(valid, within, self.nulls)
        return mask


@dataclass(frozen=True)
class SourceFile:
    """A Parquet file: where it is, what it weighs, and the rows of its row groups."""

    uri: str
    bytes: int
    groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.groups)


@dataclass(frozen=True)
class Span:
    """Row groups [first, last) of a file."""

    uri: str
    first: int
    last: int


@dataclass(frozen=True)
class FileRows:
    """Rows of Parquet files as `columns`, in `tasks` shares of about equal size. Picklable."""

    shares: tuple[tuple[Span, ...], ...]
    columns: tuple[Taken, ...]
    keep: tuple[Moments, ...]
    options: tuple[tuple[str, str], ...] = ()

    @property
    def tasks(self) -> int:
        return len(self.shares)

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        for span in self.shares[task]:
            yield from self._span(span)

    def _span(self, span: Span) -> Iterator[pa.RecordBatch]:
        store, name = Store.of_file(span.uri, dict(self.options) or None)
        folders = partition_values(span.uri)
        sources = list(dict.fromkeys(c.reads for c in self.columns if c.reads is not None))
        own = [name for name in sources if name not in folders]
        try:
            with pq.ParquetFile(store.open_input(name), pre_buffer=not store.is_local) as file:
                groups = list(range(span.first, span.last))
                for batch in file.iter_batches(_BATCH_ROWS, groups, own, use_threads=False):
                    for name in sources:
                        if name in folders:
                            values = pa.repeat(folders[name], batch.num_rows)
                            batch = batch.append_column(name, values)
                    yield self._take(batch)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(span.uri, error) from error

    def _take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [column.make(batch) for column in self.columns]
        made = pa.RecordBatch.from_arrays(arrays, names=[c.name for c in self.columns])
        mask = np.logical_and.reduce([k.mask(made.column(k.column)) for k in self.keep])
        return made if mask.all() else made.filter(pa.array(mask))


def unreadable(uri: str, error: Exception | str) -> StorageError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return StorageError(
        f"{uri} cannot be read: {reason}. Replace the file, or take it out of the folder"
    )


@dataclass(frozen=True)
class ParquetFiles:
    """The Parquet files of a table, from their footers."""

    files: tuple[SourceFile, ...]
    schemas: tuple[pa.Schema, ...]
    nulls: tuple[dict[str, int | None], ...]  # per file: nulls of each top-level scalar column

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @staticmethod
    def read(uris: Sequence[str], options: dict[str, str] | None) -> ParquetFiles:
        """Read the footers of `uris`."""
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            found = list(pool.map(lambda uri: _footer(uri, options), uris))
        return ParquetFiles(
            tuple(f[0] for f in found), tuple(f[1] for f in found), tuple(f[2] for f in found)
        )

    def only(self, uris: set[str]) -> ParquetFiles:
        """The same, reduced to some of the files."""
        kept = [i for i, file in enumerate(self.files) if file.uri in uris]
        return ParquetFiles(
            tuple(self.files[i] for i in kept),
            tuple(self.schemas[i] for i in kept),
            tuple(self.nulls[i] for i in kept),
        )

    def has_no_null(self, column: str) -> bool:
        """Whether the footers say that a column has a value in every row."""
        return all(nulls.get(column) == 0 for nulls in self.nulls)

    def obstacle(self, columns: Sequence[tuple[str, pa.DataType]]) -> str | None:
        """Why tasks cannot read these columns, given as Spark types them; None if they can."""
        for schema, file in zip(self.schemas, self.files, strict=True):
            for name, type_ in columns:
                if schema.get_field_index(name) < 0:
                    if name in partition_values(file.uri) and _is_partition_type(type_):
                        continue
                    return f"column {name!r} is not in {file.uri.rpartition('/')[2]}"
                found = schema.field(name).type
                if not _same_kind(found, type_):
                    return f"column {name!r} is {found} in the files and {type_} in Spark"
        return None

    def shares(self, parallelism: int) -> tuple[tuple[Span, ...], ...]:
        """The row groups in even shares, a multiple of `parallelism`, in the order of files."""
        rounds = -(-self.rows // (parallelism * TASK_ROWS))
        wanted = parallelism * max(rounds, 1)
        limit = -(-self.rows // wanted)
        shares: list[list[Span]] = [[]]
        held = 0
        for file in self.files:
            first = 0
            for number, rows in enumerate(file.groups):
                if held and held + rows / 2 > limit and len(shares) < wanted:
                    if number > first:
                        shares[-1].append(Span(file.uri, first, number))
                    shares.append([])
                    first, held = number, 0
                held += rows
            if file.groups[first:]:
                shares[-1].append(Span(file.uri, first, len(file.groups)))
        return tuple(tuple(share) for share in shares if share)


def partition_values(uri: str) -> dict[str, pa.Scalar]:
    """The columns that folders name, as in `ds=2021-09-01/`, as text; they are in no file."""
    found = {}
    for part in uri.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            text = unquote(value)
            found[unquote(name)] = pa.scalar(None if text == _NO_VALUE else text, pa.string())
    return found


def _is_partition_type(type_: pa.DataType) -> bool:
    """Whether the text of a folder's name can be cast to the type as Spark does it."""
    t = pa.types
    return bool(t.is_string(type_) or t.is_date32(type_) or t.is_integer(type_))


def _footer(
    uri: str, options: dict[str, str] | None
) -> tuple[SourceFile, pa.Schema, dict[str, int | None]]:
    store, name = Store.of_file(uri, options)
    try:
        with pq.ParquetFile(store.open_input(name)) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError, StorageError) as error:
        raise unreadable(uri, error) from error
    groups = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    return SourceFile(uri, store.size(name), groups), schema, _null_counts(metadata)


def _null_counts(metadata: Any) -> dict[str, int | None]:
    counts: dict[str, int | None] = {}
    for i in range(metadata.num_columns):
        leaf = metadata.schema.column(i)
        if leaf.path != leaf.name:
            continue
        total: int | None = 0
        for g in range(metadata.num_row_groups):
            found = metadata.row_group(g).column(i).statistics
            if found is None or not found.has_null_count:
                total = None
                break
            total = (total or 0) + found.null_count
        counts[leaf.name] = total
    return counts


def _same_kind(found: pa.DataType, spark: pa.DataType) -> bool:
    """Whether Arrow reads a column as Spark does, up to a lossless cast."""
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(spark):
        return found.unit in ("ms", "us") and bool(found.tz) == bool(spark.tz)
    try:
        return bool(canonical_type(found, "") == canonical_type(spark, ""))
    except SchemaError:  # a type that Windrow does not take: Spark's reader will say so
        return False
