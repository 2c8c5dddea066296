"""Running streams: a query of Spark Structured Streaming for each, until somebody says stop.

    query (thread of Spark) ──▶ Batches.take ──▶ after ──▶ reported
    this thread             ◀── lines, failures, stop

Everything may be killed at any point. A micro-batch that was not committed by Spark comes again
with the same number, and `Batches` knows whether it is there.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import (
    DefinitionError,
    OptionError,
    SchemaError,
    StorageError,
    StorageUnavailableError,
    WindrowError,
)
from windrow.online.streams.batches import After, Batches, Done
from windrow.online.streams.figures import Figures
from windrow.online.streams.parsing import Parser
from windrow.online.streams.quarantine import Quarantine
from windrow.online.streams.reading import reader_of
from windrow.rows.types import canonical_schema
from windrow.shard.shard import Shard
from windrow.sources.bound import bind_table
from windrow.sources.definitions import EntitySource, Source
from windrow.sources.stream_columns import declared_columns
from windrow.sources.stream_shard import create_stream, open_stream, stream_uri
from windrow.sources.streams import FolderStream
from windrow.spark.prepared import Prepared
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.spark.session import Engine
from windrow.spark.settings import fixed_session, is_remote
from windrow.spark.sql_errors import sql_error
from windrow.storage.names import written
from windrow.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIGGER = 0.5  # seconds between the starts of two micro-batches
_BLINK = 0.05  # seconds, after which somebody who waits looks again
_PAUSES = (1.0, 30.0)  # seconds before something is tried again: at first, at most
_SETTINGS = {
    # Parsing fewer columns than there are would pass over what is wrong with the others.
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
}
_TIDY_EVERY = 60.0  # seconds
_FOLDER = "folder"  # beside the checkpoint: where files were taken in from


Report = Callable[[Done, int | None], None]  # is given a micro-batch, and how far it is behind


class _Stopping(Exception):  # noqa: N818 (no error)
    """A micro-batch that begins after it was said that there should be none."""


@dataclass
class StreamRun:
    """The stream of one source at work."""

    engine: Engine
    root: Store
    source: Source
    after: After | None = None
    trigger: float | None = TRIGGER  # None: take in what is there, and end
    tell: Callable[[str], None] = lambda text: None
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        if self.source.stream is None:
            raise DefinitionError(
                f"{self.source.what} has no stream; give it one, such as "
                "stream=wr.FolderStream('arriving')"
            )
        self.query: Any = None
        self.failed: Exception | None = None
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._turn = threading.Lock()  # held by a micro-batch
        self._stopping = False

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def uri(self) -> str:
        return stream_uri(self.root, self.name)

    @property
    def checkpoint(self) -> Store:
        return Store.at(f"{self.uri}/_checkpoint", self.root.options_dict)

    def open(self) -> Shard:
        """The shard, created if it is not there; its columns have to be those of messages now."""
        wanted = canonical_schema(self._columns())
        options = self.root.options_dict
        shard = open_stream(self.uri, options)
        if shard is None:
            shard = create_stream(self.uri, wanted, self.source.time, options)
        if not shard.schema.equals(wanted):
            raise SchemaError(
                f"{self.source.what}: stream: its rows were taken in with the columns "
                f"{_listed(shard.schema)}, and have {_listed(wanted)} now; list the former in "
                "schema= of the stream, or make it the stream of a new source"
            )
        return shard

    def _columns(self) -> pa.Schema:
        """The columns of the source's table, before select; without one, as declared."""
        source = self.source
        table = getattr(source, source.feed if isinstance(source, EntitySource) else "table", None)
        if table is None:
            return declared_columns(self.engine.spark, source)
        bound = bind_table(self.engine, table, source.what, options=self.root.options_dict)
        return bound.schema

    def start(self) -> None:
        """Start the query, from where it was."""
        session = _session(self.engine, self.source)
        shard = self.open()
        rows = arrow_to_spark_schema(shard.schema)
        known: dict[str, Parser] = {}
        reader = reader_of(self.source, lambda: known["parser"].columns)
        parser = Parser.of(session, self.source, rows, reader.parser_options)
        known["parser"] = parser
        self._check_checkpoint(shard)
        self._check_folder(shard)
        quarantine = Quarantine.of(self.root, self.name)
        parse = Prepared(parser.parse)
        batches = Batches(self.name, shard, reader, parser, parse, quarantine, self._mark)
        self.figures.begin(self.name)
        self.failed, self._stopping = None, False
        try:
            frame = reader.stream(session)
            writer = frame.writeStream.foreachBatch(
                lambda batch, number: self._take(batches, batch, number)
            )
            writer = writer.queryName(f"windrow-{self.name}")
            writer = writer.option("checkpointLocation", self.checkpoint.uri)
            if self.trigger is None:
                writer = writer.trigger(availableNow=True)
            else:
                millis = int(self.trigger * 1000)
                writer = writer.trigger(processingTime=f"{millis} milliseconds")
            self.query = writer.start()
        except WindrowError:
            raise
        except Exception as error:
            raise self._unstartable(error) from error

    def _unstartable(self, error: Exception) -> WindrowError:
        known = sql_error(error)
        said = str(known if known is not None else error).strip().splitlines()
        reason = said[0] if said else type(error).__name__
        if "kafka" in reason.lower() and "DATA_SOURCE" in str(error):
            reason = (
                "Spark has no connector to Kafka; `windrow jars` fetches it, and a session that "
                "is given has to be started with it (spark.jars)"
            )
        return StorageError(f"{self.source.what}: the stream cannot be started: {reason}")

    def _mark(self) -> str:
        """The name of the query, the same for as long as its checkpoint is there."""
        found = self._query_id()
        if found is None:
            raise StorageError(f"{self.checkpoint.uri}/metadata is missing; restore it from a copy")
        return f"stream-{found}"

    def _query_id(self) -> str | None:
        data = self.checkpoint.get("metadata")
        return None if data is None else str(json.loads(data)["id"])

    def _check_checkpoint(self, shard: Shard) -> None:
        """Refuse to begin from the start what has been taken in."""
        query = self._query_id()
        if shard.stats().rows == 0:
            return
        if query is None or shard.marked(f"stream-{query}") is None:
            raise StorageError(
                f"{self.source.what}: {self.checkpoint.uri} is not the checkpoint that the rows in "
                f"{written(self.uri)} were taken in with, and all would be taken in again. Restore "
                f"it from a copy; or, to begin again, remove {written(self.uri)} as a whole"
            )

    def _check_folder(self, shard: Shard) -> None:
        """Refuse a folder that has moved: Spark knows files by their whole paths."""
        stream = self.source.stream
        if not isinstance(stream, FolderStream):
            return
        place = Store.at(os.fspath(stream.path)).uri
        known = self.checkpoint.get(_FOLDER)
        names_alone = {n.lower(): v for n, v in stream.reader_options.items()}.get("filenameonly")
        moved = known is not None and known.decode() != place
        if moved and shard.stats().rows and str(names_alone).lower() != "true":
            assert known is not None
            raise StorageError(
                f"{self.source.what}: files were taken in from {known.decode()}, and the stream "
                f"is at {place} now: all of them would be taken in again. Move the folder back; "
                "or, if no two files in it have the same name, give the stream "
                "options={'fileNameOnly': 'true'}"
            )
        if known is None or moved:
            self.checkpoint.put(_FOLDER, place.encode())

    def _take(self, batches: Batches, batch: DataFrame, number: int) -> None:
        """In a thread of Spark."""
        # Whoever stops the query has the turn until this thread ends: neither may wait for ever.
        while not self._turn.acquire(timeout=_BLINK):
            if self._stopping:
                raise _Stopping
        try:
            if self._stopping:
                raise _Stopping
            pause = _PAUSES[0]
            while True:
                try:
                    done = batches.take(batch, number)
                    if self.after is not None:
                        self.after(self.name, done.upper)
                    self.done.put(done)
                    return
                except StorageUnavailableError as error:
                    if self.trigger is None or self._stopping:
                        self.failed = error
                        raise
                    self.figures.failed(self.name)
                    self.tell(f"{self.name}: {error}; trying again")
                    self._wait(pause)
                    pause = min(2 * pause, _PAUSES[1])
                except Exception as error:
                    self.failed = error
                    raise
        finally:
            self._turn.release()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < end:
            time.sleep(_BLINK)

    def lag(self) -> int | None:
        """Messages of Kafka that are there and not taken in, as of the last micro-batch."""
        progress = None if self.query is None else self.query.lastProgress
        if not progress:
            return None
        try:
            (source, *_) = progress["sources"]
            latest, end = json.loads(source["latestOffset"]), json.loads(source["endOffset"])
            return sum(
                int(last) - int(end[topic].get(partition, 0))
                for topic, partitions in latest.items()
                for partition, last in partitions.items()
            )
        except (TypeError, KeyError, ValueError, AttributeError):
            return None  # of a folder

    def stop(self) -> None:
        """Stop after the micro-batch that is at work."""
        self._stopping = True
        if self.query is None:
            return
        with self._turn:
            self.query.stop()

    def error(self) -> Exception | None:
        """Why the query ended; None if it runs, or ended as it should."""
        if self.query is None or self.query.isActive:
            return None
        if self._stopping:
            return None
        if self.failed is not None:
            return self.failed
        raised = self.query.exception()
        return None if raised is None else _explained(self.source, raised)


