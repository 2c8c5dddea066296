"""The 22 queries of TPC-H as maintained views, beside Spark computing them again; JSON last.

Orders come and go with their lineitems: one in a thousand changes, half of the changes deletes. One
tick brings all 22 views up to date. Spark computes the same queries over the tables as Parquet
files, its session warm, and its results go nowhere (`noop`).

`sharing` is what all views keep together, in bytes, over the sum of what each keeps if it is the
only one: each is created alone first, over tables of `--alone` (a tenth of the scale, by default),
and so are all of them together, for the comparison. Ticks run several views at a time, so the
seconds of a query are those of its job, waiting included.

With `--folder`, tables and views are made there once, and found again by the next run.

    python benchmarks/views_tpch.py [--scale 1] [--repeats 3] [--queries q1 q3] [--folder F]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from peak_memory import PeakMemory
from resident import fill_free_memory
from views_data import say, timed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "views"))

SHARE = 0.001  # of the orders that change in a tick
MEMORY = "4g"  # of the JVM, for Spark's joins
SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}


class Base:
    """All tables of a scale, in a project with the views, and as files for Spark."""

    def __init__(self, spark: Any, folder: Path, scale: str, queries: Sequence[str]) -> None:
        from tpch import QUERIES, TABLES, Refresh, columns, generate

        import windrow

        self.spark, self.folder, self.tables = spark, folder, TABLES
        self.queries = {name: QUERIES[name] for name in queries or QUERIES}
        self.refresh = Refresh.of(generate(folder / "data", scale))
        known = (folder / "project").exists()
        self.project = windrow.Project(folder / "project", spark=spark, progress=False)
        if known:
            for _ in range(self.batches):
                self._batch()
        else:
            started = time.perf_counter()
            for name, file in self.files("loaded").items():
                self.project.sql(f"CREATE TABLE {name} ({columns(self.refresh.tables[name])})")
                self.project.table(name).insert(spark.read.parquet(str(file)))
            say(f"scale {scale}: tables loaded in {time.perf_counter() - started:.1f} s")
        self.fills: dict[str, float] = {}

    @property
    def batches(self) -> int:
        """How many there were, in this run and those before it."""
        counted = self.folder / "batches"
        return int(counted.read_text()) if counted.exists() else 0

    def files(self, name: str) -> dict[str, Path]:
        """The tables as they are now, as Parquet files."""
        import pyarrow.parquet as pq

        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        found = {table: folder / f"{table}.parquet" for table in self.tables}
        for table, path in found.items():
            pq.write_table(self.refresh.tables[table], path, row_group_size=500_000)
        return found

    def create(self) -> None:
        """All views that are not there yet."""
        there = self.project._statements.history.catalogue
        for name, text in self.queries.items():
            if name not in there:
                create = f"CREATE MATERIALIZED VIEW {name} AS {text}"
                self.fills[name] = timed(lambda create=create: self.project.sql(create))  # type: ignore[misc]
                say(f"{name}: filled in {self.fills[name]:.1f} s")

    def alone(self) -> dict[str, int]:
        """Bytes of what each view keeps if there is no other."""
        found = {}
        for name, text in self.queries.items():
            self.project.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
            found[name] = self.size(self._kept([name]), "bytes")
            self.project.sql(f"DROP MATERIALIZED VIEW {name}")
        return found

    def _batch(self) -> dict[str, Any]:
        orders = max(1, int(self.refresh.tables["orders"].num_rows * SHARE / 2))
        return dict(self.refresh.batch(orders=orders, others=0))

    def tick(self) -> tuple[float, dict[str, float]]:
        """Changes into both tables, then one tick: its seconds, and those of each view's job."""
        from windrow.views.run.jobs import ViewJob

        fill_free_memory()
        for name, change in self._batch().items():
            if change.num_rows:
                self.project.table(name).apply(self.spark.createDataFrame(change))
        (self.folder / "batches").write_text(str(self.batches + 1))
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
        session = self.spark.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        for name, path in self.files("now").items():
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

    def _kept(self, views: Iterable[str]) -> set[str]:
        """The collections of what the operators of views keep."""
        known = self.project._statements.history.catalogue
        return {id for name in views for id in known[name]["arrangements"].values()}

    def size(self, ids: Iterable[str], what: str) -> int:
        history = self.project._statements.history
        return sum(int(getattr(part, what)) for id in ids for part in history.collection(id).parts)

    def kept(self) -> dict[str, Any]:
        """Bytes and records of what all views keep together, and of the tables."""
        history = self.project._statements.history
        everything = self._kept(self.queries)
        tables = [history.catalogue[t]["collection"] for t in self.tables]
        return {
            "kept_bytes": self.size(everything, "bytes"),
            "kept_records": self.size(everything, "rows"),
            "arrangements": len(everything),
            "tables_bytes": self.size(tables, "bytes"),
        }


