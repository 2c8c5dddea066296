"""Retractions of rows that are not there: found before they are committed, by looking them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.errors import DataError
from windrow.spark.schemas import quoted
from windrow.spark.sql_errors import sql_errors
from windrow.spark.tasks import WrittenFile
from windrow.updates import DIFF
from windrow.views.collections import Collection
from windrow.views.names import Relation
from windrow.views.pending import part_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_retractions(
    session: SparkSession, table: Relation, collection: Collection, written: Sequence[WrittenFile]
) -> None:
    """Raise DataError if, with the files that were written, a row is there less than no times.

    Tasks look up what was written with the same key columns, and nothing else.
    """
    from pyspark.sql import functions as F  # noqa: N812

    parts = tuple(part_of(file, collection.spec.schema) for file in written)
    upper = max(part.name.upper for part in parts)
    new = replace(collection, parts=parts, upper=upper)
    after = replace(collection, parts=(*collection.parts, *parts), upper=upper)
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
