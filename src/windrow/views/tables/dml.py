"""INSERT, UPDATE, DELETE and TRUNCATE as updates of a table: rows with `_diff`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.errors import SQLError, unknown_column
from windrow.spark.nodes import items, java, kind
from windrow.spark.plans import (
    aliased,
    column_of,
    expression_of,
    filtered,
    frame_of,
    names_of,
    one_row,
    plan_of,
    selected,
    seq,
)
from windrow.spark.schemas import quoted
from windrow.spark.sql_errors import sql_errors
from windrow.spark.statements import Assignment, Change, Delete, Insert, Update
from windrow.updates import DIFF
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.tables.assignment import (
    assigned,
    assigned_columns,
    check_not_null,
    not_null,
)
from windrow.views.tables.writing import Updates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def insert_updates(relations: Relations, statement: Insert, table: Relation) -> Updates:
    """INSERT: the query's rows; with OVERWRITE, also the retractions of all that is there."""
    session = relations.session
    query = within(session, statement, with_defaults(session, table, statement.query))
    reads = frozenset(relations.mentioned([query]))
    frame = relations.query(query)
    found = inserted(
        table, frame, columns=statement.columns, by_name=statement.by_name, reads=reads
    )
    if not statement.overwrite:
        return found
    return with_retractions(relations, table, found)


def inserted(
    table: Relation,
    frame: DataFrame,
    *,
    columns: Sequence[str] = (),
    by_name: bool = False,
    reads: frozenset[str] = frozenset(),
) -> Updates:
    """The rows of a frame as insertions; columns that are not given have their defaults."""
    from pyspark.sql import functions as F  # noqa: N812

    if columns:
        frame = _listed(table, frame, columns)
    elif by_name:
        frame = completed(table, frame)
    ready = assigned(table, frame, by_name=by_name)
    with sql_errors():
        stored = table.storable.to_stored(ready)
        if kind(stored._jdf.queryExecution().optimizedPlan()) == "LocalRelation":
            rows = stored.toArrow()
            check_not_null(table, rows)
            return Updates(rows=rows, reads=reads, only_grows=True)
        checked = ready.select(
            *not_null(table, [F.col(quoted(name)) for name in ready.columns]),
            F.lit(1).cast("long").alias(DIFF),
        )
    return Updates(frame=checked, reads=reads, only_grows=True)


