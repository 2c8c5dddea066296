"""The graph of an inner join: inputs, equalities between them, and the tree that is followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Equality:
    """Keys of two inputs that have to be equal; `condition` says so in Spark's words."""

    left: int
    left_key: Any
    right: int
    right_key: Any
    condition: Any
    drops_nulls: bool  # a NULL equals nothing

    def key_of(self, number: int) -> Any:
        return self.left_key if number == self.left else self.right_key


@dataclass(frozen=True)
class Edge:
    """An edge of the tree: two inputs, and the equalities between them; none: all pairs."""

    left: int
    right: int
    equalities: tuple[Equality, ...]

    def other(self, number: int) -> int:
        return self.right if number == self.left else self.left


def tree(
    inputs: int, equalities: Sequence[Equality], column_of: Callable[[Any], int | None]
) -> tuple[list[Edge], list[Equality]]:
    """Edges that connect all inputs without a circle, and the equalities that they leave out.

    Where there is a choice, the edge with the most equalities is taken, then the one that the
    query has first. A column is part of a key once (`column_of` gives its identity, None for what
    is computed): a second equality of it is left out.
    """
    between: dict[tuple[int, int], list[Equality]] = {}
    for one in equalities:
        between.setdefault((min(one.left, one.right), max(one.left, one.right)), []).append(one)
    found, left_out = [], []
    group = list(range(inputs))
    for (a, b), all_of in sorted(between.items(), key=lambda item: -len(item[1])):
        if group[a] == group[b]:
            left_out += all_of
            continue
        seen: set[tuple[int, int]] = set()
        chosen = []
        for one in all_of:
            ids = [(n, column_of(one.key_of(n))) for n in (a, b)]
            columns = {(n, id) for n, id in ids if id is not None}
            if columns & seen:
                left_out.append(one)
            else:
                seen |= columns
                chosen.append(one)
        found.append(Edge(a, b, tuple(chosen)))
        _connect(group, a, b)
    for number in range(1, inputs):
        if group[number] != group[0]:
            found.append(Edge(0, number, ()))
            _connect(group, 0, number)
    return found, left_out


def _connect(group: list[int], a: int, b: int) -> None:
    old, new = group[b], group[a]
    for number, one in enumerate(group):
        if one == old:
            group[number] = new


def walk(start: int, edges: Sequence[Edge]) -> list[tuple[int, Edge]]:
    """The steps of a path from an input to all others: where from, and along which edge.

    Of the inputs that can be reached, those with a key come first, then those that come first.
    """
    known, steps, left = {start}, [], list(edges)
    while left:
        reachable = [one for one in left if (one.left in known) != (one.right in known)]
        best = min(reachable, key=lambda one: (not one.equalities, _new(one, known)))
        source = best.other(_new(best, known))
        steps.append((source, best))
        known.add(_new(best, known))
        left.remove(best)
    return steps


def _new(edge: Edge, known: set[int]) -> int:
    return edge.right if edge.left in known else edge.left
