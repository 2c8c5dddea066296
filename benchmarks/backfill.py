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
import functools
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
from dataclasses import dataclass, field
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

    price, key, asked = pl.col("price"), "user_id", pl.col("query_id").is_not_null()
    left = pl.scan_parquet(queries).with_columns(pl.lit(None, pl.Float64).alias("price"))
    right = pl.scan_parquet(events / "*.parquet").with_columns(
        pl.lit(None, pl.Int64).alias("query_id")
    )
    columns = ["query_id", key, "ts", "price"]
    both = pl.concat([right.select(columns), left.select(columns)])
    both = both.sort(key, "ts", "price", nulls_last=False).collect().lazy()
    seen = pl.when(price.is_not_null()).then(pl.col("ts")).forward_fill().over(key)
    last = price.forward_fill().over(key)
    found = [both.with_columns(seen.alias("seen"), last.alias("last")).filter(asked).collect()]
    for name in HOURS:  # a window at a time, which halves the memory at the same speed
        options: dict[str, Any] = {"window_size": name, "closed": "left"}
        one = price.is_not_null().cast(pl.Int64)
        window = [
            one.rolling_sum_by("ts", **options).over(key).alias(f"count_{name}"),
            price.rolling_sum_by("ts", **options).over(key).alias(f"sum_{name}"),
            price.rolling_min_by("ts", **options).over(key).alias(f"min_{name}"),
            price.rolling_max_by("ts", **options).over(key).alias(f"max_{name}"),
            price.rolling_mean_by("ts", **options).over(key).alias(f"avg_{name}"),
        ]
        found.append(both.select("query_id", *window).filter(asked).drop("query_id").collect())
    lasts = [
        pl.when(pl.col("seen") >= pl.col("ts") - pl.duration(hours=hours))
        .then(pl.col("last"))
        .alias(f"last_{name}")
        for name, hours in HOURS.items()
    ]
    table = pl.concat(found, how="horizontal").with_columns(*lasts)
    table.drop("seen", "last", "price").write_parquet(out)


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
            # Polars sums nothing to 0, or to the rounding errors of what has left the window.
            b = np.where(np.isnan(a) & (np.abs(b) < 1e-9), np.nan, b)
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


@dataclass
class Measured:
    """A project of its own, where it rests, and the stages of its backfills."""

    project: Any
    folder: Path
    stages: list[dict[str, float]] = field(default_factory=list)


class Bench:
    """The data of a run, the session, and a new project for each measurement."""

    def __init__(self, root: Path, events: int, queries: int, keys: int, repeats: int) -> None:
        self.root, self.repeats, self.keys = root, repeats, keys
        self.size, self.asked = events, queries
        self.events, self.queries = root / "events", root / "queries.parquet"
        write_events(self.events, events, keys)
        write_queries(self.queries, queries, keys)
        self._last: Measured | None = None

    @functools.cached_property
    def spark(self) -> Any:
        return session()

    def project(self) -> Measured:
        """A new project; the files of the one before are dropped."""
        import windrow as wr

        if self._last is not None:
            shutil.rmtree(self._last.folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=self.root))
        self._last = Measured(wr.Project(folder, spark=self.spark, progress=False), folder)
        return self._last

    def warm_up(self) -> None:
        small = self.root / "small"
        write_events(small / "events", 50_000, 1_000)
        write_queries(small / "queries.parquet", 5_000, 1_000)
        for _ in range(2):
            project = self.project().project
            windrow_backfill(project, small / "events", small / "queries.parquet")

    def windrow(self, events: Path, **more: Any) -> tuple[float, float, Measured]:
        """Seconds from raw files, then once more from the arrangement."""
        measured = self.project()
        seconds = []
        for _ in range(2):
            seconds.append(
                timed(lambda: windrow_backfill(measured.project, events, self.queries, **more))
            )
            stages = measured.project.summary.stages
            measured.stages.append({name: round(value, 3) for name, value in stages.items()})
        if events == self.events and not more:
            self._result = result_of(measured.folder / "results/bench", "e_", "price_")
        return seconds[0], seconds[1], measured

    def result(self) -> pa.Table:
        """The features over the whole data."""
        return self._result


