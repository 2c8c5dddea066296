"""A driver for the campaign: runs the statements that it is given on a project, one at a time.

Its argument is the project's root. It answers each `{"sql": TEXT}`, or `{"sql": null}` for a tick:
what went wrong, or nothing.

With `"kill_at": N` it kills itself before the Nth step of that statement. A step is whatever
another process can see of the driver: a file that is put, linked or deleted, a commit to a log.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "views"), str(TESTS / "campaigns")]

from drivers import Request, serve  # noqa: E402
from history_child import Steps, hurry  # noqa: E402

import windrow  # noqa: E402
from windrow.errors import WindrowError  # noqa: E402
from windrow.views import engine  # noqa: E402

UPKEEP_TICKS = 3


class StepsOfStatements(Steps):
    """Steps that are counted anew for each statement."""

    def arm(self, kill_at: int | None) -> None:
        self._count, self._kill_at = 0, kill_at


def work(spark: Any, requests: Iterator[Request]) -> Iterator[Request]:
    hurry()  # checkpoints and merges come often
    engine.UPKEEP_TICKS = UPKEEP_TICKS
    steps = StepsOfStatements(os.open(os.devnull, os.O_WRONLY), None)
    steps.install()
    project: windrow.Project | None = None
    for request in requests:
        steps.arm(request["kill_at"])
        try:
            project = project or windrow.Project(sys.argv[2], spark=spark, progress=False)
            project.tick() if request["sql"] is None else project.sql(request["sql"])
            yield {}
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            ours = isinstance(error, WindrowError)
            yield {"error": said, "ours": ours, "trace": traceback.format_exc()}


if __name__ == "__main__":
    serve(work)
