"""Processes at work on one shard, killed at random moments: nothing is lost, nothing twice.

    writer      appends one batch after the other, now and then moves `since`, and vacuums with no
                retention at all: it is the only one who appends
    compactor   merges all runs, again and again
    reader      holds the shard at a time, and reads it there

All of them are forks of a server that imports and compiles once. It does no I/O with Arrow or
delta-rs itself, since their threads would not be there in the forks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "shard"), str(TESTS / "failures")]

import psutil  # noqa: E402
from crash_child import warm_up  # noqa: E402
from operations import SCHEMA, append, batch  # noqa: E402

from oracle import Oracle, count_updates  # noqa: E402
from windrow import Shard  # noqa: E402
from windrow.storage.store import Store  # noqa: E402

ROLES = ("writer", "compactor", "reader")
ROUNDS = 12  # on one shard, before another is begun: the oracle is slow
DEADLINE_SECONDS = 120


def oracle(batches: int, since: int) -> Oracle:
    return Oracle(SCHEMA, [one for number in range(batches) for one in batch(number)], since)


def check_at(shard: Shard, time: int) -> None:
    found = count_updates(shard.snapshot(time, cache=None).to_table(), with_time=False)
    assert found == oracle(time + 1, 0).snapshot(time), f"other rows at {time}"


# In the forks


def write(uri: str, say: Callable[[str], None], pick: random.Random) -> None:
    shard = Shard.open(uri)
    while True:
        append(shard, shard.upper)
        say(f"appended {shard.upper}")
        if pick.random() < 0.3:
            shard.advance_since(max(shard.since, shard.upper - 4))
        if pick.random() < 0.3:
            shard.vacuum(retention_hours=0)


def compact(uri: str, say: Callable[[str], None], pick: random.Random) -> None:
    while True:
        Shard.open(uri).compact(everything=True)
        say("compacted")


def read(uri: str, say: Callable[[str], None], pick: random.Random) -> None:
    while True:
        shard = Shard.open(uri)
        if shard.upper == 0:
            continue
        with shard.hold() as held:
            check_at(shard, held.time)
        say("read")


def run(role: str, uri: str, report: int, seed: int) -> None:
    def say(text: str) -> None:
        os.write(report, f"{text}\n".encode())

    try:
        {"writer": write, "compactor": compact, "reader": read}[role](uri, say, random.Random(seed))
    except BaseException:
        say("failed " + json.dumps(traceback.format_exc()))
        os._exit(1)


def serve() -> None:
    """Fork for each line of JSON on standard input; then kill, and tell what was said."""
    threads = psutil.Process().num_threads()
    warm_up()
    assert psutil.Process().num_threads() == threads, "a fork would lose the new threads"
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        source, report = os.pipe()
        children = []
        for role in ROLES:
            child = os.fork()
            if child == 0:
                os.close(source)
                run(role, request["uri"], report, request["seed"])
            children.append(child)
        os.close(report)
        with os.fdopen(source) as reported:
            said = [reported.readline() for _ in range(request["lines"])]
            for child in random.Random(request["seed"]).sample(children, len(children)):
                os.kill(child, signal.SIGKILL)
            statuses = [os.waitpid(child, 0)[1] for child in children]
            said += reported.readlines()
        killed = sum(map(os.WIFSIGNALED, statuses))
        print(json.dumps({"said": "".join(said).splitlines(), "killed": killed}), flush=True)


# The campaign


def campaign(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kill so many processes; what happened, counted. Raises AssertionError on a wrong row."""
    pick, counts = random.Random(seed), Counter[str]()
    pipe = subprocess.PIPE
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        uri, rounds, upper = "", ROUNDS, 0
        while counts["shard_kills"] < kills:
            if rounds == ROUNDS:
                uri, rounds, upper = str(folder / f"shard-{pick.getrandbits(32):x}"), 0, 0
                Shard.create(uri, SCHEMA, key=["k"])
            rounds += 1
            request = {"uri": uri, "seed": pick.getrandbits(32), "lines": pick.randrange(1, 12)}
            print(json.dumps(request), file=server.stdin, flush=True)
            reply = json.loads(server.stdout.readline())
            counts["shard_kills"] += reply["killed"]
            upper = check(uri, upper, reply["said"], counts)
        server.stdin.close()
    return counts


def check(uri: str, upper: int, said: list[str], counts: Counter[str]) -> int:
    """Compare the shard with what was acknowledged; its upper."""
    for line in said:
        word, _, rest = line.partition(" ")
        assert word != "failed", json.loads(rest)
        counts[f"shard_{word}"] += 1
        if word == "appended":
            upper = int(rest)
    shard = Shard.open(uri)
    assert shard.upper in (upper, upper + 1), "an acknowledged append is lost, or one came twice"
    counts["shard_appended_unsaid"] += shard.upper - upper
    for time in {shard.since, shard.upper - 1} if shard.upper else ():
        check_at(shard, time)
    store = shard._log.store
    left = len(store.names()) - len(shard.parts())
    counts["shard_most_left"] = max(counts["shard_most_left"], left)
    shard.vacuum(retention_hours=0)
    shard.refresh()
    assert store.names() == sorted(part.path for part in shard.parts())
    assert Store.at(f"{uri}/_holds").names() == []
    strange = [name for name in os.listdir(uri) if name.startswith(".")]
    counts["shard_half_written"] += len(strange)
    return shard.upper


if __name__ == "__main__":
    serve()
