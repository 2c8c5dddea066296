"""How aggregates are planned: by the class of each function, and what is known of the input.

    accumulable    states of groups, updated in place
    hierarchical   min and max: *monotonic* where the input is append-only, *sorted* where it is
                   not; *bucketed* if the view asks for it
    basic          computed by Spark of all rows of a touched group

The property `reduce` of a view forces a plan: `basic` for all functions, `monotonic`, `sorted` or
`bucketed` for min and max.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import OptionError, UnsupportedSQL
from windrow.spark.catalyst import Catalyst, SplitAggregate
from windrow.spark.hints import without_hint
from windrow.storage.names import digest
from windrow.views.plan.hints import FAN_OUT, GroupSize, group_size
from windrow.views.plan.keys import comparable
from windrow.views.plan.monotonic import growth
from windrow.views.plan.nodes import (
    Accumulate,
    Arrangement,
    Basic,
    Distinct,
    Extremes,
    ExtremeValue,
    Node,
    Reduce,
    Stateless,
)
from windrow.views.plan.reductions import (
    Accumulated,
    Extreme,
    Reduction,
    reduction_of,
    totals_fields,
)
from windrow.views.plan.texts import EVERYTHING, plain, unique

REDUCE = "reduce"  # the property of a view that forces a plan
AUTO, BASIC, BUCKETED, MONOTONIC, SORTED = "auto", "basic", "bucketed", "monotonic", "sorted"
_ASKED = f"asked for by the property {REDUCE}"
_CHOICES = (AUTO, BASIC, BUCKETED, MONOTONIC, SORTED)


class AggregatePlanning:
    """The part of the planner that plans aggregates."""

    if TYPE_CHECKING:  # what the planner gives to all of its parts
        _c: Catalyst
        _properties: Mapping[str, str]

        def _node(self, java: Any) -> Node: ...
        def _refused(self, java: Any, why: str) -> UnsupportedSQL: ...
        def _without_subqueries(self, java: Any) -> Any | None: ...
        def _fields(self, names: Sequence[str], attributes: Sequence[Any]) -> list[pa.Field]: ...
        def _names(self, java: Any) -> tuple[str, ...]: ...
        def _identity(self, java: Any, over: Sequence[Node], *more: Any) -> str: ...
        def _text(self, expression: Any) -> str: ...
        def _texts(self, expressions: Sequence[Any]) -> str: ...
        def _normal(self, text: str, over: Node) -> str: ...
        def _with_constant(
            self, schema: pa.Schema, expressions: list[Any]
        ) -> tuple[pa.Schema, list[Any]]: ...
        def _arranged(
            self,
            over: Node,
            attributes: Sequence[Any],
            keys: Sequence[Any],
            what: str = "rows",
            more: str = "",
        ) -> Arrangement: ...
        def _arranged_as(
            self,
            over: Node,
            columns: Sequence[Any],
            keys: Sequence[Any],
            what: str,
            more: str = "",
        ) -> Arrangement: ...

    def _aggregate(self, java: Any) -> Node:
        c = self._c
        split = c.split_aggregate(java)
        if any(c.has_scalar_subquery(one) for one in split.output):
            # Beside the functions: a projection over them. Within one, it is handled next.
            return self._node(c.project(split.output, c.aggregate_alone(java, split)))
        rewritten = self._without_subqueries(java)
        if rewritten is not None:
            return self._node(rewritten)
        size = group_size(c, java, self._properties)
        java = without_hint(c.spark, java)
        is_plain = all(comparable(c, key) is key for key in split.keys)
        reduction = reduction_of(c, split) if is_plain and split.functions else None
        if reduction is not None and self._forced() != BASIC:
            return self._projected(java, split, self._accumulate(java, split, reduction, size))
        expanded = c.expanded_distinct(java)
        if expanded is not None:
            return self._node(expanded)
        over = self._node(java.child())
        found = [comparable(c, key) for key in split.keys]
        keys = [key for key in found if key is not None]
        if not split.functions and split.keys and is_plain:
            rows = self._arranged_as(over, split.keys, split.keys, "distinct rows")
            node: Node = Distinct(
                self._identity(java, (over,), "distinct"), java, self._names(java), over, rows
            )
        else:
            inputs = self._inputs_of(split.functions, java.child())
            known = {c.id_of(key) for key in split.keys}
            inputs = [one for one in inputs if c.id_of(one) not in known]
            extra = [key for key in keys if not any(key is one for one in split.keys)]
            rows = self._arranged_as(over, [*split.keys, *inputs, *extra], keys, "rows")
            outputs = [key.toAttribute() for key in split.keys]
            functions = self._normal(self._texts([*split.keys, *split.functions]), over)
            results = self._arranged(
                over, [*outputs, *split.results], outputs, "results", functions
            )
            node = Reduce(
                self._identity(java, (over,), "reduce"),
                java,
                self._names(java),
                over,
                rows,
                results,
                (split,),
                tuple(plain(key.toString()) for key in split.keys),
                tuple(plain(one.toString()) for one in split.functions),
                _ASKED if reduction is not None else "",
            )
        return self._projected(java, split, node)

    def _projected(self, java: Any, split: SplitAggregate, node: Node) -> Node:
        """What an aggregate gives, from its keys and the results of its functions."""
        text = ", ".join(plain(one.toString()) for one in split.output)
        identity = self._identity(java, node.inputs)
        return Stateless(identity, java, self._names(java), (node,), "Project", f"[{text}]")

    def _accumulate(
        self, java: Any, split: SplitAggregate, reduction: Reduction, size: GroupSize
    ) -> Node:
        """States of groups, what min and max need, and sets of distinct values."""
        over = self._node(java.child())
        keys = list(split.keys)
        values = reduction.values
        given = [plain(str(one.name())) for one in (*keys, *values)]
        *names, subgroup = unique([*given, "subgroup"])
        fields = self._fields(names, [*keys, *values])
        width = len(keys)
        if not keys:
            schema, keys = self._with_constant(pa.schema([]), [])
            fields = [*schema, *fields]
            names, width = [EVERYTHING, *names], 1
        key = tuple(names[:width])
        texts = [self._normal(self._text(one), over) for one in (*keys, *values)]

        def kept(what: str, numbers: Sequence[int], by: Sequence[str]) -> Arrangement:
            chosen = [*range(width), *(width + number for number in numbers)]
            about = [[texts[i], str(fields[i].type)] for i in chosen]
            return Arrangement(
                digest("kept", what, over.identity, about, False),
                tuple(by),
                pa.schema([fields[i] for i in chosen]),
                what,
                (),
            )

        chosen = dict.fromkeys(
            one.values
            for one in reduction.functions
            if isinstance(one, Accumulated) and one.distinct
        )
        sets = tuple(
            (
                numbers,
                kept("distinct values", numbers, [*key, *(names[width + n] for n in numbers)]),
            )
            for numbers in chosen
        )
        totals = totals_fields(reduction.functions, fields[width:])
        functions = [str(one) for one in reduction.functions]
        return Accumulate(
            self._identity(java, (over,), "reduce"),
            java,
            self._names(java),
            over,
            tuple(plain(one.toString()) for one in split.keys),
            tuple(plain(one.toString()) for one in split.functions),
            tuple(keys),
            tuple(values),
            tuple(reduction.functions),
            tuple(reduction.results),
            tuple(reduction.output),
            Arrangement(
                digest("kept", "totals", over.identity, texts, functions, str(totals)),
                key,
                pa.schema([*fields[:width], *totals]),
                "totals",
                (),
            ),
            self._extremes(java, over, reduction, texts, fields, key, subgroup, size),
            sets,
            self._basic(java, over, keys, split, reduction) if reduction.basic else None,
        )

    def _forced(self) -> str:
        """The plan that the view asks for."""
        text = self._properties.get(REDUCE, AUTO).lower()
        if text not in _CHOICES:
            raise OptionError(
                f"the property {REDUCE} is {text!r}; it is one of {', '.join(_CHOICES)}"
            )
        return text

    def _extremes(
        self,
        java: Any,
        over: Node,
        reduction: Reduction,
        texts: Sequence[str],
        fields: Sequence[pa.Field],
        key: tuple[str, ...],
        subgroup: str,
        size: GroupSize,
    ) -> Extremes | None:
        """What is kept for min and max, of each of their values."""
        wanted: dict[int, set[bool]] = {}
        for one in reduction.functions:
            if isinstance(one, Extreme):
                wanted.setdefault(one.value, set()).add(one.largest)
        if not wanted:
            return None
        growing, plan = growth(over), self._forced()
        why = _ASKED
        if plan == MONOTONIC and not growing.only_grows:
            raise self._refused(
                java,
                f"the property {REDUCE} asks for {MONOTONIC}, and the input is {growing}; leave it "
                "out, or declare what only grows: TBLPROPERTIES ('append_only' = 'true')",
            )
        if plan == AUTO:
            plan, why = (MONOTONIC if growing.only_grows else SORTED), str(growing)
        values = []
        for value, chosen in sorted(wanted.items()):
            sides, field = tuple(sorted(chosen)), fields[len(key) + value]
            keys = list(fields[: len(key)])
            about = [*texts[: len(key)], texts[len(key) + value]]
            stored: tuple[Arrangement, ...] = ()
            if plan == SORTED:
                stored = (_in_order(over, about, key, pa.schema([*keys, field])),)
            elif plan == BUCKETED:
                schema = pa.schema([*keys, pa.field(subgroup, pa.int64()), field])
                about = [*about, str(sides)]
                stored = _in_levels(over, about, (*key, subgroup), schema, size)
            values.append(ExtremeValue(value, sides, stored))
        return Extremes(plan, why, tuple(values), size if plan == BUCKETED else None)

    def _basic(
        self,
        java: Any,
        over: Node,
        keys: Sequence[Any],
        split: SplitAggregate,
        reduction: Reduction,
    ) -> Basic:
        """What is kept for the functions that Spark computes, beside those that it does not."""
        c = self._c
        known = {c.id_of(key) for key in keys}
        inputs = self._inputs_of(reduction.basic, java.child())
        inputs = [one for one in inputs if c.id_of(one) not in known]
        rows = self._arranged_as(over, [*keys, *inputs], keys, "rows")
        outputs = [key.toAttribute() for key in keys]
        functions = self._normal(self._texts([*split.keys, *split.functions]), over)
        basic = [one.resultAttribute() for one in reduction.basic]
        columns = [*outputs, *basic, *reduction.results]
        return Basic(
            tuple(reduction.basic),
            tuple(plain(one.toString()) for one in reduction.basic),
            rows,
            self._arranged_as(over, columns, outputs, "results", functions),
        )

    def _inputs_of(self, expressions: Sequence[Any], child: Any) -> list[Any]:
        """The attributes of `child` that expressions refer to."""
        needed = {
            self._c.id_of(attribute)
            for one in expressions
            for attribute in self._c.items(one.references().toSeq())
        }
        return [one for one in self._c.output(child) if self._c.id_of(one) in needed]


def _in_order(over: Node, about: Any, key: tuple[str, ...], schema: pa.Schema) -> Arrangement:
    """Values by group, sorted."""
    name = digest("kept", "values", over.identity, about, list(map(str, schema.types)), True)
    return Arrangement(name, key, schema, "values", (), (schema.names[-1],))


def _in_levels(
    over: Node, about: Any, key: tuple[str, ...], schema: pa.Schema, size: GroupSize
) -> tuple[Arrangement, ...]:
    """Values by subgroup: what comes into each level, and what does not go on to the next."""
    found, types = [], list(map(str, schema.types))
    for level in range(1, size.levels + 1):
        subgroups = FAN_OUT ** (size.levels - level)
        shown = f"{subgroups:,} subgroups" if subgroups > 1 else "the whole group"
        what = f"level {level} of {size.levels} ({shown})"
        for part in ("values", "rejected values") if level < size.levels else ("values",):
            name = digest("kept", part, over.identity, about, types, size.levels, level)
            found.append(Arrangement(name, key, schema, f"{part} of {what}", ()))
    return tuple(found)
