"""Changes that cannot be applied: kept apart, so that the rest can proceed.

A change feed may delete a row that nothing has inserted: it began later than its table, or the file
with the insertion is still to come. Such a row would be there less than no times. Instead, the
source's collection holds it once more for each time it is missing, under a number of its own:

    number   3   -1     delete of a row that nobody inserted
    number  -1   +1     what makes up for it: the row is there 0 times

When the insertion comes after all, it goes. And a change without a time belongs nowhere: it is
stored with a number of its lot, and retracted with another, so that it counts for nothing, is there
for whoever asks, and goes with its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.shard.append import write_dataframe
from windrow.shard.predicate import col
from windrow.spark.schemas import quoted
from windrow.spark.tasks import WrittenFile
from windrow.updates import DIFF
from windrow.views.history.collections import Collection
from windrow.views.sources.found import BoundSource
from windrow.views.sources.numbers import MISSING, NUMBER
from windrow.views.sources.tables import AT
from windrow.views.tables.retractions import only_written, with_written

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
    if not bound.relation.definition.get("quarantined"):
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


def has_quarantined(bound: BoundSource, written: Sequence[WrittenFile]) -> bool:
    """Whether anything was written that is about the quarantine."""
    parts = only_written(bound.collection, written).parts
    return any(part.bounds[NUMBER].low <= MISSING for part in parts)


def count_quarantined(bound: BoundSource, written: Sequence[WrittenFile]) -> int:
    """How many changes are in quarantine, once `written` has been added to the collection."""
    from pyspark.sql import functions as F  # noqa: N812

    found = _quarantine(with_written(bound.collection, written), bound, [])
    row = found.agg(F.sum(DIFF)).first()
    return int((row and row[0]) or 0)


def quarantined_rows(bound: BoundSource) -> DataFrame:
    """The changes that are left out, as rows, with `reason` and `times`."""
    from pyspark.sql import functions as F  # noqa: N812

    found = bound.relation.storable.from_stored(
        _quarantine(bound.collection, bound, bound.names), NUMBER, DIFF
    )
    signs = next((table.signs for table in bound.tables.values() if table.signs), None)
    no_time = "" if signs is None else f"{signs.known_at} is null"
    reason = F.when(F.col(NUMBER) == MISSING, F.lit("it goes, and is not there"))
    columns = [F.col(quoted(name)) for name in bound.names]
    named = [_free(name, bound.names) for name in ("reason", "times")]
    return found.select(
        *columns,
        reason.otherwise(F.lit(no_time)).alias(named[0]),
        F.col(DIFF).alias(named[1]),
    )


def _quarantine(collection: Collection, bound: BoundSource, names: Sequence[str]) -> DataFrame:
    """What is stored of the quarantine: `names`, `NUMBER`, and how often, in `_diff`."""
    from pyspark.sql import functions as F  # noqa: N812

    read = collection.snapshot(where=col(NUMBER) <= MISSING, columns=[*names, NUMBER])
    frame = read.dataframe(bound.session)
    kept = (F.col(NUMBER) == MISSING) | (F.col(NUMBER) % 2 == 0)  # not what cancels them
    return frame.where(kept).withColumn(DIFF, F.abs(F.col(DIFF)))


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no column has."""
    known = {one.lower() for one in taken}
    while name in known:
        name += "_"
    return name
