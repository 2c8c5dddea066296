"""Parameters of statements: values that are given apart from the text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from asking import ask

import windrow as wr
from windrow.errors import OptionError, SQLError


@pytest.fixture
def sales(project: wr.Project) -> wr.Project:
    project.sql("CREATE TABLE sales (id INT, shop STRING, price DECIMAL(8, 2), day DATE)")
    project.sql(
        "INSERT INTO sales VALUES (:id, :shop, :price, :day), (2, 'Oslo', NULL, NULL)",
        {"id": 1, "shop": "it's \\ ; :id", "price": Decimal("9.50"), "day": dt.date(2026, 2, 3)},
    )
    return project


def test_values_are_what_they_were(sales: wr.Project) -> None:
    assert ask(sales, "SELECT * FROM sales WHERE id = 1") == [
        (1, "it's \\ ; :id", Decimal("9.50"), dt.date(2026, 2, 3))
    ]


def test_by_place_and_by_name(sales: wr.Project) -> None:
    def asked(text: str, args: Any) -> list[tuple[Any, ...]]:
        found = sales.sql(text, args)
        assert found is not None
        return sorted(tuple(row) for row in found.collect())

    assert asked("SELECT id FROM sales WHERE id > ? AND shop <> ?", [0, "Oslo"]) == [(1,)]
    assert asked("SELECT id FROM sales WHERE id > ?", (1,)) == [(2,)]
    assert asked("SELECT id, ':n ?' FROM sales WHERE id = :n /* :m */", {"n": 2, "o": 3}) == [
        (2, ":n ?")
    ]
    assert asked("SELECT :none IS NULL, :yes, :no", {"none": None, "yes": True, "no": False}) == [
        (True, True, False)
    ]
    assert asked("SELECT id FROM sales WHERE array_contains(:ids, id)", {"ids": [2, 3]}) == [(2,)]
    assert asked("SELECT id FROM sales ORDER BY id LIMIT :k", {"k": 1}) == [(1,)]


def test_changes(sales: wr.Project) -> None:
    sales.sql("UPDATE sales SET shop = :new WHERE shop = :old", {"new": "Bern", "old": "Oslo"})
    sales.sql("DELETE FROM sales WHERE id = ?", [1])
    assert ask(sales, "SELECT id, shop FROM sales") == [(2, "Bern")]


def test_views_keep_them_as_literals(sales: wr.Project, tmp_path: Path, spark: Any) -> None:
    sales.sql(
        "CREATE MATERIALIZED VIEW some AS SELECT id FROM sales WHERE shop = :shop", {"shop": "Oslo"}
    )
    sales.sql("INSERT INTO sales VALUES (3, 'Oslo', 1, NULL), (4, 'Bern', 1, NULL)")
    assert ask(sales, "SELECT * FROM some") == [(2,), (3,)]
    again = wr.Project(tmp_path / "state", spark=spark)
    again.sql("INSERT INTO sales VALUES (5, 'Oslo', 1, NULL)")
    assert ask(again, "SELECT * FROM some") == [(2,), (3,), (5,)]


def test_statements_that_spark_does_not_know(sales: wr.Project) -> None:
    create = "MATERIALIZED VIEW some (x, `y z`) AS SELECT id, shop FROM sales WHERE shop = :shop;"
    sales.sql(f"CREATE {create}", {"shop": "Oslo"})
    assert ask(sales, "SELECT x, `y z` FROM some") == [(2, "Oslo")]
    sales.sql(f"CREATE OR REPLACE {create}", {"shop": "it's \\ ; :id"})
    assert ask(sales, "SELECT x FROM some") == [(1,)]
    sales.sql("REFRESH MATERIALIZED VIEW some", {})
    sales.sql("ALTER MATERIALIZED VIEW some SET TBLPROPERTIES ('online' = 'x')", {})
    sales.sql("DROP MATERIALIZED VIEW some", {})


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("SELECT :a", {"b": 1}),
        ("SELECT ?, ?", [1]),
        ("SELECT :a", [1]),
        ("SELECT ?", {"a": 1}),
    ],
)
def test_a_parameter_without_a_value(project: wr.Project, text: str, args: Any) -> None:
    with pytest.raises(SQLError):
        project.sql(text, args)


def test_what_is_no_value(project: wr.Project) -> None:
    with pytest.raises(OptionError, match="args is 'x'; give a mapping"):
        project.sql("SELECT ?", "x")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"the parameter 'a' is .*, which is no value of SQL"):
        project.sql("SELECT :a", {"a": object()})
