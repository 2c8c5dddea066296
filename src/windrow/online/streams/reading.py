"""Reading a stream with Spark: what is new since the last micro-batch, as messages.

Of Kafka Spark streams the messages. Of a folder it streams the names of files, and a micro-batch
reads them: so one that cannot be read is told from the others, and set aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from windrow.errors import DataError, DefinitionError, StorageError
from windrow.online.streams.messages import (
    CORRUPT,
    FILE,
    OFFSET,
    PARTITION,
    PLACE,
    PRODUCED,
    TOPIC,
    UNIT,
    VALUE,
)
from windrow.sources.definitions import Source
from windrow.sources.streams import FolderStream, KafkaStream
from windrow.spark.errors import known_errors
from windrow.spark.schemas import LITERAL, quoted
from windrow.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCH_MESSAGES = "1000000"  # of Kafka: what is lost if it has to be done again
_BATCH_FILES = "1000"
_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_CONNECTOR = {
    "endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "failondataloss",
    "fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix", "includeheaders",
    "kafkaconsumer.polltimeoutms", "maxoffsetspertrigger", "maxrecordsperpartition",
    "maxtriggerdelay", "minoffsetspertrigger", "minpartitions", "startingoffsets",
    "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "startingtimestamp",
}  # fmt: skip
_LISTING = {
    "cleansource", "filenameonly", "latestfirst", "maxbytespertrigger", "maxcachedfiles",
    "maxfileage", "maxfilespertrigger", "pathglobfilter", "sourcearchivedir",
}  # fmt: skip


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read, and why."""

    file: str
    reason: str


class Reader(Protocol):
    """One stream: as Spark streams it, and the messages of a micro-batch of that."""

    @property
    def parser_options(self) -> Mapping[str, str]: ...

    def stream(self, session: SparkSession) -> DataFrame: ...

    def messages(self, batch: DataFrame) -> DataFrame | None: ...

    def readable(self, batch: DataFrame) -> tuple[DataFrame | None, list[Unreadable]]:
        """The messages of what can be read, and what cannot."""
        ...


def reader_of(source: Source, columns: Callable[[], StructType]) -> Reader:
    """The reader of a source's stream; `columns` are those of a message."""
    stream = source.stream
    if isinstance(stream, KafkaStream):
        return KafkaReader(source, stream)
    if isinstance(stream, FolderStream):
        return FolderReader(source, stream, columns)
    raise DefinitionError(f"{source.what}: it has no stream; give it one, such as stream=wr.Folder")


def _split(options: Mapping[str, str], own: set[str], prefix: str) -> tuple[dict[str, str], ...]:
    """Options of the reader, and those of the parser."""
    first = {n: v for n, v in options.items() if n.lower() in own or n.startswith(prefix)}
    return first, {n: v for n, v in options.items() if n not in first}


def _with_default(options: dict[str, str], name: str, value: str) -> dict[str, str]:
    given = {one.lower() for one in options}
    return options if name.lower() in given else {**options, name: value}


@dataclass(frozen=True)
class KafkaReader:
    """A topic."""

    source: Source
    kafka: KafkaStream

    @property
    def parser_options(self) -> Mapping[str, str]:
        return _split(self.kafka.reader_options, _CONNECTOR, "kafka.")[1]

    def stream(self, session: SparkSession) -> DataFrame:
        options = _split(self.kafka.reader_options, _CONNECTOR, "kafka.")[0]
        options = _with_default(options, "startingOffsets", "earliest")
        options = _with_default(options, "maxOffsetsPerTrigger", _BATCH_MESSAGES)
        reader = session.readStream.format("kafka").options(**options)
        reader = reader.option("kafka.bootstrap.servers", self.kafka.servers)
        return reader.option("subscribe", self.kafka.topic).load()

    def messages(self, batch: DataFrame) -> DataFrame | None:
        from pyspark.sql import functions as F  # noqa: N812

        return batch.select(
            F.col("value").alias(VALUE),
            F.col("topic").alias(TOPIC),
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.lit(None).cast("string").alias(FILE),
            F.unix_millis("timestamp").alias(PRODUCED),
            F.col("partition").cast("long").alias(UNIT),
            F.col("offset").alias(PLACE),
        )

    def readable(self, batch: DataFrame) -> tuple[DataFrame | None, list[Unreadable]]:
        return self.messages(batch), []


