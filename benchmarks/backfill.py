"""The backfill beside Polars, DuckDB and plain Spark, on this machine, in one run; JSON last.

10 M events of 100 k keys, the hottest with 8 % of them; 500 k queries; count, sum, min, max, avg
and last over 1 h, 1 d, 7 d and 30 d (sliding windows, which every peer can express). Every system
reads the same Parquet files and stores the features as Parquet; each runs several times, in turn,
and medians are compared. The machine's caches are warm, Spark's session runs and the compiled
kernels are loaded; each backfill from raw files gets a new project.

    python benchmarks/backfill.py [--events 10000000] [--queries 500000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAY_MS = 86_400_000
DAYS = 90
FIRST = 1_700_006_400_000  # a midnight, UTC
HOURS = {"1h": 1, "1d": 24, "7d": 168, "30d": 720}
OPERATIONS = ("count", "sum", "min", "max", "avg", "last")
STAMP = pa.timestamp("ms", "UTC")


def keys_of(rng: np.random.Generator, rows: int, keys: int, hot: float) -> np.ndarray:
    """Random keys; number 0 has the share `hot` of all rows, the others are skewed mildly."""
    found = (rng.random(rows) ** 1.5 * (keys - 1)).astype(np.int64) + 1
    found[rng.random(rows) < hot] = 0
    return found


def write_events(folder: Path, rows: int, keys: int, hot: float = 0.08, files: int = 8) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        rng = np.random.default_rng(number)
        size = rows // files
        table = pa.table(
            {
                "user_id": keys_of(rng, size, keys, hot),
                "ts": pa.array(FIRST + rng.integers(0, DAYS * DAY_MS, size), STAMP),
                "price": np.round(rng.lognormal(3, 1, size), 2),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", compression="snappy")


def write_queries(path: Path, rows: int, keys: int) -> None:
    rng = np.random.default_rng(99)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "query_id": np.arange(rows),
            "user_id": keys_of(rng, rows, keys, 0.08),
            "ts": pa.array(FIRST + rng.integers(0, DAYS * DAY_MS, rows), STAMP),
        }
    )
    pq.write_table(table, path)


def windrow_backfill(
    project: Any, events: Path, queries: Path, hours: dict[str, int] = HOURS, keys: str = "user_id"
) -> Any:
    import windrow as wr

    source = wr.EventSource("events", str(events), time="ts")
    sliding: dict[str, Any] = {"kind": "sliding"}
    group = wr.GroupBy(
        "e",
        source,
        [keys],
        [getattr(wr.agg, name)("price").over(*hours, **sliding) for name in OPERATIONS],
    )
    project.backfill(wr.Join("bench", wr.Queries(str(queries), time="ts"), [group]))
    return project.summary


def polars_backfill(events: Path, queries: Path, out: Path) -> None:
    """Rolling aggregates over events and queries together, then the rows of queries.

    `closed="left"` takes [t - W, t). Rows of queries hold no price and come before the events of
    their moment, so the last price is the one carried forward, if it is not too old.
    """
    import polars as pl

    price, key = pl.col("price"), "user_id"
    left = pl.scan_parquet(queries).with_columns(pl.lit(None, pl.Float64).alias("price"))
    right = pl.scan_parquet(events / "*.parquet").with_columns(
        pl.lit(None, pl.Int64).alias("query_id")
    )
    columns = ["query_id", key, "ts", "price"]
    both = pl.concat([right.select(columns), left.select(columns)])
    both = both.sort(key, "ts", "price", nulls_last=False).with_columns(
        pl.when(price.is_not_null()).then(pl.col("ts")).forward_fill().over(key).alias("seen"),
        price.forward_fill().over(key).alias("last"),
        price.is_not_null().cast(pl.Int64).alias("one"),
    )
    features = []
    for name in HOURS:
        options: dict[str, Any] = {"window_size": name, "closed": "left"}
        features += [
            pl.col("one").rolling_sum_by("ts", **options).over(key).alias(f"count_{name}"),
            price.rolling_sum_by("ts", **options).over(key).alias(f"sum_{name}"),
            price.rolling_min_by("ts", **options).over(key).alias(f"min_{name}"),
            price.rolling_max_by("ts", **options).over(key).alias(f"max_{name}"),
            price.rolling_mean_by("ts", **options).over(key).alias(f"avg_{name}"),
            pl.when(pl.col("seen") >= pl.col("ts") - pl.duration(hours=HOURS[name]))
            .then(pl.col("last"))
            .alias(f"last_{name}"),
        ]
    found = both.with_columns(*features).filter(pl.col("query_id").is_not_null())
    found.drop("seen", "last", "price", "one").collect().write_parquet(out)


def duckdb_backfill(events: Path, queries: Path, out: Path) -> None:
    """Events and queries in one relation, a named window per length, over integer time.

    Averages come from sums and counts, which DuckDB has already; integers as time spare it the
    arithmetic of intervals.
    """
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {os.cpu_count()}")
        columns, windows = [], []
        for name, hours in HOURS.items():
            windows.append(
                f"w{name} AS (PARTITION BY user_id ORDER BY ms RANGE BETWEEN "
                f"{hours * 3_600_000} PRECEDING AND 1 PRECEDING)"
            )
            columns += [
                f"count(price) OVER w{name} AS count_{name}",
                f"sum(price) OVER w{name} AS sum_{name}",
                f"min(price) OVER w{name} AS min_{name}",
                f"max(price) OVER w{name} AS max_{name}",
                f"last_value(price IGNORE NULLS) OVER w{name} AS last_{name}",
            ]
        averages = ", ".join(f"sum_{n} / count_{n} AS avg_{n}" for n in HOURS)
        connection.execute(
            f"""
            COPY (
              SELECT * EXCLUDE (ms, price), {averages} FROM (
                SELECT query_id, user_id, ms, price, {", ".join(columns)}
                FROM (
                  SELECT NULL AS query_id, user_id, epoch_ms(ts) AS ms, price
                  FROM read_parquet('{events}/*.parquet')
                  UNION ALL
                  SELECT query_id, user_id, epoch_ms(ts), NULL FROM read_parquet('{queries}')
                )
                WINDOW {", ".join(windows)}
              )
              WHERE query_id IS NOT NULL
            ) TO '{out}' (FORMAT parquet)
            """
        )


def spark_backfill(spark: Any, events: Path, queries: Path, out: Path) -> None:
    """The naive join with conditional aggregates: one pass over all pairs of the longest window."""
    from pyspark.sql import functions as F  # noqa: N812

    q = spark.read.parquet(str(queries)).withColumnRenamed("ts", "q")
    e = spark.read.parquet(str(events))
    longest = max(HOURS.values())
    close = (F.col("ts") < F.col("q")) & (F.col("ts") >= F.expr(f"q - INTERVAL {longest} HOURS"))
    pairs = q.join(e, (q.user_id == e.user_id) & close, "left").drop(e.user_id)
    columns = []
    for name, hours in HOURS.items():
        price = F.expr(f"CASE WHEN ts >= q - INTERVAL {hours} HOURS THEN price END")
        last = F.max_by("price", F.when(price.isNotNull(), F.struct("ts", "price")))
        columns += [
            F.count(price).alias(f"count_{name}"),
            F.sum(price).alias(f"sum_{name}"),
            F.min(price).alias(f"min_{name}"),
            F.max(price).alias(f"max_{name}"),
            F.avg(price).alias(f"avg_{name}"),
            last.alias(f"last_{name}"),
        ]
    found = pairs.groupBy("query_id", "user_id", "q").agg(*columns)
    found.write.mode("overwrite").parquet(str(out))


def result_of(path: Path, prefix: str = "", middle: str = "") -> pa.Table:
    """The stored features by query id, with the peers' column names."""
    if (path / "_delta_log").exists():
        from deltalake import DeltaTable

        table = DeltaTable(str(path)).to_pyarrow_table()
    else:
        table = pq.read_table(path)
    table = table.sort_by("query_id")
    names = [f"{operation}_{window}" for window in HOURS for operation in OPERATIONS]
    return pa.table({name: table.column(f"{prefix}{middle}{name}") for name in names})


