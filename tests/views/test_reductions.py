"""Aggregates in place: states, values of min and max, and sets, against Spark and each other.

Each query is maintained by the plan that is chosen, by those that can be forced, and by computing
whole groups, through histories in which groups vanish and return, extremes are retracted, and
values repeat.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from view_cases import one_of
from view_oracle import History, Model, View
from view_tables import TABLES, SharedRows, batches, first_rows, group_vanishes

import windrow
from windrow.errors import DataError

IN_PLACE = """
count(*) AS a0, count(n) AS a1, count(n, x) AS a2, count_if(b) AS a3,
count(*) FILTER (WHERE b) AS a4,
sum(n) AS s0, sum(x) AS s1, sum(d) AS s2, sum(f) AS s3, sum(id) FILTER (WHERE n > 1) AS s4,
avg(n) AS v0, avg(x) AS v1, avg(d) AS v2, avg(CAST(d AS DECIMAL(30, 4))) AS v3,
var_pop(n) AS m0, var_samp(n) AS m1, stddev_pop(id) AS m2, stddev(id) AS m3,
bool_or(b) AS b0, every(b) AS b1,
min(n) AS e0, max(n) AS e1, min(x) AS e2, max(x) AS e3, max(g) AS e4, min(d) AS e5, max(day) AS e6,
min(ts) AS e7, max(local) AS e8, min(f) AS e9, max(id) FILTER (WHERE b) AS e10,
count(DISTINCT g) AS d0, sum(DISTINCT n) AS d1, count(DISTINCT g, n) AS d2, avg(DISTINCT d) AS d3,
max(DISTINCT id) AS d4, count(DISTINCT x) FILTER (WHERE n > 1) AS d5, sum(DISTINCT n + id) AS d6
"""
MIXED = """
count(*) AS a0, sum(x) AS s0, max(n) AS e0, count(DISTINCT g) AS d0,
sort_array(collect_list(n)) AS c0, percentile(id, 0.5) AS c1, max_by(g, struct(id, g)) AS c2,
bit_xor(id) FILTER (WHERE b) AS c3
"""
EXTREMES = """
min(n) AS e0, max(n) AS e1, min(x) AS e2, max(x) AS e3, max(g) AS e4, min(f) AS e5,
max(id) FILTER (WHERE b) AS e6, count(DISTINCT g) AS d0, sum(DISTINCT n) FILTER (WHERE b) AS d1,
count(*) AS a0, sum(x) AS s0
"""
QUERIES = {
    "in_place_by_group": f"SELECT k, {IN_PLACE} FROM t GROUP BY k",
    "in_place_of_all": f"SELECT {IN_PLACE} FROM t",
    "in_place_by_two": """
        SELECT g, b, min(n) AS a, count(*) AS c FROM t GROUP BY g, b HAVING count(*) > 1
    """,
    "in_place_by_expression": """
        SELECT k % 2 AS p, upper(g) AS q, max(x) - min(x) AS r FROM t GROUP BY 1, 2
    """,
    "in_place_rollup": """
        SELECT k, g, sum(d) AS s, max(n) AS m, grouping_id() AS i FROM t GROUP BY ROLLUP (k, g)
    """,
    "mixed_by_group": f"SELECT k, {MIXED} FROM t GROUP BY k",
    "mixed_of_all": f"SELECT {MIXED} FROM t",
}
# Those that are maintained by each plan of min and max.
OF_EXTREMES = {
    "extremes_by_group": f"SELECT k, {EXTREMES} FROM t GROUP BY k",
    "extremes_of_all": f"SELECT {EXTREMES}, sort_array(collect_list(n)) AS c0 FROM t",
}


class RowsOfOne(SharedRows):
    """Rows of the one table that is read here."""

    sizes = {"t": SharedRows.sizes["t"]}  # noqa: RUF012 (as there)


# Groups are larger and smaller than 17 rows.
FORCED = {
    "basic": "'reduce' = 'basic'",
    "bucketed": "'reduce' = 'bucketed', 'expected_group_size' = '17'",
    "growing": "'reduce' = 'monotonic'",
}


def start(
    spark: Any, folder: Path, queries: Mapping[str, str], forced: tuple[str, ...], more: str = ""
) -> History:
    """A project with all queries, each by the chosen plan and by some that are forced."""
    project = windrow.Project(folder, spark=spark, progress=False)
    project.sql(f"CREATE TABLE t ({TABLES['t']}) {more}")
    history = History(project, Model(spark, {"t": TABLES["t"]}), spark)
    for name, query in queries.items():
        history.create(name, query)
        for plan in forced:
            own = f"{plan}_{name}"
            project.sql(f"CREATE MATERIALIZED VIEW {own} TBLPROPERTIES ({FORCED[plan]}) AS {query}")
            history.views[own] = View(own, query)
    return history


@pytest.mark.parametrize("large", [False, True], ids=["one task", "exchanged"])
def test_all_plans_equal_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    from windrow.views.engine import ticker

    names: list[str] = one_of(3, QUERIES)
    if large:
        monkeypatch.setattr(ticker, "LARGE", 0)
        names = ["mixed_by_group"]
    queries = {name: QUERIES[name] for name in names}
    live(start(spark, tmp_path, queries, ("basic",)), RowsOfOne(random.Random(7)))


@pytest.mark.parametrize("large", [False, True], ids=["one task", "exchanged"])
def test_levels_equal_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    from windrow.views.engine import ticker

    queries = OF_EXTREMES
    if large:
        monkeypatch.setattr(ticker, "LARGE", 0)
        queries = {"extremes_by_group": OF_EXTREMES["extremes_by_group"]}
    live(start(spark, tmp_path, queries, ("bucketed",)), RowsOfOne(random.Random(8)))


def live(history: History, rows: SharedRows) -> None:
    """All kinds of changes; then all rows go, and some return."""
    history.check()  # over nothing
    history.apply(first_rows(rows))
    history.apply({"t": group_vanishes(rows, "t", history.model.rows["t"])})
    for what, batch in batches(history.model, rows):
        history.write(batch, what)
        history.tick()
    gone = [(row, -1) for row in history.model.rows["t"]]
    history.apply({"t": gone})
    history.apply({"t": [(rows.row("t"), 1) for _ in range(20)]})


def test_plans_over_rows_that_only_come_equal_spark(spark: Any, tmp_path: Path) -> None:
    rows = RowsOfOne(random.Random(11))
    growing = "TBLPROPERTIES ('append_only' = 'true')"
    history = start(spark, tmp_path, OF_EXTREMES, ("growing", "bucketed", "basic"), growing)
    assert "hierarchical, monotonic" in history.project._statements.explain("extremes_by_group")
    kept = history.project._statements.history.catalogue["extremes_by_group"]["arrangements"]
    assert len(kept) == 3  # totals, and the sets of two DISTINCT functions; no values
    history.apply({"t": [(rows.row("t"), 1) for _ in range(25)]})
    history.apply({"t": [(row, 1) for row in history.model.rows["t"][:5]]})  # the same again
    history.apply({"t": [(rows.row("t"), 2) for _ in range(10)]})


def test_the_extreme_is_retracted_again_and_again(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    query = "SELECT {} k, min(v) AS a, max(v) AS b FROM t GROUP BY k"
    project.sql(f"CREATE MATERIALIZED VIEW m AS {query.format('')}")
    project.sql(
        "CREATE MATERIALIZED VIEW n TBLPROPERTIES ('reduce' = 'bucketed') AS "
        + query.format("/*+ EXPECTED_GROUP_SIZE(300) */")
    )
    project.sql("INSERT INTO t SELECT id % 2, id FROM range(100)")
    for low in range(0, 90, 30):
        project.sql(f"DELETE FROM t WHERE v < {low + 30}")
        project.tick()
        for view in "mn":
            found = {row.k: (row.a, row.b) for row in project.read(view).collect()}
            assert found == {0: (low + 30, 98), 1: (low + 31, 99)}
    project.sql("INSERT INTO t VALUES (0, 98), (0, 98)")
    project.sql("DELETE FROM t WHERE v = 99")
    project.tick()
    assert {r.k: (r.a, r.b) for r in project.read("m").collect()} == {0: (90, 98), 1: (91, 97)}


def test_what_changes_no_result_is_passed_to_nobody(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windrow.views.run.jobs import ViewJob

    runs: list[Any] = []
    run = ViewJob.run
    monkeypatch.setattr(ViewJob, "run", lambda *a, **k: runs.append(run(*a, **k)) or runs[-1])
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql(
        "CREATE MATERIALIZED VIEW s AS SELECT k, count(DISTINCT v) AS n, max(v) AS m FROM t "
        "GROUP BY k"
    )
    for values, given in (("(1, 5), (1, 7)", 1), ("(1, 5)", 0), ("(1, 6)", 2)):
        project.sql(f"INSERT INTO t VALUES {values}")
        project.tick()
        counts = runs[-1].counts
        assert counts[max(counts)]["given"] == given  # the last stage is the view's own


def test_a_float_leaves_no_trace(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (id INT, x DOUBLE)")
    project.sql("CREATE MATERIALIZED VIEW s AS SELECT sum(x) AS s, avg(x) AS a FROM t")
    values = [0.1, 1e300, -1e300, float("nan"), float("inf")]
    project.table("t").insert([{"id": i, "x": x} for i, x in enumerate(values)])
    project.tick()
    project.sql("DELETE FROM t WHERE id > 0")
    project.tick()
    assert project.read("s").collect()[0].asDict() == {"s": 0.1, "a": 0.1}


def test_an_overflow_fails_the_tick_and_is_repaired(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (id INT, n BIGINT)")
    project.sql("CREATE MATERIALIZED VIEW s AS SELECT sum(n) AS s FROM t")
    project.sql("INSERT INTO t VALUES (1, 9223372036854775807), (2, 1)")
    with pytest.raises(DataError, match=r"view s, operator Reduce sum\(n\): .*BIGINT"):
        project.tick()
    project.sql("DELETE FROM t WHERE id = 2")
    project.tick()
    assert project.read("s").collect()[0].s == 2**63 - 1
