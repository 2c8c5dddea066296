"""Comparing: what a task does with a share of a log's rows, and what was computed for them.

    log, rows [start, end) ──────────────────────────┐
                                                     ├──▶ comparisons, tally, worst examples
    result of the replay, the same rows by number ───┘

Each feature becomes a struct of both values, their outcome and their error: rows of the table of
comparisons, in the order of the log. What is counted, and the worst that was found, is left in the
folder of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import enumerate_lists
from windrow.consistency.comparison_files import ComparisonFile
from windrow.consistency.equality import (
    OUTCOMES,
    Compared,
    Outcome,
    aligned,
    common_type,
    compare,
)
from windrow.consistency.replay import OWN, ROW, ComparedFeature, Replay, Sides
from windrow.consistency.tally import Hours, Tally
from windrow.errors import SchemaError, StorageError
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.strategies.shares import RowShares
from windrow.online.log.columns import AT, FAILED, FRESH, NOT_ASKED, STATUSES
from windrow.rows.hashing import hash_rows
from windrow.rows.types import canonical_schema, canonical_values, single_chunk
from windrow.sources.files import FileRows
from windrow.spark.memory import peak_memory
from windrow.spark.tasks import Written
from windrow.storage.store import Store
from windrow.updates import int64_values

VERSION = "_log_version"
_PER_HOUR = 3  # examples of a feature in a batch, first of each hour
_PER_FEATURE = 40  # and of all hours
_BATCH = 131_072


@dataclass(frozen=True)
class CompareJob:
    """Compares the rows of a log with a replay's result. Picklable: every task carries it.

    `log` has a share for each task, with the rows' numbers and `QUERY_TIME`; `shares` are the same
    in the files (`paths`) of the result.
    """

    sides: Sides
    log: FileRows
    shares: RowShares
    source: Store
    paths: tuple[str, ...]
    target: Store
    work: Store
    run: str
    schema: pa.Schema  # of comparisons

    @property
    def examples_schema(self) -> pa.Schema:
        """Which example it is, then its row of comparisons."""
        return pa.schema([*EXAMPLES, *self.schema])

    def write(self, number: int) -> Written:
        """One share; comparisons are stored, the rest is beneath `work`."""
        computed = self._computed(number)
        tally = Tally()
        examples: list[pa.Table] = []
        skipped = rows = 0
        file = ComparisonFile(self.target, self.run, [AT, *self.sides.keys])
        for table in self._batches(number):
            offline = computed.take(table)
            times = single_chunk(table.column(QUERY_TIME))
            if times.null_count:
                valid = times.is_valid()
                skipped += times.null_count
                table, offline = table.filter(valid), offline.filter(valid)
            if not table.num_rows:
                continue
            rows += table.num_rows
            made, found = self._compared(table, offline, tally)
            file.write(made)
            if found is not None:
                examples.append(found)
        computed.check()
        self.work.put(f"tally-{self.run}-{number}", tally.to_bytes())
        if examples:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.examples_schema) as out:
                for one in examples:
                    out.write_table(one)
            self.work.put(f"examples-{self.run}-{number}", bytes(sink.getvalue()))
        counters = {"rows": rows, "no_time": skipped, "peak_memory": peak_memory()}
        return Written(file.close(), 0, counters)

    def _batches(self, number: int) -> Iterator[pa.Table]:
        """The rows of a share, many at a time."""
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in self.log.batches(number):
            if held and rows + batch.num_rows > _BATCH:
                yield pa.Table.from_batches(held).combine_chunks()
                held, rows = [], 0
            held.append(batch)
            rows += batch.num_rows
        if rows:
            yield pa.Table.from_batches(held).combine_chunks()

    def _computed(self, number: int) -> _Computed:
        names = [self.shares.column, *self.sides.computed]
        if not self.paths:
            return _Computed.of(None, self.shares.column, 0)
        found = self.shares.read(self.source, self.paths, number, names)
        return _Computed.of(found, self.shares.column, self.shares.starts[number])

    def _compared(
        self, table: pa.Table, offline: pa.Table, tally: Tally
    ) -> tuple[pa.Table, pa.Table | None]:
        """Rows of comparisons; and the worst of them, if any is bad."""
        hours = Hours.of(int64_values(table, QUERY_TIME))
        letters = _letters(table) if self.sides.own else None
        count = table.num_rows
        columns: dict[str, pa.Array] = {
            name: single_chunk(table.column(name))
            for name in (AT, *self.sides.keys, *self.sides.inputs, *OWN)
            if name in self.schema.names and name in table.column_names
        }
        columns[VERSION] = _constant(self.sides.version, count)
        others = set(columns)
        worst: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        features = {one.name: one for one in self.sides.features}
        for field in self.schema:
            if field.name in columns:
                continue
            feature = features.get(field.name)
            if feature is None:  # of another version of the log
                columns[field.name] = _no_values(field.type, count)
                continue
            both, found, asked = self._feature(table, offline, feature, field.type, letters)
            columns[field.name] = both
            tally.of(feature.name).add(found, hours, asked)
            places = _worst(found, asked, hours)
            if places.size:
                worst[feature.name] = places, found.errors[places]
        if FRESH in columns:
            columns[FRESH] = _widened(columns[FRESH], self.schema.field(FRESH).type)
        # The struct of a feature is always there. A file that says so is written in two thirds of
        # the time: a level less to work out for each value.
        fields = [pa.field(n, columns[n].type, n in others) for n in self.schema.names]
        made = pa.table([columns[f.name] for f in fields], schema=pa.schema(fields))
        if not worst:
            return made, None
        return made, self._examples(made, hours.times, worst)

    def _feature(
        self,
        table: pa.Table,
        computed: pa.Table,
        feature: ComparedFeature,
        type_: pa.StructType,
        letters: np.ndarray | None,
    ) -> tuple[pa.Array, Compared, np.ndarray | None]:
        """The struct of a feature, what was found, and where it was asked for (None: always)."""
        online, offline = aligned(
            single_chunk(table.column(feature.online)),
            single_chunk(computed.column(feature.offline)),
        )
        beside = None if feature.beside is None else single_chunk(computed.column(feature.beside))
        found = compare(online, offline, feature.rule, beside)
        asked = None
        if letters is not None and feature.status is not None:
            own = letters[:, feature.status]
            failed = np.flatnonzero(own == ord(FAILED))
            found.outcomes[failed] = Outcome.ONLY_OFFLINE
            found.errors[failed] = 1.0
            missing = own == ord(NOT_ASKED)
            asked = ~missing if missing.any() else None
        mask = None if asked is None else ~asked
        labels = pa.DictionaryArray.from_arrays(pa.array(found.outcomes, mask=mask), _LABELS)
        wanted = type_.field("online").type  # of all versions of the log
        values = [_as(online, wanted), _as(offline, wanted), labels]
        values.append(pa.array(found.errors, mask=mask))
        return pa.StructArray.from_arrays(values, names=[f.name for f in type_]), found, asked

    def _examples(
        self,
        made: pa.Table,
        times: np.ndarray,
        worst: dict[str, tuple[np.ndarray, np.ndarray]],
    ) -> pa.Table:
        """Rows of the worst, for the driver to choose from."""
        places = np.concatenate([one for one, _ in worst.values()])
        rows = made.take(pa.array(places)).combine_chunks().cast(self.schema)
        keys = [canonical_values(single_chunk(rows.column(name))) for name in self.sides.keys]
        names = [name for name, (one, _) in worst.items() for _ in range(one.size)]
        columns = [
            pa.array(names, pa.string()),
            pa.array(places, pa.int64()),
            pa.array(np.concatenate([errors for _, errors in worst.values()])),
            pa.array(times[places], pa.int64()),
            pa.array(hash_rows(keys).view(np.int64), pa.int64()),
        ]
        return pa.table([*columns, *rows.columns], schema=self.examples_schema)


@dataclass
class _Computed:
    """What a replay computed for the rows of a share, found by their numbers."""

    table: pa.Table | None
    start: int
    places: np.ndarray  # for each number from `start` on its place in the table; -1: none
    taken: int = 0

    @staticmethod
    def of(table: pa.Table | None, column: str, start: int) -> _Computed:
        if table is None or not table.num_rows:
            return _Computed(None, start, np.zeros(0, np.int64))
        numbers = int64_values(table, column) - start
        places = np.full(int(numbers.max()) + 1, -1)
        places[numbers] = np.arange(numbers.size)
        return _Computed(table.drop_columns([column]), start, places)

    def take(self, rows: pa.Table) -> pa.Table:
        """The same rows, as they were computed."""
        numbers = int64_values(rows, ROW) - self.start
        if self.table is None or numbers.max(initial=0) >= self.places.size:
            raise _lost()
        places = self.places[numbers]
        if places.min(initial=0) < 0:
            raise _lost()
        self.taken += places.size
        return self.table.take(pa.array(places)).combine_chunks()

    def check(self) -> None:
        """Every row that was computed has been taken, once."""
        if self.taken != (0 if self.table is None else self.table.num_rows):
            raise _lost()


def _lost() -> StorageError:
    return StorageError(
        "the log and what was computed for it do not have the same rows: was the log changed "
        "meanwhile? Run it again"
    )


EXAMPLES = pa.schema(
    [
        ("__feature", pa.string()),
        ("__row", pa.int64()),  # among those that are compared together
        ("__severity", pa.float64()),
        ("__at", pa.int64()),
        ("__key", pa.int64()),  # a hash of it
    ]
)


def comparison_schema(replays: Sequence[Replay], results: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of comparisons, of all versions of a log: whose they are, then features."""
    first, schema = replays[0].sides, replays[0].types
    fields = [schema.field(name) for name in (AT, *first.keys, *first.inputs)]
    fields += [schema.field(name) for name in OWN if name in schema.names and name != FRESH]
    fields.append(pa.field(VERSION, pa.string()))
    types: dict[str, pa.DataType] = {}
    for replay, result in zip(replays, results, strict=True):
        for one in replay.sides.features:
            online, offline = replay.types.field(one.online).type, result.field(one.offline).type
            try:
                type_ = common_type(online, offline)
            except SchemaError as error:
                raise SchemaError(f"feature {one.name!r}: {error}") from error
            types.setdefault(one.name, type_)
    for name, type_ in types.items():
        compared = pa.struct(
            [("online", type_), ("offline", type_), ("outcome", pa.string()), ("error", DOUBLE)]
        )
        fields.append(pa.field(name, compared))
    groups = [f for one in replays if FRESH in one.types.names for f in one.types.field(FRESH).type]
    if groups:
        fields.append(pa.field(FRESH, pa.struct({f.name: f.type for f in groups}.items())))
    return canonical_schema(pa.schema(fields))


