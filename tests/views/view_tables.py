"""The tables that all written queries share, and seeded histories of changes to them.

Every column takes few values, NULL among them, so that rows repeat, groups collide, keys match
many times and ties are everywhere.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from view_oracle import Batch, Change, Model, Row

NAN, INF = float("nan"), float("inf")

TABLES: dict[str, str] = {
    # What happened: wide, with one column of each kind.
    "t": """id INT, k INT, g STRING, n BIGINT, x DOUBLE, f FLOAT, d DECIMAL(10,2), day DATE,
            ts TIMESTAMP, local TIMESTAMP_NTZ, b BOOLEAN""",
    # What it is joined with, by k or g.
    "u": "k INT, g STRING, w INT, label STRING, x DOUBLE, day DATE",
    # Edges of a small graph: self joins and joins of many.
    "edges": "src INT, dst INT, cost INT",
    # Often empty, often NULL.
    "nums": "v INT, r INT",
    # Nested and narrow types.
    "docs": """id INT, xs ARRAY<INT>, tags ARRAY<STRING>, st STRUCT<a: INT, b: STRING>,
               m MAP<STRING, INT>, items ARRAY<STRUCT<sku: STRING, qty: INT, price: DECIMAL(8,2)>>,
               bin BINARY, tiny TINYINT, short SMALLINT""",
}
KEYS = {"t": (1, 2), "u": (0, 1), "edges": (0, 1), "nums": (0, 1), "docs": (0, 7)}
SIZES = {"t": 30, "u": 14, "edges": 16, "nums": 8, "docs": 14}

DAYS = [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1), dt.date(1969, 12, 31)]
TIMES = [
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    dt.datetime(2024, 3, 1),
    dt.datetime(2024, 3, 1, 0, 30),
    dt.datetime(2024, 3, 1, 2, 0, 0, 1),
    dt.datetime(1969, 12, 31, 12),
]
WORDS = ["a", "b", "B", "ab", ""]
PRICES = [Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("99999.99")]


class Rows:
    """Random rows of some tables; NULL with some probability."""

    sizes: Mapping[str, int]  # how many rows a table has at first
    keys: Mapping[str, Sequence[int]]  # positions of columns that others are joined or grouped by

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def row(self, table: str) -> Row:
        raise NotImplementedError

    def one(self, values: Sequence[Any], nulls: float = 0.15) -> Any:
        return None if self.rng.random() < nulls else self.rng.choice(values)

    def some(self, values: Sequence[Any], most: int = 4) -> list[Any]:
        return [self.one(values) for _ in range(self.rng.randrange(most + 1))]


class SharedRows(Rows):
    sizes = SIZES
    keys = KEYS

    def row(self, table: str) -> Row:
        return getattr(self, table)()

    def t(self) -> Row:
        time = self.one(TIMES)
        return (
            self.one(range(1, 10), 0.05),
            self.one([1, 2, 3, 4], 0.2),
            self.one(WORDS),
            self.one([-5, 0, 1, 2, 3, 10, 2**40]),
            self.one([-1.5, -0.0, 0.0, 0.25, 0.1, 2.0, 2.0, 1e10, NAN]),
            self.one([0.5, -1.0, 3.0, 3.0, INF, -INF], 0.3),
            self.one(PRICES),
            self.one(DAYS),
            None if time is None else time.replace(tzinfo=dt.UTC),
            self.one(TIMES),
            self.one([True, False]),
        )

    def u(self) -> Row:
        return (
            self.one([1, 2, 3, 5], 0.2),
            self.one(WORDS),
            self.one([0, 1, 2, 7]),
            self.one(["red", "green", "blue"]),
            self.one([0.0, 0.25, 2.0, NAN]),
            self.one(DAYS),
        )

    def edges(self) -> Row:
        return self.one(range(5), 0.1), self.one(range(5), 0.1), self.one([1, 2, 3])

    def nums(self) -> Row:
        return self.one([0, 1, 2, 3], 0.1), self.one([1, 2], 0.4)

    def docs(self) -> Row:
        keys = self.rng.sample(["p", "q", "r"], self.rng.randrange(4))
        items = [
            {"sku": self.one(["s1", "s2"]), "qty": self.one([1, 2, 3]), "price": self.one(PRICES)}
            for _ in range(self.rng.randrange(3))
        ]
        return (
            self.one(range(1, 8), 0.05),
            self.one([self.some([0, 1, 2, 3]) for _ in range(2)]),
            self.one([self.some(WORDS, 3) for _ in range(2)]),
            self.one([{"a": self.one([1, 2, 3]), "b": self.one(WORDS)}]),
            self.one([[(key, self.one([1, 2, 3])) for key in keys]]),
            self.one([items]),
            self.one([b"", b"\x00", b"ab", b"\xff"]),
            self.one([-128, 0, 1, 127]),
            self.one([-32768, 0, 300]),
        )


def inserts(draw: Rows, table: str, count: int) -> list[Change]:
    return [(draw.row(table), 1) for _ in range(count)]


def deletes(draw: Rows, rows: Sequence[Row], share: float) -> list[Change]:
    return [(row, -1) for row in rows if draw.rng.random() < share]


def updates(draw: Rows, table: str, rows: Sequence[Row], share: float) -> list[Change]:
    """Rows before and after some of their values change."""
    changes: list[Change] = []
    for row in rows:
        if draw.rng.random() < share:
            other = draw.row(table)
            after = tuple(
                b if draw.rng.random() < 0.3 else a for a, b in zip(row, other, strict=True)
            )
            changes += [(row, -1), (after, 1)]
    return changes


def key_becomes_null(draw: Rows, table: str, rows: Sequence[Row], share: float) -> list[Change]:
    at = draw.rng.choice(draw.keys[table])
    return [
        change
        for row in rows
        if row[at] is not None and draw.rng.random() < share
        for change in ((row, -1), ((*row[:at], None, *row[at + 1 :]), 1))
    ]


def group_vanishes(draw: Rows, table: str, rows: Sequence[Row]) -> list[Change]:
    at = draw.rng.choice(draw.keys[table])
    gone = draw.rng.choice(rows)[at] if rows else None
    return [(row, -1) for row in rows if row[at] == gone]


def cancelling(draw: Rows, table: str, rows: Sequence[Row]) -> list[Change]:
    """Changes whose sum is nothing."""
    passing = draw.row(table)
    still = draw.rng.sample(list(rows), min(2, len(rows)))
    return [
        (passing, 2),
        *((row, -1) for row in still),
        (passing, -2),
        *((row, 1) for row in still),
    ]


def more_copies(draw: Rows, rows: Sequence[Row]) -> list[Change]:
    return [(row, draw.rng.choice([1, 2])) for row in rows if draw.rng.random() < 0.2]


def batches(model: Model, draw: Rows) -> Iterator[tuple[str, Batch]]:
    """What happens to the tables, one batch after the other; `model` is as it is by then."""

    def each(changes: Callable[[str, list[Row]], list[Change]]) -> Batch:
        found = {name: changes(name, model.rows[name]) for name in draw.sizes}
        return {name: some for name, some in found.items() if some}

    def mixed(name: str, rows: list[Row]) -> list[Change]:
        third = len(rows) // 3
        return [
            *inserts(draw, name, 3),
            *deletes(draw, rows[:third], 0.4),
            *updates(draw, name, rows[third : 2 * third], 0.5),
            *key_becomes_null(draw, name, rows[2 * third :], 0.3),
        ]

    def vanishing(name: str, rows: list[Row]) -> list[Change]:
        if name in emptied:
            return [(row, -1) for row in rows]
        return [*group_vanishes(draw, name, rows), *inserts(draw, name, 1)]

    def returning(name: str, rows: list[Row]) -> list[Change]:
        return [
            *inserts(draw, name, draw.sizes[name] // 3),
            *more_copies(draw, rows),
            *cancelling(draw, name, rows),
        ]

    emptied = set(draw.rng.sample(list(draw.sizes), (len(draw.sizes) + 1) // 2))
    yield "inserts, deletes, updates, keys become NULL", each(mixed)
    yield "groups vanish, tables are emptied", each(vanishing)
    yield "rows return, several copies, changes that cancel", each(returning)


def first_rows(draw: Rows) -> Batch:
    return {
        name: [*inserts(draw, name, size - 2), *2 * inserts(draw, name, 1)]
        for name, size in draw.sizes.items()
    }
