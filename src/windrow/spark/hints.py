"""The hint EXPECTED_GROUP_SIZE(n) of a query block, carried through Spark's analyser and optimiser.

Spark's parser keeps every hint, and its analyser drops those that it does not know. So ours is
taken out of the parsed plan, and what it says is put where it stays: aggregates, windows and sorts
have a field for a hint, which all rules pass on, and which nothing else uses here.

    parsed      Aggregate, Sort: the field. All nodes: a tag, since Project may become either.
                Orders: a tag, since a LIMIT of each group becomes a window with that order
    analysed    the tag of a block is put into the fields of its aggregates and windows
    optimised   `group_size_of` reads the field, and `without_hint` leaves it out again
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import UnsupportedSQL
from windrow.spark.nodes import items, java, kind
from windrow.spark.plans import Rewriting, frame_of, option, origin, plan_of, seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXPECTED_GROUP_SIZE = "EXPECTED_GROUP_SIZE"
_HINT = "UnresolvedHint"
_WITH_FIELD = ("Aggregate", "Window", "Sort")
_OF_A_BLOCK = ("Project", "Filter", "Generate")  # beneath which its own operators may stand


class GroupSizes:
    """The hints of one parsed query."""

    def __init__(self, session: SparkSession) -> None:
        self._session, self._tag = session, _tag(session)
        self._found = False

    def taken(self, plan: Any) -> Any:
        """A parsed plan without our hints, which are noted at the nodes of their blocks."""
        return _Parsed(self._session, self).plan(plan)

    def carried(self, frame: DataFrame) -> DataFrame:
        """An analysed query, with the hints of blocks at their aggregates and windows."""
        if not self._found:
            return frame
        return frame_of(self._session, _Analysed(self._session, self).plan(plan_of(frame)))

    def note(self, node: Any, size: int) -> Any:
        """A node of a parsed plan that knows the hint of its block."""
        self._found = True
        if kind(node) == "UnresolvedHaving":
            inner = self.note(node.child(), size)
            node = node.withNewChildren(seq(self._session, [inner]))
        elif kind(node) in _WITH_FIELD:
            node = _with_field(self._session, node, size)
        node.setTagValue(self._tag, size)
        return node

    def noted(self, node: Any) -> int | None:
        return _noted(node, self._tag)

    def note_order(self, sort: Any, size: int) -> Any:
        """A sort of a parsed plan that knows the hint of the block beneath it."""
        for one in items(sort.order()):
            one.setTagValue(self._tag, size)
        return _with_field(self._session, sort, size)


class _Parsed(Rewriting):
    def __init__(self, session: SparkSession, sizes: GroupSizes) -> None:
        super().__init__(session, lambda node, hidden: None)
        self._sizes = sizes

    def plan(self, node: Any, hidden: frozenset[str] = frozenset()) -> Any:
        if _is_ours(node):
            return self._sizes.note(self.plan(node.child(), hidden), _size(node))
        found = super().plan(node, hidden)
        if kind(node) == "Sort" and _is_ours(node.child()):
            return self._sizes.note_order(found, _size(node.child()))
        return found


class _Analysed(Rewriting):
    def __init__(self, session: SparkSession, sizes: GroupSizes) -> None:
        super().__init__(session, lambda node, hidden: None)
        self._sizes = sizes

    def plan(self, node: Any, hidden: frozenset[str] = frozenset()) -> Any:
        size = self._sizes.noted(node)
        found = super().plan(node, hidden)
        return found if size is None else self._within(found, size)

    def _within(self, node: Any, size: int) -> Any:
        what = kind(node)
        if what == "Aggregate":
            return _with_field(self._session, node, size)
        if what != "Window" and what not in _OF_A_BLOCK:
            return node
        below = seq(self._session, [self._within(node.child(), size)])
        node = node.withNewChildren(below)
        return _with_field(self._session, node, size) if what == "Window" else node


def group_size_of(session: SparkSession, node: Any) -> int | None:
    """What the hint of its block says of an aggregate, a window or a sort; None without one."""
    what = kind(node)
    if what not in _WITH_FIELD:
        return None
    found = option(node.hint())
    if isinstance(found, int):
        return found
    orders = items(node.orderSpec()) if what == "Window" else []
    tag = _tag(session)
    return next((size for one in orders if (size := _noted(one, tag)) is not None), None)


def without_hint(session: SparkSession, node: Any) -> Any:
    """The node without its hint: what it computes is the same."""
    if kind(node) not in _WITH_FIELD or not isinstance(option(node.hint()), int):
        return node
    return _copied(session, node, getattr(java(session, "scala.None$"), "MODULE$"))


def _tag(session: SparkSession) -> Any:
    name = "windrow.expected_group_size"
    return java(session, "org.apache.spark.sql.catalyst.trees.TreeNodeTag")(name)


def _noted(node: Any, tag: Any) -> int | None:
    found = option(node.getTagValue(tag))
    return None if found is None else int(found)


def _is_ours(node: Any) -> bool:
    return kind(node) == _HINT and str(node.name()).upper() == EXPECTED_GROUP_SIZE


def _size(node: Any) -> int:
    values = items(node.parameters())
    text = values[0].toString() if len(values) == 1 and kind(values[0]) == "Literal" else ""
    if not text.isdigit() or not 1 <= int(text) < 2**63:
        line, column = origin(node) or (None, None)
        where = f" (line {line}, column {column})" if line is not None else ""
        raise UnsupportedSQL(
            f"the hint {EXPECTED_GROUP_SIZE}{where} takes one number, how many rows a group has; "
            f"write /*+ {EXPECTED_GROUP_SIZE}(1000) */",
            line=line,
            column=column,
        )
    return int(text)


def _with_field(session: SparkSession, node: Any, size: int) -> Any:
    return _copied(session, node, java(session, "scala.Some")(size))


def _copied(session: SparkSession, node: Any, hint: Any) -> Any:
    """A node whose last field, the hint, is another one."""
    gateway: Any = session.sparkContext._gateway
    count = node.productArity()
    array = gateway.new_array(gateway.jvm.java.lang.Object, count)
    for i in range(count - 1):
        array[i] = node.productElement(i)
    array[count - 1] = hint
    return node.makeCopy(array)
