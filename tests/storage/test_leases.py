"""Leases: they count while their process is at work; claims: one of several has it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windrow.errors import StorageError, StorageUnavailableError
from windrow.storage import leases
from windrow.storage.leases import Lease, claim, claims, found_leases, live_leases
from windrow.storage.processes import Process, this_host
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store

PATIENCE = 60  # seconds after which something hangs


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "leases")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def rewrite(folder: Store, lease: Lease, **changes: Any) -> None:
    """Change the record of a lease, as if another process had written it."""
    record = read_record(folder, lease.name)
    assert record is not None
    process = {**record["process"], **changes.pop("process", {})}
    write_record(folder, lease.name, {**record, "process": process, **changes})


def test_a_lease_counts_until_it_is_released(folder: Store) -> None:
    lease = Lease.take(folder, {"what": "ever"})
    (found,) = live_leases(folder)
    assert (found.id, found.about, found.process) == (lease.id, lease.about, Process.current())
    lease.change({"what": "else"})
    assert [one.about for one in live_leases(folder)] == [{"what": "else"}]
    lease.release()
    lease.release()
    lease.renew()  # the thread that renews may be late
    assert folder.names() == []


def test_of_a_lease_that_ended_its_last_sign_of_life_remains(folder: Store) -> None:
    lease = Lease.take(folder, {})
    lease.end()
    assert live_leases(folder) == []
    (found,) = found_leases(folder)
    assert found.ended
    assert time.time() - found.at < PATIENCE


def test_leases_are_renewed(folder: Store) -> None:
    long = Lease.take(folder, {"name": "long"})
    short = Lease.take(folder, {"name": "short"}, seconds=0.05)
    folder.delete([short.name])
    wait_until(lambda: short.name in folder.names())
    first = next(found.at for found in found_leases(folder) if found.id == short.id)
    wait_until(lambda: any(f.id == short.id and f.at > first for f in found_leases(folder)))
    short.release()
    long.release()


def test_a_store_that_does_not_answer_is_asked_again(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease.take(folder, {}, seconds=0.05)
    failed = threading.Event()

    def fail(*_: Any) -> None:
        failed.set()
        raise StorageUnavailableError("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", fail)
        assert failed.wait(PATIENCE)
        with pytest.raises(StorageError, match="does not answer"):
            Lease.take(folder, {})
    folder.delete([lease.name])
    wait_until(lambda: lease.name in folder.names())
    lease.release()


def test_seen_from_elsewhere_a_lease_counts_for_its_length(folder: Store) -> None:
    lease = Lease.take(folder, {}, seconds=100)
    elsewhere = {"host": "elsewhere"}
    for silent, live in ((99, True), (101, False), (-1_000, True)):
        rewrite(folder, lease, process=elsewhere, at=time.time() - silent)
        assert [found.is_live() for found in found_leases(folder)] == [live]
    lease.release()


def test_something_else_in_the_folder_is_not_a_lease(folder: Store) -> None:
    for name, data in (("a.json", b"{"), ("b.json", b"[1]"), ("c.json", b"{}"), (".d", b"")):
        folder.put(name, data)
    folder.put("e.json", b'{"process": {"host": 1}}')
    assert list(found_leases(folder)) == []


def test_a_process_is_known_by_its_start() -> None:
    current = Process.current()
    assert current.is_running() is True
    assert replace(current, started="1").is_running() is False
    assert replace(current, host="elsewhere").is_running() is None
    assert this_host() == current.host


def test_a_process_that_is_stopped_runs_and_one_that_has_ended_does_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{child.pid}/stat").read_text()
    process = Process(this_host(), child.pid, stat.rpartition(")")[2].split()[19])
    assert process.is_running() is True
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: " T " in Path(f"/proc/{child.pid}/stat").read_text())
    assert process.is_running() is True
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: " Z " in Path(f"/proc/{child.pid}/stat").read_text())
    assert process.is_running() is False  # although nobody has asked how it ended
    child.communicate()
    assert process.is_running() is False


def test_where_the_system_does_not_tell_the_start_leases_count_for_their_length(
    folder: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("windrow.storage.processes._PROC", tmp_path)
    lease = Lease.take(folder, {}, seconds=100)
    assert lease.process.started == ""
    assert lease.process.is_running() is None
    assert len(live_leases(folder)) == 1
    rewrite(folder, lease, process={"pid": os.getppid()}, at=time.time() - 101)
    assert live_leases(folder) == []
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    assert replace(lease.process, pid=int(ended.stdout)).is_running() is False
    assert replace(lease.process, pid=1).is_running() is None  # there, and perhaps someone else's
    lease.release()


def test_a_fork_neither_renews_nor_releases_what_its_parent_holds(folder: Store) -> None:
    lease = Lease.take(folder, {}, seconds=0.05)
    lease._lock.acquire()  # as if the fork fell into a renewal: in the child it is never released
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        lease.release()
        os._exit(len(leases._heart._leases))
    lease._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert [found.process.pid for found in live_leases(folder)] == [os.getpid()]
    folder.delete([lease.name])
    wait_until(lambda: lease.name in folder.names())
    lease.release()


def test_a_released_lease_that_cannot_be_deleted_counts_no_more(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StorageUnavailableError("the store does not answer")

    lease = Lease.take(folder, {}, seconds=0.05)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", fail)
        lease.release()
        assert [found.id for found in found_leases(folder)] == [lease.id]
        assert live_leases(folder) == []
        lost = claim(folder, "work")
        assert lost is not None
        lost.release()
        found = claim(folder, "work")
        assert found is not None
        found.release()
    wait_until(lambda: folder.names() == [])  # others would take them for live ones


# Claims


def test_a_claim_is_for_one_at_a_time(folder: Store) -> None:
    one = claim(folder, "work")
    assert one is not None
    assert claim(folder, "work") is None
    other = claim(folder, "other work")
    assert other is not None
    other.release()
    one.end()
    again = claim(folder, "work")
    assert again is not None
    assert sorted(c.is_live() for c in claims(folder, "work")) == [False, True]
    again.release()
    assert len(folder.names()) == 1


def test_a_claim_that_is_interrupted_is_withdrawn(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(leases, "claims", interrupt)
    with pytest.raises(KeyboardInterrupt):
        claim(folder, "work")
    assert folder.names() == []


def test_a_claim_gives_way_to_one_that_is_never_decided(folder: Store) -> None:
    """Its process was stopped after it had looked around: it may believe that it has it."""
    undecided = Lease.take(folder, {"claim": "work", "decided": False}, id="f" * 16)
    assert claim(folder, "work") is None
    undecided.release()
    undecided = Lease.take(folder, {"claim": "work", "decided": False}, id="0" * 16)
    assert claim(folder, "work") is None
    undecided.release()


barrier: Any = threading.Barrier(2)


def join_others(other: Any) -> None:
    global barrier
    barrier = other


@pytest.fixture(params=["threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "threads":
        with ThreadPoolExecutor(2) as threads:
            yield threads
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn, join_others, (spawn.Barrier(2),)) as processes:
        yield processes


def claim_together(uri: str, times: int) -> list[bool]:
    """Claim one thing after the other, each at the same time as the other process."""
    found = []
    for number in range(times):
        barrier.wait(PATIENCE)
        lease = claim(Store.at(uri), f"work {number}")
        barrier.wait(PATIENCE)
        found.append(lease is not None)
        if lease is not None:
            lease.release()
    return found


def test_of_two_that_claim_at_once_one_has_it(executor: Executor, folder: Store) -> None:
    tasks = [executor.submit(claim_together, folder.uri, 300) for _ in range(2)]
    one, other = (task.result(PATIENCE) for task in tasks)
    both = sum(a and b for a, b in zip(one, other, strict=True))
    neither = sum(not a and not b for a, b in zip(one, other, strict=True))
    assert both == 0
    assert neither < 30  # only if one of them is kept from running for long
    assert folder.names() == []