DOUBLE = pa.float64()
_LABELS = pa.array(OUTCOMES)


def _constant(value: str | None, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, pa.string())
    numbers = pa.array(np.zeros(count, np.int8))
    return pa.DictionaryArray.from_arrays(numbers, pa.array([value], pa.string()))


def _as(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values if values.type == type_ else values.cast(type_)


def _no_values(type_: pa.StructType, count: int) -> pa.Array:
    """Structs whose fields are all NULL."""
    return pa.StructArray.from_arrays([pa.nulls(count, f.type) for f in type_], fields=list(type_))


def _widened(values: pa.Array, type_: pa.StructType) -> pa.Array:
    """A struct with further fields, which are NULL."""
    known = {field.name for field in values.type}
    children = [
        values.field(field.name) if field.name in known else pa.nulls(len(values), field.type)
        for field in type_
    ]
    return pa.StructArray.from_arrays(children, fields=list(type_))


def _letters(table: pa.Table) -> np.ndarray | None:
    """Statuses as a matrix of bytes, a row each; None if all features were asked for and answered.

    All have as many letters as there are features.
    """
    texts = single_chunk(table.column(STATUSES))
    rows = None
    if pa.types.is_dictionary(texts.type):
        rows, texts = texts.indices.to_numpy(), texts.dictionary
    size = len(texts)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + size + 1]
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    if not ((data == ord(FAILED)) | (data == ord(NOT_ASKED))).any():
        return None
    letters = data.reshape(size, -1)
    return letters if rows is None else letters[rows]


def _worst(found: Compared, asked: np.ndarray | None, hours: Hours) -> np.ndarray:
    """Places of the worst: some of each hour first, the largest errors before others."""
    bad = np.flatnonzero(found.outcomes >= Outcome.ONLY_ONLINE)
    if asked is not None:
        bad = bad[asked[bad]]
    if not bad.size:
        return bad
    hour = hours.places[bad]
    by = np.lexsort((hours.times[bad], -found.errors[bad], hour))
    order, hour = bad[by], hour[by]
    starts = np.flatnonzero(np.append(True, np.diff(hour) != 0))
    _, rank = enumerate_lists(np.diff(np.append(starts, order.size)))
    first = np.lexsort((-found.errors[order], rank))[:_PER_FEATURE]
    return order[first[rank[first] < _PER_HOUR]]
