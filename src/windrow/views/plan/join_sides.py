"""The inputs of joins: where their rows are looked up.

Inputs that are relations are looked up among the *relation's* rows by key, which all views share,
whatever they filter: filters apply to what changes, and once more to what was looked up. The
output of a reduction is looked up in its totals. Anything else is kept as it comes, by key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import UnsupportedSQL
from windrow.spark.catalyst import Catalyst
from windrow.storage.names import digest
from windrow.views.plan.flattening import substituted
from windrow.views.plan.keys import comparable
from windrow.views.plan.nodes import Accumulate, Arrangement, Input, Node, Results, Stateless
from windrow.views.plan.texts import EVERYTHING, unique

ARRANGE, OWN, SHARED = "arrange", "own", "shared"


@dataclass(frozen=True)
class Known:
    """What is known of a project when a view is planned: rows and primary keys of relations, by
    collection; which arrangements there are; and, of a view that exists, what was chosen."""

    rows: Callable[[str], int] = lambda _: 0
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    arrangements: frozenset[str] = frozenset()
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """An input of a join while it is planned. `attributes` are its columns."""

    node: Node
    attributes: Sequence[Any]
    filters: tuple[Any, ...]
    label: str
    reduction: Accumulate | None = None  # whose totals can be looked up


@dataclass(frozen=True)
class Output:
    """An output column: an attribute, and the expression that it names."""

    attribute: Any
    value: Any


class JoinSides:
    """The part of a planner that says what the inputs of joins are looked up in."""

    if TYPE_CHECKING:  # what the others of its parts give
        _c: Catalyst
        _properties: Mapping[str, str]
        _known: Known
        _choices: dict[str, Sequence[str]]

        def _node(self, java: Any) -> Node: ...
        def _refused(self, java: Any, why: str) -> UnsupportedSQL: ...
        def _without_subqueries(self, java: Any) -> Any | None: ...
        def _reading(self, node: Node, needed: set[int]) -> Node: ...
        def _arranged(
            self, over: Node, attributes: Sequence[Any], keys: Sequence[Any]
        ) -> Arrangement: ...
        def _arranged_as(
            self, over: Node, columns: Sequence[Any], keys: Sequence[Any], what: str
        ) -> Arrangement: ...
        def _with_constant(
            self, schema: pa.Schema, expressions: list[Any]
        ) -> tuple[pa.Schema, list[Any]]: ...
        def _fields(self, names: Sequence[str], attributes: Sequence[Any]) -> list[pa.Field]: ...
        def _names(self, java: Any) -> tuple[str, ...]: ...
        def _identity(self, java: Any, over: Sequence[Node], *more: Any) -> str: ...
        def _text(self, expression: Any) -> str: ...
        def _places(self, over: Sequence[Node]) -> dict[str, int]: ...

    def _side(self, java: Any, filters: Sequence[Any]) -> Side:
        node = self._node(java)
        reduction = _reduction(node)
        label = node.relation if isinstance(node, Input) else f"the {_kind(reduction or node)}"
        return Side(node, self._c.output(java), tuple(filters), label, reduction)

    def _column_id(self, key: Any) -> int | None:
        return self._c.id_of(key) if self._c.kind(key) == "AttributeReference" else None

    def _can_share(self, node: Node, keys: Sequence[Any]) -> bool:
        if self._properties.get(ARRANGE, SHARED) == OWN or not isinstance(node, Input):
            return False
        return all(
            self._column_id(key) is not None and comparable(self._c, key) is key for key in keys
        )

    def _rows_of(
        self, node: Input, columns: Sequence[Any], names: Sequence[str], key: Sequence[str]
    ) -> Arrangement:
        """The rows of a relation by some of its columns."""
        by = tuple(key) or (EVERYTHING,)
        return Arrangement(
            digest("rows", node.collection, sorted(by)),
            by,
            pa.schema(self._fields(names, columns)),
            f"rows of {node.relation}",
            tuple(columns),
            source=node.collection,
        )

    def _totals(
        self, reduction: Accumulate, columns: Sequence[Any], names: Sequence[str]
    ) -> Arrangement:
        """The output of a reduction, by its groups: it follows from the totals."""
        width = len(reduction.totals.key)
        own = [*reduction.totals.key, *unique([*reduction.totals.key, *names[width:]])[width:]]
        fields = self._fields(own, columns)
        return Arrangement(
            reduction.totals.name,
            reduction.totals.key,
            pa.schema(fields),
            "results",
            tuple(columns),
            results=Results(reduction.functions, tuple(one.type for one in fields[width:])),
        )

    def _results_by(self, side: Side, keys: Sequence[Sequence[Any]]) -> dict[int, Any] | None:
        """What the columns of an aggregate are of its groups and results; None if it is looked up
        by anything but its groups."""
        c = self._c
        node = side.reduction
        if node is None or not node.groups:
            return None
        computed = {c.id_of(one): named_child(c, one) for one in node.output}
        split = c.split_aggregate(side.node.java)
        values = {
            c.id_of(one): substituted(c, named_child(c, one), computed) for one in split.output
        }
        groups = sorted(c.id_of(one) for one in node.keys)
        for several in keys:
            own = [self._column_id(key) for key in several]
            ids = [
                None if id is None or id not in values else self._column_id(values[id])
                for id in own
            ]
            if None in ids or sorted(id for id in ids if id is not None) != groups:
                return None
        return values


def _reduction(node: Node) -> Accumulate | None:
    """The reduction whose keys and results an aggregate's output is made of."""
    if isinstance(node, Stateless) and node.operator == "Project":
        (over,) = node.over
        if isinstance(over, Accumulate) and over.basic is None and over.java is node.java:
            return over
    return None


def named_child(c: Catalyst, named: Any) -> Any:
    return named.child() if c.kind(named) == "Alias" else named


def _kind(node: Node) -> str:
    return node.title.partition(" ")[0].lower()
