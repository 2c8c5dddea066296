"""Holds: what somebody still reads is neither forgotten nor deleted, whoever is at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow import Shard
from windrow.errors import (
    ShardRetiredError,
    StorageError,
    StorageUnavailableError,
    TimeRangeError,
    WindrowError,
)
from windrow.shard import holds
from windrow.shard.log import Log
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
BATCHES = 8
PATIENCE = 120  # seconds after which something hangs

Rows = list[tuple[int, int, int]]


def fill(shard: Shard, batches: int = BATCHES) -> None:
    """At each time t, row (0, t) comes and (0, t - 1) goes; and some that stay."""
    for t in range(shard.upper, shard.upper + batches):
        rows = [(0, t, 1), (t + 1, t, 1), *([(0, t - 1, -1)] if t else [])]
        columns = zip(*rows, strict=True)
        table = pa.table(dict(zip(("k", "v", "_diff"), map(list, columns), strict=True)))
        shard.append(table, lower=t, upper=t + 1)


def expected(at: int) -> Rows:
    return [(0, at, 1), *((t + 1, t, 1) for t in range(at + 1))]


def content(read: Any) -> Rows:
    return sorted((r["k"], r["v"], r["_diff"]) for r in read.to_table().to_pylist())


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    made = Shard.create(tmp_path / "shard", SCHEMA, key=["k"])
    fill(made)
    return made


def tidy(shard: Shard) -> None:
    """Forget and delete as much as is allowed."""
    other = Shard.open(shard.uri)
    other.advance_since(other.upper - 1)
    other.compact(everything=True)
    other.vacuum(retention_hours=0)


def files(shard: Shard) -> list[str]:
    return Store.at(shard.uri).names()


# What a hold does


def test_since_moves_as_far_as_holds_allow(shard: Shard) -> None:
    with shard.hold(2, reader="ann"), shard.hold(5, reader="bob"):
        other = Shard.open(shard.uri)
        assert sorted((h.reader, h.time) for h in other.holds()) == [("ann", 2), ("bob", 5)]
        assert other.advance_since(1) == 1
        assert other.advance_since(4) == 2
        assert other.advance_since(7) == 2
        assert other.since == shard.refresh().since == 2
    assert other.holds() == []
    assert other.advance_since(7) == 7


def test_a_reader_finishes_after_compaction_and_vacuum(shard: Shard) -> None:
    with shard.hold(3) as held:
        snapshot, changes = shard.snapshot(held.time), shard.changes(4, 7)
        old = content(changes)
        tidy(shard)
        assert content(snapshot) == expected(3)
        assert content(changes) == old
        # What is planned later in the block is read, too.
        assert [content(shard.snapshot(t)) for t in (3, 5)] == [expected(3), expected(5)]
    before = files(shard)
    tidy(shard)
    assert len(files(shard)) == len(shard.snapshot().parts) < len(before)
    with pytest.raises(TimeRangeError):
        shard.snapshot(3)
    assert content(shard.snapshot()) == expected(7)


def test_by_default_the_newest_time_is_held(shard: Shard) -> None:
    with shard.hold() as held:
        assert held.time == 7
        assert held.reader == f"process {os.getpid()}"
        fill(shard, 2)
        read = shard.snapshot(held.time)
        tidy(shard)
        assert content(read) == expected(7)
        assert shard.refresh().since == 7


def test_a_hold_keeps_parts_of_later_versions(shard: Shard) -> None:
    """Also of those that came and went while it was held."""
    with shard.hold(0):
        for _ in range(3):
            fill(shard, 2)
            read, newest = shard.snapshot(), shard.upper - 1
            tidy(shard)
            assert content(read) == expected(newest)


def test_a_hold_can_move_forward(shard: Shard) -> None:
    with shard.hold(2) as held:
        fill(shard, 1)
        tidy(shard)
        kept = files(shard)
        held.advance(6)
        assert held.time == 6
        tidy(shard)
        assert shard.refresh().since == 6
        assert len(files(shard)) < len(kept)
        assert content(shard.snapshot(6)) == expected(6)
        for moved in (5, 10):
            with pytest.raises(TimeRangeError, match="a hold cannot move from 6"):
                held.advance(moved)
        held.advance(9)  # upper: from here on, whatever comes
        assert "time=9" in repr(held)


def test_times_that_cannot_be_held(shard: Shard) -> None:
    shard.advance_since(3)
    for as_of in (2, 9, -1):
        with pytest.raises(TimeRangeError, match=f"a hold at {as_of} is not possible"):
            shard.hold(as_of).__enter__()
    assert shard.holds() == []


def test_an_empty_shard_can_be_held(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "empty", SCHEMA, key=["k"])
    with shard.hold() as held:
        assert held.time == 0
        fill(Shard.open(shard.uri), 3)
        assert Shard.open(shard.uri).advance_since(2) == 0
        assert content(shard.snapshot(0)) == expected(0)


def test_a_shard_that_nobody_holds_can_be_retired(shard: Shard) -> None:
    other = Shard.open(shard.uri)
    with shard.hold(2):
        assert not other.retire()
        assert content(other.snapshot(2)) == expected(2)
        fill(other, 1)
    assert other.retire()
    assert other.retire()
    for use in (shard.snapshot, lambda: shard.hold().__enter__(), lambda: fill(shard, 1)):
        with pytest.raises(ShardRetiredError, match="the shard is retired"):
            use()
    assert shard.holds() == []


def test_a_shard_that_cannot_be_written_cannot_be_held(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StorageUnavailableError("read-only file system")

    monkeypatch.setattr(Store, "put", refuse)
    with pytest.raises(StorageError, match="read-only file system"):
        shard.hold().__enter__()


def test_a_hold_that_is_older_than_the_log_keeps_everything(shard: Shard) -> None:
    with shard.hold(0):
        tidy(shard)
        fill(shard, 1)
        before = files(shard)
        DeltaTable(shard.uri).create_checkpoint()
        entries = sorted((Path(shard.uri) / "_delta_log").glob("*.json"))
        for entry in entries[:-1]:
            entry.unlink()
        assert Shard.open(shard.uri).vacuum(retention_hours=0) == []
        assert files(shard) == before


def test_vacuum_clears_away_holds_of_processes_that_are_gone(shard: Shard) -> None:
    with shard.hold(2):
        (path,) = (Path(shard.uri) / "_holds").iterdir()
        folder = Store.at(path.parent)
        record = read_record(folder, path.name) or {}
    record["process"]["started"] = "1"  # by a process that had the same number
    write_record(folder, path.name, record)
    assert shard.holds() == []
    shard.vacuum()
    assert not path.exists()


# Races: every order of the steps of readers and of those who take away


class Turns:
    """Lets threads take their steps in a given order, one at a time."""

    def __init__(self, order: list[int]) -> None:
        self._order = order
        self._changed = threading.Condition()
        self._actors: dict[threading.Thread, int] = {}
        self._finished: set[int] = set()
        self._busy: int | None = None

    def run(self, *tasks: Callable[[], None]) -> None:
        errors: list[BaseException] = []

        def act(number: int, task: Callable[[], None]) -> None:
            try:
                self.step()
                task()
            except BaseException as error:
                errors.append(error)
            finally:
                with self._changed:
                    self._finished.add(number)
                    self._busy = None if self._busy == number else self._busy
                    self._changed.notify_all()

        for number, task in enumerate(tasks):
            self._actors[threading.Thread(target=act, args=(number, task))] = number
        for thread in self._actors:
            thread.start()
        for thread in self._actors:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        if errors:
            raise errors[0]

    def step(self) -> None:
        """Let the others have their turns, until it is this thread's."""
        number = self._actors.get(threading.current_thread())
        if number is None:
            return  # the thread that renews leases
        with self._changed:
            if self._busy == number:
                self._busy = None
            self._changed.notify_all()
            while self._busy is not None or self._next() not in (number, None):
                assert self._changed.wait(PATIENCE)
            if self._order:
                self._order.pop(0)
            self._busy = number

    def _next(self) -> int | None:
        while self._order and self._order[0] in self._finished:
            self._order.pop(0)
        return self._order[0] if self._order else None


