"""A process that takes in a stream, and uploads a group again and again; `soak_online` is served.

    python soak_child.py SETTINGS

Events arrive as files all the time. It says what it does, a line each. A line on its input ends
that: then everything that arrived is taken in. The next line is a file of what was served
afterwards, which is compared with a backfill.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import windrow as wr
from windrow import agg
from windrow.priority import give_way
from windrow.spark.session import local_session
from windrow.time import now_millis

ARRIVE_EVERY = 1.0  # seconds between two files


def say(word: str, *rest: object) -> None:
    # In one write: several threads say something.
    sys.stdout.write(" ".join(map(str, (word, *rest))) + "\n")
    sys.stdout.flush()


def activity(settings: dict[str, Any]) -> wr.GroupBy:
    """All rows of a user have the user in `who` too: so an answer says whose it is."""
    source = wr.EventSource(
        "views",
        table=settings["table"],
        time="ts",
        stream=wr.FolderStream(settings["arriving"]),
    )
    aggregations = [
        agg.count("price").over("1h", "1d", "7d"),
        agg.sum("price").over("1d", "7d"),
        agg.avg("price").over("1d"),
        agg.max("price").over("7d"),
        agg.last("price").over("7d"),
        agg.count("price"),
        agg.min("who"),
        agg.max("who"),
    ]
    return wr.GroupBy("activity", source, ["user_id"], aggregations)


class Child:
    """What goes on beside the server, until `stop` is set."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._spark = local_session("soak-online", cores="2", **settings["spark"])
        self._group = activity(settings)
        self._stop = threading.Event()
        self._taken = threading.Event()  # the first micro-batch
        self._sent = 0

    def _project(self) -> wr.Project:
        """Uploads and the stream have one each, as if they were processes."""
        return wr.Project(self._settings["root"], spark=self._spark, progress=False)

    def run(self) -> None:
        self._upload(self._project())
        works = [self._arrive, self._stream, self._upload_on]
        threads = [threading.Thread(target=_or_die, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        sys.stdin.readline()
        self._stop.set()
        self._taken.set()
        for thread in threads:
            thread.join()
        self._take_in(once=True)
        # An upload that ended behind the stream is served once it has caught up.
        self._project().follow(self._group)
        say("sent", self._sent)
        self._compare(sys.stdin.readline().strip())

    def _arrive(self) -> None:
        """A file after the other, at a steady pace."""
        pick, folder = random.Random(11), Path(self._settings["arriving"])
        number, keys = 0, self._settings["keys"]
        each = max(1, round(self._settings["pace"] * ARRIVE_EVERY))
        while not self._stop.wait(ARRIVE_EVERY):
            number += 1
            now = now_millis()
            users = [pick.randrange(keys) for _ in range(each)]
            hidden = folder / f"_{number}"
            hidden.write_text(
                "".join(
                    f'{{"user_id":{user},"who":{user},"price":{pick.randrange(1, 1000)},'
                    f'"ts":{now}}}\n'
                    for user in users
                )
            )
            hidden.rename(folder / f"{number}.json")
            self._sent += each

    def _stream(self) -> None:
        self._take_in(once=False)

    def _take_in(self, once: bool) -> None:
        project = self._project()
        (source,) = self._group.sources
        after = project.following(self._group)
        streams = project.streams(source, once=once, after=after)
        streams.run(self._stop.is_set if not once else lambda: False, self._report)

    def _report(self, done: Any, lag: int | None) -> None:
        say("batch", done.number, done.rows)
        self._taken.set()

    def _upload_on(self) -> None:
        """Uploads that have something new to swap in: after the first micro-batch."""
        project = self._project()
        self._taken.wait()
        while not self._stop.wait(self._settings["pause"]):
            self._upload(project)

    def _upload(self, project: wr.Project) -> None:
        say("uploading")
        (done,) = project.upload(self._group)
        say("uploaded", done.generation, done.keys)

    def _compare(self, served: str) -> None:
        project = self._project()
        report = project.consistency(self._group, threshold=1.0, log=served, time="at")
        found = {
            "verdict": report.verdict,
            "equal": report.counted.equal + report.counted.both_empty,
            "compared": report.counted.total,
            "left_out": list(report.left_out),
            "records": project.records.size().records,
            "examples": [example.to_json() for example in report.examples[:3]],
        }
        say("compared", json.dumps(found, default=str))


def _or_die(work: Callable[[], None]) -> None:
    """A thread that fails ends the process: otherwise the rest would go on without it."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    give_way()  # as `windrow stream --background` does
    Child(json.loads(sys.argv[1])).run()