def sharing(spark: Any, root: Path, scale: str, queries: Sequence[str]) -> dict[str, Any]:
    """What all views keep together, over the sum of what each keeps if it is the only one."""
    base = Base(spark, root / f"alone_{scale}", scale, queries)
    alone = base.alone()
    base.create()
    together = base.kept()["kept_bytes"]
    base.project.close()
    return {
        "sharing": together / max(1, sum(alone.values())),
        "sharing_scale": scale,
        "sharing_bytes": together,
        "alone_bytes": alone,
    }


def measured(
    spark: Any,
    root: Path,
    scale: str,
    repeats: int,
    queries: Sequence[str] = (),
    alone: str | None = None,
) -> dict[str, Any]:
    """All figures; callable from the other benchmark of views."""
    shared = sharing(spark, root, alone or str(float(scale) / 10), queries)
    say(f"sharing: {shared['sharing']:.3f}")
    return {**ticked(spark, root, scale, repeats, queries), **shared}


def ticked(
    spark: Any, root: Path, scale: str, repeats: int, queries: Sequence[str] = ()
) -> dict[str, Any]:
    """One tick of all views over Spark recomputing them, and what they keep."""
    base = Base(spark, root / f"tpch_{scale}", scale, queries)
    base.create()
    ticks = []
    for _ in range(repeats + 1):
        ticks.append(base.tick())
        say(f"tick: {ticks[-1][0]:.2f} s")
    recomputed = base.recompute(repeats)
    say(f"recomputed: {sum(recomputed.values()):.2f} s")
    error = base.estimate_error()
    say(f"estimates: {error}")
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
    parser.add_argument("--alone", help="the scale at which views are created one by one")
    parser.add_argument("--only", choices=("fill", "ticks", "sharing"))
    parser.add_argument("--folder", type=Path, help="where tables and views are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="windrow-bench-", ignore_cleanup_errors=True
    ) as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        os.environ.setdefault("WINDROW_CACHE", f"{folder}/cache")
        from windrow.spark.session import local_session

        spark = local_session(
            "bench-views-tpch", cores=str(os.cpu_count()), spark__driver__memory=MEMORY
        )
        spark.sparkContext.setLogLevel("ERROR")
        about = options.scale, options.repeats, options.queries
        with PeakMemory(os.getpid(), ["java"]) as memory:
            if options.only == "fill":
                base = Base(spark, folder / f"tpch_{options.scale}", options.scale, options.queries)
                base.create()
                base.project.close()
                out: dict[str, Any] = {"tpch_fill_each": base.fills}
            elif options.only == "ticks":
                out = ticked(spark, folder, *about)
            elif options.only == "sharing":
                out = sharing(spark, folder, options.alone or options.scale, options.queries)
            else:
                out = measured(spark, folder, *about, options.alone)
        out["memory_mib"] = memory.peak
        spark.stop()
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}))


if __name__ == "__main__":
    main()
