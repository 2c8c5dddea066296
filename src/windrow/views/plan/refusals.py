"""What no view can be made of: values that differ from one evaluation to the next.

Looked for in the analysed plan: the optimiser makes constants of the current time and its like.
"""

from __future__ import annotations

import re
from typing import Any

from windrow.errors import UnsupportedSQL
from windrow.spark.catalyst import Catalyst
from windrow.spark.plans import origin

# Deterministic for us: rows come to Spark in one order, which is always the same.
_ORDERED = {"CollectList", "CollectSet", "ListAgg", "Mode", "MaxBy", "MinBy", "PivotFirst"}
_FIRST = {"First", "Last", "AnyValue"}
_ANY_ROW = (
    "without an order, any row would do",
    "use min_by(x, y), max_by(x, y), min(x) or max(x)",
)
# Operators that no change can be followed through: what they are called, why, what to do.
_OPERATORS = {
    "UnionLoop": (
        "WITH RECURSIVE",
        "how often it goes round depends on all rows",
        "join as often as paths may be long, or query the tables",
    ),
    "ScriptTransformation": (
        "TRANSFORM ... USING",
        "nobody knows what a script does",
        "register a function in Python, and call it",
    ),
    "NearestByJoin": (
        "NEAREST BY",
        "Spark tells rows apart by numbers that it draws at random",
        "join LATERAL (SELECT ... ORDER BY ... LIMIT n)",
    ),
}
# What an optimiser may rewrite a query with, and no value of a view may depend on.
_DRAWN = {"Uuid", "Rand", "Randn", "MonotonicallyIncreasingID", "SparkPartitionID"}
_SPECIAL_TIMES = {"now", "today", "tomorrow", "yesterday"}  # texts that Spark casts to times
_PARSED = ("Cast", "ParseToTimestamp", "ParseToDate")  # texts as times
_CURRENT = {
    "CurrentTimestamp": "the current time",
    "CurrentDate": "the current time",
    "Now": "the current time",
    "LocalTimestamp": "the current time",
    "CurrentTime": "the current time",
    "CurrentBatchTimestamp": "the current time",
    "CurrentUser": "the current user",
    "CurrentDatabase": "the session",
    "CurrentCatalog": "the session",
    "CurrentTimeZone": "the session",
    "CurrentPath": "the session",
    "SparkPartitionID": "how Spark splits the work",
    "MonotonicallyIncreasingID": "how Spark splits the work",
    "InputFileName": "files",
    "InputFileBlockStart": "files",
    "InputFileBlockLength": "files",
}


_PLAIN = frozenset({"AttributeReference", "Literal"})  # the same each time, whatever they are


def refuse(c: Catalyst, analyzed: Any, what: str) -> None:
    """Raise UnsupportedSQL, which says where, if the query of `what` cannot be maintained."""
    ordered: set[int] = set()  # functions within a window that has an order
    windowed: set[int] = set()  # ... within any

    def visit(node: Any, is_expression: bool) -> None:
        kind = c.kind(node)
        if kind == "WindowExpression":
            windowed.add(_aggregate_of(c, node))
            if c.items(node.windowSpec().orderSpec()):
                ordered.add(_aggregate_of(c, node))
        elif kind == "Sample":
            _raise(node, what, "TABLESAMPLE", "a sample differs each time", "filter by a hash")
        elif kind in _OPERATORS:
            _raise(node, what, *_OPERATORS[kind], place=c.place(node))
        elif kind == "Deduplicate" and len(c.items(node.keys())) < len(c.output(node)):
            _raise(node, what, "dropDuplicates() of some columns", *_ANY_ROW)
        elif (word := _special_time(c, node)) is not None:
            _raise(node, what, word, *_now("the current time"))
        elif kind in _CURRENT:
            _raise(node, what, _written(node, f"{node.prettyName()}()"), *_now(_CURRENT[kind]))
        elif kind == "AggregateExpression":
            function = node.aggregateFunction()
            if c.kind(function) == "PythonUDAF" and int(node.resultId().id()) not in windowed:
                _raise(
                    node,
                    what,
                    _written(node, str(function.toString())),
                    "Spark does not compute an aggregate in Python beside its own",
                    "use one of Spark's, or call it OVER (PARTITION BY ...)",
                )
            if c.kind(function) in _FIRST and int(node.resultId().id()) not in ordered:
                name = function.prettyName()
                _raise(node, what, _written(node, f"{name}()"), *_ANY_ROW)
        elif is_expression and kind not in _ORDERED and _is_random(c, node):
            _raise(
                node,
                what,
                _written(node, f"{node.prettyName()}()"),
                "its value differs each time",
                "keep the values in a table, or declare the function deterministic",
            )

    c.walk(analyzed, visit)


