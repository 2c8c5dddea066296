"""Processes killed at each step of each operation: the shard is as before it, or as after it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crash_child
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crash_child import Request, perform
from deltalake import DeltaTable

from oracle import Oracle, count_updates
from windrow import Shard, by_hash
from windrow.errors import StorageError, UpperMismatchError
from windrow.shard import part
from windrow.shard.log import Log
from windrow.shard.spec import ShardSpec
from windrow.storage.store import Store
from windrow.updates import update_schema

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])

# A part is written in two pieces, of which the second holds the checksums and the footer.
PART = ["before open", "after open", *["half written", "all written"] * 2, "after close"]
DELETE = ["before delete", "after delete"]
PUT = ["before put", "after put"]
COMMIT = ["before commit", "after commit", *PUT]  # then the head of the chain is written
LIST = ["before list", "after list"]

Update = tuple[dict[str, Any], int, int]

HISTORY: list[list[Update]] = [
    [({"k": k, "v": "a"}, 0, 1) for k in range(4)],
    [({"k": 1, "v": "a"}, 1, -1), ({"k": 1, "v": "b"}, 1, 1), ({"k": 9, "v": "c"}, 1, 2)],
    [({"k": 9, "v": "c"}, 2, -2), ({"k": 2, "v": "a"}, 2, -1), ({"k": 4, "v": None}, 2, 1)],
]
UPPER = len(HISTORY)
BATCH: list[Update] = [
    ({"k": 0, "v": "a"}, 3, -1),
    ({"k": 0, "v": "z"}, 3, 1),
    ({"k": 5, "v": "z"}, 4, 1),
    ({"k": 6, "v": "z"}, 4, 3),
    ({"k": 7, "v": "z"}, 4, 1),
]


@dataclass(frozen=True)
class State:
    """What the shard should hold."""

    oracle: Oracle
    upper: int

    def check(self, shard: Shard) -> None:
        assert (shard.since, shard.upper) == (self.oracle.since, self.upper)
        for as_of in (shard.since, shard.upper - 1):
            found = count_updates(shard.snapshot(as_of).to_table(), with_time=False)
            assert found == self.oracle.snapshot(as_of)
        changes = count_updates(shard.changes(shard.since).to_table(), with_time=True)
        assert changes == self.oracle.changes(shard.since, shard.upper)

    def appended(self, rows: list[Update], upper: int) -> State:
        oracle = Oracle(SCHEMA, self.oracle.updates + rows, self.oracle.since)
        return State(oracle, upper)

    def advanced(self, since: int) -> State:
        return State(dataclasses.replace(self.oracle, since=since), self.upper)


BEFORE = State(Oracle(SCHEMA, [update for batch in HISTORY for update in batch]), UPPER)
APPENDED = BEFORE.appended(BATCH, UPPER + 2)


@dataclass(frozen=True)
class Outcome:
    """How far a process came."""

    killed: bool
    steps: list[str]

    @property
    def committed(self) -> bool:
        return "after commit" in self.steps or "after rival" in self.steps


class Server:
    """The process whose forks are killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, crash_child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, request: Request) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        assert reply["killed"] or reply["status"] == 0, f"failed after {reply['steps']}"
        return Outcome(reply["killed"], reply["steps"])

    def stop(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "ROW_GROUP_ROWS", crash_child.GROUP_ROWS)


def update_rows(updates: list[Update]) -> list[dict[str, Any]]:
    return [{**row, "_time": time, "_diff": diff} for row, time, diff in updates]


