"""From Spark's optimised plan to the plan of a view: one operator of Windrow's for each of Spark's.

Spark has parsed, analysed and optimised the query; what is left is a small algebra. Each operator
of it is handled by one method here, and what has no method is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ByteType, StructField, StructType

from windrow.errors import UnsupportedSQL
from windrow.spark.catalyst import Catalyst
from windrow.spark.hints import without_hint
from windrow.storage.names import digest
from windrow.views.plan import topk
from windrow.views.plan.aggregates import AggregatePlanning
from windrow.views.plan.flattening import leads_to_inner_join
from windrow.views.plan.join_sides import Known
from windrow.views.plan.joins import JoinPlanning
from windrow.views.plan.keys import comparable as _comparable
from windrow.views.plan.nodes import (
    Arrangement,
    Constant,
    Input,
    Node,
    Stateless,
    ViewPlan,
    Windows,
)
from windrow.views.plan.order import decided_windows, with_order_beneath
from windrow.views.plan.texts import EVERYTHING
from windrow.views.plan.texts import ID as _ID
from windrow.views.plan.texts import numbered as _numbered
from windrow.views.plan.texts import plain as _plain
from windrow.views.plan.texts import unique as _unique
from windrow.views.stored import stored_fields

_STATELESS = {
    "Project",
    "Filter",
    "Generate",
    "Expand",
    "Union",
    "ArrowEvalPython",
    "BatchEvalPython",
}
# Names in quotes, then constants: texts and numbers.
_CONSTANTS = re.compile(r"`(?:[^`]|``)*`|('(?:[^'\\]|\\.)*'|(?<![\w.@])\d[\w.]*)", re.S)


class Planner(AggregatePlanning, JoinPlanning):
    """Plans one view. `relations` maps the RDD of a leaf to the relation that it stands for.

    `append_only` are the relations whose rows are never retracted, `keys` the primary keys of those
    that have one.
    """

    def __init__(
        self,
        catalyst: Catalyst,
        relations: Mapping[int, str],
        collections: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        append_only: Container[str] = (),
        keys: Mapping[str, Sequence[str]] | None = None,
        known: Known | None = None,
    ) -> None:
        self._c = catalyst
        self._append_only = append_only
        self._keys = keys or {}
        self._known = Known() if known is None else known
        self._choices = {}
        self._properties = properties or {}
        self._relations = relations
        self._collections = collections
        # Under other settings the same text means something else: nothing is shared with it.
        self._meaning = digest(dict(settings or {}))

    def plan(self, name: str, optimized: Any, columns: Sequence[str]) -> ViewPlan:
        """The plan of the view `name`, whose columns are named `columns`."""
        root = self._node(optimized)
        attributes = self._c.output(optimized)
        fields = self._fields(list(columns), attributes)
        key = tuple(f.name for f in fields if _can_be_key(f.type))
        schema, expressions = pa.schema(fields), list(attributes)
        if not key:
            schema, expressions = self._with_constant(schema, expressions)
            key = (EVERYTHING,)
        output = Arrangement(digest("view", name), key, schema, "its rows", tuple(expressions))
        return ViewPlan(root, output, self._choices)

    def _node(self, java: Any) -> Node:
        kind = self._c.kind(java)
        if leads_to_inner_join(self._c, java):
            return self._inner(java)
        if kind in _STATELESS:
            rewritten = self._without_subqueries(java)
            return self._node(rewritten) if rewritten is not None else self._stateless(java)
        found = getattr(self, f"_{kind.lower()}", None)
        if found is None:
            raise self._refused(
                java,
                f"a view cannot be maintained over Spark's operator {kind}; write the query "
                "without it",
            )
        node: Node = found(java)
        return node

    def _refused(self, java: Any, why: str) -> UnsupportedSQL:
        line, column = self._c.place(java) or (None, None)
        return UnsupportedSQL(why, line=line, column=column)

    # Leaves.

    def _logicalrdd(self, java: Any) -> Node:
        name = self._relations.get(int(java.rdd().id()))
        if name is None or name not in self._collections:
            raise UnsupportedSQL(
                "a view can only read tables, sources and views of its project; this DataFrame "
                "reads something else"
            )
        columns = self._names(java)
        identity = digest("input", self._collections[name], columns, self._meaning)
        grows = name in self._append_only
        return Input(identity, java, columns, name, self._collections[name], grows)

    def _primary_key(self, java: Any) -> Sequence[str]:
        """The primary key of a leaf; nothing if it has none."""
        return self._keys.get(self._relations.get(int(java.rdd().id()), ""), ())

    def _constant(self, java: Any, content: str) -> Node:
        types = [self._c.type_of(one).simpleString() for one in self._c.output(java)]
        identity = digest("constant", content, types, self._meaning)
        return Constant(identity, java, self._names(java))

    def _localrelation(self, java: Any) -> Node:
        return self._constant(java, java.toSQL("rows") if java.data().nonEmpty() else "no rows")

    def _onerowrelation(self, java: Any) -> Node:
        return self._constant(java, "one row")

    def _range(self, java: Any) -> Node:
        return self._constant(java, java.toString())

    # Operators without state.

    def _stateless(self, java: Any) -> Node:
        over = tuple(self._node(child) for child in self._c.children(java))
        if self._c.kind(java) == "Project":
            over = (self._reading(over[0], self._columns_in(java)),)
        operator, _, text = java.simpleString(100_000).partition(" ")
        return Stateless(
            self._identity(java, over), java, self._names(java), over, operator, _plain(text)
        )

    def _reading(self, node: Node, needed: set[int]) -> Node:
        """The same operator, whose input reads no more columns than are needed."""
        c = self._c
        if isinstance(node, Input):
            read = [str(a.name()) for a in c.output(node.java) if c.id_of(a) in needed]
            return replace(node, columns=tuple(read) or node.columns[:1])
        if isinstance(node, Stateless) and node.operator == "Filter":
            needed = needed | self._columns_in(node.java)
            return replace(node, over=(self._reading(node.over[0], needed),))
        return node

    def _columns_in(self, java: Any) -> set[int]:
        c = self._c
        return {id for one in c.items(java.expressions()) for id in c.column_ids(one)}

    def _sort(self, java: Any) -> Node:
        return self._node(java.child())  # the rows of a view have no order

    def _windowgrouplimit(self, java: Any) -> Node:
        return self._node(java.child())  # the filter above it does the same

    def _subqueryalias(self, java: Any) -> Node:
        return self._node(java.child())

    def _repartition(self, java: Any) -> Node:
        return self._node(java.child())

    _repartitionbyexpression = _rebalancepartitions = _resolvedhint = _repartition

    def _without_subqueries(self, java: Any) -> Any | None:
        """The operator over a join with its scalar subqueries; None if it has none.

        A subquery that is not correlated gives one value, or NULL. It becomes a column of the
        operator's input, by a join that gives each row the only row of the subquery.
        """
        c = self._c
        look, found = self._scalars(c.items(java.expressions()))
        if not found:
            return None
        kind = c.kind(java)
        if kind == "Join":  # whichever side has the value, each pair of rows has it
            left = self._with_scalars(java.left(), found)
            condition = c.some(c.replaced(java.condition().get(), look))
            joined = c.logical.Join(left, java.right(), java.joinType(), condition, java.hint())
            return c.project(c.output(java), joined)
        if kind not in ("Project", "Filter", "Generate", "Aggregate"):
            raise self._refused(java, f"a scalar subquery within {kind}; put it into a WITH clause")
        child = self._with_scalars(java.child(), found)
        if kind == "Project":
            return c.project([c.replaced(one, look) for one in c.items(java.projectList())], child)
        if kind == "Filter":
            kept = c.filter(c.replaced(java.condition(), look), child)
            return c.project(c.output(java), kept)
        if kind == "Generate":
            made = c.generate(java, child, c.replaced(java.generator(), look))
            return c.project(c.output(java), made)
        return c.logical.Aggregate(
            c.seq(c.replaced(e, look) for e in self._groups(java)),
            c.seq(c.replaced(e, look) for e in c.items(java.aggregateExpressions())),
            child,
            java.hint(),
        )

    def _scalars(
        self, expressions: Sequence[Any]
    ) -> tuple[Callable[[Any], Any | None], dict[int, Any]]:
        """The scalar subqueries of expressions, and what puts their columns in their places."""
        found: dict[int, Any] = {}

        def look(expression: Any) -> Any | None:
            if self._c.kind(expression) != "ScalarSubquery":
                return None
            id = self._c.id_of(expression)
            if id not in found:  # under a name of its own: the same subquery may come twice
                plan = expression.plan()
                found[id] = self._c.project([self._c.named(self._c.output(plan)[0], "s")], plan)
            return self._c.output(found[id])[0]

        for one in expressions:
            self._c.replaced(one, look)
        return look, found

    def _with_scalars(self, plan: Any, found: Mapping[int, Any]) -> Any:
        for subquery in found.values():
            plan = self._c.single_join(plan, subquery)
        return plan

    # Operators that Spark computes again for touched keys; aggregates have a module of their own.

    def _groups(self, java: Any) -> list[Any]:
        return self._c.items(java.groupingExpressions())

    def _window(self, java: Any) -> Node:
        """A stack of windows over the same partitions is one operator."""
        c = self._c
        ordered = with_order_beneath(c, java)
        if ordered is not None:
            return self._node(ordered)
        top = topk.first_of_groups(self, java)
        if top is not None:
            return top
        java = without_hint(c.spark, java)
        steps = [java]
        partition = c.items(java.partitionSpec())
        same = str([one.canonicalized().toString() for one in partition])
        child = java.child()
        while c.kind(child) in ("Window", "WindowGroupLimit"):
            if c.kind(child) == "WindowGroupLimit":
                child = child.child()
                continue
            others = c.items(child.partitionSpec())
            if str([one.canonicalized().toString() for one in others]) != same:
                break
            steps.append(without_hint(c.spark, child))
            child = child.child()
        steps.reverse()
        over = self._node(child)
        windows = [found for step in steps for found in decided_windows(c, step, c.output(child))]
        functions = [e for step in steps for e in c.items(step.windowExpressions())]
        attributes = c.output(child)
        rows = self._arranged(over, attributes, partition)
        texts = self._normal(self._texts(functions), over)
        outputs = [*attributes, *(one.toAttribute() for one in functions)]
        results = self._arranged(over, outputs, partition, "results", texts)
        return Windows(
            self._identity(
                java,
                (over,),
                "windows",
                self._texts(functions),
                *(step.simpleString(100_000) for step in steps),
            ),
            java,
            self._names(java),
            over,
            rows,
            results,
            tuple(windows),
            tuple(_plain(one.toString()) for one in partition),
            tuple(_plain(one.toString()) for one in functions),
        )

    def _globallimit(self, java: Any) -> Node:
        return topk.limited(self, java.child(), int(self._c.evaluate(java.limitExpr())), 0)

    def _offset(self, java: Any) -> Node:
        return topk.limited(self, java.child(), None, int(self._c.evaluate(java.offsetExpr())))

    def _locallimit(self, java: Any) -> Node:
        return self._node(java.child())  # the global limit above it does the same

    # What is kept.

    def _arranged(
        self,
        over: Node,
        attributes: Sequence[Any],
        keys: Sequence[Any],
        what: str = "rows",
        more: str = "",
    ) -> Arrangement:
        """Rows of `attributes` by `keys`, which are expressions over them."""
        ids = {self._c.id_of(one) for one in attributes}
        columns, named = list(attributes), []
        for key in keys:
            key = _comparable(self._c, key)
            if key is None:
                continue
            if self._c.kind(key) == "Alias":
                columns.append(key)
                named.append(key)
            elif self._is_new(key, ids, named):
                named.append(key)
            else:
                found = self._c.named(key, "key")
                columns.append(found)
                named.append(found)
        return self._arranged_as(over, columns, named, what, more)

    def _is_new(self, key: Any, ids: set[int], named: Sequence[Any]) -> bool:
        """Whether a key is a column that is not part of the key yet: twice, it needs a copy."""
        if self._c.kind(key) != "AttributeReference" or self._c.id_of(key) not in ids:
            return False
        return self._c.id_of(key) not in {self._c.id_of(one) for one in named}

    def _arranged_as(
        self, over: Node, columns: Sequence[Any], keys: Sequence[Any], what: str, more: str = ""
    ) -> Arrangement:
        """Rows of named expressions, some of which are the key."""
        names = _unique([_plain(str(one.name())) for one in columns])
        fields = self._fields(names, columns)
        schema, expressions = pa.schema(fields), list(columns)
        places = {self._c.id_of(one): at for at, one in enumerate(columns)}
        key = tuple(names[places[self._c.id_of(one)]] for one in keys)
        if not key:
            schema, expressions = self._with_constant(schema, expressions)
            key = (EVERYTHING,)
        texts = [self._normal(self._text(one), over) for one in columns]
        types = [str(one) for one in schema.types]
        # `more` tells apart what is computed differently from the same rows.
        about = over.identity if what == "rows" else (over.identity, what, more)
        name = digest("kept", about, texts, types, key)
        return Arrangement(name, key, schema, what, tuple(expressions))

    def _with_constant(
        self, schema: pa.Schema, expressions: list[Any]
    ) -> tuple[pa.Schema, list[Any]]:
        """With a column that is the same in all rows, as the key of what has none."""
        constant = self._c.named(self._c.literal(0, ByteType()), EVERYTHING)
        return pa.schema([*schema, pa.field(EVERYTHING, pa.int8())]), [*expressions, constant]

    def _fields(self, names: Sequence[str], attributes: Sequence[Any]) -> list[pa.Field]:
        struct = StructType(
            [
                StructField(name, self._c.type_of(one))
                for name, one in zip(names, attributes, strict=True)
            ]
        )
        return list(stored_fields(struct))

    # Identities.

    def _names(self, java: Any) -> tuple[str, ...]:
        return tuple(str(one.name()) for one in self._c.output(java))

    def _identity(self, java: Any, over: Sequence[Node], *more: Any) -> str:
        """A digest of what an operator computes: its text over the columns of its inputs."""
        places = self._places(over)
        texts = [_numbered(str(one), places) for one in more]
        expressions = self._c.items(java.expressions())
        text = _numbered(self._exact(java.simpleString(100_000), expressions), places)
        types = [self._c.type_of(one).simpleString() for one in self._c.output(java)]
        return digest(text, types, [one.identity for one in over], texts)

    def _text(self, expression: Any) -> str:
        return self._exact(expression.toString(), [expression])

    def _exact(self, text: str, expressions: Sequence[Any]) -> str:
        """Spark's text of expressions, and a digest of the constants in their SQL.

        Without quotes, a text does not tell ('a, b') from ('a', 'b'), or 'null' from NULL.
        """
        sql = [self._c.sql(one) for one in expressions]
        constants = [found for one in sql for found in _CONSTANTS.findall(one) if found]
        if any(_ID.search(one) for one in constants):  # not to be taken for a column
            columns = [f"#{id}" for one in expressions for id in self._c.column_ids(one)]
            text = " ".join([_ID.sub("#", text), *columns])
        return f"{text} {digest(constants)}" if constants else text

    def _texts(self, expressions: Sequence[Any]) -> str:
        return str([self._text(one) for one in expressions])

    def _normal(self, text: str, over: Node) -> str:
        return _numbered(text, self._places((over,)))

    def _places(self, over: Sequence[Node]) -> dict[str, int]:
        places: dict[str, int] = {}
        for node in over:
            for one in self._c.output(node.java):
                places[str(self._c.id_of(one))] = len(places)
        return places


def _can_be_key(type_: pa.DataType) -> bool:
    from windrow.rows.types import has_type

    return not has_type(type_, pa.types.is_map)
