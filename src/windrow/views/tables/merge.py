"""MERGE as updates of a table: one join of target and source, and one action for each of its rows.

Every target row has a number, so that one which several source rows would change is found: by
Spark's rule that is an error, unless all that is done is to delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.errors import SQLError
from windrow.spark.plans import (
    aliased,
    column_of,
    joined,
    plan_of,
    raised,
    selected,
)
from windrow.spark.schemas import quoted
from windrow.spark.sql_errors import sql_errors
from windrow.spark.statements import Action, Merge
from windrow.updates import DIFF
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.tables.assignment import assigned_columns, not_null
from windrow.views.tables.dml import is_default, new_values, old_values, within
from windrow.views.tables.writing import Updates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROW, _SOURCE, _ACTION = "__windrow_row", "__windrow_source", "__windrow_action"
_GROUP, _ACTING, _ORDER = "__windrow_group", "__windrow_acting", "__windrow_order"
_VIOLATION = "MERGE_CARDINALITY_VIOLATION"


@dataclass(frozen=True)
class _Numbered:
    """An action with the number by which rows say that they take it."""

    number: int
    action: Action

    def columns(self, count: int) -> list[str]:
        """Names of the table's columns after this action."""
        return [f"a{self.number}_{i}" for i in range(count)]


def merge_updates(relations: Relations, statement: Merge, table: Relation) -> Updates:
    """MERGE: what its actions retract and insert."""
    return _Merging(relations, statement, table).updates()


