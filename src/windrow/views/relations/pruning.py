"""Which columns of each relation a query needs.

The rows of a relation come out of Python tasks, which the optimiser does not look into: it would
have them read every column, and drop most. So a query over large relations is first analysed and
optimised over their leaves. What is not referenced there has no say in the result, and is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windrow.spark.nodes import children, id_of, items, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LARGE = 100_000  # updates; for fewer, finding out takes longer than reading


def needed(frame: DataFrame, relation_of: Callable[[int], str | None]) -> dict[str, set[str]]:
    """The columns that a query over leaves needs, by relation.

    A relation that is mentioned several times has the columns of all mentions.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()
    found: dict[str, set[str]] = {}
    _walk(plan, _ids(plan.output()), relation_of, found)
    return found


def _walk(
    plan: Any,
    wanted: set[int],
    relation_of: Callable[[int], str | None],
    found: dict[str, set[str]],
) -> None:
    """`wanted` are the attributes of the plan's output that those above it need."""
    if kind(plan) == "LogicalRDD":
        name = relation_of(int(plan.rdd().id()))
        if name is not None:
            columns = found.setdefault(name, set())
            columns |= {str(a.name()) for a in items(plan.output()) if id_of(a) in wanted}
        return
    for inner in items(plan.subqueries()):
        _walk(inner, _ids(inner.output()), relation_of, found)
    # What an expression mentions, and what passes through.
    below = wanted | _ids(plan.references().toSeq())
    for child in children(plan):
        _walk(child, below, relation_of, found)


def _ids(attributes: Any) -> set[int]:
    return {id_of(one) for one in items(attributes)}
