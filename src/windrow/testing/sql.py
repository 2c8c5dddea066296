"""Spark SQL over a handful of rows, without Spark: translated by sqlglot, run by DuckDB.

A name of a column is looked up and needs neither. Where DuckDB would quietly give another answer
than Spark in its ANSI mode, the expression is rewritten: a test that passes for the wrong reason is
worse than none.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from windrow.errors import DataError, OptionError, SchemaError, unknown_column
from windrow.rows.types import single_chunk
from windrow.sources.expressions import not_by_row

_PLAIN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|`(?P<quoted>(?:[^`]|``)+)`)\s*")
_WORDS = frozenset({"null", "true", "false", "current_date", "current_timestamp"})
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_MACROS = (
    # Spark checks for NULL before it checks for zero.
    "divide(a, b) AS CASE WHEN a IS NOT NULL AND b = 0 THEN error('division by zero')"
    " ELSE a / b END",
    "div(a, b) AS CASE WHEN a IS NOT NULL AND b = 0 THEN error('division by zero')"
    " ELSE CAST(trunc(a // b) AS BIGINT) END",
    "mod(a, b) AS CASE WHEN a IS NOT NULL AND b = 0 THEN error('division by zero') ELSE a % b END",
    "pmod(a, b) AS CASE WHEN a IS NOT NULL AND b = 0 THEN error('division by zero')"
    " ELSE ((a % b) + b) % b END",
    "and(a, b) AS CASE WHEN NOT a THEN FALSE ELSE a AND b END",
    "or(a, b) AS CASE WHEN a THEN TRUE ELSE a OR b END",
    "ln(a) AS CASE WHEN a > 0 THEN ln(a) END",
    "weekday(a) AS isodow(a) - 1",
    "seconds(a) AS CAST(floor(epoch(a)) AS BIGINT)",
)
_SEVERAL_ROWS = frozenset(
    {
        *("explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"),
        *("json_tuple", "window", "session_window"),
    }
)
_local = threading.local()


def plain_name(text: str) -> str | None:
    """The name that an expression is, if it is no more than a name."""
    match = _PLAIN.fullmatch(text)
    if match is None or text.strip().lower() in _WORDS:
        return None
    return str(match["name"] or match["quoted"].replace("``", "`"))


def column_name(text: str, names: Sequence[str]) -> str | None:
    """The column that an expression names: as Spark finds it, without regard to case."""
    wanted = plain_name(text)
    if wanted is None or wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)


def evaluate(table: pa.Table, text: str, where: str) -> pa.Array:
    """The values of a Spark SQL expression, one for each row; `where` says in errors whose."""
    name = column_name(text, table.column_names)
    if name is not None:
        return single_chunk(table.column(name))
    wanted = plain_name(text)
    if wanted is not None:
        raise unknown_column(wanted, table.column_names, where)
    found = _Evaluation(table, text, where).run(text)
    if len(found) != table.num_rows:
        raise not_by_row(text, where)
    return found


def condition(table: pa.Table, text: str, where: str) -> pa.Array:
    """The same of a condition, with NULL as false."""
    found = evaluate(table, text, where)
    if not pa.types.is_boolean(found.type) and not pa.types.is_null(found.type):
        raise SchemaError(f"{where}: {text!r} is {found.type}, not a condition (BOOLEAN)")
    return found.cast(pa.bool_()).fill_null(False)


def _modules() -> tuple[Any, Any]:
    try:
        import duckdb
        import sqlglot
    except ImportError as error:
        raise OptionError(
            "Spark SQL expressions in tests need DuckDB and sqlglot: pip install 'windrow[testing]'"
        ) from error
    return duckdb, sqlglot


def _connection() -> Any:
    """One connection for each thread: making one takes longer than a test should."""
    if not hasattr(_local, "connection"):
        duckdb, _ = _modules()
        connection = duckdb.connect(":memory:")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET threads = 1")
        # An optimizer may evaluate in another order than the text, where a division by zero shows.
        connection.execute("PRAGMA disable_optimizer")
        for macro in _MACROS:
            connection.execute(f"CREATE MACRO spark_{macro}")
        _local.connection = connection
    return _local.connection


@functools.lru_cache(maxsize=1_000)
def _parsed(text: str) -> Any:
    """The expression's tree, beneath an alias; None if it is not one expression."""
    _, sqlglot = _modules()
    tree = sqlglot.parse_one(f"SELECT {text}", read="spark")
    parts = [name for name, part in tree.args.items() if part]
    if not isinstance(tree, sqlglot.exp.Select) or parts != ["expressions"]:
        return None
    if len(tree.expressions) != 1:
        return None
    return sqlglot.exp.alias_(tree.expressions[0].unalias(), "result", quoted=True)


