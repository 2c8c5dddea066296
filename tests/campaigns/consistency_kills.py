"""What is served while streams are killed is consistent, all of it.

    python tests/campaigns/consistency_kills.py --kills 20

A process takes in a stream and brings records up to it, and is killed at random moments. Meanwhile
features are fetched, at times before which everything was taken in, and logged. In the end the log
is compared with a backfill: not a single value may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from stream_child import activity, source
from stream_kills import Sender, check, child

import windrow as wr

KEYS = [{"k": key} for key in range(6)]  # of one there is no row
# Times before the last that are fetched: of a record with very many cells, those of long ago are
# put together, and a fetch at their times is refused.
BACK = 40


def campaign(place: Path, kills: int, seed: int, spark: Any) -> Counter[str]:
    """Kill so many processes. Raises AssertionError if a value differs."""
    pick, counts = random.Random(seed), Counter[str]()
    sender = Sender(place, pick, None)
    root = place / "state"
    settings = {"folder": str(sender.folder), "servers": None, "spark": {}, "follow": True}
    stream, group = source(settings), activity(settings)
    project = wr.Project(root, spark=spark, progress=False, log_rate=1.0)
    project.upload(group, as_of=0)
    settled = 0  # messages before this time are all in

    def fetch() -> None:
        at = pick.randrange(max(0, settled - BACK), settled + 1)
        project.fetch("activity", KEYS, at=at + 1)

    while counts["kills"] < kills:
        process = child(root, {**settings, "once": False})
        assert process.stdout is not None
        for _ in range(pick.randrange(1, 6)):
            sender.send()
            fetch()
        for _ in range(pick.randrange(0, 5)):
            line = process.stdout.readline()
            assert line, process.communicate()[1][-3000:]
            sender.send()
            fetch()
        time.sleep(pick.random() * 0.4)
        if pick.random() < 0.5:
            process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        counts["kills"] += 1
        fetch()
        # Another process, this one, goes on where that one was killed.
        project.streams(stream, once=True, after=project.following(group)).run()
        settled = sender.number
        for _ in range(10):
            fetch()
        project.fetch("activity", KEYS, at=settled + 1)
    check(root, sender)
    project.close()
    report = project.consistency(group, threshold=1.0)
    shown = json.dumps([example.to_json() for example in report.examples[:5]])
    assert report.verdict == "consistent", shown
    assert report.share == 1
    assert report.coverage is not None
    assert report.coverage.requests == report.coverage.logged
    counts["requests"] = report.coverage.requests
    counts["values"] = report.counted.total
    counts["not_empty"] = report.counted.equal
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    from windrow.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        session = local_session("consistency-kills", cores="2")
        counts = campaign(Path(folder), given.kills, given.seed, session)
    print(json.dumps({"seed": given.seed, **counts}))


if __name__ == "__main__":
    main()