def differences(found: pa.Table, expected: pa.Table) -> int:
    """In how many values the two differ by more than the tolerance of a peer's float sums."""
    if found.num_rows != expected.num_rows:
        return abs(found.num_rows - expected.num_rows) * found.num_columns
    wrong = 0
    for name in expected.column_names:
        a = found.column(name).to_pandas().to_numpy(np.float64, na_value=np.nan)
        b = expected.column(name).to_pandas().to_numpy(np.float64, na_value=np.nan)
        if name.startswith("sum"):
            b = np.where(np.isnan(a) & (b == 0), np.nan, b)  # Polars sums nothing to 0
        wrong += int((~np.isclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)).sum())
    return wrong


class PeakMemory:
    """The peak memory of a process and all it started, in MiB; shared pages count once."""

    def __init__(self, pid: int) -> None:
        import psutil

        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0.0

    def _watch(self) -> None:
        import psutil

        while not self._done.wait(0.05):
            total = 0
            try:
                for process in [self._root, *self._root.children(recursive=True)]:
                    with open(f"/proc/{process.pid}/smaps_rollup") as file:
                        total += sum(int(x.split()[1]) for x in file if x.startswith("Pss:"))
            except (OSError, psutil.Error):
                continue  # a process ended while we looked
            self.peak = max(self.peak, total / 1024)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def peak_memory(system: str, events: Path, queries: Path, folder: Path) -> float:
    """The peak of one backfill from raw files in a new process."""
    command = [sys.executable, __file__, "--only", system, str(events), str(queries), str(folder)]
    child = subprocess.Popen(command)
    with PeakMemory(child.pid) as memory:
        if child.wait():
            raise SystemExit(f"{system} failed")
    return memory.peak


