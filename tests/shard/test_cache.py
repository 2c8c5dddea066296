"""The cache of parts, as a hostile neighbour and a failing disk see it: never other rows."""

from __future__ import annotations

import os
import random
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow import Shard
from windrow.errors import OptionError, StorageError
from windrow.shard import cache as caches
from windrow.shard import recent
from windrow.shard.cache import PartCache

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
ROWS = 5_000
NEIGHBOUR = 12_345  # a user

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def make_shard(path: Path, mark: str = "ours") -> Shard:
    shard = Shard.create(path, SCHEMA, key=["k"])
    rows = {"k": range(ROWS), "name": [f"{mark} {k}" for k in range(ROWS)]}
    shard.append(pa.table(rows, schema=SCHEMA), lower=0, upper=1)
    return shard


def lookup(shard: Shard, cache: PartCache | bool = True) -> list[str]:
    found = shard.snapshot(keys={"k": [17, 18]}, cache=cache).to_table()
    return sorted(found.column("name").to_pylist())


OURS = ["ours 17", "ours 18"]


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return make_shard(tmp_path / "shard")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared temporary folder, in which the cache is by default."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("WINDROW_CACHE")
    return folder


def forget() -> None:
    """As a new process, which knows of no file yet."""
    caches._verified.clear()
    recent.forget()


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def usual(temporary: Path) -> Path:
    return temporary / f"windrow-cache-{os.geteuid()}"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# The folder


def test_the_folder_is_private_from_the_start(shard: Shard, temporary: Path) -> None:
    before = os.umask(0)
    try:
        assert lookup(shard) == OURS
    finally:
        os.umask(before)
    assert mode(usual(temporary)) == 0o700
    (entry,) = entries(usual(temporary))
    assert mode(entry) == 0o600
    assert lookup(shard) == OURS
    assert entries(usual(temporary)) == [entry]


def taken_folder(folder: Path, how: str, tmp_path: Path) -> None:
    """What a neighbour may have put where the cache would be."""
    match how:
        case "theirs":
            folder.mkdir(mode=0o777)
            folder.chmod(0o777)
            os.chown(folder, NEIGHBOUR, NEIGHBOUR)
        case "open":
            folder.mkdir()
            folder.chmod(0o777)
        case "group":
            folder.mkdir()
            folder.chmod(0o770)
        case "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "elsewhere")
        case "dangling":
            folder.symlink_to(tmp_path / "nowhere")
        case "file":
            folder.write_text("not a folder")


TAKEN = [pytest.param("theirs", marks=as_root), "open", "group", "link", "dangling", "file"]


@pytest.mark.parametrize("how", TAKEN)
def test_a_folder_that_was_taken_is_left_alone(
    shard: Shard, temporary: Path, tmp_path: Path, how: str
) -> None:
    taken_folder(usual(temporary), how, tmp_path)
    assert lookup(shard) == OURS
    assert not usual(temporary).is_dir() or entries(usual(temporary)) == []
    assert not (tmp_path / "nowhere").exists()
    # Another is made instead, and found again.
    (other,) = [path for path in entries(temporary) if path != usual(temporary)]
    assert mode(other) == 0o700
    assert len(entries(other)) == 1
    forget()
    assert lookup(shard) == OURS
    assert [p for p in entries(temporary) if p != usual(temporary)] == [other]


@as_root
def test_rows_that_a_neighbour_planted_are_not_read(
    shard: Shard, temporary: Path, tmp_path: Path
) -> None:
    assert lookup(shard) == OURS
    (entry,) = entries(usual(temporary))
    theirs = make_shard(tmp_path / "theirs", "theirs")
    planted = PartCache(str(tmp_path / "planted"), 1 << 30)
    lookup(theirs, planted)
    (fake,) = entries(tmp_path / "planted")
    # The neighbour was first, and knows all names.
    entry.unlink()
    usual(temporary).rmdir()
    usual(temporary).mkdir()
    fake.rename(entry)
    for path in (entry, usual(temporary)):
        os.chown(path, NEIGHBOUR, NEIGHBOUR)
        path.chmod(0o777)
    forget()
    assert lookup(shard) == OURS
    # Even if the folder was open for a while and is ours alone again.
    os.chown(usual(temporary), 0, 0)
    usual(temporary).chmod(0o700)
    forget()
    assert lookup(shard) == OURS


