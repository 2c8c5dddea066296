"""Definitions under unit test: a few rows in, features out, in milliseconds and without Spark.

A backfill needs tables and a Spark session; whether a window, a condition or a default is the one
that was meant can be seen on five rows. The rows are Python data, the features are computed by
the code that a Spark task runs over its slice, and checks and errors are those of a backfill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from windrow.errors import DefinitionError, OptionError
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.features.inputs.queries import check_left_columns
from windrow.sources.definitions import Source
from windrow.sources.times import to_millis
from windrow.testing.groups import canonical, features_of
from windrow.testing.rows import Rows
from windrow.testing.sources import given_rows, raw_times, require_columns, selected, time_column
from windrow.testing.sql import evaluate
from windrow.time import DAY, first_millisecond

__all__ = ["backfill", "features"]

RowsLike: TypeAlias = "Sequence[Mapping[str, Any]] | pa.Table"
# Of a source with dated snapshots: the rows of each of its tables.
SourceRows: TypeAlias = "RowsLike | Mapping[str, RowsLike]"
Schemas: TypeAlias = "Mapping[str, pa.Schema]"


def features(
    group: GroupBy,
    events: SourceRows | Mapping[str, SourceRows],
    queries: RowsLike,
    *,
    time: str | None = None,
    schema: Schemas | None = None,
) -> list[dict[str, Any]]:
    """The queries with the features of one group, named without its prefix, in their order.

    `events` are the rows of the group's source; of several sources, a dict of rows by their names.
    `time` is the time column of the queries, by default that of the group's first source. `schema`
    maps a source's name to a pyarrow schema, for types that Python values do not tell.

    >>> import windrow as wr
    >>> from windrow import agg, testing
    >>> views = wr.EventSource(name="views", table="site/views.parquet", time="ts")
    >>> activity = wr.GroupBy(
    ...     "activity", views, ["user_id"], [agg.count("view_id").over("5h"), agg.max("price")]
    ... )
    >>> testing.features(
    ...     activity,
    ...     events=[
    ...         {"user_id": 1, "view_id": 7, "price": 19.9, "ts": "2021-09-29 20:00"},
    ...         {"user_id": 1, "view_id": 8, "price": 5.0, "ts": "2021-09-30 05:00"},
    ...     ],
    ...     queries=[{"user_id": 1, "ts": "2021-09-30 05:24"}],
    ... )
    [{'user_id': 1, 'ts': '2021-09-30 05:24', 'view_id_count_5h': 1, 'price_max': 19.9}]
    """
    if not isinstance(group, GroupBy):
        raise DefinitionError(f"testing.features: {group!r} is not a GroupBy")
    what, first = f"GroupBy {group.name!r}", group.sources[0]
    rows = {first.name: events} if len(group.sources) == 1 else events
    given = _source_rows({source.name: source for source in group.sources}, rows, schema, what)
    for source in group.sources:
        if source.name not in given:
            raise OptionError(f"{what}: no rows for source {source.name!r}; add it to events")
    time = first.time if time is None else time
    left = _left(Rows.make(queries, f"{what}: queries", [time]), time, f"{what}: queries")
    times = time_column(left, time, f"{what}: time {time!r}")
    found = features_of(JoinedGroup(group), given, left, times)
    names = [feature.name for feature in group.features]
    return _finished(_with_columns(left, names, found))


def backfill(
    join: Join,
    queries: RowsLike,
    sources: Mapping[str, SourceRows],
    *,
    start: str | date | None = None,
    end: str | date | None = None,
    schema: Schemas | None = None,
) -> list[dict[str, Any]]:
    """What `Project.backfill` gives for these rows, as dicts in the order of the queries.

    `sources` maps the name of each source to its rows, `schema` to a pyarrow schema. `start` and
    `end` are days (UTC), both included; without them all queries are answered.

    >>> import windrow as wr
    >>> from windrow import agg, testing
    >>> views = wr.EventSource(name="views", table="site/views.parquet", time="ts")
    >>> activity = wr.GroupBy("activity", views, ["user_id"], [agg.count("view_id").over("7d")])
    >>> training = wr.Join(
    ...     "training",
    ...     wr.Queries("site/checkouts.parquet", time="ts"),
    ...     [activity.on(user_id="buyer_id")],
    ...     derive={"views_per_day": "activity_view_id_count_7d / 7"},
    ... )
    >>> seen = [{"user_id": 1, "view_id": n, "ts": "2021-09-29"} for n in range(14)]
    >>> (row,) = testing.backfill(
    ...     training, [{"buyer_id": 1, "ts": "2021-09-30 05:24"}], sources={"views": seen}
    ... )
    >>> row["activity_view_id_count_7d"], row["views_per_day"]
    (14, 2.0)
    """
    if not isinstance(join, Join):
        raise DefinitionError(f"testing.backfill: {join!r} is not a Join")
    what = f"Join {join.name!r}"
    used = {source.name: source for g in join.all_groups for source in g.group.sources}
    given = _source_rows(used, sources, schema, what)
    for source in (source for g in join.groups for source in g.group.sources):
        if source.name not in given:
            raise OptionError(f"{what}: no rows for source {source.name!r}; add it to sources")
    left = Rows.make(queries, f"{what}: left", raw_times(join.left))
    left = _left(selected(left, join.left, f"{what}: left"), join.left.time, f"{what}: left")
    times = time_column(left, join.left.time, f"{what}: time {join.left.time!r}")
    kept = _within(times, start, end)
    left, times = left.filter(kept.tolist()), times.filter(pa.array(kept))
    result = left
    for group in join.groups:
        found = features_of(group, given, left, times)
        names = [group.column(feature) for feature in group.group.features]
        result = _with_columns(result, names, found)
    if not left.open:
        for name, text in join.derive.items():
            derived = evaluate(result.table, text, f"{what}: derive[{name!r}]")
            result = _with_columns(result, [name], [derived])
    return _finished(result)


def _source_rows(
    used: Mapping[str, Source], sources: Any, schema: Schemas | None, what: str
) -> dict[str, dict[str, Rows]]:
    """The rows of each table of the sources that are given, by the sources' names."""
    if not isinstance(sources, Mapping):
        raise OptionError(f"{what}: the rows are {sources!r}; give a dict of rows by source name")
    for name in [*sources, *(schema or {})]:
        if name not in used:
            close = get_close_matches(str(name), used, n=1) or list(used)
            raise OptionError(f"{what}: there is no source {name!r}; did you mean {close[0]!r}?")
    return {
        name: given_rows(used[name], rows, (schema or {}).get(name))
        for name, rows in sources.items()
    }


