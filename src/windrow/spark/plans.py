"""Catalyst's plans and expressions from Python: reading their fields, rewriting, making frames.

A plan is a tree of Scala case classes behind Py4J. Nothing here knows what a statement means; this
is the small vocabulary in which those who do are written. It needs a classic session: Spark Connect
has no plans to look at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windrow.spark.nodes import children, is_a, items, java, kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"

# The nodes that name something: an identifier that is still to be looked up.
RELATION, TRAVEL, WITH = "UnresolvedRelation", "RelationTimeTravel", "UnresolvedWith"


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """A block in which Spark takes settings from `session`: parsing, and rules called by name.

    `createDataFrame` makes its session the active one, for Python too; it belongs here.
    """
    from pyspark.sql import SparkSession

    sessions: Any = java(session, "org.apache.spark.sql.classic.SparkSession")
    before, known = sessions.getActiveSession(), SparkSession._activeSession
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = known
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def option(value: Any) -> Any | None:
    """What a Scala option holds."""
    return value.get() if value.isDefined() else None


def replacement(node: Any) -> Any | None:
    """The expression that stands for one which Spark only knows how to write otherwise."""
    from py4j.protocol import Py4JError

    try:
        return node.replacement()
    except Py4JError:  # it has none
        return None


def mapping(value: Any) -> dict[str, str]:
    """A Scala map of texts."""
    found = {}
    pairs = value.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found


def seq(session: SparkSession, values: Iterable[Any]) -> Any:
    """A Scala sequence."""
    found = list(values)
    if not found:
        return getattr(java(session, "scala.collection.immutable.Nil$"), "MODULE$")
    utils = java(session, "org.apache.spark.api.python.PythonUtils")
    return utils.toSeq(found).toIndexedSeq()


def names_of(parts: Any) -> tuple[str, ...]:
    return tuple(str(part) for part in items(parts))


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """A plan, analysed in `session` unless it is already, as a DataFrame of it."""
    from pyspark.sql.classic.dataframe import DataFrame

    dataset = java(session, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)


def plan_of(frame: DataFrame) -> Any:
    """The analysed plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def column_of(session: SparkSession, expression: Any) -> Column:
    """An expression, resolved or not, as a Column."""
    from pyspark.sql.classic.column import Column

    utils = java(session, "org.apache.spark.sql.classic.ExpressionUtils")
    return Column(utils.column(expression))


def expression_of(session: SparkSession, column: Column) -> Any:
    """A Column as an expression, which may be unresolved."""
    return session._jsparkSession.expression(column._jc)


def aliased(session: SparkSession, name: str, plan: Any, *qualifier: str) -> Any:
    """A plan whose columns can be qualified by `name`."""
    make = java(session, "org.apache.spark.sql.catalyst.AliasIdentifier")
    identifier = make(name, seq(session, qualifier))
    return java(session, f"{_LOGICAL}.SubqueryAlias")(identifier, plan)


def alias_of(node: Any) -> tuple[tuple[str, ...], str] | None:
    """The qualifier and the name of what `aliased` made; None for other nodes."""
    if kind(node) != "SubqueryAlias":
        return None
    identifier = node.identifier()
    return names_of(identifier.qualifier()), str(identifier.name())


def renamed(session: SparkSession, columns: list[Any], targets: list[Any], plan: Any) -> Any:
    """A projection of attributes of a plan, each with the name and identity of a target."""
    make = java(session, f"{_EXPRESSIONS}.Alias")
    none = getattr(java(session, "scala.None$"), "MODULE$")
    found = []
    for column, target in zip(columns, targets, strict=True):
        empty = seq(session, ())
        found.append(make(column, target.name(), target.exprId(), target.qualifier(), none, empty))
    return java(session, f"{_LOGICAL}.Project")(seq(session, found), plan)


def selected(session: SparkSession, columns: Iterable[Column], plan: Any) -> Any:
    """A projection; every column is to have a name."""
    utils = java(session, "org.apache.spark.sql.classic.ExpressionUtils")
    named = [utils.toNamed(expression_of(session, column)) for column in columns]
    return java(session, f"{_LOGICAL}.Project")(seq(session, named), plan)


def filtered(session: SparkSession, condition: Any, plan: Any) -> Any:
    return java(session, f"{_LOGICAL}.Filter")(condition, plan)


def joined(session: SparkSession, left: Any, right: Any, how: str, condition: Any) -> Any:
    """A join of two plans; `how` as in "fullouter"."""
    types = java(session, "org.apache.spark.sql.catalyst.plans.JoinType")
    hint = java(session, f"{_LOGICAL}.JoinHint").NONE()
    some = java(session, "scala.Some")(condition)
    return java(session, f"{_LOGICAL}.Join")(left, right, types.apply(how), some, hint)


def raised(session: SparkSession, condition: str) -> Column:
    """A column that fails with one of Spark's own errors, which takes no parameters."""
    from pyspark.sql import functions as F  # noqa: N812

    name = expression_of(session, F.lit(condition))
    none = expression_of(session, F.expr("CAST(map() AS MAP<STRING, STRING>)"))
    void = expression_of(session, F.lit(None)).dataType()
    return column_of(session, java(session, f"{_EXPRESSIONS}.RaiseError")(name, none, void))


def one_row(session: SparkSession) -> Any:
    return java(session, f"{_LOGICAL}.OneRowRelation")()