def median(values: list[float]) -> float:
    return statistics.median(values)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def beside_polars(bench: Bench) -> dict[str, Any]:
    """Windrow from raw files and from arranged events beside Polars, in turn."""
    raw, arranged, polars = [], [], []
    out = bench.root / "polars.parquet"
    for _ in range(bench.repeats):
        first, second, project = bench.windrow(bench.events)
        raw.append(first)
        arranged.append(second)
        polars.append(timed(lambda: polars_backfill(bench.events, bench.queries, out)))
        say(f"windrow {first:.2f} s raw, {second:.2f} s arranged; polars {polars[-1]:.2f} s")
        stages = project.stages
    return {
        "seconds_from_raw": median(raw),
        "seconds_from_arranged": median(arranged),
        "polars_seconds": median(polars),
        "polars_from_raw": median(raw) / median(polars),
        "polars_from_arranged": median(arranged) / median(polars),
        "polars_differences": differences(bench.result(), result_of(out)),
        "stages_from_raw": stages[0],
        "stages_from_arranged": stages[1],
    }


def beside_duckdb(bench: Bench, raw: float) -> dict[str, Any]:
    out = bench.root / "duckdb.parquet"
    seconds = timed(lambda: duckdb_backfill(bench.events, bench.queries, out))
    say(f"duckdb {seconds:.1f} s")
    return {
        "duckdb_seconds": seconds,
        "duckdb_from_raw": raw / seconds,
        "duckdb_differences": differences(bench.result(), result_of(out)),
    }


def beside_spark(bench: Bench, share: int) -> dict[str, Any]:
    """Plain Spark's range join over a share of the data, beside Windrow over the same."""
    small = bench.root / "share"
    write_events(small / "events", bench.size // share, bench.keys)
    write_queries(small / "queries.parquet", bench.asked // share, bench.keys)
    project = bench.project()
    mine = timed(
        lambda: windrow_backfill(project.project, small / "events", small / "queries.parquet")
    )
    out = bench.root / "spark"
    seconds = timed(
        lambda: spark_backfill(bench.spark, small / "events", small / "queries.parquet", out)
    )
    say(f"plain spark {seconds:.1f} s, windrow {mine:.2f} s, for 1/{share} of the data")
    wrong = differences(result_of(project.folder / "results/bench", "e_", "price_"), result_of(out))
    return {
        "spark_share": 1 / share,
        "spark_seconds": seconds,
        "spark_from_raw": mine / seconds,
        "spark_differences": wrong,
    }


def growth(bench: Bench, raw: float, arranged: float) -> dict[str, Any]:
    """Twice the events; twice the windows."""
    double = bench.root / "double"
    write_events(double, 2 * bench.size, bench.keys, files=16)
    events = [bench.windrow(double)[:2] for _ in range(bench.repeats)]
    shutil.rmtree(double)
    hours = {**HOURS, "2h": 2, "3d": 72, "14d": 336, "60d": 1440}
    windows = [bench.windrow(bench.events, hours=hours)[:2] for _ in range(bench.repeats)]
    say(f"double events {events}, double windows {windows}")
    return {
        "double_events": median([e[0] for e in events]) / raw,
        "double_events_from_arranged": median([e[1] for e in events]) / arranged,
        "double_windows": median([w[0] for w in windows]) / raw,
        "double_windows_from_arranged": median([w[1] for w in windows]) / arranged,
    }


def memory(bench: Bench) -> dict[str, Any]:
    mine = peak_memory("windrow", bench.events, bench.queries, bench.root / "m1")
    polars = peak_memory("polars", bench.events, bench.queries, bench.root / "m2")
    return {
        "memory_mib": mine,
        "polars_memory_mib": polars,
        "memory_vs_polars": mine / polars,
    }


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(root, options.events, options.queries, options.keys, options.repeats)
    out: dict[str, Any] = {"events": options.events, "queries": options.queries}
    out |= memory(bench)  # before this process has a session, which its children would share
    bench.warm_up()
    out |= beside_polars(bench)
    raw, arranged = out["seconds_from_raw"], out["seconds_from_arranged"]
    out |= growth(bench, raw, arranged)
    if "duckdb" not in options.skip:
        out |= beside_duckdb(bench, raw)
    if "spark" not in options.skip:
        out |= beside_spark(bench, options.spark_share)
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spark-share", type=int, default=10, help="plain Spark gets 1/n")
    parser.add_argument("--skip", nargs="*", default=[], choices=["duckdb", "spark"])
    parser.add_argument("--only", nargs=4, metavar=("SYSTEM", "EVENTS", "QUERIES", "FOLDER"))
    options = parser.parse_args()
    if options.only:
        system, events, queries, folder = options.only
        run_only(system, Path(events), Path(queries), Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        found = measure(Path(folder), options)
    print(json.dumps(found, default=lambda value: round(value, 4)))


if __name__ == "__main__":
    main()
