"""Processes killed at each step of each operation: the project is as before it, or as after it."""

from __future__ import annotations

import copy
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import history_child
import pytest
from history_child import CHECKPOINT_EVERY, Request, perform
from history_model import SCHEMA, Model, Update, define, write, written

from oracle import Oracle
from windrow.storage.leases import live_leases
from windrow.storage.store import Store
from windrow.views.history import files as history_files
from windrow.views.history import maintain
from windrow.views.history.commits import Commit
from windrow.views.history.history import History


class Server:
    """The process whose forks are killed."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        folder = os.path.dirname(os.path.dirname(history_child.__file__))
        self._process = subprocess.Popen(
            [sys.executable, history_child.__file__],
            stdin=pipe,
            stdout=pipe,
            text=True,
            env={**os.environ, "PYTHONPATH": folder},
        )

    def run(self, request: Request) -> tuple[bool, list[str]]:
        """Whether it was killed, and the steps that it had begun by then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        killed = os.WIFSIGNALED(reply["status"])
        assert reply["status"] == 0 or os.WTERMSIG(reply["status"]) == signal.SIGKILL
        return killed, reply["steps"]

    def stop(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_files, "CHECKPOINT_EVERY", CHECKPOINT_EVERY)
    monkeypatch.setattr(history_files, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(maintain, "FANOUT", 2)


@dataclass
class Template:
    """A project with something of everything; tests work on copies of it."""

    folder: Path
    model: Model
    ids: list[str]
    version: int

    @property
    def time(self) -> int:
        return self.model.time

    def copies(self, every: int = 1) -> Iterator[tuple[int, str]]:
        for number in itertools.count(1, every):
            folder = self.folder.with_name(f"copy-{number}")
            shutil.copytree(self.folder, folder)
            yield number, os.fspath(folder)
            shutil.rmtree(folder)


@pytest.fixture
def template(tmp_path: Path) -> Template:
    history = History(Store.at(tmp_path / "template"), roll_after=100)
    model = Model()
    ids = [*define(history, 2, retain="latest"), *define(history, retain="history")]
    for id in ids:
        model.collections[id] = Oracle(SCHEMA)

    def wrote(updates: dict[str, list[Update]]) -> None:
        model.time = write(history, updates)
        for id, rows in updates.items():
            model.append(id, model.time, rows)

    wrote({ids[0]: [(1, "a", 1), (2, "b", 2)], ids[1]: [(1, "x", 1)], ids[2]: [(3, "c", 1)]})
    wrote({ids[0]: [(1, "a", -1)], ids[2]: [(3, "c", 1)]})
    history.commit(Commit("tick", history.time, ticked=history.time))
    model.ticked = history.time
    history.roll_forward()
    wrote({ids[0]: [(1, "z", 1)], ids[1]: [(1, "x", 1)]})
    wrote({ids[0]: [(1, "z", 1)], ids[2]: [(3, "c", -1)]})
    (gone,) = define(history)
    history.commit(Commit("define", history.time, dropped=[gone]))
    assert history.version == 3 * CHECKPOINT_EVERY - 2
    return Template(tmp_path / "template", model, ids, history.version)


def leave_behind(template: Template) -> None:
    """What those leave who died before they committed."""
    history = History(Store.at(template.folder))
    written(history, template.ids[0], 50, [(7, "never", 1)])
    history._creating.pop(history.create_collection(SCHEMA, ["k"])).end()


@dataclass(frozen=True)
class Operation:
    """A request, and what the project should hold after it."""

    request: Request
    after: Model
    records: int = 1  # that it adds, at most

    def kill_at_each_step(self, server: Server, template: Template, every: int = 1) -> list[str]:
        """Kill before step 1, 2, 3, ... until it ends before its turn; return all the steps."""
        for step, uri in template.copies(every):
            request = {"roll_after": 100, **self.request, "uri": uri, "kill_at": step}
            killed, steps = server.run(request)
            assert len(steps) == step - 1 or not killed
            self.check(template, uri, done="link" in steps)
            if not killed:
                return steps
        raise AssertionError

    def check(self, template: Template, uri: str, done: bool) -> None:
        """The project is as before or as after; repeating what was not done leads to after."""
        store = Store.at(uri)
        history = History(store)
        assert not live_leases(store.beneath("history/leases"))
        assert done == (history.version > template.version)
        assert history.version <= template.version + self.records
        before, after = copy.deepcopy(template.model), copy.deepcopy(self.after)
        self.model(history, after if done else before).check(history)
        if not done:
            perform(history, {"roll_after": 100, **self.request})
        self.model(history, after).check(history)
        again = History(store)
        again.maintain()
        again.sweep(hours=0)
        after.check(again)
        after.check(History(store))
        check_files(again, store)
        write(again, {template.ids[1]: [(9, "more", 1)]})

    def model(self, history: History, model: Model) -> Model:
        """With the collection that the request defines under the id that it got."""
        new = history.catalogue.get(self.request.get("name", ""))
        if new is not None and "new" in model.collections:
            model.collections[new["collection"]] = model.collections.pop("new")
        return model


def check_files(history: History, store: Store) -> None:
    """Everything that is there is named, and the other way round."""
    ids = sorted(history.collections())
    assert store.beneath("collections").folders() == ids
    for id in ids:
        found = history.collection(id)
        assert found.store.names() == sorted(part.path for part in found.parts)


def changed(template: Template, kind: str, updates: dict[str, list[Update]], time: int) -> Model:
    model = copy.deepcopy(template.model)
    for id, rows in updates.items():
        model.append(id, time, rows)
    model.time = max(model.time, time)
    model.ticked = time if kind == "tick" else model.ticked
    return model


@pytest.mark.parametrize("roll_after", [100, 1])
def test_a_write_is_killed(server: Server, template: Template, roll_after: int) -> None:
    updates: Any = {template.ids[0]: [(1, "z", -2), (5, "e", 1)], template.ids[1]: [(6, "f", 1)]}
    time = template.time + 3
    request = {"operation": "write", "updates": updates, "time": time, "roll_after": roll_after}
    after = changed(template, "write", updates, time)
    steps = Operation(request, after).kill_at_each_step(server, template)
    # Two parts, the record, its head; then the shards.
    begin = ["open_output", "open_output", "link", "put"]
    rolled = ["commit", "put"] * 2 if roll_after == 1 else []
    assert [step for step in steps if step != "unlink"] == [*begin, *rolled]


def test_a_write_with_a_checkpoint_is_killed(server: Server, template: Template) -> None:
    history = History(Store.at(template.folder))
    (id,) = define(history)
    template.model.collections[id] = Oracle(SCHEMA)
    template.version = history.version
    updates: Any = {template.ids[0]: [(1, "z", -2)]}
    request = {"operation": "write", "updates": updates, "time": template.time + 1}
    after = changed(template, "write", updates, template.time + 1)
    steps = Operation(request, after).kill_at_each_step(server, template)
    deletes = ["delete"] * 5  # records 4 to 7, and the checkpoint before the one before
    kept = ["open_output", "link", "put", "put", *deletes]
    assert [step for step in steps if step != "unlink"] == kept


def test_a_tick_is_killed(server: Server, template: Template) -> None:
    """It brings the views to a time at which the project was before."""
    time = template.time - 1
    updates: Any = {template.ids[2]: [(8, "t", 1)]}
    history = History(Store.at(template.folder))
    time = max(time, history.collection(template.ids[2]).upper)
    request = {"operation": "tick", "updates": updates, "time": time}
    after = changed(template, "tick", updates, time)
    Operation(request, after).kill_at_each_step(server, template)


def test_a_definition_is_killed(server: Server, template: Template) -> None:
    time = template.time + 1
    request = {"operation": "define", "updates": [(1, "n", 1)], "name": "new", "time": time}
    after = copy.deepcopy(template.model)
    after.collections["new"] = Oracle(SCHEMA)
    after.append("new", time, [(1, "n", 1)])
    after.time = time
    Operation(request, after).kill_at_each_step(server, template)


def test_a_drop_is_killed(server: Server, template: Template) -> None:
    request = {"operation": "drop", "ids": template.ids[:1], "time": template.time}
    after = copy.deepcopy(template.model)
    del after.collections[template.ids[0]]
    Operation(request, after).kill_at_each_step(server, template)


@pytest.mark.parametrize("operation", ["roll forward", "maintain", "sweep"])
def test_what_changes_no_content_is_killed(
    server: Server, template: Template, stride: Callable[[int], int], operation: str
) -> None:
    leave_behind(template)
    done = Operation({"operation": operation}, template.model, records=2)
    steps = done.kill_at_each_step(server, template, every=stride(3))
    wanted = {
        "roll forward": {"commit", "link"},
        "maintain": {"commit", "link", "open_output"},
        "sweep": {"commit", "link", "delete", "remove"},
    }
    assert wanted[operation] <= set(steps)