@contextmanager
def stepped(turns: Turns) -> Iterator[None]:
    """Whatever others can see, or what sees others, is a step."""

    def step_before(call: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            turns.step()
            return call(*args, **kwargs)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (Store, "open_output"),
            (Store, "put"),
            (Store, "names"),
            (Store, "delete"),
            (Log, "refresh"),
            (Log, "_try"),
            (DeltaTable, "vacuum"),
        ):
            patch.setattr(owner, name, step_before(getattr(owner, name)))
        yield


def orders(actors: int) -> st.SearchStrategy[list[int]]:
    """Who takes the next step: some steps of one, then some of another."""
    some = st.tuples(st.integers(0, actors - 1), st.integers(1, 12))
    return st.lists(some, max_size=12).map(lambda runs: [a for a, n in runs for _ in range(n)])


@settings(max_examples=80)
@given(orders(4), st.integers(0, 6), st.integers(0, 6), st.data())
def test_in_every_order_a_reader_finishes_or_is_told_at_once(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], as_of: int, goal: int, data: Any
) -> None:
    shard = Shard.create(tmp_path_factory.mktemp("shards") / "shard", SCHEMA, key=["k"])
    fill(shard, 7)
    shard.advance_since(data.draw(st.integers(0, as_of)))
    turns = Turns(order)
    reader, mover, compactor, vacuum = (Shard.open(shard.uri) for _ in range(4))

    def read() -> None:
        try:
            hold = reader.hold(as_of)
            held = hold.__enter__()
        except TimeRangeError:
            return  # it came too late, and knows it
        found = [reader.snapshot(held.time)]
        for _ in range(3):
            turns.step()
            found.append(reader.snapshot(held.time))  # at a later version
        for one in found:
            turns.step()
            assert content(one) == expected(as_of)
        hold.__exit__(None, None, None)

    def move() -> None:
        with suppress(TimeRangeError):  # the other was first, and went further
            mover.advance_since(goal)

    def compact() -> None:
        with suppress(TimeRangeError):
            compactor.advance_since(4)
        compactor.compact(everything=True)

    def delete() -> None:
        for _ in range(2):
            vacuum.vacuum(retention_hours=0)

    with stepped(turns):
        turns.run(read, move, compact, delete)
    assert content(shard.snapshot()) == expected(6)
    assert shard.advance_since(6) == 6
    tidy(shard)
    assert files(shard) == [part.path for part in shard.snapshot().parts]
    assert content(shard.snapshot()) == expected(6)


