"""The settings of the user's session change nothing, and are not changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import windrow as wr
from windrow import agg
from windrow.errors import DataError
from windrow.spark.session import Engine

ODD = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
COLUMNS = "user BIGINT, n BIGINT, at TIMESTAMP"
TEXT = "2021-03-14 07:30:00"  # does not exist in New York, where clocks were put forward
HALF_PAST_SEVEN = 1_615_707_000_000
CSV = f"user,n,at\n1,5,{TEXT}\n1,0,2021-03-14 23:30:00\n2,3,2021-03-15 00:30:00\n"
JSON = (
    f'{{"user": 1, "n": 5, "at": "{TEXT}"}}\n'
    '{"user": 1, "n": 0, "at": "2021-03-14 23:30:00"}\n'
    '{"user": 2, "n": 3, "at": "2021-03-15 00:30:00"}\n'
)


@pytest.fixture
def odd(spark: Any) -> Any:
    """A session of a user with settings of their own."""
    session = spark.newSession()
    for name, value in ODD.items():
        session.conf.set(name, value)
    return session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events.csv").write_text(CSV)
    (tmp_path / "events.json").write_text(JSON)
    at = pa.array([HALF_PAST_SEVEN + hours * 3_600_000 for hours in (0, 16, 17)])
    plain = {"user": [1, 1, 2], "n": [5, 0, 3], "at": at.cast(pa.timestamp("ms", "UTC"))}
    pq.write_table(pa.table(plain), tmp_path / "events.parquet")
    local = plain | {"at": at.cast(pa.timestamp("ms"))}
    pq.write_table(pa.table(local), tmp_path / "local.parquet")
    queries = {"user": [1, 2], "said": ["2021-03-15 01:00:00"] * 2, "at": ["2021-03-16"] * 2}
    pq.write_table(pa.table(queries), tmp_path / "queries.parquet")
    return tmp_path


TO_TIME = {"user": "user", "n": "N", "at": "to_timestamp(at, 'yyyy-MM-dd HH:mm:ss')"}
SOURCES: dict[str, dict[str, Any]] = {
    "csv": {"table": "events.csv"},
    "csv, where": {"table": "events.csv", "where": f"at >= '{TEXT}' AND hour(AT) < 24"},
    "json, select": {"table": "events.json", "select": TO_TIME},
    "parquet": {"table": "events.parquet"},
    "parquet, where": {"table": "events.parquet", "where": f"at >= timestamp'{TEXT}'"},
    "no zone": {"table": "local.parquet"},
    "no zone, by Spark": {"table": "local.parquet", "where": "n >= 0"},
}


def join(folder: Path, source: dict[str, Any], **left: Any) -> wr.Join:
    table = source["table"]
    if isinstance(table, str) and "." in table:
        table = str(folder / table)
    events = wr.EventSource("views", **{**source, "table": table, "time": "at"})
    features = [
        agg.last("at"),
        agg.sum("n").over("1d", kind="sliding"),
        agg.count("n").where("hour(at) = 7"),
    ]
    queries = wr.Queries(
        **{
            "table": str(folder / "queries.parquet"),
            "time": "at",
            "select": {"user": "User", "at": "to_timestamp(said)"},
            **left,
        }
    )
    derive = {"hour": "hour(g_at_last)", "text": "CAST(at AS STRING)"}
    return wr.Join("j", queries, [wr.GroupBy("g", events, ["user"], features)], derive=derive)


def found(spark: Any, folder: Path, join: wr.Join, root: str) -> list[tuple[Any, ...]]:
    frame = wr.Project(folder / root, spark=spark).backfill(join)
    assert frame.sparkSession is spark
    table = frame.select("user", "at", "g_n_sum_1d", "g_n_count", "hour", "text").toArrow()
    at = table.column("at").cast(pa.int64()).to_pylist()
    rest = zip(*(column.to_pylist() for column in table.columns[2:]), strict=True)
    users = table.column("user").to_pylist()
    return sorted((u, t // 1_000, *more) for u, t, more in zip(users, at, rest, strict=True))


MIDNIGHT_AND_ONE = HALF_PAST_SEVEN + 17 * 3_600_000 + 1_800_000
EXPECTED = [
    (1, MIDNIGHT_AND_ONE, 5, 1, 23, "2021-03-15 01:00:00"),
    (2, MIDNIGHT_AND_ONE, 3, 0, 0, "2021-03-15 01:00:00"),
]


@pytest.mark.parametrize("name", SOURCES)
def test_files_and_expressions_mean_the_same_in_every_session(
    spark: Any, odd: Any, folder: Path, name: str
) -> None:
    assert found(odd, folder, join(folder, SOURCES[name]), "odd") == EXPECTED
    assert {key: odd.conf.get(key) for key in ODD} == ODD
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.sessionUUID() == spark._jsparkSession.sessionUUID()


def test_and_in_one_with_plain_settings(spark: Any, folder: Path) -> None:
    for name in ("csv", "no zone, by Spark"):
        assert found(spark, folder, join(folder, SOURCES[name]), name[:3]) == EXPECTED


@pytest.mark.parametrize("given", ["a DataFrame", "a view"])
def test_what_the_user_made_is_what_it_is_in_their_session(
    odd: Any, folder: Path, given: str
) -> None:
    """Times without a zone are those of New York in it; what Windrow adds is in UTC."""
    odd.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    frame = odd.read.schema(COLUMNS).csv(str(folder / "events.csv"), header=True)
    frame = frame.where("n / 0 IS NULL AND hour(at) < 24")
    table: Any = frame
    if given == "a view":
        frame.createOrReplaceTempView("csv_events")
        table = "csv_events"
    left = odd.sql("SELECT user, timestamp'2021-03-15 05:00:00' AS at FROM VALUES (1), (2) t(user)")
    source = {"table": table, "where": "hour(at) >= 3"}
    both = join(folder, source, table=left, select=["user", "at"])
    later = MIDNIGHT_AND_ONE + 8 * 3_600_000  # of which 4 are summer time in New York
    assert found(odd, folder, both, "given") == [
        (1, later, 5, 0, 3, "2021-03-15 09:00:00"),
        (2, later, 3, 0, 4, "2021-03-15 09:00:00"),
    ]


def test_a_dataframe_beside_files(odd: Any, folder: Path) -> None:
    """Sources that have to be read in different sessions, in one group."""
    odd.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    frame = odd.read.schema(COLUMNS).csv(str(folder / "events.csv"), header=True)
    sources = [
        wr.EventSource("files", str(folder / "events.csv"), time="at"),
        wr.EventSource("frame", frame, time="at"),
    ]
    group = wr.GroupBy("g", sources, ["user"], [agg.collect_list("at")])
    left = {"select": {"user": "user", "at": "to_timestamp(at)"}}
    queries = wr.Queries(str(folder / "queries.parquet"), time="at", **left)
    one = wr.Project(folder / "state", spark=odd).backfill(wr.Join("j", queries, [group]))
    hours = one.selectExpr("user", "transform(g_at_collect_list, t -> unix_millis(t))").collect()
    since = {user: [(t - HALF_PAST_SEVEN) // 1_800_000 for t in times] for user, times in hours}
    # In half hours, 4 hours later in New York: 7:30, 11:30, 23:30, 3:30; 0:30, 4:30.
    assert since == {1: [0, 8, 32, 40], 2: [34, 42]}


FAILING = {
    "select": {"table": "events.parquet", "select": {"user": "user", "at": "at", "n": "10 / n"}},
    "where": {"table": "events.csv", "where": "10 / n > 1"},
    "cast": {"table": "events.json", "select": TO_TIME | {"n": "CAST(concat('x', n) AS INT)"}},
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_in_ansi_mode_fails(odd: Any, folder: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"(?i)division by zero|'x5'|'x0'|'x3'"):
        found(odd, folder, join(folder, FAILING[name]), "failing")


def test_expressions_over_a_dataframe_fail_too(odd: Any, folder: Path) -> None:
    frame = odd.sql("SELECT 1L AS user, 0L AS n, timestamp_ltz'2021-03-14 12:00:00' AS at")
    with pytest.raises(DataError, match=r"(?i)division by zero"):
        found(odd, folder, join(folder, {"table": frame, "where": "1 / n > 0"}), "failing")


def test_views_and_functions_of_the_session_are_found(odd: Any, folder: Path) -> None:
    """Also those that are added after the project, and tables of another current database."""
    project = wr.Project(folder / "state", spark=odd)
    odd.read.parquet(str(folder / "events.parquet")).createOrReplaceTempView("first_events")
    first = project.backfill(join(folder, {"table": "first_events"}))
    assert first.count() == 2
    odd.udf.register("double_of", lambda n: 2 * n, "long")
    odd.read.parquet(str(folder / "events.parquet")).createOrReplaceTempView("later_events")
    select = {"user": "user", "at": "at", "n": "double_of(n)"}
    later = project.backfill(join(folder, {"table": "later_events", "select": select}))
    assert sorted(r.g_n_sum_1d for r in later.collect()) == [6, 10]


def test_the_running_session_is_taken_as_it_is(spark: Any) -> None:
    zone, partitions = "spark.sql.session.timeZone", "spark.sql.shuffle.partitions"
    spark.conf.set(zone, "Asia/Tokyo")
    spark.conf.set(partitions, "3")
    try:
        engine = Engine()
        assert engine.given.sparkContext is spark.sparkContext
        assert engine.spark.conf.get(zone) == "UTC"
        assert engine.spark.conf.get(partitions) == "3"
        assert spark.conf.get(zone) == "Asia/Tokyo"
        assert spark.conf.get(partitions) == "3"
    finally:
        spark.conf.set(zone, "UTC")
        spark.conf.set(partitions, "8")
