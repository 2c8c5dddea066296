"""What a stream takes in is served, and equals what a backfill gives over the same rows."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from feature_oracle import same
from windrow import agg
from windrow.online import follow
from windrow.online.generations import read_note

DAY = 86_400_000
START = 1_714_521_600_000  # 2024-05-01


def text(millis: int) -> str:
    return dt.datetime.fromtimestamp(millis / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def test_streamed_rows_are_served(spark: Any, tmp_path: Path, address: str) -> None:
    rng = random.Random(11)

    def rows(count: int, start: int) -> list[dict[str, Any]]:
        return [
            {
                "user_id": rng.randrange(5),
                "price": rng.choice([1.5, 2.25, None]),
                "ts": start + rng.randrange(2 * DAY),
            }
            for _ in range(count)
        ]

    old = rows(200, START)
    columns = {name: [row[name] for row in old] for name in ("user_id", "price")}
    columns["ts"] = pa.array([row["ts"] for row in old], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table(columns), tmp_path / "views.parquet")
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    views = wr.EventSource(
        name="views",
        table=str(tmp_path / "views.parquet"),
        time="ts",
        stream=wr.FolderStream(str(arriving), format="json"),
    )
    group = wr.GroupBy(
        "activity",
        views,
        ["user_id"],
        [
            agg.count("price").over("1d", "7d"),
            agg.sum("price").over("2d"),
            agg.last_k("price", 3).over("7d"),
        ],
    )
    project = wr.Project(tmp_path / "state", spark=spark, progress=False, online=address)
    sealed = START + 2 * DAY
    project.upload(group, as_of=sealed)
    for number in range(3):
        new = rows(60, START + DAY)  # some of them late, some after the upload
        lines = [json.dumps({**row, "ts": text(row["ts"]) + "Z"}) for row in new]
        if number == 1:
            lines.insert(3, "{ this is no JSON")
        (arriving / f"{number}.json").write_text("\n".join(lines))
        project.streams(views, once=True, after=project.following(group)).run()
        if number == 1:
            project.upload(group, as_of=sealed)  # replaces what streams wrote
        at = sealed + number * DAY // 2
        keys = list(range(6))
        queries = {"user_id": keys, "ts": pa.array([at] * 6, pa.timestamp("ms", "UTC"))}
        pq.write_table(pa.table(queries), tmp_path / f"queries{number}.parquet")
        left = wr.Queries(table=str(tmp_path / f"queries{number}.parquet"), time="ts")
        join = wr.Join(f"training{number}", left, [group])
        expected = {row.user_id: row.asDict() for row in project.backfill(join).collect()}
        found = project.fetch("activity", [{"user_id": key} for key in keys], at=at)
        for name, values in zip(found.names, found.columns, strict=True):
            for key, got in zip(keys, values, strict=True):
                assert same(got, expected[key][f"activity_{name}"]), f"{name} of {key}, {number}"


def test_records_of_a_generation_that_was_replaced_meanwhile_are_gone(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload serves a new generation while a follower is at work on the one before."""
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    stream = wr.FolderStream(str(arriving), schema="k INT, t BIGINT")
    source = wr.EventSource("s", time="t", stream=stream)
    group = wr.GroupBy("activity", source, ["k"], [agg.count("k")])
    one, other = (
        wr.Project(
            tmp_path / "state", spark=spark, progress=False, online=str(tmp_path / "records")
        )
        for _ in range(2)
    )
    one.upload(group, as_of=0)
    (arriving / "1.json").write_text("\n".join(f'{{"k": {k}, "t": 1}}' for k in range(5)))
    one.streams(source, once=True).run()
    applied = follow.Follower._run
    uploads: list[Any] = []

    def run(self: follow.Follower, *arguments: Any) -> dict[str, int]:
        if not uploads:
            uploads.append(None)
            uploads.append(other.upload(group, as_of=0))
        return applied(self, *arguments)

    monkeypatch.setattr(follow.Follower, "_run", run)
    one.follow(group)
    note = read_note(one.records, "activity")
    assert note.numbers == [2]
    assert one.records.size().records == 5
    found = one.fetch("activity", [{"k": k} for k in range(6)], at=2)
    assert found.columns == [[1, 1, 1, 1, 1, 0]]
