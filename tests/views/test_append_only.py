"""Append-only tables and sources: what they refuse, what is derived of them, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.errors import DataError, OptionError, WindrowError
from windrow.spark.parsing import parse
from windrow.spark.settings import settings_of
from windrow.views.plan.monotonic import growth

GROWING = "TBLPROPERTIES ('append_only' = 'true')"


@pytest.fixture
def project(spark: Any, tmp_path: Path) -> windrow.Project:
    found = windrow.Project(tmp_path / "project", spark=spark, progress=False)
    found.sql(f"CREATE TABLE log (k INT, v INT) {GROWING}")
    found.sql("CREATE TABLE t (k INT, v INT)")
    return found


def refused(project: windrow.Project, text: str) -> str:
    with pytest.raises(DataError) as error:
        project.sql(text)
    return str(error.value)


def test_a_table_refuses_what_retracts_a_row(project: windrow.Project) -> None:
    project.sql("INSERT INTO log VALUES (1, 10), (2, 20)")
    project.sql("INSERT INTO log SELECT id, id FROM range(3)")
    for text in (
        "DELETE FROM log WHERE k = 2",
        "DELETE FROM log",
        "UPDATE log SET v = 21 WHERE k = 2",
        "TRUNCATE TABLE log",
        "INSERT OVERWRITE log VALUES (9, 9)",
        "MERGE INTO log USING (SELECT 2 AS j) s ON log.k = s.j WHEN MATCHED THEN DELETE",
    ):
        message = refused(project, text)
        assert "table log is append-only" in message
        assert "'k': " in message, text
        assert "UNSET TBLPROPERTIES" in message
    with pytest.raises(DataError, match=r"append-only.*'v': 10"):
        project.table("log").apply([{"k": 1, "v": 10, "_diff": -1}, {"k": 5, "v": 5, "_diff": 1}])
    with pytest.raises(DataError, match="append-only"):
        project.table("log").delete("k = 1")
    # What takes nothing away is no matter what it is called.
    project.sql("DELETE FROM log WHERE k = 77")
    project.sql("UPDATE log SET v = v WHERE k = 2")
    project.sql(
        "MERGE INTO log USING (SELECT 7 AS j) s ON log.k = s.j "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (j, 70)"
    )
    project.table("log").apply([{"k": 8, "v": 80, "_diff": 2}])
    rows = sorted((r.k, r.v) for r in project.read("log").collect())
    assert rows == [(0, 0), (1, 1), (1, 10), (2, 2), (2, 20), (7, 70), (8, 80), (8, 80)]


def test_declaring_and_taking_it_back(project: windrow.Project) -> None:
    with pytest.raises(OptionError, match="true or false"):
        project.sql("CREATE TABLE u (k INT) TBLPROPERTIES ('append_only' = 'perhaps')")
    frame = project.sql("SHOW CREATE TABLE log")
    assert frame is not None
    assert "'append_only' = 'true'" in frame.collect()[0][0]
    project.sql("INSERT INTO log VALUES (1, 10)")
    project.sql("ALTER TABLE log UNSET TBLPROPERTIES ('append_only')")
    project.sql("DELETE FROM log WHERE k = 1")
    project.sql("ALTER TABLE log SET TBLPROPERTIES ('append_only' = 'true')")
    project.sql("INSERT INTO log VALUES (2, 20)")
    assert "append-only" in refused(project, "DELETE FROM log")


# A query over `log`, which only grows, and `t`, which does not; and a part of the reason.
DERIVED = {
    "SELECT * FROM log": (True, "log only grows"),
    "SELECT k + 1 AS a FROM log WHERE v > 3": (True, "log only grows"),
    "SELECT * FROM log UNION ALL SELECT 1, 2": (True, "log only grows"),
    "SELECT explode(sequence(1, k)) AS a FROM log": (True, "log only grows"),
    "SELECT DISTINCT k FROM log": (True, "log only grows"),
    "SELECT a.k, b.v FROM log a JOIN log b ON a.k = b.k": (True, "log only grows"),
    "SELECT a.k, b.v FROM log a CROSS JOIN log b": (True, "log only grows"),
    "SELECT * FROM log a WHERE EXISTS (SELECT 1 FROM log b WHERE b.v = a.k)": (True, "log"),
    "SELECT * FROM log a LEFT JOIN VALUES (1, 2), (3, 4) AS c (x, y) ON a.k = c.x": (True, "log"),
    "SELECT count(*) AS n FROM VALUES (1), (2)": (True, "no tables"),
    "SELECT * FROM t": (False, "rows of t may be deleted or updated"),
    "SELECT a.k FROM log a JOIN t ON a.k = t.k": (False, "rows of t"),
    "SELECT k FROM log UNION ALL SELECT k FROM t": (False, "rows of t"),
    "SELECT a.k, b.v FROM log a LEFT JOIN log b ON a.k = b.v": (False, "left outer join"),
    "SELECT a.k, b.v AS w FROM log a FULL JOIN log b ON a.k = b.v": (False, "full outer join"),
    "SELECT * FROM log a WHERE NOT EXISTS (SELECT 1 FROM log b WHERE b.v = a.k)": (
        False,
        "anti join",
    ),
    "SELECT k, (SELECT max(v) FROM log) AS m FROM log": (False, "aggregate takes its result back"),
    "SELECT k, sum(v) AS s FROM log GROUP BY k": (False, "aggregate takes its result back"),
    "SELECT * FROM log ORDER BY v LIMIT 3": (False, "limit takes rows back"),
    "SELECT *, lag(v) OVER (ORDER BY k) AS w FROM log": (False, "window function"),
    "SELECT k FROM log EXCEPT SELECT v FROM log": (False, "anti join"),
}


def test_monotonicity_is_derived(project: windrow.Project) -> None:
    statements = project._statements
    for query, (grows, why) in DERIVED.items():
        parsed: Any = parse(statements.relations.session, query)
        frame = statements.relations.planned(parsed.plan)
        plan = statements.views.planning.plan("v", frame, settings_of(frame.sparkSession))
        found = growth(plan.root)
        assert found.only_grows is grows, (query, str(found))
        assert why in found.why, (query, str(found))
        assert str(found).startswith("append-only: " if grows else "not append-only: ")


def test_of_a_view_it_is_derived_as_well(project: windrow.Project) -> None:
    project.sql("CREATE MATERIALIZED VIEW some AS SELECT k, v FROM log WHERE v > 0")
    project.sql("CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS v FROM log GROUP BY k")
    relations = project._statements.relations
    assert [relations.only_grows(name) for name in ("log", "t", "some", "sums")] == [
        True,
        False,
        True,
        False,
    ]
    project.sql("ALTER TABLE log UNSET TBLPROPERTIES ('append_only')")
    assert not relations.only_grows("some")
    project.sql("INSERT INTO log VALUES (1, 1)")
    project.sql("DELETE FROM log")
    project.tick()  # nothing relied on it
    assert not project.read("some").collect()


def test_a_source_whose_rows_go_is_refused(spark: Any, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.csv").write_text("1,10\n2,20\n")
    project = windrow.Project(tmp_path / "project", spark=spark, progress=False)
    project.sql(
        f"CREATE TABLE log (k INT, v INT) USING csv OPTIONS ('append_only' = 'true') "
        f"LOCATION '{files}'"
    )
    project.sql("CREATE MATERIALIZED VIEW least AS SELECT min(v) AS a, max(v) AS b FROM log")

    def least() -> tuple[int, int]:
        project.tick()
        (row,) = project.read("least").collect()
        return row.a, row.b

    assert least() == (10, 20)
    (files / "a.csv").write_text("1,10\n2,20\n3,30\n")  # a log that goes on
    (files / "b.csv").write_text("1,5\n")
    assert least() == (5, 30)
    (files / "a.csv").write_text("1,10\n3,30\n4,40\n")
    for _ in range(2):
        with pytest.raises(DataError, match=r"source log is append-only.*a\.csv.*'v': 20"):
            project.tick()
        assert project.read("least").collect()[0].b == 30
    (files / "a.csv").write_text("1,10\n2,20\n3,30\n4,40\n")  # restored
    assert least() == (5, 40)
    (files / "c.csv").write_text("1,10\n2,20\n3,30\n4,40\n1,5\n")  # the two files in one
    (files / "a.csv").unlink()
    (files / "b.csv").unlink()
    assert least() == (5, 40)
    (files / "c.csv").write_text("1,10\n")
    with pytest.raises(DataError, match=r"c\.csv"):
        project.tick()
    project.sql("ALTER TABLE log UNSET TBLPROPERTIES ('append_only')")
    with pytest.raises(WindrowError, match=r"relies on log being append-only.*REFRESH"):
        project.tick()
    project.sql("REFRESH MATERIALIZED VIEW least")
    assert least() == (10, 10)
    project.sql("ALTER TABLE log SET TBLPROPERTIES ('append_only' = 'true')")
    (files / "d.csv").write_text("1,4\n")
    assert least() == (4, 10)  # by the plan that it has
