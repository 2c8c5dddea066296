"""The shard beside plain Spark, on this machine, in one run; one JSON line last.

20 M updates in 20 runs, of which half cancel. Ratios are what counts: machines differ and are
noisy, so each figure is the median of several repeats in this very process.

Fetching ahead is measured on 200 parts in an object store whose every answer takes 50 ms.

    python benchmarks/shard.py [--updates 20000000] [--runs 20] [--repeats 3]
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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from resident import fill_free_memory
from slow_store import slow_store
from windrow import Shard
from windrow.shard import files
from windrow.shard import shard as shard_module
from windrow.shard.part import ROW_GROUP_ROWS
from windrow.spark.session import local_session

SCHEMA = pa.schema(
    [
        ("user_id", pa.int64()),
        ("item", pa.string()),
        ("price", pa.float64()),
        ("quantity", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)


def rows_at(ids: np.ndarray, users: int) -> pa.Table:
    """The row with each id: a function of the id, so that a retraction repeats its row."""
    mixed = ids * np.int64(0x9E3779B97F4A7C15 - 2**64) % np.int64(2**62)
    items = pa.array([f"item-{i:06d}" for i in range(100_000)])
    return pa.table(
        {
            "user_id": mixed % users,
            "item": items.take(pa.array(mixed // 7 % 100_000)),
            "price": (mixed // 11 % 100_000) / 100,
            "quantity": (mixed // 13 % 9).astype(np.int32),
            "ts": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
        },
        schema=SCHEMA,
    )


def batch(run: int, per_run: int, users: int) -> pa.Table:
    """Updates of one run: three quarters insertions; one quarter retracts rows of the run before.

    In all, half of the updates take part in a cancellation.
    """
    new = per_run * 3 // 4 if run else per_run
    first = 0 if run == 0 else per_run + (run - 1) * (per_run * 3 // 4)
    inserted = np.arange(first, first + new)
    if not run:
        ids, diffs = inserted, np.ones(new, np.int64)
    else:
        before = 0 if run == 1 else per_run + (run - 2) * (per_run * 3 // 4)
        retracted = np.arange(before, before + per_run - new)
        ids = np.concatenate([inserted, retracted])
        diffs = np.concatenate([np.ones(new, np.int64), -np.ones(retracted.size, np.int64)])
    order = np.random.default_rng(run).permutation(ids.size)
    table = rows_at(ids[order], users)
    return table.append_column("_diff", pa.array(diffs[order]))


def build(folder: str, updates: int, runs: int, users: int) -> tuple[Shard, float]:
    """A shard of `runs` runs, and the seconds that its appends took."""
    shard = Shard.create(folder, SCHEMA, key=["user_id"])
    seconds = 0.0
    for run in range(runs):
        table = batch(run, updates // runs, users)
        started = time.perf_counter()
        shard.append(table, lower=run, upper=run + 1)
        seconds += time.perf_counter() - started
    return shard, seconds


def timed(work: Callable[[], Any]) -> float:
    fill_free_memory()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(work: Callable[[], float], repeats: int) -> float:
    return statistics.median(work() for _ in range(repeats))


def to_noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def first_batch(shard: Shard) -> float:
    started = time.perf_counter()
    next(shard.snapshot(limit=1_000).batches())
    return time.perf_counter() - started


def read_in_child(
    uri: str, level: str = "full", options: dict[str, str] | None = None, **environment: str
) -> tuple[float, int]:
    """Seconds and peak memory, in KiB, of a process that reads the whole shard as one reader."""
    # VmHWM and not ru_maxrss, which a new process takes over from the one that started it.
    code = (
        "import json, re, sys, time\n"
        "from windrow import Shard\n"
        "warm, uri, level, options = sys.argv[1:]\n"
        "Shard.open(warm).snapshot(consolidate=level).to_table()\n"
        "shard = Shard.open(uri, storage_options=json.loads(options))\n"
        "started = time.perf_counter()\n"
        "for batch in shard.snapshot(consolidate=level).batches(): pass\n"
        "print(time.perf_counter() - started)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        build(f"{folder}/warm", 20_000, 2, 100)
        out = subprocess.run(
            [sys.executable, "-c", code, f"{folder}/warm", uri, level, json.dumps(options)],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | environment,
        )
    seconds, peak = out.stdout.split()
    return float(seconds), int(peak)


def fetch_ahead(folder: Path, repeats: int) -> dict[str, float]:
    """200 parts, as runs to be merged and as one run, against one request at a time."""
    with mock.patch.object(shard_module, "COMPACT_EVERY", 0):
        build(str(folder / "merge"), 200 * 5_000, 200, 100_000)
    one_run = Shard.create(folder / "one_run", SCHEMA, key=["user_id"])
    rows = rows_at(np.arange(200 * ROW_GROUP_ROWS), 100_000)
    one_run.append(rows, lower=0, upper=1, part_bytes=1)
    result = {}
    with slow_store(folder, milliseconds=50) as options:
        for name, level in (("merge", "full"), ("one_run", "none")):
            uri = f"s3://bucket/{name}"
            assert Shard.open(uri, storage_options=options).stats().parts == 200
            ahead = [read_in_child(uri, level, options) for _ in range(repeats)]
            seconds, peak = map(statistics.median, zip(*ahead, strict=True))
            slow = read_in_child(uri, level, options, WINDROW_FETCH_REQUESTS="1")
            suffix = "" if name == "merge" else f"_{name}"
            result[f"fetch_ahead_s{suffix}"] = round(seconds, 2)
            result[f"fetch_ahead_speedup{suffix}"] = round(slow[0] / seconds, 2)
            result[f"fetch_ahead_memory{suffix}"] = round(peak / slow[1], 3)
    return result


def write_amplification(folder: str) -> float:
    """Updates written, by appends and compactions together, over updates appended."""
    shard = Shard.create(folder, SCHEMA, key=["user_id"])
    appended = written = 0
    for step in range(1_000):
        table = rows_at(np.arange(step * 100, step * 100 + 100), 10_000)
        shard.append(table, lower=step, upper=step + 1)
        appended += 100
        written += 100
        if step % 8 == 7:
            written += shard.compact().updates_written
    return written / appended


def commit_ms(folder: str) -> float:
    """Median milliseconds of an append of ten rows: sort, write, commit."""
    shard = Shard.create(folder, SCHEMA, key=["user_id"])
    times = []
    for step in range(100):
        table = rows_at(np.arange(step * 10, step * 10 + 10), 1_000)
        times.append(timed(lambda t=table, s=step: shard.append(t, lower=s, upper=s + 1)))
    return statistics.median(times) * 1000


def checksum_cost(shard: Shard, repeats: int) -> float:
    """A full read that verifies checksums over one that does not; one reader in Python.

    A few percent are told apart by processor time, which others on the machine hardly change; by
    turns, so that what does change falls on both; and by the median of many pairs.
    """

    def read() -> float:
        started = time.process_time()
        for _ in shard.snapshot().batches():
            pass
        return time.process_time() - started

    def unchecked() -> float:
        with mock.patch.object(files, "checked", lambda _store, _part, source: source):
            return read()

    read()
    ratios = []
    for number in range(repeats):
        if number % 2:
            without, verified = unchecked(), read()
        else:
            verified, without = read(), unchecked()
        ratios.append(verified / without)
    return statistics.median(ratios)


def wide_append_s(folder: str, repeats: int) -> float:
    """Seconds of an append of two rows with 2,000 columns."""
    names = [f"column_{i}" for i in range(2_000)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    shard = Shard.create(folder, schema, key=names[:1])
    times = []
    for step in range(repeats + 1):  # the first one loads what is loaded once
        table = pa.table([pa.array([step, step + 1])] * len(names), schema=schema)
        times.append(timed(lambda t=table, s=step: shard.append(t, lower=s, upper=s + 1)))
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=20_000_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=None, help="keep the data here")
    options = parser.parse_args()
    folder = options.folder or tempfile.mkdtemp(prefix="windrow-bench-")
    os.environ["WINDROW_CACHE"] = os.path.join(folder, "cache")
    try:
        print(json.dumps(measure(Path(folder), options)))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    users = options.updates // 10
    result: dict[str, Any] = {
        "benchmark": "shard",
        "updates": options.updates,
        "runs": options.runs,
        "repeats": options.repeats,
        "cores": os.cpu_count(),
    }
    repeats = options.repeats

    say("append ...")
    build(str(folder / "warm"), 20_000, 2, 100)
    shard, seconds = build(str(folder / "main"), options.updates, options.runs, users)
    result["append_rows_per_s"] = round(options.updates / seconds)
    result["bytes_per_update"] = round(shard.stats().bytes / options.updates, 1)

    say("full reads, windrow and spark in turn ...")
    spark = local_session("bench", cores="2", spark__driver__memory="8g")
    parts = [f"{shard.uri}/{name}" for name in _part_names(shard)]

    def spark_read() -> Any:
        frame = spark.read.parquet(*parts)
        grouped = frame.groupBy(*SCHEMA.names).agg({"_diff": "sum"})
        return grouped.where("`sum(_diff)` <> 0")

    def full() -> Any:
        return shard.snapshot().dataframe(spark)

    assert full().count() == spark_read().count(), "the two reads disagree"
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(timed(lambda: to_noop(full())))
        theirs.append(timed(lambda: to_noop(spark_read())))
    full_seconds = statistics.median(ours)
    result["full_read_s"] = round(full_seconds, 2)
    result["spark_read_s"] = round(statistics.median(theirs), 2)
    result["full_read_speedup"] = round(statistics.median(theirs) / full_seconds, 2)

    say("levels ...")
    result["full_emitted"] = full().count()
    for level in ("best_effort", "none"):
        frame = shard.snapshot(consolidate=level).dataframe(spark)
        result[f"{level}_emitted"] = frame.count()
        seconds = median(lambda f=frame: timed(lambda: to_noop(f)), repeats)
        result[f"{level}_read_s"] = round(seconds, 2)

    say("projections ...")
    for name, columns in (("count", []), ("few_values", ["quantity"])):
        frame = shard.snapshot(columns=columns).dataframe(spark)
        rows = frame.collect()
        assert sum(row["_diff"] for row in rows) == result["full_emitted"], "a wrong count"
        result[f"{name}_fraction"] = len(rows) / options.updates
        seconds = median(lambda f=frame: timed(lambda: to_noop(f)), repeats)
        result[f"{name}_time"] = round(seconds / full_seconds, 3)

    result["checksum_cost"] = round(checksum_cost(shard, max(repeats, 9)), 3)

    say("limited read ...")
    first_batch(shard)
    first = median(lambda: first_batch(shard), max(repeats, 5))
    result["first_batch_ms"] = round(first * 1000, 1)
    result["first_batch_fraction"] = round(first / full_seconds, 4)

    say("lookups ...")
    rng = np.random.default_rng(7)

    def lookup(cache: bool) -> float:
        keys = pa.table({"user_id": rng.integers(0, users, 1_000)})
        read = shard.snapshot(keys=keys, cache=cache)
        return timed(lambda: read.to_table())

    lookup(False)
    direct = median(lambda: lookup(False), repeats)
    fill = lookup(True)
    cached = median(lambda: lookup(True), max(repeats, 5))
    result["lookup_ms"] = round(cached * 1000, 1)
    result["lookup_fraction"] = round(cached / full_seconds, 4)
    result["lookup_fill_cache_fraction"] = round(fill / full_seconds, 4)
    result["lookup_without_cache_fraction"] = round(direct / full_seconds, 4)
    frame_keys = spark.range(1_000).selectExpr(f"cast(rand(3) * {users} as bigint) as user_id")
    frame_keys = frame_keys.distinct()
    read = shard.snapshot()
    to_noop(read.lookup(frame_keys))
    on_spark = median(lambda: timed(lambda: to_noop(read.lookup(frame_keys))), repeats)
    result["lookup_on_spark_fraction"] = round(on_spark / full_seconds, 4)
    spark.stop()

    say("memory of one reader ...")
    peaks = {}
    for millions in (5, 40):
        count = millions * options.updates // 20
        path = str(folder / f"memory-{millions}")
        build(path, count, options.runs, users)
        peaks[millions] = statistics.median(read_in_child(path)[1] for _ in range(repeats))
        shutil.rmtree(path)
    result["reader_peak_mib"] = {str(m): round(kib / 1024) for m, kib in peaks.items()}
    result["reader_memory_growth"] = round(peaks[40] / peaks[5], 3)

    say("fetching ahead ...")
    result |= fetch_ahead(folder / "far", repeats)

    say("small batches ...")
    result["commit_ms_p50"] = round(commit_ms(str(folder / "commits")), 1)
    result["wide_append_s"] = round(wide_append_s(str(folder / "wide"), repeats), 2)
    result["write_amplification"] = round(write_amplification(str(folder / "small")), 2)
    return result


def _part_names(shard: Shard) -> list[str]:
    return [part.path for part in shard.snapshot().parts]


if __name__ == "__main__":
    main()
