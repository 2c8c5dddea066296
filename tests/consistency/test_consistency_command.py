"""`windrow consistency` on the log of another system: outcomes, exit codes, and what it refuses."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg, cli, testing
from windrow.consistency import read_report, reports
from windrow.storage.store import Store

FEATURES = """
import windrow as wr
from windrow import agg

views = wr.EventSource("views", table="views.parquet", time="ts")
activity = wr.GroupBy("activity", views, ["user_id"], [
    agg.count("price").over("1d"), agg.sum("price").over("7d")])
training = wr.Join("training", wr.Queries("checkouts.parquet", time="ts"),
    [activity.on(user_id="buyer")], derive={"share": "paid / activity_price_sum_7d"})
"""
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def when(hours: float) -> dt.datetime:
    return START + dt.timedelta(hours=hours)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "windrow.toml").write_text("definitions = ['features.py']\n")
    (tmp_path / "features.py").write_text(FEATURES)
    events = [{"user_id": n % 3, "price": n / 4, "ts": when(n)} for n in range(60)]
    pq.write_table(pa.Table.from_pylist(events), tmp_path / "views.parquet")
    empty = {"buyer": [0], "paid": [1.0], "ts": [START]}
    pq.write_table(pa.table(empty), tmp_path / "checkouts.parquet")
    requests = [{"buyer": n % 4, "paid": float(n), "ts": when(n * 2.5)} for n in range(40)]
    views = wr.EventSource("views", table="views.parquet", time="ts")
    aggregations = [agg.count("price").over("1d"), agg.sum("price").over("7d")]
    group = wr.GroupBy("activity", views, ["user_id"], aggregations)
    join = wr.Join(
        "training",
        wr.Queries("checkouts.parquet", time="ts"),
        [group.on(user_id="buyer")],
        derive={"share": "paid / nullif(activity_price_sum_7d, 0)"},
    )
    served = testing.backfill(join, requests, {"views": events})
    columns = {
        "user": [row["buyer"] for row in served],
        "paid": [row["paid"] for row in served],
        "asked": [row["ts"] for row in served],
        "views_1d": [float(row["activity_price_count_1d"]) for row in served],
        "activity_price_sum_7d": [row["activity_price_sum_7d"] for row in served],
    }
    pq.write_table(pa.table(columns), tmp_path / "right.parquet")
    columns["views_1d"][5] += 2
    columns["activity_price_sum_7d"][8] = None
    pq.write_table(pa.table(columns), tmp_path / "wrong.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


MAPPED = ["--time", "asked", "--keys", "buyer=user", "--values", "activity_price_count_1d=views_1d"]


def test_another_systems_log(spark: Any, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["consistency", "training", *MAPPED, "--log"]
    assert cli.main([*command, "right.parquet"]) == 0
    said = capsys.readouterr().out
    assert "training: consistent: 100 % of 80 values agree" in said
    assert cli.main([*command, "wrong.parquet", "--threshold", "0.999"]) == cli.INCONSISTENT
    said = capsys.readouterr().out
    assert "training: inconsistent: 97.50 % of 80 values agree" in said
    assert cli.main([*command, "wrong.parquet", "--threshold", "0.9"]) == 0
    capsys.readouterr()
    newest, second, first = reports(Store.at(project / "state"), "training")
    assert newest.run > second.run > first.run
    found = read_report(Store.at(project / "state"), "training", second.run)
    assert found["verdict"] == "inconsistent"
    assert found["left_out"] == ["share"]
    assert found["coverage"] is None
    assert (found["counted"]["different"], found["counted"]["only_offline"]) == (1, 1)
    by_feature = {e["feature"]: e for e in found["examples"]}
    assert by_feature["activity_price_count_1d"]["keys"] == {"buyer": 1}
    # Days are those of requests; before them nothing was logged.
    days = ["--start", "2024-04-01", "--end", "2024-04-02"]
    assert cli.main([*command, "right.parquet", *days]) == cli.INCONSISTENT
    assert "no data" in capsys.readouterr().out


def test_a_log_that_is_not_files(spark: Any, project: Path) -> None:
    """What Spark has to compute is stored first, since it is read twice; then it is gone."""
    views = wr.EventSource("views", table=str(project / "views.parquet"), time="ts")
    group = wr.GroupBy("activity", views, ["user_id"], [agg.count("price").over("1d")])
    frame = spark.read.parquet(str(project / "wrong.parquet")).selectExpr(
        "user AS user_id", "asked", "views_1d + 0 AS price_count_1d"
    )
    opened = wr.Project(project / "state", spark=spark, progress=False)
    report = opened.consistency(group, log=frame, time="asked", threshold=0.9)
    assert (report.verdict, report.counted.total, report.counted.different) == ("consistent", 40, 1)
    (example,) = report.examples
    assert (example.feature, example.keys) == ("price_count_1d", {"user_id": 1})
    assert not list((project / "state" / "tmp").glob("*/*"))
    none = opened.consistency(group, log=frame.where("false"), time="asked")
    assert none.verdict == "no data"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["training", "--time", "asked"], "give log, too"),
        (["training", "--log", "right.parquet"], "--time COLUMN"),
        (["training", "--log", "right.parquet", "--time", "asked"], "for the key 'buyer'"),
        (["nothing"], "there is no join 'nothing'"),
        (["training", "--log", "x", "--time", "t", "--keys", "a"], "write NAME=COLUMN"),
        (["training", "--start", "2024-05-02", "--end", "2024-05-01"], "is after"),
    ],
)
def test_what_is_refused(
    spark: Any,
    project: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["consistency", *arguments]) == cli.REFUSED
    assert message in capsys.readouterr().err


def test_without_a_log_there_is_no_data(
    spark: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["consistency", "activity"]) == cli.INCONSISTENT
    assert "Serve with --log-rate" in capsys.readouterr().out


@pytest.mark.parametrize("share", ["2", "-0.1", "all"])
def test_a_threshold_is_a_share(project: Path, share: str) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["consistency", "training", "--threshold", share])
    assert refused.value.code == cli.REFUSED
