"""REFRESH rebuilds a view, also one whose stored plan is not the one that would be made now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.errors import WindrowError
from windrow.views.commits import Commit


def rows(project: windrow.Project, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in project.read(name).collect())


def test_refresh(spark: Any, tmp_path: Path) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    project.sql("CREATE TABLE t (k INT, v INT)")
    project.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    project.sql("CREATE MATERIALIZED VIEW s AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    project.sql("CREATE MATERIALIZED VIEW top AS SELECT max(s) AS s FROM s")

    with pytest.raises(WindrowError, match="view s is read by top"):
        project.sql("REFRESH MATERIALIZED VIEW s")

    project.sql("DROP MATERIALIZED VIEW top")
    project.sql("INSERT INTO t VALUES (2, 1)")
    # As another release would have left it.
    history = project._statements.history
    history.refresh()
    stored = {**history.catalogue["s"], "plan": "of another release"}
    history.commit(Commit("define", history.next_time(), catalogue={"s": stored}))
    with pytest.raises(WindrowError, match="REFRESH MATERIALIZED VIEW s"):
        project.tick()
    project.sql("REFRESH MATERIALIZED VIEW s")
    assert rows(project, "s") == [(1, 3), (2, 6)]
    project.sql("DELETE FROM t WHERE v = 5")
    project.tick()
    assert rows(project, "s") == [(1, 3), (2, 1)]


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
