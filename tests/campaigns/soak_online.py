"""Features served for a long time, while a stream ingests and uploads swap generations.

    python tests/campaigns/soak_online.py --seconds 600 [--keys 20000] [--pace 500] [--pause 5]

    campaign: requests ──▶ server ──▶ LMDB ◀── child: events arrive, a stream, uploads

First it is measured how many requests a second are answered at most, with the stream and an upload
at work. Then half as many are sent, each at its own time, and every answer is checked. In the end,
once everything is taken in, what is served for all keys is compared with a backfill.

The last line is JSON. The exit status is 1 if a request failed or an answer was wrong, if nothing
was uploaded or taken in meanwhile, or if the server became slower or larger as time went on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "benchmarks")]

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from http_load import Load, load, post  # noqa: E402
from jvm import JAVA_OPTIONS  # noqa: E402
from online import WEEK, run_server, serving  # noqa: E402
from open_load import Check, Seen, open_load  # noqa: E402
from windrow.time import now_millis  # noqa: E402

CHILD = Path(__file__).with_name("soak_child.py")
PATH = "/v1/features/activity"
EVENTS = 25  # of a key, before the stream begins
TOGETHER = 1000  # keys of a request, at the end
INTERVALS = 20
ROUNDS = 30
MEMORY_GROWTH, P99_GROWTH = 1.1, 1.5  # at most, in the long form
DEADLINE = 300.0  # seconds, for anything that the child does


class Answer(msgspec.Struct):
    """What is checked of an answer."""

    features: dict[str, list[Any]]


_DECODER = msgspec.json.Decoder(Answer)


class Users:
    """Asks for random users, and knows what their answers must look like."""

    def __init__(self, keys: int, seed: int) -> None:
        self._keys, self._pick = keys, random.Random(seed)
        self._counts = [0] * keys  # the most that was seen of each
        self.examples: list[str] = []  # of wrong answers

    def ask(self) -> tuple[bytes, Check]:
        user = self._pick.randrange(self._keys)
        known = self._counts[user]

        def is_right(body: bytes) -> bool:
            row = {name: values[0] for name, values in _DECODER.decode(body).features.items()}
            if not is_plausible(row, user, known):
                self.examples.append(f"user {user}, at least {known} rows: {row}")
                return False
            self._counts[user] = max(self._counts[user], row["price_count"])
            return True

        return post(PATH, b'{"keys":[{"user_id":%d}]}' % user), is_right


def is_plausible(row: dict[str, Any], user: int, known: int) -> bool:
    """Whether a row is this user's, of one moment, and not older than what was seen before."""
    hour, day, week = (row[f"price_count_{window}"] for window in ("1h", "1d", "7d"))
    total = row["price_sum_1d"] or 0
    return (
        row["who_min"] == row["who_max"] == user
        and known <= row["price_count"]
        and 0 <= hour <= day <= week <= row["price_count"]
        and math.isclose((row["price_avg_1d"] or 0) * day, total, abs_tol=1e-6)
        and total <= (row["price_sum_7d"] or 0)
        and (row["price_last_7d"] or 0) <= (row["price_max_7d"] or 0)
    )


