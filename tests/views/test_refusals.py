"""What cannot be maintained is refused when it is created: by name, with its place in the text.

Nothing is left behind: no view, no file, and the next statement works.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from view_cases import RELEASE, release

import windrow
from windrow.errors import UnsupportedSQL
from windrow.views.engine import planning

# What is refused, the word that the message has to name, and the query around it.
REFUSED = [
    ("rand", "SELECT k, rand() AS r FROM t"),
    ("rand", "SELECT k FROM t WHERE rand() < 0.5"),
    ("rand", "SELECT k, sum(v) AS s FROM t GROUP BY k HAVING rand(1) < 0.5"),
    ("randn", "SELECT k, randn() AS r FROM t"),
    ("uuid", "SELECT k, uuid() AS u FROM t"),
    ("shuffle", "SELECT shuffle(array(k, v)) AS s FROM t"),
    ("randstr", "SELECT randstr(5) AS s FROM t"),
    ("current_timestamp", "SELECT k, current_timestamp() AS at FROM t"),
    ("current_timestamp", "SELECT k FROM t WHERE ts > current_timestamp - INTERVAL 1 DAY"),
    ("current_date", "SELECT k FROM t WHERE CAST(ts AS DATE) = current_date()"),
    ("current_date", "SELECT k, count(*) AS c FROM t GROUP BY k, current_date()"),
    ("now", "SELECT k, now() AS at FROM t"),
    ("localtimestamp", "SELECT k, localtimestamp() AS at FROM t"),
    ("unix_timestamp", "SELECT k, unix_timestamp() AS at FROM t"),
    ("current_user", "SELECT k FROM t WHERE g = current_user()"),
    ("session_user", "SELECT k, session_user() AS u FROM t"),
    ("first", "SELECT k, first(v) AS f FROM t GROUP BY k"),
    ("last", "SELECT k, last(v) AS f FROM t GROUP BY k"),
    ("first_value", "SELECT k, first_value(v) AS f FROM t GROUP BY k"),
    ("any_value", "SELECT k, any_value(v) AS f FROM t GROUP BY k"),
    ("first", "SELECT k, first(v) OVER (PARTITION BY k) AS f FROM t"),
    ("TABLESAMPLE", "SELECT k FROM t TABLESAMPLE (50 PERCENT)"),
    ("monotonically_increasing_id", "SELECT k, monotonically_increasing_id() AS i FROM t"),
    ("spark_partition_id", "SELECT k, spark_partition_id() AS p FROM t"),
    ("input_file_name", "SELECT k, input_file_name() AS f FROM t"),
    ("random_length", "SELECT k, random_length(g) AS r FROM t"),
    ("rand", "SELECT k FROM t WHERE v IN (SELECT CAST(rand() AS INT) FROM t)"),
    ("TIMESTAMP 'now'", "SELECT k FROM t WHERE ts > TIMESTAMP 'now'"),
    ("CAST('today' AS DATE)", "SELECT k, CAST('today' AS DATE) AS d FROM t"),
    ("to_timestamp('now')", "SELECT k FROM t WHERE ts < to_timestamp('now')"),
    ("to_date(' Yesterday UTC')", "SELECT k, to_date(' Yesterday UTC') AS d FROM t"),
    ("CAST(concat('no', 'w') AS", "SELECT k, CAST(concat('no', 'w') AS TIMESTAMP) AS d FROM t"),
    (
        "current_date",
        "WITH a AS (SELECT k, current_date() AS d FROM t) SELECT k FROM a WHERE d > '2'",
    ),
]


@pytest.fixture(scope="module")
def project(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from pyspark.sql.functions import udf

    # Registered before the project clones the session.
    spark.udf.register("random_length", udf(lambda g: len(g or ""), "int").asNondeterministic())
    found = windrow.Project(tmp_path_factory.mktemp("refusals"), spark=spark, progress=False)
    found.sql("CREATE TABLE t (k INT, v INT, g STRING, ts TIMESTAMP)")
    found.sql("INSERT INTO t VALUES (1, 1, 'a', TIMESTAMP '2024-01-01 00:00:00')")
    return found


def files(project: Any) -> set[Path]:
    root = Path(project._store.uri.removeprefix("file://"))
    return {path for path in root.rglob("*") if path.is_file()}


def views(project: Any) -> list[Any]:
    return project.sql("SHOW VIEWS").collect()


@pytest.mark.parametrize(("word", "query"), REFUSED, ids=lambda text: text[:60])
def test_refused(project: Any, word: str, query: str) -> None:
    before = files(project), views(project)
    text = f"CREATE MATERIALIZED VIEW refused AS\n{query}"
    with pytest.raises(UnsupportedSQL) as caught:
        project.sql(text)
    assert word.lower() in str(caught.value).lower()
    line, column = caught.value.line, caught.value.column
    assert line == 2, f"line {line} of: {caught.value}"
    assert column is not None
    # The place is that of the construct, counted from 1.
    at = text.splitlines()[1][column - 1 :].lower()
    assert word.lower() in at[: len(word) + 20], f"column {column} is {at[:30]!r}"
    assert (files(project), views(project)) == before
    with pytest.raises(windrow.errors.RelationNotFoundError):
        project.read("refused")


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (
            "WITH RECURSIVE .* Instead, join",
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) TABLE r",
        ),
        ("TRANSFORM .* script", "SELECT TRANSFORM(k, v) USING 'cat' AS (a, b) FROM t"),
        ("variant cannot be stored; store its text", "SELECT parse_json('{}') AS j FROM t"),
        ("'_diff', which belongs to Windrow; rename it", "SELECT k AS _diff FROM t"),
        ("two columns are named 'k'; rename one", "SELECT a.k, b.k FROM t a JOIN t b ON a.v = b.v"),
        (
            "Spark itself fails to plan .* another way",
            "SELECT listagg(DISTINCT g, '|') WITHIN GROUP (ORDER BY g) AS a, "
            "listagg(DISTINCT k::STRING, ',') WITHIN GROUP (ORDER BY k::STRING) AS b FROM t",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_an_operator_is_refused_with_a_place(project: Any, words: str, query: str) -> None:
    before = files(project), views(project)
    with pytest.raises(UnsupportedSQL, match=words) as caught:
        project.sql(f"CREATE MATERIALIZED VIEW refused AS\n{query}")
    assert caught.value.line == 2
    assert caught.value.column is not None
    assert "line 2, column" in str(caught.value)
    assert (files(project), views(project)) == before


@pytest.mark.skipif(release(RELEASE) < (4, 3), reason="older releases of Spark do not know it")
@pytest.mark.parametrize("kind", ["EXACT NEAREST 2 BY DISTANCE", "APPROX NEAREST BY SIMILARITY"])
def test_what_spark_computes_with_random_numbers_is_refused(project: Any, kind: str) -> None:
    query = f"SELECT a.k, b.v FROM t a JOIN t b {kind} abs(a.k - b.v)"
    with pytest.raises(UnsupportedSQL, match=r"NEAREST BY .*random.* Instead, join LATERAL"):
        project.sql(f"CREATE MATERIALIZED VIEW refused AS {query}")


def test_random_numbers_of_the_optimiser_are_refused(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "refuse", lambda *arguments: None)  # as if nobody had known
    with pytest.raises(UnsupportedSQL, match=r"with uuid\(\), whose value differs each time"):
        project.sql("CREATE MATERIALIZED VIEW refused AS SELECT k, uuid() AS u FROM t")


def test_any_row_of_a_frame_is_refused(project: Any) -> None:
    frame = project.sql("SELECT k, v FROM t")
    with pytest.raises(UnsupportedSQL, match="any row would do"):
        project.view("refused", frame.dropDuplicates(["k"]))
    project.view("fine", frame.dropDuplicates())
    project.sql("DROP MATERIALIZED VIEW fine")


def test_what_is_refused_says_what_to_write_instead(project: Any) -> None:
    with pytest.raises(UnsupportedSQL, match=r"(?i)min_by|max_by|order"):
        project.sql("CREATE MATERIALIZED VIEW r AS SELECT k, first(v) AS f FROM t GROUP BY k")


def test_the_name_is_free_after_a_refusal(project: Any) -> None:
    with pytest.raises(UnsupportedSQL):
        project.sql("CREATE MATERIALIZED VIEW again AS SELECT rand() AS r FROM t")
    project.sql("CREATE MATERIALIZED VIEW again AS SELECT k, max_by(v, ts) AS f FROM t GROUP BY k")
    assert [tuple(row) for row in project.read("again").collect()] == [(1, 1)]
    project.sql("DROP MATERIALIZED VIEW again")


@pytest.mark.parametrize(
    "query",
    [
        # Deterministic, although it looks like what is refused.
        "SELECT k, first_value(v) OVER (PARTITION BY k ORDER BY ts, v) AS f FROM t",
        "SELECT k, 'rand()' AS r, v AS now FROM t",
        "SELECT k, unix_timestamp(ts) AS at FROM t",
        "SELECT k, last_day(ts) AS d FROM t",
        "SELECT k, current_date AS d FROM (SELECT k, v AS current_date FROM t)",
    ],
)
def test_not_refused(project: Any, query: str) -> None:
    project.sql(f"CREATE MATERIALIZED VIEW fine AS {query}")
    assert project.read("fine").count() == 1
    project.sql("DROP MATERIALIZED VIEW fine")
