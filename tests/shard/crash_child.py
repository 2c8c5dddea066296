"""Performs operations on a shard in processes that die at a chosen step, for test_crash.

Run as a program it serves requests, one JSON object per line. Each operation happens in a fork:
the server imports and compiles once, but never does any I/O with Arrow or delta-rs itself, since
their threads would not be there in the fork.

A request says how the process dies, if at all:

    kill_at     at the step with this number, by SIGKILL
    tear_at     within the commit, as soon as it writes a file beyond this many bytes
    kill_on     as soon as the server sees that a file was "added" to the log, that one of the
                parts was "removed", or that a "checkpoint" is there
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa
from deltalake import DeltaTable

from windrow import Shard, by_hash
from windrow.errors import UpperMismatchError
from windrow.shard import part
from windrow.shard.append import BatchWriter, sort_and_consolidate
from windrow.shard.spec import ShardSpec
from windrow.storage.store import Store
from windrow.updates import update_schema

GROUP_ROWS = 4  # with a part_bytes of 1, each part holds this many updates

Request = dict[str, Any]


def perform(shard: Shard, request: Request) -> Any:
    """The operation of a request. What it returns tells whether it had anything to do."""
    match request["operation"]:
        case "append":
            rows = pa.Table.from_pylist(request["rows"], update_schema(shard.schema))
            bounds = {"lower": request["lower"], "upper": request["upper"]}
            return shard.append(rows, part_bytes=1, **bounds)
        case "adopt":
            return shard.adopt(request["paths"], lower=request["lower"], upper=request["upper"])
        case "compact":
            return shard.compact(everything=True, part_bytes=1).merges > 0
        case "advance_since":
            shard.advance_since(request["since"])
            return None
        case "vacuum":
            return shard.vacuum(retention_hours=0)
        case other:
            raise ValueError(other)


@dataclass
class Steps:
    """Counts the steps of this process, reports each, and ends it at the chosen one."""

    report: int
    request: Request
    count: int = 0
    silent: bool = False

    def reach(self, name: str) -> None:
        if self.silent:
            return
        self.count += 1
        os.write(self.report, f"{name}\n".encode())
        if self.count == self.request.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.reach(f"before {name}")
            result = call(*args, **kwargs)
            self.reach(f"after {name}")
            return result

        return wrapped


@dataclass
class SteppedFile:
    """An output file whose writer can die after half of the bytes."""

    file: Any
    steps: Steps

    def __enter__(self) -> SteppedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()
        self.steps.reach("after close")

    def write(self, data: pa.Buffer) -> None:
        half = data.size // 2
        self.file.write(data.slice(0, half))
        self.file.flush()
        self.steps.reach("half written")
        self.file.write(data.slice(half))
        self.file.flush()
        self.steps.reach("all written")


def install(steps: Steps) -> None:
    """Make every step that another process can see a step of `steps`."""
    open_output, delete = Store.open_output, Store.delete
    put = Store.put
    commit, vacuum = DeltaTable.create_write_transaction, DeltaTable.vacuum

    def stepped_open(store: Store, name: str) -> SteppedFile:
        return SteppedFile(steps.around("open", open_output)(store, name), steps)

    def stepped_delete(store: Store, names: list[str]) -> None:
        for name in names:
            steps.around("delete", delete)(store, [name])

    def stepped_commit(*args: Any, **kwargs: Any) -> Any:
        rival = steps.request.pop("rival", None)
        if rival is not None:
            steps.silent = True
            perform(Shard.open(steps.request["uri"]), rival)
            steps.silent = False
            steps.reach("after rival")
        return steps.around("commit", tearing(commit))(*args, **kwargs)

    def tearing(call: Callable[..., Any]) -> Callable[..., Any]:
        size = steps.request.get("tear_at")
        if size is None:
            return call

        def torn(*args: Any, **kwargs: Any) -> Any:
            # A write beyond the limit ends in SIGXFSZ, which Python ignores by default; the
            # bytes before the limit are in the file by then.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            return call(*args, **kwargs)

        return torn

    part.ROW_GROUP_ROWS = GROUP_ROWS
    Store.open_output = stepped_open  # type: ignore[method-assign]
    Store.delete = stepped_delete  # type: ignore[method-assign]
    Store.put = steps.around("put", put)  # type: ignore[method-assign]
    DeltaTable.create_write_transaction = stepped_commit
    DeltaTable.vacuum = steps.around("list", vacuum)


def warm_up() -> None:
    """Load the compiled kernels, in memory only, so that forks have them."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    spec = ShardSpec.make(schema, ["k"], by_hash())
    rows = pa.table({"k": [2, 1, 2], "v": ["a", "b", "a"]})
    stored = BatchWriter(Store.at("nowhere"), spec, 0, 1).prepare(rows, "warm-up")
    sort_and_consolidate(stored, spec)


def run(request: Request, report: int) -> None:
    """Perform the request in this process, and end it."""
    try:
        install(Steps(report, request))
        perform(Shard.open(request["uri"]), request)
    except UpperMismatchError:
        pass
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def watcher(request: Request) -> Callable[[], bool]:
    """A function that tells whether what `kill_on` waits for has happened."""
    log = os.path.join(request["uri"], "_delta_log")
    match request.get("kill_on"):
        case "added":
            known = set(os.listdir(log))
            return lambda: not known.issuperset(os.listdir(log))
        case "checkpoint":
            return lambda: any("checkpoint" in name for name in os.listdir(log))
        case "removed":
            count = len(os.listdir(request["uri"]))
            return lambda: len(os.listdir(request["uri"])) < count
        case _:
            return lambda: False


def serve() -> None:
    # Allocators have threads from the start and know about forks; thread pools do not.
    threads = psutil.Process().num_threads()
    warm_up()
    assert psutil.Process().num_threads() == threads, "a fork would lose the new threads"
    for line in sys.stdin:
        request = json.loads(line)
        happened = watcher(request)
        source, report = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(source)
            run(request, report)
        os.close(report)
        options = os.WNOHANG if "kill_on" in request else 0
        ended, status = os.waitpid(child, options)
        while not ended:
            if happened():
                os.kill(child, signal.SIGKILL)
                options = 0
            ended, status = os.waitpid(child, options)
        with os.fdopen(source) as reported:
            steps = reported.read().split("\n")[:-1]
        reply = {"killed": os.WIFSIGNALED(status), "status": status, "steps": steps}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    serve()
