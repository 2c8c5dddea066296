"""A folder that cannot be used, or that is damaged: an error that says so, never the end."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from disks import Disk
from windrow.errors import OptionError, StorageError, StorageUnavailableError
from windrow.online.stores.lmdb_file import examine
from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore

KEYS = [b"%08d" % i for i in range(400)]
VALUE = bytes(range(256)) * 2
ANOTHER = 65534


def opened(folder: Path | str) -> RecordStore:
    return open_store(folder, map_size=1 << 28)


def filled(folder: Path) -> RecordStore:
    store = opened(folder)
    store.load((key, VALUE + key) for key in KEYS)
    store.load((key + b"!", VALUE * 20) for key in KEYS[:20])
    store.change_note("n", lambda _: b"note")
    return store


def test_the_folder_is_private(tmp_path: Path) -> None:
    store = filled(tmp_path / "a" / "store")
    found = {path.name: path.stat().st_mode for path in (tmp_path / "a" / "store").iterdir()}
    assert {name: stat.S_IMODE(mode) for name, mode in found.items()} == {
        "data.mdb": 0o600,
        "lock.mdb": 0o600,
    }
    assert stat.S_IMODE((tmp_path / "a" / "store").stat().st_mode) == 0o700
    store.close()


def test_a_full_disk(disk: Disk) -> None:
    """Whatever space is left: all of a write is there or nothing, and reads go on."""
    folder = disk.root / "store"
    failed = 0
    for pages in range(0, 400, 7):
        disk.fill(pages)
        try:
            filled(folder).update(KEYS, lambda found: [b"new"] * len(KEYS))
            break
        except StorageUnavailableError as error:
            assert str(folder) in str(error)  # noqa: PT017
            assert "disk is full" in str(error)  # noqa: PT017
            failed += 1
        finally:
            disk.free()
    assert failed > 3
    store = opened(folder)
    assert store.read(["n"], KEYS) == ([b"note"], [b"new"] * len(KEYS))
    disk.fill()
    with pytest.raises(StorageUnavailableError, match="disk is full"):
        store.update(KEYS, lambda found: [VALUE * 40] * len(KEYS))
    assert store.read(["n"], KEYS) == ([b"note"], [b"new"] * len(KEYS))
    disk.free()
    store.update(KEYS, lambda found: [VALUE] * len(KEYS))
    assert store.read([], KEYS[:1]) == ([], [VALUE])
    store.close()


def test_a_read_only_file_system(disk: Disk) -> None:
    filled(disk.root / "store").close()
    disk.protect()
    for name in ("store", "another"):
        with pytest.raises(StorageUnavailableError, match="read-only") as caught:
            opened(disk.root / name).read(["n"], [])
        assert str(disk.root / name) in str(caught.value)
    disk.release()
    assert opened(disk.root / "store").read(["n"], []) == ([b"note"], [])


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o755)
    folder = tmp_path / "store"
    filled(folder).close()
    for parent in list(folder.parents)[:3]:
        parent.chmod(0o755)
    os.seteuid(ANOTHER)
    try:
        with pytest.raises(StorageUnavailableError, match=str(folder)):
            opened(folder).read(["n"], [])
    finally:
        os.seteuid(0)
    os.chown(folder, ANOTHER, ANOTHER)
    with pytest.raises(StorageUnavailableError, match=f"{folder} belongs to user {ANOTHER}"):
        opened(folder).read(["n"], [])


def test_a_store_that_is_full_says_what_to_do(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", map_size=1 << 20)
    with pytest.raises(StorageUnavailableError, match="a larger one"):
        store.load((b"%08d" % i, VALUE) for i in range(10_000))
    store.close()
    store = opened(tmp_path / "store")
    store.load((b"%08d" % i, VALUE) for i in range(10_000))
    assert store.size().records == 10_000
    store.close()


def test_keys_that_are_too_long(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    for act in (
        lambda: store.load([(b"k" * 600, b"")]),
        lambda: store.change_note("", lambda _: b""),
    ):
        with pytest.raises(OptionError, match="511 bytes"):
            act()
    store.close()


READ_ALL = """
import sys
from windrow.errors import StorageError
from windrow.online.stores.opening import open_store
store = open_store(sys.argv[1], map_size=1 << 28)
keys = [b"%08d" % i for i in range(400)]
try:
    store.read(["n"], keys + [key + b"!" for key in keys])
    store.notes()
    store.update(keys, lambda found: [b"x" * 900] * len(keys))
    store.remove(b"0000")
