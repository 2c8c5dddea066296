"""Shapes of plans that need care: a key column twice, columns that a generator drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import windrow

QUERIES = [
    "SELECT k, e, p FROM t LATERAL VIEW OUTER posexplode("
    "CASE WHEN g IS NOT NULL THEN array('a') ELSE array('a') END) e AS p, e",
    "SELECT k, p FROM t LATERAL VIEW OUTER posexplode(array(k)) e AS p, e",
    "SELECT a.k, b.w, b.k AS bk FROM t a FULL JOIN u b ON a.k = b.k AND a.v = b.k",
    "SELECT a.k, b.w FROM t a LEFT JOIN u b ON a.k = b.k AND a.k = b.w",
    "SELECT a.k, b.w FROM t a JOIN u b ON a.k = b.k AND a.v = b.k",
]


def rows(frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def test_shapes(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT, g STRING)")
    project.sql("CREATE TABLE u (k INT, w INT)")
    project.sql("INSERT INTO t VALUES (1, 1, 'a'), (2, 1, 'b'), (NULL, 2, NULL)")
    project.sql("INSERT INTO u VALUES (1, 5), (1, 1), (2, 2), (3, NULL)")
    for number, query in enumerate(QUERIES):
        project.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert rows(project.read(f"v{number}")) == rows(project.sql(query)), query
    project.sql("INSERT INTO t VALUES (3, 3, 'c')")
    project.sql("DELETE FROM u WHERE w = 1")
    project.sql("INSERT INTO u VALUES (3, 3)")
    project.tick()
    for number, query in enumerate(QUERIES):
        assert rows(project.read(f"v{number}")) == rows(project.sql(query)), query


def test_stages_with_nothing_between_them_are_one_process(spark: Any, tmp_path: Path) -> None:
    """How many Python processes the job of a view takes: Spark's expressions are between them."""
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT, g STRING)")
    project.sql("CREATE TABLE u (k INT, w INT)")
    wanted = {
        "SELECT g, count(*) AS n, max(v) AS most, sum(v) AS total FROM t GROUP BY g": 1,
        "SELECT g, v FROM t": 1,
        "SELECT DISTINCT g FROM t": 1,
        "SELECT upper(g) AS g, count(*) AS n FROM t GROUP BY upper(g)": 2,
        "SELECT g, count(*) + 1 AS n FROM t GROUP BY g": 2,
        "SELECT t.g, u.w FROM t JOIN u ON t.k = u.k": 2,
    }
    for number, (query, processes) in enumerate(wanted.items()):
        project.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        job = project._statements.views.planning._jobs[f"v{number}"][1]
        plan = job.prepare()[1]._jdf.queryExecution().executedPlan().toString()
        assert plan.count("MapInArrow") == processes, plan
    project.sql("INSERT INTO t VALUES (1, 1, 'a'), (2, 1, 'b'), (NULL, 2, NULL), (1, 4, 'a')")
    project.sql("INSERT INTO u VALUES (1, 5), (1, 1), (2, 2), (3, NULL)")
    project.tick()
    for number, query in enumerate(wanted):
        assert rows(project.read(f"v{number}")) == rows(project.sql(query)), query