@pytest.mark.parametrize("how", ["theirs", "open", "group", "link", "dangling"])
def test_a_named_folder_that_others_can_write_to_is_an_error(
    shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "theirs" and os.geteuid():
        pytest.skip("only root can give files away")
    folder = tmp_path / "named"
    taken_folder(folder, how, tmp_path)
    monkeypatch.setenv("WINDROW_CACHE", str(folder))
    with pytest.raises(StorageError, match=r"WINDROW_CACHE.*named"):
        lookup(shard)
    assert not folder.is_dir() or entries(folder) == []
    assert lookup(shard, False) == OURS


def test_a_named_folder_may_be_readable(
    shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "named"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("WINDROW_CACHE", str(folder))
    assert lookup(shard) == OURS
    (entry,) = entries(folder)
    assert mode(entry) == 0o600


def test_only_entries_are_evicted(shard: Shard, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "letters.txt").write_text("dear" * 1_000_000)
    (folder / "table.arrow").write_text("mine" * 1_000_000)
    stale = folder / ("0" * 64 + ".arrow.0123abcd")  # of a writer that died
    stale.write_bytes(bytes(4_000_000))
    os.utime(stale, (0, 0))
    assert lookup(shard, PartCache(str(folder), 1_000_000)) == OURS
    names = [path.name for path in entries(folder)]
    assert "letters.txt" in names
    assert "table.arrow" in names
    assert stale.name not in names
    assert len(names) == 3


@pytest.mark.parametrize("size", ["8 GiB", "-1", "", "1e9"])
def test_the_size_is_a_number(shard: Shard, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv("WINDROW_CACHE_BYTES", size)
    with pytest.raises(OptionError, match="WINDROW_CACHE_BYTES"):
        lookup(shard)


# Entries


@pytest.fixture
def cache(shard: Shard, tmp_path: Path) -> PartCache:
    """A cache that holds the shard's part."""
    cache = PartCache(str(tmp_path / "cache"), 1 << 30)
    assert lookup(shard, cache) == OURS
    return cache


def only_entry(cache: PartCache) -> Path:
    assert cache.folder is not None
    (entry,) = entries(Path(cache.folder))
    return entry


def test_a_flipped_bit_never_gives_other_rows(shard: Shard, cache: PartCache) -> None:
    entry = only_entry(cache)
    whole = entry.read_bytes()
    pick = random.Random(0)
    # Anywhere, and in the trailer; in a text that is looked up, it would be seen.
    bits = [pick.randrange(8 * len(whole)) for _ in range(60)]
    bits += [8 * len(whole) - 1 - n for n in range(0, 448, 16)]
    bits += [8 * whole.index(b"ours 17")]
    for bit in bits:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        entry.write_bytes(damaged)
        forget()
        assert lookup(shard, cache) == OURS
        assert only_entry(cache).read_bytes() == whole  # made again from the part


def test_an_entry_cut_short_is_made_again(shard: Shard, cache: PartCache) -> None:
    entry = only_entry(cache)
    whole = entry.read_bytes()
    for length in (0, 1, 55, 56, 57, len(whole) // 2, len(whole) - 1):
        entry.write_bytes(whole[:length])
        forget()
        assert lookup(shard, cache) == OURS
        assert only_entry(cache).read_bytes() == whole
    entry.write_bytes(whole + b"more")
    forget()
    assert lookup(shard, cache) == OURS
    assert only_entry(cache).read_bytes() == whole


def test_an_entry_of_another_part_is_not_believed(
    shard: Shard, cache: PartCache, tmp_path: Path
) -> None:
    theirs = make_shard(tmp_path / "theirs", "theirs")
    other = PartCache(str(tmp_path / "other"), 1 << 30)
    lookup(theirs, other)
    entry, fake = only_entry(cache), only_entry(other)
    fake.rename(entry)
    forget()
    assert lookup(shard, cache) == OURS


def test_a_shard_copied_elsewhere_has_entries_of_its_own(
    shard: Shard, cache: PartCache, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shard.uri, copy)
    assert lookup(Shard.open(copy), cache) == OURS
    assert cache.folder is not None
    assert len(entries(Path(cache.folder))) == 2


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_an_entry_that_is_no_file_is_passed_over(
    shard: Shard, cache: PartCache, tmp_path: Path, what: str
) -> None:
    entry = only_entry(cache)
    entry.rename(tmp_path / "moved")
    match what:
        case "link":
            entry.symlink_to(tmp_path / "moved")
        case "folder":
            entry.mkdir()
        case "pipe":
            os.mkfifo(entry)
    forget()
    assert lookup(shard, cache) == OURS


def test_a_file_is_added_up_once(
    shard: Shard, cache: PartCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again after it was written to, or since the machine was started."""
    try:
        os.setxattr(only_entry(cache), "user.tried", b"")
    except OSError:
        pytest.skip("files have no attributes here")
    sums: list[int] = []

    def counted(data: Any) -> int:
        sums.append(1)
        return checksum(data)

    checksum = caches.checksum
    monkeypatch.setattr(caches, "checksum", counted)
    for _ in range(3):
        forget()
        assert lookup(shard, cache) == OURS
    assert len(sums) == 0  # those who made it have added it up
    os.utime(only_entry(cache), ns=(0, 0))
    for count in (1, 1):
        forget()
        assert lookup(shard, cache) == OURS
        assert len(sums) == count
    monkeypatch.setattr(caches, "_start", lambda: "another one")
    forget()
    assert lookup(shard, cache) == OURS
    assert len(sums) == 2
    for attribute in os.listxattr(only_entry(cache)):
        os.removexattr(only_entry(cache), attribute)
    assert lookup(shard, cache) == OURS
    assert len(sums) == 2  # this process knows
    forget()
    assert lookup(shard, cache) == OURS
    assert len(sums) == 3


def test_a_failed_entry_leaves_nothing(
    shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caches, "checksum", full)
    assert lookup(shard, PartCache(str(tmp_path / "cache"), 1 << 30)) == OURS
    assert entries(tmp_path / "cache") == []
