"""Statements for the campaign of kills of views, and what a project holds after each.

There are two scenes. In one, tables are changed by statements, and views stand on views. In the
other, sources of every kind are changed by the campaign itself, who is not killed, and taken over
by ticks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from view_oracle import Row
from view_sources import SOURCE_COLUMNS, SOURCES, ChangingSource

CUSTOMERS, MOST_ROWS = 8, 80
CITIES = ("Bern", "Oslo", "Rome")


@dataclass(frozen=True)
class Scene:
    """Tables by their columns, views in an order in which they can be created, and how often what
    is done. `needs` has the view that a view reads."""

    tables: Mapping[str, str]
    views: Mapping[str, str]
    needs: Mapping[str, str]
    statements: Mapping[str, int]
    sources: tuple[str, ...] = ()

    @property
    def relations(self) -> dict[str, str]:
        """Tables and sources, by their columns."""
        return {**self.tables, **dict.fromkeys(self.sources, SOURCE_COLUMNS)}


_CUSTOMERS = "id INT, city STRING, stamp INT"
TABLES = Scene(
    tables={"orders": "id INT, customer INT, amount INT, stamp INT", "customers": _CUSTOMERS},
    views={
        "totals": "SELECT customer, count(*) AS n, sum(amount) AS amount "
        "FROM orders GROUP BY customer",
        "joined": "SELECT c.id, city, o.id AS order_id, amount, o.stamp "
        "FROM customers c LEFT JOIN orders o ON c.id = o.customer",
        "largest": "SELECT * FROM orders ORDER BY amount DESC, id, customer, stamp LIMIT 5",
        "kinds": "SELECT DISTINCT customer, amount % 3 AS kind FROM orders",
        "ranked": "SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY amount) "
        "AS place, sum(amount) OVER (PARTITION BY customer) AS total FROM orders",
        "cities": "SELECT city, count(order_id) AS n, sum(amount) AS amount, max(id) AS newest "
        "FROM joined GROUP BY city",
        "best": "SELECT max(n) AS n, max(amount) AS amount FROM cities",
    },
    needs={"cities": "joined", "best": "cities"},
    statements={
        "insert": 22,
        "update": 13,
        "delete": 9,
        "merge": 12,
        "tick": 22,
        "create": 24,
        "drop": 4,
        "refresh": 8,
    },
)
FROM_SOURCES = Scene(
    tables={"customers": _CUSTOMERS},
    sources=tuple(SOURCES),
    views={
        "by_files": "SELECT kind, count(*) AS n, sum(id) AS ids FROM files GROUP BY kind",
        "by_delta": "SELECT d.id, d.kind, c.city FROM delta d LEFT JOIN customers c "
        "ON d.kind = c.id",
        "by_days": "SELECT DISTINCT kind FROM days",
        "by_shard": "SELECT kind, max(ts) AS ts, min(id) AS id FROM shard GROUP BY kind",
        "together": "SELECT f.kind, count(*) AS n FROM by_files f JOIN shard s "
        "ON f.kind = s.kind GROUP BY f.kind",
    },
    needs={"together": "by_files"},
    statements={
        "insert": 6,
        "update": 4,
        "change": 50,
        "tick": 10,
        "create": 20,
        "drop": 5,
        "refresh": 6,
    },
)


@dataclass
class Expected:
    """What the project holds: the rows of its tables and sources, and its views."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    views: frozenset[str] = frozenset()


@dataclass
class Statement:
    """Something to do, and what the project holds after it. The text of a tick is None."""

    kind: str
    sql: str | None
    after: Expected


