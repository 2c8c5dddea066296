"""Readers and writers at once, in threads and in processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from windrow.online.stores.store import RecordStore

KEYS = [b"%08d" % i for i in range(100)]

# Reads until its input is closed; every record is of one round, and all are of the same.
READER = """
import pickle, select, sys
size = int(sys.argv[1])
store = pickle.loads(sys.stdin.buffer.read(size))
keys = [b"%08d" % i for i in range(100)]
last = -1
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    (note,), records = store.read(["round"], keys)
    rounds = {int(part) for value in records for part in value.split()}
    assert len(rounds) == 1, rounds
    assert int(note) <= rounds.pop() <= int(note) + 1, (note, rounds)
    assert int(note) >= last
    last = int(note)
print("saw", last)
"""


def write_rounds(store: RecordStore, rounds: range) -> None:
    """A note follows each update: no reader sees it without the records, or far behind them."""
    for number in rounds:
        store.update(KEYS, lambda found, n=number: [b"%d " % n * 300] * len(KEYS))
        store.change_note("round", lambda _, n=number: b"%d" % n)


def test_a_reader_sees_one_moment(store: RecordStore, many: Callable[..., int]) -> None:
    rounds = many(200)
    write_rounds(store, range(1))
    sent = pickle.dumps(store)
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", READER, str(len(sent))]
    readers = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(2)]
    for reader in readers:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(sent)
        reader.stdin.flush()
        assert reader.stdout.readline() == b"ready\n"
    done = threading.Event()

    def read() -> int:
        seen = 0
        while not done.is_set():
            (note,), records = store.read(["round"], KEYS)
            found = {int(part) for value in records for part in value.split()}
            assert len(found) == 1
            assert int(note) <= found.pop() <= int(note) + 1
            seen += 1
        return seen

    with ThreadPoolExecutor(2) as threads:
        reads = [threads.submit(read) for _ in range(2)]
        try:
            write_rounds(store, range(1, rounds))
        finally:
            done.set()
        assert all(one.result() for one in reads)
    for reader in readers:
        out, _ = reader.communicate()
        assert reader.returncode == 0
        assert out.startswith(b"saw ")


def test_a_generation_is_there_as_long_as_it_is_served(store: RecordStore) -> None:
    """A request that knows which generation was served finds all of its records, or a new note."""
    done = threading.Event()
    reading = threading.Barrier(3)  # both readers have seen the first generation

    def records(generation: int) -> list[tuple[bytes, bytes]]:
        return [(b"%08d" % generation + key, b"%d" % generation) for key in KEYS]

    def swap() -> None:
        reading.wait()
        for generation in range(1, 40):
            store.load(records(generation))
            store.change_note("served", lambda _, g=generation: b"%d" % g)
            assert store.remove(b"%08d" % (generation - 1)) == len(KEYS)
        done.set()

    def read() -> set[int]:
        (note,), found = store.read(["served"], [key for key, _ in records(0)])
        assert (note, found) == (b"0", [b"0"] * len(KEYS))
        reading.wait()
        known, seen = 0, {0}
        while not done.is_set():
            (note,), found = store.read(["served"], [key for key, _ in records(known)])
            if int(note) == known:
                assert found == [b"%d" % known] * len(KEYS)
                seen.add(known)
            known = int(note)
        return seen

    store.load(records(0))
    store.change_note("served", lambda _: b"0")
    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        try:
            threads.submit(swap).result()
        finally:
            done.set()
        assert all(reader.result() for reader in readers)


def test_no_update_of_many_writers_is_lost(store: RecordStore, many: Callable[..., int]) -> None:
    times, writers = many(60, 30), 4

    def add(_: int) -> None:
        for _ in range(times):
            store.update(KEYS[:7], lambda found: [b"%d" % (int(v or 0) + 1) for v in found])
            store.change_note("sum", lambda found: b"%d" % (int(found or 0) + 1))

    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(add, range(writers)))
    total = b"%d" % (times * writers)
    assert store.read(["sum"], KEYS[:7]) == ([total], [total] * 7)
