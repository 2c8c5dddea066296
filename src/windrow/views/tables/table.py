"""A table of a project, from Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windrow.errors import SchemaError
from windrow.spark.plans import active, expression_of
from windrow.spark.schemas import is_dataframe, quoted
from windrow.spark.sql_errors import sql_errors
from windrow.spark.statements import Delete
from windrow.updates import DIFF, TIME
from windrow.views.relations.changes import CHANGE, TIMESTAMP, VERSION
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.tables.assignment import assigned_columns, not_null
from windrow.views.tables.dml import completed, delete_updates, inserted
from windrow.views.tables.inputs import alike, frame_from
from windrow.views.tables.writing import Updates, Writing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_DIFFS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
_IGNORED = (TIME, TIMESTAMP, VERSION)  # columns of a feed that say when


class Table:
    """Rows of a table, to be read and changed. Each call that changes it is one commit.

    Rows are a Spark DataFrame, an Arrow table, a pandas DataFrame or a list of dicts; columns go by
    name. Values are stored by the rules of INSERT.
    """

    def __init__(self, name: str, relations: Relations, writing: Writing) -> None:
        self._relations, self._writing = relations, writing
        self.name = relations.find(name, "table").name

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    @property
    def schema(self) -> StructType:
        """The columns, as Spark has them."""
        return self._relations.find(self.name, "table").schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self._relations.find(self.name, "table").key

    def rows(self, as_of: int | None = None) -> DataFrame:
        """The rows, by default those of the newest commit."""
        self._writing.history.refresh()
        return self._relations.frame(self.name, as_of)

    def insert(self, rows: Any) -> int:
        """Insert rows; columns that are not given have their defaults. Gives the commit's time."""

        def make(table: Relation) -> Updates:
            what = f"insert into {table.name}"
            frames = [frame_from(self._relations.session, one, table, what) for one in alike(rows)]
            whole = [completed(table, frame) for frame in frames] if len(frames) > 1 else frames
            frame = functools.reduce(lambda a, b: a.unionByName(b), whole)
            return inserted(table, frame, by_name=True)

        return self._run(make, "insert")

    def delete(self, which: str | Column | Any) -> int:
        """Delete the rows that a condition holds for, or exactly those that are given.

        A row that is given and not there is a DataError, and nothing is deleted.
        """
        if isinstance(which, str) or _is_column(which):
            return self._run(lambda table: self._where(table, which), "delete")

        def make(table: Relation) -> Updates:
            frame = frame_from(self._relations.session, which, table, f"delete from {table.name}")
            return self._updates(table, frame, None)

        return self._run(make, "delete")

    def apply(self, changes: Any) -> int:
        """Apply a change feed: rows with `_change_type`, or with `_diff`, in one commit.

        `_change_type` is insert, delete, update_preimage or update_postimage; `_diff` says how
        many copies of the row come (or go, if negative). If a row goes more often than it is
        there, that is a DataError, and nothing is applied.
        """

        def make(table: Relation) -> Updates:
            what = f"apply to {table.name}"
            frame = frame_from(self._relations.session, changes, table, what)
            return self._updates(table, frame, _diff_of(frame, what))

        return self._run(make, "apply")

    def _where(self, table: Relation, which: str | Column) -> Updates:
        session = self._relations.session
        with sql_errors(), active(session):
            if isinstance(which, str):
                parser = session._jsparkSession.sessionState().sqlParser()
                condition = parser.parseExpression(which)
            else:
                condition = expression_of(session, which)
        statement = Delete("", table.name, None, None, table.name, condition)
        return delete_updates(self._relations, statement, table)

    def _updates(self, table: Relation, frame: DataFrame, diff: Column | None) -> Updates:
        """Rows of a frame, by name, with a diff each (by default a retraction)."""
        from pyspark.sql import functions as F  # noqa: N812

        known = {name.lower() for name in table.schema.names}
        given = [name for name in frame.columns if name.lower() in known]
        missing = known - {name.lower() for name in given}
        if missing:
            raise SchemaError(
                f"table {table.name}: rows that go are named by all of their columns; missing: "
                f"{', '.join(sorted(missing))}"
            )
        extra = {n.lower() for n in frame.columns} - known - {CHANGE, DIFF, *_IGNORED}
        if extra:
            raise SchemaError(f"table {table.name} has no columns {', '.join(sorted(extra))}")
        with sql_errors():
            sign = F.lit(-1).cast("long") if diff is None else diff
            # The diff goes with its row as a column more; `assigned` is about the table's own.
            columns = [F.col(quoted(name)) for name in given]
            numbered = frame.select(*columns, sign.alias(DIFF))
            ready = _assigned_with(table, numbered)
        return Updates(frame=ready, checked=True)

    def _run(self, make: Callable[[Relation], Updates], what: str) -> int:
        return self._writing.run(self.name, make, f"{what} (Python)")


def _assigned_with(table: Relation, frame: DataFrame) -> DataFrame:
    """`assigned`, by name, for a frame that has `_diff` too."""
    from pyspark.sql import functions as F  # noqa: N812

    places = {name.lower(): name for name in frame.columns}
    names = [places[field.name.lower()] for field in table.schema]
    columns = assigned_columns(table, frame, names)
    return frame.select(*not_null(table, columns), F.col(DIFF))


def _diff_of(frame: DataFrame, what: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if CHANGE in frame.columns:
        change = F.col(CHANGE)
        found: Column | None = None
        for name, diff in _DIFFS.items():
            holds, value = change == name, F.lit(diff).cast("long")
            found = F.when(holds, value) if found is None else found.when(holds, value)
        assert found is not None
        said = F.concat(F.lit(f"{what}: {CHANGE} is "), F.coalesce(change, F.lit("NULL")))
        message = F.concat(said, F.lit(f"; it is one of {', '.join(_DIFFS)}"))
        return found.otherwise(F.raise_error(message))
    if DIFF in frame.columns:
        null = F.raise_error(F.lit(f"{what}: {DIFF} is NULL in a row"))
        return F.coalesce(F.col(DIFF).cast("long"), null)
    raise SchemaError(f"{what}: give a column {CHANGE} or {DIFF}, which says what became of a row")


def _is_column(value: Any) -> bool:
    return not is_dataframe(value) and any(c.__name__ == "Column" for c in type(value).__mro__)
