"""What verification finds, what can be repaired, and which file an error names."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from windrow import Shard, by_hash
from windrow.cli import DAMAGED, main
from windrow.errors import StorageError
from windrow.shard.log import Log
from windrow.shard.spec import ShardSpec
from windrow.shard.verify import Repair, repair_shard, verify_shard
from windrow.storage.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight batches, and checkpoints at versions 4 and, the newest, 8 or 9."""
    spec = ShardSpec.make(SCHEMA, ["k"], by_hash())
    shard = Shard(Log.create(Store.at(tmp_path / "s"), spec, {"delta.checkpointInterval": "5"}))
    for lower in range(8):
        table = pa.table({"k": [lower, lower + 1], "v": ["a", None]}, schema=SCHEMA)
        shard.append(table, lower=lower, upper=lower + 1)
    return tmp_path / "s"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def problems(folder: Path) -> list[tuple[str, str]]:
    return [(problem.file, problem.what) for problem in verify_shard(Store.at(folder)).problems]


def newest_checkpoint(folder: Path) -> Path:
    return max((folder / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_sound_shard(folder: Path) -> None:
    found = Shard.open(folder).verify()
    assert found.is_sound
    assert (found.entries, found.parts, found.unchecked_parts, found.problems) == (9, 8, 0, [])


def test_every_byte_of_a_part_counts(folder: Path, stride: Callable[[int], int]) -> None:
    (path, *_) = sorted(folder.glob("*.parquet"))
    whole = path.read_bytes()
    for at in range(4, len(whole), stride(5)):  # the first four are the magic: nobody reads them
        flip(path, at)
        assert problems(folder) == [(path.name, "is damaged")]
        path.write_bytes(whole)
    flip(path, len(whole) // 2)
    with pytest.raises(StorageError, match=path.name):
        Shard.open(folder).snapshot().to_table()


def test_a_part_in_the_place_of_another(folder: Path) -> None:
    parts = itertools.combinations(sorted(folder.glob("*.parquet")), 2)
    one, other = next((a, b) for a, b in parts if a.stat().st_size == b.stat().st_size)
    one.write_bytes(other.read_bytes())
    assert problems(folder) == [(one.name, "is damaged")]
    with pytest.raises(StorageError, match="its footer is damaged, or it is another part's"):
        Shard.open(folder).snapshot().to_table()


def test_parts_that_are_missing_or_left_over(folder: Path) -> None:
    (path, *_) = sorted(folder.glob("*.parquet"))
    path.rename(folder / "stray.parquet")
    found = problems(folder)
    assert found == [(path.name, "is missing"), ("stray.parquet", "is not part of the shard")]


@pytest.mark.parametrize("version", [6, 7, 8])
@pytest.mark.parametrize("content", [None, b"", b"{}\n"])
def test_an_entry_that_is_lost(folder: Path, version: int, content: bytes | None) -> None:
    """In the middle or at the end: nothing is read, nothing is appended, and it is named."""
    path = folder / "_delta_log" / f"{version:020}.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=path.name):
        Shard.open(folder).append(pa.table({"k": [1], "v": ["x"]}), lower=8, upper=9)
    assert any(path.name in file for file, _ in problems(folder))


def test_without_its_head_a_shard_is_read_and_the_next_append_writes_it(folder: Path) -> None:
    head = folder / "_delta_log/_windrow/head.json"
    for damage in (lambda: flip(head, 20), head.unlink):
        damage()
        found = verify_shard(Store.at(folder))
        assert found.is_sound
        assert [problem.repair for problem in found.problems] == [Repair.HEAD]
        shard = Shard.open(folder)
        table = pa.table({"k": [1], "v": ["x"]})
        shard.append(table, lower=shard.upper, upper=shard.upper + 1)
        assert problems(folder) == []


def test_a_damaged_checkpoint_can_be_dropped_while_the_entries_are_there(folder: Path) -> None:
    path = newest_checkpoint(folder)
    expected = Shard.open(folder).snapshot().to_table()
    flip(path, path.stat().st_size // 2)
    with pytest.raises(StorageError, match=path.name):
        Shard.open(folder)
    store = Store.at(folder)
    found = verify_shard(store)
    assert not found.is_sound
    assert [problem.repair for problem in repair_shard(store, found)] == [Repair.CHECKPOINT]
    assert Shard.open(folder).snapshot().to_table() == expected
    assert verify_shard(store).is_sound


def test_a_hint_of_the_checkpoint_that_is_lost_costs_nothing(folder: Path) -> None:
    log = folder / "_delta_log"
    expected = Shard.open(folder).snapshot().to_table()
    newest = int(newest_checkpoint(folder).name[:20])
    for version in range(newest):  # as a cleanup of the log does
        (log / f"{version:020}.json").unlink()
    (log / "_last_checkpoint").unlink()
    shard = Shard.open(folder)
    assert shard.snapshot().to_table() == expected
    shard.append(pa.table({"k": [1], "v": ["x"]}), lower=8, upper=9)
    assert Shard.open(folder).upper == 9


def test_a_file_that_is_adopted_gets_checksums(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "v": ["a", "b"], "_time": [0, 0], "_diff": [1, 1]})
    pq.write_table(rows, tmp_path / "updates.parquet")
    shard = Shard.create(tmp_path / "s", SCHEMA, key=["k"])
    shard.adopt([tmp_path / "updates.parquet"], lower=0, upper=1)
    found = shard.verify()
    assert (found.parts, found.unchecked_parts, found.problems) == (1, 0, [])
    (path,) = (tmp_path / "s").glob("*.parquet")
    flip(path, path.stat().st_size // 3)
    assert problems(tmp_path / "s") == [(path.name, "is damaged")]
    with pytest.raises(StorageError, match=path.name):
        shard.snapshot().to_table()


def test_the_doctor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(folder)]) == 0
    assert "sound; 8 parts" in capsys.readouterr().out
    path = newest_checkpoint(folder)
    flip(path, path.stat().st_size // 2)
    assert main(["doctor", str(folder)]) == DAMAGED
    assert path.name in capsys.readouterr().out
    assert main(["doctor", str(folder), "--repair"]) == 0
    assert "repaired" in capsys.readouterr().out
    assert main(["doctor", str(folder)]) == 0


def test_the_doctor_removes_what_a_backfill_rebuilds_and_nothing_else(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    derived, own = root / "arrangements/one/generation", root / "tables/own"
    for place in (derived, own):
        place.parent.mkdir(parents=True)
        shutil.copytree(folder, place)
        flip(min(place.glob("*.parquet")), 100)
    assert main(["doctor", str(root), "--repair"]) == DAMAGED
    assert "the next backfill rebuilds it" in capsys.readouterr().out
    assert not derived.exists()
    assert own.exists()
    assert main(["doctor", str(tmp_path / "nothing")]) == 2
