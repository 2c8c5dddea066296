"""Spark's own plans: reading them, and putting pieces of them onto other inputs.

Everything that Windrow needs of Catalyst is here, so that a new release of Spark touches one file.
Plans, expressions and attributes are Java objects, held but not interpreted elsewhere. Needs a
classic session: Spark Connect has no plans to look at.

An *attribute* is a column with an identity (`exprId`) that stays the same from where it is made to
where it is used, whatever its name. Putting an operator onto another input means giving that
input's columns the identities that the operator refers to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

from windrow.spark import nodes
from windrow.spark.distinct import Distinctions
from windrow.spark.nodes import java
from windrow.spark.plans import active, origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

Plan = Any  # org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
Expression = Any
Attribute = Any

# Rules that depend on sizes, or that make a plan wait for another part of it at run time, have no
# place in a plan that is kept; and texts of plans are compared, so they have to be complete.
PLANNING = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.cbo.joinReorder.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled": "false",
    "spark.sql.debug.maxToStringFields": "100000",
    "spark.sql.maxPlanStringLength": "100000000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


@dataclass(frozen=True)
class EquiJoin:
    """A join's condition, split into equalities of keys and the rest (None: nothing is left)."""

    left: list[Expression]
    right: list[Expression]
    rest: Expression | None


@dataclass(frozen=True)
class SplitAggregate:
    """An aggregate, split as Spark does before executing it.

    `keys` are named expressions over the input; `functions` aggregate expressions whose results
    have the attributes `results`; `output` named expressions over keys and results.
    """

    keys: list[Expression]
    functions: list[Expression]
    results: list[Attribute]
    output: list[Expression]


