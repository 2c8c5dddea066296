"""A Redis that is gone, full, forgetful, or not the one that was meant."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from redis_process import StartRedis

from disks import Disk
from windrow.errors import StorageError, StorageUnavailableError
from windrow.online.stores.opening import open_store

KEY = b"12345678k"


def test_a_connection_that_was_lost_is_made_again(start_redis: StartRedis) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store = open_store(server.address, timeout=60)
    store.load([(KEY, b"1")])
    for number in range(3):
        with server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert store.read([], [KEY]) == ([], [b"1"])
        server.kill()
        server.start()  # its scripts are gone, too
        store.change_note("n", lambda _, n=number: b"%d" % n)
        store.update([KEY], lambda found: list(found))
        assert store.read(["n"], [KEY]) == ([b"%d" % number], [b"1"])


def test_a_server_that_is_gone(start_redis: StartRedis) -> None:
    server = start_redis()
    plain = open_store(server.address, timeout=0.2)
    plain.load([(KEY, b"1")])
    server.kill()
    for act in (
        lambda: plain.read([], [KEY]),
        lambda: plain.load([(KEY, b"2")]),
        lambda: plain.update([KEY], lambda found: [b"2"]),
        lambda: plain.change_note("n", lambda _: b"2"),
        lambda: plain.remove(b""),
        lambda: plain.notes(),
        lambda: plain.size(),
    ):
        with pytest.raises(StorageUnavailableError, match="does not answer") as caught:
            act()
        assert f"127.0.0.1:{server.port}" in str(caught.value)


def test_a_password(start_redis: StartRedis) -> None:
    server = start_redis("--requirepass", "s3cret@/")
    right = server.address.replace("//", "//:s3cret%40%2F@")
    store = pickle.loads(pickle.dumps(open_store(right)))
    store.load([(KEY, b"1")])
    assert store.read([], [KEY]) == ([], [b"1"])
    for wrong in (server.address, server.address.replace("//", "//:s4cret@")):
        with pytest.raises(StorageUnavailableError, match="user and password") as caught:
            open_store(wrong).read([], [KEY])
        assert "cret" not in str(caught.value)


def test_a_socket(start_redis: StartRedis) -> None:
    server = start_redis()
    store = open_store(f"unix://{server.folder}/redis.sock?db=1")
    store.load([(KEY, b"1")])
    assert store.read([], [KEY]) == ([], [b"1"])
    assert open_store(server.address).read([], [KEY]) == ([], [None])


def test_no_memory(start_redis: StartRedis) -> None:
    server = start_redis("--maxmemory", "3mb")
    store = open_store(server.address)
    store.load([(KEY, b"1")])

    def fill() -> None:
        for i in range(10_000):
            store.load([(b"%08d" % i, bytes(1000))])

    with pytest.raises(StorageUnavailableError, match="out of memory"):
        fill()
    with pytest.raises(StorageUnavailableError, match="out of memory"):
        store.update([KEY], lambda found: [b"2"])
    assert store.read([], [KEY]) == ([], [b"1"])
    assert store.remove(b"0") > 0
    store.update([KEY], lambda found: [b"2"])
    assert store.read([], [KEY]) == ([], [b"2"])


def test_a_cache_is_refused(start_redis: StartRedis) -> None:
    server = start_redis("--maxmemory-policy", "allkeys-lru")
    for act in (
        lambda store: store.load([(KEY, b"1")]),
        lambda store: store.update([KEY], lambda found: [b"1"]),
        lambda store: store.change_note("n", lambda _: b"1"),
    ):
        with pytest.raises(StorageError, match="noeviction"):
            act(open_store(server.address))
    with server.client() as client:
        assert client.dbsize() == 0


def test_a_replica_can_only_be_read(start_redis: StartRedis) -> None:
    server = start_redis()
    open_store(server.address).load([(KEY, b"1")])
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")
    store = open_store(server.address)
    for act in (
        lambda: store.load([(KEY, b"2")]),
        lambda: store.update([KEY], lambda found: [b"2"]),
        lambda: store.remove(b""),
    ):
        with pytest.raises(StorageUnavailableError, match="address of its primary"):
            act()


def test_a_full_disk(start_redis: StartRedis, disk: Disk) -> None:
    folder = Path(disk.root / "redis")
    folder.mkdir()
    server = start_redis("--appendonly", "yes", "--appendfsync", "everysec", folder=folder)
    store = open_store(server.address, timeout=60)
    store.load([(KEY, b"1")])
    disk.fill()
    many = ((KEY, os.urandom(100_000)) for _ in range(2000))
    with pytest.raises(StorageUnavailableError, match="cannot write to its disk"):
        store.load(many)
    disk.free()
    server.kill()
    server.start()
    store.update([KEY], lambda found: [b"2"])
    assert store.read([], [KEY]) == ([], [b"2"])
    server.kill()  # before its disk goes


def test_namespaces_are_apart(start_redis: StartRedis) -> None:
    server = start_redis()
    one, two = (open_store(server.address, namespace=name) for name in ("a", "a.r"))
    for store in (one, two):
        store.load([(KEY, store._arguments[1].encode())])
        store.change_note("n", lambda _: b"note")
    assert one.remove(b"") == 1
    one.change_note("n", lambda _: None)
    assert two.read(["n"], [KEY]) == ([b"note"], [b"a.r"])
    assert (one.notes(), two.notes()) == ([], ["n"])