@settings(max_examples=60)
@given(orders(2))
def test_in_every_order_a_shard_is_held_or_retired(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    shard = Shard.create(tmp_path_factory.mktemp("shards") / "shard", SCHEMA, key=["k"])
    fill(shard, 3)
    turns = Turns(order)
    reader, remover = Shard.open(shard.uri), Shard.open(shard.uri)

    def read() -> None:
        try:
            hold = reader.hold(1)
            hold.__enter__()
        except WindrowError:
            return  # it is retired, or even gone
        for _ in range(3):
            turns.step()
            assert content(reader.snapshot(1)) == expected(1)
        hold.__exit__(None, None, None)

    def remove() -> None:
        if remover.retire():
            Store.at(remover.uri).remove()

    with stepped(turns):
        turns.run(read, remove)


def test_vacuum_keeps_what_a_compaction_is_writing(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Log.replace
    vacuumed: list[list[str]] = []

    def replace_late(log: Log, *args: Any) -> bool:
        (Path(shard.uri) / "0-dead.parquet").touch()
        vacuumed.append(Shard.open(shard.uri).vacuum(retention_hours=0))
        return replace(log, *args)

    monkeypatch.setattr(Log, "replace", replace_late)
    assert shard.compact(everything=True).merges == 1
    assert vacuumed == [["0-dead.parquet"]]
    assert content(shard.snapshot()) == expected(7)
    assert shard.holds() == []


def test_an_announcement_by_one_who_died_hurts_nobody(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Log._try

    def die_at_the_second(log: Log, *args: Any) -> bool:
        monkeypatch.setattr(Log, "_try", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        return tries(log, *args)

    monkeypatch.setattr(Log, "_try", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        Shard.open(shard.uri).advance_since(5)
    monkeypatch.undo()
    assert (shard.refresh()._log.since, shard._log.goal) == (0, 5)
    with shard.hold(2):
        assert Shard.open(shard.uri).advance_since(7) == 2
        assert (shard.refresh()._log.since, shard._log.goal) == (2, 2)
        assert Shard.open(shard.uri).advance_since(7) == 2
    assert shard.advance_since(7) == 7


# Processes

READER = """
import sys
from windrow import Shard
from windrow.storage import leases, processes

uri, host, seconds = sys.argv[1:]
if host:
    processes.this_host = lambda: host
shard = Shard.open(uri)
with shard.hold(3, reader="slow", lease=float(seconds)) as held:
    batches = shard.snapshot(held.time).batches()
    rows = next(batches).to_pylist()
    print("reading", flush=True)
    sys.stdin.readline()
    for batch in batches:
        rows += batch.to_pylist()
    rows = [(r["k"], r["v"], r["_diff"]) for r in shard.snapshot(held.time).to_table().to_pylist()]
    print(sorted(rows), flush=True)
"""


@contextmanager
def slow_reader(shard: Shard, host: str = "", lease: float = 60) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", READER, shard.uri, host, str(lease)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "reading\n"
            yield child
        finally:
            child.kill()


def finish(child: subprocess.Popen[str]) -> str:
    output, _ = child.communicate("go on\n", timeout=PATIENCE)
    return output.strip()


@pytest.mark.parametrize("host", ["", "elsewhere"])
def test_a_slow_reader_in_another_process_finishes(shard: Shard, host: str) -> None:
    stop = threading.Event()
    done: list[str] = []

    def keep(task: Callable[[Shard], Any]) -> threading.Thread:
        def work() -> None:
            other = Shard.open(shard.uri)
            while not stop.is_set():
                task(other)
                done.append(task.__name__)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def compact(other: Shard) -> None:
        other.advance_since(other.refresh().upper - 1)
        other.compact(everything=True)

    def vacuum(other: Shard) -> None:
        other.vacuum(retention_hours=0)

    with slow_reader(shard, host) as child:
        threads = [keep(compact), keep(vacuum)]
        try:
            while done.count("compact") < 5 or done.count("vacuum") < 5:
                assert all(thread.is_alive() for thread in threads)
            assert shard.refresh().since == 3
            assert finish(child) == str(expected(3))
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
    assert content(shard.snapshot()) == expected(7)
    assert shard.advance_since(7) == 7


def test_a_reader_that_was_killed_holds_no_longer(shard: Shard) -> None:
    with slow_reader(shard) as child:
        assert shard.advance_since(7) == 3
        os.kill(child.pid, signal.SIGSTOP)  # which does not make it a dead one
        assert shard.advance_since(7) == 3
        child.kill()
        child.wait(PATIENCE)
        assert shard.advance_since(7) == 7
    tidy(shard)
    assert len(files(shard)) == len(shard.snapshot().parts)


def test_a_reader_that_was_killed_elsewhere_stops_holding_within_its_lease(shard: Shard) -> None:
    seconds = 2.0
    with slow_reader(shard, "elsewhere", seconds) as child:
        started = time.monotonic()
        while time.monotonic() < started + 1.5 * seconds:  # it lives, so it holds for longer
            assert [h.reader for h in shard.holds()] == ["slow"]
            time.sleep(0.05)
        child.kill()
        child.wait(PATIENCE)
        (path,) = (Path(shard.uri) / "_holds").iterdir()
        last = (read_record(Store.at(path.parent), path.name) or {})["at"]
        while shard.advance_since(7) < 7:
            assert time.time() <= last + seconds + 1
        assert time.time() >= last + seconds
    assert holds.live_holds(shard._log) == []