def update_table(updates: list[Update]) -> pa.Table:
    return pa.Table.from_pylist(update_rows(updates), update_schema(SCHEMA))


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A shard in state BEFORE; tests work on copies of it."""
    folder = tmp_path / "template"
    fill(Shard.create(folder, SCHEMA, key=["k"]))
    return folder


def fill(shard: Shard) -> None:
    for lower, batch in enumerate(HISTORY):
        shard.append(update_table(batch), lower=lower, upper=lower + 1)


def copies(template: Path) -> Iterator[tuple[int, str]]:
    for number in itertools.count(1):
        folder = template.with_name(f"copy-{number}")
        shutil.copytree(template, folder)
        yield number, os.fspath(folder)


def named_files(shard: Shard) -> list[str]:
    return sorted(part.path for part in shard.snapshot().parts)


def check_vacuumed(uri: str, state: State) -> None:
    """Vacuum leaves what the log names, and the shard goes on."""
    shard = Shard.open(uri)
    shard.vacuum(retention_hours=0)
    assert Store.at(uri).names() == named_files(shard)
    state.check(Shard.open(uri))
    more: list[Update] = [({"k": 7, "v": "more"}, state.upper, 1)]
    assert shard.append(update_table(more), lower=state.upper, upper=state.upper + 1)
    state.appended(more, state.upper + 1).check(Shard.open(uri))


def is_appended(shard: Shard) -> bool:
    return shard.upper > UPPER


def is_compacted(shard: Shard) -> bool:
    return shard.stats().runs == 1


def is_advanced(shard: Shard) -> bool:
    return shard.since > 0


@dataclass(frozen=True)
class Operation:
    """A request, and the states on either side of it; `is_done` tells which one a shard is in."""

    request: Request
    before: State
    after: State
    is_done: Callable[[Shard], bool]

    def check_recovery(self, uri: str, done: bool | None) -> None:
        """The shard is in one of the two states; repeating the request brings it to the second.

        `done` says which one it has to be, None that both are right.
        """
        shard = Shard.open(uri)
        found = self.is_done(shard)
        assert done is None or found == done
        (self.after if found else self.before).check(shard)
        repeated = perform(shard, self.request)
        assert repeated is None or repeated == (not found)
        assert self.is_done(Shard.open(uri))
        self.after.check(Shard.open(uri))
        check_vacuumed(uri, self.after)

    def kill_at_each_step(self, server: Server, template: Path, **options: Any) -> list[str]:
        """Kill at step 1, 2, 3, ... until it ends before its turn; return all the steps."""
        assert not self.is_done(Shard.open(template))
        for kill_at, uri in copies(template):
            outcome = server.run({**self.request, "uri": uri, "kill_at": kill_at, **options})
            assert outcome.killed == (len(outcome.steps) == kill_at)
            self.check_recovery(uri, outcome.committed)
            if not outcome.killed:
                return outcome.steps
        raise AssertionError


APPEND = Operation(
    {"operation": "append", "rows": update_rows(BATCH), "lower": UPPER, "upper": UPPER + 2},
    BEFORE,
    APPENDED,
    is_appended,
)
COMPACT = Operation({"operation": "compact"}, BEFORE, BEFORE, is_compacted)
ADVANCE = Operation(
    {"operation": "advance_since", "since": 1}, BEFORE, BEFORE.advanced(1), is_advanced
)
each_operation = pytest.mark.parametrize(
    "operation", [APPEND, COMPACT, ADVANCE], ids=["append", "compact", "advance_since"]
)


def test_append_killed_at_each_step(server: Server, template: Path) -> None:
    steps = APPEND.kill_at_each_step(server, template)
    assert steps == [*PART, *PART, *COMMIT]


def test_append_that_was_done_already_killed_at_each_step(server: Server, template: Path) -> None:
    """The twin of a writer, started by a supervisor that took the first for dead, is first."""
    steps = APPEND.kill_at_each_step(server, template, rival=APPEND.request)
    assert steps == [*PART, *PART, "after rival", "before commit", *DELETE, *DELETE]


def test_append_that_lost_killed_at_each_step(server: Server, template: Path) -> None:
    rows: list[Update] = [({"k": 8, "v": "rival"}, UPPER, 1)]
    lost = BEFORE.appended(rows, UPPER + 1)
    rival = {**APPEND.request, "rows": update_rows(rows), "upper": UPPER + 1}
    for kill_at, uri in copies(template):
        outcome = server.run({**APPEND.request, "uri": uri, "kill_at": kill_at, "rival": rival})
        if outcome.committed:
            shard = Shard.open(uri)
            lost.check(shard)
            with pytest.raises(UpperMismatchError) as caught:
                perform(shard, APPEND.request)
            assert caught.value.upper == UPPER + 1
            check_vacuumed(uri, lost)
        else:
            APPEND.check_recovery(uri, done=False)
        if not outcome.killed:
            break
    assert outcome.steps == [*PART, *PART, "after rival", "before commit", *DELETE, *DELETE]


def test_adopt_killed_at_each_step(server: Server, template: Path, tmp_path: Path) -> None:
    paths = []
    for number, rows in enumerate((BATCH[:2], BATCH[2:])):
        paths.append(os.fspath(tmp_path / f"{number}.parquet"))
        pq.write_table(update_table(rows), paths[-1])
    request = {"operation": "adopt", "paths": paths, "lower": UPPER, "upper": UPPER + 2}
    adopt = Operation(request, BEFORE, APPENDED, is_appended)
    assert adopt.kill_at_each_step(server, template) == [*PART, *PART, *COMMIT]


def test_compaction_killed_at_each_step(server: Server, template: Path) -> None:
    """With history to forget: a compaction that was not committed must not have forgotten it."""
    Shard.open(template).advance_since(1)
    state = BEFORE.advanced(1)
    steps = Operation(COMPACT.request, state, state, is_compacted).kill_at_each_step(
        server, template
    )
    parts = steps.count("before open")
    assert parts >= 2
    assert steps == [*PUT, *PART * parts, *COMMIT, *DELETE]


def test_compaction_that_lost_killed_at_each_step(server: Server, template: Path) -> None:
    steps = COMPACT.kill_at_each_step(server, template, rival=COMPACT.request)
    parts = steps.count("before open")
    assert parts >= 2
    assert steps == [
        *PUT,
        *PART * parts,
        "after rival",
        "before commit",
        *DELETE * parts,
        *DELETE,
    ]


def test_advance_since_killed_at_each_step(server: Server, template: Path) -> None:
    """One commit says where `since` is about to move, the next one moves it."""
    for kill_at, uri in copies(template):
        outcome = server.run({**ADVANCE.request, "uri": uri, "kill_at": kill_at})
        ADVANCE.check_recovery(uri, done=outcome.steps.count("after commit") == 2)
        if not outcome.killed:
            break
    assert outcome.steps == [*COMMIT, *COMMIT]


@each_operation
def test_a_torn_commit_is_no_commit(server: Server, template: Path, operation: Operation) -> None:
    """The process dies when it has written some bytes of the log entry, but not all."""
    for size, (_, uri) in zip((0, 1, 50, 200), copies(template), strict=False):
        outcome = server.run({**operation.request, "uri": uri, "tear_at": size})
        assert outcome.killed
        assert outcome.steps[-1] == "before commit"
        operation.check_recovery(uri, done=False)


@each_operation
def test_killed_within_the_commit(server: Server, template: Path, operation: Operation) -> None:
    """Once the log has a new file the process dies, often before it knows that it committed."""
    for _, (_, uri) in zip(range(5), copies(template), strict=False):
        server.run({**operation.request, "uri": uri, "kill_on": "added"})
        operation.check_recovery(uri, done=None)


@each_operation
def test_the_answer_to_a_commit_is_lost(
    template: Path, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer lives, but takes its commit for failed: it must not tidy up what is named."""
    commit = DeltaTable.create_write_transaction

    def committed_in_silence(*args: Any, **kwargs: Any) -> None:
        commit(*args, **kwargs)
        raise OSError("connection reset")

    shard = Shard.open(template)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", committed_in_silence)
    with pytest.raises(StorageError, match="connection reset"):
        perform(shard, operation.request)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
    # The first of two commits only announces that `since` will move.
    operation.check_recovery(os.fspath(template), done=operation is not ADVANCE)


