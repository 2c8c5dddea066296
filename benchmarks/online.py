"""Features online, on this machine, in one run; one JSON line last.

100,000 keys with 50 events each over a week, and ten features of three lengths of windows. They are
uploaded to LMDB and to a Redis that is started here, fetched in this process, and over HTTP from
`windrow serve` beside a bare echo on the same server and beside Feast's feature server, which has
the same values in the same Redis. Then events are streamed in from a Kafka that is started here.

    python benchmarks/online.py [--keys 100000] [--seconds 4] [--rounds 3] [--only feast kafka ...]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import windrow as wr
from http_load import Load, load, run_echo
from online_feast import FEAST, check_same, feast_server, load_feast, write_values
from online_kafka import streamed
from resident import fill_free_memory
from windrow import agg
from windrow.spark.jars import with_jars
from windrow.spark.session import local_session

WEEK = 7 * 86_400_000
EVENTS = 50  # of a key
AT = 1_717_200_000_000  # 2024-06-01
_SPAWN = multiprocessing.get_context("spawn")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def definitions(folder: Path) -> wr.GroupBy:
    views = wr.EventSource(name="views", table=str(folder / "views.parquet"), time="ts")
    return wr.GroupBy(
        "activity",
        views,
        ["user_id"],
        [
            agg.count("price").over("1h", "1d", "7d"),
            agg.sum("price").over("1d", "7d"),
            agg.avg("price").over("1d", "7d"),
            agg.max("price").over("7d"),
            agg.min("price").over("1d"),
            agg.last("price").over("7d"),
        ],
    )


def write_views(folder: Path, keys: int) -> None:
    rng = np.random.default_rng(7)
    rows = keys * EVENTS
    times = AT - rng.integers(1, WEEK, rows)
    columns = {
        "user_id": rng.integers(0, keys, rows),
        "price": rng.random(rows).round(4) * 100,
        "ts": pa.array(times, pa.timestamp("ms", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / "views.parquet")


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis with its log of changes on, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    place = folder / "redis"
    place.mkdir()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place)]
    process = subprocess.Popen(
        [*command, "--appendonly", "yes", "--save", ""], stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def fetched(project: wr.Project, keys: int, requests: int = 5_000) -> dict[str, float]:
    """Microseconds of a fetch of one key, and for each of a hundred."""
    rng = random.Random(3)
    asked = [{"user_id": rng.randrange(keys)} for _ in range(requests)]
    for key in asked[:500]:
        project.fetch("activity", [key], at=AT)
    took = []
    for key in asked:
        began = time.perf_counter()
        project.fetch("activity", [key], at=AT)
        took.append((time.perf_counter() - began) * 1e6)
    began = time.perf_counter()
    for start in range(0, requests, 100):
        project.fetch("activity", asked[start : start + 100], at=AT)
    each = (time.perf_counter() - began) / requests * 1e6
    cuts = statistics.quantiles(took, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "of_100": each}


def run_server(listening: socket.socket, root: str, online: str | None = None) -> None:
    from windrow.online.server.settings import Settings
    from windrow.online.server.worker import run_worker

    run_worker(lambda: wr.Project(root, online=online).fetcher, Settings(), listening)


@contextmanager
def serving(run: Callable[..., None], *args: Any) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port and process."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        process = _SPAWN.Process(target=run, args=(listening, *args), daemon=True)
        process.start()
        try:
            yield listening.getsockname()[1], process.pid or 0
        finally:
            process.terminate()
            process.join()


def http(root: str, keys: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Requests per second, by turns with the echo."""
    rng = random.Random(5)
    one = json.dumps({"keys": [{"user_id": 123}], "at": AT}).encode()
    many = [{"user_id": rng.randrange(keys)} for _ in range(100)]
    hundred = json.dumps({"keys": many, "at": AT}).encode()
    with serving(run_server, root) as (port, pid), serving(run_echo) as (echo, _):
        path = "/v1/features/activity"
        load(port, path, one, seconds=1.0)
        load(echo, path, one, seconds=1.0)
        seen = [
            (load(port, path, one, seconds=seconds), load(echo, path, one, seconds=seconds))
            for _ in range(rounds)
        ]
        large = [load(port, path, hundred, seconds=seconds) for _ in range(rounds)]
        held = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    failed = sum(a.failed + b.failed for a, b in seen) + sum(one.failed for one in large)
    if failed:
        raise SystemExit(f"{failed} requests failed")
    return {
        "http_rps": statistics.median(a.rps for a, _ in seen),
        "http_p50_ms": statistics.median(a.p50_ms for a, _ in seen),
        "http_p99_ms": statistics.median(a.p99_ms for a, _ in seen),
        "http_vs_echo": statistics.median(a.rps / b.rps for a, b in seen),
        "http_100_rps": statistics.median(one.rps for one in large),
        "worker_mib": held / 2**20,
    }


