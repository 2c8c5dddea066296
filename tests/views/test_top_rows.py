"""The first rows of groups by sorted rows, against Spark and against computing whole groups.

Histories have ties at the last row, copies of a row across it, offsets past the end, groups that
are smaller and larger than the limit, and retractions of the first rows again and again.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from view_oracle import History, View

import windrow

TABLES = {"t": "k INT, x DOUBLE, g STRING, d DECIMAL(20, 2), ts TIMESTAMP"}
RANKED = """
SELECT k, x, g, d, r FROM (
    SELECT k, x, g, d, {function}() OVER (PARTITION BY {by} ORDER BY {order}) AS r FROM t
) WHERE r <= {limit}
"""
# The same with an order that decides, which Spark leaves open.
WHOLE = ", k, x, g, d, ts"
QUERIES = {
    "first": ("SELECT * FROM t ORDER BY x DESC LIMIT 3", "x DESC"),
    "later": (
        "SELECT * FROM t ORDER BY g NULLS LAST, d DESC LIMIT 4 OFFSET 2",
        "g NULLS LAST, d DESC",
    ),
    "expression": (
        "SELECT * FROM t ORDER BY x * -1, length(g) DESC LIMIT 5",
        "x * -1, length(g) DESC",
    ),
    "past_the_end": ("SELECT * FROM t ORDER BY ts LIMIT 2 OFFSET 60", "ts"),
    "no_order": ("SELECT * FROM t LIMIT 3", ""),
    "lateral": (
        "SELECT u.k, v.x, v.d FROM (SELECT DISTINCT k FROM t) u, "
        "LATERAL (SELECT x, d FROM t WHERE t.k = u.k ORDER BY x DESC, d LIMIT 2) v",
        None,
    ),
    "ranks": (RANKED.format(function="rank", by="k", order="x DESC", limit=3), None),
    "ranks_of_two": (RANKED.format(function="rank", by="k, g", order="d", limit=1), None),
    "dense": (RANKED.format(function="dense_rank", by="k", order="g DESC, x", limit=2), None),
    "ranks_of_all": (RANKED.format(function="rank", by="1", order="d DESC", limit=5), None),
}


def row(rng: random.Random) -> tuple[Any, ...]:
    import datetime as dt
    from decimal import Decimal

    def one(values: list[Any]) -> Any:
        return None if rng.random() < 0.15 else rng.choice(values)

    return (
        one([1, 2, 3]),
        one([0.5, -0.5, 0.0, -0.0, float("nan"), float("inf"), 3.0]),
        one(["", "a", "a\x00", "a\x00b", "b", "ü"]),
        one([Decimal("1.50"), Decimal("-1.50"), Decimal("123456789012345678.25")]),
        one([dt.datetime(2024, 1, day) for day in (1, 2, 3)]),
    )


def expected(query: str, order: str | None) -> str | None:
    if order is None:
        return None
    head, _, tail = query.partition(" LIMIT ")
    head = head.partition(" ORDER BY ")[0]
    return f"{head} ORDER BY {f'{order}{WHOLE}'.lstrip(', ')} LIMIT {tail}"


@pytest.mark.parametrize("large", [False, True], ids=["one task", "exchanged"])
def test_both_plans_equal_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    from windrow.views import engine

    queries = dict(QUERIES)
    if large:
        monkeypatch.setattr(engine, "LARGE", 0)
        queries = {name: queries[name] for name in ("first", "ranks")}
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    history = History.start(project, spark, TABLES)
    for name, (query, order) in queries.items():
        history.create(name, query, expected=expected(query, order))
        if not large:
            other = f"basic_{name}"
            properties = "TBLPROPERTIES ('topk' = 'basic')"
            project.sql(f"CREATE MATERIALIZED VIEW {other} {properties} AS {query}")
            history.views[other] = View(other, query, (), expected(query, order))
    rng = random.Random(3)
    history.check()
    history.apply({"t": [(row(rng), 1) for _ in range(40)]})
    for step in range(6):
        there = history.model.rows["t"]
        gone = [(one, -1) for one in there if rng.random() < 0.3]
        if step == 2:  # the first rows, by most orders
            gone = [(one, -1) for one in there if one[1] is not None and one[1] > 1]
        if step == 4:
            gone = [(one, -1) for one in there]
        copies = [(one, rng.randrange(1, 4)) for one in there if rng.random() < 0.1]
        history.apply({"t": [*gone, *copies, *((row(rng), 1) for _ in range(rng.randrange(9)))]})


def test_the_plan_says_what_is_kept(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    query = RANKED.format(function="row_number", by="k", order="v DESC", limit=3)
    query = query.replace("x, g, d, r", "v, r").replace("k, x, g, d, ", "k, v, ")
    found = project.sql(f"EXPLAIN CREATE MATERIALIZED VIEW w AS {query}")
    assert found is not None
    text = found.collect()[0][0]
    assert "TopK 3 by v DESC NULLS LAST of each k\n" in text
    assert "keeps sorted rows by (k) in the order of order_key: k, v, order_key" in text
