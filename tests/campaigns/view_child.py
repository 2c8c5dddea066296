"""A driver for the campaign: runs the statements that it is given on a project, one at a time.

Its argument is the project's root. It says that it is ready, and then answers each line of JSON,
`{"sql": TEXT}` or `{"sql": null}` for a tick, by another: what went wrong, or nothing.

With `"kill_at": N` it kills itself before the Nth step of that statement. A step is whatever
another process can see of the driver: a file that is put, linked or deleted, a commit to a log.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "views")]

from history_child import Steps, hurry  # noqa: E402

from windrow.views import engine  # noqa: E402

UPKEEP_TICKS = 3


class StepsOfStatements(Steps):
    """Steps that are counted anew for each statement."""

    def arm(self, kill_at: int | None) -> None:
        self._count, self._kill_at = 0, kill_at


def main() -> None:
    import windrow
    from windrow.spark.session import local_session

    hurry()  # checkpoints and merges come often
    engine.UPKEEP_TICKS = UPKEEP_TICKS
    steps = StepsOfStatements(os.open(os.devnull, os.O_WRONLY), None)
    steps.install()
    project = windrow.Project(sys.argv[1], spark=local_session("view-child", cores="2"))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        steps.arm(request.get("kill_at"))
        try:
            project.tick() if request["sql"] is None else project.sql(request["sql"])
            print(json.dumps({}), flush=True)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
            print(json.dumps(said), flush=True)
    project.close()


if __name__ == "__main__":
    main()
