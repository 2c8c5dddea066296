"""The backfill beside Polars, DuckDB and plain Spark, on this machine, in one run; JSON last.

10 M events of 100 k keys, the hottest with 8 % of them; 500 k queries; count, sum, min, max, avg
and last over 1 h, 1 d, 7 d and 30 d (sliding windows, which every peer can express). Every system
reads the same Parquet files and stores the features as Parquet; each runs several times, in turn,
and medians are compared. The machine's memory is its own (`resident`), its caches are warm, Spark's
session runs and the compiled kernels are loaded; each backfill from raw files gets a new project.

    python benchmarks/backfill.py [--events 10000000] [--queries 500000] [--repeats 3]
                                  [--sections entities skew ...]
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
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from backfill_data import (
    DAY_MS,
    DAYS,
    FIRST,
    write_days,
    write_events,
    write_mutations,
    write_queries,
)
from backfill_peers import HOURS, duckdb_backfill, polars_backfill, spark_backfill
from peak_memory import PeakMemory
from resident import fill_free_memory

OPERATIONS = ("count", "sum", "min", "max", "avg", "last")


def windrow_join(source: Any, queries: Path, hours: dict[str, int] = HOURS) -> Any:
    import windrow as wr

    sliding: dict[str, Any] = {"kind": "sliding"}
    aggregations = [getattr(wr.agg, name)("price").over(*hours, **sliding) for name in OPERATIONS]
    group = wr.GroupBy("e", source, ["user_id"], aggregations)
    return wr.Join("bench", wr.Queries(str(queries), time="ts"), [group])


def event_source(events: Path) -> Any:
    import windrow as wr

    return wr.EventSource("events", str(events), time="ts")


def windrow_backfill(
    project: Any, events: Path, queries: Path, hours: dict[str, int] = HOURS, **options: Any
) -> Any:
    project.backfill(windrow_join(event_source(events), queries, hours), **options)
    return project.summary


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


def differences(found: pa.Table, expected: pa.Table, leaving_out: str = "none") -> int:
    """In how many values the two differ by more than the tolerance of a peer's float sums."""
    if found.num_rows != expected.num_rows:
        return abs(found.num_rows - expected.num_rows) * found.num_columns
    wrong = 0
    for name in expected.column_names:
        if name.startswith(leaving_out):
            continue
        a = found.column(name).to_pandas().to_numpy(np.float64, na_value=np.nan)
        b = expected.column(name).to_pandas().to_numpy(np.float64, na_value=np.nan)
        if name.startswith("sum"):
            # Polars sums nothing to 0, or to the rounding errors of what has left the window.
            b = np.where(np.isnan(a) & (np.abs(b) < 1e-9), np.nan, b)
        wrong += int((~np.isclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)).sum())
    return wrong


