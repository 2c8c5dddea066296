"""What changed in a relation between two times, as a change feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import OptionError, TimeRangeError
from windrow.spark.schemas import quoted
from windrow.updates import DIFF, TIME
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.times import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGE, TIMESTAMP, VERSION = "_change_type", "_commit_timestamp", "_commit_version"
_BOTH = "__windrow_both"


def changes_frame(
    relations: Relations, history: History, name: str, start: int, end: int | None
) -> DataFrame:
    """The changes after `start`, up to and with `end`, each as often as it happened.

    What was there at `start`, with these changes, is what is there at `end`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    relation = relations.find(name)
    collection = history.collection(relation.collection)
    newest = history.ticked if relation.kind == "view" else history.time
    until = newest if end is None else end
    if start < collection.since or until > newest:
        raise TimeRangeError(
            f"{relation.kind} {relation.name}: its changes are known from "
            f"{shown(collection.since)} to {shown(newest)}, not from {shown(start)} to "
            f"{shown(until)}"
        )
    if start > until:
        raise OptionError(f"start, {shown(start)}, is after end, {shown(until)}")
    # Of the columns that are seen: rows of a source that only move to another file do not change.
    read = collection.changes(start + 1, until + 1, columns=relation.schema.names)
    stored = read.dataframe(relations.session)
    found = relation.storable.from_stored(stored, TIME, DIFF)
    found = found.withColumn(CHANGE, F.when(F.col(DIFF) > 0, "insert").otherwise("delete"))
    if relation.key:
        found = _with_updates(found, relation)
    found = found.withColumn(TIMESTAMP, F.timestamp_millis(F.col(TIME)))
    found = found.withColumn(VERSION, F.col(TIME))
    times = F.array_repeat(F.lit(0), F.abs(F.col(DIFF)).cast("int"))
    names = [*relation.schema.names, CHANGE, TIMESTAMP, VERSION]
    return found.withColumn(DIFF, F.explode(times)).select(*(F.col(quoted(n)) for n in names))


def _with_updates(frame: DataFrame, relation: Relation) -> DataFrame:
    """A key that goes and comes at one time was updated."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    group = Window.partitionBy(TIME, *(quoted(name) for name in relation.key))
    diff = F.col(DIFF)
    both = (F.min(diff).over(group) < 0) & (F.max(diff).over(group) > 0)
    image = F.when(diff > 0, "update_postimage").otherwise("update_preimage")
    change = F.when(F.col(_BOTH), image).otherwise(F.col(CHANGE))
    return frame.withColumn(_BOTH, both).withColumn(CHANGE, change).drop(_BOTH)
