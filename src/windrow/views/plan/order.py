"""Orders that decide: ties are broken by the whole row, so that each tick has the same result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.spark.catalyst import Catalyst

# Functions of a row's position: with ties, any order of the equal rows would do.
_BY_POSITION = {"RowNumber", "Lag", "Lead", "NTile", "NthValue"}


def by_whole_row(c: Catalyst, order: Sequence[Any], attributes: Sequence[Any]) -> list[Any]:
    """`order`, then all columns that can be ordered."""
    named = {c.id_of(one.child()) for one in order if c.kind(one.child()) == "AttributeReference"}
    ascending = c.singleton("expressions.Ascending$")
    rest = [
        c.expressions.SortOrder(one, ascending, ascending.defaultNullOrdering(), c.seq([]))
        for one in attributes
        if c.id_of(one) not in named and c.is_orderable(one)
    ]
    return [*order, *rest]


def with_order_beneath(c: Catalyst, window: Any) -> Any | None:
    """A window without an order, ordered by the sort beneath it; None for any other window.

    Spark makes such windows of a correlated LIMIT, and counts on rows staying in the order of the
    sort, whose columns may not be there any more.
    """
    child, projections = window.child(), []
    while c.kind(child) == "Project":
        projections.append(child)
        child = child.child()
    if c.items(window.orderSpec()) or c.kind(child) != "Sort":
        return None
    order = c.items(child.order())
    columns = [c.named(one.child(), "order") for one in order]
    below = c.project([*c.output(child), *columns], child.child())
    attributes = [one.toAttribute() for one in columns]
    for one in reversed(projections):
        below = c.project([*c.items(one.projectList()), *attributes], below)
    ordered = [
        c.expressions.SortOrder(column, one.direction(), one.nullOrdering(), c.seq([]))
        for column, one in zip(attributes, order, strict=True)
    ]
    functions = [_with_order(c, one, ordered) for one in c.items(window.windowExpressions())]
    found = _window(c, c.with_children(window, [below]), functions, ordered)
    return c.project(c.output(window), found)


def decided_windows(c: Catalyst, window: Any, attributes: Sequence[Any]) -> list[Any]:
    """A window as one or two: functions of position get an order without ties.

    Others (ranks, frames by range) treat equal rows alike, and keep the order as it is written.
    """
    order = c.items(window.orderSpec())
    expressions = c.items(window.windowExpressions())
    by_position = [one for one in expressions if _is_by_position(c, one)]
    if not by_position:
        return [window]
    full = by_whole_row(c, order, attributes)
    others = [one for one in expressions if not any(one is other for other in by_position)]
    decided = [_with_order(c, one, full) for one in by_position]
    found = []
    if others:
        found.append(_window(c, window, others, order))
    found.append(_window(c, window, decided, full))
    return found


def _is_by_position(c: Catalyst, named: Any) -> bool:
    window = _window_of(c, named)
    if window is None:  # a column that is only passed on
        return False
    function = window.windowFunction()
    if c.kind(function) == "AggregateExpression":
        frame = window.windowSpec().frameSpecification()
        rows = "RowFrame" in frame.toString()
        bounded = "unboundedfollowing" not in frame.toString().lower()
        has_order = bool(c.items(window.windowSpec().orderSpec()))
        ordered = c.kind(function.aggregateFunction()) in ("First", "Last")
        return rows and has_order and (bounded or ordered)
    return c.kind(function) in _BY_POSITION


def _window_of(c: Catalyst, expression: Any) -> Any | None:
    if c.kind(expression) == "WindowExpression":
        return expression
    return next(filter(None, (_window_of(c, one) for one in c.children(expression))), None)


def _with_order(c: Catalyst, named: Any, order: Sequence[Any]) -> Any:
    def found(expression: Any) -> Any | None:
        if c.kind(expression) != "WindowExpression":
            return None
        spec = expression.windowSpec()
        changed = c.expressions.WindowSpecDefinition(
            spec.partitionSpec(), c.seq(order), spec.frameSpecification()
        )
        return c.expressions.WindowExpression(expression.windowFunction(), changed)

    return c.replaced(named, found)


def _window(c: Catalyst, window: Any, expressions: Sequence[Any], order: Sequence[Any]) -> Any:
    return c.logical.Window(
        c.seq(expressions), window.partitionSpec(), c.seq(order), window.child(), window.hint()
    )
