"""The shard: a durable, sorted collection of updates, opened by URI."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import OptionError, SchemaError, TimeRangeError, WindrowError
from windrow.rows.types import is_nested
from windrow.shard import holds
from windrow.shard.adopt import adopt_files
from windrow.shard.append import BatchWriter, TaskRows, write_dataframe, write_tasks
from windrow.shard.cache import PartCache
from windrow.shard.compact import FANOUT, Compacted, choose, compact, compact_small
from windrow.shard.holds import Held, Hold
from windrow.shard.keys import KeySet
from windrow.shard.log import LATEST, Log
from windrow.shard.merge import Consolidation
from windrow.shard.part import PART_BYTES, Part
from windrow.shard.plan import runs_of
from windrow.shard.predicate import Predicate, bind, is_changed
from windrow.shard.read import Read
from windrow.shard.scan import Scan, TimeRange
from windrow.shard.spec import Order, ShardSpec, by_hash
from windrow.shard.uncommitted import committing, drop
from windrow.shard.verify import Verification, verify_shard
from windrow.spark.schemas import is_dataframe, spark_to_arrow_schema
from windrow.spark.tasks import Written
from windrow.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

WEEK_HOURS = 7 * 24
COMPACT_EVERY = 64  # versions; then an append merges small runs. 0: it never does


@dataclass(frozen=True)
class ShardStats:
    """The size and shape of a shard. `rows` counts updates, `retractions` the negative ones."""

    since: int
    upper: int
    rows: int
    retractions: int
    batches: int
    runs: int
    parts: int
    unsorted_parts: int
    bytes: int


class Shard:
    """A durable collection of updates `(row, time, diff)`.

    >>> import pyarrow as pa, tempfile
    >>> schema = pa.schema([("user", pa.string()), ("score", pa.int64())])
    >>> shard = Shard.create(tempfile.mkdtemp() + "/scores", schema, key=["user"])
    >>> shard.append(pa.table({"user": ["ann", "bob"], "score": [1, 2]}), lower=0, upper=10)
    True
    >>> change = {"user": ["ann", "ann"], "score": [1, 5], "_diff": [-1, 1]}
    >>> shard.append(pa.table(change), lower=10, upper=20)
    True
    >>> shard.snapshot(as_of=9, keys={"user": ["ann"]}).to_table().to_pylist()
    [{'user': 'ann', 'score': 1, '_time': 9, '_diff': 1}]
    >>> shard.snapshot(keys={"user": ["ann"]}).to_table().to_pylist()
    [{'user': 'ann', 'score': 5, '_time': 19, '_diff': 1}]

    Two frontiers move forward only. `upper`: all updates before it are known. `since`: history
    before it may be forgotten; updates older than `since` appear at `since`. Reads are possible
    at times in `[since, upper)`.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.appended: Mapping[str, int] = {}  # what the last append counted

    @classmethod
    def create(
        cls,
        uri: str | Path,
        schema: pa.Schema | StructType,
        *,
        key: Sequence[str] = (),
        order: Order | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Shard:
        """A new, empty shard at `uri`, for rows of `schema` (Arrow or Spark).

        `order` is `by_hash(...)`, the default, or `by_columns(...)`.
        """
        if not isinstance(schema, pa.Schema):
            schema = spark_to_arrow_schema(schema)
        spec = ShardSpec.make(schema, list(key), order if order is not None else by_hash())
        store = Store.at(uri, storage_options)
        with store.creating():
            return cls(Log.create(store, spec, {}))

    @classmethod
    def open(cls, uri: str | Path, *, storage_options: Mapping[str, str] | None = None) -> Shard:
        """The shard at `uri`."""
        return cls(Log.open(Store.at(uri, storage_options)))

    def __repr__(self) -> str:
        return f"Shard({self.uri!r}, since={self.since}, upper={self.upper})"

    @property
    def uri(self) -> str:
        return self._log.store.uri

    @property
    def id(self) -> str:
        """Tells this shard from every other, also from one that was at the same URI before."""
        return self._log.id

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row."""
        return self._log.spec.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._log.spec.key

    @property
    def order(self) -> Order:
        return self._log.spec.order

    @property
    def upper(self) -> int:
        """All updates with a time before `upper` are known, as of the last refresh."""
        return self._log.upper

    @property
    def since(self) -> int:
        """The earliest time that can be read, as of the last refresh."""
        return self._log.since

    def refresh(self) -> Shard:
        """See what other writers did. Reads and writes refresh by themselves."""
        self._log.refresh()
        return self

    def pin(self) -> Shard:
        """Stay at the version that this handle knows, for reads alone, whatever others do.

        For readers with a `hold` that read several times: all of them see the same.
        """
        self._log.pinned = True
        return self

    def append(
        self,
        data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch] | DataFrame,
        *,
        lower: int,
        upper: int,
        at: int | None = None,
        token: str | None = None,
        mark: str | None = None,
        exchange: int | None = None,
        part_bytes: int = PART_BYTES,
    ) -> bool:
        """Append the batch of all updates with times in `[lower, upper)`.

        `lower` has to be the shard's `upper`; if another writer was first, `UpperMismatchError`
        says where it is now, and nothing is appended. Repeating an append that is already there
        (the same bounds and the same updates in any order, or the same `token`) changes nothing
        and returns False.

        Rows without a `_diff` column are insertions; rows without `_time` happen at `at` (by
        default `lower`). An empty batch moves `upper`. A `mark` stays with the shard for good:
        `marked` finds it. Every so often an append merges small runs that have become many;
        larger ones are left to `compact`. Of a Spark DataFrame each task writes its own run; with
        `exchange=n` rows are first brought together by prefix in n tasks, as one run.
        """
        if exchange is not None and exchange < 1:
            raise OptionError(f"exchange is {exchange}; it is a number of tasks, 1 or more")
        writer = self._writer(lower, upper, at, part_bytes)

        def write(writer: BatchWriter) -> Written:
            if is_dataframe(data):
                return write_dataframe(data, writer, exchange)  # type: ignore[arg-type]
            return writer.write(_batches(data))

        return self._append(writer, write, token, mark)

    def marked(self, mark: str) -> int | None:
        """The `upper` of the append that carried `mark`, or the number that it was given.

        None if there is none. Of several with the same mark, it is that of the last.
        """
        return self._log.marked(mark)

    def append_written(
        self,
        write: Callable[[BatchWriter], Written],
        *,
        lower: int,
        upper: int,
        at: int,
        token: str,
        mark: str,
        number: int,
    ) -> bool:
        """Append the parts that `write` writes, marked with a number. Otherwise as `append`."""
        return self._append(self._writer(lower, upper, at), write, token, mark, number)

    def append_tasks(
        self,
        spark: SparkSession,
        rows: TaskRows,
        *,
        lower: int,
        upper: int,
        at: int | None = None,
        token: str | None = None,
        mark: str | None = None,
    ) -> bool:
        """Append rows that Spark's tasks read by themselves. Otherwise as `append`."""
        writer = self._writer(lower, upper, at)
        return self._append(writer, lambda writer: write_tasks(spark, rows, writer), token, mark)

    def _writer(
        self, lower: int, upper: int, at: int | None = None, part_bytes: int = PART_BYTES
    ) -> BatchWriter:
        if self._log.retired:
            raise self._log.retired_error()
        self._check_batch(lower, upper)
        if at is not None:
            _check_time("at", at)
        if at is not None and not lower <= at < upper:
            raise TimeRangeError(f"{self.uri}: at is {at}, outside the batch [{lower}, {upper})")
        log = self._log
        return BatchWriter(log.store, log.spec, lower, upper, part_bytes=part_bytes, at=at)

    def adopt(
        self, paths: Sequence[str | Path], *, lower: int, upper: int, token: str | None = None
    ) -> bool:
        """Append Parquet files of updates as they are, unsorted, without writing them again.

        The files have the shard's columns and `_time` and `_diff`; they are copied into the
        shard. Otherwise as `append`.
        """
        writer = self._writer(lower, upper)
        names = [str(path) for path in paths]
        return self._append(writer, lambda writer: adopt_files(writer, names), token)

    def _check_batch(self, lower: int, upper: int) -> None:
        _check_time("lower", lower)
        _check_time("upper", upper)
        if not 0 <= lower < upper <= LATEST:
            raise TimeRangeError(
                f"{self.uri}: [{lower}, {upper}) is not a batch; times are milliseconds since the "
                "epoch, and lower has to be below upper"
            )

    def _append(
        self,
        writer: BatchWriter,
        write: Any,
        token: str | None,
        mark: str | None = None,
        number: int | None = None,
    ) -> bool:
        from dataclasses import replace

        log = self._log
        lower, upper = writer.lower, writer.upper
        if log.upper != lower:
            log.refresh()
        if log.upper != lower:
            if log.retired:
                raise log.retired_error()
            # Nothing can be appended here; it may be there already.
            if log.upper < upper:
                raise log.mismatch(lower, upper)
            content = token or _token(write(replace(writer, dry=True)))
            if log.has_append(lower, upper, content):
                return False
            raise log.mismatch(lower, upper)
        written = write(writer)
        self.appended = written.counters
        with committing(log, written.parts):
            done = log.append(written.parts, lower, upper, token or _token(written), mark, number)
        if not done:
            drop(log, written.parts)
        elif COMPACT_EVERY and log.version % COMPACT_EVERY == 0:
            with suppress(WindrowError):  # the append is done, whatever becomes of this
                compact_small(log)
        return done

    def snapshot(
        self,
        as_of: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        keys: pa.Table | Mapping[str, Sequence[Any]] | None = None,
        limit: int | None = None,
        consolidate: Consolidation | str = Consolidation.FULL,
        cache: PartCache | bool | None = True,
    ) -> Read:
        """The collection as it was at `as_of` (by default the newest time that is known).

        `columns` are read, rows that `where` lets pass, updates of `keys` only, at most `limit`.
        With full consolidation each row comes once, its multiplicity in `_diff`.
        """
        self._log.refresh()
        if as_of is None:
            as_of = self.upper - 1
        _check_time("as_of", as_of)
        if not self.since <= as_of < self.upper:
            raise self._range_error(f"a snapshot at {as_of}")
        times = TimeRange(None, as_of, as_of)
        return self._read(times, columns, where, keys, limit, consolidate, cache)

    def changes(
        self,
        lower: int,
        upper: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        keys: pa.Table | Mapping[str, Sequence[Any]] | None = None,
        limit: int | None = None,
        consolidate: Consolidation | str = Consolidation.FULL,
        cache: PartCache | bool | None = True,
    ) -> Read:
        """The updates with times in `[lower, upper)`; `upper` is by default the shard's.

        With `lower` at `since`, what happened before comes too, at time `since`: the state there
        and all changes after it.
        """
        self._log.refresh()
        if upper is None:
            upper = self.upper
        _check_time("lower", lower)
        _check_time("upper", upper)
        if not self.since <= lower <= upper <= self.upper:
            raise self._range_error(f"changes in [{lower}, {upper})")
        start = None if lower == self.since else lower
        times = TimeRange(start, upper - 1, lower)
        if lower == upper:
            times = TimeRange(upper, upper - 1, lower)
        return self._read(times, columns, where, keys, limit, consolidate, cache)

    def _range_error(self, what: str) -> WindrowError:
        if self._log.retired:
            return self._log.retired_error()
        if self.since >= self.upper:
            valid = "nothing has been appended yet"
        else:
            valid = f"the shard can be read at times in [{self.since}, {self.upper})"
        return TimeRangeError(f"{self.uri}: {what} is not possible: {valid}")

    def _read(
        self,
        times: TimeRange,
        columns: Sequence[str] | None,
        where: Predicate | None,
        keys: pa.Table | Mapping[str, Sequence[Any]] | None,
        limit: int | None,
        consolidate: Consolidation | str,
        cache: PartCache | bool | None,
    ) -> Read:
        spec = self._log.spec
        if limit is not None and limit < 0:
            raise OptionError(f"limit is {limit}; it has to be 0 or more")
        try:
            level = Consolidation(consolidate)
        except ValueError:
            names = [level.value for level in Consolidation]
            raise OptionError(f"consolidate={consolidate!r}; it is one of {names}") from None
        scan = Scan(
            store=self._log.store,
            spec=spec,
            times=times,
            columns=spec.check_columns(spec.schema.names if columns is None else columns, "read"),
            where=bind(where, spec.schema) if where is not None else None,
            keys=KeySet.make(_key_table(keys, spec), spec) if keys is not None else None,
            limit=limit,
            cache=PartCache.default() if cache is True else cache or None,
        )
        return Read(scan, list(self._log.parts()), level)

    @contextmanager
    def hold(
        self, as_of: int | None = None, *, reader: str = "", lease: float | None = None
    ) -> Iterator[Hold]:
        """Keep the history from `as_of` on (by default the newest time) for a block of code.

        Meanwhile `since` does not pass `as_of`, and `vacuum` deletes nothing that reads need which
        begin within the block, whoever compacts and vacuums, in whatever process:

        >>> import pyarrow as pa, tempfile
        >>> uri = tempfile.mkdtemp() + "/s"
        >>> shard = Shard.create(uri, pa.schema([("k", pa.int64())]), key=["k"])
        >>> shard.append(pa.table({"k": [1]}), lower=0, upper=10)
        True
        >>> shard.append(pa.table({"k": [1], "_diff": [-1]}), lower=10, upper=20)
        True
        >>> with shard.hold(9, reader="a slow report") as held:
        ...     other = Shard.open(uri)
        ...     other.advance_since(19)
        ...     [(one.reader, one.time) for one in other.holds()]
        ...     _ = other.compact(everything=True), other.vacuum(retention_hours=0)
        ...     shard.snapshot(held.time).to_table().to_pylist()
        9
        [('a slow report', 9)]
        [{'k': 1, '_time': 9, '_diff': 1}]
        >>> shard.advance_since(19)
        19

        A hold is a file beside the shard's log, so this needs the right to write there. It ends
        with the block, or with the process: at once as seen from the same host, and otherwise
        after `lease` seconds (a minute) without a sign of life. `reader` tells others who it is.
        """
        self._log.refresh()
        time = max(self.upper - 1, self.since) if as_of is None else as_of
        _check_time("as_of", time)
        if self._log.retired or not self.since <= time <= self.upper:
            raise self._range_error(f"a hold at {time}")
        with holds.hold(self._log, time, reader or f"process {os.getpid()}", lease) as held:
            yield held

    def verify(self) -> Verification:
        """Read everything, and say what is missing, damaged or left over, and what can be done.

        >>> import pyarrow as pa, tempfile
        >>> uri = tempfile.mkdtemp() + "/s"
        >>> shard = Shard.create(uri, pa.schema([("k", pa.int64())]), key=["k"])
        >>> shard.append(pa.table({"k": [1]}), lower=0, upper=10)
        True
        >>> found = shard.verify()
        >>> found.is_sound, found.parts, found.problems
        (True, 1, [])

        For a shard that cannot be opened any more, there is `windrow doctor`.
        """
        return verify_shard(self._log.store)

    def holds(self) -> list[Held]:
        """Who holds the shard, at which time: what `since` and `vacuum` wait for."""
        return holds.live_holds(self._log)

    def advance_since(self, since: int) -> int:
        """Allow history before `since` to be forgotten, and return where `since` is then.

        That is `since`, or less if somebody holds the shard at an earlier time: `holds` tells who,
        and a later call moves on. Moving to an earlier time is refused.
        """
        _check_time("since", since)
        self._log.refresh()
        if since < self.since or since >= max(self.upper, 1):
            raise TimeRangeError(
                f"{self.uri}: since cannot move from {self.since} to {since}: it moves forward, "
                f"and stays below upper ({self.upper})"
            )
        return holds.advance_since(self._log, since)

    @property
    def retired(self) -> bool:
        """Whether it is unusable, and about to be removed, as of the last refresh."""
        return self._log.retired

    def retire(self) -> bool:
        """Make the shard unusable, so that it can be removed; False if somebody holds it."""
        return holds.retire(self._log)

    def compact(
        self,
        *,
        everything: bool = False,
        fanout: int = FANOUT,
        part_bytes: int = PART_BYTES,
        spark: SparkSession | None = None,
    ) -> Compacted:
        """Merge runs that have become many; with `everything`, all of them into one.

        With a Spark session the merging is done by its tasks, otherwise in this process. Appends
        and reads continue meanwhile.
        """
        if fanout < 2:
            raise OptionError(f"fanout is {fanout}; it has to be 2 or more")
        return compact(
            self._log, everything=everything, fanout=fanout, part_bytes=part_bytes, spark=spark
        )

    def is_untidy(self, *, fanout: int = FANOUT) -> bool:
        """Whether `compact` with this fanout would find runs to merge."""
        self._log.refresh()
        return bool(choose(self._log.parts(), fanout, everything=False))

    def vacuum(self, *, retention_hours: int = WEEK_HOURS) -> list[str]:
        """Delete files that no reader can need, and return their names.

        These are parts that compaction replaced, and files of writers that died, both longer ago
        than `retention_hours`. What a reader with a `hold` needs is kept however long it takes,
        and so is what a compaction is writing. A reader without a hold that takes longer than the
        retention may find a part gone, and an append that takes longer loses its parts: with 0,
        no append may be running.
        """
        if retention_hours < 0:
            raise OptionError(f"retention_hours is {retention_hours}; it has to be 0 or more")
        return holds.vacuum(self._log, retention_hours)

    def stats(self) -> ShardStats:
        """Sizes, from the log alone."""
        self._log.refresh()
        parts = self._log.parts()
        return ShardStats(
            since=self.since,
            upper=self.upper,
            rows=sum(part.rows for part in parts),
            retractions=sum(part.name.retractions for part in parts),
            batches=len({(part.name.lower, part.name.upper) for part in parts}),
            runs=len(runs_of(parts)),
            parts=len(parts),
            unsorted_parts=sum(not part.sorted for part in parts),
            bytes=sum(part.bytes for part in parts),
        )

    def rows_within(self, span: tuple[int, int] | None) -> int:
        """About how many updates there are at times in [lower, upper), or in all: from the log."""
        parts = self._log.parts()
        if span is not None:
            lower, upper = (span[0], span[1])
            parts = [p for p in parts if p.time[1] >= lower and p.time[0] < upper]
        return sum(part.rows for part in parts)

    def parts(self) -> list[Part]:
        """The parts of the version of the log that this handle knows."""
        return self._log.parts()

    def has_no_null(self, column: str) -> bool:
        """Whether the log's statistics say that a column has a value in every update."""
        known = (part.bounds.get(column) for part in self._log.parts())
        return all(bounds is not None and bounds.nulls == 0 for bounds in known)

    def hot_prefixes(self) -> dict[int, int]:
        """Prefixes with very many updates, and at least how many: from the log alone.

        A prefix counts as far as it fills row groups by itself.
        """
        rows: dict[int, int] = {}
        for part in self._log.parts():
            if part.name.hot is not None:
                prefix, count = part.name.hot
                rows[prefix] = rows.get(prefix, 0) + count
        return rows


def _check_time(name: str, value: Any) -> None:
    """Refuse what is not a whole number; those of NumPy are."""
    try:
        operator.index(value)
    except TypeError:
        raise OptionError(
            f"{name} is {value!r}; times are whole numbers, of milliseconds since the epoch"
        ) from None


def _token(written: Written) -> str:
    return f"content-{written.fingerprint:016x}"


def _batches(data: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        batches: list[pa.RecordBatch] = data.to_batches()
        return batches or [pa.RecordBatch.from_pylist([], data.schema)]
    if isinstance(data, pa.RecordBatchReader) or (
        isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping)
    ):
        return data
    raise OptionError(
        f"cannot append {type(data).__name__}; give an Arrow table, record batches or a Spark "
        "DataFrame"
    )


def _key_table(keys: pa.Table | Mapping[str, Sequence[Any]], spec: ShardSpec) -> pa.Table:
    if isinstance(keys, pa.Table):
        return keys
    if isinstance(keys, pa.RecordBatch):
        return pa.Table.from_batches([keys])
    if not isinstance(keys, Mapping):
        raise OptionError("keys are an Arrow table or a mapping from key column to values")
    schema = pa.schema([spec.schema.field(name) for name in spec.key])
    if set(keys) != set(spec.key):
        raise SchemaError(f"keys have columns {sorted(keys)}, the shard's key is {list(spec.key)}")
    columns = {}
    for name in spec.key:
        type_ = schema.field(name).type
        values = list(keys[name])
        try:
            columns[name] = pa.array(values, type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(f"keys do not fit column {name!r} ({type_}): {error}") from error
        if is_nested(type_):
            continue
        for given, taken in zip(values, columns[name], strict=True):
            if given is not None and is_changed(given, taken):
                raise SchemaError(
                    f"keys do not fit column {name!r} ({type_}): {given!r} would become "
                    f"{taken.as_py()!r}"
                )
    return pa.table(columns)
