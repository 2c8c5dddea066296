"""A micro-batch of a stream: its rows into the shard, the rest into the quarantine, once.

One job reads the messages, and its tasks write parts of the shard and files of the quarantine. The
files are committed with the number of the micro-batch, then the parts, marked with the same number.
Whatever is interrupted is done again; what the shard is marked with is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import DataError, StorageError, StorageUnavailableError, UpperMismatchError
from windrow.online.streams.messages import BAD, PRODUCED, QUARANTINE
from windrow.online.streams.parsing import Parser
from windrow.online.streams.poison import Isolated, isolate
from windrow.online.streams.quarantine import Quarantine
from windrow.online.streams.reading import Reader, Unreadable
from windrow.shard.append import BatchWriter
from windrow.shard.shard import Shard
from windrow.spark.tasks import Written, run_writers
from windrow.time import now_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

After = Callable[[str, int], None]  # is given the source's name, and the shard's upper
_ROWS, _QUARANTINED = "rows", "quarantined"
_NEWEST, _OLDEST = "peak_newest", "peak_oldest"  # of messages; the latter is negative


@dataclass(frozen=True)
class Done:
    """What a micro-batch was. Times are milliseconds; `oldest` and `newest` are of messages."""

    name: str
    number: int
    upper: int
    rows: int = 0
    quarantined: int = 0
    seconds: float = 0.0
    at: int = 0
    newest: int | None = None
    oldest: int | None = None
    repeated: bool = False


@dataclass(frozen=True)
class Batches:
    """Takes in the micro-batches of one stream; `mark` names the query that makes them.

    `parse` is what the parser does, prepared.
    """

    name: str
    shard: Shard
    reader: Reader
    parser: Parser
    parse: Callable[[DataFrame], DataFrame]
    quarantine: Quarantine
    mark: Callable[[], str]

    def take(self, batch: DataFrame, number: int) -> Done:
        """Append the rows of a micro-batch, unless they are there."""
        started = time.perf_counter()
        mark, shard = self.mark(), self.shard.refresh()
        while True:
            taken = shard.marked(mark)
            if taken is not None and taken >= number:
                return Done(self.name, number, shard.upper, repeated=True)
            at = max(now_millis(), shard.upper)
            try:
                shard.append_written(
                    lambda writer: self._write(batch, writer, mark, number),
                    lower=shard.upper,
                    upper=at + 1,
                    at=at,
                    token=f"{mark}-{number}",
                    mark=mark,
                    number=number,
                )
                break
            except UpperMismatchError:
                shard.refresh()  # another process runs the stream, too, or corrects the shard
        found = shard.appended
        newest, oldest = found.get(_NEWEST), found.get(_OLDEST)
        return Done(
            self.name,
            number,
            shard.upper,
            found.get(_ROWS, 0),
            found.get(_QUARANTINED, 0),
            time.perf_counter() - started,
            now_millis(),
            newest,
            None if oldest is None else -oldest,
        )

    def _write(self, batch: DataFrame, writer: BatchWriter, mark: str, number: int) -> Written:
        """Write parts; what is to be set aside is committed here."""
        try:
            messages = self.reader.messages(batch)
            frame = None if messages is None else self.parse(messages)
            written = self._run(frame, writer, [])
        except StorageUnavailableError:
            raise  # later it may work
        except (DataError, StorageError) as error:
            written = self._write_carefully(batch, writer, error)
        if written.rejected:
            self.quarantine.commit(written.rejected, mark, number)
        return written

    def _write_carefully(
        self, batch: DataFrame, writer: BatchWriter, error: DataError | StorageError
    ) -> Written:
        """The same, without the files and messages that make it fail."""
        messages, unreadable = self.reader.readable(batch)
        if messages is None:
            return self._run(None, writer, unreadable)
        found = isolate(messages, self.parser.parse)
        if not unreadable and not found.poison:
            raise error  # nothing is wrong with a message
        return self._run(_rest(found, messages, self.parser), writer, unreadable)

    def _run(
        self, frame: DataFrame | None, writer: BatchWriter, unreadable: list[Unreadable]
    ) -> Written:
        written = Written([], 0, {_ROWS: 0})
        if frame is not None:
            written = _write_rows(frame, writer, self.quarantine)
        if unreadable:
            rows = [{"reason": one.reason, "file": one.file} for one in unreadable]
            fields = [field for field in QUARANTINE if field.name != "at"]
            file = self.quarantine.write(pa.Table.from_pylist(rows, pa.schema(fields)))
            counters = dict(written.counters)
            counters[_QUARANTINED] = counters.get(_QUARANTINED, 0) + len(rows)
            written = replace(written, rejected=[*written.rejected, file], counters=counters)
        return written


def _rest(found: Isolated, messages: DataFrame, parser: Parser) -> DataFrame:
    """The rows of messages that do no harm; and those that do, as they are set aside."""
    if not found.poison:
        return parser.parse(messages)
    good = parser.parse(messages.where(~found.condition()))
    return good.unionByName(found.set_aside(messages, good.schema))


def _write_rows(frame: DataFrame, writer: BatchWriter, quarantine: Quarantine) -> Written:
    """Write rows to the shard and the others to the quarantine, from one job."""
    names = frame.columns
    plain = frame.toDF(*(f"c{i}" for i in range(len(names))))  # mapInArrow takes no dots in names

    def write(batches: Iterator[pa.RecordBatch]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        split = Split(batches, names)
        written = writer.write(split.rows(), context.partitionId() if context is not None else 0)
        counters = {**written.counters, _QUARANTINED: sum(t.num_rows for t in split.bad)}
        if split.times is not None:
            counters |= {_NEWEST: split.times[1], _OLDEST: -split.times[0]}
        rejected = [quarantine.write(pa.concat_tables(split.bad))] if split.bad else []
        return replace(written, counters=counters, rejected=rejected)

    return run_writers(plain, writer.store, write)


class Split:
    """In a task: rows as they pass, and the messages that became none."""

    def __init__(self, batches: Iterator[pa.RecordBatch], names: list[str]) -> None:
        self._batches, self._names = batches, names
        self.bad: list[pa.Table] = []
        self.times: tuple[int, int] | None = None  # the first and the last that was produced

    def rows(self) -> Iterator[pa.RecordBatch]:
        own = [name for name in self._names if name not in (BAD, PRODUCED)]
        for batch in self._batches:
            named = batch.rename_columns(self._names)
            self._look(named.column(PRODUCED))
            bad = named.column(BAD)
            rows = named.select(own)
            if bad.null_count < len(bad):
                wrong = bad.filter(bad.is_valid())
                fields = [wrong.field(i) for i in range(wrong.type.num_fields)]
                table = pa.table(fields, names=[f.name for f in wrong.type])
                self.bad.append(table)
                rows = rows.filter(bad.is_null())
            yield rows

    def _look(self, produced: pa.Array) -> None:
        found = pc.min_max(produced)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None:
            known = self.times or (low, high)
            self.times = min(low, known[0]), max(high, known[1])
