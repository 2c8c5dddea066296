"""What is served equals what a backfill gives, for queries at the same time over the same rows."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from feature_oracle import same
from windrow import agg
from windrow.cli import main
from windrow.errors import DataError, DefinitionError, NotServedError, RequestError, StaleError
from windrow.online.fetched import Status
from windrow.online.keys import key_bytes

DAY, HOUR = 86_400_000, 3_600_000
START = 1_714_521_600_000  # 2024-05-01


def moment(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.UTC)


def write_views(path: Path, count: int = 3_000, keys: int = 40) -> None:
    rng = random.Random(5)
    times = [START + rng.randrange(20 * DAY) // 1000 * 1000 for _ in range(count)]
    pq.write_table(
        pa.table(
            {
                "user_id": [rng.randrange(keys) or None for _ in range(count)],
                "listing": [rng.choice(["a", "bb", "ccc", None]) for _ in range(count)],
                "price": [rng.choice([1.5, 0.1, -2.0, 1e300, None]) for _ in range(count)],
                "stars": pa.array([rng.randrange(6) for _ in range(count)], pa.int32()),
                "paid": [rng.random() < 0.3 for _ in range(count)],
                "ts": [moment(time) for time in times],
            }
        ),
        path,
    )


AGGREGATIONS = [
    agg.count("listing").over("1h", "1d", "7d"),
    agg.sum("stars").over("1d", "14d"),
    agg.avg("stars").over("7d"),
    agg.max("price"),
    agg.min("stars").over("2h", kind="sliding"),
    agg.last("listing").over("7d"),
    agg.first("stars").over("1d", kind="hopping"),
    agg.last_k("listing", 3).over("14d"),
    agg.unique_count("listing"),
    agg.histogram("stars").over("7d"),
    agg.sum("stars").over("7d").by("listing"),
    agg.variance("stars").over("7d"),
    agg.bool_or("paid").over("1d"),
    agg.count("stars").over("7d").where("paid AND stars > 2").named("paid_stars"),
]


def queries(path: Path, keys: list[Any], at: int) -> wr.Queries:
    pq.write_table(
        pa.table(
            {
                "user": keys,
                "weight": [2.0] * len(keys),
                "name": ["x"] * len(keys),
                "ts": [moment(at)] * len(keys),
            }
        ),
        path,
    )
    return wr.Queries(table=str(path), time="ts")


def assert_served(project: wr.Project, join: wr.Join, keys: list[Any], at: int) -> None:
    """Every feature of every key is what the backfill gives."""
    fetched = project.fetch(join, [{"user": key, "weight": 2.0} for key in keys], at=at)
    rows = {row["user"]: row for row in map(dict_of, project.backfill(join).collect())}
    for name, values in zip(fetched.names, fetched.columns, strict=True):
        for key, got in zip(keys, values, strict=True):
            assert same(pairs(got), pairs(rows[key][name])), f"{name} of {key} at {at}"


def dict_of(row: Any) -> dict[str, Any]:
    return row.asDict(recursive=True)


def pairs(value: Any) -> Any:
    return sorted(value.items(), key=str) if isinstance(value, dict) else value


KEYS = [1, 2, 3, 17, 39, 99]


def test_a_fetch_equals_a_backfill(spark: Any, tmp_path: Path, address: str) -> None:
    accuracy = "snapshot" if "redis" in address else "temporal"
    write_views(tmp_path / "views.parquet")
    views = wr.EventSource(name="views", table=str(tmp_path / "views.parquet"), time="ts")
    group = wr.GroupBy("activity", views, ["user_id"], AGGREGATIONS, accuracy=accuracy)
    sealed = START + 18 * DAY + 5 * HOUR
    project = wr.Project(tmp_path / "state", spark=spark, progress=False, online=address)
    join = wr.Join(
        "training",
        queries(tmp_path / "queries.parquet", KEYS, sealed),
        [group.on(user_id="user")],
        derive={
            "per_day": "activity_listing_count_7d / 7",
            "weighted": "coalesce(activity_stars_sum_1d, -1) * weight",
            "kind": "CASE WHEN per_day > 3 THEN 'busy' WHEN per_day > 0 THEN 'some' END",
        },
    )
    (uploaded,) = project.upload(join, as_of=sealed)
    assert uploaded.keys == 39
    for at in (sealed, sealed + 7 * 60_000 + 1, sealed + DAY, START + 40 * DAY):
        queries(tmp_path / "queries.parquet", KEYS, at)
        assert_served(project, join, KEYS, at)
    with pytest.raises(RequestError, match="only from"):
        project.fetch("training", [{"user": 1, "weight": 2.0}], at=sealed - 1)


def test_rows_that_change_are_served_as_they_are_alive(
    spark: Any, tmp_path: Path, address: str
) -> None:
    project = wr.Project(tmp_path / "state", spark=spark, progress=False, online=address)
    project.sql("CREATE TABLE ratings (user_id INT, stars INT, ts TIMESTAMP, listing STRING)")
    ratings = wr.EntitySource(name="ratings", view="ratings", time="ts")
    group = wr.GroupBy(
        "reputation",
        ratings,
        ["user_id"],
        [
            agg.min("stars").over("14d"),
            agg.max("stars"),
            agg.avg("stars").over("14d"),
            agg.last("listing").over("14d"),
            agg.histogram("stars"),
        ],
    )
    project.sql(
        "INSERT INTO ratings VALUES (1, 5, TIMESTAMP'2024-05-01', 'a'), "
        "(1, 1, TIMESTAMP'2024-05-02', 'b'), (2, 3, TIMESTAMP'2024-05-02', NULL)"
    )
    project.upload(group)

    def features(key: int) -> list[Any]:
        found = project.fetch("reputation", [{"user_id": key}])
        return [column[0] for column in found.columns]

    assert features(1)[1] == 5
    assert features(1)[4] == {1: 1, 5: 1}
    project.sql("DELETE FROM ratings WHERE stars = 5")
    project.sql("UPDATE ratings SET user_id = 1 WHERE user_id = 2")
    project.sql("INSERT INTO ratings VALUES (3, 4, TIMESTAMP'2024-05-02', 'c')")
    project.follow(group)
    assert features(1)[1] == 3
    assert features(1)[4] == {1: 1, 3: 1}
    assert features(2) == [None] * 5
    assert features(3)[1] == 4
    assert project.follow(group)[0].rows == 0


def test_a_new_definition_is_served_once_it_is_complete(spark: Any, tmp_path: Path) -> None:
    write_views(tmp_path / "views.parquet", 200)
    views = wr.EventSource(name="views", table=str(tmp_path / "views.parquet"), time="ts")
    project = wr.Project(tmp_path / "state", spark=spark, progress=False)
    at = START + 25 * DAY
    first = wr.GroupBy("activity", views, ["user_id"], [agg.count("stars").over("30d")])
    project.upload(first, as_of=at)
    before = project.fetch("activity", [{"user_id": 1}], at=at)
    assert before.names == ("stars_count_30d",)
    second = wr.GroupBy("activity", views, ["user_id"], [agg.sum("stars").over("30d")])
    project.upload(second, as_of=at)
    after = project.fetch("activity", [{"user_id": 1}], at=at)
    assert after.names == ("stars_sum_30d",)
    assert project.records.size().records < 100  # those of the first are gone


def test_requests_that_cannot_be_answered_say_why(spark: Any, tmp_path: Path) -> None:
    write_views(tmp_path / "views.parquet", 200)
    views = wr.EventSource(name="views", table=str(tmp_path / "views.parquet"), time="ts")
    project = wr.Project(tmp_path / "state", spark=spark, progress=False)
    group = wr.GroupBy(
        "activity",
        views,
        ["user_id"],
        [agg.count("stars").over("30d"), agg.sum("stars").over("30d")],
        max_staleness="1h",
    )
    with pytest.raises(NotServedError, match="windrow upload activity"):
        project.fetch("activity", [{"user_id": 1}])
    at = START + 25 * DAY
    project.upload(group, as_of=at)
    with pytest.raises(RequestError, match="'user_id' is missing"):
        project.fetch("activity", [{"user": 1}], at=at)
    with pytest.raises(RequestError, match="is 'one', which is not int64"):
        project.fetch("activity", [{"user_id": "one"}], at=at)
    with pytest.raises(RequestError, match="did you mean 'stars_sum_30d'"):
        project.fetch("activity", [{"user_id": 1}], at=at, features=["stars_sums_30d"])
    never = project.fetch("activity", [{"user_id": 12345}, {"user_id": None}], at=at)
    assert never.columns == [[0, 0], [None, None]]
    assert never.statuses == [[Status.EMPTY] * 2] * 2
    late = project.fetch("activity", [{"user_id": 1}], at=10**14)
    assert {status for column in late.statuses for status in column} == {Status.STALE}
    project.upload(
        wr.GroupBy(**{**vars(group), "stale": "refuse"}),
        as_of=at,
    )
    with pytest.raises(StaleError, match="max_staleness"):
        project.fetch("activity", [{"user_id": 1}], at=10**14)
    (generation,) = (project.fetcher._groups["activity"].number,)
    (key,) = key_bytes(generation, pa.table({"k0": pa.array([1], pa.int64())}))
    project.records.update([key], lambda found: [found[0][:-1] + b"!"])
    with pytest.raises(DataError, match=r"group activity, key \{'user_id': 1\}"):
        project.fetch("activity", [{"user_id": 1}], at=at)


def test_what_needs_spark_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    write_views(tmp_path / "views.parquet", 50)
    views = wr.EventSource(name="views", table=str(tmp_path / "views.parquet"), time="ts")
    group = wr.GroupBy("activity", views, ["user_id"], [agg.count("stars").over("1d")])
    project = wr.Project(tmp_path / "state", spark=spark, progress=False)
    left = queries(tmp_path / "queries.parquet", [1], START)
    for text, name in {
        "sha2(name, 256)": "sha2",
        "date_format(ts, 'yyyy')": "date_format",
        "cast(weight AS STRING)": "cast from double to string",
    }.items():
        join = wr.Join("training", left, [group.on(user_id="user")], derive={"x": text})
        with pytest.raises(DefinitionError, match=name):
            project.upload(join)
    assert project.fetcher.names() == []
    with pytest.raises(DefinitionError, match="online=False"):
        project.upload(wr.GroupBy(**{**vars(group), "online": False}))


def test_the_page_shows_what_is_printed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What docs/online.md tells to type prints what it shows."""
    page = (Path(__file__).parents[2] / "docs" / "online.md").read_text()
    typed, shown, *_ = page.split("```")[1::2]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for line in typed.splitlines()[2:]:
        words = line.removeprefix("$ ").split()
        if words[0] == "cd":
            monkeypatch.chdir(tmp_path / words[1])
        else:
            assert main(words[1:]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    for line in shown.strip().splitlines()[1:-1]:
        assert line.split() in printed, line
