"""Folders that may not be written to, or not even read: errors that say whose they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from operations import BATCHES, OPERATIONS, SCHEMA, append, check, filled, tree

from disks import Disk
from windrow import Shard
from windrow.commands.init import init
from windrow.errors import StorageUnavailableError

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user without rights: root may write everywhere."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", OPERATIONS)
def test_on_a_read_only_file_system_reads_go_on_and_writes_say_why(disk: Disk, name: str) -> None:
    operation, uri = OPERATIONS[name], f"{disk.root}/s"
    shard = filled(uri)
    before = tree(uri)
    disk.protect()
    with pytest.raises(StorageUnavailableError, match="read-only") as caught:
        operation.run(shard)
    assert str(caught.value).startswith(uri)
    assert tree(uri) == before
    assert not operation.check(uri)
    disk.release()
    operation.run(shard)
    assert operation.check(uri) or name == "hold"


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_folder_of_another_user_is_named_with_its_owner(disk: Disk, name: str) -> None:
    operation, uri = OPERATIONS[name], f"{disk.root}/s"
    shard = filled(uri)
    before = tree(uri)
    with (
        as_nobody(),
        pytest.raises(StorageUnavailableError, match=r"belongs to root \(uid 0\)") as caught,
    ):
        operation.run(shard)
    assert f"uid {NOBODY}" in str(caught.value)
    assert str(caught.value).startswith(uri)
    assert tree(uri) == before
    with as_nobody():
        assert not operation.check(uri)
    operation.run(shard)
    assert operation.check(uri) or name == "hold"


def test_nothing_is_created_where_nobody_may_write(disk: Disk) -> None:
    for action in (
        lambda: Shard.create(disk.root / "a" / "b", SCHEMA, key=["k"]),
        lambda: init(disk.root / "shop"),
    ):
        with as_nobody(), pytest.raises(StorageUnavailableError, match="belongs to root"):
            action()
        disk.protect()
        with pytest.raises(StorageUnavailableError, match="read-only"):
            action()
        disk.release()
        assert list(disk.root.iterdir()) == []


def test_what_may_not_be_read_is_not_taken_for_missing(disk: Disk) -> None:
    uri = f"{disk.root}/s"
    shard = filled(uri)
    (path, *_) = [part.path for part in shard.parts()]
    os.chmod(f"{uri}/{path}", 0o000)
    with as_nobody(), pytest.raises(StorageUnavailableError, match="mode 0") as caught:
        Shard.open(uri).snapshot(cache=None).to_table()
    assert path in str(caught.value)
    os.chmod(f"{uri}/{path}", 0o644)
    os.chmod(uri, 0o700)
    with as_nobody(), pytest.raises(StorageUnavailableError, match="Permission denied"):
        Shard.open(uri)
    append(shard, BATCHES)
    check(uri, BATCHES + 1, 0)
