"""Collections against a naive model, over random histories of several handles."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from history_model import SCHEMA, Model, content, define, write, written
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import Oracle
from windrow import col
from windrow.errors import OptionError, TimeRangeError
from windrow.storage.store import Store
from windrow.views.history import files as history_files
from windrow.views.history import maintain
from windrow.views.history.collections import Collection
from windrow.views.history.commits import Commit
from windrow.views.history.history import History

UPDATES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.sampled_from([1, 1, 2, -1])), max_size=4
)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(Store.at(tmp_path / "shop"))


@contextmanager
def hurried() -> Iterator[None]:
    """Checkpoints, deletions and merges come after a few records instead of many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_files, "CHECKPOINT_EVERY", 3)
        patch.setattr(history_files, "KEPT_SECONDS", 0.0)
        patch.setattr(maintain, "FANOUT", 2)
        yield


class Project:
    """Two handles on one history, and what it should hold."""

    def __init__(self, data: st.DataObject, folder: str, held: ExitStack) -> None:
        self.data, self.store, self.stack = data, Store.at(folder), held
        self.handles = [self.open(), self.open()]
        self.model = Model()
        self.held: list[tuple[Collection, Oracle, int]] = []

    def open(self) -> History:
        return History(self.store, roll_after=self.data.draw(st.sampled_from([0, 2, 100])))

    def step(self) -> None:
        number = self.data.draw(st.sampled_from([0, 1]), "handle")
        handle = self.handles[number]
        ids = sorted(self.model.collections)
        operations: dict[str, Callable[[], object]] = {
            "write": lambda: self.write(handle, ids),
            "tick": lambda: self.tick(handle, ids),
            "define": lambda: self.define(handle),
            "drop": lambda: self.drop(handle, ids),
            "hold": lambda: self.hold(handle, ids),
            "roll forward": handle.roll_forward,
            "maintain": lambda: handle.maintain(kept=0),
            "sweep": lambda: handle.sweep(hours=0),
            "reopen": lambda: self.reopen(number),
        }
        often = ["write"] * 4 + ["tick"] * 2 + ["maintain"]
        chosen = self.data.draw(st.sampled_from([*often, *operations]), "operation")
        operations[chosen]()

    def reopen(self, number: int) -> None:
        self.handles[number] = self.open()

    def write(self, handle: History, ids: list[str]) -> None:
        handle.refresh()
        time = handle.time + self.data.draw(st.integers(1, 2))
        self.commit(handle, "write", time, ids, None)
        self.model.time = time

    def tick(self, handle: History, ids: list[str]) -> None:
        """Views are brought to a time that is in the past, if others go on writing."""
        with handle.claim_ticks():
            time = handle.time
            late = [id for id in ids if handle.collection(id).upper <= time]
            based = handle.version
            if self.data.draw(st.booleans()):
                self.write(self.handles[0], [id for id in ids if id not in late])
            self.commit(handle, "tick", time, late, based)
            self.model.ticked = time

    def commit(
        self, handle: History, kind: str, time: int, ids: list[str], based: int | None
    ) -> None:
        chosen = self.data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
        rows = {id: self.data.draw(UPDATES) for id in chosen}
        appends = {id: written(handle, id, time, rows[id]) for id in chosen}
        ticked = time if kind == "tick" else None
        handle.commit(Commit(kind, time, appends, ticked=ticked), expected=based)
        for id in chosen:
            self.model.append(id, time, rows[id])

    def define(self, handle: History) -> None:
        handle.refresh()
        retain = self.data.draw(st.sampled_from(["latest", "history"]))
        (id,) = define(handle, retain=retain)
        self.model.collections[id] = Oracle(SCHEMA)

    def drop(self, handle: History, ids: list[str]) -> None:
        if ids:
            handle.refresh()
            id = self.data.draw(st.sampled_from(ids))
            handle.commit(Commit("define", handle.time, dropped=[id]))
            del self.model.collections[id]

    def hold(self, handle: History, ids: list[str]) -> None:
        if ids:
            handle.refresh()
            id = self.data.draw(st.sampled_from(ids))
            held = self.stack.enter_context(handle.hold([id]))[id]
            oracle = Oracle(SCHEMA, list(self.model.collections[id].updates), held.since)
            self.held.append((held, oracle, self.model.time))

    def check(self) -> None:
        for handle in [*self.handles, History(self.store)]:
            handle.refresh()
            self.model.check(handle)
        for held, oracle, time in self.held:
            assert content(held, max(time, held.since)) == dict(oracle.snapshot(time))