def java_schema(session: SparkSession, schema: StructType) -> Any:
    return session._jsparkSession.parseDataType(schema.json())


def schema_of(java_type: Any) -> StructType:
    """A Java StructType as PySpark's."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(java_type.json()))


def opaque_leaf(session: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows that the optimiser can know nothing of. Its RDD is one of its own."""
    from pyspark.sql.classic.dataframe import DataFrame

    rdd = session.sparkContext._jsc.emptyRDD().rdd()
    found = session._jsparkSession.internalCreateDataFrame(rdd, java_schema(session, schema), False)
    return DataFrame(found, session)


def origin(node: Any) -> tuple[int, int] | None:
    """Line and column in the text, both from 1; None if a node does not know."""
    place = node.origin()
    line, start = option(place.line()), option(place.startPosition())
    return None if line is None or start is None else (int(line), int(start) + 1)


def rewritten(session: SparkSession, plan: Any, replace: Callable[[Any], Any | None]) -> Any:
    """An analysed plan with other nodes where `replace` gives some, also in subqueries."""
    return _Nodes(session, replace).plan(plan)


Replace = Callable[[Any, frozenset[str]], Any | None]


class Rewriting:
    """Replaces relations in a parsed plan, also in subqueries and common table expressions.

    `replace` is called with each UnresolvedRelation and RelationTimeTravel and with the names (in
    lower case) that WITH clauses around it define; it gives what takes the node's place, or None.
    Nodes keep their places in the text, so that errors still point there.
    """

    def __init__(self, session: SparkSession, replace: Replace) -> None:
        self._session, self._replace = session, replace
        self._subqueries = java(session, f"{_EXPRESSIONS}.SubqueryExpression")

    def plan(self, node: Any, hidden: frozenset[str] = frozenset()) -> Any:
        """`node` with its relations replaced; itself, if there is nothing to replace."""
        what = kind(node)
        if what in (RELATION, TRAVEL):
            found = self._replace(node, hidden)
            return node if found is None else found
        if what == WITH:
            return self._with(node, hidden)
        before = children(node)
        after = [self.plan(child, hidden) for child in before]
        if _changed(before, after):
            node = node.withNewChildren(seq(self._session, after))
        if node.subqueries().nonEmpty():
            node = self._copy(node, hidden)
        return node

    def expression(self, node: Any, hidden: frozenset[str] = frozenset()) -> Any:
        """An expression with the relations of its subqueries replaced."""
        if not self._subqueries.hasSubquery(node):
            return node
        before = children(node)
        after = [self.expression(child, hidden) for child in before]
        if _changed(before, after):
            node = node.withNewChildren(seq(self._session, after))
        if is_a(self._session, node, f"{_EXPRESSIONS}.SubqueryExpression"):
            old = node.plan()
            new = self.plan(old, hidden)
            if new is not old:
                node = node.withNewPlan(new)
        return node

    def _with(self, node: Any, hidden: frozenset[str]) -> Any:
        tuple_ = java(self._session, "scala.Tuple3")
        relations = []
        recursive = bool(node.allowRecursion())
        for entry in items(node.cteRelations()):
            name = str(entry._1()).lower()
            inner = hidden | {name} if recursive else hidden
            relations.append(tuple_(entry._1(), self.plan(entry._2(), inner), entry._3()))
            hidden = hidden | {name}
        arguments = _arguments(node)
        arguments[0] = self.plan(node.child(), hidden)
        arguments[1] = seq(self._session, relations)
        return self._make(node, arguments)

    def _copy(self, node: Any, hidden: frozenset[str]) -> Any:
        """A node with other subqueries in its expressions."""
        before = _arguments(node)
        after = [self._value(one, hidden) for one in before]
        return self._make(node, after) if _changed(before, after) else node

    def _make(self, node: Any, arguments: list[Any]) -> Any:
        gateway: Any = self._session.sparkContext._gateway
        array = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
        for i, one in enumerate(arguments):
            array[i] = one
        return node.makeCopy(array)

    def _value(self, value: Any, hidden: frozenset[str]) -> Any:
        """A field of a node: expressions are rewritten wherever they are; plans are children."""
        if is_a(self._session, value, f"{_EXPRESSIONS}.Expression"):
            return self.expression(value, hidden)
        if is_a(self._session, value, "scala.collection.Seq"):
            before = items(value)
            after = [self._value(one, hidden) for one in before]
            return seq(self._session, after) if _changed(before, after) else value
        if is_a(self._session, value, "scala.Some"):
            before = value.get()
            after = self._value(before, hidden)
            return value if after is before else java(self._session, "scala.Some")(after)
        return value


class _Nodes(Rewriting):
    """Replaces nodes of any kind."""

    def __init__(self, session: SparkSession, replace: Callable[[Any], Any | None]) -> None:
        super().__init__(session, lambda node, hidden: None)
        self._put = replace

    def plan(self, node: Any, hidden: frozenset[str] = frozenset()) -> Any:
        found = self._put(node)
        return super().plan(node, hidden) if found is None else found


def _arguments(node: Any) -> list[Any]:
    """The fields of a case class, in order."""
    return [node.productElement(i) for i in range(node.productArity())]


def _changed(before: list[Any], after: list[Any]) -> bool:
    return any(a is not b for a, b in zip(before, after, strict=True))
