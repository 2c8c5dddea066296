"""Planning joins other than inner, whose matches are counted: outer, semi, anti and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windrow.views.plan.flattening import flattened, substituted, together
from windrow.views.plan.join_choice import JoinChoice
from windrow.views.plan.join_sides import Side, named_child
from windrow.views.plan.keys import comparable
from windrow.views.plan.nodes import Arrangement, Input, Join, Node
from windrow.views.plan.texts import plain, unique

KINDS = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left outer",
    "RightOuter": "left outer",
    "FullOuter": "full outer",
    "LeftSemi": "left semi",
    "LeftAnti": "left anti",
    "ExistenceJoin": "existence",
    "LeftSingle": "left single",
}


@dataclass(frozen=True)
class _End:
    """A side of a join that is not inner. `values` are what its columns are of those beneath."""

    side: Side
    keys: list[Any]
    values: dict[int, Any]
    is_raw: bool  # looked up beneath what the side computes

    @property
    def filters(self) -> tuple[Any, ...]:
        return self.side.filters


@dataclass(frozen=True)
class _Made:
    node: Node
    arrangement: Arrangement
    filtered: Any | None
    text: str


class JoinPlanning(JoinChoice):
    """The part of a planner that plans joins."""

    def _join(self, java: Any) -> Node:
        c = self._c
        name = c.kind(java.joinType())
        if name not in KINDS:
            raise self._refused(java, f"a join of type {java.joinType().sql()}")
        if KINDS[name] == "inner":
            return self._inner(java)
        rewritten = self._without_subqueries(java)
        if rewritten is not None:
            return self._node(rewritten)
        null_aware = c.null_aware_keys(java)
        if null_aware is not None:
            return self._node(c.not_in(java, *null_aware))
        equi = c.equi_join(java, lambda key: comparable(c, key) is not None)
        ends = [(java.left(), equi.left), (java.right(), equi.right)]
        swapped = name == "RightOuter"
        if swapped:
            ends.reverse()
        kind = KINDS[name]
        sides = [self._end(*ends[0], kind, True), self._end(*ends[1], kind, False)]
        values = {**sides[0].values, **sides[1].values}
        output = [
            c.renamed(values[c.id_of(one)], one) if c.id_of(one) in values else one
            for one in c.output(java)
        ]
        conditions = [] if equi.rest is None else [substituted(c, equi.rest, values)]
        above: list[Any] = []
        for side, more in ((sides[0], above), (sides[1], conditions)):
            keys = {self._column_id(key) for key in side.keys}
            if side.is_raw:
                more += [one for one in side.filters if not self._is_known(one, keys)]
        needed = {
            id
            for one in (*conditions, *above, *(named_child(c, one) for one in output))
            for id in c.column_ids(one)
        }
        made = [self._join_input(side, needed) for side in sides]
        texts = tuple(
            f"{plain(a.toString())} = {plain(b.toString())}"
            for a, b in zip(equi.left, equi.right, strict=True)
        )
        rest, filtered = together(c, conditions), together(c, above)
        nodes = tuple(one.node for one in made)
        about = [
            self._text(one)
            for one in (*sides[0].filters, *sides[1].filters, *conditions, *values.values())
        ]
        return Join(
            self._identity(java, nodes, *about),
            java,
            self._names(java),
            kind,
            nodes[0],
            nodes[1],
            made[0].arrangement,
            made[1].arrangement,
            texts,
            None if rest is None else plain(rest.toString()),
            rest,
            swapped,
            (made[0].filtered, made[1].filtered),
            (made[0].text, made[1].text),
            filtered,
            tuple(output),
        )

    def _is_known(self, condition: Any, keys: set[int | None]) -> bool:
        """Whether a condition says of a key that it is not NULL, as its equality does."""
        c = self._c
        return c.kind(condition) == "IsNotNull" and self._column_id(condition.child()) in (
            keys - {None}
        )

    def _end(self, plan: Any, keys: Sequence[Any], kind: str, is_left: bool) -> _End:
        """A side of a join that is not inner: the relation or the reduction beneath it, if its rows
        can be looked up there, and the operator itself if not.

        What the side computes is then computed above the join. That is not possible where the join
        gives NULL for it, and a full join gives NULL for both.
        """
        c = self._c
        if kind != "full outer":
            flat = flattened(c, plan, self._without_subqueries)
            if len(flat.leaves) == 1:
                (leaf,) = flat.leaves
                ids = [c.id_of(one) for one in c.output(plan)]
                values = {id: flat.values[id] for id in ids if id in flat.values}
                own = [substituted(c, one, values) for one in keys]
                plainly = is_left or kind not in ("left outer", "left single")
                if plainly or all(self._column_id(one) is not None for one in values.values()):
                    side = self._side(leaf.java, leaf.filters)
                    found = self._raw_end(side, values, own, plainly)
                    if found is not None:
                        return found
        node = self._node(plan)
        return _End(Side(node, c.output(plan), (), ""), list(keys), {}, False)

    def _raw_end(
        self, side: Side, values: Mapping[int, Any], keys: Sequence[Any], computed: bool
    ) -> _End | None:
        c = self._c
        ids = [self._column_id(key) for key in keys]
        if len(set(ids)) < len(ids):
            return None
        if self._can_share(side.node, keys):
            return _End(replace(side, reduction=None), list(keys), dict(values), True)
        results = None if side.reduction is None else self._results_by(side, [keys])
        if results is None or side.reduction is None:
            return None
        if not computed and any(self._column_id(one) is None for one in results.values()):
            return None
        columns = [one.toAttribute() for one in side.reduction.keys]
        columns += side.reduction.results
        filters = tuple(substituted(c, one, results) for one in side.filters)
        made = {id: substituted(c, one, results) for id, one in values.items()}
        own = [substituted(c, key, results) for key in keys]
        raw = Side(side.reduction, columns, filters, side.label, side.reduction)
        return _End(raw, own, {**results, **made}, True)

    def _join_input(self, end: _End, needed: set[int]) -> _Made:
        """What a side is looked up in, and the filter of its changes."""
        c = self._c
        side, keys = end.side, end.keys
        if not end.is_raw:
            return _Made(side.node, self._arranged(side.node, side.attributes, keys), None, "")
        filtered = together(c, list(side.filters))
        text = "" if filtered is None else plain(filtered.toString())
        wanted = needed | {c.id_of(key) for key in keys}
        columns = [one for one in side.attributes if c.id_of(one) in wanted]
        if side.reduction is not None:
            names = unique([plain(str(one.name())) for one in side.attributes])
            kept = self._totals(side.reduction, side.attributes, names)
            places = {c.id_of(one): at for at, one in enumerate(side.attributes)}
            by = tuple(kept.schema.names[places[c.id_of(key)]] for key in keys)
            return _Made(side.node, replace(kept, key=by), filtered, text)
        node = side.node
        assert isinstance(node, Input)
        names = [str(one.name()) for one in columns]
        kept = self._rows_of(node, columns, names, [str(key.name()) for key in keys])
        if not keys:
            schema, expressions = self._with_constant(kept.schema, list(columns))
            kept = replace(kept, schema=schema, expressions=tuple(expressions))
        read = wanted | {id for one in side.filters for id in c.column_ids(one)}
        return _Made(self._reading(node, read), kept, filtered, text)
