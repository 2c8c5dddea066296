"""Inputs that are known to be small: how many rows a group can have at most, and why.

What is said here decides between plans that are all right; none relies on it for its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.spark.catalyst import Catalyst

PrimaryKey = Callable[[Any], Sequence[str]]  # of a leaf: the columns of its primary key, or none


@dataclass(frozen=True)
class Bound:
    """At most so many rows in a group."""

    rows: int
    why: str

    def __str__(self) -> str:
        rows = "one row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"at most {rows}: {self.why}"


def bound(c: Catalyst, java: Any, partition: Sequence[Any], key: PrimaryKey) -> Bound | None:
    """How many rows of a plan can have the same values of `partition`; None: nobody knows."""
    ids = {c.id_of(one) for one in partition if c.kind(one) == "AttributeReference"}
    found = [*_of_all(java), *_of_groups(c, java, ids), *_by_key(c, java, ids, key)]
    return min(found, key=lambda one: one.rows, default=None)


def _of_all(java: Any) -> Iterator[Bound]:
    """What Spark knows of the number of rows: limits, constants, aggregates of all rows."""
    most = java.maxRows()
    if most.isDefined():
        rows = max(1, int(most.get()))
        yield Bound(rows, "the input has no more")


def _of_groups(c: Catalyst, java: Any, ids: set[int]) -> Iterator[Bound]:
    """Groups that are cut to their first rows already."""
    while c.kind(java) in ("Project", "Filter", "SubqueryAlias", "Sort"):
        java = java.child()
    if c.kind(java) == "Window" and c.kind(java.child()) == "WindowGroupLimit":
        limit = java.child()
        by = c.items(limit.partitionSpec())
        same = all(c.kind(one) == "AttributeReference" and c.id_of(one) in ids for one in by)
        if c.kind(limit.rankLikeFunction()) == "RowNumber" and same:
            yield Bound(int(limit.limit()), "its groups are limited")


def _by_key(c: Catalyst, java: Any, ids: set[int], key: PrimaryKey) -> Iterator[Bound]:
    """Groups by columns that no two rows share."""
    for one in c.distinct_keys(java):
        if one <= ids:
            yield Bound(1, "a group is one result of an aggregate")
    while c.kind(java) in ("Project", "Filter", "SubqueryAlias", "Sort", "Join"):
        if c.kind(java) == "Join":
            if c.kind(java.joinType()) not in ("LeftSemi", "LeftAnti"):
                return
            java = java.left()
        else:
            java = java.child()
    if c.kind(java) == "LogicalRDD":
        names = list(key(java))
        own = {str(one.name()): c.id_of(one) for one in c.output(java)}
        if names and all(own.get(name) in ids for name in names):
            yield Bound(1, f"a group has one value of the primary key {', '.join(names)}")
