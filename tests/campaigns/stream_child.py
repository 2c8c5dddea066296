"""A process that takes in a stream until it is killed; its victim is `stream_kills`.

python stream_child.py ROOT SETTINGS
"""

from __future__ import annotations

import json
import sys
from typing import Any

import windrow as wr
from windrow import agg
from windrow.spark.jars import with_jars
from windrow.spark.session import local_session


def source(settings: dict[str, Any]) -> wr.EventSource:
    columns = "k INT, n INT, t BIGINT"
    stream: Any
    if settings["servers"] is None:
        stream = wr.FolderStream(
            settings["folder"], schema=columns, options={"maxFilesPerTrigger": "2"}
        )
    else:
        options = {"maxOffsetsPerTrigger": "200"}
        stream = wr.KafkaStream(
            settings["topic"], settings["servers"], schema=columns, options=options
        )
    return wr.EventSource("s", time="t", stream=stream)


def activity(settings: dict[str, Any]) -> wr.GroupBy:
    """A group over the stream; with `follow`, its records are brought up to each batch."""
    aggregations = [
        agg.count("n"),
        agg.sum("n").over("1s", kind="sliding"),
        agg.last_k("n", 5),
        agg.histogram("n"),
    ]
    return wr.GroupBy("activity", source(settings), ["k"], aggregations)


def main() -> None:
    root, settings = sys.argv[1], json.loads(sys.argv[2])
    conf = {**with_jars({}), **settings["spark"]}
    project = wr.Project(root, spark=local_session("stream-child", cores="2", **conf))
    print("ready", flush=True)
    after = project.following(activity(settings)) if settings.get("follow") else None
    once = settings["once"]
    streams = project.streams(source(settings), once=once, trigger=0.01, after=after)
    streams.run(report=lambda done, lag: print(f"taken {done.number} {done.rows}", flush=True))
    print("ended", flush=True)


if __name__ == "__main__":
    main()
