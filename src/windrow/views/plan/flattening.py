"""A tree of Spark's inner joins, with the projections and filters between them, laid flat.

    Project [b + c AS d]                 leaves      A, B, C
      Join inner a = x AND b > c         conditions  A.k = B.k, A.a = C.x, 1 + B.v > C.c
        Project [a, 1 + v AS b]    ──▶   values      d: (1 + B.v) + C.c
          Join inner A.k = B.k
        C

Projections are written out, so that all that is said refers to the columns of the leaves. A filter
that stands directly over a leaf is the leaf's own: it can be applied to what changes there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.spark.catalyst import Catalyst

_THROUGH = ("SubqueryAlias", "ResolvedHint")
INNER = ("Inner", "Cross")


@dataclass(frozen=True)
class Leaf:
    """What is beneath the joins: an operator of Spark's, and the filters directly over it."""

    java: Any
    filters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Flat:
    """`values` maps identities of columns to expressions; a column that is not there is a leaf's.

    Conditions come in the order in which Spark's plan has them, the deepest first.
    """

    leaves: tuple[Leaf, ...]
    conditions: tuple[Any, ...]
    values: Mapping[int, Any]


def flattened(c: Catalyst, java: Any, rewritten: Callable[[Any], Any | None]) -> Flat:
    """`rewritten` gives an operator without scalar subqueries; None if it has none."""
    kind = c.kind(java)
    if kind in _THROUGH:
        return flattened(c, java.child(), rewritten)
    is_inner = kind == "Join" and c.kind(java.joinType()) in INNER
    if kind not in ("Project", "Filter") and not is_inner:
        return Flat((Leaf(java),), (), {})
    other = rewritten(java)
    if other is not None:
        return flattened(c, other, rewritten)
    if kind == "Project":
        found = flattened(c, java.child(), rewritten)
        values = {}
        for one in c.items(java.projectList()):
            if c.kind(one) == "Alias":
                values[c.id_of(one)] = substituted(c, one.child(), found.values)
            elif c.id_of(one) in found.values:
                values[c.id_of(one)] = found.values[c.id_of(one)]
        return replace(found, values=values)
    if kind == "Filter":
        found = flattened(c, java.child(), rewritten)
        more = [substituted(c, one, found.values) for one in conjuncts(c, java.condition())]
        if len(found.leaves) == 1:
            (leaf,) = found.leaves
            return replace(found, leaves=(Leaf(leaf.java, (*leaf.filters, *more)),))
        return replace(found, conditions=(*found.conditions, *more))
    left = flattened(c, java.left(), rewritten)
    right = flattened(c, java.right(), rewritten)
    values = {**left.values, **right.values}
    condition = java.condition()
    split = [] if condition.isEmpty() else conjuncts(c, condition.get())
    more = [substituted(c, one, values) for one in split]
    return Flat((*left.leaves, *right.leaves), (*left.conditions, *right.conditions, *more), values)


def leads_to_inner_join(c: Catalyst, java: Any) -> bool:
    """Whether an operator is an inner join, or projections and filters over one."""
    while c.kind(java) in ("Project", "Filter", *_THROUGH):
        java = java.child()
    return c.kind(java) == "Join" and c.kind(java.joinType()) in INNER


def conjuncts(c: Catalyst, condition: Any) -> list[Any]:
    if c.kind(condition) == "And":
        return [*conjuncts(c, condition.left()), *conjuncts(c, condition.right())]
    return [condition]


def together(c: Catalyst, conditions: list[Any]) -> Any | None:
    """All conditions as one, in their order; None if there are none."""
    found = None
    for one in conditions:
        found = one if found is None else c.expressions.And(found, one)
    return found


def substituted(c: Catalyst, expression: Any, values: Mapping[int, Any]) -> Any:
    """An expression with what columns stand for in their places."""
    if not values:
        return expression

    def look(one: Any) -> Any | None:
        return values.get(c.id_of(one)) if c.kind(one) == "AttributeReference" else None

    return c.replaced(expression, look)
