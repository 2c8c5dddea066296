"""Comparing: what a task does with a file of a replay's result.

Each feature becomes a struct of both values, their outcome and their error: a file of the table of
comparisons. What is counted, and the worst that was found, is left in the folder of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.consistency.equality import (
    OUTCOMES,
    Compared,
    Outcome,
    aligned,
    common_type,
    compare,
)
from windrow.consistency.replay import OWN, ComparedFeature, Sides
from windrow.consistency.tally import Tally, hours_of
from windrow.errors import SchemaError
from windrow.features.strategies.slices import write_file
from windrow.online.log.columns import AT, FAILED, FRESH, NOT_ASKED, STATUSES
from windrow.rows.hashing import hash_rows
from windrow.rows.types import canonical_schema, canonical_values, single_chunk
from windrow.sources.times import to_millis
from windrow.spark.memory import peak_memory
from windrow.spark.tasks import Written
from windrow.storage.store import Store

VERSION = "_log_version"
_PER_HOUR = 3  # examples of a feature in a file, first of each hour
_PER_FEATURE = 40  # and of all hours
_BATCH = 131_072


@dataclass(frozen=True)
class CompareJob:
    """Compares the files of a replay's result. Picklable: every task carries it."""

    sides: Sides
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
        """One file; comparisons are stored, the rest is beneath `work`."""
        parts, tally = [], Tally()
        examples: list[pa.Table] = []
        skipped = rows = 0
        with pq.ParquetFile(self.source.open_input(self.paths[number])) as file:
            for batch in file.iter_batches(batch_size=_BATCH, use_threads=False):
                table = pa.Table.from_batches([batch])
                millis, valid = to_millis(single_chunk(table.column(AT)))
                if not valid.all():
                    skipped += int((~valid).sum())
                    table, millis = table.filter(pa.array(valid)), millis[valid]
                if not table.num_rows:
                    continue
                rows += table.num_rows
                made, found = self._compared(table, millis, tally)
                parts.append(write_file(self.target, made, self.run))
                for one in found:
                    rows_of = made.take(one["row"])
                    columns = [*one.values(), *rows_of.columns]
                    examples.append(pa.table(columns, schema=self.examples_schema))
        self.work.put(f"tally-{self.run}-{number}", tally.to_bytes())
        if examples:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.examples_schema) as out:
                for one in examples:
                    out.write_table(one)
            self.work.put(f"examples-{self.run}-{number}", bytes(sink.getvalue()))
        counters = {"rows": rows, "no_time": skipped, "peak_memory": peak_memory()}
        return Written(parts, 0, counters)

    def _compared(
        self, table: pa.Table, millis: np.ndarray, tally: Tally
    ) -> tuple[pa.Table, list[dict[str, pa.Array]]]:
        hours, places = hours_of(millis)
        letters = _letters(table) if self.sides.own else None
        count = table.num_rows
        columns: dict[str, pa.Array] = {
            name: single_chunk(table.column(name))
            for name in (AT, *self.sides.keys, *self.sides.inputs, *OWN)
            if name in self.schema.names and name in table.column_names
        }
        columns[VERSION] = pa.array([self.sides.version] * count, pa.string())
        examples = []
        features = {one.name: one for one in self.sides.features}
        for field in self.schema:
            if field.name in columns:
                continue
            feature = features.get(field.name)
            if feature is None:  # of another version of the log
                columns[field.name] = pa.nulls(count, field.type)
                continue
            made, found, asked = self._feature(table, feature, field.type, letters)
            columns[field.name] = made
            chosen = np.flatnonzero(asked)
            every = chosen.size == count
            part = found if every else Compared(found.outcomes[chosen], found.errors[chosen])
            tally.of(feature.name).add(part, hours, places if every else places[chosen])
            worst = _worst(found, asked, millis, hours[places])
            if worst.size:
                examples.append(self._examples(columns, feature, found, millis, worst))
        if FRESH in columns:
            columns[FRESH] = _widened(columns[FRESH], self.schema.field(FRESH).type)
        arrays = [columns[field.name].cast(field.type) for field in self.schema]
        return pa.table(arrays, schema=self.schema), examples

    def _feature(
        self,
        table: pa.Table,
        feature: ComparedFeature,
        type_: pa.StructType,
        letters: np.ndarray | None,
    ) -> tuple[pa.Array, Compared, np.ndarray]:
        """The struct of a feature, what was found, and where it was asked for."""
        online, offline = aligned(
            single_chunk(table.column(feature.online)), single_chunk(table.column(feature.offline))
        )
        beside = None if feature.beside is None else single_chunk(table.column(feature.beside))
        found = compare(online, offline, feature.rule, beside)
        asked = np.ones(len(online), np.bool_)
        if letters is not None and feature.status is not None:
            own = letters[:, feature.status]
            asked = own != ord(NOT_ASKED)
            failed = own == ord(FAILED)
            found.outcomes[failed] = Outcome.ONLY_OFFLINE
            found.errors[failed] = 1.0
        labels = pa.DictionaryArray.from_arrays(
            pa.array(found.outcomes, mask=~asked), pa.array(OUTCOMES)
        )
        values = [online, offline, labels.cast(pa.string()), pa.array(found.errors, mask=~asked)]
        values = [v.cast(f.type) for v, f in zip(values, type_, strict=True)]
        return pa.StructArray.from_arrays(values, fields=list(type_)), found, asked

    def _examples(
        self,
        columns: dict[str, pa.Array],
        feature: ComparedFeature,
        found: Compared,
        millis: np.ndarray,
        worst: np.ndarray,
    ) -> dict[str, pa.Array]:
        """Which the worst are, for the driver to choose from."""
        keys = [canonical_values(columns[name].take(pa.array(worst))) for name in self.sides.keys]
        return {
            "feature": pa.array([feature.name] * worst.size, pa.string()),
            "row": pa.array(worst, pa.int64()),
            "severity": pa.array(found.errors[worst]),
            "at": pa.array(millis[worst], pa.int64()),
            "key": pa.array(hash_rows(keys).view(np.int64), pa.int64()),
        }