class Child:
    """The process that takes in the stream and uploads; what it said is counted by first words."""

    def __init__(self, settings: dict[str, Any], errors: Path, quick: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._last: dict[str, str] = {}
        self._errors = errors
        self._news = threading.Condition()
        self._ended = False
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS} if quick else None,
                process_group=0,  # in this session: priorities of others hardly count
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            with self._news:
                self.counts[word] += 1
                self._last[word] = rest
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait(self, word: str, more: int = 1) -> str:
        """Wait until it has said a word so many times more; what it said with it."""
        with self._news:
            wanted = self.counts[word] + more
            self._news.wait_for(lambda: self.counts[word] >= wanted or self._ended, DEADLINE)
            self.check(self.counts[word] >= wanted, f"waited for {word!r}")
            return self._last[word]

    def check(self, holds: bool, what: str) -> None:
        said = self._errors.read_text(errors="replace")[-3000:]
        assert holds, f"{what}; the process of the stream said: {said}"

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    @property
    def runs(self) -> bool:
        return not self._ended

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True)
class Interval:
    """What was seen of one interval, and how far everything was at its end."""

    requests: int
    failed: int
    wrong: int
    p50_ms: float
    p99_ms: float
    own_mib: float
    mapped_mib: float
    store_mib: float
    uploads: int
    batches: int

    def __str__(self) -> str:
        return (
            f"{self.requests:9,} requests  {self.failed} failed  {self.wrong} wrong  "
            f"p50 {self.p50_ms:.2f} ms  p99 {self.p99_ms:.2f} ms  "
            f"{self.own_mib:.1f} MiB, {self.mapped_mib:.1f} mapped, store {self.store_mib:.1f}  "
            f"{self.uploads} uploads  {self.batches} batches"
        )


