"""Definitions: sources, groups of aggregates, and the join that puts them beside queries.

All are frozen and checked when made; errors name the field and suggest a fix. What can only be
known with the data at hand (columns, types) is checked when a definition is bound to its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.algebra.aggregation import Aggregation, Feature
from windrow.errors import DefinitionError
from windrow.sources.partitions import PartitionRange

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ACCURACIES = ("temporal", "snapshot")


def check_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{what}: {name!r} is not a name; use letters, digits and underscores, not starting "
            "with a digit"
        )
    return name


def _names(values: Any, what: str) -> tuple[str, ...]:
    if isinstance(values, str):
        raise DefinitionError(f"{what} is {values!r}; give a list, [{values!r}]")
    names = tuple(values)
    for name in names:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"{what}: {name!r} is not the name of a column")
    if len(set(names)) < len(names):
        raise DefinitionError(f"{what} names a column twice: {list(names)}")
    return names


def _select(select: Any, what: str) -> tuple[tuple[str, str], ...]:
    """Columns as (name, Spark SQL expression), from a mapping or a list of column names."""
    if select is None:
        return ()
    if isinstance(select, Mapping):
        items = tuple((str(name), expression) for name, expression in select.items())
    else:
        items = tuple((name, name) for name in _names(select, what))
    for name, expression in items:
        if not isinstance(expression, str) or not expression.strip():
            raise DefinitionError(f"{what}: the expression of {name!r} is {expression!r}")
    return items


@dataclass(frozen=True)
class EventSource:
    """A log of events: rows that are only ever added, each with a time of its own.

    `table` is a Spark table or view, a path or URI, or a DataFrame. `time` is a TIMESTAMP, a DATE
    (its midnight) or a BIGINT of milliseconds. `partition` names the date column by which the
    table is laid out; with `start_partition` and `end_partition` (days, both included) only those
    days are read, and all of them have to be there unless `missing_partitions` is "ignore".
    """

    name: str
    table: Any = field(compare=False)
    time: str
    partition: str | None = None
    select: Mapping[str, str] | Sequence[str] | None = None
    where: str | None = None
    start_partition: str | None = None
    end_partition: str | None = None
    missing_partitions: str = "error"

    def __post_init__(self) -> None:
        check_name(self.name, "EventSource.name")
        _check_table(self.table, f"EventSource {self.name!r}")
        _check_column(self.time, f"EventSource {self.name!r}: time")
        _check_partitions(self, f"EventSource {self.name!r}")
        _select(self.select, f"EventSource {self.name!r}: select")
        _check_condition(self.where, f"EventSource {self.name!r}: where")

    @property
    def partitions(self) -> PartitionRange | None:
        return _partitions(self)

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        return _select(self.select, f"EventSource {self.name!r}: select")


@dataclass(frozen=True)
class Queries:
    """The left side of a join: rows with keys and a time, each to be given features."""

    table: Any = field(compare=False)
    time: str
    select: Mapping[str, str] | Sequence[str] | None = None
    where: str | None = None
    partition: str | None = None
    start_partition: str | None = None
    end_partition: str | None = None
    missing_partitions: str = "error"

    def __post_init__(self) -> None:
        _check_table(self.table, "Queries")
        _check_column(self.time, "Queries: time")
        _check_partitions(self, "Queries")
        _select(self.select, "Queries: select")
        _check_condition(self.where, "Queries: where")

    @property
    def partitions(self) -> PartitionRange | None:
        return _partitions(self)

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        return _select(self.select, "Queries: select")


def _partitions(source: EventSource | Queries) -> PartitionRange | None:
    if source.partition is None:
        return None
    return PartitionRange(
        source.partition, source.start_partition, source.end_partition, source.missing_partitions
    )


def _check_partitions(source: EventSource | Queries, what: str) -> None:
    if source.partition is not None:
        _check_column(source.partition, f"{what}: partition")
    elif source.start_partition is not None or source.end_partition is not None:
        raise DefinitionError(f"{what}: a range of partitions needs partition=, their column")
    try:
        _partitions(source)
    except DefinitionError as error:
        raise DefinitionError(f"{what}: {error}") from None


def _check_table(table: Any, what: str) -> None:
    if table is None or (isinstance(table, str) and not table.strip()):
        raise DefinitionError(f"{what}: table is {table!r}; give a table, a path or a DataFrame")


def _check_column(name: Any, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise DefinitionError(f"{what} is {name!r}; it has to be the name of a column")


def _check_condition(where: Any, what: str) -> None:
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise DefinitionError(f"{what} is {where!r}; it has to be a condition in Spark SQL")


@dataclass(frozen=True)
class GroupBy:
    """Aggregates over a source's events, by key. Each aggregation and window is a feature."""

    name: str
    source: EventSource
    keys: Sequence[str]
    aggregations: Sequence[Aggregation]
    accuracy: str = "temporal"
    online: bool = True
    offline: bool = True

    def __post_init__(self) -> None:
        what = f"GroupBy {check_name(self.name, 'GroupBy.name')!r}"
        if not isinstance(self.source, EventSource):
            raise DefinitionError(f"{what}: source is {self.source!r}; give an EventSource")
        object.__setattr__(self, "keys", _names(self.keys, f"{what}: keys"))
        if not self.keys:
            raise DefinitionError(f"{what}: keys is empty; name at least one column")
        if isinstance(self.aggregations, Aggregation):
            raise DefinitionError(f"{what}: aggregations is one aggregation; put it into a list")
        aggregations = tuple(self.aggregations)
        if not aggregations:
            raise DefinitionError(f"{what}: aggregations is empty; add agg.count('id'), say")
        for aggregation in aggregations:
            if not isinstance(aggregation, Aggregation):
                raise DefinitionError(
                    f"{what}: {aggregation!r} is not an aggregation; make one with windrow.agg"
                )
        object.__setattr__(self, "aggregations", aggregations)
        if self.accuracy not in ACCURACIES:
            raise DefinitionError(
                f"{what}: accuracy is {self.accuracy!r}; it is one of {list(ACCURACIES)}"
            )
        _check_unique((f.name for f in self.features), f"{what}: feature", "use .named(...)")
        clash = {f.name for f in self.features} & set(self.keys)
        if clash:
            raise DefinitionError(f"{what}: {sorted(clash)} are both keys and features")

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features in order: every aggregation with each of its windows."""
        return tuple(f for aggregation in self.aggregations for f in aggregation.features())

    def on(self, **mapping: str) -> JoinedGroup:
        """This group, with keys that have other names on the left: `on(user_id="buyer_id")`."""
        return JoinedGroup(self).on(**mapping)

    def prefixed(self, prefix: str) -> JoinedGroup:
        """This group, its features named with `prefix` instead of the group's name."""
        return JoinedGroup(self).prefixed(prefix)


