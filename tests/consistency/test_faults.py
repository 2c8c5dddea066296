"""Faults that are planted, each on a user of its own, are found, and named by the report."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg
from windrow.consistency import Cause, Report, read_report, reports
from windrow.errors import DataError
from windrow.features.inputs.groups import GroupInputs
from windrow.online.fetch import Fetcher
from windrow.online.follow import _Application
from windrow.online.generations import change_note, read_note
from windrow.online.keys import key_bytes
from windrow.online.log.logged import Logged
from windrow.online.log.serving_log import ServingLog
from windrow.spark.tasks import run_writers
from windrow.storage.store import Store
from windrow.time import now_millis

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_714_521_600_000  # 2024-05-01
SEALED = START + 2 * DAY

LATE, LOST, TWICE, TORN, BEHIND, SWAPPED, SKEWED, WELL = range(1, 9)
USERS = range(9)


def text(millis: int) -> str:
    moment = dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass
class Shop:
    """A project with a stream, in which things go wrong."""

    place: Path
    project: wr.Project
    views: wr.EventSource
    group: wr.GroupBy
    files: int = 0

    @staticmethod
    def open(place: Path, spark: Any) -> Shop:
        (place / "arriving").mkdir()
        columns = {
            "user_id": [n % 9 for n in range(180)],
            "price": [n / 4 for n in range(180)],
            "ts": pa.array([START + n * 900_000 for n in range(180)], pa.timestamp("ms", "UTC")),
        }
        pq.write_table(pa.table(columns), place / "views.parquet")
        views = wr.EventSource(
            "views",
            table=str(place / "views.parquet"),
            time="ts",
            stream=wr.FolderStream(str(place / "arriving")),
        )
        sums = [agg.count("price").over("1d"), agg.sum("price").over("7d"), agg.count("price")]
        group = wr.GroupBy("activity", views, ["user_id"], [*sums, agg.last_k("price", 3)])
        project = wr.Project(place / "state", spark=spark, progress=False, log_rate=1.0)
        return Shop(place, project, views, group)

    def send(self, *rows: tuple[int, float, int], follow: bool = True) -> None:
        """Events of users arrive, and are taken in."""
        self.files += 1
        lines = [json.dumps({"user_id": u, "price": p, "ts": text(t)}) for u, p, t in rows]
        (self.place / "arriving" / f"{self.files}.json").write_text("\n".join(lines))
        after = self.project.following(self.group) if follow else None
        self.project.streams(self.views, once=True, after=after).run()

    def fetch(self, user: int, at: int) -> None:
        self.project.fetch("activity", [{"user_id": user}], at=at)

    @property
    def records(self) -> Any:
        return self.project.records

    def generation(self) -> Any:
        found = read_note(self.records, "activity").current
        assert found is not None
        return found

    def record(self, user: int) -> bytes:
        """The key of a user's record."""
        keys = pa.table({"k0": pa.array([user], pa.int64())})
        (found,) = key_bytes(self.generation().number, keys)
        return found

    def lose(self) -> None:
        """Say that records are up to the shard, though they are not."""
        upper, now = self._piece().shard.refresh().upper, now_millis()
        number = self.generation().number
        change_note(
            self.records,
            "activity",
            lambda note: note.changed(number, lambda one: one.advanced(0, upper, now)),
        )

    def apply_again(self, user: int) -> None:
        """The last rows of a user, as if they were new."""
        piece = self._piece()
        upper = piece.shard.refresh().upper
        frame = piece.during((self.before, upper), self.project._engine).frame()
        names = tuple(frame.columns)
        frame = frame.where(f"k0 = {user}").toDF(*(f"c{i}" for i in range(len(names))))
        apply = _Application(self.generation(), 0, upper + 1, self.records, names)
        run_writers(frame.coalesce(1), self.project._store, apply)

    before: int = 0

    def mark(self) -> None:
        self.before = self._piece().shard.refresh().upper

    def _piece(self) -> Any:
        group = self.project._resolved(self.group)
        pieces = GroupInputs.bind(group, self.project._engine).content.pieces
        return next(piece for piece in pieces if piece.shard is not None)


