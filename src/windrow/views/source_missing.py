"""Retractions of rows that are not there: kept apart, so that the rest can proceed.

A change feed may delete a row that nothing has inserted: it began later than its table, or the file
with the insertion is still to come. Such a row would be there less than no times. Instead, the
source's collection holds it once more for each time it is missing, under a number of its own:

    number   3   -1     delete of a row that nobody inserted
    number  -1   +1     what makes up for it: the row is there 0 times

The rows of that number are the source's quarantine. When the insertion comes after all, they go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.shard.append import write_dataframe
from windrow.shard.predicate import col
from windrow.spark.schemas import quoted
from windrow.spark.tasks import WrittenFile
from windrow.updates import DIFF
from windrow.views.retractions import only_written, with_written
from windrow.views.source_files import NUMBER
from windrow.views.source_found import MISSING, BoundSource
from windrow.views.source_tables import AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWN, _MADE_UP = "__windrow_own", "__windrow_made_up"


def make_up(bound: BoundSource, written: Sequence[WrittenFile], at: int) -> list[WrittenFile]:
    """Write what makes up for missing rows, once `written` has been added to the collection.

    Tasks look up rows that go; if rows are missing already, those that come, too.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not written:
        return []
    collection, names = bound.collection, bound.names
    new, after = only_written(collection, written), with_written(collection, written)
    touched = new.snapshot(columns=names).dataframe(bound.session)
    if not missing_of(bound):
        touched = touched.where(F.col(DIFF) < 0)
    everything = after.snapshot(columns=[*names, NUMBER])
    if NUMBER in collection.spec.key:  # the rows are maps, and cannot be looked up
        found = everything.dataframe(bound.session)
    else:
        keys = touched.select(*(F.col(quoted(name)) for name in collection.spec.key))
        found = everything.lookup(keys)
    diff, made_up = F.col(DIFF), F.col(NUMBER) == MISSING
    sums = found.groupBy(*(F.col(quoted(name)) for name in names)).agg(
        F.sum(F.when(made_up, F.lit(0)).otherwise(diff)).alias(_OWN),
        F.sum(F.when(made_up, diff).otherwise(F.lit(0))).alias(_MADE_UP),
    )
    wanted = F.greatest(F.lit(0), -F.col(_OWN)) - F.col(_MADE_UP)
    columns = [F.col(quoted(name)) for name in names]
    more = [F.lit(0).cast("long").alias(AT)] if bound.dated else []
    frame = sums.select(
        *columns, F.lit(MISSING).cast("int").alias(NUMBER), *more, wanted.cast("long").alias(DIFF)
    ).where(F.col(DIFF) != 0)
    return list(write_dataframe(frame, collection.writer(at), None).parts)


def count_missing(bound: BoundSource, written: Sequence[WrittenFile]) -> int:
    """How many rows are missing, once `written` has been added to the collection."""
    from pyspark.sql import functions as F  # noqa: N812

    after = with_written(bound.collection, written)
    read = after.snapshot(where=col(NUMBER) == MISSING, columns=[NUMBER])
    row = read.dataframe(bound.session).agg(F.sum(DIFF)).first()
    return int((row and row[0]) or 0)


def missing_of(bound: BoundSource) -> int:
    """How many rows are missing, as of the last commit."""
    return int(bound.relation.definition.get("missing", 0))


def missing_rows(bound: BoundSource, count: str) -> DataFrame:
    """The rows that are missing, each with how often, in the column `count`."""
    from pyspark.sql import functions as F  # noqa: N812

    read = bound.collection.snapshot(where=col(NUMBER) == MISSING, columns=bound.names)
    rows = bound.relation.storable.from_stored(read.dataframe(bound.session), DIFF)
    columns = [F.col(quoted(name)) for name in bound.names]
    return rows.select(*columns, F.col(DIFF).alias(count))
