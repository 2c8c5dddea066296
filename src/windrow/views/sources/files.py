"""The files of a source: which there are now, and reading some of them with Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import (
    DataError,
    SchemaError,
    SQLError,
    StorageError,
    StorageUnavailableError,
)
from windrow.sources.delta import DeltaContent, delta_content
from windrow.sources.delta_log import CHANGES
from windrow.sources.files import NO_VALUE, partition_values
from windrow.sources.layout import is_hidden
from windrow.sources.partitions import PartitionRange
from windrow.sources.patterns import pattern_of
from windrow.spark.plans import active
from windrow.spark.schemas import LITERAL, quoted
from windrow.spark.sql_errors import sql_errors
from windrow.storage.store import Store
from windrow.storage.uris import from_spark
from windrow.views.sources.numbers import NUMBER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

CHANGE = "_change_type"  # the column of Delta's change data
_PATH = "__windrow_path"
_PATTERN = re.compile(r"[*?{\[]")
_CAUSE = re.compile(r"Caused by: [\w.$]+: (\[[A-Z_.]+\][^\n]*)")


@dataclass(frozen=True)
class SourceFiles:
    """Where the files of a table of a source are, and how Spark reads them.

    With `pattern`, only files that it means, beneath the store's root; with `days`, only those.
    """

    name: str
    format: str
    store: Store
    options: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    days: PartitionRange | None = None

    @property
    def what(self) -> str:
        return f"source {self.name}"

    def stamps(self) -> dict[str, str]:
        """The files that are there now, by name, with a text that changes whenever one does.

        Files of a Delta table are those of its newest version, which never change.
        """
        if self.format == "delta":
            return self.delta_stamps(self.delta())
        return self.visible(self.all_stamps())

    def visible(self, found: Mapping[str, str]) -> dict[str, str]:
        """Those of the range of days, and not hidden."""
        names = sorted(name for name in found if not is_hidden(name))
        return {name: found[name] for name in self.chosen(names)}

    def all_stamps(self) -> dict[str, str]:
        """The same of everything that is there, hidden or not."""
        if not self.store.is_there():
            raise self._nothing_there()
        found = self.store.stamps()
        if any(name.startswith("_delta_log/") for name in found):
            raise StorageError(
                f"{self.what}: {self.store.uri!r} is a Delta table, and some of its files may hold "
                "rows that are gone; write USING delta"
            )
        if self.pattern is None:
            return found
        meant = pattern_of(self.pattern)
        return {name: stamp for name, stamp in found.items() if meant.fullmatch(name)}

    def delta(self) -> DeltaContent:
        """What the log of a Delta table says, as of its newest version."""
        if not self.store.is_there():
            raise self._nothing_there()
        return delta_content(self.store, self.what)

    def delta_stamps(self, content: DeltaContent) -> dict[str, str]:
        root = f"{self.store.uri}/"
        return dict.fromkeys(self.chosen([uri.removeprefix(root) for uri in content.files]), "")

    def chosen(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the range of days, if folders tell; else all, and rows are chosen."""
        if self.days is None or self.days.is_open:
            return names
        days = self.by_day(names)
        if days is None:
            return names
        self.days.check(sorted(days), self.what)
        return [name for day, of_day in days.items() if day in self.days for name in of_day]

    def by_day(self, names: Sequence[str]) -> dict[str, list[str]] | None:
        """The files of each day, by their folders; None if these do not tell."""
        assert self.days is not None
        found: dict[str, list[str]] = {}
        for name in names:
            values = partition_values(name)
            if self.days.column not in values:
                return None
            found.setdefault(values[self.days.column] or NO_VALUE, []).append(name)
        return found

    def _nothing_there(self) -> StorageError:
        hint = "check the path, or DROP the source. Rows that were read from it stay as they were"
        if _PATTERN.search(self.store.uri):
            hint = "a source is a file or a folder; patterns are not taken"
        return StorageError(f"{self.what}: there is nothing at {self.store.uri!r}; {hint}")

    def schema(self, session: SparkSession) -> StructType:
        """The columns that the files have, by Spark's inference; of a Delta table, its own."""
        from pyspark.sql.types import StructField, StructType

        if not self.stamps() and self.format != "delta":
            raise SchemaError(
                f"{self.what}: there are no files at {self.store.uri!r} yet that would tell its "
                "columns; list them: CREATE TABLE name (columns) USING ..."
            )
        if self.format == "delta":
            columns = json.loads(self.delta().columns)
            found = StructType.fromJson(columns)
        else:
            with source_errors(self.what):
                found = self._inferred(session)
        return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in found])

    def _inferred(self, session: SparkSession) -> StructType:
        if self.pattern is None:
            return self._reader(session).load(self.store.uri).schema
        places = [self._place(name) for name in self.stamps()]
        reader = self._reader(session).option("basePath", self.store.uri)
        return reader.load(places).schema

    def rows(
        self, session: SparkSession, schema: StructType, numbers: Mapping[str, int]
    ) -> DataFrame:
        """The rows of some files, with the number of its file in each."""
        return self._numbered(session, schema, numbers, self.store.uri)

    def changes(
        self, session: SparkSession, schema: StructType, numbers: Mapping[str, int]
    ) -> DataFrame:
        """The rows of files of change data, with `CHANGE` and the number of its file in each."""
        from pyspark.sql.types import StringType, StructField, StructType

        with_change = StructType([*schema, StructField(CHANGE, StringType())])
        return self._numbered(session, with_change, numbers, f"{self.store.uri}/{CHANGES}")

    def _numbered(
        self, session: SparkSession, schema: StructType, numbers: Mapping[str, int], base: str
    ) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        places = {self._place(name): number for name, number in numbers.items()}
        frame = self.read(session, schema, list(places), base)
        columns = [F.col(quoted(name)) for name in schema.names]
        if len(places) == 1:
            (number,) = places.values()
            return frame.select(*columns, F.lit(number).cast("int").alias(NUMBER))
        known = {_plain(uri): places[from_spark(uri)] for uri in frame.inputFiles()}
        path = _plain_column(frame.metadataColumn("_metadata")["file_path"])
        table = pa.table({_PATH: list(known), NUMBER: pa.array(known.values(), pa.int32())})
        with active(session):
            files = session.createDataFrame(table)
        unknown = F.raise_error(F.concat(F.lit("rows of an unknown file: "), F.col(_PATH)))
        number_of = F.coalesce(F.col(NUMBER), unknown.cast("int")).alias(NUMBER)
        with_path = frame.select(*columns, path.alias(_PATH))
        return with_path.join(F.broadcast(files), _PATH, "left").select(*columns, number_of)

    def read(
        self, session: SparkSession, schema: StructType, places: Sequence[str], base: str
    ) -> DataFrame:
        """What Spark reads from files, with the columns of `schema` and those of folders."""
        reader = self._reader(session).schema(schema)
        if list(places) != [self.store.uri]:
            reader = reader.option("basePath", base)
        return reader.load(list(places))

    def _place(self, name: str) -> str:
        if not name:
            return self.store.uri
        return name if "://" in name else f"{self.store.uri}/{name}"

    def _reader(self, session: SparkSession) -> DataFrameReader:
        given = {name.lower(): value for name, value in self.options.items()}
        options = dict(LITERAL)
        if self.format in ("csv", "json") and "mode" not in given:
            options["mode"] = "FAILFAST"  # a row that cannot be read is an error, not NULLs
        is_headed = given.get("header", "false").lower() == "true"
        if self.format == "csv" and is_headed and "enforceschema" not in given:
            # Columns are found by place: a file with another header has to be an error.
            options["enforceSchema"] = "false"
        format = "parquet" if self.format == "delta" else self.format
        return session.read.format(format).options(**options).options(**self.options)


@contextmanager
def source_errors(what: str) -> Iterator[None]:
    """Raises what Spark says of files and their rows as our own error, with the reason."""
    try:
        with sql_errors():
            yield
    except StorageUnavailableError:
        raise
    except (StorageError, DataError, SQLError) as error:
        said = str(error)
        if said.startswith(what):
            raise
        cause = _CAUSE.findall(str(error.__context__ or ""))
        reason = re.sub(r"\s*SQLSTATE: \w{5}", "", f" ({cause[-1]})") if cause else ""
        kind = DataError if isinstance(error, DataError) else StorageError
        raise kind(f"{what}: {said}{reason}; nothing was taken over") from error


def _plain(uri: str) -> str:
    """A URI of Spark in one form: it writes `file:` with one slash, or with three."""
    return re.sub("^file:/+", "/", uri)


def _plain_column(path: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.regexp_replace(path, "^file:/+", "/")