def resident(pid: int) -> tuple[float, float]:
    """MiB that a process has of its own, and of files: the store is one that it maps.

    Both count in full, whoever else maps the same file: uploads do, only while they run.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return int(sizes["RssAnon"]) / 1024, int(sizes["RssFile"]) / 1024


def write_table(path: Path, keys: int) -> None:
    """Events of the week before, at least one of each user; columns as those that arrive."""
    rng, rows = np.random.default_rng(7), keys * EVENTS
    users = np.concatenate([np.arange(keys), rng.integers(0, keys, rows - keys)])
    columns = {
        "user_id": users,
        "who": users,
        "price": rng.integers(1, 1000, rows),
        "ts": now_millis() - rng.integers(1, WEEK, rows),
    }
    pq.write_table(pa.table(columns), path)


def ask_all(port: int, keys: int, at: int) -> pa.Table:
    """What is served for all keys at one time, as a log: user_id, at, and the features."""
    found: dict[str, list[Any]] = {}
    for start in range(0, keys, TOGETHER):
        users = range(start, min(start + TOGETHER, keys))
        body = json.dumps({"keys": [{"user_id": user} for user in users], "at": at}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{PATH}", body, 60) as answer:
            features = _DECODER.decode(answer.read()).features
        for name, values in features.items():
            found.setdefault(name, []).extend(values)
    times = pa.array([at] * keys, pa.timestamp("ms", "UTC"))
    return pa.table({"user_id": pa.array(range(keys), pa.int64()), "at": times, **found})


def campaign(
    place: Path,
    seconds: float,
    *,
    keys: int = 20_000,
    pace: float = 500.0,
    pause: float = 5.0,
    saturation: float = 5.0,
    seed: int = 0,
    quick: bool = False,
    say: bool = False,
) -> dict[str, Any]:
    """Serve under load for so many seconds; what was seen.

    Raises AssertionError if what is served in the end is not what a backfill gives. `quick` is for
    a JVM that will not run for long.
    """
    settings: dict[str, Any] = {
        "root": str(place / "state"),
        "table": str(place / "views.parquet"),
        "arriving": str(place / "arriving"),
        "keys": keys,
        "pace": pace,
        "pause": pause,
        "spark": {"spark__sql__codegen__wholeStage": "false"} if quick else {},
    }
    Path(settings["arriving"]).mkdir()
    write_table(Path(settings["table"]), keys)
    users = Users(keys, seed)
    with Child(settings, place / "errors", quick) as child:
        child.wait("uploaded")
        with serving(run_server, settings["root"]) as (port, pid):
            child.wait("uploading")  # with the stream at work
            body = b'{"keys":[{"user_id":1}]}'
            load(port, PATH, body, seconds=min(1.0, saturation))  # warms it up
            # At least until an upload is done: some of its steps leave less to the server.
            uploaded, most = child.counts["uploaded"], list[Load]()
            while not most or (child.counts["uploaded"] == uploaded and len(most) < ROUNDS):
                most.append(load(port, PATH, body, seconds=saturation))
            rate = statistics.mean(one.rps for one in most) / 2
            if say:
                print(f"at most {2 * rate:,.0f} requests a second; now {rate:,.0f}", flush=True)
            before = Counter(child.counts)
            every, seen = max(1.0, seconds / INTERVALS), list[Interval]()
            store = Path(settings["root"], "online", "data.mdb")

            def report(one: Seen) -> None:
                done = child.counts - before
                seen.append(
                    Interval(
                        len(one.took),
                        one.failed,
                        one.wrong,
                        one.milliseconds(50),
                        one.milliseconds(99),
                        *resident(pid),
                        store.stat().st_size / 2**20,
                        done["uploaded"],
                        done["batch"],
                    )
                )
                if say:
                    print(f"{len(seen) * every:5.0f} s {seen[-1]}", flush=True)

            # Once, unless it is so short that nothing was uploaded or taken in meanwhile.
            for _ in range(ROUNDS):
                open_load(port, users.ask, rate, seconds, every, report)
                child.check(child.runs, "it ended")
                if seen[-1].uploads and seen[-1].batches:
                    break
            for example in users.examples[:5]:
                print(f"wrong: {example}", file=sys.stderr)
            found = summary(rate, seen)
            found["saturation_failed"] = sum(one.failed for one in most)
            child.tell("stop")
            rows = keys * EVENTS + int(child.wait("sent"))
            served = ask_all(port, keys, now_millis())
            pq.write_table(served, place / "served.parquet")
            child.tell(str(place / "served.parquet"))
            compared = json.loads(child.wait("compared"))
    counted = sum(served["price_count"].to_pylist())
    assert counted == rows, f"{rows} rows were sent, and {counted} are served"
    assert compared["verdict"] == "consistent", compared
    assert not compared["left_out"], compared
    found["compared"] = compared["compared"]
    found["records_left_over"] = compared["records"] - keys
    return found


def summary(rate: float, seen: list[Interval]) -> dict[str, Any]:
    third = max(1, len(seen) // 3)
    first = statistics.median(one.p99_ms for one in seen[:third])
    last = statistics.median(one.p99_ms for one in seen[-third:])
    early, end = seen[math.ceil(len(seen) / 6) - 1], seen[-1]
    return {
        "rate": rate,
        "requests": sum(one.requests for one in seen),
        "failed": sum(one.failed for one in seen),
        "wrong": sum(one.wrong for one in seen),
        "uploads": end.uploads,
        "batches": end.batches,
        "p50_ms": statistics.median(one.p50_ms for one in seen),
        "p99_first_ms": first,
        "p99_last_ms": last,
        "p99_growth": last / first,
        "memory_early_mib": early.own_mib,
        "memory_end_mib": end.own_mib,
        "memory_growth": end.own_mib / early.own_mib,
        "mapped_early_mib": early.mapped_mib,
        "mapped_end_mib": end.mapped_mib,
        "store_early_mib": early.store_mib,
        "store_end_mib": end.store_mib,
    }


def faults(found: dict[str, Any]) -> Iterator[str]:
    for name in ("failed", "wrong", "saturation_failed", "records_left_over"):
        if found[name]:
            yield f"{name}: {found[name]}"
    for name in ("uploads", "batches"):
        if not found[name]:
            yield f"no {name}"
    for name, most in (("memory_growth", MEMORY_GROWTH), ("p99_growth", P99_GROWTH)):
        if found[name] > most:
            yield f"{name}: {found[name]:.2f} is more than {most}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--pace", type=float, default=500.0, help="events that arrive in a second")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two uploads")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-soak-") as folder:
        found = campaign(
            Path(folder),
            given.seconds,
            keys=given.keys,
            pace=given.pace,
            pause=given.pause,
            seed=given.seed,
            say=True,
        )
    shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}
    print(json.dumps({"seed": given.seed, **shown}), flush=True)
    wrong = list(faults(found))
    for one in wrong:
        print(one, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