def _check_unique(names: Iterable[str], what: str, hint: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DefinitionError(f"{what} {name!r} is defined twice; {hint}")
        seen.add(name)


@dataclass(frozen=True)
class JoinedGroup:
    """A group as a join uses it: which left columns are its keys, and its prefix."""

    group: GroupBy
    mapping: tuple[tuple[str, str], ...] = ()
    prefix: str | None = None

    def on(self, **mapping: str) -> JoinedGroup:
        for key, column in mapping.items():
            if key not in self.group.keys:
                raise DefinitionError(
                    f"GroupBy {self.group.name!r}: on({key}=...): its keys are "
                    f"{list(self.group.keys)}"
                )
            _check_column(column, f"GroupBy {self.group.name!r}: on({key}=...)")
        return replace(self, mapping=tuple({**dict(self.mapping), **mapping}.items()))

    def prefixed(self, prefix: str) -> JoinedGroup:
        return replace(self, prefix=check_name(prefix, "prefix"))

    @property
    def left_keys(self) -> tuple[str, ...]:
        """The left column for each key of the group, in the order of its keys."""
        mapping = dict(self.mapping)
        return tuple(mapping.get(key, key) for key in self.group.keys)

    def column(self, feature: Feature) -> str:
        return f"{self.prefix or self.group.name}_{feature.name}"


@dataclass(frozen=True)
class Join:
    """Queries with the features of several groups beside them, and columns derived from those.

    All columns of the left side are kept. `derive` maps names to Spark SQL over the result.
    """

    name: str
    left: Queries
    features: Sequence[GroupBy | JoinedGroup]
    derive: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = f"Join {check_name(self.name, 'Join.name')!r}"
        if not isinstance(self.left, Queries):
            raise DefinitionError(f"{what}: left is {self.left!r}; give Queries(...)")
        groups = []
        for part in self.features:
            if not isinstance(part, GroupBy | JoinedGroup):
                raise DefinitionError(f"{what}: {part!r} is not a GroupBy")
            groups.append(part if isinstance(part, JoinedGroup) else JoinedGroup(part))
        if not groups:
            raise DefinitionError(f"{what}: features is empty; add a GroupBy")
        object.__setattr__(self, "features", tuple(groups))
        for name, expression in self.derive.items():
            check_name(name, f"{what}: derive")
            _check_condition(expression, f"{what}: derive[{name!r}]")
        names = [g.column(f) for g in self.groups for f in g.group.features]
        _check_unique([*names, *self.derive], f"{what}: column", "give a group another prefix")

    @property
    def all_groups(self) -> tuple[JoinedGroup, ...]:
        return tuple(g for g in self.features if isinstance(g, JoinedGroup))

    @property
    def groups(self) -> tuple[JoinedGroup, ...]:
        """The groups that are computed offline."""
        return tuple(g for g in self.all_groups if g.group.offline)
