"""Several processes write, tick, maintain and read one project at once, and some are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import history_worker
import pytest
from history_model import SCHEMA, content, write

from windrow.storage.store import Store
from windrow.views.history.commits import Commit
from windrow.views.history.files import HistoryFiles
from windrow.views.history.history import History

KILLS = int(os.environ.get("WINDROW_HISTORY_KILLS", "4"))  # a campaign sets more
ROWS = 15  # that each process commits, at least


class Child:
    """A worker, and the rows that it has committed."""

    def __init__(self, uri: str, seed: int, folder: Path) -> None:
        self.output, self.errors = folder / f"{seed}.out", folder / f"{seed}.err"
        command = [sys.executable, history_worker.__file__, uri, str(seed)]
        tests = os.path.dirname(os.path.dirname(history_worker.__file__))
        with self.output.open("w") as out, self.errors.open("w") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": tests},
            )

    def rows(self) -> set[int]:
        lines = self.output.read_text().split("\n")[:-1]
        return {int(line) for line in lines}

    def wait_for(self, rows: int) -> None:
        until = time.monotonic() + 120
        while len(self.rows()) < rows:
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < until
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"end\n")
        self.process.stdin.flush()
        assert self.process.wait(60) == 0, self.errors.read_text()
        self.process.stdin.close()


@pytest.mark.parametrize("killing", [False, True])
def test_processes_at_once(tmp_path: Path, killing: bool) -> None:
    store = Store.at(tmp_path / "shop")
    history = History(store)
    table, view = (history.create_collection(SCHEMA, ["k"]) for _ in range(2))
    created = {table: {"retain": "latest"}, view: {"retain": "history"}}
    catalogue = {"table": {"id": table}, "view": {"id": view}}
    history.commit(Commit("define", 0, created=created, catalogue=catalogue))
    write(history, {table: [(-1, "first", 1)]}, history.next_time())
    seeds = iter(range(1, 1_000))
    chance = random.Random(1)
    ended = []
    running = [Child(store.uri, next(seeds), tmp_path) for _ in range(3)]
    for _ in range(KILLS if killing else 0):
        victim = running.pop(0)
        victim.wait_for(1 + chance.randrange(10))
        time.sleep(chance.uniform(0, 0.1))
        victim.kill()
        ended.append(victim)
        running.append(Child(store.uri, next(seeds), tmp_path))
    for child in running:
        child.wait_for(ROWS)
    for child in running:
        child.stop()
    for child in ended:
        assert "Error" not in child.errors.read_text()
    rows = set().union(*(child.rows() for child in [*running, *ended]))
    check(history, store, table, view, rows, killing)


def check(
    history: History, store: Store, table: str, view: str, rows: set[int], killing: bool
) -> None:
    history.refresh()
    assert history._state == History(store)._state
    assert history.ticked > 0
    found = content(history.collection(table))
    kept = {row[0] for row in found if row[1] == "kept"}
    # Of one that was killed, the last commit may be there without having been reported.
    assert kept == rows or (killing and kept > rows and len(kept - rows) < 10)
    assert set(found.values()) == {1}
    assert sum(row[0] == -1 for row in found) == 1
    ticked = history.ticked
    assert content(history.collection(view), ticked) == content(history.collection(table), ticked)
    history.maintain(kept=0)
    history.sweep(hours=0)
    assert content(history.collection(table)) == found
    for id in (table, view):
        final = History(store).collection(id)
        assert final.store.names() == sorted(part.path for part in final.parts)
    assert HistoryFiles(store.beneath("history")).checkpoints()
