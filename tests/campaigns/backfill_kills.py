"""Backfills of several slices whose driver, tasks or JVM are killed at random moments.

Each project is backfilled until it succeeds, with some kills on the way: after a while, or once
some slices are finished. Then its rows are compared with plain loops.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "campaigns")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from deltalake import DeltaTable  # noqa: E402
from drivers import DEADLINE_SECONDS, Driver, Drivers  # noqa: E402

from feature_oracle import feature  # noqa: E402
from windrow.storage.store import Store  # noqa: E402

START, HOUR = 1_630_000_000_000, 3_600_000
SIZES = (40, 150, 0)  # SLICE_ROWS, STEP_ROWS, FEW_QUERIES: many slices, several steps, a sort
FILES, FILE_ROWS, QUERIES = 3, 100, 60
VICTIMS = ("driver", "task", "jvm")

DEFINITIONS = """
import windrow as wr
from windrow import agg

DATA = {data!r}
views = wr.EventSource(name="views", table=f"{{DATA}}/views", time="ts")
aggregations = [agg.count("n").over("2d"), agg.sum("n")]
users = wr.GroupBy(name="users", source=views, keys=["user"], aggregations=aggregations)
items = wr.GroupBy(name="items", source=views, keys=["item"], aggregations=aggregations)
training = wr.Join(
    name="training",
    left=wr.Queries(table=f"{{DATA}}/checkouts.parquet", time="ts"),
    features=[users, items],
)
"""


class Data:
    """Views and checkouts at rest, and the features of each checkout by plain loops."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        rng = np.random.default_rng(seed)

        def some(rows: int, **more: Any) -> pa.Table:
            times = START + rng.integers(0, 200, rows) * HOUR
            columns = {
                "user": pa.array(rng.integers(0, 25, rows), pa.int64()),
                "item": pa.array([f"item {i}" for i in rng.integers(0, 25, rows)]),
                "ts": pa.array(times, pa.timestamp("ms", "UTC")),
            }
            return pa.table({**columns, **more})

        (folder / "views").mkdir(parents=True)
        files = [some(FILE_ROWS, n=pa.array(rng.integers(0, 9, FILE_ROWS))) for _ in range(FILES)]
        for number, file in enumerate(files):
            pq.write_table(file, folder / "views" / f"{number}.parquet")
        checkouts = some(QUERIES, id=pa.array(range(QUERIES)))
        pq.write_table(checkouts, folder / "checkouts.parquet")
        self.expected = sorted(self._rows(pa.concat_tables(files), checkouts))

    @staticmethod
    def _rows(views: pa.Table, checkouts: pa.Table) -> list[tuple[Any, ...]]:
        events = views.append_column("time", views["ts"].cast(pa.int64())).to_pylist()
        queries = checkouts.append_column("time", checkouts["ts"].cast(pa.int64())).to_pylist()
        windows: dict[str, Any] = {
            "count": ("sawtooth", 48 * HOUR, HOUR),
            "sum": ("lifetime", None, None),
        }
        return [
            (
                query["id"],
                *(
                    feature(
                        events, {key: query[key]}, query["time"], name=name, column="n", window=how
                    )
                    for key in ("user", "item")
                    for name, how in windows.items()
                ),
            )
            for query in queries
        ]

    def project(self, folder: Path) -> Path:
        folder.mkdir()
        (folder / "features.py").write_text(DEFINITIONS.format(data=str(self.folder)))
        (folder / "windrow.toml").write_text('root = "state"\ndefinitions = ["features.py"]\n')
        return folder


def campaign(folder: Path, kills: int, seed: int, victims: tuple[str, ...] = ()) -> Counter[str]:
    """Kill so often; what happened, counted. Raises AssertionError on a wrong row.

    `victims` are the first ones; the others are chosen.
    """
    pick, counts = random.Random(seed), Counter[str]()
    data, planned = Data(folder / "data", seed), list(victims)
    child = Path(__file__).with_name("backfill_child.py")
    with Drivers(child, folder / "log", json.dumps(SIZES)) as drivers:
        driver = drivers.start()
        while counts["backfill_kills"] < kills:
            project = data.project(folder / f"project-{counts['backfills']}")
            left = min(pick.randrange(1, 5), kills - counts["backfill_kills"])
            while True:
                driver.send(project=str(project))
                if left:
                    kind = planned.pop(0) if planned else pick.choice(VICTIMS)
                    killed = kill(driver, kind, project, pick)
                    counts["backfill_kills"] += killed
                    counts[f"{kind}_kills"] += killed
                    left -= killed
                answer = driver.answer()
                if answer is None or not driver.jvm.runs:
                    driver = drivers.start()
                if answer is not None and "error" not in answer:
                    break
                counts["backfills_interrupted"] += 1
            check(project, data, answer, counts)
    return counts


def kill(driver: Driver, kind: str, project: Path, pick: random.Random) -> bool:
    """Kill a process of the running backfill, at a random moment; False if there was none."""
    slices = pick.choice((0, 1, 2, 4, 8))
    deadline = time.monotonic() + (pick.uniform(0, 2) if not slices else DEADLINE_SECONDS)
    while driver.answers.empty() and time.monotonic() < deadline:
        if slices and len(list(project.glob("state/tmp/*/done-*/*.json"))) >= slices:
            break
        time.sleep(0.005)
    return driver.answers.empty() and driver.kill(kind, pick)  # unless it was faster


def check(project: Path, data: Data, summary: dict[str, Any], counts: Counter[str]) -> None:
    counts["backfills"] += 1
    counts["backfills_resumed"] += summary["slices_resumed"] > 0
    counts["slices_resumed"] += summary["slices_resumed"]
    table = DeltaTable(str(project / "state" / "results" / "training"))
    names = [f"{k}s_n_{n}" for k in ("user", "item") for n in ("count_2d", "sum")]
    rows = table.to_pyarrow_table(columns=["id", *names]).to_pylist()
    found = sorted(tuple(row[name] for name in ("id", *names)) for row in rows)
    assert found == data.expected, "other rows"
    state = Store.at(project / "state")
    left = [name for name in state.names() if name.startswith(("tmp/", "claims/"))]
    assert not left, f"left behind: {left}"
    hidden = [path for path in (project / "state").rglob(".*") if path.is_file()]
    counts["backfill_half_written"] += len(hidden)  # they go after an hour
    files = Store.at(project / "state" / "results" / "training").names()
    counts["backfill_files_left"] += len(files) - len(table.file_uris())  # and these after a week
