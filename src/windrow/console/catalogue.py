"""What a project has, as of a moment: relations, groups, joins and sources, with how far each is.

A value, made of the state of the history, of the notes of served groups and of the definitions in
Python; all pages are made of it. Nothing here reads a store.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from windrow.algebra.aggregation import Feature
from windrow.console.refs import Ref, known_as
from windrow.features.definitions import GroupBy, Join
from windrow.online.plans import ServedJoin
from windrow.online.served import ServedGroup
from windrow.sources.definitions import Source


@dataclass(frozen=True)
class Relation:
    """A table, source or view of SQL. `changed_at` is the time of its newest change."""

    name: str
    kind: str
    definition: Mapping[str, Any]
    changed_at: int | None
    version: int  # of the history, that changed it last

    @property
    def ref(self) -> Ref:
        return Ref({"source": "relation"}.get(self.kind, self.kind), self.name)

    @property
    def collection(self) -> str:
        return str(self.definition["collection"])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations that a view reads."""
        return tuple(self.definition.get("inputs") or ())

    @property
    def quarantined(self) -> int:
        """Changes of a source that are left out."""
        return int(self.definition.get("quarantined") or 0)

    @property
    def sql(self) -> str | None:
        found = self.definition.get("sql")
        return None if found is None else str(found)


@dataclass(frozen=True)
class Generation:
    """Records of a group that are served, or that an upload writes."""

    number: int
    served: ServedGroup
    sealed: int
    fresh: tuple[int, ...]
    loaded: bool


@dataclass(frozen=True)
class Group:
    """A group: as it is defined in Python, as it is served, or both."""

    name: str
    definition: GroupBy | None
    current: Generation | None = None
    staged: Generation | None = None
    retired: int = 0

    @property
    def ref(self) -> Ref:
        return Ref("group", self.name)

    @property
    def features(self) -> tuple[Feature, ...]:
        """As they are served, or else as they are defined."""
        if self.current is not None:
            return self.current.served.features
        return () if self.definition is None else self.definition.features

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        return tuple(feature.name for feature in self.features)

    @property
    def types(self) -> tuple[pa.DataType | None, ...]:
        """Of its features; known only of those that are served."""
        served = self.current
        return (None,) * len(self.features) if served is None else served.served.types

    @property
    def keys(self) -> tuple[str, ...]:
        found = self.definition if self.current is None else self.current.served.group
        return () if found is None else tuple(found.keys)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of what it is computed from."""
        if self.definition is not None:
            return tuple(source.name for source in self.definition.sources)
        if self.current is None:
            return ()
        return tuple(source.name for source in self.current.served.group.sources)

    @property
    def fresh_at(self) -> int | None:
        """Up to when all that it is made of has been taken in."""
        return None if self.current is None else min(self.current.fresh)

    def is_stale(self, now: int) -> bool:
        """Whether that is longer ago than its definition allows."""
        if self.current is None or self.fresh_at is None:
            return False
        limit = self.current.served.max_staleness
        return limit is not None and now - self.fresh_at > limit

    @functools.cached_property
    def is_changed(self) -> bool:
        """Whether its features are defined otherwise than they are served."""
        if self.definition is None or self.current is None:
            return False
        return _said(self.definition.features) != _said(self.current.served.features)


def _said(features: Sequence[Feature]) -> list[Any]:
    return [(feature.name, feature.aggregation.identity, feature.window) for feature in features]


@dataclass(frozen=True)
class Joined:
    """A join: as it is defined in Python, as it is served, or both."""

    name: str
    definition: Join | None
    served: ServedJoin | None

    @property
    def ref(self) -> Ref:
        return Ref("join", self.name)

    @property
    def groups(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.definition is not None:
            found += [one.group.name for one in self.definition.all_groups]
        if self.served is not None:
            found += [use.group for use in self.served.uses]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Arranged:
    """An arrangement of backfills and uploads: sorted events that they share."""

    id: str
    title: str
    tables: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    users: tuple[tuple[str, int], ...]  # who, and when last

    @property
    def ref(self) -> Ref:
        return Ref("arrangement", self.id)


@dataclass(frozen=True)
class StreamState:
    """How far a stream is: what it took in, and what its checkpoint says."""

    upper: int  # of its shard: milliseconds
    rows: int
    batch: int | None = None  # the number of the newest micro-batch
    batch_at: int | None = None  # when that began or ended
    under_way: bool = False
    quarantined: int = 0


@dataclass(frozen=True)
class Catalogue:
    """All of it, at one version of the history."""

    version: int = 0
    time: int = 0
    ticked: int = 0
    relations: Mapping[str, Relation] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    joins: Mapping[str, Joined] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    arrangements: tuple[Arranged, ...] = ()
    notes: tuple[Mapping[str, Any], ...] = ()  # of the newest records, the newest first
    store: str | None = None  # where records are served from; None: nothing is online
    failure: str | None = None  # why online groups are not known
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of collections

    def of_kind(self, *kinds: str) -> list[Relation]:
        """Relations of these kinds, by name."""
        found = [one for one in self.relations.values() if one.kind in kinds]
        return sorted(found, key=lambda one: one.name.lower())

    @functools.cached_property
    def _long_names(self) -> dict[str, str]:
        names = [*self.relations, *self.groups, *self.joins, *self.sources]
        return {known_as(name): name for name in names if known_as(name) != name}

    def named(self, name: str) -> str:
        """The name that an address stands for."""
        return self._long_names.get(name, name)

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """The views that read a relation, by its name."""
        found: dict[str, list[str]] = {}
        for one in self.of_kind("view"):
            for name in one.inputs:
                found.setdefault(name, []).append(one.name)
        return {name: tuple(users) for name, users in found.items()}

    @functools.cached_property
    def waiting(self) -> Mapping[str, tuple[str, ...]]:
        """Views that are behind: the tables and sources whose changes they have not seen."""
        newer = {
            one.name
            for one in self.relations.values()
            if one.kind != "view" and (one.changed_at or 0) > self.ticked
        }
        roots: dict[str, frozenset[str]] = {}

        def roots_of(name: str) -> frozenset[str]:
            if name not in roots:
                roots[name] = frozenset()  # a view cannot read itself
                one = self.relations.get(name)
                if one is not None and one.kind == "view":
                    roots[name] = frozenset().union(*map(roots_of, one.inputs))
                elif name in newer:
                    roots[name] = frozenset([name])
            return roots[name]

        found = {one.name: tuple(sorted(roots_of(one.name))) for one in self.of_kind("view")}
        return {name: behind for name, behind in found.items() if behind}

    @functools.cached_property
    def features(self) -> tuple[tuple[Group, int], ...]:
        """All features: their groups, and their places there; by name."""
        return tuple(
            (group, number)
            for _, group in sorted(self.groups.items())
            for number in range(len(group.features))
        )

    @functools.cached_property
    def joins_of(self) -> Mapping[str, tuple[str, ...]]:
        """The joins that use a group, by its name."""
        found: dict[str, list[str]] = {}
        for one in self.joins.values():
            for group in one.groups:
                found.setdefault(group, []).append(one.name)
        return {name: tuple(users) for name, users in found.items()}
