"""REFRESH rebuilds a view, also one whose stored plan is not the one that would be made now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.errors import SQLError, UnsupportedSQL, WindrowError
from windrow.views.history.commits import Commit


def rows(project: windrow.Project, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in project.read(name).collect())


def of_another_release(project: windrow.Project, *views: str) -> None:
    """Leave views as a release would have that plans them differently."""
    history = project._statements.history
    history.refresh()
    stored = {name: {**history.catalogue[name], "plan": "of another release"} for name in views}
    history.commit(Commit("define", history.next_time(), catalogue=stored))


def test_refresh(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    project.sql("CREATE MATERIALIZED VIEW s AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    project.sql("INSERT INTO t VALUES (2, 1)")
    of_another_release(project, "s")
    with pytest.raises(WindrowError, match="REFRESH MATERIALIZED VIEW s"):
        project.tick()
    project.sql("REFRESH MATERIALIZED VIEW s")
    assert rows(project, "s") == [(1, 3), (2, 6)]
    project.sql("DELETE FROM t WHERE v = 5")
    project.tick()
    assert rows(project, "s") == [(1, 3), (2, 1)]


CHAIN = {
    "s": "SELECT k, sum(v) AS s FROM t GROUP BY k",
    "best": "SELECT max(s) AS s FROM s",
    "same": "SELECT t.k, t.v, s.s FROM t JOIN s ON t.k = s.k",
    "far": "SELECT same.k, same.v FROM same JOIN best ON same.s = best.s",
    "apart": "SELECT k, count(DISTINCT v) AS n FROM t GROUP BY k",
}


def test_refresh_of_a_chain(spark: Any, tmp_path: Path) -> None:
    """All views that read a view are rebuilt with it, in one commit, and go on."""
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    for name, query in CHAIN.items():
        project.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    project.sql("INSERT INTO t VALUES (1, 4)")
    # Those of another release keep each other from being ticked, but not from being rebuilt.
    of_another_release(project, "s", "far", "apart")
    history = project._statements.history
    collections = {name: history.catalogue[name]["collection"] for name in CHAIN}
    version = history.version
    project.sql("REFRESH MATERIALIZED VIEW s")
    history.refresh()
    assert history.version == version + 1
    rebuilt = {n for n in CHAIN if history.catalogue[n]["collection"] != collections[n]}
    assert rebuilt == {"s", "best", "same", "far"}
    with pytest.raises(WindrowError, match="REFRESH MATERIALIZED VIEW apart"):
        project.tick()
    project.sql("REFRESH MATERIALIZED VIEW apart")

    def check() -> None:
        project.tick()
        spark.createDataFrame(rows(project, "t"), "k INT, v INT").createOrReplaceTempView("t")
        for name, query in CHAIN.items():
            wanted = spark.sql(query)
            assert rows(project, name) == sorted(tuple(row) for row in wanted.collect()), name
            wanted.createOrReplaceTempView(name)

    try:
        check()
        project.sql("DELETE FROM t WHERE v = 4")
        check()
        # What was kept for the old ones is gone, and what is kept now is used.
        used = {
            id
            for one in history.catalogue.values()
            for id in (one["collection"], *one.get("arrangements", {}).values())
        }
        history.refresh()
        assert set(history.collections()) == used
        project = windrow.Project(tmp_path, spark=spark, progress=False)
        project.sql("INSERT INTO t VALUES (3, 9), (2, 1)")
        check()
    finally:
        for name in ["t", *CHAIN]:
            spark.catalog.dropTempView(name)


def test_replace_what_others_read(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    project.sql("CREATE MATERIALIZED VIEW s AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    project.sql("CREATE MATERIALIZED VIEW top AS SELECT max(s) AS s, count(*) AS n FROM s")
    top = project.sql("SELECT s + 1 AS s FROM top")
    assert top is not None
    project.view("framed", top)
    replace = "CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT"
    with pytest.raises(WindrowError, match=r"is read by .*top.*other columns: .*m int.* s bigint"):
        project.sql(f"{replace} k, max(v) AS m FROM t GROUP BY k")
    with pytest.raises(WindrowError, match="a query that reads it, through top"):
        project.sql(f"{replace} 1 AS k, s FROM top")
    with pytest.raises(WindrowError, match="DIVIDE_BY_ZERO"):
        project.sql(f"{replace} k, CAST(1 / (v - 5) AS BIGINT) AS s FROM t")
    assert rows(project, "top") == [(5, 2)]
    project.sql("INSERT INTO t VALUES (3, 1)")
    project.sql(f"{replace} k, CAST(count(v) AS BIGINT) AS s FROM t GROUP BY k")
    assert rows(project, "top") == [(2, 3)]
    assert rows(project, "framed") == [(3,)]
    project.sql("INSERT INTO t VALUES (3, 1), (3, 2)")
    project.tick()
    assert (rows(project, "top"), rows(project, "framed")) == ([(3, 3)], [(4,)])


def test_a_list_of_columns(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    project.sql(
        "CREATE MATERIALIZED VIEW s (a, `sum of v`) AS SELECT k, sum(v) FROM t GROUP BY k -- end"
    )
    with pytest.raises(SQLError, match="view r lists 1 columns, and its query gives 2"):
        project.sql("CREATE MATERIALIZED VIEW r (a) AS SELECT k, v FROM t")
    with pytest.raises(UnsupportedSQL, match="line 2, column 8") as caught:
        project.sql("CREATE MATERIALIZED VIEW r (a, b) AS\nSELECT rand(), v FROM t")
    assert (caught.value.line, caught.value.column) == (2, 8)
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("DELETE FROM t WHERE v = 2")
    found = project.sql("SELECT a, `sum of v` FROM s ORDER BY a")
    assert found is not None
    assert [tuple(row) for row in found.collect()] == [(1, 1), (2, 5)]


def test_a_table_that_the_optimiser_leaves_out_is_used(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT)")
    project.sql("CREATE TABLE u (k INT)")
    project.sql("CREATE MATERIALIZED VIEW d AS SELECT DISTINCT t.k FROM t LEFT JOIN u ON t.k = u.k")
    with pytest.raises(WindrowError, match="d"):
        project.sql("DROP TABLE u")


def test_replace(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 0)")
    project.sql("CREATE MATERIALIZED VIEW s AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    with pytest.raises(WindrowError, match="cannot be replaced by a query that reads it"):
        project.sql("CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT k FROM s")
    with pytest.raises(WindrowError, match="DIVIDE_BY_ZERO"):
        project.sql("CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT k, 1 / v AS s FROM t")
    assert rows(project, "s") == [(1, 3), (2, 0)]  # it is still there
    project.sql("INSERT INTO t VALUES (3, 4)")
    project.sql("CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM t")
    project.sql("INSERT INTO t VALUES (3, 5)")
    with pytest.raises(WindrowError, match="DIVIDE_BY_ZERO"):
        project.sql("CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT k, 1 / v AS s FROM t")
    project.tick()  # no other view has gone ahead of it
    assert rows(project, "s") == [(1, 3), (2, 0), (3, 9)]
    assert rows(project, "other") == [(5,)]
    project.sql("DELETE FROM t WHERE k = 3")
    project.sql("CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT k, max(v) AS m FROM t GROUP BY k")
    assert rows(project, "other") == [(3,)]  # ticked by the same commit
    project.sql("INSERT INTO t VALUES (2, 7)")
    project.tick()
    assert rows(project, "s") == [(1, 2), (2, 7)]
