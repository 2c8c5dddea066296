"""TIMESTAMP AS OF: the time that a relation is to be read at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from windrow.errors import SQLError, UnsupportedSQL
from windrow.spark.plans import column_of, frame_of, one_row, option, origin, selected
from windrow.spark.sql_errors import sql_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def place(node: Any) -> str:
    """Where a node is in the text, for messages."""
    line, column = origin(node) or (1, 1)
    return f"line {line}, column {column}"


def refuse_travel(node: Any) -> NoReturn:
    """In the query of a view there is one time: that of the view."""
    line, column = origin(node) or (1, 1)
    raise UnsupportedSQL(
        f"{place(node)}: AS OF is not supported in a view, which follows its inputs; query the "
        "view AS OF a time instead",
        line=line,
        column=column,
    )


def travel_time(session: SparkSession, node: Any) -> int:
    """The time of a RelationTimeTravel, in milliseconds."""
    from pyspark.sql import functions as F  # noqa: N812

    line, column = origin(node) or (1, 1)
    if node.version().isDefined():
        raise UnsupportedSQL(
            f"{place(node)}: VERSION AS OF is not supported; write TIMESTAMP AS OF",
            line=line,
            column=column,
        )
    value = column_of(session, option(node.timestamp())).alias("t")
    with sql_errors():
        frame = frame_of(session, selected(session, [value], one_row(session)))
        given = frame.schema[0].dataType.typeName()
        if given in ("byte", "short", "integer", "long"):
            time = F.col("t").cast("long")
        elif given in ("string", "timestamp", "timestamp_ntz", "date"):
            time = F.unix_millis(F.col("t").cast("timestamp"))
        else:
            raise SQLError(
                f"{place(node)}: a time is text, a TIMESTAMP or BIGINT milliseconds, not {given}",
                line=line,
                column=column,
            )
        (row,) = frame.select(time).collect()
    if row[0] is None:
        raise SQLError(f"{place(node)}: the time is NULL", line=line, column=column)
    return int(row[0])
