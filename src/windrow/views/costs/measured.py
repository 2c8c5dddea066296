"""The size of what is kept: from what is known of its files, or counted by Spark.

Files tell how many updates there are, and of them how many are retractions: what is left of each
pair of an update and its retraction is at most one record. Counting consolidates all updates, in
tasks, and so reads everything; only numbers come back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from windrow.rows.hashing import hash_rows
from windrow.shard.merge import Consolidation, read_slice
from windrow.shard.part import CONSOLIDATED
from windrow.shard.plan import SLICE_ROWS, runs_of
from windrow.shard.scan import Counters, Scan, Slice
from windrow.spark.session import parallelism
from windrow.views.history.collections import Collection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALLEST_SLICE_ROWS = 200_000


@dataclass(frozen=True)
class Measured:
    """The size of a collection. Unless it is `exact`, `records` is the most that it can be."""

    records: int
    exact: bool
    distinct_keys: int | None  # None: not counted
    bytes: int
    batches: int  # runs that a read merges
    updates: int
    updates_since_compaction: int  # those that the oldest run does not hold


def measured(collection: Collection) -> Measured:
    """What is known of a collection without reading it."""
    parts = collection.parts
    updates = sum(part.rows for part in parts)
    retractions = sum(part.name.retractions for part in parts)
    oldest = min((part.name.lower for part in parts), default=0)
    merged = sum(part.rows for part in parts if part.name.lower == oldest)
    runs = len(runs_of(parts))
    is_whole = runs <= 1 and all(part.name.form == CONSOLIDATED for part in parts)
    exact = not parts or (is_whole and len({part.time for part in parts}) == 1 and not retractions)
    return Measured(
        updates - retractions,
        exact,
        0 if not parts else None,
        sum(part.bytes for part in parts),
        runs,
        updates,
        updates - merged,
    )


@dataclass(frozen=True)
class _Share:
    """What a task finds in one slice of a collection."""

    collection: str
    slice: int
    records: int
    keys: int
    first: int  # hashes of the first and the last key: a key may lie in two slices
    last: int


def counted(spark: SparkSession, collections: Mapping[str, Collection]) -> dict[str, Measured]:
    """The exact sizes of collections, by one Spark job over all of them."""
    pieces: list[_Piece] = []
    for id, collection in collections.items():
        if collection.parts:
            read = collection.snapshot()
            rows = sum(part.rows for part in collection.parts)
            wanted = max(parallelism(spark), -(-rows // SLICE_ROWS))
            slices = read.plan(max(1, min(wanted, rows // _SMALLEST_SLICE_ROWS))).slices
            pieces += [_Piece(id, at, read.scan, one) for at, one in enumerate(slices)]
    shares = _shares(spark, pieces) if pieces else []
    found = {}
    for id, collection in collections.items():
        own = sorted((one for one in shares if one.collection == id), key=lambda one: one.slice)
        own = [one for one in own if one.records]
        twice = sum(a.last == b.first for a, b in itertools.pairwise(own))
        found[id] = replace(
            measured(collection),
            records=sum(one.records for one in own),
            exact=True,
            distinct_keys=sum(one.keys for one in own) - twice,
        )
    return found


@dataclass(frozen=True)
class _Piece:
    """One slice of a collection to count."""

    collection: str
    number: int
    scan: Scan
    slice: Slice

    def share(self) -> _Share:
        """Records and keys of the slice. They come in order, so equal keys are neighbours."""
        records = keys = 0
        first: int | None = None
        last: int | None = None
        for batch in read_slice(self.scan, self.slice, Consolidation.FULL, Counters()):
            if batch.num_rows:
                records += batch.num_rows
                hashes = hash_rows([batch.column(name) for name in self.scan.spec.key])
                first = int(hashes[0]) if first is None else first
                keys += int((hashes[1:] != hashes[:-1]).sum()) + (last != int(hashes[0]))
                last = int(hashes[-1])
        return _Share(self.collection, self.number, records, keys, first or 0, last or 0)


def _shares(spark: SparkSession, pieces: list[_Piece]) -> list[_Share]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        for number in numbers:
            found = vars(pieces[number].share())
            yield pa.record_batch([[value] for value in found.values()], names=list(found))

    fields = [StructField(name, LongType()) for name in _Share.__dataclass_fields__]
    fields[0] = StructField("collection", StringType())
    # Most collections are small: a task for each would take longer than all of them.
    partitions = min(len(pieces), 4 * parallelism(spark))
    frame = spark.range(0, len(pieces), 1, partitions).mapInArrow(run, StructType(fields))
    return [_Share(*row) for row in frame.collect()]