class Catalyst:
    """Plans of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._java: Any = spark._jsparkSession
        self._jvm: Any = spark._jvm
        apache: Any = spark._jvm.org.apache.spark  # type: ignore[union-attr]
        self._catalyst = _Package(apache.sql.catalyst)
        self.expressions = self._catalyst.expressions
        self.logical = self._catalyst.plans.logical
        self._utils = apache.api.python.PythonUtils
        self._dataset_class = apache.sql.classic.Dataset
        self._singletons: dict[str, Any] = {}
        self._types: dict[str, DataType] = {}

    # Scala's collections.

    def seq(self, items: Iterable[Any]) -> Any:
        found = list(items)
        return self._utils.toSeq(found).toIndexedSeq() if found else self._nothing

    @functools.cached_property
    def _nothing(self) -> Any:
        return getattr(java(self.spark, "scala.collection.immutable.Nil$"), "MODULE$")

    items = staticmethod(nodes.items)

    @functools.cached_property
    def none(self) -> Any:
        return getattr(getattr(self._jvm.scala, "None$"), "MODULE$")

    def some(self, value: Any) -> Any:
        return self._jvm.scala.Some(value)

    def singleton(self, path: str) -> Any:
        """A Scala object of the package `org.apache.spark.sql.catalyst`."""
        if path not in self._singletons:
            found: Any = self._catalyst
            for name in path.split("."):
                found = getattr(found, name)
            self._singletons[path] = getattr(found, "MODULE$")
        return self._singletons[path]

    # DataFrames and their plans.

    def optimized(self, frame: DataFrame) -> Plan:
        """The optimised plan of a DataFrame, whatever its session, by the rules of this one."""
        from pyspark.sql.classic.dataframe import DataFrame as Classic

        assert isinstance(frame, Classic)
        analyzed = self.analyzed(frame)
        with active(self.spark):  # whose settings leave nothing out of texts
            text = analyzed.toString()
        if "(distinct " in text:
            return self._distinctions.optimized(analyzed)
        return self._dataset(analyzed).queryExecution().optimizedPlan()

    def optimized_text(self, frame: DataFrame) -> str:
        """The optimised plan of a DataFrame as Spark itself shows it."""
        analyzed = self.analyzed(frame)
        return str(self._dataset(analyzed).queryExecution().optimizedPlan().toString())

    @functools.cached_property
    def _distinctions(self) -> Distinctions:
        return Distinctions(self.spark)

    @staticmethod
    def analyzed(frame: DataFrame) -> Plan:
        return frame._jdf.queryExecution().analyzed()

    def _dataset(self, plan: Plan) -> Any:
        return self._dataset_class.ofRows(self._java, plan)

    @staticmethod
    def has_exchange(frame: DataFrame) -> bool:
        """Whether rows are exchanged between tasks: then Spark keeps what it has exchanged."""
        return "Exchange" in frame._jdf.queryExecution().executedPlan().toString()

    def ready(self, frame: DataFrame) -> DataFrame:
        """A frame that is planned, by the settings of this session; any thread may execute it."""
        with active(self.spark):
            frame._jdf.queryExecution().toRdd()
        return frame

    @staticmethod
    def execute(frame: DataFrame) -> None:
        """Run a frame for what its tasks do. Its rows stay where they are.

        Unlike `collect`, it neither describes the plan once more nor opens a socket for the rows,
        which is what a small job would spend a third of its time on.
        """
        frame._jdf.queryExecution().toRdd().count()

    def frame(self, plan: Plan) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        return DataFrame(self._dataset(plan), self.spark)

    def passed_on(self, frame: DataFrame) -> tuple[int, list[int]] | None:
        """If a frame is some columns of what a Python function gives, as they are: which.

        The identity of the first column that the function gives, and the places of those that are
        passed on. None if Spark has anything to do for it.
        """
        plan = self.analyzed(frame)
        projects = []
        while (kind := self.kind(plan)) != "MapInArrow":
            if kind == "Project":
                projects.append(plan)
            elif kind != "Repartition" or plan.shuffle():
                return None
            plan = plan.child()
        ids = None
        for project in projects:
            values = {self.id_of(one): one for one in self.items(project.projectList())}
            ids = list(values) if ids is None else ids
            taken = [values[id] for id in ids]
            taken = [one.child() if self.kind(one) == "Alias" else one for one in taken]
            if any(self.kind(one) != "AttributeReference" for one in taken):
                return None
            ids = [self.id_of(one) for one in taken]
        given = [self.id_of(one) for one in self.output(plan)]
        return given[0], [given.index(id) for id in (given if ids is None else ids)]

    # Reading plans.

    kind = staticmethod(nodes.kind)
    children = staticmethod(nodes.children)
    output = staticmethod(nodes.output)
    id_of = staticmethod(nodes.id_of)

    def type_of(self, expression: Expression) -> DataType:
        from pyspark.sql.types import _parse_datatype_json_string

        text = nodes.type_text(expression)
        if text not in self._types:
            self._types[text] = _parse_datatype_json_string(text)
        return self._types[text]

    def walk(self, plan: Plan, visit: Callable[[Any, bool], None]) -> None:
        """Visit every node of a plan, and every expression of each, subqueries included.

        `visit` is told whether it is an expression.
        """
        visit(plan, False)
        for expression in self.items(plan.expressions()):
            self._walk_expression(expression, visit)
        for child in self.children(plan):
            self.walk(child, visit)

    def _walk_expression(self, expression: Expression, visit: Callable[[Any, bool], None]) -> None:
        visit(expression, True)
        for child in self.children(expression):
            self._walk_expression(child, visit)
        if self.is_subquery(expression):
            self.walk(expression.plan(), visit)

    def sql(self, expression: Expression) -> str:
        """An expression as SQL, in which constants are written as such."""
        return str(expression.sql())

    def column_ids(self, expression: Expression) -> list[int]:
        """The identities of the columns in an expression, in order, as often as they come."""
        leaves = self.items(expression.collectLeaves())
        return [self.id_of(one) for one in leaves if self.kind(one) == "AttributeReference"]

    def distinct_keys(self, plan: Plan) -> list[set[int]]:
        """Sets of columns that no two rows of a plan share, by their identities."""
        found = []
        for key in self.items(plan.distinctKeys().toSeq()):
            columns = self.items(key.toSeq())
            if all(self.kind(one) == "AttributeReference" for one in columns):
                found.append({self.id_of(one) for one in columns})
        return found

    def place(self, node: Any) -> tuple[int, int] | None:
        """Line and column of a plan: its own, or those of the first thing in it that knows."""
        for one in (node, *self.items(node.expressions())):
            found = origin(one)
            if found is not None:
                return found
        return next(filter(None, map(self.place, self.children(node))), None)

    def has_scalar_subquery(self, expression: Expression) -> bool:
        if self.kind(expression) == "ScalarSubquery":
            return True
        return any(self.has_scalar_subquery(child) for child in self.children(expression))

    def is_subquery(self, expression: Expression) -> bool:
        return self.kind(expression) in _SUBQUERIES

    def equi_join(self, join: Plan, is_key: Callable[[Expression], bool]) -> EquiJoin:
        """The keys of a join, found by Spark itself; null-safe ones included.

        An equality of what cannot be a key is part of the rest.
        """
        found = self.singleton("planning.ExtractEquiJoinKeys$").unapply(join)
        if found.isEmpty():
            condition = join.condition()
            return EquiJoin([], [], None if condition.isEmpty() else condition.get())
        parts = found.get()
        rest = None if parts._4().isEmpty() else parts._4().get()
        left, right = [], []
        for one, other in zip(self.items(parts._2()), self.items(parts._3()), strict=True):
            if is_key(one) and is_key(other):
                left.append(one)
                right.append(other)
            else:
                equal = self.expressions.EqualTo(one, other)
                rest = equal if rest is None else self.expressions.And(rest, equal)
        return EquiJoin(left, right, rest)

    def null_safe_keys(self, value: Expression) -> list[Expression]:
        """Keys that are equal exactly where values are, NULLs included: as Spark's own."""
        default = self.singleton("expressions.Literal$").default(value.dataType())
        e = self.expressions
        return [e.Coalesce(self.seq([value, default])), e.IsNull(value)]

    def null_aware_keys(self, join: Plan) -> tuple[Expression, Expression] | None:
        """Both keys of an anti join that stands for NOT IN; None for any other join."""
        found = self.singleton("planning.ExtractSingleColumnNullAwareAntiJoin$").unapply(join)
        if found.isEmpty():
            return None
        left, right = found.get()._1(), found.get()._2()
        return left.apply(0), right.apply(0)

    def not_in(self, join: Plan, left: Expression, right: Expression) -> Plan:
        """NOT IN by equality: an anti join, and what NULLs among the values do to all rows.

        With no values at all, every row is kept. With a NULL among them, none is; otherwise those
        that are not NULL themselves and equal none. Both facts are columns of one row, which
        changes far more seldom than the values do.
        """
        e, none = self.expressions, self.singleton("plans.logical.JoinHint$").NONE()
        anti = self.logical.Join(
            join.left(), join.right(), join.joinType(), self.some(e.EqualTo(left, right)), none
        )
        literal = self.singleton("expressions.Literal$")

        def count(value: Expression) -> Expression:
            return e.aggregate.Count(self.seq([value])).toAggregateExpression()

        every = count(literal.apply(1))
        empty = self.named(e.EqualTo(every, self.literal(0, LongType())), "is_empty")
        nulls = self.named(e.GreaterThan(every, count(right)), "has_null")
        facts = self.logical.Aggregate(
            self.seq([]), self.seq([empty, nulls]), join.right(), self.none
        )
        keeps = e.Or(empty.toAttribute(), e.And(e.Not(nulls.toAttribute()), e.IsNotNull(left)))
        both = self.filter(keeps, self.single_join(anti, facts))
        return self.project(self.output(join), both)

    def split_aggregate(self, aggregate: Plan) -> SplitAggregate:
        found = self.singleton("planning.PhysicalAggregation$").unapply(aggregate)
        parts = found.get()
        hidden, output = self.items(parts._2()), self.items(parts._3())
        functions = [self._distinctions.restored(one) for one in hidden]
        results = [function.resultAttribute() for function in functions]
        if any(new is not old for new, old in zip(functions, hidden, strict=True)):
            named = {self.id_of(one): one for one in results}  # by what they are again

            def own(expression: Expression) -> Expression | None:
                is_column = self.kind(expression) == "AttributeReference"
                return named.get(self.id_of(expression)) if is_column else None

            output = [self.replaced(one, own) for one in output]
        return SplitAggregate(self.items(parts._1()), functions, results, output)

    def expanded_distinct(self, aggregate: Plan) -> Plan | None:
        """An aggregate with several DISTINCT sets as Spark computes it; None if it has not."""
        if "distinct" not in aggregate.simpleString(100_000):
            return None
        return self._distinctions.expanded(aggregate)

    def is_session(self, key: Expression) -> bool:
        """Whether a grouping column is a session_window(), which Spark merges as it aggregates."""
        named = self.kind(key) in ("Alias", "AttributeReference")
        return named and bool(key.metadata().contains("spark.sessionWindow"))

    def is_orderable(self, expression: Expression) -> bool:
        rows = self.singleton("expressions.RowOrdering$")
        # Not the method of this name for a type: a struct type is a sequence, too, and Py4J would
        # call this one with it.
        return bool(rows.isOrderable(self.seq([expression])))

    @staticmethod
    def evaluate(expression: Expression) -> Any:
        """The value of a foldable expression."""
        return expression.eval(None)

    # Making expressions.

    def renamed(self, expression: Expression, attribute: Attribute) -> Expression:
        """`expression` under the name and the identity of `attribute`."""
        return self.expressions.Alias(
            expression,
            attribute.name(),
            attribute.exprId(),
            attribute.qualifier(),
            self.none,
            self.seq([]),
        )

    def named(self, expression: Expression, name: str) -> Expression:
        """`expression` under a name, with an identity of its own."""
        id_ = self.singleton("expressions.NamedExpression$").newExprId()
        return self.expressions.Alias(expression, name, id_, self.seq([]), self.none, self.seq([]))

    def literal(self, value: Any, type_: DataType) -> Expression:
        """A constant; None is a typed NULL."""
        java = self._java.parseDataType(type_.json())
        plain = self.singleton("expressions.Literal$")
        if value is None:
            return plain.create(None, java)
        return self.expressions.Cast(
            plain.apply(value), java, self.none, self.singleton("expressions.EvalMode$").ANSI()
        )

    def null_like(self, attribute: Attribute) -> Expression:
        return self.singleton("expressions.Literal$").create(None, attribute.dataType())

    def replaced(self, expression: Expression, found: Callable[[Any], Any | None]) -> Expression:
        """The expression with some of its parts replaced: those for which `found` gives another."""
        other = found(expression)
        if other is not None:
            return other
        children = self.children(expression)
        if not children:
            return expression
        changed = [self.replaced(child, found) for child in children]
        if all(new is old for new, old in zip(changed, children, strict=True)):
            return expression
        return expression.withNewChildren(self.seq(changed))

    # Making plans.

    def project(self, expressions: Iterable[Expression], plan: Plan) -> Plan:
        return self.logical.Project(self.seq(expressions), plan)

    def filter(self, condition: Expression, plan: Plan) -> Plan:
        return self.logical.Filter(condition, plan)

    def union(self, plans: Sequence[Plan]) -> Plan:
        return self.logical.Union(self.seq(plans), False, False)

    def with_children(self, node: Plan, children: Sequence[Plan]) -> Plan:
        return node.withNewChildren(self.seq(children))

    def expand(self, node: Plan, passed: Attribute, child: Plan) -> Plan:
        """An Expand that passes one more column of its input on."""
        rows = [self.seq([*self.items(row), passed]) for row in self.items(node.projections())]
        output = self.seq([*self.items(node.output()), passed])
        return self.logical.Expand(self.seq(rows), output, child)

    def generate(self, node: Plan, child: Plan, generator: Expression | None = None) -> Plan:
        """A Generate over a child with more columns, which it passes on.

        Columns that it does not pass on are known by their places, and some of these may lie
        beyond the columns that the optimiser has left.
        """
        width = len(self.output(node.child()))
        dropped = [int(i) for i in self.items(node.unrequiredChildIndex()) if int(i) < width]
        return self.logical.Generate(
            node.generator() if generator is None else generator,
            self.seq(dropped),
            node.outer(),
            node.qualifier(),
            node.generatorOutput(),
            child,
        )

    def aggregate(
        self, keys: Sequence[Attribute], split: SplitAggregate, passed: Attribute, child: Plan
    ) -> Plan:
        """Keys, functions, and the largest value of one more column, `passed`."""
        functions = [
            self.renamed(function, result)
            for function, result in zip(split.functions, split.results, strict=True)
        ]
        largest = self.expressions.aggregate.Max(passed).toAggregateExpression()
        values = [self.named(largest, "flag"), *keys, *functions]
        return self.logical.Aggregate(self.seq(keys), self.seq(values), child, self.none)

    def filtered_function(self, function: Expression, condition: Expression) -> Expression:
        """An aggregate expression that sees only rows for which a condition holds, too."""
        if function.filter().isDefined():
            condition = self.expressions.And(condition, function.filter().get())
        return self.expressions.aggregate.AggregateExpression(
            function.aggregateFunction(),
            function.mode(),
            function.isDistinct(),
            self.some(condition),
            function.resultId(),
        )

    def first_known(self, attribute: Attribute) -> Expression:
        """The first value of a column that is not NULL."""
        return self.expressions.aggregate.First(attribute, True).toAggregateExpression()

    def aggregate_alone(self, java: Plan, split: SplitAggregate) -> Plan:
        """An aggregate that gives its keys and the results of its functions, and no more."""
        aliases = [key for key in split.keys if self.kind(key) == "Alias"]
        child = java.child()
        if aliases:
            child = self.project([*self.output(child), *aliases], child)
        keys = [key.toAttribute() for key in split.keys]
        functions = [
            self.renamed(function, result)
            for function, result in zip(split.functions, split.results, strict=True)
        ]
        values = self.seq([*keys, *functions])
        return self.logical.Aggregate(self.seq(keys), values, child, java.hint())

    def sorted(self, order: Sequence[Expression], plan: Plan) -> Plan:
        return self.logical.Sort(self.seq(order), True, plan, self.none)

    def first(self, rows: int, plan: Plan) -> Plan:
        """The first rows of a plan, in its order."""
        limit = self.singleton("expressions.Literal$").apply(rows)
        return self.logical.GlobalLimit(limit, self.logical.LocalLimit(limit, plan))

    def single_join(self, left: Plan, right: Plan) -> Plan:
        """Each left row with the only row of the right side, or with NULLs if it has none."""
        none = self.singleton("plans.logical.JoinHint$").NONE()
        return self.logical.Join(left, right, self.singleton("plans.LeftSingle$"), self.none, none)


_SUBQUERIES = frozenset(
    {"ScalarSubquery", "ListQuery", "Exists", "LateralSubquery", "DynamicPruningSubquery"}
)


class _Package:
    """A Java package whose members are looked up once: each look is a call to the JVM."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java, name)
        if type(found).__name__ == "JavaPackage":
            found = _Package(found)
        setattr(self, name, found)
        return found
