"""The rows of a relation by key, kept once for all views that look them up.

Such a collection has the columns that some view needs. A view that needs more of them gets a wider
one, which takes the place of the other for all views: what is stored twice is never both needed.
Ticks keep it up to date where they read the relation's changes (see `stages.changes_of`); here it
is filled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.spark.schemas import arrow_to_spark_schema, quoted, spark_to_arrow_schema
from windrow.spark.tasks import WrittenFile
from windrow.storage.names import new_id
from windrow.updates import DIFF
from windrow.views.history.collections import Collection
from windrow.views.history.history import History
from windrow.views.plan.nodes import Arrangement
from windrow.views.run.jobs import JobFolders, executed
from windrow.views.run.paths import Keep
from windrow.views.run.stages import ReadChanges
from windrow.views.run.task import Arranged, Job, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Shared:
    """Where the rows of a relation by key are kept: a collection, and the one it replaces."""

    id: str
    is_new: bool
    replaces: str | None = None


def placed(history: History, arrangement: Arrangement, existing: str | None) -> Shared:
    """The collection for an arrangement of a relation's rows: the one that is there, or a new one
    with all of its columns and those that are needed."""
    assert arrangement.source is not None
    needed = {*arrangement.key, *arrangement.schema.names}
    if existing is not None:
        there = set(history.collection(existing).spec.schema.names)
        if needed <= there:
            return Shared(existing, is_new=False)
        needed |= there
    source = history.collection(arrangement.source).spec.schema
    schema = pa.schema([field for field in source if field.name in needed])
    # In the relation's order: views may have the same key in another one.
    key = [name for name in source.names if name in arrangement.key]
    return Shared(history.create_collection(schema, key), True, existing)


def fill(
    spark: SparkSession,
    folders: JobFolders,
    source: Collection,
    target: Collection,
    at: int,
    partitions: int | None,
) -> Sequence[WrittenFile]:
    """Write all rows of a relation at a time to `target`, by its key; the parts."""
    job = Job.at(folders.new(), spark.sparkContext)
    count = partitions or 1
    names, key = tuple(target.spec.schema.names), target.spec.key
    fields = [*target.spec.schema, pa.field(DIFF, pa.int64())]
    struct = arrow_to_spark_schema(pa.schema(fields))
    given = spark_to_arrow_schema(struct)
    numbers = pa.schema([("n", pa.int64())])
    read = ReadChanges(job, 0, numbers, given, source.id, names, count, False)
    frame = spark.range(0, count, 1, count).mapInArrow(read, struct)
    if partitions is not None:
        frame = frame.repartition(count, *map(quoted, key))
    nothing = pa.schema([("nothing", pa.int64())])
    arranged = Arranged(target.id, key, target.spec.schema, True)
    stage = Keep(job, 1, given, nothing, arranged, names)
    made = frame.mapInArrow(stage, arrow_to_spark_schema(nothing))
    found: Mapping[str, Collection] = {one.id: one for one in (source, target)}
    about = {id: one.to_json() for id, one in found.items()}
    run = Run(new_id(), at, 0, True, [target.id], about)
    try:
        return executed(job, made, run).parts.get(target.id, [])
    finally:
        job.folder.remove()