def run_only(system: str, events: Path, queries: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if system == "polars":
        polars_backfill(events, queries, folder / "polars.parquet")
    else:
        import windrow as wr

        windrow_backfill(wr.Project(folder / "memory", spark=session()), events, queries)


def session() -> Any:
    from windrow.spark import local_session

    return local_session("bench-backfill", cores=str(os.cpu_count()))


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Bench:
    def __init__(self, root: Path, events: int, queries: int, keys: int, repeats: int) -> None:
        import windrow as wr

        self.root, self.repeats, self.keys = root, repeats, keys
        self.size = events
        self.events, self.queries = root / "events", root / "queries.parquet"
        write_events(self.events, events, keys)
        write_queries(self.queries, queries, keys)
        self.spark = session()
        self._wr = wr
        self._count = 0

    def project(self) -> Any:
        self._count += 1
        return self._wr.Project(self.root / f"project-{self._count}", spark=self.spark)

    def warm_up(self) -> None:
        small = self.root / "small"
        write_events(small / "events", 50_000, 1_000)
        write_queries(small / "queries.parquet", 5_000, 1_000)
        for _ in range(2):
            windrow_backfill(self.project(), small / "events", small / "queries.parquet")

    def windrow(self, events: Path, **more: Any) -> tuple[float, float, Any]:
        """Seconds from raw files, then once more from the arrangement; the project."""
        project = self.project()
        raw = timed(lambda: windrow_backfill(project, events, self.queries, **more))
        return raw, timed(lambda: windrow_backfill(project, events, self.queries, **more)), project

    def drop(self, project: Any) -> None:
        shutil.rmtree(self.root / f"project-{self._count}", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[], choices=["polars", "duckdb", "spark"])
    parser.add_argument("--only", nargs=4, metavar=("SYSTEM", "EVENTS", "QUERIES", "FOLDER"))
    options = parser.parse_args()
    if options.only:
        system, events, queries, folder = options.only
        run_only(system, Path(events), Path(queries), Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        print(json.dumps(measure(Path(folder), options)))


def median(values: list[float]) -> float:
    return statistics.median(values)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(root, options.events, options.queries, options.keys, options.repeats)
    bench.warm_up()
    out: dict[str, Any] = {"events": options.events, "queries": options.queries}
    raw: list[float] = []
    arranged: list[float] = []
    polars: list[float] = []
    for _ in range(options.repeats):
        first, second, project = bench.windrow(bench.events)
        raw.append(first)
        arranged.append(second)
        say(f"windrow {first:.2f} s from raw, {second:.2f} s arranged; {project.summary}")
        if "polars" not in options.skip:
            polars.append(
                timed(lambda: polars_backfill(bench.events, bench.queries, root / "polars.parquet"))
            )
            say(f"polars {polars[-1]:.2f} s")
    out |= {"seconds_from_raw": median(raw), "seconds_from_arranged": median(arranged)}
    mine = result_of(root / f"project-{bench._count}/results/bench", "e_", "price_")
    if polars:
        wrong = differences(mine, result_of(root / "polars.parquet"))
        out |= {
            "polars_seconds": median(polars),
            "polars_from_raw": median(raw) / median(polars),
            "polars_from_arranged": median(arranged) / median(polars),
            "polars_differences": wrong,
        }
    return out


if __name__ == "__main__":
    main()
