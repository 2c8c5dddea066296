"""The first rows by every plan, each forced in turn, against Spark's answer.

Histories have ties at the last row, copies of a row across it, offsets past the end, groups that
are smaller and larger than the limit and than what is expected of them, groups that vanish and
return, and retractions of the first rows again and again. `log` is append-only; it goes through the
same without the retractions.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from view_cases import one_of
from view_oracle import History, View

import windrow
from windrow.errors import DataError, WindrowError

COLUMNS = "k INT, x DOUBLE, g STRING, d DECIMAL(20, 2), ts TIMESTAMP"
RANKED = """
SELECT k, x, g, d, r FROM (
    SELECT k, x, g, d, {function}() OVER (PARTITION BY {by} ORDER BY {order}) AS r FROM t
) WHERE r <= {limit}
"""
# The same with an order that decides, which Spark leaves open.
WHOLE = ", k, x, g, d, ts"
QUERIES = {
    "first": ("SELECT * FROM t ORDER BY x DESC LIMIT 3", "x DESC"),
    "one": ("SELECT * FROM t ORDER BY d, x DESC LIMIT 1", "d, x DESC"),
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
    "numbers": (
        RANKED.format(function="row_number", by="k", order="x DESC, g, d, ts", limit=2),
        None,
    ),
    "ranks": (RANKED.format(function="rank", by="k", order="x DESC", limit=3), None),
    "ranks_of_two": (RANKED.format(function="rank", by="k, g", order="d", limit=1), None),
    "dense": (RANKED.format(function="dense_rank", by="k", order="g DESC, x", limit=2), None),
    "ranks_of_all": (RANKED.format(function="rank", by="1", order="d DESC", limit=5), None),
    "of_few": (
        "SELECT k, x FROM (SELECT k, x FROM t ORDER BY x, k LIMIT 9) ORDER BY k DESC, x LIMIT 2 "
        "OFFSET 1",
        None,
    ),
}
PLANS = {
    "sorted": (
        "first",
        "later",
        "expression",
        "past_the_end",
        "no_order",
        "lateral",
        "ranks",
        "ranks_of_two",
        "dense",
        "ranks_of_all",
    ),
    "stack": (
        "first",
        "later",
        "past_the_end",
        "no_order",
        "lateral",
        "numbers",
        "dense",
        "ranks_of_all",
    ),
    "monotonic": ("one", "no_order", "lateral", "numbers", "ranks", "dense"),
    "basic": ("first", "later", "lateral"),
    "auto": ("of_few",),
}
EXCHANGED = {
    "sorted": ("first", "ranks"),
    "stack": ("later", "dense"),
    "monotonic": ("expression", "numbers", "ranks"),
    "auto": ("of_few",),
}
# What is expected of groups: one level, two, or all eight.
SIZES = {"first": 10, "later": 200, "lateral": 3, "ranks": 30, "dense": 17, "no_order": 4000}


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


def expected(query: str, order: str | None) -> str:
    if order is None:
        return query
    head, _, tail = query.partition(" LIMIT ")
    head = head.partition(" ORDER BY ")[0]
    return f"{head} ORDER BY {f'{order}{WHOLE}'.lstrip(', ')} LIMIT {tail}"


def start(spark: Any, folder: Path) -> History:
    project = windrow.Project(folder, spark=spark, progress=False)
    history = History.start(project, spark, {"t": COLUMNS, "log": COLUMNS})
    project.sql("ALTER TABLE log SET TBLPROPERTIES ('append_only' = 'true')")
    return history


def create(history: History, plan: str, name: str) -> None:
    """A view by one plan. The monotonic one is over the table that only grows."""
    query, order = QUERIES[name]
    wanted = expected(query, order)
    properties = f"'topk' = '{plan}'"
    if plan == "stack" and name in SIZES:
        properties += f", 'expected_group_size' = '{SIZES[name]}'"
    if plan == "monotonic":
        query, wanted = (one.replace("FROM t", "FROM log AS t") for one in (query, wanted))
    view = f"{plan}_{name}"
    history.project.sql(f"CREATE MATERIALIZED VIEW {view} TBLPROPERTIES ({properties}) AS {query}")
    history.views[view] = View(view, query, (), wanted)


def go_on(history: History, rng: random.Random, steps: int) -> None:
    """Changes, a tick, and every view compared; again and again."""
    for step in range(steps):
        there = history.model.rows["t"]
        gone = [(one, -1) for one in there if rng.random() < 0.3]
        if step == 1:  # the first rows, by most orders
            gone = [(one, -1) for one in there if one[1] is not None and one[1] > 1]
        if step == 3:
            gone = [(one, -1) for one in there]
        copies = [(one, rng.randrange(1, 4)) for one in there if rng.random() < 0.1]
        come = [*copies, *((row(rng), 1) for _ in range(rng.randrange(9)))]
        history.apply({"t": [*gone, *come], "log": [*come, (row(rng), 2)]})


def test_every_plan_equals_spark(spark: Any, tmp_path: Path) -> None:
    history = start(spark, tmp_path)
    for plan, names in PLANS.items():
        for name in one_of(2, names):
            create(history, plan, name)
    rng = random.Random(3)
    history.check()
    first = [(row(rng), 1) for _ in range(40)]
    history.apply({"t": first, "log": first})
    go_on(history, rng, 4)


def test_every_plan_equals_spark_exchanged(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views are filled from rows that are there already, so all of them are thinned."""
    from windrow.views.engine import ticker

    monkeypatch.setattr(ticker, "LARGE", 0)
    history = start(spark, tmp_path)
    rng = random.Random(4)
    first = [(row(rng), rng.randrange(1, 3)) for _ in range(50)]
    history.apply({"t": first, "log": first})
    for plan, names in EXCHANGED.items():
        for name in names:
            create(history, plan, name)
    history.check()
    go_on(history, rng, 2)


