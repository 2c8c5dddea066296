"""Parquet files that tasks read by themselves, with Arrow, instead of through Spark's reader.

Bringing rows from Spark's reader into Python costs several times what reading them with Arrow
does. So where a table is Parquet files, and the columns that are needed are plain columns of
those files, tasks read them directly; everything else goes through Spark.
"""

from __future__ import annotations

import functools
import heapq
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import SchemaError, StorageError
from windrow.rows.types import canonical_type
from windrow.sources.columns import Taken
from windrow.storage.failures import unavailable
from windrow.storage.footers import check_footer, unreadable_text
from windrow.storage.store import Store
from windrow.storage.uris import is_local
from windrow.time import DAY

TASK_ROWS = 2_000_000  # a task sorts as many rows at a time, and writes them as one run
_BATCH_ROWS = 65_536
_MORE_ROUNDS = 64  # that are tried, beyond the fewest
_FOOTER_THREADS = 16
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows whose partition is NULL


@dataclass(frozen=True)
class TimeFilter:
    """Which rows to keep by a column of milliseconds: [start, end), NULL or not."""

    column: str
    start: int | None = None
    end: int | None = None
    nulls: bool = False

    def keeps_all(self, times: pa.Array) -> bool:
        """Whether that is clear without looking at the values."""
        return self.start is None and self.end is None and (self.nulls or not times.null_count)

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
    """A Parquet file: where it is, its size, and the rows of its row groups."""

    uri: str
    bytes: int
    groups: tuple[int, ...]
    stamp: str  # changes when the file is rewritten

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
    """Rows of Parquet files as `columns`, in `tasks` shares of about equal size. Picklable.

    `folders` are columns that the files' folders name. With `constant`, rows have one more column
    (int32), which holds a number for each file. With `numbered`, they have one (int64) of their own
    numbers: those of a file's rows follow each other, from the number that is given for the file.
    """

    shares: tuple[tuple[Span, ...], ...]
    columns: tuple[Taken, ...]
    keep: tuple[TimeFilter, ...]
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # they hold secrets
    constant: tuple[str, Mapping[str, int]] | None = None
    folders: tuple[str, ...] = ()
    numbered: tuple[str, Mapping[str, int]] | None = None
    dictionaries: tuple[str, ...] = ()  # columns of texts that are read as dictionaries

    @property
    def tasks(self) -> int:
        return len(self.shares)

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        for span in self.shares[task]:
            yield from self._span(span)

    def _span(self, span: Span) -> Iterator[pa.RecordBatch]:
        store, name = Store.of_file(span.uri, dict(self.options) or None)
        folders = partition_values(span.uri, self.folders)
        sources = list(dict.fromkeys(c.reads for c in self.columns if c.reads is not None))
        own = [name for name in sources if name not in folders]
        try:
            with _open(store, name, self.dictionaries) as file:
                groups = list(range(span.first, span.last))
                at = self._first_number(span, file.metadata)
                for batch in file.iter_batches(_BATCH_ROWS, groups, own, use_threads=False):
                    for name in sources:
                        if name in folders:
                            value = pa.scalar(folders[name], pa.string())
                            values = pa.repeat(value, batch.num_rows)
                            batch = batch.append_column(name, values)
                    yield self._take(batch, span.uri, at)
                    at += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise unreadable(span.uri, error) from error

    def _first_number(self, span: Span, metadata: Any) -> int:
        if self.numbered is None:
            return 0
        before = sum(metadata.row_group(group).num_rows for group in range(span.first))
        return self.numbered[1][span.uri] + int(before)

    def _take(self, batch: pa.RecordBatch, uri: str, first: int) -> pa.RecordBatch:
        arrays = [column.make(batch) for column in self.columns]
        names = [column.name for column in self.columns]
        if self.constant is not None:
            name, numbers = self.constant
            arrays.append(pa.array(np.full(batch.num_rows, numbers.get(uri, 0), np.int32)))
            names.append(name)
        if self.numbered is not None:
            arrays.append(pa.array(np.arange(first, first + batch.num_rows)))
            names.append(self.numbered[0])
        made = pa.RecordBatch.from_arrays(arrays, names=names)
        filters = [(k, made.column(k.column)) for k in self.keep]
        masks = [k.mask(times) for k, times in filters if not k.keeps_all(times)]
        if not masks:
            return made
        mask = np.logical_and.reduce(masks)
        return made if mask.all() else made.filter(pa.array(mask))