def beside_feast(
    project: wr.Project, folder: Path, address: str, keys: int, seconds: float, rounds: int
) -> dict[str, Any]:
    """`windrow serve` and Feast's server by turns, over one Redis."""
    rng = random.Random(6)
    many = [rng.randrange(keys) for _ in range(100)]
    values = folder / "values.parquet"
    names = write_values(project, keys, AT, values)

    def ours(port: int, users: list[int]) -> Load:
        asked = json.dumps({"keys": [{"user_id": user} for user in users], "at": AT}).encode()
        return load(port, "/v1/features/activity", asked, seconds=seconds)

    with (
        feast_server(folder, values, address) as theirs,
        serving(run_server, str(folder / "state"), address) as (port, _),
    ):
        check_same(theirs, names, project, AT)
        seen: dict[int, list[tuple[Load, Load]]] = {1: [], 100: []}
        for turn in range(rounds + 1):
            for users in ([123], many):
                pair = ours(port, users), load_feast(theirs, names, users, seconds)
                if turn:  # the first warms them up
                    seen[len(users)].append(pair)
    if failed := sum(a.failed + b.failed for pairs in seen.values() for a, b in pairs):
        raise SystemExit(f"{failed} requests failed")
    one, hundred = seen[1], seen[100]
    return {
        "http_vs_feast": statistics.median(a.rps / b.rps for a, b in one),
        "http_100_vs_feast": statistics.median(a.rps / b.rps for a, b in hundred),
        "p99_vs_feast": statistics.median(a.p99_ms / b.p99_ms for a, b in one),
        "http_redis_rps": statistics.median(a.rps for a, _ in one),
        "feast_rps": statistics.median(b.rps for _, b in one),
        "http_redis_100_rps": statistics.median(a.rps for a, _ in hundred),
        "feast_100_rps": statistics.median(b.rps for _, b in hundred),
    }


def over_stores(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Everything over records that were uploaded."""
    found: dict[str, Any] = {}
    write_views(folder, args.keys)
    group = definitions(folder)
    # A JVM knows the jars that it was started with, and the stream from Kafka comes later.
    spark = local_session("windrow-bench", **with_jars({}))
    project = wr.Project(folder / "state", spark=spark, progress=False)
    project.upload(group, as_of=AT)  # arranges the events, and loads what is compiled
    fill_free_memory()
    began = time.perf_counter()
    (uploaded,) = project.upload(group, as_of=AT)
    found["upload_keys_per_s"] = uploaded.keys / (time.perf_counter() - began)
    found["record_bytes"] = uploaded.bytes / uploaded.keys
    say(f"uploaded: {found}")
    if "fetch" in args.only:
        found |= {f"fetch_us_{k}": v for k, v in fetched(project, args.keys).items()}
    with redis(folder) as address:
        other = wr.Project(folder / "state", spark=spark, progress=False, online=address)
        other.upload(group, as_of=AT)
        if "fetch" in args.only:
            found |= {f"fetch_redis_us_{k}": v for k, v in fetched(other, args.keys).items()}
            say(f"fetched: {found}")
        spark.stop()  # its threads would take part
        if "feast" in args.only and FEAST.exists():
            found |= beside_feast(other, folder, address, args.keys, args.seconds, args.rounds)
            say(f"beside Feast: {found}")
    if "http" in args.only:
        found |= http(str(folder / "state"), args.keys, args.seconds, args.rounds)
    return found


PARTS = ("fetch", "http", "feast", "kafka")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=2_000_000, help="streamed from Kafka")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="windrow-online-"))
    found: dict[str, Any] = {"keys": args.keys}
    try:
        if set(args.only) & {"fetch", "http", "feast"}:
            found |= over_stores(folder, args)
        if "kafka" in args.only:
            found |= streamed(folder, args.events)
        shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}
        print(json.dumps(shown), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
