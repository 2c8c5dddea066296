"""Random schemas, queries and rows: a small typed grammar that gives SQL as text.

A relation is a SELECT with named, typed columns; each production puts one construct around one or
two smaller relations, down to tables and earlier views. Expressions are total: none fails on any
row, so that a query which Spark answers has an answer after every batch. Everything is drawn from
one `random.Random`, which may be Hypothesis's.

Answers have to be one multiset. So rows are numbered only in a total order, lists are sorted, and a
double whose last digits depend on the order of a sum (`exact` is false) is only ever shown, never
compared; doubles in tables are few halves and quarters, whose sums are exact.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from view_oracle import Row
from view_tables import INF, NAN, Rows

# Kinds of columns: the types that tables may give them, and their values. Within a kind, Spark
# finds a common type by itself.
TYPES: dict[str, dict[str, list[Any]]] = {
    "int": {
        "TINYINT": [-128, 0, 1, 2],
        "SMALLINT": [-1, 0, 1, 300],
        "INT": [-1, 0, 1, 2, 3],
        "BIGINT": [0, 1, 2, 2**40],
    },
    "double": {"DOUBLE": [-1.5, -0.0, 0.0, 0.25, 2.0, NAN, INF], "FLOAT": [0.5, -1.0, 2.0, NAN]},
    "decimal": {
        "DECIMAL(10,2)": [Decimal("0.00"), Decimal("1.50"), Decimal("-2.25")],
        "DECIMAL(18,4)": [Decimal("0.0001"), Decimal("1.5000"), Decimal("0.0000")],
    },
    "string": {"STRING": ["a", "b", "B", "ab", ""]},
    "bool": {"BOOLEAN": [True, False]},
    "date": {"DATE": [dt.date(2024, 2, 29), dt.date(2024, 3, 1), dt.date(1969, 12, 31)]},
    "time": {
        "TIMESTAMP": [
            dt.datetime(2024, 2, 29, 23, 59, tzinfo=dt.UTC),
            dt.datetime(2024, 3, 1, tzinfo=dt.UTC),
            dt.datetime(1969, 12, 31, 12, tzinfo=dt.UTC),
        ]
    },
    "local": {"TIMESTAMP_NTZ": [dt.datetime(2024, 3, 1), dt.datetime(1969, 12, 31, 12)]},
    "binary": {"BINARY": [b"", b"\x00", b"ab", b"\xff"]},
    "ints": {"ARRAY<INT>": [[], [1], [2, 1], [None, 3], [1, 1]]},
    "words": {"ARRAY<STRING>": [[], ["a"], ["b", None], ["", "a"]]},
    "struct": {
        "STRUCT<a: INT, b: STRING>": [
            {"a": 1, "b": "a"},
            {"a": 1, "b": None},
            {"a": None, "b": "b"},
            {"a": 2, "b": ""},
        ]
    },
    "span": {
        "INTERVAL DAY TO SECOND": [
            dt.timedelta(0),
            dt.timedelta(days=1, microseconds=1),
            dt.timedelta(hours=-3),
        ]
    },
    "items": {
        "ARRAY<STRUCT<sku: STRING, qty: INT>>": [
            [],
            [{"sku": "a", "qty": 1}],
            [{"sku": "b", "qty": None}, {"sku": None, "qty": 2}],
            [{"sku": "a", "qty": 1}, {"sku": "a", "qty": 1}],
        ]
    },
    "deep": {
        "STRUCT<p: STRUCT<q: INT, r: ARRAY<STRING>>, s: DATE>": [
            {"p": {"q": 1, "r": ["a", None]}, "s": dt.date(2024, 3, 1)},
            {"p": {"q": None, "r": []}, "s": None},
            {"p": None, "s": dt.date(2024, 2, 29)},
        ]
    },
    # No NULL in a map: code that Spark generates to sort entries, for GROUP BY, makes it a zero.
    "map": {"MAP<STRING, INT>": [[], [("p", 1)], [("q", 2), ("p", 1)], [("q", 0)]]},
}
LITERALS = {
    "int": ["0", "1", "2", "3", "-1", "NULL"],
    "double": ["0.25D", "-1.5D", "CAST('NaN' AS DOUBLE)"],
    "decimal": ["1.50", "-2.25", "0.00"],
    "string": ["'a'", "'b'", "''", "'B'"],
    "bool": ["true", "false"],
    "date": ["DATE '2024-02-29'", "DATE '2024-03-01'"],
    "time": ["TIMESTAMP '2024-03-01 00:00:00'"],
    "local": ["TIMESTAMP_NTZ '2024-03-01 00:00:00'"],
    "binary": ["X'00'", "X''"],
    "ints": ["array(1, 2)", "array(1)"],
    "words": ["array('a')", "array('b', 'a')"],
    "struct": ["named_struct('a', 1, 'b', 'a')"],
    "map": ["map('p', 1)"],
    "span": ["INTERVAL '1 00:00:00.000001' DAY TO SECOND", "INTERVAL '0 00:00:00' DAY TO SECOND"],
    "items": ["array(named_struct('sku', 'a', 'qty', 1))"],
    "deep": ["named_struct('p', named_struct('q', 1, 'r', array('a')), 's', DATE '2024-03-01')"],
}
ORDERED = [kind for kind in TYPES if kind != "map"]
MOST_ROWS = 1500  # that a relation may be expected to have


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    exact: bool = True


@dataclass(frozen=True)
class Relation:
    """A query, its columns, and about how many rows it has."""

    sql: str
    columns: tuple[Column, ...]
    rows: int = 10

    def aliased(self, name: str) -> str:
        return f"({self.sql}) AS {name}"


@dataclass(frozen=True)
class Schema:
    """Tables: for each its columns, as (name, kind, type)."""

    tables: dict[str, list[tuple[str, str, str]]]

    @classmethod
    def draw(cls, rng: random.Random) -> Schema:
        tables = {}
        for name in ("r", "s", "q")[: rng.choice([2, 3])]:
            columns = [("k", "int", "INT")]
            for number in range(rng.randint(1, 4)):
                kind = rng.choice([*TYPES, "int", "string"])
                columns.append((f"c{number}", kind, rng.choice(list(TYPES[kind]))))
            tables[name] = columns
        return cls(tables)

    def ddl(self) -> dict[str, str]:
        return {
            table: ", ".join(f"{name} {type_}" for name, _, type_ in columns)
            for table, columns in self.tables.items()
        }


class SchemaRows(Rows):
    """Random rows of a random schema."""

    def __init__(self, rng: random.Random, schema: Schema) -> None:
        super().__init__(rng)
        self.schema = schema
        self.sizes = {name: rng.randint(6, 12) for name in schema.tables}
        self.keys = {name: (0, len(columns) - 1) for name, columns in schema.tables.items()}

    def row(self, table: str) -> Row:
        columns = self.schema.tables[table]
        return tuple(self.one(TYPES[kind][type_]) for _, kind, type_ in columns)


@dataclass
class Grammar:
    """Draws queries over the relations that it knows."""

    rng: random.Random
    known: dict[str, Relation] = field(default_factory=dict)
    _names: int = 10  # columns of tables have smaller numbers

    @classmethod
    def over(cls, rng: random.Random, schema: Schema) -> Grammar:
        grammar = cls(rng)
        for table, columns in schema.tables.items():
            named = tuple(Column(name, kind) for name, kind, _ in columns)
            grammar.known[table] = Relation(f"SELECT * FROM {table}", named)
        return grammar

    def view(self, name: str, depth: int = 3) -> Relation:
        """The next query; later ones may use it by its name."""
        query = self.relation(depth)
        # A view stores whatever its query gives; others may not compare what is not exact.
        self.known[name] = Relation(
            f"SELECT * FROM {name}", tuple(c for c in query.columns if c.exact), query.rows
        )
        return query

    # --- relations ---------------------------------------------------------------------------

    def relation(self, depth: int) -> Relation:
        if depth <= 0:
            return self.leaf()
        for _ in range(10):
            found = self.rng.choice(self.productions())(depth)
            if found.rows <= MOST_ROWS:
                return found
        return self.leaf()

    def productions(self) -> list[Callable[[int], Relation]]:
        often = [self.select, self.join, self.group, self.filtered_by_subquery, self.group]
        rest = [
            self.grouping_sets,
            self.distinct,
            self.set_operation,
            self.window,
            self.top,
            self.top_per_group,
            self.exploded,
            self.scalars,
            self.lateral,
            self.common_table,
            self.global_group,
            self.unpivoted,
            self.pivoted,
            self.joined_by_name,
            self.cross,
            self.membership,
        ]
        return [*often, *often, *rest]

    def leaf(self) -> Relation:
        if self.rng.random() < 0.05:
            return Relation(
                "SELECT * FROM VALUES (1, 'a'), (2, NULL), (NULL, 'b'), (1, 'a') AS l(k, w)",
                (Column("k", "int"), Column("w", "string")),
                4,
            )
        return self.rng.choice(list(self.known.values()))

    def smaller(self, depth: int) -> Relation:
        """Something that can be compared, to put a construct around."""
        found = self.relation(self.rng.randint(0, depth - 1))
        exact = tuple(c for c in found.columns if c.exact)
        return Relation(found.sql, exact, found.rows) if exact else self.leaf()

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def scope(self, alias: str, relation: Relation) -> list[Column]:
        return [Column(f"{alias}.{c.name}", c.kind) for c in relation.columns]

    def selected(self, scope: Sequence[Column], most: int = 4) -> list[tuple[str, Column]]:
        """Expressions and the columns that they make."""
        found = []
        for _ in range(self.rng.randint(1, most)):
            kind = self.rng.choice([c.kind for c in scope])
            found.append((self.expression(scope, kind, 2), Column(self.name("c"), kind)))
        return found

    def listed(self, items: Sequence[tuple[str, Column]]) -> str:
        return ", ".join(f"{text} AS {column.name}" for text, column in items)

    def maybe_where(self, scope: Sequence[Column], probability: float = 0.4) -> str:
        if self.rng.random() > probability:
            return ""
        return f" WHERE {self.predicate(scope, 2)}"

    def select(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = self.scope(alias, inner)
        items = self.selected(scope)
        sql = f"SELECT {self.listed(items)} FROM {inner.aliased(alias)}{self.maybe_where(scope)}"
        return Relation(sql, tuple(c for _, c in items), inner.rows)

    def join(self, depth: int) -> Relation:
        left, right = self.smaller(depth), self.smaller(depth)
        if self.rng.random() < 0.15:
            right = left  # a self join
        a, b = self.name("a"), self.name("b")
        scope, other = self.scope(a, left), self.scope(b, right)
        kinds = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
        kind = self.rng.choice(kinds)
        equal = self.equality(scope, other)
        rows = max(left.rows, right.rows) * 2
        if equal is None or self.rng.random() < 0.1:
            condition, rows = self.comparison(scope, other), left.rows * right.rows
        elif self.rng.random() < 0.4:
            condition = f"{equal} AND {self.comparison(scope, other)}"
        else:
            condition = equal
        if self.rng.random() < 0.1:
            condition += f" AND {self.beside_a_scalar(scope, depth)}"
        both = scope if "SEMI" in kind or "ANTI" in kind else [*scope, *other]
        items = self.selected(both)
        sql = (
            f"SELECT {self.listed(items)} FROM {left.aliased(a)} {kind} {right.aliased(b)}"
            f" ON {condition}{self.maybe_where(both, 0.2)}"
        )
        return Relation(sql, tuple(c for _, c in items), rows)

    def joined_by_name(self, depth: int) -> Relation:
        """USING and NATURAL joins: the columns of one name are merged."""
        left, right = self.smaller(depth), self.smaller(depth)
        a, b, key = self.name("a"), self.name("b"), self.name("k")
        pair = self.pair(self.scope(a, left), self.scope(b, right))
        if pair is None:
            return self.select(depth)
        kind = next(c.kind for c in self.scope(a, left) if c.name in pair[0])
        sides, columns = [], [Column(key, kind)]
        for side, alias, text in ((left, a, pair[0]), (right, b, pair[1])):
            kept = [(c.name, Column(self.name("c"), c.kind)) for c in self.scope(alias, side)[:2]]
            listed = self.listed([(text, Column(key, kind)), *kept])
            sides.append(f"(SELECT {listed} FROM {side.aliased(alias)})")
            columns += [c for _, c in kept]
        word = self.rng.choice(["", "LEFT ", "RIGHT ", "FULL "])
        names = ", ".join(c.name for c in columns)
        if self.rng.random() < 0.5:
            sql = f"SELECT {names} FROM {sides[0]} NATURAL {word}JOIN {sides[1]}"
        else:
            sql = f"SELECT {names} FROM {sides[0]} {word}JOIN {sides[1]} USING ({key})"
        return Relation(sql, tuple(columns), max(left.rows, right.rows) * 2)

    def cross(self, depth: int) -> Relation:
        left, right = self.smaller(depth), self.smaller(depth)
        a, b = self.name("a"), self.name("b")
        both = [*self.scope(a, left), *self.scope(b, right)]
        items, word = self.selected(both, 3), self.rng.choice([" CROSS JOIN", ","])
        sql = f"SELECT {self.listed(items)} FROM {left.aliased(a)}{word} {right.aliased(b)}"
        sql += self.maybe_where(both, 0.5)
        return Relation(sql, tuple(c for _, c in items), left.rows * right.rows)

    def membership(self, depth: int) -> Relation:
        """IN and EXISTS as values: of a column, within an aggregate or a HAVING."""
        left, right = self.smaller(depth), self.smaller(depth)
        a, b = self.name("a"), self.name("b")
        scope, other = self.scope(a, left), self.scope(b, right)
        pair = self.pair(scope, other)
        if pair is None:
            return self.select(depth)
        mine, theirs = pair
        where = self.maybe_where(other, 0.3)
        text = self.rng.choice(
            [
                f"{mine} IN (SELECT {theirs} FROM {right.aliased(b)}{where})",
                f"{mine} NOT IN (SELECT {theirs} FROM {right.aliased(b)}{where})",
                f"EXISTS (SELECT 1 FROM {right.aliased(b)} WHERE {mine} = {theirs})",
            ]
        )
        found = Column(self.name("c"), "bool")
        if self.rng.random() < 0.3:
            key = Column(self.name("c"), next(c.kind for c in scope if c.name in mine))
            count = Column(self.name("c"), "int")
            sql = (
                f"SELECT {key.name}, count_if({found.name}) AS {count.name} FROM (SELECT {mine} AS"
                f" {key.name}, {text} AS {found.name} FROM {left.aliased(a)}) GROUP BY {key.name}"
            )
            return Relation(sql, (key, count), left.rows)
        items = [*self.selected(scope, 2), (text, found)]
        sql = f"SELECT {self.listed(items)} FROM {left.aliased(a)}"
        return Relation(sql, tuple(c for _, c in items), left.rows)

    def pivoted(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = self.scope(alias, inner)
        key = self.rng.choice([c for c in scope if c.kind != "map"] or scope)
        if key.kind == "map":
            return self.select(depth)
        by, value = Column(self.name("c"), key.kind), self.name("c")
        below = self.listed(
            [
                (key.name, by),
                (self.expression(scope, "string", 1), Column(value, "string")),
                (self.expression(scope, "int", 1), Column("amount", "int")),
            ]
        )
        function = self.rng.choice(["sum", "max", "count"])
        made = [Column(self.name("c"), "int") for _ in range(2)]
        sql = (
            f"SELECT * FROM (SELECT {below} FROM {inner.aliased(alias)}) PIVOT"
            f" ({function}(amount) FOR {value} IN ('a' AS {made[0].name}, 'b' AS {made[1].name}))"
        )
        return Relation(sql, (by, *made), inner.rows)

    def beside_a_scalar(self, scope: Sequence[Column], depth: int) -> str:
        """A comparison of a column with the only value of a subquery."""
        inner, alias = self.ordered(depth), self.name("a")
        value = self.rng.choice(self.scope(alias, inner))
        left = self.expression(scope, value.kind, 1)
        best = self.rng.choice(["min", "max"])
        return f"{left} <= (SELECT {best}({value.name}) FROM {inner.aliased(alias)})"

    def keys(self, scope: Sequence[Column], most: int = 2) -> list[tuple[str, Column]]:
        found = []
        for _ in range(self.rng.randint(1, most)):
            column = self.rng.choice(scope)
            text = column.name
            if self.rng.random() < 0.3:
                text = self.expression(scope, column.kind, 1)
            found.append((text, Column(self.name("k"), column.kind)))
        return found

    def group(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = self.scope(alias, inner)
        # Grouped in an outer query by name: an expression in both places would have to be the same.
        keys, rest = self.keys(scope), self.selected(scope, 3)
        below = f"SELECT {self.listed([*keys, *rest])} FROM {inner.aliased(alias)}"
        below += self.maybe_where(scope, 0.3)
        named = [c for _, c in rest]
        aggregates = [self.aggregate(named) for _ in range(self.rng.randint(0, 3))]
        items = [*((c.name, Column(self.name("c"), c.kind)) for _, c in keys), *aggregates]
        by = ", ".join(c.name for _, c in keys)
        sql = f"SELECT {self.listed(items)} FROM ({below}) GROUP BY {by}"
        if self.rng.random() < 0.3:
            sql += f" HAVING count(*) {self.rng.choice(['>', '<=', '='])} {self.rng.randint(1, 3)}"
        return Relation(sql, tuple(c for _, c in items), inner.rows)

    def global_group(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = self.scope(alias, inner)
        items = [self.aggregate(scope) for _ in range(self.rng.randint(1, 3))]
        sql = f"SELECT {self.listed(items)} FROM {inner.aliased(alias)}{self.maybe_where(scope)}"
        return Relation(sql, tuple(c for _, c in items), 1)

    def grouping_sets(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = [c for c in self.scope(alias, inner) if c.kind != "map"]
        if not scope:
            return self.select(depth)
        keys = [
            (c.name, Column(self.name("c"), c.kind))
            for c in self.rng.sample(scope, min(2, len(scope)))
        ]
        by = ", ".join(text for text, _ in keys)
        sets = self.rng.choice(["ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"]).format(by)
        level = ("grouping_id()", Column(self.name("c"), "int"))
        items = [*keys, level, self.aggregate(self.scope(alias, inner))]
        sql = f"SELECT {self.listed(items)} FROM {inner.aliased(alias)} GROUP BY {sets}"
        return Relation(sql, tuple(c for _, c in items), inner.rows * 2)

    def distinct(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = [c for c in self.scope(alias, inner) if c.kind != "map"]
        if not scope:
            return self.select(depth)
        items = self.keys(scope, 3)
        sql = f"SELECT DISTINCT {self.listed(items)} FROM {inner.aliased(alias)}"
        return Relation(sql, tuple(c for _, c in items), inner.rows)

    def set_operation(self, depth: int) -> Relation:
        left, right = self.smaller(depth), self.smaller(depth)
        word = self.rng.choice(
            ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        )
        there = {c.kind for c in left.columns} & {c.kind for c in right.columns}
        kinds = sorted(there - {"map"}) or ["int"]
        chosen = [self.rng.choice(kinds) for _ in range(self.rng.randint(1, 2))]
        sides, names = [], [Column(self.name("c"), kind) for kind in chosen]
        for side in (left, right):
            alias = self.name("a")
            scope = self.scope(alias, side)
            items = [(self.expression(scope, column.kind, 1), column) for column in names]
            sides.append(f"SELECT {self.listed(items)} FROM {side.aliased(alias)}")
        sql = f"SELECT * FROM ({sides[0]} {word} {sides[1]})"
        return Relation(sql, tuple(names), left.rows + right.rows)

    def ordering(self, columns: Sequence[Column]) -> str:
        """A total order, up to rows that are equal."""
        ends = ["", " DESC", " NULLS LAST", " DESC NULLS LAST"]
        shuffled = self.rng.sample(list(columns), len(columns))
        return ", ".join(c.name + self.rng.choice(ends) for c in shuffled)

    def ordered(self, depth: int) -> Relation:
        """Something whose rows can be put in order: without maps."""
        inner = self.smaller(depth)
        columns = [c for c in inner.columns if c.kind != "map"]
        if not columns:
            inner = self.known[next(iter(self.known))]
            columns = [c for c in inner.columns if c.kind != "map"]
        names = ", ".join(c.name for c in columns)
        return Relation(f"SELECT {names} FROM ({inner.sql})", tuple(columns), inner.rows)

    def window(self, depth: int) -> Relation:
        inner, alias = self.ordered(depth), self.name("a")
        scope = self.scope(alias, inner)
        partition = ""
        if self.rng.random() < 0.85:
            partition = f"PARTITION BY {self.rng.choice(scope).name} "
        order, value = f"ORDER BY {self.ordering(scope)}", self.rng.choice(scope)
        frame = self.rng.choice(
            [
                "",
                " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            ]
        )
        numbers = [c.name for c in scope if c.kind == "int"]
        near = f"ORDER BY CAST({self.rng.choice(numbers or ['0'])} AS BIGINT)"
        near += " RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"
        rows = self.rng.choice(scope).name
        text, kind = self.rng.choice(
            [
                (f"row_number() OVER ({partition}{order})", "int"),
                (f"rank() OVER ({partition}ORDER BY {rows})", "int"),
                (f"dense_rank() OVER ({partition}ORDER BY {rows} DESC)", "int"),
                (f"ntile(2) OVER ({partition}{order})", "int"),
                (f"lag({value.name}) OVER ({partition}{order})", value.kind),
                (f"lead({value.name}, 2) OVER ({partition}{order})", value.kind),
                (f"count(*) OVER ({partition}{order}{frame})", "int"),
                (f"max({value.name}) OVER ({partition}{order}{frame})", value.kind),
                (f"min({value.name}) OVER ({partition}{order})", value.kind),
                (f"count({value.name}) OVER ({partition.strip()})", "int"),
                (f"first_value({value.name}) OVER ({partition}{order})", value.kind),
                (f"last_value({value.name}) OVER ({partition}{order}{frame})", value.kind),
                (f"nth_value({value.name}, 2) OVER ({partition}{order})", value.kind),
                (f"count(*) OVER ({partition}{near})", "int"),
                (f"cume_dist() OVER ({partition}ORDER BY {rows})", "inexact"),
                (f"percent_rank() OVER ({partition}ORDER BY {rows})", "inexact"),
            ]
        )
        items = [(c.name, Column(self.name("c"), c.kind)) for c in scope]
        made = Column(self.name("c"), "double" if kind == "inexact" else kind, kind != "inexact")
        items.append((text, made))
        sql = f"SELECT {self.listed(items)} FROM {inner.aliased(alias)}"
        return Relation(sql, tuple(c for _, c in items), inner.rows)

    def top(self, depth: int) -> Relation:
        inner = self.ordered(depth)
        sql = f"SELECT * FROM ({inner.sql}) ORDER BY {self.ordering(inner.columns)}"
        sql += f" LIMIT {self.rng.randint(1, 6)}"
        if self.rng.random() < 0.3:
            sql += f" OFFSET {self.rng.randint(1, 4)}"
        return Relation(f"SELECT * FROM ({sql})", inner.columns, 6)

    def top_per_group(self, depth: int) -> Relation:
        inner, number = self.ordered(depth), self.name("n")
        key = self.rng.choice(inner.columns).name
        function, order = "row_number()", self.ordering(inner.columns)
        if self.rng.random() < 0.5:
            function = self.rng.choice(["rank()", "dense_rank()"])
            order = self.rng.choice(inner.columns).name
        names = ", ".join(c.name for c in inner.columns)
        below = (
            f"SELECT {names}, {function} OVER (PARTITION BY {key} ORDER BY {order}) AS {number}"
            f" FROM ({inner.sql})"
        )
        sql = f"SELECT {names} FROM ({below}) WHERE {number} <= {self.rng.randint(1, 3)}"
        return Relation(sql, inner.columns, inner.rows)

    def exploded(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = self.scope(alias, inner)
        kind, element = self.rng.choice(
            [("ints", "int"), ("words", "string"), ("items", ""), ("map", ""), ("stack", "")]
        )
        outer, name = self.rng.choice(["", "OUTER "]), self.name("c")
        kept = [(c.name, Column(self.name("c"), c.kind)) for c in self.rng.sample(scope, 1)]
        columns, made = f"{name}", [Column(name, element)]
        function = "explode"
        if kind == "stack":
            one = self.rng.choice(scope)
            made, function = [Column(name, one.kind)], "stack"
            text = f"2, {one.name}, {self.expression(scope, one.kind, 1)}"
        else:
            text = self.expression(scope, kind, 1)
        if kind in ("items", "map"):
            function = "inline" if kind == "items" else "explode"
            made = [Column(name, "string"), Column(self.name("c"), "int")]
            columns = ", ".join(c.name for c in made)
        elif kind != "stack" and self.rng.random() < 0.3:
            at = self.name("c")
            function, columns = "posexplode", f"{at}, {name}"
            made.append(Column(at, "int"))
        sql = (
            f"SELECT {self.listed(kept)}, {', '.join(c.name for c in made)}"
            f" FROM {inner.aliased(alias)} LATERAL VIEW {outer}{function}({text}) e AS {columns}"
        )
        return Relation(sql, (*(c for _, c in kept), *made), inner.rows * 2)

    def filtered_by_subquery(self, depth: int) -> Relation:
        left, right = self.smaller(depth), self.smaller(depth)
        a, b = self.name("a"), self.name("b")
        scope, other = self.scope(a, left), self.scope(b, right)
        conditions = []
        pair = self.pair(scope, other)
        if pair is not None:
            mine, theirs = pair
            word = self.rng.choice(["IN", "IN", "NOT IN"])
            where = self.maybe_where(other, 0.3)
            conditions.append(f"{mine} {word} (SELECT {theirs} FROM {right.aliased(b)}{where})")
            residual = f" AND {self.comparison(scope, other)}" if self.rng.random() < 0.3 else ""
            exists = self.rng.choice(["EXISTS", "NOT EXISTS"])
            conditions.append(
                f"{exists} (SELECT 1 FROM {right.aliased(b)} WHERE {mine} = {theirs}{residual})"
            )
        value = self.rng.choice(other)
        if value.kind != "map":
            compared = self.expression(scope, value.kind, 1)
            sign, best = self.rng.choice(["<", ">=", "<>"]), self.rng.choice(["min", "max"])
            conditions.append(
                f"{compared} {sign} (SELECT {best}({value.name}) FROM {right.aliased(b)})"
            )
        conditions.append(
            f"EXISTS (SELECT 1 FROM {right.aliased(b)}{self.maybe_where(other, 0.8)})"
        )
        condition = self.rng.choice(conditions)
        if self.rng.random() < 0.2:
            condition = f"({condition} OR {self.predicate(scope, 1)})"
        items = self.selected(scope)
        sql = f"SELECT {self.listed(items)} FROM {left.aliased(a)} WHERE {condition}"
        return Relation(sql, tuple(c for _, c in items), left.rows)

    def scalars(self, depth: int) -> Relation:
        left, right = self.smaller(depth), self.smaller(depth)
        a, b = self.name("a"), self.name("b")
        scope, other = self.scope(a, left), self.scope(b, right)
        pair = self.pair(scope, other)
        where = ""
        if pair is not None and self.rng.random() < 0.7:
            where = f" WHERE {pair[0]} = {pair[1]}"
        value = self.rng.choice(other)
        text, kind = "count(*)", "int"
        if value.kind != "map" and self.rng.random() < 0.7:
            text, kind = f"{self.rng.choice(['min', 'max'])}({value.name})", value.kind
        items = self.selected(scope, 2)
        scalar = f"(SELECT {text} FROM {right.aliased(b)}{where})"
        orderable = [c for c in other if c.kind != "map"]
        if where and value in orderable and self.rng.random() < 0.3:
            order = f"ORDER BY {self.ordering(orderable)} LIMIT 1"
            scalar = f"(SELECT {value.name} FROM {right.aliased(b)}{where} {order})"
            kind = value.kind
        items.append((scalar, Column(self.name("c"), kind)))
        sql = f"SELECT {self.listed(items)} FROM {left.aliased(a)}"
        return Relation(sql, tuple(c for _, c in items), left.rows)

    def lateral(self, depth: int) -> Relation:
        left, right = self.smaller(depth), self.ordered(depth)
        a, b, l = self.name("a"), self.name("b"), self.name("l")  # noqa: E741
        scope, other = self.scope(a, left), self.scope(b, right)
        pair = self.pair(scope, other)
        if pair is None:
            return self.select(depth)
        made = [(c.name, Column(self.name("c"), c.kind)) for c in other]
        below = f"SELECT {self.listed(made)} FROM {right.aliased(b)} WHERE {pair[0]} = {pair[1]}"
        if self.rng.random() < 0.6:
            below += (
                f" ORDER BY {self.ordering([c for _, c in made])} LIMIT {self.rng.randint(1, 2)}"
            )
        kept = [(c.name, Column(self.name("c"), c.kind)) for c in self.rng.sample(scope, 1)]
        shown = [(f"{l}.{c.name}", Column(self.name("c"), c.kind)) for _, c in made]
        kind = self.rng.choice([("JOIN", ""), ("LEFT JOIN", " ON true")])
        sql = (
            f"SELECT {self.listed([*kept, *shown])} FROM {left.aliased(a)} {kind[0]} LATERAL"
            f" ({below}) AS {l}{kind[1]}"
        )
        return Relation(sql, (*(c for _, c in kept), *(c for _, c in shown)), left.rows * 2)

    def common_table(self, depth: int) -> Relation:
        """A relation that is used twice."""
        inner, name = self.smaller(depth), self.name("w")
        a, b = self.name("a"), self.name("b")
        scope, other = self.scope(a, inner), self.scope(b, inner)
        condition = self.equality(scope, other) or "true"
        items = self.selected([*scope, *other], 3)
        kind = self.rng.choice(["JOIN", "LEFT JOIN"])
        sql = (
            f"WITH {name} AS ({inner.sql}) SELECT {self.listed(items)}"
            f" FROM {name} AS {a} {kind} {name} AS {b} ON {condition}"
        )
        rows = inner.rows * (inner.rows if condition == "true" else 2)
        return Relation(f"SELECT * FROM ({sql})", tuple(c for _, c in items), rows)

    def unpivoted(self, depth: int) -> Relation:
        inner, alias = self.smaller(depth), self.name("a")
        scope = self.scope(alias, inner)
        kind = self.rng.choice([c.kind for c in scope])
        cells = [(self.expression(scope, kind, 1), Column(self.name("c"), kind)) for _ in range(2)]
        value, name = Column(self.name("c"), kind), Column(self.name("c"), "string")
        nulls = self.rng.choice(["", "INCLUDE NULLS "])
        columns = ", ".join(c.name for _, c in cells)
        sql = (
            f"SELECT {name.name}, {value.name} FROM (SELECT {self.listed(cells)}"
            f" FROM {inner.aliased(alias)}) UNPIVOT {nulls}"
            f"({value.name} FOR {name.name} IN ({columns}))"
        )
        return Relation(sql, (name, value), inner.rows * 2)

    # --- aggregates --------------------------------------------------------------------------

    def aggregate(self, scope: Sequence[Column]) -> tuple[str, Column]:
        value = self.rng.choice(scope)
        v, kind = value.name, value.kind
        found: list[tuple[str, str, bool]] = [("count(*)", "int", True)]
        if kind != "map":
            found += [
                (f"count({v})", "int", True),
                (f"count(DISTINCT {v})", "int", True),
                (f"count(DISTINCT coalesce({v}, {LITERALS[kind][0]}))", "int", True),
                (f"min({v})", kind, True),
                (f"max({v})", kind, True),
                (f"size(collect_list({v}))", "int", True),
                (
                    f"max_by({v}, struct({self.rng.choice(self.without_maps(scope))}, {v}))",
                    kind,
                    True,
                ),
            ]
        if kind not in ("map", "double"):  # NaN would be there many times
            found.append((f"size(collect_set({v}))", "int", True))
        if kind == "int":
            found += [
                (f"sum({v})", "int", True),
                (f"sum(DISTINCT {v})", "int", True),
                (f"avg({v})", "double", False),
                (f"stddev_pop({v})", "double", False),
                (f"median({v})", "double", True),
                (f"bit_xor({v})", "int", True),
                (f"mode({v}, true)", "int", True),
                (f"array_sort(collect_list(CAST({v} % 7 AS INT)))", "ints", True),
                (f"approx_count_distinct({v})", "int", True),
            ]
        if kind == "double":
            found += [(f"sum({v})", "double", True), (f"var_samp({v})", "double", False)]
            found += [(f"avg({v})", "double", False)]
        if kind == "decimal":
            found += [(f"sum({v})", "decimal", True), (f"avg({v})", "decimal", True)]
        if kind == "span":
            found += [(f"sum({v})", "span", True)]
        if kind == "bool":
            found += [(f"{name}({v})", "bool", True) for name in ("bool_and", "bool_or")]
            found += [(f"count_if({v})", "int", True)]
        if kind == "string":
            found += [
                (f"listagg({v}, '-') WITHIN GROUP (ORDER BY {v})", "string", True),
                (f"array_sort(collect_set({v}))", "words", True),
            ]
        text, result, exact = self.rng.choice(found)
        if self.rng.random() < 0.15 and not text.startswith(("size", "array_sort", "listagg")):
            text += f" FILTER (WHERE {self.predicate(scope, 1)})"
        return text, Column(self.name("c"), result, exact)

    def without_maps(self, scope: Sequence[Column]) -> list[str]:
        return [c.name for c in scope if c.kind != "map"] or ["1"]

    # --- expressions -------------------------------------------------------------------------

    def expression(self, scope: Sequence[Column], kind: str, depth: int) -> str:
        """Text of this kind over these columns, which fails on no row."""
        columns = [c.name for c in scope if c.kind == kind]
        if columns and (depth <= 0 or self.rng.random() < 0.6):
            return self.rng.choice(columns)
        if depth <= 0 or self.rng.random() < 0.2:
            return self.typed(kind, self.rng.choice(LITERALS[kind]))
        made = self.made(scope, kind, depth - 1)
        return self.rng.choice(made)()

    def typed(self, kind: str, literal: str) -> str:
        return "CAST(NULL AS INT)" if literal == "NULL" else literal

    def made(self, scope: Sequence[Column], kind: str, depth: int) -> list[Callable[[], str]]:
        def of(other: str) -> str:
            return self.expression(scope, other, depth)

        general: list[Callable[[], str]] = [
            lambda: f"coalesce({of(kind)}, {of(kind)})",
            lambda: f"CASE WHEN {self.predicate(scope, depth)} THEN {of(kind)} ELSE {of(kind)} END",
            lambda: f"if({self.predicate(scope, depth)}, {of(kind)}, NULL)",
        ]
        special: dict[str, list[Callable[[], str]]] = {
            "int": [
                lambda: f"try_add({of('int')}, {of('int')})",
                lambda: f"({of('int')} % 3)",
                lambda: f"length({of('string')})",
                lambda: f"size({of('ints')})",
                lambda: f"year({of('date')})",
                lambda: f"CAST({of('bool')} AS INT)",
                lambda: f"({of('struct')}).a",
                lambda: f"try_element_at({of('map')}, 'p')",
                lambda: f"get({of('ints')}, 0)",
                lambda: f"({of('deep')}).p.q",
                lambda: f"size({of('items')})",
                lambda: f"aggregate({of('ints')}, 0, (acc, e) -> acc + coalesce(e, 0))",
            ],
            "double": [
                lambda: f"({of('double')} * 0.5D)",
                lambda: f"CAST({of('int')} AS DOUBLE)",
                lambda: f"abs({of('double')})",
                lambda: f"nanvl({of('double')}, 0.25D)",
            ],
            "decimal": [
                lambda: f"try_cast({of('int')} AS DECIMAL(12,2))",
                lambda: f"(- {of('decimal')})",
            ],
            "string": [
                lambda: f"upper({of('string')})",
                lambda: f"concat({of('string')}, {of('string')})",
                lambda: f"CAST({of('int')} AS STRING)",
                lambda: f"substr({of('string')}, 1, 1)",
                lambda: f"({of('struct')}).b",
                lambda: f"date_format({of('date')}, 'yyyy-MM')",
                lambda: f"hex({of('binary')})",
            ],
            "bool": [lambda: self.predicate(scope, depth)],
            "date": [
                lambda: f"date_add({of('date')}, 1)",
                lambda: f"CAST({of('time')} AS DATE)",
                lambda: f"last_day({of('date')})",
            ],
            "time": [
                lambda: f"({of('time')} + INTERVAL '1' HOUR)",
                lambda: f"date_trunc('DAY', {of('time')})",
            ],
            "local": [lambda: f"({of('local')} - INTERVAL '1' DAY)"],
            "binary": [lambda: f"CAST({of('string')} AS BINARY)"],
            "ints": [
                lambda: f"array(CAST({of('int')} % 9 AS INT), 1)",
                lambda: f"filter({of('ints')}, e -> e > 1)",
                lambda: f"transform({of('ints')}, e -> e % 2)",
                lambda: f"sort_array({of('ints')})",
            ],
            "words": [
                lambda: f"array({of('string')}, 'a')",
                lambda: f"array_distinct({of('words')})",
                lambda: f"split({of('string')}, 'b')",
                lambda: f"({of('items')}).sku",
                lambda: f"({of('deep')}).p.r",
            ],
            "span": [
                lambda: f"({of('time')} - TIMESTAMP '2024-03-01 00:00:00')",
                lambda: f"(- {of('span')})",
            ],
            "items": [
                lambda: f"filter({of('items')}, e -> e.qty > 0)",
                lambda: (
                    f"array(named_struct('sku', {of('string')}, 'qty',"
                    f" CAST({of('int')} % 9 AS INT)))"
                ),
            ],
            "deep": [
                lambda: (
                    f"named_struct('p', named_struct('q', CAST({of('int')} % 9 AS INT),"
                    f" 'r', {of('words')}), 's', {of('date')})"
                ),
            ],
            "struct": [
                lambda: f"named_struct('a', CAST({of('int')} % 9 AS INT), 'b', {of('string')})"
            ],
            "map": [
                lambda: f"map('p', coalesce(CAST({of('int')} % 9 AS INT), 0))",
                lambda: f"map_filter({of('map')}, (key, v) -> v > 0)",
            ],
        }
        return [*general, *special[kind], *special[kind]]

    def predicate(self, scope: Sequence[Column], depth: int) -> str:
        if depth > 0 and self.rng.random() < 0.3:
            a, b = self.predicate(scope, depth - 1), self.predicate(scope, depth - 1)
            return self.rng.choice([f"({a} AND {b})", f"({a} OR {b})", f"(NOT {a})"])
        column = self.rng.choice(scope)
        if column.kind == "map":
            return self.rng.choice([f"{column.name} IS NULL", f"size({column.name}) > 0"])
        left = self.expression(scope, column.kind, depth - 1)
        right = self.expression(scope, column.kind, depth - 1)
        literal = self.typed(column.kind, self.rng.choice(LITERALS[column.kind]))
        return self.rng.choice(
            [
                f"{left} IS NOT NULL",
                f"{left} {self.rng.choice(['=', '<', '>=', '<>'])} {right}",
                f"{left} {self.rng.choice(['=', '<>', '<='])} {literal}",
                f"{left} <=> {right}",
                f"{left} IN ({literal}, {right})",
                f"{left} BETWEEN {literal} AND {right}",
            ]
        )

    def pair(self, scope: Sequence[Column], other: Sequence[Column]) -> tuple[str, str] | None:
        """Two sides of one kind that can be equal."""
        both = {c.kind for c in scope} & {c.kind for c in other} - {"map"}
        if not both:
            return None
        kind = "int" if "int" in both and self.rng.random() < 0.6 else self.rng.choice(sorted(both))

        def side(columns: Sequence[Column]) -> str:
            text = self.rng.choice([c.name for c in columns if c.kind == kind])
            return f"coalesce({text}, {text})" if self.rng.random() < 0.1 else text

        return side(scope), side(other)

    def equality(self, scope: Sequence[Column], other: Sequence[Column]) -> str | None:
        pair = self.pair(scope, other)
        if pair is None:
            return None
        sign = self.rng.choice(["=", "=", "=", "<=>"])
        text = f"{pair[0]} {sign} {pair[1]}"
        second = self.pair(scope, other)
        if second is not None and second != pair and self.rng.random() < 0.25:
            text += f" AND {second[0]} = {second[1]}"
        return text

    def comparison(self, scope: Sequence[Column], other: Sequence[Column]) -> str:
        pair = self.pair(scope, other)
        if pair is None:
            return self.predicate([*scope, *other], 1)
        return f"{pair[0]} {self.rng.choice(['<', '>=', '<>'])} {pair[1]}"