class _Merging:
    def __init__(self, relations: Relations, statement: Merge, table: Relation) -> None:
        self._relations, self._statement, self._table = relations, statement, table
        self._session = relations.session
        actions = [*statement.matched, *statement.not_matched, *statement.not_matched_by_source]
        self._source_names: set[str] = set()
        self._actions = [_Numbered(i, one) for i, one in enumerate(actions)]

    def updates(self) -> Updates:
        statement, session = self._statement, self._session
        target, source = self._target(), self._source()
        self._check_scopes(target, source)
        joins = {
            (False, False): "inner",
            (True, False): "rightouter",
            (False, True): "leftouter",
            (True, True): "fullouter",
        }
        wanted = bool(statement.not_matched), bool(statement.not_matched_by_source)
        plan = joined(session, target, source, joins[wanted], statement.condition)
        from pyspark.sql import functions as F  # noqa: N812

        plan = selected(session, [F.col("*"), self._chosen().alias(_ACTION)], plan)
        plan = selected(session, self._evaluated(), plan)
        plan = within(session, statement, plan)
        reads = frozenset({self._table.name, *self._relations.mentioned([plan])})
        frame = self._relations.query(plan)
        with sql_errors():
            found = self._counted(frame.filter(F.col(_ACTION).isNotNull()))
            return Updates(frame=self._changes(found), reads=reads)

    def _target(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        session, alias = self._session, self._statement.alias
        plan = aliased(session, alias, plan_of(self._relations.frame(self._table.name)))
        row = F.monotonically_increasing_id().alias(_ROW)
        return selected(session, [F.col("*"), row], plan)

    def _source(self) -> Any:
        """The source, with a mark; and its columns by number, if an action takes all of them."""
        from pyspark.sql import functions as F  # noqa: N812

        session, source = self._session, self._statement.source
        columns = [F.col("*"), F.lit(True).alias(_SOURCE)]
        if any(one.action.assignments is None for one in self._actions):
            names = self._relations.query(within(session, self._statement, source)).columns
            columns += [F.col(quoted(n)).alias(_source_name(n)) for n in names]
            self._source_names = {name.lower() for name in names}
        return selected(session, columns, source)

    def _check_scopes(self, target: Any, source: Any) -> None:
        """What is not matched has one side only; mentioning the other is Spark's error."""
        statement = self._statement
        for actions, side in (
            (statement.not_matched, source),
            (statement.not_matched_by_source, target),
        ):
            values = [
                column_of(self._session, value).alias(f"v{i}")
                for i, value in enumerate(
                    value
                    for one in actions
                    for value in (one.condition, *(a.value for a in one.assignments or ()))
                    if value is not None
                )
                if not is_default(value)
            ]
            if values:
                plan = within(self._session, statement, selected(self._session, values, side))
                self._relations.query(plan)

    def _chosen(self) -> Column:
        """The number of the first action of its kind whose condition holds; NULL if none does."""
        from pyspark.sql import functions as F  # noqa: N812

        statement = self._statement
        here, there = F.col(_ROW).isNotNull(), F.col(_SOURCE).isNotNull()
        first, second = len(statement.matched), len(statement.not_matched)
        both, source, target = (
            self._first(self._actions[:first]),
            self._first(self._actions[first : first + second]),
            self._first(self._actions[first + second :]),
        )
        return F.when(here & there, both).when(there, source).otherwise(target)

    def _first(self, actions: Sequence[_Numbered]) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        found: Column | None = None
        for one in actions:
            holds = F.lit(True)
            if one.action.condition is not None:
                holds = column_of(self._session, one.action.condition)
            number = F.lit(one.number)
            found = F.when(holds, number) if found is None else found.when(holds, number)
        return F.lit(None).cast("int") if found is None else found

    def _evaluated(self) -> list[Column]:
        """Old values, and new ones for each action; those of an action only where it is taken."""
        from pyspark.sql import functions as F  # noqa: N812

        columns = [*old_values(self._table, self._statement.alias), F.col(_ROW), F.col(_ACTION)]
        for one in self._actions:
            if one.action.kind == "delete":
                continue
            names = one.columns(len(self._table.schema.fields))
            for name, value in zip(names, self._values(one.action), strict=True):
                columns.append(F.when(F.col(_ACTION) == one.number, value).alias(name))
        return columns

    def _values(self, action: Action) -> list[Column]:
        from pyspark.sql import functions as F  # noqa: N812

        if action.assignments is None:
            names = self._table.schema.names
            for name in names:
                if name.lower() not in self._source_names:
                    raise SQLError(
                        f"table {self._table.name}: MERGE takes all columns of the source (*), and "
                        f"it has no {name!r}; name the columns to {action.kind}"
                    )
            return [F.col(quoted(_source_name(name))) for name in names]
        return new_values(
            self._session,
            self._table,
            self._statement.alias,
            action.assignments,
            keep=action.kind == "update",
        )

    def _counted(self, frame: DataFrame) -> DataFrame:
        """A frame in which target rows know how many source rows act on them."""
        if not self._statement.matched:
            return frame
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        # Rows without a target are each a group of their own, or one task would have all of them.
        own = -1 - F.monotonically_increasing_id()
        grouped = frame.withColumn(_GROUP, F.coalesce(F.col(_ROW), own))
        group = Window.partitionBy(_GROUP)
        match self._statement.matched:
            case (Action(kind="delete", condition=None),):
                order = F.row_number().over(group.orderBy(_ACTION))
                return grouped.withColumn(_ORDER, order).filter(F.col(_ORDER) == 1)
        return grouped.withColumn(_ACTING, F.count(F.lit(1)).over(group))

    def _changes(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        one = F.lit(1).cast("long")
        count = len(self._table.schema.fields)
        before = [F.col(f"o{i}").alias(f.name) for i, f in enumerate(self._table.schema)]
        gone = F.struct(*before, (-one).alias(DIFF))
        cases: Column | None = None
        if _ACTING in frame.columns:
            cases = F.when(F.col(_ACTING) > 1, raised(self._session, _VIOLATION))
        for action in self._actions:
            rows = [gone] if action.action.kind != "insert" else []
            if action.action.kind != "delete":
                after = assigned_columns(self._table, frame, action.columns(count))
                rows.append(F.struct(*not_null(self._table, after), one.alias(DIFF)))
            taken, made = F.col(_ACTION) == action.number, F.array(*rows)
            cases = F.when(taken, made) if cases is None else cases.when(taken, made)
        assert cases is not None
        return frame.select(F.inline(cases))


def _source_name(column: str) -> str:
    return f"__windrow_source_{column.lower()}"