def peak_memory(system: str, events: Path, queries: Path, folder: Path) -> float:
    """The peak of one backfill from raw files in a new process."""
    command = [sys.executable, __file__, "--only", system, str(events), str(queries), str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    with PeakMemory(child.pid, ["java"] if system == "windrow" else []) as memory:
        if child.wait():
            raise SystemExit(f"{system} failed")
    return memory.peak


def run_only(system: str, events: Path, queries: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if system == "polars":
        polars_backfill(events, queries, folder / "polars.parquet")
    else:
        import windrow as wr

        project = wr.Project(folder / "memory", spark=session(), progress=False)
        print(windrow_backfill(project, events, queries).peak_memory)


def session() -> Any:
    from windrow.spark.session import local_session

    return local_session("bench-backfill", cores=str(os.cpu_count()))


def timed(work: Callable[[], Any]) -> float:
    fill_free_memory()
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

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.root, self.repeats, self.keys = root, options.repeats, options.keys
        self.size, self.asked = options.events, options.queries
        self.spark_share = options.spark_share
        self.events, self.queries = root / "events", root / "queries.parquet"
        write_events(self.events, self.size, self.keys)
        write_queries(self.queries, self.asked, self.keys)
        self._last: Measured | None = None
        self._raw: list[float] = []  # seconds over the whole data

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
        """Load what is loaded once: more queries than are few, so that all stages run."""
        small = self.root / "small"
        write_events(small / "events", 500_000, 1_000)
        write_queries(small / "queries.parquet", 100_000, 1_000)
        for _ in range(3):
            project = self.project().project
            windrow_backfill(project, small / "events", small / "queries.parquet")

    def windrow(
        self, events: Path, *, queries: Path | None = None, **more: Any
    ) -> tuple[float, float, Measured]:
        """Seconds from raw files, then once more from the arrangement."""
        measured = self.project()
        asked = queries or self.queries
        seconds = []
        for _ in range(2):
            seconds.append(timed(lambda: windrow_backfill(measured.project, events, asked, **more)))
            stages = measured.project.summary.stages
            measured.stages.append({name: round(value, 3) for name, value in stages.items()})
        if events == self.events and not more:
            self._raw.append(seconds[0])
            self._result = result_of(measured.folder / "results/bench", "e_", "price_")
        return seconds[0], seconds[1], measured

    def seconds_from_raw(self) -> float:
        """Of the whole data, from raw files: the median of what was measured so far."""
        while len(self._raw) < self.repeats:
            self.windrow(self.events)
        return median(self._raw)

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


def beside_duckdb(bench: Bench) -> dict[str, Any]:
    raw = bench.seconds_from_raw()
    out = bench.root / "duckdb.parquet"
    seconds = timed(lambda: duckdb_backfill(bench.events, bench.queries, out))
    say(f"duckdb {seconds:.1f} s")
    return {
        "duckdb_seconds": seconds,
        "duckdb_from_raw": raw / seconds,
        # Of two events in one millisecond DuckDB's window takes either as the last.
        "duckdb_differences": differences(bench.result(), result_of(out), leaving_out="last"),
    }


def beside_spark(bench: Bench) -> dict[str, Any]:
    """Plain Spark's range join over a share of the data, beside Windrow over the same."""
    share = bench.spark_share
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


def growth(bench: Bench) -> dict[str, Any]:
    """Twice the events, and twice the windows, beside once, in turn."""
    double = bench.root / "double"
    write_events(double, 2 * bench.size, bench.keys, files=16)
    hours = {**HOURS, "2h": 2, "3d": 72, "14d": 336, "60d": 1440}
    once, events, windows = [], [], []
    for _ in range(bench.repeats):
        once.append(bench.windrow(bench.events)[:2])
        events.append(bench.windrow(double)[:2])
        windows.append(bench.windrow(bench.events, hours=hours)[:2])
    shutil.rmtree(double)
    say(f"once {once}, double events {events}, double windows {windows}")

    def ratio(several: list[tuple[float, float]], which: int) -> float:
        return median([t[which] for t in several]) / median([t[which] for t in once])

    return {
        "double_events": ratio(events, 0),
        "double_events_from_arranged": ratio(events, 1),
        "double_windows": ratio(windows, 0),
        "double_windows_from_arranged": ratio(windows, 1),
    }


def growth_eightfold(bench: Bench) -> dict[str, Any]:
    """Eight times the events, the queries and the keys, beside once, in turn."""
    events, queries = bench.root / "eightfold", bench.root / "eightfold.parquet"
    write_events(events, 8 * bench.size, 8 * bench.keys, files=64)
    write_queries(queries, 8 * bench.asked, 8 * bench.keys)
    once, eight = [], []
    for _ in range(bench.repeats):
        once.append(bench.windrow(bench.events)[:2])
        eight.append(bench.windrow(events, queries=queries)[:2])
    shutil.rmtree(events)
    say(f"once {once}, eightfold {eight}")
    raw, arranged = (
        median([times[i] for times in eight]) / median([times[i] for times in once])
        for i in range(2)
    )
    return {"growth_8x": raw, "growth_8x_from_arranged": arranged}


def memory(bench: Bench) -> dict[str, Any]:
    mine = peak_memory("windrow", bench.events, bench.queries, bench.root / "m1")
    polars = peak_memory("polars", bench.events, bench.queries, bench.root / "m2")
    return {
        "memory_mib": mine,
        "polars_memory_mib": polars,
        "memory_vs_polars": mine / polars,
    }


def skew(bench: Bench) -> dict[str, Any]:
    """Half of all events on one key, beside keys that are all alike."""
    even, half = bench.root / "even", bench.root / "half"
    write_events(even, bench.size, bench.keys, hot=0.0)
    write_events(half, bench.size, bench.keys, hot=0.5)
    times = [(bench.windrow(even)[:2], bench.windrow(half)[:2]) for _ in range(bench.repeats)]
    say(f"even and half on one key {times}")
    shutil.rmtree(even)
    shutil.rmtree(half)
    ratios = [
        median([half[i] for _, half in times]) / median([even[i] for even, _ in times])
        for i in range(2)
    ]
    return {"half_on_one_key": ratios[0], "half_on_one_key_from_arranged": ratios[1]}


def few_queries(bench: Bench) -> dict[str, Any]:
    """A thousand queries over events that are not arranged: broadcast beside merge."""
    path = bench.root / "few.parquet"
    write_queries(path, 1_000, bench.keys)
    times: dict[str, list[float]] = {"broadcast": [], "merge": []}
    for _ in range(bench.repeats):
        for strategy, found in times.items():
            project = bench.project().project
            found.append(
                timed(
                    lambda: windrow_backfill(project, bench.events, path, strategy=strategy)  # noqa: B023
                )
            )
    say(f"1,000 queries {times}")
    return {
        "broadcast_vs_merge": median(times["broadcast"]) / median(times["merge"]),
        "broadcast_seconds": median(times["broadcast"]),
    }


def more_queries(bench: Bench) -> dict[str, Any]:
    """What a second backfill, of more queries, reads of raw events."""
    project = bench.project().project
    windrow_backfill(project, bench.events, bench.queries)
    more = bench.root / "more.parquet"
    write_queries(more, 2 * bench.asked, bench.keys)
    (one,) = project.plan(windrow_join(event_source(bench.events), more)).arrangements
    planned = sum(reading.table.parquet.bytes for _, reading in one.readings())
    summary = windrow_backfill(project, bench.events, more)
    return {"second_backfill_raw_bytes": planned, "second_backfill_raw_rows": summary.raw_rows_read}


def one_more_day(bench: Bench) -> dict[str, Any]:
    """Ninety days of events and queries, then one more day of both, several times."""
    events, queries = bench.root / "days", bench.root / "asked"

    def write(days: range) -> None:
        write_days(events, bench.size // DAYS, bench.keys, days, seed=0)
        write_days(queries, bench.asked // DAYS, bench.keys, days, seed=7_000)

    write(range(DAYS))
    full, more = [], []
    for _ in range(bench.repeats):
        project = bench.project().project
        full.append(timed(lambda: windrow_backfill(project, events, queries)))  # noqa: B023
    for number in range(DAYS, DAYS + bench.repeats):
        write(range(number, number + 1))
        day = str(np.datetime64(FIRST + number * DAY_MS, "ms").astype("M8[D]"))
        more.append(timed(lambda: windrow_backfill(project, events, queries, start=day, end=day)))  # noqa: B023
    say(f"90 days {full}, one more {more} {project.summary}")
    return {
        "one_more_day": median(more) / median(full),
        "one_more_day_seconds": median(more),
        "stages_one_more_day": {k: round(v, 3) for k, v in project.summary.stages.items()},
    }


def entities(bench: Bench) -> dict[str, Any]:
    """The same rows as a mutation log with updates and deletes, beside events, in turn."""
    import windrow as wr

    log = bench.root / "mutations"
    write_mutations(log, bench.events)
    source = wr.EntitySource("events", "ts", mutations=str(log), mutation_time="mutation_ts")
    found, plain = [], []
    for _ in range(bench.repeats):
        seconds, _, measured = bench.windrow(bench.events)
        plain.append(seconds)
        project = bench.project().project
        found.append(timed(lambda: project.backfill(windrow_join(source, bench.queries))))  # noqa: B023
    say(f"events {plain}, entities {found} {project.summary.stages}")
    shutil.rmtree(log)
    return {
        "entity_vs_event": median(found) / median(plain),
        "entity_seconds": median(found),
        "stages_event": measured.stages[0],
        "stages_entity": {k: round(v, 3) for k, v in project.summary.stages.items()},
    }


def task_memory(bench: Bench) -> dict[str, Any]:
    """Peak memory of a task, each in a new session, when the data grows eightfold.

    The smaller size is such that each task has as much as it sorts at a time.
    """
    found = []
    for factor in (1, 8):
        events, queries = bench.root / f"x{factor}", bench.root / f"q{factor}.parquet"
        size, asked, keys = (4 * n // 5 * factor for n in (bench.size, bench.asked, bench.keys))
        write_events(events, size, keys, hot=0.0)
        write_queries(queries, asked, keys)
        command = [sys.executable, __file__, "--only", "windrow", str(events), str(queries)]
        done = subprocess.run(
            [*command, str(bench.root / f"t{factor}")], check=True, capture_output=True, text=True
        )
        found.append(int(done.stdout.strip().splitlines()[-1]) / 2**20)
        shutil.rmtree(events)
        shutil.rmtree(bench.root / f"t{factor}")
    return {"task_memory_mib": found, "task_memory_growth": found[1] / found[0]}


Section = Callable[[Bench], dict[str, Any]]

# These start processes, before this one has a session, which its children would share.
BEFORE_SESSION: dict[str, Section] = {"memory": memory, "task_memory": task_memory}
IN_SESSION: dict[str, Section] = {
    "polars": beside_polars,
    "growth": growth,
    "growth_8x": growth_eightfold,
    "skew": skew,
    "few_queries": few_queries,
    "more_queries": more_queries,
    "one_more_day": one_more_day,
    "entities": entities,
    "duckdb": beside_duckdb,
    "spark": beside_spark,
}
SECTIONS = [*BEFORE_SESSION, *IN_SESSION]


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(root, options)
    out: dict[str, Any] = {"events": options.events, "queries": options.queries}
    wanted = [name for name in options.sections if name not in options.skip]
    for name, section in BEFORE_SESSION.items():
        if name in wanted:
            out |= section(bench)
    bench.warm_up()
    for name, section in IN_SESSION.items():
        if name in wanted:
            out |= section(bench)
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spark-share", type=int, default=10, help="plain Spark gets 1/n")
    parser.add_argument("--sections", nargs="*", default=SECTIONS, choices=SECTIONS)
    parser.add_argument("--skip", nargs="*", default=[], choices=SECTIONS)
    parser.add_argument("--only", nargs=4, metavar=("SYSTEM", "EVENTS", "QUERIES", "FOLDER"))
    options = parser.parse_args()
    if options.only:
        system, events, queries, folder = options.only
        run_only(system, Path(events), Path(queries), Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="windrow-bench-", ignore_cleanup_errors=True) as folder:
        found = measure(Path(folder), options)
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}))


if __name__ == "__main__":
    main()