def refuse_drawn(c: Catalyst, optimized: Any, what: str) -> None:
    """Raise UnsupportedSQL if the optimiser has brought in what differs from run to run.

    By the text alone nobody would expect it; each construct that is known has a message of its own.
    """

    def visit(node: Any, is_expression: bool) -> None:
        if is_expression and c.kind(node) in _DRAWN:
            raise UnsupportedSQL(
                f"{what} cannot be maintained: Spark computes it with {node.prettyName()}(), whose "
                "value differs each time. Instead, write it with joins and subqueries"
            )

    if not optimized.deterministic():  # one look at most plans is enough
        c.walk(optimized, visit)


def _now(depends: str) -> tuple[str, str]:
    return (
        f"it depends on {depends}, not on a table",
        "compare when you query the view, or keep the value in a table",
    )


def _special_time(c: Catalyst, node: Any) -> str | None:
    """How a cast or a literal of the current time is written; None for everything else."""
    kind = c.kind(node)
    if kind not in ("Literal", *_PARSED):
        return None
    if not str(node.dataType().typeName()).startswith(("date", "timestamp")):
        return None
    if kind == "Literal":  # TIMESTAMP 'now'
        written = _written(node, "")
        return written if _is_special(*re.findall(r"'([^']*)'", written)) else None
    text = c.children(node)[0]
    if not text.foldable() or str(text.dataType().typeName()) != "string":
        return None
    return _written(node, str(node.sql())) if _is_special(str(text.eval(None))) else None


def _is_special(*texts: str) -> bool:
    """Whether one of these is, to Spark, a time that moves on: alone, or before a time zone."""
    return any(
        re.split(r"\W", text.strip(), maxsplit=1)[0].lower() in _SPECIAL_TIMES for text in texts
    )


def _aggregate_of(c: Catalyst, window: Any) -> int:
    function = window.windowFunction()
    return int(function.resultId().id()) if c.kind(function) == "AggregateExpression" else -1


def _is_random(c: Catalyst, node: Any) -> bool:
    """Whether an expression differs each time by itself, not because a part of it does."""
    if c.is_subquery(node) or c.kind(node) in _PLAIN or node.deterministic():
        return False
    return all(child.deterministic() for child in c.children(node))


def _written(node: Any, name: str) -> str:
    """An expression as it is written in the text; `name` if that is not known."""
    place = node.origin()
    parts = (place.sqlText(), place.startIndex(), place.stopIndex())
    if not all(part.isDefined() for part in parts):
        return name
    text, start, stop = (part.get() for part in parts)
    return str(text)[int(start) : int(stop) + 1]


def _raise(
    node: Any,
    what: str,
    name: str,
    why: str,
    instead: str,
    place: tuple[int, int] | None = None,
) -> None:
    line, column = place or origin(node) or (None, None)
    where = f" (line {line}, column {column})" if line is not None else ""
    raise UnsupportedSQL(
        f"{what}: {name}{where} cannot be maintained: {why}. Instead, {instead}",
        line=line,
        column=column,
    )
