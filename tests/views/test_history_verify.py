"""What `windrow doctor` finds of a project's history, and what it repairs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from history_model import content, define, write

from windrow import Shard
from windrow.cli import DAMAGED, main
from windrow.shard.verify import Repair
from windrow.storage.store import Store
from windrow.views.history import files as history_files
from windrow.views.history.commits import Commit
from windrow.views.history.files import checkpoint_name, record_name
from windrow.views.history.history import History
from windrow.views.history.verify import verify_history


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A project with checkpoints 4 and 8, and batches that wait."""
    monkeypatch.setattr(history_files, "CHECKPOINT_EVERY", 4)
    store = Store.at(tmp_path / "shop")
    history = History(store)
    ids = define(history, 3)
    for _ in range(6):
        write(history, {id: [(1, "a", 1)] for id in ids[:2]})
    history.roll_forward(ids[:1])
    for _ in range(2):
        write(history, {id: [(1, "a", 1)] for id in ids[:2]})
    history.commit(Commit("define", history.time, dropped=ids[2:]))
    assert history.version == 11
    return store


def flip(path: Path) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def problems(store: Store) -> list[tuple[str, str, Repair, bool]]:
    found = verify_history(store)
    assert found is not None
    return [(p.file, p.what, p.repair, p.is_damage) for p in found.problems]


def test_a_sound_history(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    found = verify_history(store)
    assert found is not None
    assert found.is_sound
    assert not found.problems
    assert (found.entries, found.parts) == (
        8,
        10,
    )  # records up to the older checkpoint are not needed
    assert sorted(found.waiting.values()) == [2, 8]
    # A dropped collection may be half removed.
    (dropped,) = History(store)._state.dropped
    Path(store.uri, "collections", dropped, "_delta_log", f"{0:020}.json").write_text("")
    assert main(["doctor", store.uri]) == 0
    output = capsys.readouterr().out
    assert "history: sound; 8 records checked; 10 batches wait for 2 shards" in output
    assert dropped not in output
    assert "not part of the shard" not in output
    assert verify_history(Store.at("nowhere")) is None


@pytest.mark.parametrize("version", [1, 3, 4, 9, 10, 11])
def test_damaged_records(store: Store, version: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(store.uri, "history", record_name(version))
    needed = version > 8
    flip(path)
    expected = [] if version < 4 else [(f"history/{path.name}", "is damaged", Repair.NONE, needed)]
    assert problems(store) == expected
    assert main(["doctor", store.uri]) == (DAMAGED if needed else 0)
    assert (path.name in capsys.readouterr().out) == bool(expected)
    path.unlink()
    if expected:
        assert problems(store) == [(f"history/{path.name}", "is missing", Repair.NONE, needed)]


def test_a_record_of_another_history(store: Store, tmp_path: Path) -> None:
    other = Store.at(tmp_path / "other")
    history = History(other)
    (id,) = define(history)
    for _ in range(11):
        write(history, {id: [(1, "a", 1)]})
    shutil.copy(
        Path(other.uri, "history", record_name(10)), Path(store.uri, "history", record_name(10))
    )
    ((file, what, _, is_damage), (after, *_)) = problems(store)
    assert (file, what) == (
        f"history/{record_name(9)} or {record_name(10)}",
        "is not what it was",
    )
    assert is_damage
    assert after == f"history/{record_name(10)} or {record_name(11)}"


def test_a_damaged_checkpoint(store: Store) -> None:
    newest = Path(store.uri, "history", checkpoint_name(8))
    flip(newest)
    whole = History(store)._state
    file = f"history/{newest.name}"
    assert problems(store) == [(file, "is damaged", Repair.CHECKPOINT, False)]
    assert main(["doctor", store.uri, "--repair"]) == 0
    assert not newest.exists()
    assert not problems(store)
    assert History(store)._state == whole
    flip(Path(store.uri, "history", checkpoint_name(4)))
    for version in range(1, 4):
        Path(store.uri, "history", record_name(version)).unlink()
    (first, *_) = problems(store)
    assert first == (f"history/{checkpoint_name(4)}", "is damaged", Repair.NONE, True)


def test_a_lost_head(store: Store) -> None:
    head = Path(store.uri, "history", "head.json")
    head.unlink()
    missing = ("history/head.json", "is missing or damaged", Repair.HEAD, False)
    assert problems(store) == [missing]
    assert main(["doctor", store.uri, "--repair"]) == 0
    assert head.exists()
    assert not problems(store)


def test_a_last_record_that_is_lost(store: Store) -> None:
    Path(store.uri, "history", record_name(11)).unlink()
    assert problems(store) == [(f"history/{record_name(11)}", "is missing", Repair.NONE, True)]


def test_parts_that_only_the_history_names(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(store)
    id = max(history.collections(), key=lambda id: len(history._state.collections[id].pending))
    first, second, *_ = history.collection(id).parts
    folder = Path(store.uri, "collections", id)
    flip(folder / first.path)
    (folder / second.path).unlink()
    assert sorted(problems(store)) == [
        (f"collections/{id}/{first.path}", "is damaged", Repair.NONE, True),
        (f"collections/{id}/{second.path}", "is missing", Repair.NONE, True),
    ]
    assert main(["doctor", store.uri]) == DAMAGED
    assert first.path in capsys.readouterr().out.replace("\n", "")


def test_shards_that_are_not_what_the_history_says(store: Store) -> None:
    history = History(store)
    one, two = history.collections()
    upper = Shard.open(f"{store.uri}/collections/{one}").upper
    shard = Shard.open(f"{store.uri}/collections/{one}")
    shard.append(pa.table({"k": [1], "v": ["b"]}), lower=upper, upper=1_000)
    shutil.rmtree(Path(store.uri, "collections", two))
    found = {file: what for file, what, *_ in problems(store)}
    assert "holds updates that the history" in found[f"collections/{one}"]
    assert "cannot be opened" in found[f"collections/{two}"]


def test_a_shard_from_an_older_copy(store: Store) -> None:
    history = History(store)
    (id, *_) = history.collections()
    folder = Path(store.uri, "collections", id)
    shutil.copytree(folder, folder.with_name("copy"))
    assert content(history.collection(id)) == {(1, "a"): 8}
    history.roll_forward()
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)
    ((file, what, *_),) = problems(store)
    assert file == f"collections/{id}"
    assert "is at an earlier state" in what
