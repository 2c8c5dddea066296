"""Planning of the first rows: ORDER BY ... LIMIT, and ranks of which only the least are wanted.

All plans of the first rows give the same rows. Which one is taken is decided here, by what is known
of the input, or by the view's property `topk`; see `windrow.views.plan.tops` for what each keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from windrow.errors import UnsupportedSQL
from windrow.rows.sortkeys import Direction
from windrow.spark.catalyst import Catalyst
from windrow.storage.names import digest
from windrow.views.plan.bounds import Bound, bound
from windrow.views.plan.hints import FAN_OUT, GroupSize, group_size
from windrow.views.plan.keys import comparable
from windrow.views.plan.monotonic import growth
from windrow.views.plan.nodes import Arrangement, Node, Stateless, TopK, TopRows
from windrow.views.plan.order import by_whole_row
from windrow.views.plan.texts import EVERYTHING, plain, unique
from windrow.views.plan.tops import BoundedTop, MonotonicTop, SortedTop, StackedTop

TOP_K = "topk"  # the property of a view that forces a plan, and its values
AUTO, BASIC, STACK, SORTED, MONOTONIC = "auto", "basic", "stack", "sorted", "monotonic"
PLANS = (AUTO, BASIC, STACK, SORTED, MONOTONIC)
LARGEST_TOP = 100_000  # rows of a group that are kept as its first; more are computed by Spark
FEW = 4_096  # rows of a group that are looked at as a whole rather than kept in order
_RANKS = {"RowNumber": "row_number", "Rank": "rank", "DenseRank": "dense_rank"}


class Planning(Protocol):
    """What is needed of the planner of a view."""

    _c: Catalyst
    _properties: Mapping[str, str]

    def _node(self, java: Any) -> Node: ...
    def _refused(self, java: Any, why: str) -> UnsupportedSQL: ...
    def _names(self, java: Any) -> tuple[str, ...]: ...
    def _identity(self, java: Any, over: Sequence[Node], *more: Any) -> str: ...
    def _texts(self, expressions: Sequence[Any]) -> str: ...
    def _normal(self, text: str, over: Node) -> str: ...
    def _primary_key(self, java: Any) -> Sequence[str]: ...
    def _arranged(
        self,
        over: Node,
        attributes: Sequence[Any],
        keys: Sequence[Any],
        what: str = "rows",
        more: str = "",
    ) -> Arrangement: ...
    def _scalars(
        self, expressions: Sequence[Any]
    ) -> tuple[Callable[[Any], Any | None], dict[int, Any]]: ...
    def _with_scalars(self, plan: Any, found: Mapping[int, Any]) -> Any: ...


@dataclass(frozen=True)
class Wanted:
    """Which rows are wanted of what: the first by `order`, of each group of `partition`.

    `java` is the input in Spark's plan, `over` in ours. `rank` is the attribute of the rank.
    `size` is how large groups are expected to be.
    """

    java: Any
    over: Node
    size: GroupSize
    partition: Sequence[Any]
    order: Sequence[Any]
    function: str
    limit: int | None
    offset: int
    rank: Any | None = None


def limited(p: Planning, java: Any, limit: int | None, offset: int) -> Node:
    """A limit over what is beneath it: offsets, local limits, and the sort that gives order.

    Projections between the limit and its sort stay above: they handle each row by itself.
    """
    c = p._c
    projections: list[Any] = []
    order: list[Any] = []
    size = group_size(c, java, p._properties)
    while True:
        kind = c.kind(java)
        if kind == "Offset" and not offset and not projections:
            offset = int(c.evaluate(java.offsetExpr()))
        elif kind == "Sort":
            order = c.items(java.order())
            size = group_size(c, java, p._properties)
            java = java.child()
            look, found = p._scalars(order)
            if found:
                order = [c.replaced(one, look) for one in order]
                projections.append(c.project(c.output(java), java))
                java = p._with_scalars(java, found)
            break
        elif kind == "Project" and _leads_to_sort(c, java):
            projections.append(java)
        elif kind not in ("LocalLimit", "SubqueryAlias"):
            break
        java = java.child()
    wanted = Wanted(java, p._node(java), size, [], order, "row_number", limit, offset)
    found_rows = _first_rows(p, wanted, java)
    node = found_rows if isinstance(found_rows, Node) else _basic(p, wanted, found_rows)
    return _projected(p, node, projections)


def first_of_groups(p: Planning, java: Any) -> Node | None:
    """A window of a rank of which only the least are wanted, as Spark has found; None for others.

    None, too, where Spark has to compute it: windows have a plan of their own for that.
    """
    c = p._c
    below = java.child()
    functions = c.items(java.windowExpressions())
    if c.kind(below) != "WindowGroupLimit" or len(functions) != 1:
        return None
    function = _RANKS.get(c.kind(below.rankLikeFunction()))
    window = functions[0].child()
    if function is None or c.kind(window) != "WindowExpression":
        return None
    if c.kind(window.windowFunction()) != c.kind(below.rankLikeFunction()):
        return None
    partition = c.items(java.partitionSpec())
    if not all(comparable(c, one) is one for one in partition):
        if _forced(p, java) == MONOTONIC:
            why = "groups are not told apart by what is stored of their keys"
            raise p._refused(java, f"'{TOP_K}' = '{MONOTONIC}' is not possible: {why}")
        return None
    child = below.child()
    wanted = Wanted(
        child,
        p._node(child),
        group_size(c, java, p._properties),
        partition,
        c.items(java.orderSpec()),
        function,
        int(below.limit()),
        0,
        functions[0].toAttribute(),
    )
    found = _first_rows(p, wanted, java)
    return found if isinstance(found, Node) else None


def _leads_to_sort(c: Catalyst, java: Any) -> bool:
    while c.kind(java) in ("Project", "LocalLimit"):
        java = java.child()
    return c.kind(java) == "Sort"


def _projected(p: Planning, node: Node, projections: Sequence[Any]) -> Node:
    for projection in reversed(projections):
        text = projection.simpleString(100_000).partition(" ")[2]
        node = Stateless(
            p._identity(projection, (node,)),
            projection,
            p._names(projection),
            (node,),
            "Project",
            plain(text),
        )
    return node


def _basic(p: Planning, wanted: Wanted, why: str) -> Node:
    """The plan that has Spark compute it, of all rows."""
    c, java, over, order = p._c, wanted.java, wanted.over, wanted.order
    attributes = c.output(java)
    limit, offset = wanted.limit, wanted.offset
    identity = p._identity(java, (over,), "top-k", limit, offset, p._texts(order))
    return TopK(
        identity,
        java,
        p._names(java),
        over,
        p._arranged(over, attributes, []),
        p._arranged(over, attributes, [], "results", identity),
        tuple(by_whole_row(c, order, attributes)),
        tuple(plain(one.toString()) for one in order),
        limit,
        offset,
        why,
    )


def _first_rows(p: Planning, wanted: Wanted, java: Any) -> TopRows | str:
    """The plan of the first rows; or why Spark has to compute them."""
    forced = _forced(p, java)
    impossible = _impossible(p._c, wanted)
    if forced == MONOTONIC:
        grows = growth(wanted.over)
        why = impossible or _not_monotonic(wanted) or ("" if grows.only_grows else str(grows))
        if why:
            raise p._refused(java, f"'{TOP_K}' = '{MONOTONIC}' is not possible: {why}")
    if impossible:
        return impossible
    if forced == BASIC:
        return f"'{TOP_K}' = '{BASIC}'"
    return _chosen(p, wanted, java, forced)


def _forced(p: Planning, java: Any) -> str:
    found = p._properties.get(TOP_K, AUTO).lower()
    if found not in PLANS:
        valid = ", ".join(repr(one) for one in PLANS)
        raise p._refused(java, f"the property '{TOP_K}' is {found!r}; it can be {valid}")
    return found


def _impossible(c: Catalyst, wanted: Wanted) -> str | None:
    """Why the first rows cannot be told by order keys."""
    if wanted.limit is None:
        return "there is no limit"
    if not 0 < wanted.limit <= LARGEST_TOP - wanted.offset:
        return f"the limit is not between 1 and {LARGEST_TOP:,} rows"
    values = [*c.output(wanted.java), *(one.child() for one in wanted.order)]
    for one in values:
        if not _has_order_keys(c.type_of(one)):
            return f"{plain(one.toString())} has no order keys"
    return None


def _not_monotonic(wanted: Wanted) -> str | None:
    return "there is an offset" if wanted.offset else None


def _chosen(p: Planning, wanted: Wanted, java: Any, forced: str) -> TopRows:
    """The plan by what is known: monotonic, or bounded, or else by sorted rows."""
    rows = _Rows.of(p, wanted, java)
    asked = f"'{TOP_K}' = '{forced}'"
    grows, offset = growth(wanted.over), _not_monotonic(wanted)
    monotonic = forced == MONOTONIC or (forced == AUTO and grows.only_grows and not offset)
    if monotonic:
        return MonotonicTop(**rows.common, why=str(grows), tops=rows.kept("monotonic tops"))
    limit = bound(p._c, wanted.java, wanted.partition, p._primary_key)
    if forced == STACK:
        return _stack(rows, wanted.size, asked, limit)
    if forced == AUTO and limit is not None and limit.rows <= FEW:
        return BoundedTop(**rows.common, why=str(limit), rows=rows.level((1,)))
    why = asked if forced == SORTED else offset if grows.only_grows and offset else str(grows)
    return SortedTop(**rows.common, why=why, rows=rows.in_order(), tops=rows.kept("tops"))


def _stack(rows: _Rows, size: GroupSize, why: str, limit: Bound | None) -> TopRows:
    if limit is not None and limit.rows < size.rows:
        size = GroupSize(limit.rows, limit.why)
    numbers = [FAN_OUT**n for n in reversed(range(size.levels))]
    levels = tuple(
        (number, rows.level(tuple(numbers[: at + 1]))) for at, number in enumerate(numbers)
    )
    return StackedTop(**rows.common, why=why, levels=levels, bucket=rows.bucket, size=size)


@dataclass(frozen=True)
class _Rows:
    """Rows with order keys, and what plans keep of them.

    `common` are the fields that all plans have but `why`. `about` is what the rows are.
    """

    common: dict[str, Any]
    about: tuple[Any, ...]

    @staticmethod
    def of(p: Planning, wanted: Wanted, java: Any) -> _Rows:
        c, over = p._c, wanted.over
        attributes = c.output(wanted.java)
        base = p._arranged(over, attributes, wanted.partition)
        places = {c.id_of(one): at for at, one in enumerate(attributes)}
        others: list[Any] = []
        directions = []
        for one in by_whole_row(c, wanted.order, attributes):
            child = one.child()
            if c.kind(child) == "AttributeReference" and c.id_of(child) in places:
                at = places[c.id_of(child)]
            else:
                at = len(base.expressions) + len(others)
                others.append(c.named(child, f"order{len(others)}"))
            ascending = c.kind(one.direction()) == "Ascending"
            nulls_first = c.kind(one.nullOrdering()) == "NullsFirst"
            directions.append((at, Direction(ascending, nulls_first)))
        keys = ["order_key"] if wanted.function == "row_number" else ["order_key", "peer_key"]
        names = unique([*base.schema.names, *keys])[-len(keys) :]
        schema = pa.schema([*base.schema, *(pa.field(name, pa.binary()) for name in names)])
        texts = p._texts(wanted.order)
        given = [*attributes, *([] if wanted.rank is None else [wanted.rank])]
        what = (wanted.function, wanted.limit, wanted.offset)
        common = {
            "identity": p._identity(java, (over,), "top", *what, texts),
            "java": java,
            "columns": tuple(str(one.name()) for one in given),
            "over": over,
            "schema": schema,
            "key": base.key,
            "columns_of_rows": base.expressions,
            "others": tuple(others),
            "directions": tuple(directions),
            "peers": len(wanted.order),
            "width": len(attributes),
            "groups": tuple(plain(one.toString()) for one in wanted.partition),
            "order": tuple(plain(one.toString()) for one in wanted.order),
            "function": wanted.function,
            "limit": wanted.limit,
            "offset": wanted.offset,
            "rank": wanted.rank,
        }
        return _Rows(common, (over.identity, base.name, p._normal(texts, over), len(keys)))

    @property
    def _which(self) -> tuple[Any, ...]:
        return tuple(self.common[name] for name in ("function", "limit", "offset"))

    @property
    def schema(self) -> pa.Schema:
        found: pa.Schema = self.common["schema"]
        return found

    @property
    def key(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.common["key"]
        return found

    @property
    def bucket(self) -> str:
        """A column of its own, for the bucket of a row."""
        return unique([*self.schema.names, "bucket"])[-1]

    def kept(self, what: str) -> Arrangement:
        """The first rows of each group."""
        name = digest(what, self.about, *self._which)
        return Arrangement(name, self.key, self.schema, "first rows", ())

    def in_order(self) -> Arrangement:
        """All rows, in their order."""
        order = self.schema.names[-self.about[-1]]
        name = digest("sorted", self.about)
        return Arrangement(name, self.key, self.schema, "sorted rows", (), (order,))

    def level(self, numbers: tuple[int, ...]) -> Arrangement:
        """What goes into the last of these levels, by group and bucket.

        Of the first level, that is all rows; of the others it depends on which are the first.
        """
        which = () if len(numbers) == 1 else self._which
        name = digest("level", self.about, numbers, which)
        if numbers[-1] == 1:
            what = "rows" if len(numbers) == 1 else f"first rows of {FAN_OUT} buckets"
            return Arrangement(name, self.key, self.schema, what, ())
        key = (*(one for one in self.key if one != EVERYTHING), self.bucket)
        schema = self.schema.append(pa.field(self.bucket, pa.int64()))
        what = f"rows in {numbers[-1]:,} buckets"
        if len(numbers) > 1:
            what = f"first {what}"
        return Arrangement(name, key, schema, what, ())


def _has_order_keys(type_: DataType) -> bool:
    """Whether what is stored of values is in their order."""
    if isinstance(type_, StringType):
        return bool(type_.collation == "UTF8_BINARY")
    return isinstance(
        type_,
        (NumericType, BooleanType, BinaryType, DateType, TimestampType, TimestampNTZType),
    )