def checkpointing_template(folder: Path) -> None:
    """A shard in state BEFORE whose next commit makes a checkpoint."""
    spec = ShardSpec.make(SCHEMA, ["k"], by_hash())
    interval = {"delta.checkpointInterval": str(UPPER + 2)}  # versions 0 to 4
    fill(Shard(Log.create(Store.at(folder), spec, interval)))


@pytest.mark.parametrize("death", [{"tear_at": 3_000}, {"kill_on": "checkpoint"}])
def test_append_killed_within_the_checkpoint(
    server: Server, tmp_path: Path, death: Request
) -> None:
    """A checkpoint follows a commit; whether it is whole, torn or missing changes nothing."""
    template = tmp_path / "template"
    checkpointing_template(template)
    for _, (_, uri) in zip(range(3), copies(template), strict=False):
        outcome = server.run({**APPEND.request, "uri": uri, **death})
        assert outcome.killed or "kill_on" in death
        APPEND.check_recovery(uri, done=True)


def vacuum_template(folder: Path, orphans: int) -> list[str]:
    """Add files that no log entry names, and parts that compaction replaced; return both."""
    shard = Shard.open(folder)
    dead = [f.replace("-c", "-dead-c") for f in named_files(shard)]
    for number in range(orphans):
        (folder / f"{number:05d}-{dead[number % len(dead)]}").write_bytes(b"half a pa")
    shard.compact(everything=True)
    return sorted(set(Store.at(folder).names()) - set(named_files(shard)))


def test_vacuum_killed_at_each_step(server: Server, template: Path) -> None:
    useless = vacuum_template(template, orphans=3)
    assert len(useless) > 3
    for kill_at, uri in copies(template):
        outcome = server.run({"operation": "vacuum", "uri": uri, "kill_at": kill_at})
        left = set(Store.at(uri).names()).intersection(useless)
        assert len(useless) - len(left) == outcome.steps.count("after delete")
        BEFORE.check(Shard.open(uri))
        check_vacuumed(uri, BEFORE)
        if not outcome.killed:
            break
    assert outcome.steps == [*LIST, *DELETE * len(useless)]


def test_vacuum_killed_while_it_deletes(server: Server, template: Path) -> None:
    useless = vacuum_template(template, orphans=500)
    partial = 0
    # When exactly the kill arrives is chance: try until it came in the middle a few times.
    for attempt, uri in copies(template):
        outcome = server.run({"operation": "vacuum", "uri": uri, "kill_on": "removed"})
        left = set(Store.at(uri).names()).intersection(useless)
        partial += 0 < len(left) < len(useless)
        assert outcome.killed or not left
        BEFORE.check(Shard.open(uri))
        check_vacuumed(uri, BEFORE)
        shutil.rmtree(uri)
        if partial >= 3:
            break
        assert attempt < 30, "never killed in the middle"