@pytest.fixture(scope="module")
def faulty(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A day on which everything goes wrong, once each."""
    shop = Shop.open(tmp_path_factory.mktemp("faults"), spark)
    project = shop.project
    project.upload(shop.group, as_of=SEALED)
    at = SEALED + HOUR
    shop.send(*((user, 0.5, at - 60_000) for user in USERS))
    # By another process: a lock on a file goes when the process closes the file elsewhere.
    subprocess.run(["cp", "-r", shop.place / "state" / "online", shop.place / "backup"], check=True)
    for user in USERS:
        shop.fetch(user, at)
    shop.mark()
    # An event that is an hour late; one that will be applied twice; one that a backup lacks.
    later = at + HOUR
    shop.send((LATE, 7.5, at - HOUR), (TWICE, 8.25, later - 9), (BEHIND, 9.5, later - 8))
    shop.apply_again(TWICE)
    for user in (TWICE, BEHIND):
        shop.fetch(user, later)
    project.flush_log()
    restored = wr.Project(
        shop.place / "state", spark=spark, online=shop.place / "backup", log_rate=1.0
    )
    restored.fetch("activity", [{"user_id": BEHIND}], at=later + 1)
    restored.close()
    # An event that is taken in, and never applied.
    shop.send((LOST, 3.25, later - 5), follow=False)
    shop.lose()
    shop.fetch(LOST, later + 2)
    # A record with a byte that has changed, and one that is another user's.
    torn, swapped, well = (shop.record(user) for user in (TORN, SWAPPED, WELL))
    (_, (data, other)) = shop.records.read([], [torn, well])
    shop.records.update([torn], lambda _: [data[:-1] + bytes([data[-1] ^ 1])])
    shop.records.update([swapped], lambda _: [other])
    with pytest.raises(DataError):
        shop.fetch(TORN, later + 3)
    shop.fetch(SWAPPED, later + 4)
    # A server whose clock is an hour ahead answers before an event arrives.
    ahead = lambda: now_millis() + HOUR  # noqa: E731
    log = ServingLog(Store.at(shop.place / "state"), now=ahead)
    skewed = Logged(Fetcher(shop.records, ahead), log)
    skewed.fetch("activity", [{"user_id": SKEWED}])
    skewed.close()
    shop.send((SKEWED, 4.5, now_millis() + HOUR // 2))
    shop.fetch(WELL, later + 5)
    project.flush_log()
    return shop


@pytest.fixture(scope="module")
def report(faulty: Shop) -> Report:
    return faulty.project.consistency(faulty.group, threshold=1.0)


def causes(report: Report, user: int) -> set[Cause]:
    """What examples of a user are put down to: their first reasons."""
    return {one.reasons[0].cause for one in report.examples if one.keys == {"user_id": user}}


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        (LATE, Cause.ARRIVED_LATER),
        (LOST, Cause.LOST),
        (TWICE, Cause.TWICE),
        (TORN, Cause.DAMAGED),
        (BEHIND, Cause.STORE_BEHIND),
        (SWAPPED, Cause.DAMAGED),
        (SKEWED, Cause.CLOCK),
    ],
)
def test_a_fault_is_found_and_named(report: Report, user: int, cause: Cause) -> None:
    assert causes(report, user) == {cause}


def test_reasons_have_the_rows_that_show_them(report: Report) -> None:
    def reason(user: int, cause: Cause) -> Any:
        found = [one.reasons for one in report.examples if one.keys == {"user_id": user}]
        return next(r for reasons in found for r in reasons if r.cause is cause)

    late = reason(LATE, Cause.ARRIVED_LATER)
    assert late.proven
    assert [row["price"] for row in late.rows] == [7.5]
    assert late.rows[0]["arrived"] > late.rows[0]["time"]
    assert [row["price"] for row in reason(LOST, Cause.LOST).rows] == [3.25]
    assert [row["price"] for row in reason(TWICE, Cause.TWICE).rows] == [8.25]
    assert [row["price"] for row in reason(BEHIND, Cause.STORE_BEHIND).rows] == [9.5]
    assert "checksum" in reason(TORN, Cause.DAMAGED).says
    assert "1 h 0 min ahead" in reason(SKEWED, Cause.CLOCK).says
    assert [row["price"] for row in reason(SKEWED, Cause.ARRIVED_LATER).rows] == [4.5]


def test_the_verdict_and_what_is_right(faulty: Shop, report: Report) -> None:
    assert report.verdict == "inconsistent"
    assert causes(report, WELL) == set()
    assert report.coverage is not None
    assert report.coverage.requests == report.coverage.logged == len(USERS) + 8
    assert report.coverage.unclosed == 1  # the project that is still open
    stored = reports(Store.at(faulty.place / "state"), "activity")
    found = read_report(Store.at(faulty.place / "state"), "activity", stored[-1].run)
    assert found["counted"] == report.counted.to_json()
    assert sum(found["counted"].values()) == (len(USERS) + 8) * 4
    assert {r["reason"] for e in found["examples"] for r in e["reasons"]} >= {
        "arrived_later", "lost_event", "delivered_twice", "record_damaged", "store_behind"
    }  # fmt: skip


def test_a_changed_definition(faulty: Shop) -> None:
    changed = replace(
        faulty.group, aggregations=[agg.count("price").over("1d"), agg.sum("price").over("7d")]
    )
    changed = replace(changed, source=replace(faulty.views, where="price > 1"))
    report = faulty.project.consistency(changed)
    assert report.verdict == "inconsistent"
    assert report.examples
    for one in report.examples:
        assert Cause.DEFINITION in [reason.cause for reason in one.reasons], one
    assert {one.served_version for one in report.examples} != {report.version}
