"""A driver of its own, for test_cluster: backfills projects or ticks views, and waits where told.

Its argument is a JSON object:

    projects    project folders; the join `training` of each is backfilled, one after the other
    sizes       SLICE_ROWS, STEP_ROWS and FEW_QUERIES, so that there are many slices and steps
    stop        where to wait: "append 1" is the second time that tasks append to a shard,
                "compute 0" the first that they compute slices; "before commit" and "after commit"
                are those of the result
    first       with tasks, those from this number on wait
    gate        a folder: whoever waits says so with a file `waiting-PID`, and goes on once there
                is a file `open`

or, for views,

    statements  SQL to run in the project of the first folder, each tick exchanging rows by key
    stop        before which of them tasks of views begin to wait, by number

For each project a line of JSON on standard output tells what the backfill did.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 120


def wait_at(gate: str) -> None:
    """Say that this process is here, and wait until the gate opens."""
    Path(gate, f"waiting-{os.getpid()}").touch()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not os.path.exists(os.path.join(gate, "open")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened {gate}")
        time.sleep(0.02)


def stop_in_tasks(module: Any, kind: str, stop: str, first: int, gate: str) -> None:
    """Let tasks that `module` runs wait, when it runs them for the time that `stop` says."""
    run_numbered, calls = module.run_numbered, Counter[str]()

    def gated(
        spark: Any, count: int, store: Any, write: Callable[[int], Any], **options: Any
    ) -> Any:
        here = f"{kind} {calls[kind]}" == stop
        calls[kind] += 1

        def waiting(number: int) -> Any:
            if number >= first:
                wait_at(gate)
            return write(number)

        return run_numbered(spark, count, store, waiting if here else write, **options)

    module.run_numbered = gated


def stop_at_commit(module: Any, stop: str, gate: str) -> None:
    commit_result = module.commit_result

    def commit(store: Any, *args: Any) -> None:
        if stop == "before commit":
            wait_at(gate)
        commit_result(store, *args)
        if stop == "after commit":
            wait_at(gate)

    module.commit_result = commit


def run_statements(request: dict[str, Any]) -> None:
    from windrow.views.engine import ticker
    from windrow.views.run import stages
    from windrow.workspace import Workspace

    class Waiting(stages.Sink):
        """Defined here, so that it travels to tasks whole."""

        def __call__(self, batches: Any) -> Any:
            wait_at(request["gate"])
            return super().__call__(batches)

    ticker.LARGE = 0
    project = Workspace.load(request["projects"][0]).project()
    for number, statement in enumerate(request["statements"]):
        if number == request.get("stop"):
            stages.Sink = Waiting  # type: ignore[misc]
        if statement == "TICK":
            print(json.dumps({"changes": project.tick().changes_out}), flush=True)
        else:
            project.sql(statement)
    project.close()


def main() -> None:
    from windrow.arrangements import find as arrangements
    from windrow.features import limits
    from windrow.features.run import backfill as run
    from windrow.shard import append
    from windrow.workspace import Workspace

    request = json.loads(sys.argv[1])
    if "statements" in request:
        run_statements(request)
        return
    limits.SLICE_ROWS, arrangements.STEP_ROWS, limits.FEW_QUERIES = request["sizes"]
    if "stop" in request:
        stop, first, gate = request["stop"], request.get("first", 0), request["gate"]
        stop_in_tasks(append, "append", stop, first, gate)
        stop_in_tasks(run, "compute", stop, first, gate)
        stop_at_commit(run, stop, gate)
    for folder in request["projects"]:
        workspace = Workspace.load(folder)
        project = workspace.project()
        project.backfill(workspace.join("training"))
        assert project.summary is not None
        print(json.dumps(asdict(project.summary)), flush=True)


if __name__ == "__main__":
    main()
