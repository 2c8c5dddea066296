"""A driver for the campaign: takes in a stream, or uploads records, whenever it is told to.

Its arguments are the project's root and settings, as JSON. It answers each `{"do": "stream"}`,
which takes in what there is and brings the records up to it, and each `{"do": "upload", "as_of":
TIME}`: what went wrong, or nothing.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from drivers import Request, serve
from stream_child import activity, source

import windrow as wr
from windrow.errors import WindrowError


def work(spark: Any, requests: Iterator[Request]) -> Iterator[Request]:
    for query in spark.streams.active:  # of a driver that was killed
        query.stop()
    root, settings = sys.argv[2], json.loads(sys.argv[3])
    project: wr.Project | None = None
    for request in requests:
        try:
            project = project or wr.Project(
                root, spark=spark, progress=False, online=settings["online"]
            )
            group = activity(settings)
            if request["do"] == "upload":
                project.upload(group, as_of=request["as_of"])
            else:
                after = project.following(group)
                project.streams(source(settings), once=True, after=after).run()
            yield {}
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            ours = isinstance(error, WindrowError)
            yield {"error": said, "ours": ours, "trace": traceback.format_exc()}


if __name__ == "__main__":
    serve(work)
