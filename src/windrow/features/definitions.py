"""Definitions: sources, groups of aggregates, and the join that puts them beside queries.

All are frozen and checked when made; errors name the field and suggest a fix. What can only be
known with the data at hand (columns, types) is checked when a definition is bound to its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from windrow.algebra.aggregation import Aggregation, Feature
from windrow.errors import DefinitionError
from windrow.sources.definitions import (
    Select,
    Source,
    check_column,
    check_condition,
    check_name,
    check_names,
    check_table,
    partition_range,
    selected,
)
from windrow.sources.expressions import refuse_subquery
from windrow.sources.partitions import PartitionRange
from windrow.time import floor_to, parse_length

ACCURACIES = ("temporal", "snapshot")
STALE = ("mark", "refuse")  # what becomes of values that are stale


@dataclass(frozen=True)
class Queries:
    """The left side of a join: rows with keys and a time, each to be given features.

    `table` is a Spark table or view, a path or URI, or a DataFrame; `time` is a TIMESTAMP, a DATE
    (its midnight) or a BIGINT of milliseconds. `select` names columns, or maps names to Spark SQL;
    `where` is a condition. Of a table that is laid out by days, in the column `partition`, only
    those from `start_partition` to `end_partition` are read, both included, and all of them have
    to be there unless `missing_partitions` is "ignore".
    """

    table: Any = field(compare=False)
    time: str
    select: Select = None
    where: str | None = None
    partition: str | None = None
    start_partition: str | None = None
    end_partition: str | None = None
    missing_partitions: str = "error"

    def __post_init__(self) -> None:
        check_table(self.table, "Queries")
        check_column(self.time, "Queries: time")
        partition_range(self, "Queries")
        selected(self.select, "Queries: select")
        check_condition(self.where, "Queries: where")

    @property
    def partitions(self) -> PartitionRange | None:
        return partition_range(self, "Queries")

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        return selected(self.select, "Queries: select")


@dataclass(frozen=True)
class GroupBy:
    """Aggregates over a source's rows, by key. Each aggregation and window is a feature.

    `source` may be a list: the rows of all of them count, each with the columns that are named
    here. With the accuracy "temporal" a query sees all that was known before its time; with
    "snapshot", what was known at the midnight (UTC) that starts its day. A backfill leaves out
    groups with `offline=False`, and what is served leaves out those with `online=False`.

    Features that are served are stale once what they are made of was taken in longer ago than
    `max_staleness` (such as "1d"). They are then marked as such; with `stale="refuse"` a fetch of
    them is an error.

    >>> import windrow as wr
    >>> from windrow import agg
    >>> views = wr.EventSource(name="views", table="site/views.parquet", time="ts")
    >>> activity = wr.GroupBy(
    ...     name="activity",
    ...     source=views,
    ...     keys=["user_id"],
    ...     aggregations=[agg.count("view_id").over("5h", "7d"), agg.max("price")],
    ... )
    >>> [feature.name for feature in activity.features]
    ['view_id_count_5h', 'view_id_count_7d', 'price_max']
    """

    name: str
    source: Source | Sequence[Source]
    keys: Sequence[str]
    aggregations: Sequence[Aggregation]
    accuracy: str = "temporal"
    online: bool = True
    offline: bool = True
    max_staleness: str | None = None
    stale: str = "mark"

    def __post_init__(self) -> None:
        what = f"GroupBy {check_name(self.name, 'GroupBy.name')!r}"
        if not self.sources:
            raise DefinitionError(f"{what}: source is empty; give an EventSource")
        for source in self.sources:
            if not isinstance(source, Source):
                raise DefinitionError(f"{what}: source is {source!r}; give an EventSource")
        _check_unique((s.name for s in self.sources), f"{what}: source", "give it another name")
        object.__setattr__(self, "keys", check_names(self.keys, f"{what}: keys"))
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
            refuse_subquery(aggregation.condition, f"{what}: where")
        object.__setattr__(self, "aggregations", aggregations)
        if self.accuracy not in ACCURACIES:
            raise DefinitionError(
                f"{what}: accuracy is {self.accuracy!r}; it is one of {list(ACCURACIES)}"
            )
        if self.max_staleness is not None:
            parse_length(self.max_staleness, f"{what}: max_staleness")
        if self.stale not in STALE:
            raise DefinitionError(f"{what}: stale is {self.stale!r}; it is one of {list(STALE)}")
        for source in self.sources:
            reason = source.refuses(self.accuracy)
            if reason is not None:
                raise DefinitionError(
                    f"{what}: accuracy {self.accuracy!r} cannot be had of {source.what}: {reason}"
                )
        _check_unique((f.name for f in self.features), f"{what}: feature", "use .named(...)")
        clash = {f.name for f in self.features} & set(self.keys)
        if clash:
            raise DefinitionError(f"{what}: {sorted(clash)} are both keys and features")

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source,) if isinstance(self.source, Source) else tuple(self.source)

    @property
    def reads_views(self) -> bool:
        """Whether it reads tables or views of its project."""
        return any(getattr(source, "view", None) is not None for source in self.sources)

    @property
    def staleness(self) -> int | None:
        """`max_staleness` in milliseconds."""
        if self.max_staleness is None:
            return None
        return parse_length(self.max_staleness, "max_staleness")

    @property
    def refresh(self) -> int:
        """How often, in milliseconds, features with accuracy `snapshot` change."""
        return max(source.refresh for source in self.sources)

    def effective_times(self, queries: np.ndarray) -> np.ndarray:
        """The times as of which queries are answered: their own, or the last refresh before."""
        return floor_to(queries, self.refresh) if self.accuracy == "snapshot" else queries

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
            check_column(column, f"GroupBy {self.group.name!r}: on({key}=...)")
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

    All columns of the left side are kept. A group whose keys have other names on the left is
    joined with `on`. `derive` maps names to Spark SQL over the result.

    >>> import windrow as wr
    >>> from windrow import agg
    >>> views = wr.EventSource(name="views", table="site/views.parquet", time="ts")
    >>> activity = wr.GroupBy("activity", views, ["user_id"], [agg.count("view_id").over("7d")])
    >>> training = wr.Join(
    ...     name="training",
    ...     left=wr.Queries(table="site/checkouts.parquet", time="ts"),
    ...     features=[activity.on(user_id="buyer_id")],
    ...     derive={"views_per_day": "activity_view_id_count_7d / 7"},
    ... )
    >>> training.groups[0].left_keys
    ('buyer_id',)
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
            check_condition(expression, f"{what}: derive[{name!r}]")
        names = [g.column(f) for g in self.groups for f in g.group.features]
        _check_unique([*names, *self.derive], f"{what}: column", "give a group another prefix")

    @property
    def all_groups(self) -> tuple[JoinedGroup, ...]:
        return tuple(g for g in self.features if isinstance(g, JoinedGroup))

    @property
    def groups(self) -> tuple[JoinedGroup, ...]:
        """The groups that are computed offline."""
        return tuple(g for g in self.all_groups if g.group.offline)