@dataclass(frozen=True)
class FolderReader:
    """Files in a folder."""

    source: Source
    folder: FolderStream
    columns: Callable[[], StructType]

    @property
    def parser_options(self) -> Mapping[str, str]:
        return _split(self.folder.reader_options, _LISTING, "kafka.")[1]

    def stream(self, session: SparkSession) -> DataFrame:
        path = os.fspath(self.folder.path)
        store = Store.at(path)
        if store.is_local:
            if store.is_file():
                raise StorageError(
                    f"{self.source.what}: stream: {path!r} is a file; name the folder it is in"
                )
            os.makedirs(store.uri, exist_ok=True)
        options = _split(self.folder.reader_options, _LISTING, "kafka.")[0]
        options = _with_default(options, "maxFilesPerTrigger", _BATCH_FILES)
        # By default Spark passes over files that are a week older than the newest, in silence.
        options = _with_default(options, "maxFileAge", "36500d")
        reader = session.readStream.format("binaryFile").options(**options)
        reader = reader.option("recursiveFileLookup", "true").schema(_FILES)
        return reader.load(store.uri).select("path")

    def messages(self, batch: DataFrame) -> DataFrame | None:
        files = self._files(batch)
        return self._read(batch.sparkSession, files) if files else None

    def readable(self, batch: DataFrame) -> tuple[DataFrame | None, list[Unreadable]]:
        good, wrong = [], []
        for file in self._files(batch):
            frame = self._read(batch.sparkSession, [file])
            try:
                with known_errors():
                    frame.write.format("noop").mode("overwrite").save()
                good.append(file)
            except (StorageError, DataError) as error:
                wrong.append(Unreadable(file, str(error)))
        return (self._read(batch.sparkSession, good) if good else None), wrong

    def _files(self, batch: DataFrame) -> list[str]:
        return [row.path for row in batch.collect()]  # names, not rows

    def _read(self, session: SparkSession, files: list[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        frame, value = self._loaded(session, files)
        number = F.monotonically_increasing_id()
        kept = [] if value is not None else [F.col(quoted(n)) for n in frame.columns]
        value = F.lit(None).cast("binary") if value is None else value
        return frame.select(
            *kept,
            value.alias(VALUE),
            F.lit(None).cast("string").alias(TOPIC),
            F.lit(None).cast("int").alias(PARTITION),
            F.lit(None).cast("long").alias(OFFSET),
            F.col("_metadata.file_path").alias(FILE),
            F.unix_millis("_metadata.file_modification_time").alias(PRODUCED),
            F.shiftright(number, 33).alias(UNIT),
            number.alias(PLACE),
        )

    def _loaded(self, session: SparkSession, files: list[str]) -> tuple[DataFrame, Any]:
        """The files' rows, and how to make messages of them: None if they are rows already."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType, StructField, StructType

        reader = session.read.format("text" if self.folder.format == "json" else self.folder.format)
        reader = reader.options(**LITERAL)
        if self.folder.format == "json":
            frame = reader.load(files)
            frame = frame.where(F.length(F.trim("value")) > 0)  # as Spark's reader of JSON does
            return frame, F.col("value").cast("binary")
        columns = self.columns()
        if self.folder.format != "csv":
            frame = reader.options(**self.parser_options).schema(columns).load(files)
            return frame.withColumn(CORRUPT, F.lit(None).cast("string")), None
        options = _with_default(dict(self.parser_options), "header", "true")
        # Columns are found by place: a file with another header has to be an error.
        options = _with_default(options, "enforceSchema", "false")
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        schema = StructType([*columns, StructField(CORRUPT, StringType())])
        return reader.options(**options).schema(schema).load(files), None