def _explained(source: Source, error: Exception) -> WindrowError:
    """What ended a query, in one line; Spark adds its plans."""
    text = str(error)
    first = next((one.strip() for one in text.splitlines() if one.strip()), "")
    if "UnknownTopicOrPartition" in text:
        first = "Kafka knows no such topic"
    elif "KafkaIllegalStateException" in text or "OFFSET_DATA_LOSS" in text or "data loss" in text:
        first += (
            " Messages are gone before they were taken in; set the option failOnDataLoss to "
            "'false' to go on with those that are left"
        )
    return StorageUnavailableError(f"{source.what}: the stream ended: {first}")


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _session(engine: Engine, source: Source) -> SparkSession:
    if is_remote(engine.given):
        raise OptionError(
            f"{source.what}: streams run where their session is, and cannot use Spark Connect; "
            "give the project a session of its own"
        )
    session = fixed_session(engine.given)
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def _to_stderr(text: str) -> None:
    print(f"windrow: {text}", file=sys.stderr, flush=True)


class Streams:
    """Several streams in one process."""

    def __init__(
        self,
        engine: Engine,
        root: Store,
        sources: Sequence[Source],
        *,
        trigger: float | None = TRIGGER,
        after: After | None = None,
        tell: Callable[[str], None] = _to_stderr,
    ) -> None:
        self.figures = Figures()
        self.runs = [
            StreamRun(engine, root, source, after, trigger, tell, self.figures)
            for source in sources
        ]

    def run(
        self,
        asked: Callable[[], bool] = lambda: False,
        report: Report = lambda done, lag: None,
    ) -> None:
        """Run until all have ended, or `asked` says that they should.

        `report` is given each micro-batch, and how many messages the stream is behind. A stream
        that fails for what may pass is started again, unless it was to end by itself; any other
        error stops all.
        """
        again: dict[str, tuple[float, float]] = {}  # of streams to be started again: when, pause
        tidying = threading.Event()
        try:
            for run in self.runs:
                run.start()
            threading.Thread(target=_tidy, args=(self.runs, tidying), daemon=True).start()
            while not asked():
                active = False
                for run in self.runs:
                    _report(run, report)
                    active |= _look_after(run, again)
                if not active:
                    break
                time.sleep(_BLINK)
        finally:
            tidying.set()
            for run in self.runs:
                run.stop()
            for run in self.runs:
                _report(run, report)


