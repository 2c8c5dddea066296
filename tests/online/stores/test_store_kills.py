"""Processes that are killed: what was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from redis_process import StartRedis
from store_child import KEYS, number_of, write

from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore

CHILD = Path(__file__).with_name("store_child.py")


def check(store: RecordStore, acknowledged: int) -> int:
    """The newest round that is there; all records of an update are of one."""
    (note,), records = store.read(["round"], KEYS)
    (number,) = {number_of(value) for value in records}
    assert acknowledged <= int(note) <= number <= int(note) + 1
    for value in store.read([], [b"other---" + key for key in KEYS])[1]:
        assert value is None or number_of(value) <= number
    return number


def test_a_writer_is_killed(store: RecordStore, tmp_path: Path, many: Callable[..., int]) -> None:
    chance = random.Random(7)
    write(store, 0)
    (tmp_path / "store").write_bytes(pickle.dumps(store))
    last = 0
    for _ in range(many(40, 8)):
        command = [sys.executable, str(CHILD), str(tmp_path / "store"), str(last + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            acknowledged = last
            for _ in range(chance.randrange(1, 6)):
                acknowledged = int(child.stdout.readline())
            for _ in range(chance.randrange(2000)):  # somewhere within a round
                pass
            child.kill()
            rest = child.stdout.read().split()
        acknowledged = max([acknowledged, *map(int, rest)])
        last = check(store, acknowledged)
        store.close()
    write(store, last + 1)  # no lock is left behind
    assert check(store, last + 1) == last + 1


def test_redis_is_killed(start_redis: StartRedis, many: Callable[..., int]) -> None:
    """With its log on disk before it answers, what was acknowledged is there when it is back."""
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store = open_store(server.address, timeout=60)
    write(store, 0)
    chance = random.Random(3)
    reached = threading.Semaphore(0)
    rounds = many(60, 20)

    def work() -> None:
        for number in range(1, rounds):
            write(store, number)
            reached.release()

    writer = threading.Thread(target=work)
    writer.start()
    left = rounds - 1
    while left > 6:
        some = chance.randrange(1, 6)
        for _ in range(some):
            assert reached.acquire(timeout=60)
        left -= some
        server.kill()
        server.start()
    writer.join()
    assert check(store, rounds - 1) == rounds - 1