def stored_rows(project: windrow.Project, view: str) -> list[int]:
    """How many rows each of a view's collections holds, copies included."""
    history = project._statements.history
    found = []
    for id in history.catalogue[view]["arrangements"].values():
        table = history.collection(id).snapshot().to_table()
        found.append(sum(table.column("_diff").to_pylist()))
    return found


@pytest.mark.parametrize("large", [False, True], ids=["one task", "exchanged"])
def test_what_is_stored_is_bounded_by_k(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    from windrow.views.engine import ticker

    if large:
        monkeypatch.setattr(ticker, "LARGE", 0)
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE log (k INT, v INT) TBLPROPERTIES ('append_only' = 'true')")
    project.sql("INSERT INTO log SELECT id % 4, id FROM range(400)")
    for limit in (1, 3):
        project.sql(
            f"CREATE MATERIALIZED VIEW top_{limit} AS SELECT k, v FROM (SELECT k, v, row_number() "
            f"OVER (PARTITION BY k ORDER BY v DESC) AS r FROM log) WHERE r <= {limit}"
        )
        assert stored_rows(project, f"top_{limit}") == [4 * limit]
    project.sql("INSERT INTO log SELECT 4 - id % 5, id % 7 + 397 FROM range(105)")
    project.tick()
    for limit in (1, 3):
        assert stored_rows(project, f"top_{limit}") == [5 * limit]
        rows = [(r.k, r.v) for r in project.read(f"top_{limit}").collect()]
        assert sorted(rows) == sorted((k, 403) for k in range(5) for _ in range(limit))


def test_a_plan_that_relies_on_append_only_refuses_what_is_not(spark: Any, tmp_path: Path) -> None:
    """The table refuses the row; once it may retract, the view says that it cannot go on."""
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE log (k INT, v INT) TBLPROPERTIES ('append_only' = 'true')")
    project.sql("INSERT INTO log VALUES (1, 10), (2, 20), (3, 30)")
    project.sql("CREATE MATERIALIZED VIEW top AS SELECT k, v FROM log ORDER BY v DESC LIMIT 1")
    with pytest.raises(DataError, match=r"append-only.*'v': 30"):
        project.sql("DELETE FROM log WHERE k = 3")
    project.tick()
    assert [(r.k, r.v) for r in project.read("top").collect()] == [(3, 30)]
    project.sql("ALTER TABLE log UNSET TBLPROPERTIES ('append_only')")
    project.sql("DELETE FROM log WHERE k = 3")
    with pytest.raises(WindrowError, match="append-only"):
        project.tick()
    assert [(r.k, r.v) for r in project.read("top").collect()] == [(3, 30)]
    project.sql("REFRESH MATERIALIZED VIEW top")
    assert [(r.k, r.v) for r in project.read("top").collect()] == [(2, 20)]


def test_ties_are_broken_by_structs_too(spark: Any, tmp_path: Path) -> None:
    """Also by those that are not part of the order; maps have none."""
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, s STRUCT<a: INT, b: ARRAY<INT>>, m MAP<INT, INT>)")
    rows = "(1, struct(2, array(1)), map(1, 1)), (1, struct(1, NULL), NULL), (2, NULL, map())"
    project.sql(f"INSERT INTO t VALUES {rows}")
    project.sql("CREATE MATERIALIZED VIEW first AS SELECT * FROM t ORDER BY k LIMIT 1")
    project.sql(
        "CREATE MATERIALIZED VIEW numbered AS "
        "SELECT s.a, row_number() OVER (ORDER BY k) AS r, s FROM t"
    )
    assert [r.s.a for r in project.sql("SELECT s FROM first").collect()] == [1]
    project.sql("INSERT INTO t VALUES (1, struct(1, array(0)), NULL)")
    project.sql("DELETE FROM t WHERE s.b IS NULL AND s.a = 1")
    assert [r.s.b for r in project.sql("SELECT s FROM first").collect()] == [[0]]
    numbers = [(r.r, r.a) for r in project.sql("SELECT r, a FROM numbered").collect()]
    assert sorted(numbers) == [(1, 1), (2, 2), (3, None)]