except StorageError as error:
    assert "data.mdb" in str(error), error
    print("damaged")
"""


def read_all(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_a_data_file_that_is_cut_short(tmp_path: Path, many: Callable[..., int]) -> None:
    filled(tmp_path / "whole").close()
    data = (tmp_path / "whole" / "data.mdb").read_bytes()
    chance = random.Random(5)
    lengths = [0, 1, 4096, 8191, 8192, len(data) - 1, len(data) - 4096]
    for length in [*lengths, *(chance.randrange(len(data)) for _ in range(many(20, 3)))]:
        folder = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", folder)
        os.truncate(folder / "data.mdb", length)
        # In this process: a signal would end the tests.
        with pytest.raises(StorageError, match=f"{folder}/data.mdb is damaged.*upload"):
            opened(folder).read(["n"], KEYS)
        shutil.rmtree(folder)


def test_a_data_file_that_is_cut_short_while_it_is_open(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    store.read(["n"], KEYS)
    os.truncate(tmp_path / "store" / "data.mdb", 8192)
    store._opened.look_at = 0.0  # a second later
    with pytest.raises(StorageError, match="is damaged"):
        store.read(["n"], KEYS)


def test_pages_of_free_space_may_be_missing_at_the_end(tmp_path: Path) -> None:
    """As a writer leaves the file that is killed right after its commit."""
    store = filled(tmp_path / "store")
    store.remove(b"")
    store.remove(b"none")
    store.load([(KEYS[0], b"kept")])
    store.load([(KEYS[0], b"still kept")])
    store.close()
    path = tmp_path / "store" / "data.mdb"
    length = path.stat().st_size
    os.truncate(path, length - 4096)
    examine(str(path))
    assert path.stat().st_size == length
    assert opened(tmp_path / "store").read([], KEYS[:1]) == ([], [b"still kept"])


def test_damage_anywhere_never_ends_the_process(tmp_path: Path, many: Callable[..., int]) -> None:
    filled(tmp_path / "whole").close()
    data = (tmp_path / "whole" / "data.mdb").read_bytes()
    chance = random.Random(11)
    for _ in range(many(60, 6)):
        damaged = bytearray(data)
        page = chance.randrange(len(data) // 4096) * 4096
        for _ in range(chance.choice([1, 8, 64])):  # mostly where pages say what is in them
            damaged[page + chance.randrange(chance.choice([16, 160, 4096]))] ^= chance.randrange(
                1, 256
            )
        folder = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", folder)
        (folder / "data.mdb").write_bytes(damaged)
        assert read_all(folder) in ("", "damaged\n")
        shutil.rmtree(folder)


def test_something_else_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(StorageError, match="Something else"):
        opened(tmp_path / "file").read(["n"], [])
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "folder" / "data.mdb").write_text("hello" * 5000)
    with pytest.raises(StorageError, match="no data file of LMDB"):
        opened(tmp_path / "folder").read(["n"], [])
    with lmdb.open(str(tmp_path / "foreign"), mode=0o700) as env, env.begin(write=True) as writing:
        writing.put(b"k", b"v")
    (tmp_path / "foreign").chmod(0o700)
    with pytest.raises(StorageError, match="not a store"):
        opened(tmp_path / "foreign").read(["n"], [])


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store, other = filled(tmp_path / "store"), opened(tmp_path / "store")
    assert other.read(["n"], []) == ([b"note"], [])
    shutil.rmtree(tmp_path / "store")
    for one in (store, other):
        one._opened.look_at = 0.0  # a second later
        assert one.read(["n"], KEYS[:1]) == ([None], [None])
    store.change_note("n", lambda _: b"again")
    assert other.read(["n"], []) == ([b"again"], [])