def _listed(table: Relation, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """A frame whose columns are, by position, those of a list, with all columns of the table."""
    from pyspark.sql import functions as F  # noqa: N812

    given = list(frame.columns)
    if len(columns) != len(given):
        raise SQLError(
            f"table {table.name}: INSERT lists {len(columns)} columns ({', '.join(columns)}), and "
            f"there are {len(given)} values ({', '.join(given)})"
        )
    frame = frame.toDF(*(f"v{i}" for i in range(len(given))))
    places = {column_name(table, one): F.col(f"v{i}") for i, one in enumerate(columns)}
    if len(places) < len(columns):
        raise SQLError(f"table {table.name}: INSERT lists a column twice: {', '.join(columns)}")
    made = [places.get(name, default_of(table, name)).alias(name) for name in table.schema.names]
    with sql_errors():
        return frame.select(*made)


def completed(table: Relation, frame: DataFrame) -> DataFrame:
    """A frame, by name, with all columns of the table: those it has not have their defaults."""
    known = {column_name(table, name) for name in frame.columns}
    missing = [name for name in table.schema.names if name not in known]
    with sql_errors():
        extra = [default_of(table, name).alias(name) for name in missing]
        return frame.select("*", *extra) if extra else frame


def default_of(table: Relation, name: str) -> Column:
    """The default of a column: NULL, unless it has one."""
    from pyspark.sql import functions as F  # noqa: N812

    defaults: Mapping[str, str] = table.definition.get("defaults") or {}
    text = defaults.get(name)
    type_ = table.schema[name].dataType
    return F.lit(None).cast(type_) if text is None else F.expr(text)


def check_defaults(session: SparkSession, table: Relation) -> None:
    """Defaults are constants (no columns, no subqueries) that can be stored in their columns."""
    from pyspark.sql import functions as F  # noqa: N812

    subqueries = java(session, "org.apache.spark.sql.catalyst.expressions.SubqueryExpression")
    defaults: Mapping[str, str] = table.definition.get("defaults") or {}
    for name, text in defaults.items():
        with sql_errors():
            expression = expression_of(session, F.expr(text))
        if subqueries.hasSubquery(expression) or expression.references().nonEmpty():
            raise SQLError(
                f"table {table.name}: the default of column {name!r}, {text}, is not a constant; "
                "leave out columns and subqueries"
            )
    if defaults:
        made = [default_of(table, name).alias(name) for name in table.schema.names]
        with sql_errors():
            one = frame_of(session, selected(session, made, one_row(session)))
        assigned(table, one)


def column_name(table: Relation, name: str) -> str:
    """A column of a table, as it was declared."""
    for field in table.schema:
        if field.name.lower() == name.lower():
            return str(field.name)
    raise unknown_column(name, table.schema.names, f"table {table.name}")


def is_default(expression: Any) -> bool:
    """Whether a value is the word DEFAULT."""
    if kind(expression) in ("Alias", "UnresolvedAlias"):
        return is_default(expression.child())
    if kind(expression) != "UnresolvedAttribute":
        return False
    parts = names_of(expression.nameParts())
    return len(parts) == 1 and parts[0].upper() == "DEFAULT"


def with_defaults(session: SparkSession, table: Relation, query: Any) -> Any:
    """A query with the defaults of columns in place of the word DEFAULT in VALUES."""
    what = kind(query)
    if what in ("SubqueryAlias", "UnresolvedSubqueryColumnAliases"):
        child = query.child()
        new = with_defaults(session, table, child)
        return query if new is child else query.withNewChildren(seq(session, [new]))
    if what != "UnresolvedInlineTable":
        return query
    rows = [items(row) for row in items(query.rows())]
    if not any(is_default(value) for row in rows for value in row):
        return query
    fields = list(table.schema)
    new_rows = []
    for row in rows:
        values = [
            expression_of(session, default_of(table, fields[i].name))
            if is_default(value) and i < len(fields)
            else value
            for i, value in enumerate(row)
        ]
        new_rows.append(seq(session, values))
    return query.copy(query.names(), seq(session, new_rows))


def with_retractions(relations: Relations, table: Relation, updates: Updates) -> Updates:
    """Updates, and the retractions of all that is in the table."""
    gone = all_retracted(relations, table)
    frame = gone.frame
    if frame is not None and updates.frame is not None:
        frame = frame.unionByName(updates.frame)
    return replace(updates, frame=frame, reads=updates.reads | gone.reads, only_grows=False)


def all_retracted(relations: Relations, table: Relation) -> Updates:
    """TRUNCATE: the retraction of each row that is there, as often as it is."""
    from pyspark.sql import functions as F  # noqa: N812

    read = relations.snapshot(table)
    stored = read.dataframe(relations.session)
    frame = table.storable.from_stored(stored.withColumn(DIFF, -F.col(DIFF)), DIFF)
    return Updates(frame=frame, reads=frozenset({table.name}))


def delete_updates(relations: Relations, statement: Delete, table: Relation) -> Updates:
    """DELETE: the retraction of each row for which the condition is true."""
    from pyspark.sql import functions as F  # noqa: N812

    if statement.condition is None or _is_true(statement.condition):
        return all_retracted(relations, table)
    session = relations.session
    plan = aliased(session, statement.alias, plan_of(relations.frame(table.name)))
    plan = within(session, statement, filtered(session, statement.condition, plan))
    reads = frozenset({table.name, *relations.mentioned([plan])})
    frame = relations.query(plan)
    return Updates(frame=frame.withColumn(DIFF, F.lit(-1).cast("long")), reads=reads)


def _is_true(condition: Any) -> bool:
    return kind(condition) == "Literal" and condition.toString() == "true"


def update_updates(relations: Relations, statement: Update, table: Relation) -> Updates:
    """UPDATE: for each row for which the condition is true, its retraction and its new form."""
    session = relations.session
    plan = aliased(session, statement.alias, plan_of(relations.frame(table.name)))
    if statement.condition is not None:
        plan = filtered(session, statement.condition, plan)
    new = new_values(session, table, statement.alias, statement.assignments)
    plan = selected(session, [*old_values(table, statement.alias), *new], plan)
    plan = within(session, statement, plan)
    reads = frozenset({table.name, *relations.mentioned([plan])})
    frame = relations.query(plan)
    count = len(table.schema.fields)
    with sql_errors():
        after = assigned_columns(table, frame, [f"n{i}" for i in range(count)])
        return Updates(frame=replaced(table, frame, not_null(table, after)), reads=reads)


def replaced(table: Relation, frame: DataFrame, after: Sequence[Column]) -> DataFrame:
    """The retraction of the old values (`o0`, ...) of each row, and its new ones."""
    from pyspark.sql import functions as F  # noqa: N812

    one = F.lit(1).cast("long")
    before = [F.col(f"o{i}").alias(f.name) for i, f in enumerate(table.schema)]
    pair = F.array(F.struct(*before, (-one).alias(DIFF)), F.struct(*after, one.alias(DIFF)))
    return frame.select(F.inline(pair))


def old_values(table: Relation, alias: str) -> list[Column]:
    """The columns of a table as `o0`, `o1`, ..."""
    from pyspark.sql import functions as F  # noqa: N812

    names = [f"{quoted(alias)}.{quoted(field.name)}" for field in table.schema]
    return [F.col(name).alias(f"o{i}") for i, name in enumerate(names)]


def new_values(
    session: SparkSession,
    table: Relation,
    alias: str,
    assignments: Sequence[Assignment],
    *,
    keep: bool = True,
) -> list[Column]:
    """The columns of a table after assignments, as `n0`, `n1`, ...

    Columns that are not assigned keep their values, or have their defaults (of INSERT).
    """
    from pyspark.sql import functions as F  # noqa: N812

    values: dict[str, Column] = {}
    paths: set[tuple[str, ...]] = set()
    for one in assignments:
        parts = list(one.target)
        if len(parts) > 1 and parts[0].lower() == alias.lower():
            parts = parts[1:]
        name = column_name(table, parts[0])
        path = (name.lower(), *(part.lower() for part in parts[1:]))
        if any(path[: len(other)] == other or other[: len(path)] == path for other in paths):
            raise SQLError(f"table {table.name}: {'.'.join(parts)} is assigned twice")
        paths.add(path)
        default = is_default(one.value)
        value = default_of(table, name) if default else column_of(session, one.value)
        if len(parts) > 1:
            old = values.get(name, F.col(f"{quoted(alias)}.{quoted(name)}"))
            value = old.withField(".".join(quoted(part) for part in parts[1:]), value)
        values[name] = value
    found = []
    for i, field in enumerate(table.schema):
        own = F.col(f"{quoted(alias)}.{quoted(field.name)}") if keep else None
        given = values.get(field.name, own)
        found.append((default_of(table, field.name) if given is None else given).alias(f"n{i}"))
    return found


def within(session: SparkSession, statement: Change, plan: Any) -> Any:
    """A plan inside the WITH clause that stands before its statement."""
    if statement.ctes is None:
        return plan
    return statement.ctes.withNewChildren(seq(session, [plan]))
