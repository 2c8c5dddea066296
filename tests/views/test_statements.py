"""Statements as data: what Spark's parser reads, what only Windrow knows, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import windrow as wr
from windrow.errors import OptionError, RelationNotFoundError, SQLError, UnsupportedSQL, from_json
from windrow.errors import to_json as error_to_json
from windrow.spark import statements as st
from windrow.spark.parsing import parse
from windrow.spark.plans import kind
from windrow.spark.tokens import pieces, tokens

# Tokens


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        (" ; ;; ", []),
        ("-- nothing", []),
        ("SELECT ';'; SELECT \";\"; SELECT `;`", ["SELECT ';'", 'SELECT ";"', "SELECT `;`"]),
        ("SELECT 1 -- ;\n; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT /* ; /* ; */ ; */ 1; SELECT 2", ["SELECT /* ; /* ; */ ; */ 1", "SELECT 2"]),
        (r"SELECT 'it\';s'; SELECT 2", [r"SELECT 'it\';s'", "SELECT 2"]),
        ("SELECT r'\\'; SELECT 2", ["SELECT r'\\'", "SELECT 2"]),
        ("SELECT '''', '''';SELECT 3", ["SELECT '''', ''''", "SELECT 3"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open", "SELECT 2"]),
    ],
)
def test_statements_are_cut_at_semicolons(text: str, found: list[str]) -> None:
    assert [piece.text for piece in pieces(text)] == found


def test_pieces_know_where_they_are_and_whether_they_end() -> None:
    first, second = pieces("  SELECT 1;\n SELECT 2 -- more")
    assert (first.start, first.ended) == (2, True)
    assert (second.text, second.start, second.ended) == ("SELECT 2", 13, False)


def test_names_and_words() -> None:
    found = list(tokens("Drop `my ``view`` x`.y 'text'"))
    assert [token.word for token in found] == ["DROP", "", "", "Y", ""]
    assert [token.name for token in found] == ["Drop", "my `view` x", None, "y", None]


# What Spark parses


def test_create_table(spark: Any) -> None:
    found = parse(
        spark,
        """CREATE TABLE IF NOT EXISTS sales (id INT NOT NULL COMMENT 'key', b STRING DEFAULT 'q',
           c DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
           COMMENT 'all' TBLPROPERTIES ('x'='y')""",
    )
    assert isinstance(found, st.CreateTable)
    assert (found.name, found.key, found.if_not_exists) == ("sales", ("id",), True)
    assert (found.comment, found.properties, found.query) == ("all", {"x": "y"}, None)
    assert found.columns == (
        st.Column("id", '"integer"', False, "key"),
        st.Column("b", '"string"', True, None, "'q'"),
        st.Column("c", '"decimal(10,2)"'),
    )


def test_inline_primary_key_and_as_select(spark: Any) -> None:
    found = parse(spark, "CREATE TABLE t (a INT PRIMARY KEY)")
    assert isinstance(found, st.CreateTable)
    assert found.key == ("a",)
    assert not found.columns[0].nullable
    found = parse(spark, "CREATE TABLE t AS SELECT 1 AS a")
    assert isinstance(found, st.CreateTable)
    assert kind(found.query) == "Project"


def test_changes(spark: Any) -> None:
    found = parse(spark, "WITH q AS (SELECT 1) INSERT INTO t (a, b) SELECT * FROM q")
    assert isinstance(found, st.Insert)
    assert (found.table, found.columns, found.by_name, found.overwrite) == (
        "t",
        ("a", "b"),
        False,
        False,
    )
    assert kind(found.ctes) == "UnresolvedWith"
    found = parse(spark, "INSERT OVERWRITE t BY NAME SELECT 1 AS a")
    assert isinstance(found, st.Insert)
    assert (found.by_name, found.overwrite, found.ctes) == (True, True, None)
    found = parse(spark, "UPDATE t AS x SET a = 1, x.s.f = 2 WHERE x.a > 0")
    assert isinstance(found, st.Update)
    assert (found.table, found.alias) == ("t", "x")
    assert [one.target for one in found.assignments] == [("a",), ("x", "s", "f")]
    found = parse(spark, "DELETE FROM t")
    assert isinstance(found, st.Delete)
    assert found.alias == "t"


def test_merge(spark: Any) -> None:
    found = parse(
        spark,
        """MERGE INTO t USING u s ON t.a = s.a
           WHEN MATCHED AND s.b > 1 THEN UPDATE SET *
           WHEN MATCHED THEN DELETE
           WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)
           WHEN NOT MATCHED BY SOURCE THEN UPDATE SET b = 3""",
    )
    assert isinstance(found, st.Merge)
    assert [(one.kind, one.condition is None) for one in found.matched] == [
        ("update", False),
        ("delete", True),
    ]
    assert found.matched[0].assignments is None
    assert found.not_matched[0].assignments is not None
    assert found.not_matched[0].assignments[0].target == ("a",)
    assert found.not_matched_by_source[0].kind == "update"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUNCATE TABLE t", st.Truncate("", "t")),
        ("DROP TABLE IF EXISTS t", st.Drop("", "table", "t", True)),
        ("DROP VIEW v", st.Drop("", "view", "v", False)),
        ("drop materialized view `my v`", st.Drop("", "view", "my v", False)),
        ("DROP MATERIALIZED VIEW IF EXISTS v;", st.Drop("", "view", "v", True)),
        ("REFRESH /* all */ MATERIALIZED VIEW v", st.Refresh("", "v")),
        ("REFRESH TABLE v", st.Refresh("", "v")),
        ("SHOW MATERIALIZED VIEWS", st.Show("", "views")),
        ("SHOW MATERIALIZED VIEWS LIKE 'a*'", st.Show("", "views", "a*")),
        ("SHOW VIEWS", st.Show("", "views")),
        ("SHOW TABLES LIKE 'a*'", st.Show("", "tables", "a*")),
        ("SHOW COLUMNS IN t", st.ShowColumns("", "t")),
        ("SHOW CREATE TABLE t", st.ShowCreate("", "t")),
        ("DESCRIBE TABLE EXTENDED t", st.Describe("", "t", True)),
        ("DESC t", st.Describe("", "t", False)),
        ("EXPLAIN v", st.Explain("", "simple", name="v")),
        ("EXPLAIN EXTENDED v", st.Explain("", "extended", name="v")),
        ("EXPLAIN MATERIALIZED VIEW v", st.Explain("", "simple", name="v")),
    ],
)
def test_small_statements(spark: Any, text: str, expected: st.Statement) -> None:
    from dataclasses import replace

    assert replace(parse(spark, text), text="") == expected


def test_create_view(spark: Any) -> None:
    text = (
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v COMMENT 'x' TBLPROPERTIES ('a'='b') AS SELECT 1"
    )
    found = parse(spark, text)
    assert isinstance(found, st.CreateView)
    assert (found.name, found.sql, found.if_not_exists, found.replace) == (
        "v",
        "SELECT 1",
        True,
        False,
    )
    assert (found.comment, found.properties) == ("x", {"a": "b"})
    found = parse(spark, "create /* or */ or replace\n materialized view v as SELECT 2 AS x;")
    assert isinstance(found, st.CreateView)
    assert (found.sql, found.replace) == ("SELECT 2 AS x", True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "VALUES (1)",
        "TABLE t",
        "FROM t SELECT a",
        "FROM t |> WHERE a > 1",
        "WITH q AS (SELECT 1) SELECT * FROM q",
        "SELECT * FROM t TIMESTAMP AS OF 12 AS q",
        "SELECT 1 UNION SELECT 2",
    ],
)
def test_queries(spark: Any, text: str) -> None:
    assert isinstance(parse(spark, text), st.Query)


def test_explain_of_queries_and_of_views_that_are_not_there(spark: Any) -> None:
    found = parse(spark, "EXPLAIN FORMATTED SELECT 1")
    assert isinstance(found, st.Explain)
    assert found.mode == "formatted"
    found = parse(spark, "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1 AS x")
    assert isinstance(found, st.Explain)
    assert found.view is not None
    assert found.view.name == "v"


def test_settings(spark: Any) -> None:
    found = parse(spark, "SET TIME ZONE 'UTC'")
    assert isinstance(found, st.Setting)
    assert not found.reset
    found = parse(spark, "RESET spark.sql.ansi.enabled")
    assert isinstance(found, st.Setting)
    assert (found.reset, found.name) == (True, "spark.sql.ansi.enabled")


# What is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ALTER TABLE t ADD COLUMN c INT", "ALTER TABLE is not supported; create another table"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW is not supported; write CREATE MATERIALIZED"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "CREATE TEMPORARY VIEW"),
        ("CREATE FUNCTION f AS 'x'", "CREATE FUNCTION"),
        ("CREATE DATABASE d", "CREATE DATABASE"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1 AS a", "write INSERT OVERWRITE"),
        ("CREATE TABLE t LIKE u", "AS SELECT"),
        ("CREATE TABLE t (a INT) USING delta", "USING delta"),
        ("CREATE TABLE t (a INT) LOCATION '/x'", "LOCATION"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (a)", "PARTITIONED BY"),
        ("CREATE TABLE t (a INT UNIQUE)", "UNIQUE"),
        ("CREATE TABLE t (a INT, CHECK (a > 0))", "CHECK"),
        ("CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a))", "generated column b"),
        ("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY)", "identity column a"),
        ("CREATE TABLE s.t (a INT)", "qualified name s.t is not supported; .* write t"),
        ("INSERT INTO t PARTITION (a = 1) SELECT 1", "PARTITION"),
        ("INSERT INTO t REPLACE WHERE a = 1 SELECT 1", "DELETE and INSERT"),
        ("FROM u INSERT INTO t SELECT a INSERT INTO v SELECT b", "several INSERTs"),
        ("TRUNCATE TABLE t PARTITION (a = 1)", "DELETE"),
        ("DESCRIBE t a", "write DESCRIBE and the name"),
        ("USE x", "USE"),
        ("CACHE TABLE t", "CACHE TABLE"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE TABLE"),
        ("CALL p()", "CALL"),
        ("DECLARE x INT", "DECLARE"),
        ("SET VAR x = 1", "SET VAR"),
        ("SHOW FUNCTIONS", "SHOW FUNCTIONS"),
        ("EXPLAIN INSERT INTO t VALUES (1)", "EXPLAIN of Insert"),
        ("DROP MATERIALIZED VIEW a.b", "one name is expected"),
        ("DROP MATERIALIZED VIEW", "one name is expected"),
        ("SELECT 1; SELECT 2", "more than one statement"),
    ],
)
def test_what_is_not_done_is_named_with_its_place(spark: Any, text: str, said: str) -> None:
    with pytest.raises(UnsupportedSQL, match=said) as found:
        parse(spark, text)
    assert found.value.line == 1
    assert found.value.column is not None
    assert str(found.value).startswith(f"line 1, column {found.value.column}: ")


@pytest.mark.parametrize("text", ["", "-- nothing", "SELEC 1", "SELECT (", "DROP"])
def test_what_cannot_be_parsed(spark: Any, text: str) -> None:
    with pytest.raises(SQLError) as found:
        parse(spark, text)
    assert found.value.condition is not None
    assert found.value.condition.startswith("PARSE_")
    assert found.value.line == 1
    assert "at org.apache" not in str(found.value)


def test_places_are_those_of_the_text(spark: Any) -> None:
    with pytest.raises(SQLError, match=r"^line 3, column 7: ") as found:
        parse(spark, "\nSELECT 1\n FROM 1 2 WHERE")
    assert (found.value.line, found.value.column) == (3, 7)


def test_errors_travel(spark: Any) -> None:
    with pytest.raises(UnsupportedSQL) as found:
        parse(spark, "USE x")
    again = from_json(error_to_json(found.value))
    assert isinstance(again, UnsupportedSQL)
    assert (str(again), again.line, again.column) == (str(found.value), 1, 1)


# In a project


def test_analysis_errors_are_ours(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT)")
    with pytest.raises(SQLError, match=r"line 2, column 2: .*UNRESOLVED_COLUMN") as found:
        project.sql("SELECT 1,\n nosuch FROM t")
    assert found.value.condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert (found.value.line, found.value.column) == (2, 2)
    assert "'Project" not in str(found.value)
    with pytest.raises(RelationNotFoundError, match=r"line 1, column 15: .* did you mean 't'"):
        project.sql("SELECT * FROM tt")


def test_settings_hold_for_the_project_alone(project: wr.Project, spark: Any) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    project.sql(f"SET {zone} = America/New_York")
    (row,) = project.sql("SELECT current_timezone(), hour(timestamp_seconds(0))").collect()
    assert tuple(row) == ("America/New_York", 19)
    assert spark.conf.get(zone) == before
    project.sql("RESET")
    (row,) = project.sql("SELECT current_timezone()").collect()
    assert row[0] == "UTC"


def test_the_session_of_the_user_stays_active(project: wr.Project, spark: Any) -> None:
    from pyspark.sql import SparkSession

    spark.range(1).collect()
    before = SparkSession.getActiveSession()
    project.sql("CREATE TABLE t (a INT)")
    project.sql("INSERT INTO t VALUES (1)")
    project.sql("SHOW TABLES")
    after = SparkSession.getActiveSession()
    assert before is not None
    assert after is not None
    assert before._jsparkSession.equals(after._jsparkSession)


def test_explain(project: wr.Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.sql("CREATE TABLE t (a INT)")
    (row,) = project.sql("EXPLAIN SELECT a FROM t WHERE a > 1").collect()
    assert row[0].startswith("== Physical Plan ==")
    (row,) = project.sql("EXPLAIN t").collect()
    assert "its rows are stored" in row[0]
    project.explain("SELECT a FROM t")
    assert "Input t" in capsys.readouterr().out
    with pytest.raises(OptionError, match="name of a view, or a query"):
        project.explain("DROP TABLE t")
