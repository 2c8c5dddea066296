"""The keys that a condition names: their rows are looked up, and no others are read.

UPDATE and DELETE often are about few rows: `id = 7 AND paid`, or `id IN (7, 8)`. If those are the
columns that the table is stored by, the rows of these keys are looked up, and Spark evaluates the
whole condition over them. So it is enough that no other key can satisfy it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException

from windrow.spark.plans import (
    aliased,
    column_of,
    filtered,
    frame_of,
    items,
    kind,
    one_row,
    plan_of,
    selected,
)
from windrow.spark.schemas import quoted
from windrow.views.names import Relation
from windrow.views.pruning import LARGE
from windrow.views.relations import Relations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_KEYS = 10_000  # that are looked up; for more, all rows are read
_TYPES = ("integer", "long", "short", "byte", "string", "date", "timestamp", "boolean", "binary")
_IN_SETS = "spark.sql.optimizer.inSetConversionThreshold"


def named_keys(
    relations: Relations, table: Relation, alias: str, condition: Any
) -> pa.Table | None:
    """The keys of all rows of a table for which a condition can be true.

    `condition` is parsed, and mentions no other relation. None: any row may be meant, or the table
    is so small that it does not matter.
    """
    if relations.updates(table.name) <= LARGE:
        return None
    key = relations.key_of(table)
    types = {field.name: field.dataType for field in table.schema}
    stored = {field.name: field.dataType for field in table.storable.stored}
    if any(types[name] != stored[name] or types[name].typeName() not in _TYPES for name in key):
        return None
    session = relations.session
    leaf = aliased(session, alias, plan_of(relations.leaf(table.name)))
    try:
        with _plain_lists(session):
            frame = frame_of(session, filtered(session, condition, leaf))
            found = _values(frame._jdf.queryExecution().optimizedPlan())
    except AnalysisException:
        return None  # what is wrong with the condition is said where it is evaluated
    if not all(name in found for name in key):
        return None
    lists = {name: found[name] for name in key}
    if math.prod(len(one) for one in lists.values()) > MOST_KEYS:
        return None
    return _product(session, lists)


def _values(plan: Any) -> dict[str, list[Any]]:
    """The literals that a filter compares columns with, by column: one of them is its value."""
    while kind(plan) == "Project":
        plan = plan.child()
    if kind(plan) != "Filter":
        return {}
    found: dict[str, list[Any]] = {}
    for one in _conjuncts(plan.condition()):
        if kind(one) == "EqualTo":
            left, right = one.left(), one.right()
            if kind(left) == "Literal":
                left, right = right, left
            column, literals = left, [right]
        elif kind(one) == "In":
            column, literals = one.value(), items(one.list())
        else:
            continue
        fixed = all(kind(literal) == "Literal" for literal in literals)
        if kind(column) == "AttributeReference" and fixed:
            found.setdefault(str(column.name()), literals)
    return found


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _product(session: SparkSession, lists: Mapping[str, list[Any]]) -> pa.Table:
    """All combinations of values, one of each list."""
    from pyspark.sql import functions as F  # noqa: N812

    arrays = {name: [column_of(session, one) for one in several] for name, several in lists.items()}
    packed = [F.array(*several).alias(name) for name, several in arrays.items()]
    frame = frame_of(session, selected(session, packed, one_row(session)))
    for name in lists:
        frame = frame.withColumn(name, F.explode(F.col(quoted(name))))
    return frame.distinct().toArrow()


@contextmanager
def _plain_lists(session: SparkSession) -> Iterator[None]:
    """A block in which the optimiser leaves the literals of an IN as they are."""
    before = session.conf.get(_IN_SETS)
    session.conf.set(_IN_SETS, str(MOST_KEYS))
    try:
        yield
    finally:
        if before is not None:
            session.conf.set(_IN_SETS, before)
