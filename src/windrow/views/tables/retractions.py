"""Retractions that may not be, found before they are committed.

Of rows that are not there, by looking them up; and any at all, where rows only come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.errors import DataError
from windrow.spark.schemas import quoted
from windrow.spark.sql_errors import sql_errors
from windrow.spark.tasks import WrittenFile
from windrow.updates import DIFF
from windrow.views.history.collections import Collection
from windrow.views.history.pending import part_of
from windrow.views.relations.names import Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_retractions(
    session: SparkSession, table: Relation, collection: Collection, written: Sequence[WrittenFile]
) -> None:
    """Raise DataError if, with the files that were written, a row is there less than no times.

    Tasks look up what was written with the same key columns, and nothing else.
    """
    from pyspark.sql import functions as F  # noqa: N812

    new, after = only_written(collection, written), with_written(collection, written)
    with sql_errors():
        gone = new.snapshot().dataframe(session).filter(F.col(DIFF) < 0)
        keys = gone.select(*(F.col(quoted(name)) for name in collection.spec.key))
        found = after.snapshot().lookup(keys).filter(F.col(DIFF) < 0).limit(1)
        rows = table.storable.from_stored(found, DIFF).collect()
    for row in rows:
        values = row.asDict(recursive=True)
        less = -values.pop(DIFF)
        raise DataError(
            f"table {table.name}: a row is deleted {less} time{'s' if less > 1 else ''} more often "
            f"than it is there: {values!r:.300}; nothing was applied"
        )


def refuse_retractions(
    session: SparkSession, table: Relation, collection: Collection, written: Sequence[WrittenFile]
) -> None:
    """Raise DataError if the files that were written retract a row of an append-only table."""
    row = retracted_row(session, table, collection, written, collection.spec.schema.names)
    if row is not None:
        raise DataError(
            f"table {table.name} is append-only, and a row would be deleted or updated: "
            f"{row!r:.300}; nothing was changed. {give_up(table)}"
        )


def retracted_row(
    session: SparkSession,
    table: Relation,
    collection: Collection,
    written: Sequence[WrittenFile],
    columns: Sequence[str],
) -> dict[str, Any] | None:
    """A row that goes more often than it comes, by some columns; None if there is none."""
    from pyspark.sql import functions as F  # noqa: N812

    new = only_written(collection, written)
    known = [field.name for field in table.schema]
    with sql_errors():
        read = new.snapshot(columns=list(columns)).dataframe(session)
        found = read.filter(F.col(DIFF) < 0).limit(1)
        more = [name for name in columns if name not in known]
        rows = table.storable.from_stored(found, DIFF, *more).collect()
    for row in rows:
        values: dict[str, Any] = row.asDict(recursive=True)
        values.pop(DIFF)
        return values
    return None


def give_up(relation: Relation) -> str:
    """What to do if rows of an append-only relation have to go after all."""
    return (
        f"If rows have to go, ALTER TABLE {relation.name} UNSET TBLPROPERTIES ('append_only'), and "
        "REFRESH the views whose plans rely on it"
    )


def only_written(collection: Collection, written: Sequence[WrittenFile]) -> Collection:
    """What was written for the next batch of a collection, and nothing else."""
    parts = tuple(part_of(file, collection.spec.schema) for file in written)
    upper = max((part.name.upper for part in parts), default=collection.upper)
    return replace(collection, parts=parts, upper=upper)


def with_written(collection: Collection, written: Sequence[WrittenFile]) -> Collection:
    """A collection with what was written for its next batch."""
    new = only_written(collection, written)
    return replace(new, parts=(*collection.parts, *new.parts))
