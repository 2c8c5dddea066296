"""Monotonicity: whether the rows of an operator only ever grow, and why, or why not.

An operator whose input is never retracted can forget what it does not need now: the least value
of a group stays a bound for ever, and a row that is not among the first k never comes back.
Whether it is so is derived from the plan alone:

    leaf                append-only if it is declared so; rows of the query itself never change
    each row by itself  as its input (project, filter, union, generate, expand)
    pairs               inner and cross joins of inputs that grow, and semi joins, which only gain
    distinct            the first copy of a row is what comes; further ones change nothing
    all others          no: a better result takes the place of the one before it

What never changes at all, because it reads nothing but the query, is append-only whatever the
operator. So is everything in a fill: it starts from nothing and from consolidated snapshots, so
each operator gives all of its rows at once, and retracts none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.views.plan.nodes import (
    Accumulate,
    Input,
    Join,
    Node,
    Reduce,
    TopK,
    TopRows,
    Windows,
)


@dataclass(frozen=True)
class Growth:
    """Whether an operator's rows only grow, with the reason in the words of EXPLAIN."""

    only_grows: bool
    why: str

    def __str__(self) -> str:
        return f"{'append-only' if self.only_grows else 'not append-only'}: {self.why}"


# What takes rows back even if both of its inputs only grow.
_JOINS = {
    "left outer": "a left outer join takes back the row without a match when one comes",
    "full outer": "a full outer join takes back the row without a match when one comes",
    "left anti": "an anti join takes rows back when a match comes",
    "existence": "EXISTS within an expression turns from false to true when a match comes",
    "left single": "the value of a subquery may change",
}
_OTHERS: Sequence[tuple[type[Node], str]] = (
    (Accumulate, "an aggregate takes its result back when it has a new one"),
    (Reduce, "an aggregate takes its result back when it has a new one"),
    (Windows, "a window function takes its result back when it has a new one"),
    (TopK, "a limit takes rows back when better ones come"),
    (TopRows, "a limit takes rows back when better ones come"),
)


def growth(node: Node) -> Growth:
    """Whether the rows of an operator only grow, from one tick to the next."""
    if not _reads(node):
        return Growth(True, "it reads no tables")
    match node:
        case Input():
            if node.append_only:
                return Growth(True, f"{node.relation} only grows")
            return Growth(False, f"rows of {node.relation} may be deleted or updated")
        case Join():
            return _join(node)
        case _ if node.only_adds:
            return _together(node.inputs)
    for kind, why in _OTHERS:
        if isinstance(node, kind):
            return Growth(False, why)
    return Growth(False, f"rows of {node.title} may be replaced")


def _join(node: Join) -> Growth:
    if node.kind not in _JOINS:  # left semi
        return _together(node.inputs)
    if not _reads(node.right) and node.kind != "full outer":  # what a row meets never changes
        return growth(node.left)
    both = _together(node.inputs)
    return both if not both.only_grows else Growth(False, _JOINS[node.kind])


def _together(inputs: Sequence[Node]) -> Growth:
    """Of several inputs: all have to grow; those that read no tables are no reason."""
    found = [growth(one) for one in inputs]
    for one in found:
        if not one.only_grows:
            return one
    read = [one for one, node in zip(found, inputs, strict=True) if _reads(node)]
    return Growth(True, ", ".join(dict.fromkeys(one.why for one in read or found)))


def _reads(node: Node) -> bool:
    return any(isinstance(one, Input) for one in node.walk())


def relied_on(node: Node) -> tuple[str, ...]:
    """The relations that are declared append-only and that an operator reads, by name."""
    names = [n.relation for n in node.walk() if isinstance(n, Input) and n.append_only]
    return tuple(sorted(set(names)))
