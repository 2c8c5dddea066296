"""Leaves: frames that stand for relations where a view's query is planned, and hold no rows.

A leaf has a relation's schema and is opaque to the optimiser, which would prune what it knows to be
empty. It is known by the id of its RDD, which stays with it however often Spark copies the plan
around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.spark.nodes import items
from windrow.spark.plans import (
    active,
    alias_of,
    aliased,
    frame_of,
    opaque_leaf,
    plan_of,
    renamed,
    rewritten,
)
from windrow.spark.schemas import quoted
from windrow.views.relations.names import Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MARK = "windrow"  # qualifies the alias of a relation's rows


class Leaves:
    """The leaves of a session, made when they are asked for."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._made: dict[str, tuple[str, DataFrame]] = {}  # by name: schema as text, leaf
        self._names: dict[int, str] = {}  # by the id of the leaf's RDD

    def leaf(self, relation: Relation) -> DataFrame:
        """The leaf of a relation; also a temporary view of its name in the session."""
        text = relation.schema.json()
        kept = self._made.get(relation.name)
        if kept is not None and kept[0] == text:
            return kept[1]
        with active(self._session):
            found = opaque_leaf(self._session, relation.schema)
            found.createOrReplaceTempView(quoted(relation.name))
        self._made[relation.name] = text, found
        self._names[int(plan_of(found).rdd().id())] = relation.name
        return found

    @property
    def names(self) -> Mapping[int, str]:
        """The relation of each leaf that was ever made, by the id of its RDD."""
        return self._names

    def relation_of(self, rdd_id: int) -> str | None:
        """The relation whose leaf has this RDD; None if it is no leaf."""
        return self._names.get(rdd_id)

    def forget(self, name: str) -> None:
        """Of a relation that was dropped."""
        if self._made.pop(name, None) is not None:
            self._session.catalog.dropTempView(quoted(name))


def marked(session: SparkSession, name: str, plan: Any) -> Any:
    """The rows of a relation, recognisable as such in whatever a DataFrame is made of them."""
    return aliased(session, name, plan, _MARK)


def marked_name(node: Any) -> str | None:
    """The relation whose rows a node gives; None if it is another node."""
    found = alias_of(node)
    return found[1] if found is not None and found[0] == (_MARK,) else None


def over_leaves(frame: DataFrame, leaf: Any) -> DataFrame:
    """A frame made of relations' rows, over leaves instead. `leaf` gives that of a name."""
    session = frame.sparkSession

    def put(node: Any) -> Any | None:
        name = marked_name(node)
        if name is None:
            return None
        plan = plan_of(leaf(name)).newInstance()  # of two that meet in a join, each is its own
        return renamed(session, items(plan.output()), items(node.output()), plan)

    return frame_of(session, rewritten(session, plan_of(frame), put))