def _within(times: pa.Array, start: str | date | None, end: str | date | None) -> np.ndarray:
    """Which queries are requested; those without a time always are."""
    low, high = first_millisecond(start, "start"), first_millisecond(end, "end")
    if low is not None and high is not None and low > high:
        raise OptionError(f"start {start!s} is after end {end!s}")
    millis, valid = to_millis(times)
    outside = np.zeros(millis.size, np.bool_)
    if low is not None:
        outside |= millis < low
    if high is not None:
        outside |= millis >= high + DAY
    found: np.ndarray = ~(outside & valid)
    return found


def _left(rows: Rows, time: str, what: str) -> Rows:
    """The queries, checked as a backfill would."""
    rows = rows.extended([time])
    require_columns(rows, [time], f"{what}: time")
    check_left_columns(rows.table.column_names, what)
    return replace(rows, table=canonical(rows.table))


def _with_columns(rows: Rows, names: Sequence[str], arrays: Sequence[pa.Array]) -> Rows:
    table = rows.table
    for name, array in zip(names, arrays, strict=True):
        table = table.append_column(name, array)
    # A column of the same name is refused in the end; until then it must not hide the new one.
    given = {name: values for name, values in rows.given.items() if name not in names}
    return replace(rows, table=table, given=given)


def _finished(rows: Rows) -> list[dict[str, Any]]:
    canonical(rows.table)  # refuses a name that occurs twice
    return rows.to_python()