EXAMPLES = pa.schema(
    [
        ("__feature", pa.string()),
        ("__row", pa.int64()),  # among those that are compared together
        ("__severity", pa.float64()),
        ("__at", pa.int64()),
        ("__key", pa.int64()),  # a hash of it
    ]
)


def comparison_schema(compared: Sequence[Sides], results: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of comparisons, of all versions of a log: whose they are, then features."""
    first, schema = compared[0], results[0]
    fields = [schema.field(name) for name in (AT, *first.keys, *first.inputs)]
    fields += [schema.field(name) for name in OWN if name in schema.names and name != FRESH]
    fields.append(pa.field(VERSION, pa.string()))
    types: dict[str, pa.DataType] = {}
    for sides, result in zip(compared, results, strict=True):
        for one in sides.features:
            online, offline = (result.field(name).type for name in (one.online, one.offline))
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
    groups = [f for one in results if FRESH in one.names for f in one.field(FRESH).type]
    if groups:
        fields.append(pa.field(FRESH, pa.struct({f.name: f.type for f in groups}.items())))
    return canonical_schema(pa.schema(fields))


DOUBLE = pa.float64()


def _widened(values: pa.Array, type_: pa.StructType) -> pa.Array:
    """A struct with further fields, which are NULL."""
    known = {field.name for field in values.type}
    children = [
        values.field(field.name) if field.name in known else pa.nulls(len(values), field.type)
        for field in type_
    ]
    return pa.StructArray.from_arrays(children, fields=list(type_))


def _letters(table: pa.Table) -> np.ndarray:
    """Statuses as a matrix of bytes, a row each: all have as many letters as there are features."""
    texts = single_chunk(table.column(STATUSES))
    size = len(texts)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + size + 1]
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return data.reshape(size, -1)


def _worst(found: Compared, asked: np.ndarray, millis: np.ndarray, hours: np.ndarray) -> np.ndarray:
    """Places of the worst: some of each hour first, the largest errors before others."""
    bad = np.flatnonzero(asked & (found.outcomes >= Outcome.ONLY_ONLINE))
    if not bad.size:
        return bad
    order = bad[np.lexsort((millis[bad], -found.errors[bad], hours[bad]))]
    starts = np.flatnonzero(np.append(True, np.diff(hours[order]) != 0))
    rank = np.arange(order.size) - np.repeat(starts, np.diff(np.append(starts, order.size)))
    first = np.lexsort((-found.errors[order], rank))[:_PER_FEATURE]
    return order[first[rank[first] < _PER_HOUR]]
