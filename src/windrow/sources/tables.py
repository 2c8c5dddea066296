"""Any table as a Spark DataFrame: by name, by path or URI, or as it is."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from windrow.errors import DefinitionError, SchemaError, StorageError, unknown_column
from windrow.sources.delta import delta_content, is_delta
from windrow.sources.expressions import check_by_row
from windrow.sources.files import folder_columns
from windrow.spark.schemas import LITERAL, is_dataframe, quoted
from windrow.spark.session import Engine
from windrow.spark.settings import moved
from windrow.storage.store import Store
from windrow.storage.uris import from_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_GLOB = re.compile(r"[*?{\[]")  # Spark's reader takes patterns
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}


def load_table(
    engine: Engine,
    table: Any,
    what: str,
    options: Mapping[str, str] | None = None,
    files: Sequence[str] | None = None,
) -> DataFrame:
    """The DataFrame of `table`; `what` says in errors whose table it is.

    Of a table that is files, `files` may name those to read.
    """
    if is_dataframe(table):
        return moved(table, engine.spark)
    if not isinstance(table, str | os.PathLike):
        raise DefinitionError(
            f"{what}: table is a {type(table).__name__}; give a table name, a path or a DataFrame"
        )
    text = os.fspath(table)
    try:
        if is_path(text):
            return _load_path(engine, text, what, options, files)
        home = home_of(engine, table)
        if home is not None:
            return moved(home.table(text), engine.spark)
        frame = engine.spark.table(text)
        return frame if files is None else _of_files(frame, files)
    except StorageError:
        raise
    except Exception as error:  # Spark's analysis errors have no common small message
        reason = str(error).strip().splitlines()[0]
        if "TIMESTAMP(NANOS" in reason:  # what pandas writes by default
            reason += ". Write the file with microseconds: to_parquet(..., coerce_timestamps='us')"
        raise StorageError(f"{what}: cannot read table {text!r}: {reason}") from error


def home_of(engine: Engine, table: Any) -> SparkSession | None:
    """The session of a DataFrame or a temporary view, where it is executed; None for the rest."""
    if is_dataframe(table):
        return table.sparkSession  # type: ignore[no-any-return]
    if not isinstance(table, str) or is_path(table):
        return None
    try:
        found = engine.given.catalog.getTable(table)
    except Exception:  # a name that only Spark SQL resolves
        return None
    return engine.given if found.isTemporary else None


def files_of(spark: SparkSession, table: Any, frame: DataFrame) -> tuple[str, ...] | None:
    """The files that hold a table; None for a view, a DataFrame, or what is not files."""
    if not isinstance(table, str | os.PathLike):
        return None
    text = os.fspath(table)
    if is_path(text):
        return tuple(map(from_spark, frame.inputFiles()))
    try:
        found = spark.catalog.getTable(text)
    except Exception:  # a temporary view, or a name that only Spark SQL resolves
        return None
    if found.isTemporary or found.tableType not in ("MANAGED", "EXTERNAL"):
        return None
    spark.catalog.refreshTable(text)  # another program may have added files
    return tuple(map(from_spark, spark.table(text).inputFiles())) or None


def folders_of(
    spark: SparkSession,
    table: Any,
    uris: Sequence[str] | None,
    options: Mapping[str, str] | None,
) -> tuple[str, ...]:
    """The columns that the folders of a table's files name."""
    if uris is None:
        return ()
    text = os.fspath(table)
    if not is_path(text):
        return tuple(c.name for c in spark.catalog.listColumns(text) if c.isPartition)
    store = Store.at(text, options)
    return folder_columns(uris, store.uri) if store.is_there() else ()


def _of_files(frame: DataFrame, files: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    def plain(path: Any) -> Any:
        return F.regexp_replace(path, "^file:/+", "/")  # written with one slash, or with three

    chosen = set(files)
    named = [uri for uri in frame.inputFiles() if from_spark(uri) in chosen]
    wanted = [re.sub("^file:/+", "/", uri) for uri in named]
    return frame.where(plain(F.col("_metadata.file_path")).isin(wanted))


def is_path(text: str) -> bool:
    """Whether the name of a table is that of files, and not of a table in Spark's catalogue."""
    return "/" in text or os.path.splitext(text)[1].lower() in _FORMATS


def _load_path(
    engine: Engine,
    path: str,
    what: str,
    options: Mapping[str, str] | None,
    files: Sequence[str] | None,
) -> DataFrame:
    store = Store.at(path, options)
    name = format_of(store, path)
    if name == "delta":
        return delta_content(store, what).frame(engine.spark, files)
    if name is None:
        raise StorageError(
            f"{what}: {path!r} holds no Parquet, Delta, CSV or JSON files; check the path"
        )
    if store.is_local and not _GLOB.search(path) and not os.path.exists(store.uri):
        raise StorageError(f"{what}: there is nothing at {path!r}; check the path")
    reader = engine.spark.read
    if name == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
        # Columns are found by place: a file with another header has to be an error.
        reader = reader.option("enforceSchema", "false")
    if files is not None and list(files) != [store.uri]:
        reader = reader.options(**LITERAL).option("basePath", store.uri)
        return reader.format(name).load(list(files))
    if store.is_there():  # if not, it may be a pattern
        reader = reader.options(**LITERAL)
    return reader.format(name).load(store.uri)  # absolute: the JVM may run in another folder


def format_of(store: Store, path: str) -> str | None:
    """The format of the files at a path: by its name, or the first name beneath that tells."""
    if is_delta(store):
        return "delta"
    own = _FORMATS.get(os.path.splitext(path)[1].lower())
    if own is not None:
        return own
    for name in store.names():
        found = _FORMATS.get(os.path.splitext(name)[1].lower())
        if found is not None:
            return found
    return None


def select_columns(
    frame: DataFrame, select: tuple[tuple[str, str], ...], where: str | None, what: str
) -> DataFrame:
    """`frame` with only `select` (name, Spark SQL) and the rows that pass `where`."""
    from pyspark.sql import functions as F  # noqa: N812

    names = {quoted(name) for name in frame.columns} | set(frame.columns)
    texts = [text for _, text in select if text not in names]
    check_by_row(frame, texts if where is None else [where, *texts], what)
    try:
        if where is not None:
            frame = frame.where(where)
        if select:
            frame = frame.select(*(F.expr(text).alias(name) for name, text in select))
        frame.schema  # noqa: B018  forces Spark to check the expressions
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise SchemaError(f"{what}: {reason}") from error
    return frame


def require_columns(known: Sequence[str], names: list[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise unknown_column(name, known, what)
