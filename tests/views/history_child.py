"""Performs operations on a project's history in processes that die at a chosen step.

Run as a program it serves requests, one JSON object per line, each in a fork: see `crash_child` of
the shard's tests, whose reasons hold here too. A step is whatever another process can see: a file
that is put, linked, written, deleted, or a commit to a shard's log. `kill_at` says before which
step the process kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from history_model import SCHEMA, written

from windrow import by_hash
from windrow.shard.append import BatchWriter, sort_and_consolidate
from windrow.shard.spec import ShardSpec
from windrow.storage.checksum import checksum
from windrow.storage.store import Store
from windrow.views.history import files as history_files
from windrow.views.history import maintain
from windrow.views.history.commits import Commit
from windrow.views.history.history import History

Request = dict[str, Any]
CHECKPOINT_EVERY = 4


def hurry() -> None:
    """Checkpoints, deletions and merges come after a few records instead of many."""
    history_files.CHECKPOINT_EVERY = CHECKPOINT_EVERY
    history_files.KEPT_SECONDS = 0.0
    maintain.FANOUT = 2


def perform(history: History, request: Request) -> None:
    time = request.get("time", 0)
    match request["operation"]:
        case "write" | "tick":
            updates = {id: [tuple(one) for one in rows] for id, rows in request["updates"].items()}
            appends = {id: written(history, id, time, rows) for id, rows in updates.items()}
            ticked = time if request["operation"] == "tick" else None
            history.commit(Commit(request["operation"], time, appends, ticked=ticked))
        case "define":
            id = history.create_collection(SCHEMA, ["k"])
            rows = [tuple(one) for one in request["updates"]]
            appends = {id: written(history, id, time, rows)}
            catalogue = {request["name"]: {"collection": id}}
            created = {id: {"retain": "latest"}}
            history.commit(Commit("define", time, appends, created, catalogue=catalogue))
        case "drop":
            history.commit(Commit("define", time, dropped=request["ids"]))
        case "roll forward":
            history.roll_forward()
        case "maintain":
            history.maintain()
        case "sweep":
            history.sweep(hours=0)
        case other:
            raise ValueError(other)


class Steps:
    """Counts the steps of this process, reports each, and ends it at the chosen one."""

    def __init__(self, report: int, kill_at: int | None) -> None:
        self._report, self._kill_at, self._count = report, kill_at, 0

    def before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self._count += 1
            if self._count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(self._report, f"{name}\n".encode())
            return call(*args, **kwargs)

        return stepped

    def install(self) -> None:
        for name in ("put", "delete", "remove", "open_output"):
            setattr(Store, name, self.before(name, getattr(Store, name)))
        os.link = self.before("link", os.link)
        os.unlink = self.before("unlink", os.unlink)
        commit = DeltaTable.create_write_transaction
        DeltaTable.create_write_transaction = self.before("commit", commit)


def warm_up() -> None:
    """Load the compiled kernels, in memory only, so that forks have them."""
    spec = ShardSpec.make(SCHEMA, ["k"], by_hash())
    rows = pa.table({"k": [2, 1, 2], "v": ["a", "b", "a"]})
    stored = BatchWriter(Store.at("nowhere"), spec, 0, 1).prepare(rows, "warm-up")
    sort_and_consolidate(stored, spec)
    checksum(b"some bytes")


def run(request: Request, report: int) -> None:
    """Perform the request in this process, and end it."""
    try:
        Steps(report, request.get("kill_at")).install()
        perform(History(Store.at(request["uri"]), roll_after=request["roll_after"]), request)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def serve() -> None:
    warm_up()
    hurry()
    for line in sys.stdin:
        request = json.loads(line)
        source, report = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(source)
            run(request, report)
        os.close(report)
        with os.fdopen(source) as reported:
            steps = reported.read().split("\n")[:-1]
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": status, "steps": steps}), flush=True)


if __name__ == "__main__":
    serve()
