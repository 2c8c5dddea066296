"""Planning inner joins: one operator for all inputs that are joined, with a path for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import ByteType

from windrow.storage.names import digest
from windrow.views.plan.flattening import substituted, together
from windrow.views.plan.graph import Edge, Equality, walk
from windrow.views.plan.inner import Hop, InnerJoin, JoinInput
from windrow.views.plan.join_sides import JoinSides, Output, Side
from windrow.views.plan.keys import comparable
from windrow.views.plan.nodes import Arrangement, Input
from windrow.views.plan.texts import numbered, plain, unique


class InnerJoins(JoinSides):
    """The part of a planner that plans inner joins."""

    def _owner(self, expression: Any, owners: Mapping[int, int]) -> int | None:
        """The only input whose columns an expression refers to; None if there are others."""
        found = {owners[id] for id in self._c.column_ids(expression)}
        return found.pop() if len(found) == 1 else None

    def _equalities(
        self, conditions: Sequence[Any], owners: Mapping[int, int]
    ) -> tuple[list[Equality], list[Any]]:
        """Equalities of keys of two inputs, and the conditions that are none."""
        c = self._c
        found: list[Equality] = []
        rest = []
        for one in conditions:
            kind = c.kind(one)
            if kind not in ("EqualTo", "EqualNullSafe"):
                rest.append(one)
                continue
            left, right = self._owner(one.left(), owners), self._owner(one.right(), owners)
            are_keys = all(comparable(c, key) is not None for key in (one.left(), one.right()))
            if left is None or right is None or left == right or not are_keys:
                rest.append(one)
            elif kind == "EqualTo":
                found.append(Equality(left, one.left(), right, one.right(), one, True))
            else:
                for a, b in zip(
                    c.null_safe_keys(one.left()), c.null_safe_keys(one.right()), strict=True
                ):
                    equal = c.expressions.EqualTo(a, b)
                    found.append(Equality(left, a, right, b, equal, False))
        return found, rest

    def _joined(
        self,
        sides: Sequence[Side],
        edges: Sequence[Edge],
        rest: Sequence[Any],
        output: Sequence[Output],
    ) -> InnerJoin:
        """One operator for all inputs, each looked up by the keys of its edges."""
        c = self._c
        sides, edges, rest, output = self._over_totals(sides, edges, rest, output)
        shared = [self._is_shared(side, number, edges) for number, side in enumerate(sides)]
        conditions = [
            one
            for number, side in enumerate(sides)
            if shared[number] or side.reduction is not None
            for one in side.filters
            if not self._is_implied(one, edges)
        ]
        conditions += rest
        needed = {
            id for one in (*conditions, *(one.value for one in output)) for id in c.column_ids(one)
        }
        needed |= {
            id
            for edge in edges
            for one in edge.equalities
            for key in (one.left_key, one.right_key)
            if (id := self._column_id(key)) is not None
        }
        inputs, arranged = [], {}
        for number, side in enumerate(sides):
            mine = [edge for edge in edges if number in (edge.left, edge.right)]
            columns = [one for one in side.attributes if c.id_of(one) in needed]
            if side.reduction is not None:
                columns = list(side.attributes)
            if not columns:  # rows that nobody looks at are counted all the same
                nothing = c.named(c.literal(0, ByteType()), "nothing")
                columns = [side.attributes[0]] if shared[number] else [nothing]
            computed: dict[tuple[int, int], Any] = {}
            for at, edge in enumerate(mine):
                for place, one in enumerate(edge.equalities):
                    key = comparable(c, one.key_of(number))
                    if c.kind(key) == "Alias":
                        computed[at, place] = key
                    elif self._column_id(key) is None:
                        computed[at, place] = c.named(key, "key")
            columns += computed.values()
            names = (
                [str(one.name()) for one in columns]
                if shared[number]
                else unique([plain(str(one.name())) for one in columns])
            )
            places = {c.id_of(one): at for at, one in enumerate(columns)}
            for at, edge in enumerate(mine):
                by = [
                    computed.get((at, place), one.key_of(number))
                    for place, one in enumerate(edge.equalities)
                ]
                found = self._lookup(side, shared[number], columns, names, by)
                arranged[number, edge] = found, [places[c.id_of(key)] for key in by]
            filtered = together(c, list(side.filters))
            text = "" if filtered is None else plain(filtered.toString())
            node = side.node
            if isinstance(node, Input):
                wanted = {c.id_of(one) for one in columns if c.kind(one) == "AttributeReference"}
                for one in (*side.filters, *computed.values()):
                    wanted |= set(c.column_ids(one))
                node = self._reading(node, wanted)
            inputs.append(
                (node, JoinInput(side.label, tuple(columns), tuple(names), filtered, text))
            )
        paths = tuple(
            tuple(_hop(source, edge, arranged) for source, edge in walk(number, edges))
            for number in range(len(sides))
        )
        condition = together(c, conditions)
        named = [
            one.attribute if one.value is one.attribute else c.renamed(one.value, one.attribute)
            for one in output
        ]
        nodes = tuple(node for node, _ in inputs)
        made = c.project(named, sides[0].node.java)
        keys = tuple(
            f"{plain(one.left_key.toString())} = {plain(one.right_key.toString())}"
            for edge in edges
            for one in edge.equalities
        )
        places_of = self._places(nodes)
        about = [
            numbered(self._text(one), places_of)
            for one in (
                *(one.condition for edge in edges for one in edge.equalities),
                *(one for side in sides for one in side.filters),
                *conditions,
                *(one.value for one in output),
            )
        ]
        return InnerJoin(
            digest("inner", about, [one.identity for one in nodes]),
            made,
            self._names(made),
            nodes,
            tuple(one for _, one in inputs),
            keys,
            paths,
            None if condition is None else plain(condition.toString()),
            condition,
            together(c, list(rest)),
            tuple(named),
        )

    def _is_implied(self, condition: Any, edges: Sequence[Edge]) -> bool:
        """Whether a condition says of a key that it is not NULL, which its equality says, too."""
        c = self._c
        if c.kind(condition) != "IsNotNull":
            return False
        id = self._column_id(condition.child())
        return id is not None and any(
            self._column_id(key) == id
            for edge in edges
            for one in edge.equalities
            if one.drops_nulls
            for key in (one.left_key, one.right_key)
        )

    def _is_shared(self, side: Side, number: int, edges: Sequence[Edge]) -> bool:
        """Whether an input is looked up among the rows of its relation, by columns as they are."""
        keys = [
            one.key_of(number)
            for edge in edges
            if number in (edge.left, edge.right)
            for one in edge.equalities
        ]
        return self._can_share(side.node, keys)

    def _lookup(
        self,
        side: Side,
        shared: bool,
        columns: Sequence[Any],
        names: Sequence[str],
        keys: Sequence[Any],
    ) -> Arrangement:
        """What an input is looked up in by a key; `names` are those of its columns."""
        c = self._c
        places = {c.id_of(one): at for at, one in enumerate(columns)}
        key = tuple(names[places[c.id_of(one)]] for one in keys)
        if side.reduction is not None:
            return self._totals(side.reduction, columns, names)
        if shared:
            assert isinstance(side.node, Input)
            return self._rows_of(side.node, columns, names, key)
        kept = self._arranged_as(side.node, columns, keys, "rows")
        if not side.filters:
            return kept
        # Filtered rows are others than all rows.
        places_of = self._places([side.node])
        filters = [numbered(self._text(one), places_of) for one in side.filters]
        return replace(kept, name=digest(kept.name, filters))

    def _over_totals(
        self,
        sides: Sequence[Side],
        edges: Sequence[Edge],
        rest: Sequence[Any],
        output: Sequence[Output],
    ) -> tuple[list[Side], list[Edge], list[Any], list[Output]]:
        """The same join, over the results of reductions that are looked up by their groups."""
        c = self._c
        made: list[Side] = []
        values: dict[int, Any] = {}
        for number, side in enumerate(sides):
            keys = [
                [one.key_of(number) for one in edge.equalities]
                for edge in edges
                if number in (edge.left, edge.right)
            ]
            found = None if side.reduction is None else self._results_by(side, keys)
            if found is None or side.reduction is None:
                made.append(replace(side, reduction=None))
                continue
            values |= found
            columns = [one.toAttribute() for one in side.reduction.keys]
            columns += side.reduction.results
            filters = tuple(substituted(c, one, found) for one in side.filters)
            made.append(Side(side.reduction, columns, filters, side.label, side.reduction))
        if not values:
            return made, list(edges), list(rest), list(output)
        over = [
            Edge(
                edge.left,
                edge.right,
                tuple(self._with_values(one, values) for one in edge.equalities),
            )
            for edge in edges
        ]
        outputs = [Output(one.attribute, substituted(c, one.value, values)) for one in output]
        return made, over, [substituted(c, one, values) for one in rest], outputs

    def _with_values(self, one: Equality, values: Mapping[int, Any]) -> Equality:
        return replace(
            one,
            left_key=substituted(self._c, one.left_key, values),
            right_key=substituted(self._c, one.right_key, values),
            condition=substituted(self._c, one.condition, values),
        )


def _hop(
    source: int, edge: Edge, arranged: Mapping[tuple[int, Edge], tuple[Arrangement, list[int]]]
) -> Hop:
    target = edge.other(source)
    arrangement, places = arranged[target, edge]
    _, keys = arranged[source, edge]
    names = arrangement.schema.names
    order = {names.index(name): at for at, name in enumerate(arrangement.key) if name in names}
    # The keys of an edge come in the order of its equalities, those of what is kept in its own.
    by_key = sorted(zip(places, keys, strict=True), key=lambda pair: order[pair[0]])
    return Hop(source, tuple(key for _, key in by_key), target, arrangement)
