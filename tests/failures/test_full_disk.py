"""A full disk: at every amount of space that is left, each write happens or leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from operations import BATCHES, OPERATIONS, SCHEMA, append, check, filled, tree

from disks import Disk
from windrow import Shard
from windrow.cli import main
from windrow.commands.init import init
from windrow.errors import StorageUnavailableError
from windrow.shard.log import Log
from windrow.shard.spec import ShardSpec, by_hash
from windrow.storage.delta import check_storable
from windrow.storage.store import Store

MOST_PAGES = 40  # that anything here takes
NEEDS_SPACE = [name for name in OPERATIONS if name != "vacuum"]


@pytest.mark.parametrize("name", NEEDS_SPACE)
def test_a_write_happens_or_leaves_nothing(disk: Disk, name: str) -> None:
    operation, uri = OPERATIONS[name], f"{disk.root}/s"
    shard = filled(uri)
    before = tree(uri)
    for pages in range(MOST_PAGES):
        disk.fill(pages)
        try:
            operation.run(shard)
            break
        except StorageUnavailableError as error:
            said = str(error)
        finally:
            disk.free()
        assert said.startswith(uri)
        assert "disk is full" in said
        assert "Free some space" in said
        assert tree(uri) == before
        assert not operation.check(uri)
    assert 0 < pages < MOST_PAGES
    assert operation.check(uri) or name == "hold"
    append(Shard.open(uri), operation.batches)
    check(uri, operation.batches + 1, operation.since)


def test_vacuum_frees_space_where_there_is_none(disk: Disk) -> None:
    uri = f"{disk.root}/s"
    shard = filled(uri)
    disk.fill()
    with pytest.raises(StorageUnavailableError):
        append(shard, BATCHES)
    assert len(Shard.open(uri).vacuum(retention_hours=0)) == BATCHES - 1
    assert append(shard, BATCHES)  # into what became free
    check(uri, BATCHES + 1, 0)


def test_an_append_is_there_although_its_checkpoint_found_no_space(disk: Disk) -> None:
    """delta-rs commits first. The append is reported as failed, and not doubled when repeated."""
    store = Store.at(disk.root / "s")
    Log.create(store, ShardSpec.make(SCHEMA, ["k"], by_hash()), {"delta.checkpointInterval": "1"})
    append(Shard.open(store.uri), 0)
    for pages in range(MOST_PAGES):
        disk.fill(pages)
        try:
            append(Shard.open(store.uri), 1)
            break
        except StorageUnavailableError:
            pass
        finally:
            disk.free()
        found = Shard.open(store.uri)
        check(store.uri, found.upper, 0)
        if found.upper == 2:
            assert append(found, 1) is False
    check(store.uri, 2, 0)


def test_creating_leaves_no_folder(disk: Disk) -> None:
    for schema in (SCHEMA, SCHEMA.append(pa.field("m", pa.map_(pa.timestamp("us"), pa.int64())))):
        disk.fill()
        with pytest.raises(StorageUnavailableError, match="disk is full"):
            Shard.create(disk.root / "a" / "b", schema, key=["k"])
        disk.free()
        assert list(disk.root.iterdir()) == []
    Shard.create(disk.root / "a" / "b", SCHEMA, key=["k"])


def test_init_leaves_nothing(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    for pages in (0, 3, 30):
        disk.fill(pages)
        with pytest.raises(StorageUnavailableError, match="disk is full"):
            init(disk.root / "shop")
        disk.free()
        assert list(disk.root.iterdir()) == []
    disk.fill()
    assert main(["init", str(disk.root / "shop")]) == 2
    assert "disk is full" in capsys.readouterr().err
    disk.free()
    init(disk.root / "shop")


def test_a_full_temporary_folder_is_no_error_of_the_schema(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", os.fspath(disk.root))
    disk.fill()
    with pytest.raises(StorageUnavailableError, match="disk is full"):
        check_storable(pa.schema([("not asked before", pa.int64())]), "it")
    monkeypatch.setattr("tempfile.tempdir", os.fspath(disk.root / "nowhere"))
    with pytest.raises(StorageUnavailableError, match="TMPDIR"):
        check_storable(pa.schema([("not asked before", pa.int64())]), "it")


def test_small_files_are_written_whole_or_not_at_all(disk: Disk, tmp_path: Path) -> None:
    store = Store.at(disk.root)
    store.put("note", b"old")
    disk.fill()
    for name in ("note", "other"):
        with pytest.raises(StorageUnavailableError, match=name):
            store.put(name, b"new")
    with pytest.raises(StorageUnavailableError, match="part"):
        store.write("part", [b"a", b"b"])
    assert sorted(os.listdir(disk.root)) == ["ballast", "note"]
    assert store.get("note") == b"old"
