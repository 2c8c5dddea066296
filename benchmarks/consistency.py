"""The consistency job beside the backfill of the same queries, and what logging costs; one JSON
line last.

100,000 keys with 50 events each over a week, ten features, and a log of a million requests, which
are ten million values. The log has what a backfill computes, but for one value in a thousand.
Then features are fetched in this process and over HTTP, with a log and without.

    python benchmarks/consistency.py [--keys 100000] [--requests 1000000] [--rounds 3] [--seconds 4]
                                     [--only job log]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

import windrow as wr
from http_load import load, post
from online import AT, WEEK, definitions, say, serving, write_views
from open_load import Check, Seen, open_load
from resident import fill_free_memory
from windrow.online.fetched import Request
from windrow.online.log.appending import Appender
from windrow.online.log.columns import LogColumns
from windrow.online.log.serving_log import TOGETHER, ServingLog
from windrow.storage.store import Store

FILES = 40  # of the log: one for each commit
WRONG = 1_000  # of so many values one is changed


def write_log(project: wr.Project, group: wr.GroupBy, root: Path, keys: int, requests: int) -> None:
    """A log of random requests, as servers would have written it."""
    rng = np.random.default_rng(11)
    times = np.sort(AT - WEEK + rng.integers(0, WEEK, requests))
    asked = {
        "user_id": rng.integers(0, keys, requests),
        "ts": pa.array(times, pa.timestamp("ms", "UTC")),
    }
    pq.write_table(pa.table(asked), root / "asked.parquet")
    left = wr.Queries(str(root / "asked.parquet"), time="ts")
    project.backfill(wr.Join("served", left, [group]))
    found = pa.table(DeltaTable(str(root / "state/results/served")).to_pyarrow_table())
    found = found.sort_by("ts")
    description = project.fetcher.describe("activity")
    columns = LogColumns(description)
    made: dict[str, Any] = {}
    count = found.num_rows
    moments = found["ts"].cast(pa.timestamp("us", "UTC"))
    for field in columns.schema:
        name = field.name
        if name in ("_log_at", "_log_clock"):
            made[name] = moments
        elif name == "_log_asked":
            made[name] = pa.array(np.ones(count, np.bool_))
        elif name == "_log_writer":
            made[name] = pa.array(["bench"] * count)
        elif name == "_log_request":
            made[name] = pa.array(np.arange(count))
        elif name == "_log_key":
            made[name] = pa.array(np.zeros(count, np.int32))
        elif name == "_log_statuses":
            made[name] = pa.array(["p" * len(description.features)] * count)
        elif name == "_log_fresh":
            fresh = pa.array(np.full(count, AT * 1000), pa.int64()).cast(moments.type)
            made[name] = pa.StructArray.from_arrays([fresh], fields=list(field.type))
        elif name == "_log_error":
            made[name] = pa.nulls(count, pa.string())
        elif name == "user_id":
            made[name] = found[name]
        else:
            values = found[f"activity_{name}"]
            wrong = pa.array(rng.integers(0, WRONG, count) == 0)
            made[name] = pc.if_else(wrong, pc.add(values, pa.scalar(1, values.type)), values)
    table = pa.table(made).cast(columns.schema)
    store = Store.at(root / "state").beneath(f"served/activity/{description.version}")
    appender = Appender(store, columns.schema)
    size = -(-count // FILES)
    for start in range(0, count, size):
        appender.write(table.slice(start, size))
        appender.commit()
    say(f"logged {count:,} requests")


def job(project: wr.Project, group: wr.GroupBy, root: Path, rounds: int) -> dict[str, Any]:
    """By turns: the backfill of the log's queries, and the job."""
    version = project.fetcher.describe("activity").version
    log = str(root / "state/served/activity" / version)
    left = wr.Queries(log, time="_log_at", select=["user_id", "_log_at"])
    join = wr.Join("same", left, [group])
    seen = []
    report: Any = None
    for number in range(rounds + 1):
        fill_free_memory()
        began = time.perf_counter()
        project.backfill(join)
        backfilled = time.perf_counter() - began
        fill_free_memory()
        began = time.perf_counter()
        report = project.consistency(group, threshold=0.9)
        checked = time.perf_counter() - began
        say(f"backfill {backfilled:.2f} s, consistency {checked:.2f} s: {dict(report.seconds)}")
        if number:  # the first compiles and arranges
            seen.append((backfilled, checked))
    return {
        "values": report.counted.total,
        "share": report.share,
        "backfill_s": statistics.median(a for a, _ in seen),
        "consistency_s": statistics.median(b for _, b in seen),
        "consistency_vs_backfill": statistics.median(b / a for a, b in seen),
    }