class Generator:
    """Chooses statements. The number of each is in the rows that it writes."""

    def __init__(self, scene: Scene, sources: Mapping[str, ChangingSource], seed: int) -> None:
        self._scene, self.sources = scene, sources
        self._pick, self._count = random.Random(seed), 0

    @classmethod
    def start(cls, scene: Scene, folder: Path, seed: int) -> tuple[Generator, Expected]:
        sources = {name: SOURCES[name](folder / name, seed) for name in scene.sources}
        rows: dict[str, list[Row]] = {name: [] for name in scene.tables}
        rows |= {name: source.rows() for name, source in sources.items()}
        return cls(scene, sources, seed), Expected(rows)

    def next(self, now: Expected) -> Statement:
        """A statement. If it is of the kind `change`, a source has changed, whatever becomes of
        the tick: the rows of `now` say so."""
        self._count += 1
        views, needs = self._scene.views, self._scene.needs
        missing = [v for v in views if v not in now.views and needs.get(v, v) in {v, *now.views}]
        used = {needs[view] for view in now.views if view in needs}
        weights = dict(self._scene.statements)
        if not missing:
            weights["create"] = 0
        if not now.views:
            weights["drop"] = weights["refresh"] = 0
        kind = self._pick.choices(list(weights), list(weights.values()))[0]
        match kind:
            case "tick":
                return Statement(kind, None, now)
            case "change":
                name = self._pick.choice(sorted(self.sources))
                self.sources[name].change()
                now.rows[name] = self.sources[name].rows()
                return Statement(f"{name}_change", None, now)
            case "create":
                view = self._pick.choice(missing)
                after = Expected(now.rows, now.views | {view})
                text = f"CREATE MATERIALIZED VIEW {view} AS {views[view]}"
                return Statement(kind, text, after)
            case "drop":
                view = self._pick.choice(sorted(now.views - used))
                after = Expected(now.rows, now.views - {view})
                return Statement(kind, f"DROP MATERIALIZED VIEW {view}", after)
            case "refresh":  # with those that read it
                chains = sorted(used) * 3
                view = self._pick.choice([*sorted(now.views), *chains])
                kind = "refresh_of_a_chain" if view in used else kind
                return Statement(kind, f"REFRESH MATERIALIZED VIEW {view}", now)
        tables = sorted(self._scene.tables)
        table = self._pick.choice([*tables, tables[-1]])
        if len(now.rows[table]) > MOST_ROWS:
            kind = "delete"
        text, rows = getattr(self, f"_{kind}")(table, now.rows[table])
        return Statement(kind, text, Expected({**now.rows, table: rows}, now.views))

    def _row(self, table: str, id: int) -> Row:
        if table == "customers":
            return id, self._pick.choice(CITIES), self._count
        return id, self._pick.randrange(CUSTOMERS), self._pick.randrange(20), self._count

    def _insert(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        new = [self._row(table, self._id(table, i)) for i in range(self._pick.randrange(1, 5))]
        new += [new[0]] * (self._pick.random() < 0.2)  # the same row twice is two rows
        return f"INSERT INTO {table} VALUES {_values(new)}", rows + new

    def _update(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        number, (every, which) = self._count, self._some()
        where = f"stamp = {number} WHERE id % {every} = {which}"
        if table == "customers":
            city = self._pick.choice(CITIES)
            return (
                f"UPDATE customers SET city = '{city}', {where}",
                [(r[0], city, number) if r[0] % every == which else r for r in rows],
            )
        return (
            f"UPDATE orders SET amount = amount + 3, {where}",
            [(*r[:2], r[2] + 3, number) if r[0] % every == which else r for r in rows],
        )

    def _delete(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        every, which = self._some()
        text = f"DELETE FROM {table} WHERE id % {every} = {which}"
        return text, [row for row in rows if row[0] % every != which]

    def _merge(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        """Of the rows that match, some are deleted, others replaced; the rest is inserted."""
        known = sorted({row[0] for row in rows})
        ids = {*self._pick.sample(known, min(len(known), 3)), self._id(table, 0)}
        new = {id: self._row(table, id) for id in sorted(ids)}
        columns = [one.split()[0] for one in self._scene.tables[table].split(", ")]
        gone = {id for id in new if id % 3 == 0}
        text = (
            f"MERGE INTO {table} t USING (SELECT * FROM VALUES {_values(list(new.values()))} "
            f"AS v({', '.join(columns)})) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        kept = [new.get(row[0], row) for row in rows if row[0] not in gone]
        return text, kept + [row for id, row in new.items() if id not in known]

    def _id(self, table: str, more: int) -> int:
        # Few customers, so that orders find them; of orders, each has a number of its own.
        return (self._count + more) % CUSTOMERS if table == "customers" else self._count * 8 + more

    def _some(self) -> tuple[int, int]:
        every = self._pick.choice((2, 3, 5))
        return every, self._pick.randrange(every)


def _values(rows: list[Row]) -> str:
    return ", ".join("(" + ", ".join(map(repr, row)) + ")" for row in rows)
