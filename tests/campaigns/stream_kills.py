"""Streams, killed at random moments: in the end each message counts once.

    python tests/campaigns/stream_kills.py --kills 50 [--kafka]

While a process takes in a stream, files or messages arrive, some of them unreadable. It is killed,
with its Java or before it, and another one begins. In the end the shard is compared with what was
sent, and the quarantine with what was unreadable.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "online" / "streams")]

import pyarrow as pa  # noqa: E402

from windrow.shard.shard import Shard  # noqa: E402
from windrow.storage.delta import open_table  # noqa: E402
from windrow.storage.store import Store  # noqa: E402

CHILD = Path(__file__).with_name("stream_child.py")
# Writes its logs in fewer steps. Whether that survives kills is what `--quick-log` tries.
QUICK_LOG = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


class Sender:
    """Sends rows, and remembers them."""

    def __init__(self, place: Path, pick: random.Random, kafka: Any) -> None:
        self.folder, self.pick, self.kafka = place / "in", pick, kafka
        self.topic = f"kills{pick.getrandbits(32):x}"
        self.sent: Counter[tuple[int, int, int]] = Counter()
        self.bad = self.number = 0
        self.folder.mkdir()
        if kafka is not None:
            kafka.create(self.topic)

    def send(self) -> None:
        self.number += 1
        pick = self.pick
        rows = [(pick.randrange(5), pick.randrange(3), self.number) for _ in range(50)]
        lines = [json.dumps({"k": k, "n": n, "t": t}) for k, n, t in rows]
        wrong = pick.randrange(3)
        lines += ["{bad"] * wrong
        pick.shuffle(lines)
        if self.kafka is not None:
            self.kafka.send(self.topic, [line.encode() for line in lines])
        else:
            hidden = self.folder / f"_{self.number}"
            hidden.write_text("\n".join(lines))
            hidden.rename(self.folder / f"{self.number}.json")
        self.sent.update(rows)
        self.bad += wrong


def child(root: Path, settings: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), str(root), json.dumps(settings)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def campaign(
    place: Path, kills: int, seed: int, kafka: Any = None, spark: dict[str, str] | None = None
) -> Counter[str]:
    """Kill so many processes; what happened, counted. Raises AssertionError on a wrong row."""
    pick, counts = random.Random(seed), Counter[str]()
    sender = Sender(place, pick, kafka)
    root = place / "state"
    settings = {
        "folder": str(sender.folder),
        "topic": sender.topic,
        "servers": None if kafka is None else kafka.servers,
        "spark": spark or {},
        "once": False,
    }
    while counts["stream_kills"] < kills:
        process = child(root, settings)
        assert process.stdout is not None
        for _ in range(pick.randrange(1, 6)):
            sender.send()
        for _ in range(pick.randrange(0, 5)):
            line = process.stdout.readline()
            assert line, process.communicate()[1][-3000:]
            counts[f"stream_{line.split()[0]}"] += 1
            sender.send()
        time.sleep(pick.random() * 0.4)
        if pick.random() < 0.5:  # Python first: its Java goes on for a moment
            process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        counts["stream_kills"] += 1
    process = child(root, {**settings, "once": True})
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    check(root, sender)
    counts["stream_rows"] = sum(sender.sent.values())
    counts["stream_quarantined"] = sender.bad
    return counts


def check(root: Path, sender: Sender) -> None:
    found: Counter[tuple[int, int, int]] = Counter()
    for row in Shard.open(root / "streams/s").snapshot().to_table().to_pylist():
        found[row["k"], row["n"], row["t"]] += row["_diff"]
    assert found == sender.sent, f"{(found - sender.sent)!r} and {(sender.sent - found)!r}"
    table = open_table(Store.at(str(root / "quarantine/streams/s")))
    set_aside = 0 if table is None else pa.table(table.to_pyarrow_table()).num_rows
    assert set_aside == sender.bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kafka", action="store_true", help="messages of Kafka, and not files")
    parser.add_argument("--quick-log", action="store_true", help="another way to write Spark's log")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder,
        contextlib.ExitStack() as on,
    ):
        kafka = None
        if given.kafka:
            from kafka_broker import broker

            kafka = on.enter_context(broker(Path(folder, "kafka")))
        spark = QUICK_LOG if given.quick_log else None
        counts = campaign(Path(folder), given.kills, given.seed, kafka, spark)
    print(json.dumps({"seed": given.seed, **counts}))


if __name__ == "__main__":
    main()
