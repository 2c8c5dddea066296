"""Sources of rows, as users define them: logs of events, tables that change, landed aggregates.

All are frozen and checked when made; errors name the field and suggest a fix. What can only be
known with the data at hand (columns, types) is checked when a source is bound to its tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.errors import DefinitionError
from windrow.sources.expressions import refuse_subquery
from windrow.sources.partitions import PartitionRange
from windrow.sources.streams import Stream, TakenIn, check_stream
from windrow.time import DAY, parse_length

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_NAME = 100  # folders are called after names, with more behind them
_FEEDS: tuple[list[str], ...] = ([], ["mutations"], ["changes"])  # what a stream can continue

Select = Mapping[str, str] | Sequence[str] | None


def check_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{what}: {name!r} is not a name; use letters, digits and underscores, not starting "
            "with a digit"
        )
    if len(name) > _LONGEST_NAME:
        raise DefinitionError(
            f"{what}: {name[:20]!r}... has {len(name)} characters; use at most {_LONGEST_NAME}"
        )
    return name


def check_names(values: Any, what: str) -> tuple[str, ...]:
    if isinstance(values, str):
        raise DefinitionError(f"{what} is {values!r}; give a list, [{values!r}]")
    names = tuple(values)
    for name in names:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"{what}: {name!r} is not the name of a column")
    if len(set(names)) < len(names):
        raise DefinitionError(f"{what} names a column twice: {list(names)}")
    return names


def selected(select: Any, what: str) -> tuple[tuple[str, str], ...]:
    """Columns as (name, Spark SQL expression), from a mapping or a list of column names."""
    if select is None:
        return ()
    if isinstance(select, Mapping):
        items = tuple((str(name), expression) for name, expression in select.items())
    else:
        items = tuple((name, name) for name in check_names(select, what))
    for name, expression in items:
        if not isinstance(expression, str) or not expression.strip():
            raise DefinitionError(f"{what}: the expression of {name!r} is {expression!r}")
    return items


def check_table(table: Any, what: str) -> None:
    if table is None or (isinstance(table, str) and not table.strip()):
        raise DefinitionError(f"{what}: table is {table!r}; give a table, a path or a DataFrame")


def check_column(name: Any, what: str, of: str = "a column") -> None:
    if not isinstance(name, str) or not name.strip():
        raise DefinitionError(f"{what} is {name!r}; it has to be the name of {of}")


def check_condition(where: Any, what: str) -> None:
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise DefinitionError(f"{what} is {where!r}; it has to be a condition in Spark SQL")


def partition_range(source: Any, what: str) -> PartitionRange | None:
    """The partitions that a source names, checked."""
    if source.partition is None:
        if source.start_partition is not None or source.end_partition is not None:
            raise DefinitionError(f"{what}: a range of partitions needs partition=, their column")
        return None
    check_column(source.partition, f"{what}: partition")
    try:
        return PartitionRange(
            source.partition,
            source.start_partition,
            source.end_partition,
            source.missing_partitions,
        )
    except DefinitionError as error:
        raise DefinitionError(f"{what}: {error}") from None


class Source:
    """What all sources share. `what` names the source in errors."""

    name: str
    time: str
    select: Select
    where: str | None
    stream: Stream | None = None

    @property
    def what(self) -> str:
        return f"{type(self).__name__} {self.name!r}"

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        return selected(self.select, f"{self.what}: select")

    @property
    def partitions(self) -> PartitionRange | None:
        return partition_range(self, self.what)

    @property
    def refresh(self) -> int:
        """How often, in milliseconds, a group with accuracy `snapshot` sees something new."""
        return DAY

    def refuses(self, accuracy: str) -> str | None:
        """Why a group over this source cannot have an accuracy; None if it can."""
        return None

    def _check(self) -> None:
        check_name(self.name, f"{type(self).__name__}.name")
        check_column(self.time, f"{self.what}: time")
        partition_range(self, self.what)
        for _, text in selected(self.select, f"{self.what}: select"):
            refuse_subquery(text, f"{self.what}: select")
        check_condition(self.where, f"{self.what}: where")
        refuse_subquery(self.where, f"{self.what}: where")
        check_stream(self.stream, self.what)

    def _needs_schema(self) -> None:
        """Without a table, only the stream can say which columns there are."""
        if self.stream is None or isinstance(self.stream, TakenIn):
            return
        if self.stream.schema is None:
            raise DefinitionError(
                f"{self.what}: there is a stream and no table that would tell its columns; list "
                "them in schema= of the stream"
            )


@dataclass(frozen=True)
class EventSource(Source):
    """A log of events: rows that are only ever added, each with a time of its own.

    `table` is a Spark table or view, a path or URI, or a DataFrame. `time` is a TIMESTAMP, a DATE
    (its midnight) or a BIGINT of milliseconds. `known` names the column that says when a row
    became known: it counts only for queries after that. `partition` names the date column by
    which the table is laid out; with `start_partition` and `end_partition` (days, both included)
    only those days are read, and all of them have to be there unless `missing_partitions` is
    "ignore".

    With a `stream`, a `KafkaStream` or a `FolderStream`, the table is what happened before the
    stream began, and may be left out.
    """

    name: str
    table: Any = field(default=None, compare=False)
    time: str = ""
    partition: str | None = None
    select: Select = None
    where: str | None = None
    known: str | None = None
    start_partition: str | None = None
    end_partition: str | None = None
    missing_partitions: str = "error"
    stream: Stream | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "EventSource.name")
        if self.stream is None or self.table is not None:
            check_table(self.table, self.what)
        self._check()
        if self.table is None:
            self._needs_schema()
        if self.stream is not None and self.stream.envelope is not None:
            raise DefinitionError(
                f"{self.what}: stream: envelope={self.stream.envelope!r} tells how rows change; "
                "give the stream to an EntitySource"
            )
        if self.known is not None:
            check_column(self.known, f"{self.what}: known")


@dataclass(frozen=True)
class PreAggregatedSource(Source):
    """Aggregates that land at fixed intervals: partial sums, or finished values.

    A row covers the interval of length `every` (such as "1d" or "1h") that starts at `time`, and
    is there once the interval has passed. Features over it change only then, so their group has
    accuracy `snapshot`; windows count whole intervals. Partial sums are summed (`agg.sum`),
    partial extremes take `agg.min` or `agg.max`, finished values `agg.last`.
    """

    name: str
    table: Any = field(compare=False)
    time: str
    every: str = "1d"
    partition: str | None = None
    select: Select = None
    where: str | None = None
    start_partition: str | None = None
    end_partition: str | None = None
    missing_partitions: str = "error"

    def __post_init__(self) -> None:
        check_name(self.name, "PreAggregatedSource.name")
        check_table(self.table, self.what)
        self._check()
        if DAY % parse_length(self.every, "every"):
            raise DefinitionError(
                f"{self.what}: every {self.every!r} does not divide a day; use '1d' or '1h', say"
            )

    @property
    def refresh(self) -> int:
        return parse_length(self.every, "every")

    def refuses(self, accuracy: str) -> str | None:
        if accuracy == "snapshot":
            return None
        return (
            f"its rows are aggregates that land every {self.every}, so nothing is known of the "
            "times between; set accuracy='snapshot'"
        )


@dataclass(frozen=True)
class EntitySource(Source):
    """A table that changes: rows are inserted, updated and deleted.

    One of four:

    - `mutations`: a log with a row for each image before and after a change. `is_before` is the
      column that tells them apart, `mutation_time` the one with the time of the change. An
      insert has only the image after, a delete only the one before.
    - `changes`: a change feed with `_change_type` (insert, update_preimage, update_postimage,
      delete) and `_commit_timestamp` (or the column named by `mutation_time`).
    - `shard`: a shard (its URI, or a `Shard`); its own times are those of the changes.
    - `view`: the name of a table, a source or a materialized view of the project that computes
      the features; the times of its commits, or of its ticks, are those of the changes.

    To `mutations` dated `snapshots` can be added: the whole table at the end of each day, the day
    in the column `partition`. Snapshots alone do for groups with accuracy `snapshot`.

    `mutations` and `changes` can go on as a `stream`, of messages with the same columns or, with
    `envelope="debezium"`, of Debezium's. A stream alone is one of changes.

    `time` is the row's own time, on which windows decay.
    """

    name: str
    time: str
    snapshots: Any = field(default=None, compare=False)
    mutations: Any = field(default=None, compare=False)
    changes: Any = field(default=None, compare=False)
    shard: Any = field(default=None, compare=False)
    mutation_time: str | None = None
    is_before: str = "is_before"
    change_type: str = "_change_type"
    partition: str | None = None
    select: Select = None
    where: str | None = None
    start_partition: str | None = None
    end_partition: str | None = None
    missing_partitions: str = "error"
    view: str | None = None
    stream: Stream | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "EntitySource.name")
        self._check()
        if self.view is not None:
            check_column(self.view, f"{self.what}: view", "a table or view of the project")
        given = [
            name
            for name in ("mutations", "changes", "shard", "view")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise DefinitionError(f"{self.what}: give one of {' and '.join(given)}, not both")
        if self.snapshots is None and not given and self.stream is None:
            raise DefinitionError(
                f"{self.what}: give mutations=, changes=, shard=, view=, snapshots= or stream=: "
                "where its rows are"
            )
        if self.stream is not None and (self.snapshots is not None or given not in _FEEDS):
            other = "snapshots" if self.snapshots is not None else given[0]
            raise DefinitionError(
                f"{self.what}: a stream goes on where mutations or changes end, not with {other}"
            )
        if not given:
            self._needs_schema()
        if self.snapshots is not None and given and given != ["mutations"]:
            raise DefinitionError(f"{self.what}: snapshots go with mutations, not with {given[0]}")
        if self.snapshots is not None and self.partition is None:
            raise DefinitionError(
                f"{self.what}: snapshots need partition=, the column with the day of each"
            )
        check_column(self.is_before, f"{self.what}: is_before")
        check_column(self.change_type, f"{self.what}: change_type")
        if self.mutation_time is not None:
            check_column(self.mutation_time, f"{self.what}: mutation_time")

    @property
    def feed(self) -> str:
        """The form of its changes, in a table or a stream: `mutations` or `changes`."""
        return "mutations" if self.mutations is not None else "changes"

    @property
    def known_at(self) -> str:
        """The column that says when a change became known: the time of the mutation."""
        if self.mutation_time is not None:
            return self.mutation_time
        return "mutation_time" if self.mutations is not None else "_commit_timestamp"

    def refuses(self, accuracy: str) -> str | None:
        if self.snapshots is None or self.mutations is not None or accuracy == "snapshot":
            return None
        return (
            "with snapshots alone nothing is known of the times between two midnights; add "
            "mutations=, or set accuracy='snapshot'"
        )
