"""A small project that is real: tables, views, ticks, an upload, a backfill, a tick that fails."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windrow.commands.opening import open_console, open_served
from windrow.consistency.report import (
    QUANTILES,
    Cause,
    Counted,
    Example,
    FeatureReport,
    Reason,
    Report,
    verdict_of,
)
from windrow.consistency.stored import store_report
from windrow.errors import WindrowError
from windrow.online.server.app import App
from windrow.online.server.listening import listen
from windrow.online.server.logs import Log
from windrow.online.server.tokens import Tokens
from windrow.online.server.worker import Worker
from windrow.storage.store import Store
from windrow.workspace import Workspace

DEFINITIONS = """
import windrow as wr
from windrow import agg

views = wr.EventSource(name="views", table="data/views.parquet", time="ts")
activity = wr.GroupBy(
    name="activity",
    source=views,
    keys=["user_id"],
    aggregations=[
        agg.count("view_id").over("1h", "7d"),
        agg.avg("price").over("7d"),
        agg.last_k("listing_id", 3).over("14d"),
        agg.count("view_id").over("7d").by("category"),
    ],
)
training = wr.Join(
    name="training",
    left=wr.Queries(table="data/checkouts.parquet", time="ts"),
    features=[activity.on(user_id="buyer_id")],
    derive={"price_against_usual": "price / activity_price_avg_7d"},
)
"""
AS_OF = "2024-06-01"
SCRIPT = "<script>document.title = 'run'</script>"


def make(folder: Path, spark: Any) -> Workspace:
    """Make it in a folder, by one session of Spark. Its last tick has failed."""
    (folder / "data").mkdir(parents=True)
    (folder / "windrow.toml").write_text('definitions = ["features.py"]\n')
    (folder / "features.py").write_text(DEFINITIONS)
    _tables(folder / "data")
    workspace = Workspace.load(folder)
    with _project(workspace, spark) as project:
        project.upload(workspace.joins["training"], as_of=AS_OF)
        project.backfill(workspace.joins["training"])
        run = project.sql
        run("CREATE TABLE ratings (id INT, listing INT, stars INT, PRIMARY KEY (id))")
        run("CREATE TABLE listings (listing INT, title STRING)")
        run("INSERT INTO ratings SELECT id, id % 12, 1 + id * 7 % 5 FROM range(120)")
        run("INSERT INTO listings SELECT id, concat('listing ', id) FROM range(12)")
        run(f'INSERT INTO listings VALUES (99, "{SCRIPT}"), (98, repeat("long ", 20000))')
        run(
            "CREATE MATERIALIZED VIEW reputation AS SELECT listing, avg(stars) AS stars, "
            "min(stars) AS worst, count(*) AS ratings FROM ratings GROUP BY listing"
        )
        run(
            "CREATE MATERIALIZED VIEW ranked AS SELECT l.title, r.stars, 10 / r.worst AS score "
            "FROM listings l JOIN reputation r ON l.listing = r.listing"
        )
        run("DELETE FROM ratings WHERE id = 7")
        project.tick()
        run("INSERT INTO ratings VALUES (1000, 3, 0)")  # 10 / 0
        with contextlib.suppress(WindrowError):
            project.tick()
    return workspace


@contextlib.contextmanager
def _project(workspace: Workspace, spark: Any) -> Iterator[Any]:
    from windrow.project import Project

    with Project(workspace.root, spark=spark, progress=False) as project:
        yield project


def _tables(folder: Path) -> None:
    """Views of listings in May 2024, and checkouts."""
    from datetime import UTC, datetime, timedelta

    import pyarrow as pa
    import pyarrow.parquet as pq

    start = datetime(2024, 5, 10, tzinfo=UTC)
    count = 600
    views = pa.table(
        {
            "view_id": list(range(count)),
            "user_id": [number * 7 % 23 for number in range(count)],
            "listing_id": [number * 5 % 40 for number in range(count)],
            "category": [("roses", "tools", "seeds")[number % 3] for number in range(count)],
            "price": [5 + number * 13 % 90 / 4 for number in range(count)],
            "ts": [start + timedelta(minutes=50 * number) for number in range(count)],
        }
    )
    pq.write_table(views, folder / "views.parquet")
    checkouts = pa.table(
        {
            "checkout_id": list(range(200)),
            "buyer_id": [number % 30 for number in range(200)],
            "price": [9.5 + number % 7 for number in range(200)],
            "ts": [start + timedelta(minutes=90 * number) for number in range(200)],
        }
    )
    pq.write_table(checkouts, folder / "checkouts.parquet")


@contextlib.contextmanager
def serving(workspace: Workspace) -> Iterator[str]:
    """`windrow serve` with the console beside it, in a thread; its address."""
    served = open_served(workspace.root, {}, workspace.online)
    app = App(served, mounted=open_console(str(workspace.folder), None, Tokens(), Log()))
    (socket,) = listen("127.0.0.1", 0, 1)
    begun = threading.Event()
    worker = Worker(app, started=begun.set)
    thread = threading.Thread(target=worker.run, args=([socket],))
    thread.start()
    try:
        assert begun.wait(60)
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        worker.should_exit = True
        thread.join(60)
        app.close()


def report(root: Path, run: str, different: int = 0, name: str = "training") -> None:
    """A report of the consistency job, with so many values that are different."""
    counted = Counted(equal=1_000 - different, both_empty=5, different=different)
    feature = FeatureReport(
        "activity_view_id_count_7d", counted, dict.fromkeys(QUANTILES, 1.0), {0: counted}
    )
    row = {"view_id": 1, "ts": "2024-05-01"}
    late = Reason(Cause.ARRIVED_LATER, "a row came after it was served", [row], proven=True)
    keys = {"user_id": "<b>7</b>"}
    wrong = Example(feature.name, keys, 1_714_521_600_000, "different", 7, 8, 1.0, reasons=(late,))
    found = Report(
        name,
        run,
        "1",
        "2024-05-01",
        None,
        0.999,
        verdict_of([feature], 0.999),
        counted,
        (feature,),
        (wrong,) if different else (),
        notes=("a note",) if different else (),
    )
    store_report(Store.at(root), found)
