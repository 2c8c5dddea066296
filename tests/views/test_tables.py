"""Tables: what they are created with, the types they hold, and what is said of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from asking import ask, rows

import windrow as wr
from windrow.errors import (
    DataError,
    OptionError,
    RelationExistsError,
    RelationNotFoundError,
    SchemaError,
    SQLError,
    UnsupportedSQL,
    WindrowError,
)
from windrow.views.storable import Storable

# Creating and dropping


def test_a_table_from_nothing_to_nothing(project: wr.Project) -> None:
    assert project.sql("CREATE TABLE t (a INT NOT NULL, b STRING)") is None
    assert ask(project, "SELECT * FROM t") == []
    project.sql("INSERT INTO t VALUES (1, 'x')")
    assert ask(project, "SELECT * FROM T") == [(1, "x")]  # names are compared without case
    assert project.read("t").schema.simpleString() == "struct<a:int,b:string>"
    assert [f.nullable for f in project.read("t").schema] == [False, True]
    project.sql("DROP TABLE t")
    with pytest.raises(RelationNotFoundError, match="there is no table or view 't'"):
        project.sql("SELECT * FROM t")
    project.sql("CREATE TABLE t (other DATE)")
    assert ask(project, "SELECT * FROM t") == []


def test_names_that_are_taken(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT)")
    project.sql("CREATE TABLE IF NOT EXISTS T (b STRING)")
    assert ask(project, "SHOW COLUMNS IN t") == [("a",)]
    with pytest.raises(RelationExistsError, match="there is a table 't' already"):
        project.sql("CREATE TABLE T (a INT)")
    with pytest.raises(RelationExistsError, match="there is a table 't' already"):
        project.sql("CREATE MATERIALIZED VIEW t AS SELECT 1 AS x")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    for text in ("CREATE TABLE v (a INT)", "CREATE TABLE IF NOT EXISTS v (a INT)"):
        with pytest.raises(RelationExistsError, match="there is a view 'v' already"):
            project.sql(text)
    with pytest.raises(RelationExistsError, match="CREATE OR REPLACE"):
        project.sql("CREATE MATERIALIZED VIEW v AS SELECT a + 1 AS a FROM t")
    project.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT a + 1 AS a FROM t")


def test_names_that_are_not_there(project: wr.Project) -> None:
    project.sql("CREATE TABLE sales (a INT)")
    with pytest.raises(RelationNotFoundError, match="no table 'sale'; did you mean 'sales'"):
        project.sql("DROP TABLE sale")
    project.sql("DROP TABLE IF EXISTS sale")
    project.sql("DROP MATERIALIZED VIEW IF EXISTS sale")
    with pytest.raises(RelationNotFoundError, match="'sales' is a table, not a view"):
        project.sql("DROP MATERIALIZED VIEW sales")
    with pytest.raises(RelationNotFoundError, match="there is no table, source or view 'x'"):
        project.read("x")
    with pytest.raises(RelationNotFoundError, match="there is no table 'x'"):
        project.table("x")


def test_a_table_that_views_use_stays(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT)")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE a > 0")
    project.sql("CREATE MATERIALIZED VIEW w AS SELECT sum(a) AS s FROM v")
    with pytest.raises(WindrowError, match="table t is used by the views v; drop them first"):
        project.sql("DROP TABLE t")
    with pytest.raises(WindrowError, match="view v is used by the views w"):
        project.sql("DROP MATERIALIZED VIEW v")
    for text in ("DROP MATERIALIZED VIEW w", "DROP VIEW v", "DROP TABLE t"):
        project.sql(text)
    assert ask(project, "SHOW TABLES") == []


def test_as_select(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT NOT NULL, b STRING)")
    project.sql("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    project.sql("CREATE TABLE u COMMENT 'a copy' AS SELECT a + 1 AS a, b FROM t")
    assert ask(project, "SELECT * FROM u") == [(2, "x"), (2, "x"), (3, None)]
    project.sql("INSERT INTO u VALUES (NULL, NULL)")  # what can be NULL there is not a rule here
    project.sql("CREATE TABLE none AS SELECT * FROM t WHERE false")
    assert ask(project, "SELECT * FROM none") == []


def test_a_table_that_fails_to_be_filled_is_not_there(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT id FROM range(3)")
    before = project._statements.history.version
    with pytest.raises(WindrowError, match="DIVIDE_BY_ZERO"):
        project.sql("CREATE TABLE u AS SELECT 1 / (id - 1) AS x FROM t")
    assert project._statements.history.version == before
    assert ask(project, "SHOW TABLES") == [("t", "table", None)]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("CREATE TABLE t (a INT, A INT)", SchemaError, "'A' occurs twice"),
        ("CREATE TABLE t AS SELECT 1 AS x, 2 AS x", SchemaError, "occurs twice"),
        ("CREATE TABLE t (_diff INT)", SchemaError, "belong to Windrow"),
        ("CREATE TABLE t (m MAP<INT, INT>)", SchemaError, "all of its columns are maps"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", WindrowError, "b"),
        ("CREATE TABLE t (a INT DEFAULT 'x')", SQLError, "CANNOT_SAFELY_CAST"),
        ("CREATE TABLE t (a INT, b INT DEFAULT a)", SQLError, "is not a constant"),
        ("CREATE TABLE t (a INT DEFAULT (SELECT 1))", SQLError, "is not a constant"),
        ("CREATE TABLE t (x VARIANT)", SchemaError, "column 'x': type variant"),
        ("CREATE TABLE t (s STRUCT<x: ARRAY<INTERVAL>>)", SchemaError, "'s'.x element"),
    ],
)
def test_tables_that_cannot_be(
    project: wr.Project, text: str, error: type[WindrowError], said: str
) -> None:
    with pytest.raises(error, match=said):
        project.sql(text)
    assert project._statements.history.version == 0


# Types

TYPES: dict[str, list[str]] = {
    "BOOLEAN": ["true", "NULL"],
    "TINYINT": ["-128Y"],
    "SMALLINT": ["32767S"],
    "BIGINT": ["9223372036854775807"],
    "FLOAT": ["CAST('NaN' AS FLOAT)", "1.5f"],
    "DOUBLE": ["CAST('-Infinity' AS DOUBLE)", "0.1"],
    "DECIMAL(38,10)": ["CAST('-9999999999999999999999999999.9999999999' AS DECIMAL(38,10))"],
    "STRING": ["''", "'ü'", "'a\\nb'"],
    "STRING COLLATE UTF8_LCASE": ["'A'", "'a'"],
    "CHAR(3)": ["'a'", "'abc'"],
    "VARCHAR(4)": ["'a'", "'abcd'"],
    "BINARY": ["X'00FF'"],
    "DATE": ["DATE'0001-01-01'", "DATE'9999-12-31'"],
    "TIMESTAMP": ["TIMESTAMP'0001-01-01 00:00:00'", "TIMESTAMP'+294247-01-10 04:00:54.775807'"],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'2020-01-01 00:00:00.123456'"],
    "INTERVAL YEAR TO MONTH": [
        "INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL '-178956970-8' YEAR TO MONTH",
        "NULL",
    ],
    "INTERVAL YEAR": ["INTERVAL '5' YEAR"],
    "INTERVAL DAY TO SECOND": [
        "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
        "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
    ],
    "INTERVAL MINUTE TO SECOND": ["INTERVAL '3:04.5' MINUTE TO SECOND"],
    "VOID": ["NULL"],
    "STRUCT<>": ["NULL", "from_json('{}', 'struct<>')"],
    "STRUCT<a: INT, b: INTERVAL DAY>": [
        "named_struct('a', 1, 'b', INTERVAL '3' DAY)",
        "NULL",
        "named_struct('a', NULL, 'b', NULL)",
    ],
    "ARRAY<INTERVAL MONTH>": ["array(INTERVAL '1' MONTH, NULL)", "array()", "NULL"],
    "MAP<INTERVAL MONTH, INTERVAL DAY>": ["map(INTERVAL '1' MONTH, INTERVAL '2' DAY)"],
    "MAP<STRING, ARRAY<STRUCT<x: DATE>>>": ["map('k', array(named_struct('x', DATE'2020-01-01')))"],
    "ARRAY<CHAR(2)>": ["array('x')"],
}


def test_values_of_every_type_come_back(project: wr.Project) -> None:
    """A column of each type: written here, inserted by tasks, moved, and retracted."""
    count = max(map(len, TYPES.values()))
    padded = [values + ["NULL"] * (count - len(values)) for values in TYPES.values()]
    columns = ", ".join(f"v{i} {type_}" for i, type_ in enumerate(TYPES))
    project.sql(f"CREATE TABLE t (k INT, {columns})")
    listed = ", ".join(
        f"({k}, {', '.join(row)})" for k, row in enumerate(zip(*padded, strict=True))
    )
    project.sql(f"INSERT INTO t VALUES {listed}")
    texts = ", ".join(f"CAST(v{i} AS STRING) AS `{type_}`" for i, type_ in enumerate(TYPES))
    casts = [
        ", ".join(f"CAST(CAST({v} AS {t}) AS STRING)" for v, t in zip(row, TYPES, strict=True))
        for row in zip(*padded, strict=True)
    ]
    expected = [list(project.sql(f"SELECT {one}").collect()[0]) for one in casts]
    names = list(TYPES)
    for row, short in ((0, "a  "), (1, "abc")):  # padded where they are stored
        expected[row][names.index("CHAR(3)")] = short
    expected[0][names.index("ARRAY<CHAR(2)>")] = "[x ]"

    def stored(condition: str) -> list[list[Any]]:
        frame = project.sql(f"SELECT {texts} FROM t WHERE {condition} ORDER BY k")
        assert frame is not None
        return [list(row) for row in frame.collect()]

    for found, row in zip(stored("true"), expected, strict=True):
        assert dict(zip(names, found, strict=True)) == dict(zip(names, row, strict=True))
    project.sql("INSERT INTO t SELECT k + 10 AS k, * EXCEPT (k) FROM t")  # by tasks
    assert stored("k < 10") == stored("k >= 10") == expected
    project.sql("DELETE FROM t WHERE k >= 10")
    project.sql("UPDATE t SET k = k + 1")
    assert stored("true") == stored("k > 0") == expected
    types = project.sql(f"SELECT {', '.join(f'typeof(v{i})' for i in range(len(names)))} FROM t")
    assert types is not None
    told = dict(zip(names, types.first(), strict=True))
    assert told["INTERVAL YEAR"] == "interval year"
    assert told["STRING COLLATE UTF8_LCASE"] == "string collate UTF8_LCASE"
    assert told["STRUCT<a: INT, b: INTERVAL DAY>"] == "struct<a:int,b:interval day>"


def test_time_where_spark_has_it(project: wr.Project) -> None:
    project.sql("SET spark.sql.timeType.enabled = true")
    project.sql("CREATE TABLE t (k INT, v TIME(6))")
    project.sql("INSERT INTO t VALUES (1, TIME'23:59:59.123456')")
    assert ask(project, "SELECT k, CAST(v AS STRING), typeof(v) FROM t") == [
        (1, "23:59:59.123456", "time(6)")
    ]


def test_lengths_are_enforced_as_spark_does(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (c CHAR(3), v VARCHAR(4))")
    project.sql("INSERT INTO t VALUES ('a', 'abcd  ')")  # blanks may be cut off
    assert ask(project, "SELECT concat(c, '|'), concat(v, '|') FROM t") == [("a  |", "abcd|")]
    assert ask(project, "SELECT count(*) FROM t WHERE c = 'a'") == [(1,)]
    for text in ("INSERT INTO t VALUES ('abcd', '')", "UPDATE t SET v = 'abcde'"):
        with pytest.raises(WindrowError, match="EXCEED_LIMIT_LENGTH"):
            project.sql(text)
    assert ask(project, "SHOW CREATE TABLE t")[0][0].count("CHAR(") == 2


def test_collations_compare_and_rows_stay_apart(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (s STRING COLLATE UTF8_LCASE)")
    project.sql("INSERT INTO t VALUES ('A'), ('a')")
    assert ask(project, "SELECT count(*), count(DISTINCT s) FROM t") == [(2, 1)]


def test_storable_schemas(spark: Any) -> None:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(
        "i INTERVAL YEAR, d INTERVAL HOUR, s STRUCT<x: INTERVAL DAY>, n INT"
    )
    found = Storable.of(schema, "table t")
    assert found.stored.simpleString() == "struct<i:int,d:bigint,s:struct<x:bigint>,n:int>"
    assert found.arrow.field("d").type == pa.int64()
    with pytest.raises(SchemaError, match="table t: there are no columns"):
        Storable.of(StructType([]), "table t")


def test_fields_of_one_name_are_told_apart(spark: Any) -> None:
    """A Delta table has no two fields of one name, whatever their case; a query may."""
    from pyspark.sql import functions as F  # noqa: N812

    made = (
        "array(named_struct('a', id, 'A', named_struct('b', 'x', 'b', INTERVAL '1' DAY), 'a_2', 7))"
    )
    frame = spark.range(3).select(F.expr(made).alias("s"), F.expr("map(id, NULL)").alias("m"))
    found = Storable.of(frame.schema, "view v")
    inner = "struct<b:string,b_2:bigint>"
    assert found.stored["s"].dataType.simpleString() == (
        f"array<struct<a:bigint,A_2:{inner},a_2_2:int>>"
    )
    stored = found.to_stored(frame)
    assert stored.schema.simpleString() == found.stored.simpleString()
    again = found.from_stored(stored)
    assert again.schema.simpleString() == frame.schema.simpleString()
    assert again.collect() == frame.collect()


def test_odd_names(project: wr.Project) -> None:
    project.sql("CREATE TABLE `odd name` (`a.b` INT, `x y` STRING, `q``r` INT DEFAULT 7)")
    project.sql("INSERT INTO `odd name` (`x y`, `a.b`) VALUES ('z', 1)")
    project.sql("UPDATE `odd name` SET `a.b` = `a.b` + `q``r` WHERE `x y` = 'z'")
    assert ask(project, "SELECT * FROM `ODD NAME`") == [(8, "z", 7)]
    (text,) = ask(project, "SHOW CREATE TABLE `odd name`")[0]
    project.sql("DROP TABLE `odd name`")
    project.sql(text)  # it is SQL again
    assert ask(project, "SHOW COLUMNS IN `odd name`") == [("a.b",), ("q`r",), ("x y",)]


def test_names_of_fields_stay_as_they_are(project: wr.Project) -> None:
    type_ = "STRUCT<x: INT, `Odd name`: MAP<STRING, ARRAY<STRUCT<y: DECIMAL(5,2) NOT NULL>>>>"
    project.sql(f"CREATE TABLE nested (id INT, s {type_})")
    (text,) = ask(project, "SHOW CREATE TABLE nested")[0]
    assert type_ in text
    described = ask(project, "DESCRIBE nested")
    project.sql("DROP TABLE nested")
    project.sql(text)
    assert ask(project, "DESCRIBE nested") == described


# What is said of them


def test_show_and_describe(project: wr.Project) -> None:
    project.sql(
        "CREATE TABLE sales (id INT COMMENT 'the key', v VARCHAR(9) DEFAULT 'it''s', "
        "PRIMARY KEY (id)) COMMENT 'all of them'"
    )
    project.sql("CREATE TABLE other (a INT)")
    project.sql("CREATE MATERIALIZED VIEW totals COMMENT 'sums' AS SELECT count(*) AS n FROM sales")
    assert ask(project, "SHOW TABLES") == [
        ("other", "table", None),
        ("sales", "table", "all of them"),
        ("totals", "view", "sums"),
    ]
    assert ask(project, "SHOW TABLES LIKE 's*|o*'")[0][0] == "other"
    views = [("totals", "SELECT count(*) AS n FROM sales", "sums")]
    assert ask(project, "SHOW MATERIALIZED VIEWS") == ask(project, "SHOW VIEWS") == views
    assert ask(project, "SHOW VIEWS LIKE 'x*'") == []
    described = [tuple(row) for row in project.sql("DESCRIBE sales").collect()]
    assert described == [("id", "int", "the key"), ("v", "varchar(9)", None)]
    more = {row[0]: row[1] for row in project.sql("DESCRIBE EXTENDED sales").collect()}
    assert more["Primary key"] == "id"
    assert more["Used by"] == "totals"
    more = {row[0]: row[1] for row in project.sql("DESCRIBE EXTENDED totals").collect()}
    assert more["Inputs"] == "sales"
    assert ask(project, "DESCRIBE QUERY SELECT id, 1.5 AS x FROM sales") == [
        ("id", "int", "the key"),
        ("x", "decimal(2,1)", None),
    ]
    (text,) = ask(project, "SHOW CREATE TABLE sales")[0]
    project.sql(text.replace("sales", "again"))
    assert ask(project, "DESCRIBE again") == ask(project, "DESCRIBE sales")
    (text,) = ask(project, "SHOW CREATE TABLE totals")[0]
    assert text.startswith("CREATE MATERIALIZED VIEW totals\nCOMMENT 'sums' AS\nSELECT")


# From Python


def test_rows_of_every_kind_are_inserted(project: wr.Project, spark: Any) -> None:
    project.sql("CREATE TABLE t (a INT NOT NULL, b STRING DEFAULT 'd', c DOUBLE, PRIMARY KEY (a))")
    table = project.table("T")
    assert repr(table) == "Table('t')"
    assert table.key == ("a",)
    table.insert([{"a": 1, "c": 2}, {"a": 2, "b": None, "c": 2.5}])
    table.insert({"B": "x", "A": 3})
    table.insert(pa.table({"a": [4], "b": ["y"]}))
    table.insert(pa.table({"a": [5]}).to_batches()[0])
    table.insert(pd.DataFrame({"a": [6], "c": [None]}))
    table.insert(spark.range(7, 8).selectExpr("CAST(id AS INT) AS a"))
    table.insert([])
    assert rows(table.rows()) == [
        (1, "d", 2.0),
        (2, None, 2.5),
        (3, "x", None),
        (4, "y", None),
        (5, "d", None),
        (6, "d", None),
        (7, "d", None),
    ]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ([{"a": "one"}], SQLError, "CANNOT_SAFELY_CAST"),
        ([{"nosuch": 1}], SchemaError, "there is no column 'nosuch'"),
        ([{"b": "x"}], DataError, "column 'a' is NOT NULL"),
        (7, OptionError, "cannot read rows from a int"),
        ([1, 2], OptionError, "cannot read rows from a list"),
        ([{"a": 1}, {"a": "x"}], SchemaError, "no common type"),
        ([{"a": 2**40}], WindrowError, "OVERFLOW"),
    ],
)
def test_rows_that_cannot_be_inserted(
    project: wr.Project, given: Any, error: type[WindrowError], said: str
) -> None:
    project.sql("CREATE TABLE t (a INT NOT NULL, b STRING)")
    with pytest.raises(error, match=said):
        project.table("t").insert(given)
    assert rows(project.read("t")) == []


def test_deleting(project: wr.Project) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    project.sql("CREATE TABLE t AS SELECT CAST(id AS INT) AS a, 'x' AS b FROM range(8)")
    table = project.table("t")
    table.delete("a >= 6")
    table.delete(F.col("a") == 5)
    table.delete([{"a": 4, "b": "x"}, {"b": "x", "a": 3}])
    table.delete(project.sql("SELECT * FROM t WHERE a = 2"))
    assert rows(table.rows()) == [(0, "x"), (1, "x")]
    with pytest.raises(DataError, match=r"1 time more .* than it is there: {'a': 9,"):
        table.delete([{"a": 0, "b": "x"}, {"a": 9, "b": "x"}])
    with pytest.raises(SchemaError, match="missing: b"):
        table.delete([{"a": 0}])
    with pytest.raises(SQLError, match="UNRESOLVED_COLUMN"):
        table.delete("z = 1")
    assert rows(table.rows()) == [(0, "x"), (1, "x")]


def test_applying_changes(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT, b STRING)")
    table = project.table("t")
    feed = [
        {"a": 1, "b": "x", "_change_type": "insert"},
        {"a": 2, "b": "x", "_change_type": "insert"},
    ]
    table.apply(feed)
    table.apply(
        pa.table(
            {
                "b": ["x", "y", "x"],
                "a": [1, 1, 2],
                "_change_type": ["update_preimage", "update_postimage", "delete"],
                "_commit_timestamp": [dt.datetime(2024, 1, 1)] * 3,
            }
        )
    )
    assert rows(table.rows()) == [(1, "y")]
    table.apply([{"a": 1, "b": "y", "_diff": 2}, {"a": 5, "b": "z", "_diff": 1}])
    table.apply([{"a": 1, "b": "y", "_diff": -3}, {"a": 5, "b": "z", "_diff": 0}])
    assert rows(table.rows()) == [(5, "z")]
    # What comes and goes in one batch does not have to be there before.
    table.apply([{"a": 8, "b": None, "_diff": -1}, {"a": 8, "b": None, "_diff": 1}])
    for given, error, said in (
        ([{"a": 5, "b": "z", "_diff": -2}], DataError, "1 time more often"),
        ([{"a": 5, "b": "z", "_change_type": "zap"}], DataError, "_change_type is zap"),
        ([{"a": 5, "b": "z", "_diff": None}], WindrowError, "_diff is NULL"),
        ([{"a": 5, "b": "z"}], SchemaError, "give a column _change_type or _diff"),
        ([{"a": 5, "b": "z", "q": 1, "_diff": 1}], SchemaError, "no columns q"),
    ):
        with pytest.raises(error, match=said):
            table.apply(given)
    assert rows(table.rows()) == [(5, "z")]


def test_a_feed_of_changes_makes_the_same_table_elsewhere(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a))")
    project.sql("CREATE TABLE copy (a INT, b STRING, PRIMARY KEY (a))")
    table = project.table("t")
    start = table.insert([{"a": n, "b": "x"} for n in range(4)])
    project.table("copy").insert(project.read("t", start))
    project.sql("UPDATE t SET b = 'y' WHERE a < 2")
    middle = project._statements.history.time
    project.sql("DELETE FROM t WHERE a = 3")
    project.sql("INSERT INTO t VALUES (9, NULL), (9, NULL)")
    feed = project.changes("t", start)
    kinds = sorted((row.a, row["_change_type"]) for row in feed.collect())
    assert kinds == [
        (0, "update_postimage"),
        (0, "update_preimage"),
        (1, "update_postimage"),
        (1, "update_preimage"),
        (3, "delete"),
        (9, "insert"),
        (9, "insert"),
    ]
    versions = project.changes("t", start, middle).select("_commit_version").distinct()
    assert [row[0] for row in versions.collect()] == [middle]
    project.table("copy").apply(feed)
    assert rows(project.read("copy")) == rows(project.read("t"))
    with pytest.raises(OptionError, match="is after end"):
        project.changes("t", middle, start)
    with pytest.raises(WindrowError, match="its changes are known from"):
        project.changes("t", start, middle + 10**9)


def test_views_of_dataframes(project: wr.Project) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    project.sql("CREATE TABLE t (a INT, b STRING)")
    project.sql("INSERT INTO t VALUES (1, 'x'), (2, 'x'), (3, 'y')")
    project.view("sums", project.read("t").groupBy("b").agg(F.sum("a").alias("s")))
    left, right = project.read("t").alias("l"), project.sql("SELECT * FROM t").alias("r")
    pairs = left.join(right, F.expr("l.a < r.a")).select(F.expr("l.a AS x"), F.expr("r.a AS y"))
    project.view("pairs", pairs)
    project.sql("INSERT INTO t VALUES (4, 'y')")
    assert ask(project, "SELECT * FROM sums") == [("x", 3), ("y", 7)]
    assert ask(project, "SELECT count(*) FROM pairs") == [(6,)]
    with pytest.raises(WindrowError):
        project.view("sums", project.read("t"))


def test_a_view_of_rows_that_are_not_the_projects(project: wr.Project, spark: Any) -> None:
    foreign = spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "a INT")
    with pytest.raises(UnsupportedSQL):
        project.view("v", foreign)