@settings(max_examples=40)
@given(st.data())
def test_random_histories(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held, hurried():
        project = Project(data, folder, held)
        project.define(project.handles[0])
        for _ in range(data.draw(st.integers(1, 14), "steps")):
            project.step()
            if data.draw(st.booleans(), "check"):
                project.check()
        project.check()


def test_a_new_collection_is_empty_and_can_be_written_before_it_is_committed(
    history: History,
) -> None:
    id = history.create_collection(SCHEMA, ["k"])
    new = history.collection(id)
    assert (new.since, new.upper, new.parts) == (0, 0, ())
    assert content(new) == content(new, 7) == {}
    assert new.changes(0, 9).to_table().num_rows == 0
    parts = written(history, id, 5, [(1, "a", 1)])
    history.commit(Commit("define", 5, {id: parts}, created={id: {}}, ticked=5))
    assert content(history.collection(id)) == {(1, "a"): 1}
    assert (history.time, history.ticked, history.collection(id).upper) == (5, 5, 6)


def test_what_is_named_by_the_history_alone_is_read_as_what_the_log_names(
    history: History,
) -> None:
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("d", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("f", pa.float64()),
            ("t", pa.string()),
            ("b", pa.bool_()),
            ("n", pa.decimal128(10, 2)),
            ("l", pa.list_(pa.int64())),
            ("none", pa.int32()),
        ]
    )
    at = dt.datetime(2024, 2, 29, 12, 30, 1, 123456)
    row = {"d": at.date(), "at": at.replace(tzinfo=dt.UTC), "local": at, "f": 1.5, "b": True}
    rows = [{**row, "k": k, "t": t, "l": [k]} for k, t in ((1, "x"), (2, "y" * 70), (3, None))]
    id = history.create_collection(schema, ["k"])
    table = pa.Table.from_pylist(rows, schema)
    parts = history.collection(id).writer(3).write(table.to_batches()).parts
    history.commit(Commit("write", 3, {id: parts}, created={id: {}}))
    waiting = history.collection(id)
    history.roll_forward()
    rolled = history.collection(id)
    assert waiting.parts == rolled.parts
    assert waiting.parts[0].bounds is not rolled.parts[0].bounds
    (one,), (other,) = waiting.parts, rolled.parts
    for name in schema.names:
        assert one.bounds.get(name) == other.bounds.get(name) or name in "bln", name
    assert pickle.loads(pickle.dumps(one)).bounds["k"] == other.bounds["k"]
    for found in (waiting, rolled):
        late = found.snapshot(where=col("local") > at)
        assert late.to_table().num_rows == 0
        assert late.plan(1).skipped
        assert found.snapshot(where=col("d") == at.date()).to_table().num_rows == 3


def test_a_collection_travels(history: History) -> None:
    (id,) = define(history)
    write(history, {id: [(1, "a", 1), (2, "b", 3)]})
    history.roll_forward()
    write(history, {id: [(1, "a", -1)]})
    found = history.collection(id)
    for copy in (
        pickle.loads(pickle.dumps(found)),
        Collection.from_json(json.loads(json.dumps(found.to_json()))),
    ):
        assert copy == found
        assert content(copy) == {(2, "b"): 3}
        assert copy.spec == found.spec
    keys = pa.table({"k": [2]})
    assert copy.snapshot(keys=keys, columns=["v"]).to_table().to_pylist() == [
        {"v": "b", "_time": 2, "_diff": 3}
    ]


def test_options_of_the_store_are_passed_apart(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "shop", {"AWS_SECRET_ACCESS_KEY": "secret"})
    history = History(store)
    (id,) = define(history)
    found = history.collection(id)
    text = json.dumps(found.to_json())
    assert "secret" not in text
    assert Collection.from_json(json.loads(text), store.options) == found


def test_times_that_cannot_be_read_or_written(history: History) -> None:
    (id,) = define(history)
    for time in range(1, 20):
        write(history, {id: [(1, "a", 1)]}, time)
    history.commit(Commit("tick", 19, ticked=10))
    assert history.maintain(kept=0)[id].merges
    found = history.collection(id)
    assert found.since == 10
    for wrong in (lambda: found.snapshot(9), lambda: found.changes(9, 12), lambda: found.writer(5)):
        with pytest.raises(TimeRangeError, match=id):
            wrong()
    with pytest.raises(TimeRangeError):
        found.changes(12, 11)
    with pytest.raises(OptionError):
        found.snapshot(limit=-1)
    assert content(found, 10) == {(1, "a"): 10}
    assert content(found, 1_000) == {(1, "a"): 19}
    changes: Any = found.changes(11, 13).to_table().column("_time").to_pylist()
    assert changes == [11, 12]
    assert found.changes(15, 15).to_table().num_rows == 0
    assert found.changes(30, 40).to_table().num_rows == 0
