"""What names stand for: rows at a time, names that WITH and the user's session define, leaves."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from asking import ask, rows
from view_cases import RELEASE, release

import windrow as wr
from windrow.errors import (
    DataError,
    OptionError,
    RelationNotFoundError,
    SQLError,
    TimeRangeError,
    UnsupportedSQL,
)
from windrow.spark.plans import items, kind, plan_of
from windrow.views.relations.relations import Relations
from windrow.views.relations.rows import repeated
from windrow.views.times import millis, shown


def now(project: wr.Project) -> int:
    return project._statements.history.time


# Names


def test_a_name_of_with_hides_one_of_the_project(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a")
    assert ask(project, "WITH t AS (SELECT 42 AS a) SELECT a FROM t") == [(42,)]
    assert ask(project, "WITH t AS (SELECT a + 1 AS a FROM t) SELECT a FROM T") == [(2,)]
    inner = "(SELECT max(a) FROM (WITH t AS (SELECT 7 AS a) SELECT * FROM t))"
    assert ask(project, f"SELECT {inner}, max(a) FROM t") == [(7, 1)]
    nested = "WITH x AS (WITH t AS (SELECT 5 AS a) SELECT a FROM t), y AS (SELECT a FROM t)"
    assert ask(project, f"{nested} SELECT x.a, y.a FROM x, y") == [(5, 1)]
    recursive = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3)"
    assert ask(project, f"{recursive} SELECT n FROM t") == [(1,), (2,), (3,)]


def test_names_are_found_everywhere_in_a_query(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT CAST(id AS INT) AS a FROM range(4)")
    assert ask(
        project,
        """SELECT x.a, (SELECT count(*) FROM t y WHERE y.a <= x.a) AS n, l.b
           FROM t x, LATERAL (SELECT max(a) AS b FROM t z WHERE z.a < x.a) l
           WHERE EXISTS (SELECT 1 FROM t w WHERE w.a > x.a) AND x.a IN (SELECT a FROM t)
           AND x.a > (SELECT min(a) FROM (SELECT a FROM t UNION SELECT a FROM t))""",
    ) == [(1, 2, 0), (2, 3, 1)]
    assert ask(project, "TABLE t") == [(0,), (1,), (2,), (3,)]
    assert ask(project, "FROM t |> WHERE a > 2") == [(3,)]
    if project.spark.version >= "4.3":  # before, Spark resolves such names by itself
        assert ask(project, "SELECT * FROM IDENTIFIER('t') WHERE a = 0") == [(0,)]
    assert ask(project, "SELECT T.a FROM t WHERE t.A = 0") == [(0,)]


def test_the_relations_that_a_statement_mentions(project: wr.Project) -> None:
    from windrow.spark.parsing import parse

    for name in ("t", "u", "v"):
        project.sql(f"CREATE TABLE {name} (a INT)")
    relations = project._statements.relations

    def mentioned(text: str) -> list[str]:
        return relations.mentioned([parse(relations.session, text).plan])  # type: ignore[attr-defined]

    assert mentioned("SELECT * FROM T WHERE a IN (SELECT a FROM u)") == ["t", "u"]
    assert mentioned("WITH u AS (SELECT * FROM v) SELECT * FROM u") == ["v"]
    assert mentioned("SELECT * FROM t TIMESTAMP AS OF 1") == ["t"]
    assert mentioned("SELECT 1 FROM range(3), other") == []
    assert mentioned("UPDATE t SET a = (SELECT max(a) FROM u) WHERE a IN (SELECT a FROM v)") == [
        "t",
        "u",
        "v",
    ]
    merge = "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND u.a > (SELECT 1 FROM v) THEN DELETE"
    assert mentioned(merge) == ["t", "u", "v"]


def test_the_users_own_tables_and_views(project: wr.Project, spark: Any, tmp_path: Path) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a")
    spark.range(3).createOrReplaceTempView("mine")
    try:
        assert ask(project, "SELECT count(*) FROM mine, t") == [(3,)]
        project.sql("INSERT INTO t SELECT CAST(id AS INT) FROM mine WHERE id = 2")
        with pytest.raises(UnsupportedSQL, match="'mine' is none"):
            project.sql("SELECT * FROM mine TIMESTAMP AS OF 1")
        with pytest.raises(RelationNotFoundError, match="a view is made of those"):
            project.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM mine")
        project.sql("CREATE TABLE mine AS SELECT 9 AS a")  # the project's come first
        assert ask(project, "SELECT * FROM mine") == [(9,)]
    finally:
        spark.catalog.dropTempView("mine")
    spark.range(2).write.parquet(str(tmp_path / "files"))
    assert ask(project, f"SELECT * FROM parquet.`{tmp_path}/files`") == [(0,), (1,)]
    assert ask(project, "SELECT * FROM t") == [(1,), (2,)]


# Times


def test_reading_at_a_time(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT)")
    created = now(project)
    project.sql("INSERT INTO t VALUES (1), (2)")
    first = now(project)
    project.sql("DELETE FROM t WHERE a = 1")
    second = now(project)
    assert ask(project, f"SELECT * FROM t TIMESTAMP AS OF {created}") == []
    assert ask(project, f"SELECT * FROM t TIMESTAMP AS OF {first}") == [(1,), (2,)]
    assert ask(project, f"SELECT * FROM t FOR SYSTEM_TIME AS OF {second - 1}") == [(1,), (2,)]
    assert ask(project, f"SELECT * FROM t TIMESTAMP AS OF {second}") == [(2,)]
    moment = dt.datetime.fromtimestamp(first / 1000, dt.UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    for time in (f"'{text}'", f"TIMESTAMP '{text}'", f"timestamp_millis({first})", f"{first}L"):
        assert ask(project, f"SELECT * FROM t TIMESTAMP AS OF {time}") == [(1,), (2,)]
    assert rows(project.read("t", first)) == [(1,), (2,)]
    assert rows(project.read("t", moment)) == rows(project.read("t", text)) == [(1,), (2,)]
    assert ask(project, "SELECT * FROM t TIMESTAMP AS OF current_timestamp()") == [(2,)]


def test_times_of_text_are_in_the_zone_of_the_session(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a")
    time = now(project)
    project.sql("INSERT INTO t VALUES (2)")
    project.sql("SET TIME ZONE 'Asia/Tokyo'")
    moment = dt.datetime.fromtimestamp(time / 1000, dt.UTC) + dt.timedelta(hours=9)
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert ask(project, f"SELECT * FROM t TIMESTAMP AS OF '{text}'") == [(1,)]
    assert rows(project.read("t", text)) == [(1,)]


def test_several_times_in_one_query(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a, 'x' AS b")
    first = now(project)
    project.sql("UPDATE t SET b = 'y'")
    project.sql("INSERT INTO t VALUES (2, 'z')")
    assert ask(
        project,
        f"""SELECT t.a, old.b, t.b, (SELECT count(*) FROM t TIMESTAMP AS OF {first})
            FROM t LEFT JOIN t TIMESTAMP AS OF {first} AS old ON t.a = old.a
            WHERE t.a NOT IN (SELECT q.a + 5 FROM (SELECT * FROM t TIMESTAMP AS OF {first}) q)""",
    ) == [(1, "x", "y", 1), (2, None, "z", 1)]
    # Without another name it keeps its own.
    assert ask(project, f"SELECT t.b FROM t TIMESTAMP AS OF {first} WHERE t.a = 1") == [("x",)]
    with_clause = f"WITH o AS (SELECT * FROM t TIMESTAMP AS OF {first}) SELECT o.b FROM o"
    assert ask(project, with_clause) == [("x",)]


@pytest.mark.parametrize(
    ("time", "error", "said"),
    [
        ("'2000-01-01'", TimeRangeError, "cannot be read at 2000-01-01 .* it can be from"),
        ("'2999-01-01'", TimeRangeError, "cannot be read at 2999-01-01"),
        ("true", SQLError, "a time is text, a TIMESTAMP or BIGINT milliseconds, not boolean"),
        ("CAST(NULL AS TIMESTAMP)", SQLError, "the time is NULL"),
        ("'yesterday or so'", (SQLError, DataError), "CAST_INVALID_INPUT"),
        ("a", SQLError, "cannot refer to any columns"),
    ],
)
def test_times_that_cannot_be_read(
    fixed: wr.Project, time: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        fixed.sql(f"SELECT * FROM t TIMESTAMP AS OF {time}")


@pytest.fixture(scope="module")
def fixed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> wr.Project:
    project = wr.Project(tmp_path_factory.mktemp("fixed"), spark=spark)
    project.sql("CREATE TABLE t AS SELECT 1 AS a")
    return project


def test_versions_are_times(fixed: wr.Project) -> None:
    with pytest.raises(UnsupportedSQL, match="write TIMESTAMP AS OF"):
        fixed.sql("SELECT * FROM t VERSION AS OF 1")
    with pytest.raises(UnsupportedSQL, match="line 1, column 53: AS OF is not supported in a view"):
        fixed.sql("CREATE MATERIALIZED VIEW v AS SELECT a AS b FROM t  TIMESTAMP AS OF 1")


def test_moments_in_python() -> None:
    assert millis(5, "x") == millis("5", "x") == 5
    assert millis(dt.date(1970, 1, 2), "x") == 86_400_000
    assert millis("1970-01-01T01:00:00+01:00", "x") == 0
    assert millis(dt.datetime(1970, 1, 1), "x", "America/New_York") == 18_000_000
    assert millis("1969-12-31 23:59:59.9999", "x") == -1
    for wrong in ("soon", 1.5, True, None):
        with pytest.raises(OptionError, match="x is"):
            millis(wrong, "x")
    assert shown(10**18) == str(10**18)


def test_a_view_at_every_time_is_its_query_at_that_time(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a, 'x' AS b")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT b, sum(a) AS s FROM t GROUP BY b")
    project.sql("CREATE MATERIALIZED VIEW w AS SELECT max(s) AS m FROM v")
    times = [now(project)]
    for text in (
        "INSERT INTO t VALUES (2, 'x'), (3, 'y')",
        "UPDATE t SET a = a * 10 WHERE b = 'y'",
        "DELETE FROM t WHERE b = 'x'",
    ):
        project.sql(text)
        times.append(now(project))
    newest = [[("x", 1)], [("x", 3), ("y", 3)], [("x", 3), ("y", 30)], [("y", 30)]]
    greatest = [1, 3, 30, 30]

    def check() -> None:
        for time, state, most in zip(times, newest, greatest, strict=True):
            assert ask(project, f"SELECT b, s FROM v TIMESTAMP AS OF {time}") == state
            assert rows(project.read("w", time)) == [(most,)]

    assert rows(project.read("v")) == newest[0]  # the newest that is there; nothing is computed
    check()
    project.tick()
    check()
    assert rows(project.read("v")) == newest[-1]
    project.sql("CREATE TABLE other AS SELECT 1 AS a")
    assert rows(project.read("v", now(project))) == newest[-1]


def test_a_view_keeps_the_settings_it_was_created_with(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT TIMESTAMP'2024-01-01 00:00:00Z' AS ts")
    project.sql("SET TIME ZONE 'Asia/Tokyo'")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT hour(ts) AS h FROM t")
    project.sql("SET TIME ZONE 'UTC'")
    project.sql("INSERT INTO t VALUES (TIMESTAMP'2024-01-01 01:00:00Z')")
    time = now(project)
    project.sql("INSERT INTO t VALUES (TIMESTAMP'2024-01-01 02:00:00Z')")
    assert ask(project, "SELECT h FROM v") == [(10,), (11,), (9,)]
    assert rows(project.read("v", time)) == [(10,), (9,)]
    assert ask(project, "SELECT hour(ts) FROM t") == [(0,), (1,), (2,)]


def test_settings_of_a_view_are_there_when_the_project_is_opened_again(
    project: wr.Project, spark: Any
) -> None:
    project.sql("CREATE TABLE t (k INT, n BIGINT, d DECIMAL(38))")
    project.sql("INSERT INTO t VALUES (1, 9223372036854775807, 9e37BD)")
    project.sql("SET spark.sql.groupByOrdinal = false")
    project.sql("CREATE MATERIALIZED VIEW ordinal AS SELECT count(*) AS c FROM t GROUP BY 1")
    project.sql("SET spark.sql.ansi.enabled = false")
    sums = "sum(n) AS n, sum(d) AS d, avg(d) AS a, avg(n) AS x, sum(DISTINCT n) AS u"
    project.sql(f"CREATE MATERIALIZED VIEW wraps AS SELECT k, {sums} FROM t GROUP BY k")
    project.close()
    again = wr.Project(project._store.uri, spark=spark, progress=False)
    again.sql("INSERT INTO t VALUES (1, 9223372036854775807, 9e37BD), (1, 1, 9e37BD)")
    assert ask(again, "SELECT * FROM ordinal") == [(3,)]
    ((_, n, d, a, x, u),) = ask(again, "SELECT * FROM wraps")
    assert (n, d, a, u) == (-1, None, None, -(2**63))
    assert x == pytest.approx(2 / 3 * 2**63)
    again.sql("DELETE FROM t WHERE n > 1")
    ((_, n, d, _, _, _),) = ask(again, "SELECT * FROM wraps")
    assert (n, d) == (1, 9 * 10**37)


@pytest.mark.skipif(release(RELEASE) < (4, 3), reason="older releases do not have it everywhere")
def test_types_that_a_setting_allows(project: wr.Project) -> None:
    project.sql("SET spark.sql.timeType.enabled = true")
    project.sql("CREATE TABLE t (k INT, at TIME(6))")
    project.sql("INSERT INTO t VALUES (1, TIME '10:00:00'), (2, NULL)")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT at, count(*) AS n FROM t GROUP BY at")
    project.sql("INSERT INTO t VALUES (3, TIME '10:00:00')")
    assert ask(project, "SELECT n FROM v ORDER BY n") == [(1,), (2,)]


# Rows


def test_rows_are_there_as_often_as_their_diff_says() -> None:
    updates = pa.record_batch(
        {"x": ["a", "b", "c"], "_time": [1, 1, 1], "_diff": pa.array([2, 0, 150_000], pa.int64())}
    )
    found = pa.Table.from_batches(list(repeated(updates)))
    assert found.column_names == ["x"]
    counts = found.group_by("x").aggregate([("x", "count")]).to_pylist()
    assert counts == [{"x": "a", "x_count": 2}, {"x": "c", "x_count": 150_000}]
    once = pa.record_batch({"x": ["a"], "_time": [1], "_diff": [1]})
    assert [batch.to_pylist() for batch in repeated(once)] == [[{"x": "a"}]]
    with pytest.raises(DataError, match="there -1 times"):
        list(repeated(pa.record_batch({"x": ["a"], "_time": [1], "_diff": [-1]})))


# Leaves


def leaf_names(relations: Relations, plan: Any) -> list[str | None]:
    """The relations at the leaves of an optimised plan."""
    if kind(plan) == "LogicalRDD":
        return [relations.relation_of(int(plan.rdd().id()))]
    found = []
    for child in items(plan.children()):
        found += leaf_names(relations, child)
    return found


def test_leaves_stay_and_are_known(project: wr.Project) -> None:
    from windrow.spark.parsing import parse
    from windrow.spark.statements import Query

    project.sql("CREATE TABLE t (a INT NOT NULL, b STRING)")
    project.sql("CREATE TABLE u (a INT, c DATE)")
    relations = project._statements.relations
    leaf = relations.leaf("T")
    assert relations.leaf("t") is leaf
    assert leaf.schema == relations.find("t").schema
    assert leaf.collect() == []

    def planned(text: str) -> Any:
        statement = parse(relations.session, text)
        assert isinstance(statement, Query)
        return relations.planned(statement.plan)._jdf.queryExecution().optimizedPlan()

    joined = planned("SELECT x.a, y.b, c FROM t x JOIN t y ON x.a = y.a LEFT JOIN u ON u.a = y.a")
    assert leaf_names(relations, joined) == ["t", "t", "u"]
    exists = planned("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)")
    assert leaf_names(relations, exists) == ["t", "u"]
    frame = project.read("t").join(project.read("u"), "a").where("b > 'x'")
    over = relations.planned_frame(frame)
    assert over.columns == frame.columns
    assert leaf_names(relations, over._jdf.queryExecution().optimizedPlan()) == ["t", "u"]
    twice = project.read("t")
    selves = relations.planned_frame(twice.alias("l").join(twice.alias("r"), "a"))
    assert leaf_names(relations, selves._jdf.queryExecution().optimizedPlan()) == ["t", "t"]
    assert set(relations.leaves.values()) == {"t", "u"}
    assert kind(plan_of(leaf)) == "LogicalRDD"
    project.sql("DROP TABLE u")
    project.sql("CREATE TABLE u (other STRING)")
    assert relations.leaf("u").columns == ["other"]


# Columns

PRUNED = {
    "SELECT count(*) FROM t": {"t": set()},
    "SELECT sum(a) FROM t": {"t": {"a"}},
    "SELECT b FROM t WHERE c > 1": {"t": {"b", "c"}},
    "SELECT t.b, u.y FROM t JOIN u ON t.a = u.x": {"t": {"a", "b"}, "u": {"x", "y"}},
    "SELECT x.b FROM t x JOIN t y ON x.a = y.c": {"t": {"a", "b", "c"}},
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a)": {"t": {"a"}, "u": {"x"}},
    "SELECT a, (SELECT max(y) FROM u) AS m FROM t": {"t": {"a"}, "u": {"y"}},
    "WITH w AS (SELECT * FROM t) SELECT w.c FROM w": {"t": {"c"}},
    "SELECT count(*) FROM t WHERE n IS NOT NULL": {"t": set()},
    "SELECT sum(s.f) FROM t": {"t": {"s"}},
    "SELECT a FROM t UNION ALL SELECT x FROM u": {"t": {"a"}, "u": {"x"}},
}


@pytest.fixture(scope="module")
def wide(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> wr.Project:
    project = wr.Project(tmp_path_factory.mktemp("wide"), spark=spark)
    project.sql(
        "CREATE TABLE t (a INT, b STRING, c INT, n INT NOT NULL, s STRUCT<f: INTERVAL DAY>)"
    )
    project.sql(
        "INSERT INTO t SELECT CAST(id AS INT), CAST(id AS STRING), CAST(id % 3 AS INT), 1, "
        "named_struct('f', INTERVAL '1' DAY) FROM (SELECT id % 6 AS id FROM range(12))"
    )
    project.sql("CREATE TABLE u AS SELECT 1 AS x, 'one' AS y")
    return project


@pytest.mark.parametrize("text", PRUNED)
def test_only_what_is_needed_is_read(
    wide: wr.Project, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from windrow.spark.parsing import parse
    from windrow.spark.statements import Query
    from windrow.views.relations import relations as module

    whole = ask(wide, text)
    monkeypatch.setattr(module, "LARGE", 0)
    relations = wide._statements.relations
    statement = parse(relations.session, text)
    assert isinstance(statement, Query)
    assert relations._needed(statement.plan) == PRUNED[text]
    assert ask(wide, text) == whole
