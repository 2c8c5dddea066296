"""DISTINCT aggregates through Spark's optimiser as they are written.

Where an aggregate has several of them, the optimiser expands each row into one for each set of
distinct columns. That suits one pass over all rows, not a plan that is maintained; and the order
of the sets depends on hashes of numbers that every process counts for itself, so the same query
would have another plan in the next process. DISTINCT is therefore hidden before the optimiser sees
it, behind a condition that only says that it was there, and restored in what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windrow.spark.nodes import items, java, kind
from windrow.spark.plans import Rewriting, active, option, renamed, seq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALYST = "org.apache.spark.sql.catalyst"
_EXPRESSIONS = f"{_CATALYST}.expressions"


class Distinctions:
    """Hides and restores DISTINCT in the plans of one session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        named = getattr(java(session, f"{_EXPRESSIONS}.NamedExpression$"), "MODULE$")
        boolean = session._jsparkSession.parseDataType('"boolean"')
        empty = getattr(java(session, f"{_CATALYST}.types.DataTypeUtils$"), "MODULE$")
        field = java(session, "org.apache.spark.sql.types.StructField")
        metadata = java(session, "org.apache.spark.sql.types.Metadata").empty()
        attribute = empty.toAttribute(field("distinct", boolean, False, metadata))
        self._marker = attribute.withExprId(named.newExprId())
        self._none = getattr(java(session, "scala.None$"), "MODULE$")

    def optimized(self, analyzed: Any) -> Any:
        """The optimised plan of an analysed one, with DISTINCT hidden."""
        hidden = _Hiding(self._session, self).plan(analyzed)
        with active(self._session):
            return self._session._jsparkSession.sessionState().optimizer().execute(hidden)

    def hidden(self, function: Any) -> Any:
        """An aggregate expression without DISTINCT, which its condition tells of."""
        if not function.isDistinct():
            return function
        optimizer = java(self._session, f"{_CATALYST}.optimizer.EliminateDistinct$")
        if getattr(optimizer, "MODULE$").isDuplicateAgnostic(function.aggregateFunction()):
            return self._with(function, False, option(function.filter()))
        if kind(function.aggregateFunction()) == "Count":
            # A count of values that are never NULL is one of rows, unless they are to be distinct.
            nullable = java(self._session, f"{_EXPRESSIONS}.KnownNullable")
            function = self._counting(function, nullable)
        condition = option(function.filter())
        if condition is not None:
            condition = java(self._session, f"{_EXPRESSIONS}.And")(condition, self._marker)
        return self._with(function, False, condition or self._marker)

    def _counting(self, function: Any, value: Callable[[Any], Any]) -> Any:
        """A count of other values than it had."""
        count = function.aggregateFunction()
        values = [value(one) for one in items(count.children())]
        return function.withNewChildren(
            seq(
                self._session,
                [
                    count.withNewChildren(seq(self._session, values)),
                    *items(function.children())[1:],
                ],
            )
        )

    def restored(self, function: Any) -> Any:
        """An aggregate expression as it was before its DISTINCT was hidden."""
        condition = option(function.filter())
        if condition is None:
            return function
        kept = [one for one in _conjuncts(condition) if not self._is_marker(one)]
        if len(kept) == len(_conjuncts(condition)):
            return function
        rest = None
        for one in kept:
            both = java(self._session, f"{_EXPRESSIONS}.And")
            rest = one if rest is None else both(rest, one)
        if kind(function.aggregateFunction()) == "Count":
            function = self._counting(function, _without_nullable)
        return self._with(function, True, rest)

    def expanded(self, aggregate: Any) -> Any | None:
        """An aggregate with several DISTINCT sets, expanded by Spark; None if it has not.

        Columns of the input get numbers that are the same in every process, so the order is, too.
        """
        session = self._session
        child = aggregate.child()
        needed = aggregate.references()
        columns = [one for one in items(child.output()) if needed.contains(one)]
        make = java(session, f"{_EXPRESSIONS}.ExprId")
        nobody = java(session, "java.util.UUID")(0, 0)
        fixed = [one.withExprId(make(i, nobody)) for i, one in enumerate(columns)]
        known = {str(a.exprId().toString()): b for a, b in zip(columns, fixed, strict=True)}

        def own(expression: Any) -> Any:
            if kind(expression) == "AttributeReference":
                return known.get(str(expression.exprId().toString()), expression)
            before = items(expression.children())
            after = [own(one) for one in before]
            if any(new is not old for new, old in zip(after, before, strict=True)):
                expression = expression.withNewChildren(seq(session, after))
            if kind(expression) == "AggregateExpression":
                expression = self.restored(expression)
            return expression

        values = [own(one) for one in items(aggregate.aggregateExpressions())]
        numbered = java(session, f"{_CATALYST}.plans.logical.Aggregate")(
            seq(session, [own(one) for one in items(aggregate.groupingExpressions())]),
            seq(session, values),
            renamed(session, columns, fixed, child),
            aggregate.hint(),
        )
        rule = java(session, f"{_CATALYST}.optimizer.RewriteDistinctAggregates$")
        found = getattr(rule, "MODULE$").apply(numbered)
        if found.fastEquals(numbered):
            return None
        return renamed(session, items(found.output()), items(aggregate.output()), found)

    def _is_marker(self, expression: Any) -> bool:
        if kind(expression) != "AttributeReference":
            return False
        return bool(expression.exprId().equals(self._marker.exprId()))

    def _with(self, function: Any, distinct: bool, condition: Any | None) -> Any:
        make = java(self._session, f"{_EXPRESSIONS}.aggregate.AggregateExpression")
        some = java(self._session, "scala.Some")
        return make(
            function.aggregateFunction(),
            function.mode(),
            distinct,
            self._none if condition is None else some(condition),
            function.resultId(),
        )


class _Hiding(Rewriting):
    """Hides DISTINCT in all aggregates of a plan, those of subqueries included."""

    def __init__(self, session: SparkSession, distinctions: Distinctions) -> None:
        super().__init__(session, lambda node, hidden: None)
        self._distinctions = distinctions

    def plan(self, node: Any, hidden: frozenset[str] = frozenset()) -> Any:
        node = super().plan(node, hidden)
        if kind(node) != "Aggregate":
            return node
        before = items(node.aggregateExpressions())
        after = [self._hidden(one) for one in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return node
        make = java(self._session, f"{_CATALYST}.plans.logical.Aggregate")
        values = seq(self._session, after)
        return make(node.groupingExpressions(), values, node.child(), node.hint())

    def _hidden(self, expression: Any) -> Any:
        if kind(expression) == "AggregateExpression":
            return self._distinctions.hidden(expression)
        before = items(expression.children())
        after = [self._hidden(one) for one in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return expression
        return expression.withNewChildren(seq(self._session, after))


def _without_nullable(expression: Any) -> Any:
    return expression.child() if kind(expression) == "KnownNullable" else expression


def _conjuncts(condition: Any) -> list[Any]:
    if kind(condition) != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