def _report(run: StreamRun, report: Report) -> None:
    while not run.done.empty():
        done, lag = run.done.get(), run.lag()
        run.figures.add(done, lag)
        report(done, lag)


def _look_after(run: StreamRun, again: dict[str, tuple[float, float]]) -> bool:
    """Whether a stream is to go on; one that failed is started again in time."""
    if run.query is not None and run.query.isActive:
        return True
    now = time.monotonic()
    if run.name not in again:
        error = run.error()
        if error is None:
            return False
        if run.trigger is None or not isinstance(error, StorageUnavailableError):
            raise error
        run.figures.failed(run.name)
        run.tell(f"{error}; starting it again")
        again[run.name] = (now + _PAUSES[0], _PAUSES[0])
        return True
    at, pause = again[run.name]
    if now < at:
        return True
    try:
        run.start()
        del again[run.name]
    except StorageError as error:
        run.tell(f"{error}; trying again")
        pause = min(2 * pause, _PAUSES[1])
        again[run.name] = (time.monotonic() + pause, pause)
    return True


def _tidy(runs: Sequence[StreamRun], stopped: threading.Event) -> None:
    """Merge runs of shards once they are many, beside the streams."""
    while not stopped.wait(_TIDY_EVERY):
        for run in runs:
            try:
                shard = Shard.open(run.uri, storage_options=run.root.options_dict)
                if shard.is_untidy():
                    shard.compact()
                    shard.vacuum()
            except WindrowError as error:  # the streams go on, and it is tried again
                run.tell(f"{run.name}: its shard was not compacted: {error}")