class _Evaluation:
    """One expression over one table."""

    def __init__(self, table: pa.Table, text: str, where: str) -> None:
        self._table = table
        self._of = where
        self._where = f"{where}: {text!r}"
        self._duckdb, self._sqlglot = _modules()
        self._exp = self._sqlglot.exp
        self._rewrites: dict[Any, Callable[[Any], Any]] = {
            self._exp.Div: lambda node: self._call("divide", node.this, node.expression),
            self._exp.IntDiv: lambda node: self._call("div", node.this, node.expression),
            self._exp.Mod: lambda node: self._call("mod", node.this, node.expression),
            self._exp.And: lambda node: self._connective("and", node),
            self._exp.Or: lambda node: self._connective("or", node),
            self._exp.Ln: lambda node: self._call("ln", node.this),
            self._exp.Cast: self._cast,
            self._exp.TryCast: self._cast,
            self._exp.Anonymous: self._function,
            # DuckDB counts from 0, gives doubles, and gives timestamps.
            self._exp.DayOfWeek: lambda node: self._exp.paren(node.copy() + 1),
            self._exp.Floor: lambda node: self._as(node, "BIGINT"),
            self._exp.Ceil: lambda node: self._as(node, "BIGINT"),
            self._exp.TsOrDsAdd: lambda node: self._as(node, "DATE"),
            self._exp.StrToTime: lambda node: self._as(node, "TIMESTAMPTZ"),
            self._exp.TsOrDsToDate: self._to_date,
            self._exp.Like: self._like,
        }

    def run(self, text: str) -> pa.Array:
        connection = _connection()
        connection.register("rows", self._table)
        try:
            relation = connection.sql(f"SELECT {self._translated(text)} FROM rows")
            kind = str(relation.types[0])
            found = single_chunk(relation.to_arrow_table().column(0))
        except self._duckdb.Error as error:
            raise self._failure(text, error) from error
        finally:
            connection.unregister("rows")
        if kind == "HUGEINT" or kind in ("UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT"):
            return found.cast(pa.int64())  # Spark has neither
        return found

    def _translated(self, text: str) -> str:
        errors = self._sqlglot.errors
        try:
            tree = _parsed(text)
            if tree is None:
                raise SchemaError(f"{self._where} is not an expression in Spark SQL")
            self._refuse(tree, text)
            tree = tree.copy()
            for node in reversed(list(tree.walk())):  # what is inside first
                rewrite = self._rewrites.get(type(node))
                if rewrite is not None:
                    node.replace(rewrite(node))
            return self._sql(tree)
        except errors.SqlglotError as error:
            raise SchemaError(f"{self._where}: {_first_line(error)}") from error

    def _refuse(self, tree: Any, text: str) -> None:
        """An expression gives a value for each row, as `windrow.sources.expressions` has it."""
        exp = self._exp
        for node in tree.walk():
            named = isinstance(node, exp.Anonymous) and node.name.lower() in _SEVERAL_ROWS
            if named or isinstance(node, (exp.AggFunc, exp.Window, exp.UDTF, exp.Explode)):
                raise not_by_row(text, self._of, node.sql(dialect="spark"))

    def _sql(self, tree: Any) -> str:
        level = self._sqlglot.ErrorLevel.RAISE
        return str(tree.sql(dialect="duckdb", unsupported_level=level))

    def _failure(self, text: str, error: Exception) -> Exception:
        duckdb, reason = self._duckdb, _first_line(error)
        runtime = (duckdb.OutOfRangeException, duckdb.ConversionException)
        if isinstance(error, (*runtime, duckdb.InvalidInputException)):
            return DataError(f"{self._where}: {reason}")
        names = [name.lower() for name in self._table.column_names]
        for column in _parsed(text).find_all(self._exp.Column):
            first = column.parts[0].name
            if first.lower() not in names:
                return unknown_column(first, self._table.column_names, self._where)
        return SchemaError(f"{self._where}: {reason}")

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._exp.func(f"spark_{name}", *(argument.copy() for argument in arguments))

    def _as(self, node: Any, type_: str) -> Any:
        return self._exp.Cast(this=node.copy(), to=self._exp.DataType.build(type_))

    def _function(self, node: Any) -> Any:
        name = node.name.lower()
        if name in ("pmod", "weekday"):
            return self._call(name, *node.expressions)
        if name in ("bigint", "smallint", "tinyint") and len(node.expressions) == 1:
            return self._cast(self._as(node.expressions[0], name))
        return node

    def _connective(self, name: str, node: Any) -> Any:
        """Spark looks at the right side only if the left leaves the answer open."""
        exp = self._exp
        fails = (exp.Cast, exp.Anonymous)  # divisions are calls by now
        if node.expression.find(*fails) is None:
            return node
        return self._call(name, node.this, node.expression)

    def _to_date(self, node: Any) -> Any:
        node.set("safe", False)
        return node

    def _like(self, node: Any) -> Any:
        if isinstance(node.parent, self._exp.Escape):
            return node
        return self._exp.Escape(this=node.copy(), expression=self._exp.Literal.string("\\"))

    def _cast(self, node: Any) -> Any:
        """In ANSI mode a cast that fails is an error; fractions are cut off, not rounded."""
        exp, value = self._exp, node.this.copy()
        safe = isinstance(node, exp.TryCast) and node.args.get("safe")
        made = (exp.TryCast if safe else exp.Cast)(this=value, to=node.args["to"].copy())
        name = made.to.this.name
        if name == "TIMESTAMP":
            made.set("to", exp.DataType.build("TIMESTAMPTZ"))
        if name in _INTEGERS and not isinstance(value, exp.Literal):
            kind = self._type_of(value)
            if kind.startswith("TIMESTAMP"):
                return self._call("seconds", value)
            if kind.startswith(("DOUBLE", "FLOAT", "DECIMAL")):
                made.set("this", exp.func("trunc", value))
        return made

    def _type_of(self, node: Any) -> str:
        """DuckDB's type of a part of the expression; DOUBLE for what depends on a lambda's."""
        try:
            return str(_connection().sql(f"SELECT {self._sql(node)} FROM rows").types[0])
        except self._duckdb.Error:
            return "DOUBLE"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