def _open(store: Store, name: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """A file whose pages are compared with their checksums, if it has them."""
    return pq.ParquetFile(
        store.open_input(name),
        pre_buffer=not store.is_local,
        page_checksum_verification=True,
        read_dictionary=list(dictionaries) or None,
    )


def unreadable(uri: str, error: Exception | str) -> StorageError:
    said = unreadable_text(uri, str(error) or type(error).__name__)
    return unavailable(uri, error) or StorageError(said)


@dataclass(frozen=True)
class Footer:
    """What a file's footer says of it.

    For each top-level scalar column: how many nulls it has (None: unknown), the first and last
    millisecond of those that may be times, and whether Arrow may type it unlike Spark.
    """

    groups: tuple[int, ...]
    schema: pa.Schema
    nulls: dict[str, int | None]
    times: dict[str, tuple[int, int]]
    uncertain: tuple[str, ...]


@dataclass(frozen=True)
class ParquetFiles:
    """The Parquet files of a table, from their footers; `folders` are columns of their folders."""

    files: tuple[SourceFile, ...]
    footers: tuple[Footer, ...]
    folders: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @staticmethod
    def read(
        uris: Sequence[str], options: dict[str, str] | None, folders: tuple[str, ...] = ()
    ) -> ParquetFiles:
        """Read the footers of `uris`."""
        given = tuple(sorted((options or {}).items()))

        def read(uri: str) -> tuple[SourceFile, Footer]:
            store, name = Store.of_file(uri, options)
            stamp = store.stamp(name)
            found = _footer(uri, stamp, given)
            return SourceFile(uri, int(stamp.split()[0]), found.groups, stamp), found

        if all(map(is_local, uris)):
            found = list(map(read, uris))  # faster than threads, which would take turns
        else:
            with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
                found = list(pool.map(read, uris))
        return ParquetFiles(tuple(f for f, _ in found), tuple(f for _, f in found), folders)

    def only(self, uris: set[str]) -> ParquetFiles:
        """The same, reduced to some of the files."""
        kept = [i for i, file in enumerate(self.files) if file.uri in uris]
        return replace(
            self,
            files=tuple(self.files[i] for i in kept),
            footers=tuple(self.footers[i] for i in kept),
        )

    def within(self, column: str, start: int | None, end: int | None) -> ParquetFiles:
        """Only files that may hold a row with a time in [start, end), or none, in `column`."""

        def may_hold(footer: Footer) -> bool:
            bounds = footer.times.get(column)
            if bounds is None or footer.nulls.get(column) != 0:
                return True
            return (start is None or bounds[1] >= start) and (end is None or bounds[0] < end)

        kept = {f.uri for f, g in zip(self.files, self.footers, strict=True) if may_hold(g)}
        return self.only(kept)

    def times(self, column: str) -> tuple[int, int] | None:
        """The first and last millisecond in a column of times; None if unknown."""
        found = [f.times.get(column) for f in self.footers if f.groups]
        known = [bounds for bounds in found if bounds is not None]
        if not known or len(known) < len(found):
            return None
        return min(low for low, _ in known), max(high for _, high in known)

    def has_no_null(self, column: str) -> bool:
        """Whether the footers say that a column has a value in every row."""
        return all(footer.nulls.get(column) == 0 for footer in self.footers)

    def without(self, column: str) -> list[str]:
        """The files that have no such column, nor a folder that names it."""

        def has(footer: Footer) -> bool:
            names = [*footer.schema.names, *self.folders]
            return column.lower() in (name.lower() for name in names)

        both = zip(self.files, self.footers, strict=True)
        return [file.uri for file, footer in both if not has(footer)]

    def obstacle(self, columns: Sequence[tuple[str, pa.DataType]]) -> str | None:
        """Why tasks cannot read these columns, given as Spark types them; None if they can."""
        for footer, file in zip(self.footers, self.files, strict=True):
            schema = footer.schema
            for name, type_ in columns:
                if schema.get_field_index(name) < 0:
                    if name in self.folders and _is_partition_type(type_):
                        continue
                    return f"column {name!r} is not in {file.uri.rpartition('/')[2]}"
                found = schema.field(name).type
                if not _same_kind(found, type_):
                    return f"column {name!r} is {found} in the files and {type_} in Spark"
        return None

    @property
    def starts(self) -> dict[str, int]:
        """For each file the number of its first row, among the rows of all of them."""
        counts = np.cumsum([0, *(file.rows for file in self.files)]).tolist()
        return {file.uri: start for file, start in zip(self.files, counts, strict=False)}

    def shares(self, parallelism: int, most: int = TASK_ROWS) -> tuple[tuple[Span, ...], ...]:
        """The row groups in even shares, a multiple of `parallelism`, in the order of files.

        Each has at most so many rows, as far as row groups allow: these are not cut. So some
        numbers of shares are more even than others: the one is chosen with which all tasks
        together finish first.
        """
        groups = [(f.uri, n, rows) for f in self.files for n, rows in enumerate(f.groups)]
        sizes = np.array([rows for _, _, rows in groups], np.int64)
        rounds = max(-(-self.rows // (parallelism * most)), 1)
        several = range(rounds, min(2 * rounds, rounds + _MORE_ROUNDS) + 1)
        cuts = (_even(sizes, parallelism * n) for n in several)
        share = min(cuts, key=lambda cut: _finish(sizes, cut, parallelism, most))
        shares: list[list[Span]] = [[] for _ in range(int(share.max(initial=-1)) + 1)]
        for (uri, number, _), at in zip(groups, share.tolist(), strict=True):
            spans = shares[at]
            if spans and spans[-1].uri == uri:
                spans[-1] = Span(uri, spans[-1].first, number + 1)
            else:
                spans.append(Span(uri, number, number + 1))
        return tuple(tuple(spans) for spans in shares if spans)


def _even(sizes: np.ndarray, shares: int) -> np.ndarray:
    """For each size the number of its share: sizes stay in order, shares are about even."""
    total = max(int(sizes.sum()), 1)
    middles = np.cumsum(sizes) - sizes / 2
    return np.minimum((middles * shares / total).astype(np.int64), shares - 1)


def _finish(sizes: np.ndarray, share: np.ndarray, workers: int, most: int) -> tuple[bool, float]:
    """Whether a share is more than a task takes at a time.

    And when `workers` that take one share after the other are through, in rows.
    """
    free = [0.0] * workers
    rows = np.bincount(share, weights=sizes)
    for size in rows.tolist():
        heapq.heappush(free, heapq.heappop(free) + size)
    return bool(rows.max(initial=0) > most), max(free)


def partition_values(uri: str, names: Collection[str] | None = None) -> dict[str, str | None]:
    """The columns that folders name, as in `ds=2021-09-01/`, as text; they are in no file.

    Folders above the table's root may look alike and mean nothing: then `names` says which count.
    """
    found: dict[str, str | None] = {}
    for part in uri.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            text = unquote(value)
            found[unquote(name)] = None if text == NO_VALUE else text
    return found if names is None else {name: found[name] for name in names}


def folder_columns(uris: Sequence[str], root: str) -> tuple[str, ...]:
    """The columns that the folders beneath `root` name, for every file.

    >>> folder_columns(["/a=1/table/ds=1/x.parquet", "/a=1/table/ds=2/y.parquet"], "/a=1/table")
    ('ds',)
    """
    found = [partition_values(uri[len(root) :]) for uri in uris]
    names = found[0] if found else {}
    return tuple(name for name in names if all(name in one for one in found))


def _is_partition_type(type_: pa.DataType) -> bool:
    """Whether the text of a folder's name can be cast to the type as Spark does it."""
    t = pa.types
    return bool(t.is_string(type_) or t.is_date32(type_) or t.is_integer(type_))


@functools.lru_cache(maxsize=16_384)
def _footer(uri: str, stamp: str, options: tuple[tuple[str, str], ...]) -> Footer:
    """What the footer says; a file with the same stamp has not changed."""
    store, name = Store.of_file(uri, dict(options) or None)
    try:
        with store.open_input(name) as source:
            check_footer(source, uri)
            with pq.ParquetFile(source) as file:
                metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise unreadable(uri, error) from error
    groups = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    if sum(groups) != metadata.num_rows:
        raise unreadable(uri, f"it has {metadata.num_rows} rows, and its row groups {sum(groups)}")
    leaves = [(i, metadata.schema.column(i)) for i in range(metadata.num_columns)]
    plain = [(i, leaf) for i, leaf in leaves if leaf.path == leaf.name]
    nulls, times = {}, {}
    for i, leaf in plain:
        found = [metadata.row_group(g).column(i).statistics for g in range(len(groups))]
        nulls[leaf.name] = _null_count(found)
        bounds = _time_bounds(found, schema.field(leaf.name).type, leaf)
        if bounds is not None:
            times[leaf.name] = bounds
    uncertain = [leaf.name for _, leaf in plain if _is_uncertain(leaf, schema)]
    return Footer(groups, schema.remove_metadata(), nulls, times, tuple(uncertain))


def _null_count(statistics: list[Any]) -> int | None:
    if any(found is None or not found.has_null_count for found in statistics):
        return None
    return sum(int(found.null_count) for found in statistics)


_UNITS = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}  # of one ms


def _time_bounds(statistics: list[Any], type_: pa.DataType, leaf: Any) -> tuple[int, int] | None:
    """The first and last millisecond of a column that may be one of times; None if unknown."""
    t = pa.types
    if not (t.is_timestamp(type_) or t.is_date(type_) or t.is_int64(type_)) or not statistics:
        return None
    if any(found is None or not found.has_min_max for found in statistics):
        return None
    # As they are stored: Arrow would load pandas to make them datetimes, which hold fewer years.
    low, high = min(f.min_raw for f in statistics), max(f.max_raw for f in statistics)
    if not isinstance(low, int):
        return None  # INT96
    if t.is_timestamp(type_):
        unit = _UNITS.get(json.loads(leaf.logical_type.to_json()).get("timeUnit"))
        return None if unit is None else (low // unit, high // unit)
    return (low * DAY, high * DAY) if t.is_date(type_) else (low, high)


def _is_uncertain(leaf: Any, schema: pa.Schema) -> bool:
    """Whether bytes may be text to Spark, or the other way round."""
    type_, logical = schema.field(leaf.name).type, leaf.logical_type.type
    if pa.types.is_binary(type_):
        return bool(logical != "NONE")
    return bool(pa.types.is_string(type_) and logical != "STRING")


def _same_kind(found: pa.DataType, spark: pa.DataType) -> bool:
    """Whether Arrow reads a column as Spark does, up to a lossless cast."""
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(spark):
        return found.unit in ("ms", "us") and bool(found.tz) == bool(spark.tz)
    try:
        return bool(canonical_type(found, "") == canonical_type(spark, ""))
    except SchemaError:  # a type that Windrow does not take: Spark's reader will say so
        return False
