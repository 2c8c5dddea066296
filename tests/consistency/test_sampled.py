"""The whole job over random histories: its counts are those of a naive comparison of what was
logged, and what was not logged is said."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from naive_comparison import outcome

import windrow as wr
from windrow import agg, testing
from windrow.online.fetched import Description, Done, Fetched, Outcome, Request, Status
from windrow.online.log.logged import Logged
from windrow.online.log.serving_log import ServingLog
from windrow.storage.store import Store

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
HOUR = 3_600_000
USERS, REQUESTS = 12, 400


def millis(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


class Unreliable:
    """Serves what a backfill would give, and sometimes something else."""

    waits = False

    def __init__(self, description: Description, rng: random.Random) -> None:
        self.description, self.rng = description, rng
        self.right: dict[tuple[int, int], dict[str, Any]] = {}
        self.served: list[tuple[int, int, dict[str, Any]]] = []

    def names(self) -> list[str]:
        return ["activity"]

    def describe(self, name: str) -> Description:
        return self.description

    def fetch(self, name: str, keys: Any, *, at: Any = None, features: Any = None) -> Fetched:
        names = tuple(n for n, _ in self.description.features)
        rows = []
        for key in keys:
            row = {n: self.other(self.right[key["user_id"], at][n]) for n in names}
            self.served.append((key["user_id"], at, row))
            rows.append(row)
        columns = [[row[n] for row in rows] for n in names]
        statuses = [[Status.PRESENT for _ in rows] for _ in names]
        version = self.description.version
        return Fetched(name, at, names, keys, columns, statuses, [at] * len(names), version)

    def fetch_all(self, requests: Sequence[Request]) -> list[Outcome]:
        return [self.fetch(one.name, one.keys, at=one.at) for one in requests]

    def fetch_soon(self, requests: Sequence[Request], done: Done) -> bool:
        return False

    def other(self, value: Any) -> Any:
        rng = self.rng
        if rng.random() < 0.8:
            return value
        match value:
            case None:
                return None
            case int():
                return rng.choice([0, value + 1])
            case float():
                return rng.choice([None, value * (1 + 1e-13), value + 0.5])
            case list():
                return rng.choice([None, value[::-1], [*value, 1.0]])
        raise AssertionError(value)


def test_counts_and_coverage(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(17)
    events = [
        {
            "user_id": rng.randrange(USERS),
            "price": rng.choice([None, 0.1, 2.5, 7.75]),
            "ts": START + dt.timedelta(minutes=rng.randrange(3 * 1440)),
        }
        for _ in range(600)
    ]
    pq.write_table(pa.Table.from_pylist(events), tmp_path / "views.parquet")
    views = wr.EventSource("views", table=str(tmp_path / "views.parquet"), time="ts")
    aggregations = [
        agg.count("price").over("3h"),
        agg.sum("price").over("1d"),
        agg.last_k("price", 3).over("6h"),
    ]
    group = wr.GroupBy("activity", views, ["user_id"], aggregations)
    queries = [
        {
            "user_id": rng.randrange(USERS + 2),
            "ts": START + dt.timedelta(minutes=rng.randrange(3 * 1440)),
        }
        for _ in range(REQUESTS)
    ]
    found = testing.features(group, events, queries)
    names = [feature.name for feature in group.features]
    types = (pa.int64(), pa.float64(), pa.list_(pa.float64()))
    project = wr.Project(tmp_path / "state", spark=spark, progress=False)
    description = Description(
        "activity",
        (("user_id", pa.int64()),),
        tuple(zip(names, types, strict=True)),
        groups=dict.fromkeys(names, "activity"),
        version=project._serving.version(group),
    )
    served = Unreliable(description, rng)
    served.right = {(row["user_id"], millis(row["ts"])): row for row in found}
    log = ServingLog(Store.at(tmp_path / "state"), 0.8, values=7 * 250, draw=rng.random, every=3600)
    log._thread = threading.Thread()  # nothing is written before all is asked
    logged = Logged(served, log)
    kept: Counter[tuple[str, int, str]] = Counter()
    outcomes = Counter[str]()
    before = 0
    for query in queries:
        at = millis(query["ts"])
        logged.fetch("activity", [{"user_id": query["user_id"]}], at=at)
        taken = log._number
        user, time, row = served.served[-1]
        if taken > before:
            for name in names:
                right = served.right[user, time][name]
                label = outcome(row[name], right, counts="count" in name)
                assert label is not None
                kept[name, time // HOUR * HOUR, label] += 1
            outcomes["logged"] += 1
        before = taken
    log._thread = None
    logged.close()
    report = project.consistency(group, threshold=0.9)
    counted = Counter(
        {
            (feature.name, hour, label): count
            for feature in report.features
            for hour, one in feature.hours.items()
            for label, count in one.to_json().items()
            if count
        }
    )
    assert counted == kept
    assert report.verdict == "inconsistent"
    covered = report.coverage
    assert covered is not None
    assert covered.requests == REQUESTS
    assert covered.logged == outcomes["logged"]
    assert covered.sampled_out > 0
    assert covered.dropped > 0  # there was room for some
    assert covered.logged + covered.sampled_out + covered.dropped == REQUESTS
    written = report.to_json()["coverage"]
    assert written["dropped"] == covered.dropped
