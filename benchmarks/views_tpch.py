"""The 22 queries of TPC-H as maintained views, beside Spark computing them again; JSON last.

Orders come and go with their lineitems: one in a thousand changes, half of the changes deletes. One
tick brings all 22 views up to date. Spark computes the same queries over the tables as Parquet
files, its session warm, and its results go nowhere (`noop`).

`sharing` is what all views keep together over the sum of what each keeps, in bytes. Ticks run
several views at a time, so the seconds of a query are those of its job, waiting included.

    python benchmarks/views_tpch.py [--scale 1] [--repeats 3] [--queries q1 q3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peak_memory import PeakMemory
from views_data import say, timed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "views"))

SHARE = 0.001  # of the orders that change in a tick
SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}


class Base:
    """All tables of a scale, in a project with the views, and as files for Spark."""

    def __init__(self, spark: Any, folder: Path, scale: str, queries: Sequence[str]) -> None:
        from tpch import QUERIES, TABLES, Refresh, columns, generate

        import windrow

        self.spark, self.folder, self.tables = spark, folder, TABLES
        self.queries = {name: QUERIES[name] for name in queries or QUERIES}
        self.refresh = Refresh.of(generate(folder / "data", scale))
        self.project = windrow.Project(folder / "project", spark=spark, progress=False)
        started = time.perf_counter()
        for name in TABLES:
            table = self.refresh.tables[name]
            self.project.sql(f"CREATE TABLE {name} ({columns(table)})")
            self.project.table(name).insert(spark.createDataFrame(table))
        say(f"scale {scale}: tables loaded in {time.perf_counter() - started:.1f} s")
        self.fills = {}
        for name, text in self.queries.items():
            create = f"CREATE MATERIALIZED VIEW {name} AS {text}"
            self.fills[name] = timed(lambda create=create: self.project.sql(create))  # type: ignore[misc]
            say(f"{name}: filled in {self.fills[name]:.1f} s")

    def tick(self) -> tuple[float, dict[str, float]]:
        """Changes into both tables, then one tick: its seconds, and those of each view's job."""
        from windrow.views.jobs import ViewJob

        orders = max(1, int(self.refresh.tables["orders"].num_rows * SHARE / 2))
        for name, change in self.refresh.batch(orders=orders, others=0).items():
            if change.num_rows:
                self.project.table(name).apply(self.spark.createDataFrame(change))
        seconds: dict[str, float] = {}
        run = ViewJob.run

        def watched(job: ViewJob, *args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return run(job, *args, **options)
            finally:
                seconds[job.name] = time.perf_counter() - started

        ViewJob.run = watched  # type: ignore[method-assign]
        try:
            return timed(self.project.tick), seconds
        finally:
            ViewJob.run = run  # type: ignore[method-assign]

    def recompute(self, repeats: int) -> dict[str, float]:
        """Seconds in which Spark computes each query over files: medians, the first left out."""
        import pyarrow.parquet as pq

        session = self.spark.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        for name in self.tables:
            path = self.folder / "now" / f"{name}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(self.refresh.tables[name], path, row_group_size=500_000)
            session.read.parquet(str(path)).createOrReplaceTempView(name)
        found: dict[str, list[float]] = {name: [] for name in self.queries}
        for _ in range(repeats + 1):
            for name, text in self.queries.items():
                writer = session.sql(text).write.format("noop").mode("overwrite")
                found[name].append(timed(writer.save))
        self.session = session
        return {name: statistics.median(times[1:]) for name, times in found.items()}

    def differences(self) -> list[str]:
        """The views that differ from what Spark gives over the same tables."""
        from view_oracle import differences

        wrong = []
        for name, text in self.queries.items():
            if differences(self.session.sql(text), self.project.read(name)):
                wrong.append(name)
        return wrong

    def estimate_error(self) -> float | None:
        """The median of how far the estimates of arrangements were off."""
        from windrow.views.costs.catalogue import estimate_error

        return estimate_error(self.project.costs(exact=True))

    def kept(self) -> dict[str, Any]:
        """Bytes and records of what all views keep together, and of what each keeps."""
        history = self.project._statements.history
        views = {name: history.catalogue[name]["arrangements"].values() for name in self.queries}

        def size(ids: Any, what: str) -> int:
            parts = [part for id in set(ids) for part in history.collection(id).parts]
            return sum(int(getattr(part, what)) for part in parts)

        each = {name: size(ids, "bytes") for name, ids in views.items()}
        everything = [id for ids in views.values() for id in ids]
        return {
            "sharing": size(everything, "bytes") / max(1, sum(each.values())),
            "kept_bytes": size(everything, "bytes"),
            "kept_records": size(everything, "rows"),
            "arrangements": len(set(everything)),
            "tables_bytes": size(
                [history.catalogue[t]["collection"] for t in self.tables], "bytes"
            ),
        }


def measured(
    spark: Any, root: Path, scale: str, repeats: int, queries: Sequence[str] = ()
) -> dict[str, Any]:
    """All figures; callable from the other benchmark of views."""
    base = Base(spark, root / f"tpch_{scale}", scale, queries)
    ticks = []
    for _ in range(repeats + 1):
        ticks.append(base.tick())
        say(f"tick: {ticks[-1][0]:.2f} s")
    recomputed = base.recompute(repeats)
    error = base.estimate_error()
    tick = statistics.median(one for one, _ in ticks[1:])
    wrong = base.differences()
    each = {
        name: statistics.median(jobs[name] for _, jobs in ticks[1:] if name in jobs)
        for name in base.queries
        if any(name in jobs for _, jobs in ticks[1:])
    }
    return {
        "tpch_scale": scale,
        "tpch_all": tick / sum(recomputed.values()),
        "tpch_tick_seconds": tick,
        "tpch_first_tick_seconds": ticks[0][0],
        "tpch_recompute_seconds": sum(recomputed.values()),
        "tpch_fill_seconds": sum(base.fills.values()),
        "tpch_job_seconds": {name: round(value, 3) for name, value in each.items()},
        "tpch_recompute_each": {name: round(value, 3) for name, value in recomputed.items()},
        "tpch_differences": wrong,
        "estimate_error": error,
        **base.kept(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", default="1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--queries", nargs="*", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        os.environ.setdefault("WINDROW_CACHE", f"{folder}/cache")
        from windrow.spark.session import local_session

        spark = local_session("bench-views-tpch", cores=str(os.cpu_count()))
        spark.sparkContext.setLogLevel("ERROR")
        with PeakMemory(os.getpid(), ["java"]) as memory:
            out = measured(spark, Path(folder), options.scale, options.repeats, options.queries)
        out["memory_mib"] = memory.peak
        spark.stop()
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}))


if __name__ == "__main__":
    main()
