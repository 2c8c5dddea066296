"""Linear or delta: the two plans of an inner join of more than two inputs, and the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from windrow.errors import OptionError
from windrow.views.plan.flattening import flattened
from windrow.views.plan.graph import Edge, Equality, tree, walk
from windrow.views.plan.inner import InnerJoin
from windrow.views.plan.inner_joins import InnerJoins
from windrow.views.plan.join_sides import Output, Side
from windrow.views.plan.nodes import Accumulate, Arrangement, Input, Node

JOIN, LINEAR, DELTA, AUTO = "join", "linear", "delta", "auto"


class JoinChoice(InnerJoins):
    """The part of a planner that chooses the plan of an inner join."""

    def _inner(self, java: Any) -> Node:
        """Inner joins, with the projections and filters over and between them."""
        c = self._c
        flat = flattened(c, java, self._without_subqueries)
        output = [Output(one, flat.values.get(c.id_of(one), one)) for one in c.output(java)]
        sides = [self._side(leaf.java, leaf.filters) for leaf in flat.leaves]
        conditions = list(flat.conditions)
        owners = {
            c.id_of(one): number for number, side in enumerate(sides) for one in side.attributes
        }
        equalities, rest = self._equalities(conditions, owners)
        edges, left_out = tree(len(sides), equalities, self._column_id)
        rest += [one.condition for one in left_out]
        if len(sides) < 3:
            return self._joined(sides, edges, rest, output)
        delta = self._joined(sides, edges, rest, output)
        choice, reason = self._choice(sides, edges, delta)
        self._choices[delta.identity] = (choice, reason)
        chosen = delta if choice == DELTA else self._linear(sides, edges, rest, output)
        return replace(chosen, reason=f"{choice}: {reason}")

    def _linear(
        self,
        sides: Sequence[Side],
        edges: Sequence[Edge],
        rest: Sequence[Any],
        output: Sequence[Output],
    ) -> InnerJoin:
        """Two inputs at a time: what is joined so far, and the next input."""
        c = self._c
        order = [0]
        steps = walk(0, edges)
        current, left = sides[0], list(rest)
        joined: InnerJoin | None = None
        for at, (_, edge) in enumerate(steps):
            new = edge.left if edge.right in order else edge.right
            order.append(new)
            known = {c.id_of(one) for number in order for one in sides[number].attributes}
            here = [one for one in left if set(c.column_ids(one)) <= known]
            left = [one for one in left if not any(one is other for other in here)]
            last = at == len(steps) - 1
            outputs = list(output)
            if not last:
                later = {id for one in left for id in c.column_ids(one)}
                later |= {id for one in output for id in c.column_ids(one.value)}
                for _, other in steps[at + 1 :]:
                    for one in other.equalities:
                        later |= {*c.column_ids(one.left_key), *c.column_ids(one.right_key)}
                outputs = [
                    Output(one, one)
                    for number in order
                    for one in sides[number].attributes
                    if c.id_of(one) in later
                ]
            pairs = tuple(
                Equality(
                    0,
                    one.key_of(edge.other(new)),
                    1,
                    one.key_of(new),
                    one.condition,
                    one.drops_nulls,
                )
                for one in edge.equalities
            )
            joined = self._joined(
                [current, sides[new]],
                [Edge(0, 1, pairs)],
                here if not last else [*here, *left],
                outputs,
            )
            current = Side(joined, [one.attribute for one in outputs], (), "what is joined")
        assert joined is not None
        return joined

    def _choice(
        self, sides: Sequence[Side], edges: Sequence[Edge], delta: InnerJoin
    ) -> tuple[str, str]:
        """Which plan, and why."""
        wanted = self._properties.get(JOIN, AUTO)
        if wanted not in (LINEAR, DELTA, AUTO):
            raise OptionError(
                f"property {JOIN} is {wanted!r}; it can be {LINEAR!r}, {DELTA!r} or {AUTO!r}"
            )
        if wanted != AUTO:
            return wanted, f"as the property {JOIN} says"
        if delta.identity in self._known.choices:
            choice, reason = self._known.choices[delta.identity]
            return choice, reason
        if all(one.name in self._known.arrangements for one in delta.arrangements):
            return DELTA, "all that it looks up is there; no intermediate results are kept"
        more = self._records(delta, delta.looked_up)
        # A chain looks up each input once: as the path of the first one does, and that one itself.
        first = delta.paths[0][0]
        back = [hop for hop in delta.paths[first.target] if hop.target == 0]
        looked_up = [(hop.target, hop.arrangement) for hop in (*delta.paths[0], *back)]
        other = self._records(delta, looked_up) + self._intermediate(sides, edges)
        if more <= other:
            return DELTA, (
                f"keeps about {more:,} records that are not there yet and no intermediate results; "
                f"linear would keep {other:,}"
            )
        return LINEAR, (
            f"keeps about {other:,} records that are not there yet, intermediate results included; "
            f"delta would keep {more:,}"
        )

    def _records(self, join: InnerJoin, looked_up: Sequence[tuple[int, Arrangement]]) -> int:
        """Records of inputs that would have to be kept for a join, and are not."""
        new = {
            one.name: self._rows(join.over[number])
            for number, one in looked_up
            if one.is_kept and one.name not in self._known.arrangements
        }
        return sum(new.values())

    def _rows(self, node: Node) -> int:
        """About how many rows an operator gives: as many as the largest of its inputs."""
        if isinstance(node, Accumulate) and not node.groups:
            return 1
        if isinstance(node, Input):
            return self._known.rows(node.collection)
        return max((self._rows(one) for one in node.inputs), default=0)

    def _intermediate(self, sides: Sequence[Side], edges: Sequence[Edge]) -> int:
        """Records of all intermediate results but the last, which is the output.

        Where a key is that of a relation or of a reduction, a row meets at most one. Elsewhere, one
        side is taken for a reference to the other: there are as many pairs as the larger has rows.
        """
        total, joined = 0, {0}
        current = self._rows(sides[0].node)
        steps = walk(0, edges)
        for _, edge in steps[:-1]:
            new = edge.left if edge.right in joined else edge.right
            joined.add(new)
            rows = self._rows(sides[new].node)
            if not edge.equalities:
                current *= rows
            elif not self._is_unique(sides[new], [one.key_of(new) for one in edge.equalities]):
                current = max(current, rows)
            total += current
        return total

    def _is_unique(self, side: Side, keys: Sequence[Any]) -> bool:
        ids = {self._column_id(key) for key in keys}
        node = side.node
        if isinstance(node, Input):
            names = {str(one.name()) for one in side.attributes if self._c.id_of(one) in ids}
            key = self._known.keys.get(node.collection, ())
            return bool(key) and set(key) <= names
        return side.reduction is not None and self._results_by(side, [keys]) is not None