def logging_cost(
    project: wr.Project, root: Path, keys: int, requests: int = 20_000
) -> dict[str, float]:
    """Microseconds, at the median, that a request spends on handing its answer over, and the event
    loop on counting and packing it, a few at a time, once they are sent."""
    rng = random.Random(3)
    fetcher = project.fetcher
    log = ServingLog(Store.at(root / "elsewhere"), 1.0)
    took, packed = [], []
    waiting: list[Callable[[], None]] = []
    log.write_aside(waiting.append)  # as servers do
    for _ in range(requests // TOGETHER):
        for _ in range(TOGETHER):
            request = Request("activity", [{"user_id": rng.randrange(keys)}], AT)
            outcomes = fetcher.fetch_all([request])
            began = time.perf_counter()
            log.take([request], outcomes, fetcher.describe)
            took.append((time.perf_counter() - began) * 1e6)
        if waiting:  # else the log's thread was first
            began = time.perf_counter()
            waiting.pop()()
            packed.append((time.perf_counter() - began) * 1e6 / TOGETHER)
    log.close()
    counted = log.figures()["activity"]
    say(f"{counted}")
    cost, after = statistics.median(took), statistics.median(packed)
    return {"logging_cost_us_p50": cost + after, "packing_us_p50": after}


def run_server(listening: socket.socket, root: str, rate: float) -> None:
    from windrow.online.server.settings import Settings
    from windrow.online.server.worker import run_worker

    run_worker(lambda: wr.Project(root, log_rate=rate).served, Settings(), listening)


def http(root: Path, seconds: float, rounds: int) -> dict[str, float]:
    """A server that logs all requests, by turns with one that logs none.

    First both answer as fast as they can; then each is asked half as often as the one that logs
    can answer, at times that do not wait for it, and how long answers take is compared.
    """
    body = json.dumps({"keys": [{"user_id": 123}], "at": AT}).encode()
    path, state = "/v1/features/activity", str(root / "state")
    with serving(run_server, state, 1.0) as (logs, _), serving(run_server, state, 0.0) as (none, _):
        for port in (logs, none):
            load(port, path, body, seconds=1.0)
        seen = [
            (load(logs, path, body, seconds=seconds), load(none, path, body, seconds=seconds))
            for _ in range(rounds)
        ]
        rate = statistics.median(a.rps for a, _ in seen) / 2
        asked = post(path, body)
        at_half = [
            (_p99_ms(logs, asked, rate, seconds), _p99_ms(none, asked, rate, seconds))
            for _ in range(2 * rounds)
        ]
    if failed := sum(a.failed + b.failed for a, b in seen):
        raise SystemExit(f"{failed} requests failed")
    say(f"p99 of {rate:,.0f} requests a second, with a log and without: {at_half}")
    return {
        "logged_rps": statistics.median(a.rps for a, _ in seen),
        "plain_rps": statistics.median(b.rps for _, b in seen),
        "saturated_p99_effect": statistics.median(a.p99_ms / b.p99_ms for a, b in seen),
        "logged_p99_ms": statistics.median(a for a, _ in at_half),
        "plain_p99_ms": statistics.median(b for _, b in at_half),
        "logging_p99_effect": statistics.median(a / b for a, b in at_half),
    }


def _p99_ms(port: int, request: bytes, rate: float, seconds: float) -> float:
    """Of requests that are sent at a rate, whether or not earlier ones have been answered."""
    seen: list[Seen] = []

    def ask() -> tuple[bytes, Check]:
        return request, lambda _: True

    open_load(port, ask, rate, seconds, math.inf, seen.append)
    (found,) = seen
    if found.failed:
        raise SystemExit(f"{found.failed} requests failed")
    return found.milliseconds(99)


PARTS = ("job", "log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="windrow-consistency-"))
    try:
        write_views(folder, args.keys)
        group = definitions(folder)
        project = wr.Project(folder / "state", progress=False)
        project.upload(group, as_of=AT)
        found: dict[str, Any] = {"keys": args.keys, "requests": args.requests}
        if "job" in args.only:
            write_log(project, group, folder, args.keys, args.requests)
            found |= job(project, group, folder, args.rounds)
        project.spark.stop()
        if "log" in args.only:
            found |= logging_cost(project, folder, args.keys)
            found |= http(folder, args.seconds, args.rounds)
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
        print(json.dumps(shown), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
