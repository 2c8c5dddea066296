"""Storing values into columns, by Spark's own rules: ANSI store assignment.

What fits is cast, a number that does not fit its column is an error that names the column, and
what could lose meaning (text into a number) is refused when the statement is analysed. Spark
enforces lengths of CHAR and VARCHAR with that; NOT NULL is ours, to name the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import DataError
from windrow.spark.nodes import items, java, kind
from windrow.spark.plans import active, column_of, frame_of, java_schema, plan_of
from windrow.spark.schemas import quoted
from windrow.spark.sql_errors import sql_errors
from windrow.views.relations.names import Relation

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


def assigned(table: Relation, frame: DataFrame, *, by_name: bool = False) -> DataFrame:
    """The columns of `frame`, by position or by name, as values of the table's columns."""
    session = frame.sparkSession
    with sql_errors(), active(session):
        return frame_of(session, _resolved(session, table, plan_of(frame), by_name))


def assigned_columns(table: Relation, frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """Columns over `frame`: those of `names`, by position, as values of the table's columns."""
    from pyspark.sql import functions as F  # noqa: N812

    session = frame.sparkSession
    chosen = plan_of(frame.select(*(F.col(quoted(name)) for name in names)))
    with sql_errors(), active(session):
        plan = _resolved(session, table, chosen, False)
        # What was added is one projection, if anything was.
        made = items(plan.projectList()) if kind(plan) == "Project" else items(plan.output())
        if not plan.equals(chosen):
            return [column_of(session, one) for one in made]
    return [column_of(session, one) for one in items(chosen.output())]


def _resolved(session: SparkSession, table: Relation, plan: Any, by_name: bool) -> Any:
    catalyst = "org.apache.spark.sql.catalyst"
    attributes = java(session, f"{catalyst}.types.DataTypeUtils").toAttributes(
        java_schema(session, _nullable(table.schema))
    )
    resolver = java(session, f"{catalyst}.analysis.TableOutputResolver")
    defaults = getattr(resolver, "resolveOutputColumns$default$6")()  # the type differs by release
    conf = session._jsparkSession.sessionState().conf()
    return resolver.resolveOutputColumns(table.name, attributes, plan, by_name, conf, defaults)


def _nullable(schema: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema])


def not_null(table: Relation, columns: Sequence[Column]) -> list[Column]:
    """The table's columns with their names; evaluating one fails where it is NULL and may not."""
    from pyspark.sql import functions as F  # noqa: N812

    found = []
    row = F.struct(*columns).cast("string")
    for field, column in zip(table.schema, columns, strict=True):
        if not field.nullable:
            message = F.concat(F.lit(_message(table, field.name)), row)
            column = F.when(column.isNull(), F.raise_error(message)).otherwise(column)
        found.append(column.alias(field.name))
    return found


def check_not_null(table: Relation, rows: pa.Table) -> None:
    """The same, of rows that are here."""
    for field in table.schema:
        if field.nullable or not rows.column(field.name).null_count:
            continue
        at = rows.column(field.name).is_null().to_pylist().index(True)
        row = {name: rows.column(name)[at].as_py() for name in rows.column_names}
        raise DataError(_message(table, field.name) + f"{row!r:.300}")


def _message(table: Relation, column: str) -> str:
    return f"table {table.name}: column {column!r} is NOT NULL, and is NULL in the row "
