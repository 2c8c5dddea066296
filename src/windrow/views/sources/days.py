"""The days of a source's files: by their folders, or by looking through those that are new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.spark.schemas import quoted
from windrow.views.sources.files import source_errors
from windrow.views.sources.numbers import NUMBER
from windrow.views.sources.tables import SourceTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Days = dict[str, Any]  # by file: its stamp, and the days of its rows, None for NULL


def days_of_files(
    session: SparkSession, table: SourceTable, stamps: Mapping[str, str], known: Mapping[str, Any]
) -> Days:
    """The days in each file; those of `known` are only looked at again if they were rewritten."""
    from pyspark.sql import functions as F  # noqa: N812

    files = table.files
    assert files is not None
    assert files.days is not None
    found = {n: list(known[n]) for n in stamps if n in known and known[n][0] == stamps[n]}
    new = [name for name in stamps if name not in found]
    if not new:
        return found
    numbers = {name: place for place, name in enumerate(new)}
    found |= {name: [stamps[name], []] for name in new}
    with source_errors(files.what):
        rows = files.rows(session, table.columns, numbers)
        day = F.col(quoted(files.days.column)).cast("string").alias("day")
        days = rows.select(F.col(NUMBER), day).distinct().sort("day").collect()  # days, not rows
    for row in days:
        found[new[row[NUMBER]]][1].append(row["day"])
    return found


def checked_days(
    session: SparkSession, table: SourceTable, stamps: Mapping[str, str], known: Mapping[str, Any]
) -> Days | None:
    """Raise if a day of the range is missing. None if that is clear without looking into files."""
    files = table.files
    assert files is not None
    days = files.days
    if days is None or days.is_open or days.missing == "ignore":
        return None
    if files.by_day(list(stamps)) is not None:
        return None  # `chosen` has looked
    found = days_of_files(session, table, stamps, known)
    days.check(sorted({day for _, of_file in found.values() for day in of_file if day}), files.what)
    return found
