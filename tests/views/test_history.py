"""The history of a project: what is refused, what is found after damage, and what is swept."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time as clock
from pathlib import Path

import pyarrow as pa
import pytest
from history_model import SCHEMA, content, define, write, written

from windrow import Shard
from windrow.errors import (
    CommitConflictError,
    DataError,
    OptionError,
    StorageError,
    TimeRangeError,
    WindrowError,
)
from windrow.storage.leases import found_leases
from windrow.storage.new_files import put_new
from windrow.storage.store import Store
from windrow.views.history import files as history_files
from windrow.views.history import history as history_module
from windrow.views.history.commits import Commit
from windrow.views.history.files import CHECKPOINT_EVERY, HistoryFiles, checkpoint_name, record_name
from windrow.views.history.history import History
from windrow.views.history.roll_forward import roll_forward
from windrow.views.history.state import State


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "shop")


@pytest.fixture
def history(store: Store) -> History:
    return History(store)


def files_of(store: Store) -> HistoryFiles:
    return HistoryFiles(store.beneath("history"))


def path_of(store: Store, name: str) -> Path:
    return Path(store.uri, "history", name)


# What a commit does


def test_a_commit_is_seen_by_others_and_after_reopening(store: Store, history: History) -> None:
    other = History(store)
    ids = define(history, 2, retain="latest")
    time = write(history, {ids[0]: [(1, "a", 1)], ids[1]: [(2, "b", 2)]})
    note = {"statement": "CREATE VIEW v AS SELECT 1"}
    history.commit(Commit("define", time, catalogue={"v": {"of": ids}}, ticked=time, note=note))
    other.refresh()
    for found in (history, other, History(store)):
        assert (found.version, found.time, found.ticked) == (3, time, time)
        assert dict(found.catalogue) == {"v": {"of": ids}}
        assert found.collections() == {id: {"retain": "latest"} for id in ids}
        assert content(found.collection(ids[1])) == {(2, "b"): 2}
    record = json.loads(path_of(store, record_name(3)).read_text().splitlines()[1])
    assert record["note"] == note
    other.commit(Commit("define", time, catalogue={"v": None}, dropped=ids[:1]))
    history.refresh()
    assert dict(history.catalogue) == {}
    assert list(history.collections()) == ids[1:]
    with pytest.raises(WindrowError, match="no collection"):
        history.collection(ids[0])


def test_times_do_not_go_back_if_the_clock_does(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = define(history)
    now = history.next_time()
    assert abs(now - clock.time() * 1000) < 60_000
    write(history, {id: [(1, "a", 1)]}, now)
    monkeypatch.setattr(history_module, "now_millis", lambda: now - 1_000_000)
    assert history.next_time() == now + 1


def test_an_append_without_parts_moves_the_upper(history: History) -> None:
    (id,) = define(history)
    history.commit(Commit("write", 7, {id: []}))
    assert history.collection(id).upper == 8
    history.roll_forward()
    assert Shard.open(history.collection(id).store.uri).upper == 8


# What is refused


def test_a_write_comes_after_all_that_is_committed(store: Store, history: History) -> None:
    ids = define(history, 2)
    other = History(store)
    parts = {ids[0]: written(other, ids[0], 5, [(1, "a", 1)])}
    write(history, {ids[1]: [(1, "a", 1)]}, 5)
    with pytest.raises(CommitConflictError, match="committed at 5"):
        other.commit(Commit("write", 5, parts))
    assert other.version == history.version
    other.discard(Commit("write", 5, parts))
    assert not other.collection(ids[0]).store.names()
    write(other, {ids[0]: [(1, "a", 1)]})
    history.refresh()
    assert content(history.collection(ids[0])) == {(1, "a"): 1}


def test_two_writes_to_one_collection_that_read_nothing(store: Store, history: History) -> None:
    (id,) = define(history)
    other = History(store)
    parts = written(other, id, 9, [(1, "late", 1)])
    write(history, {id: [(1, "early", 1)]}, 5)
    other.commit(Commit("write", 9, {id: parts}))
    assert content(other.collection(id)) == {(1, "early"): 1, (1, "late"): 1}
    assert content(other.collection(id), 8) == {(1, "early"): 1}
    other.roll_forward()
    assert content(History(store).collection(id)) == content(other.collection(id))


def test_a_part_with_updates_before_the_collections_upper(store: Store, history: History) -> None:
    (id,) = define(history)
    other = History(store)
    table = pa.table({"k": [1], "v": ["a"], "_time": [3]})
    parts = other.collection(id).writer(9).write(table.to_batches()).parts
    write(history, {id: [(1, "early", 1)]}, 5)
    with pytest.raises(DataError, match="Write it again"):
        other.commit(Commit("write", 9, {id: parts}))
    with pytest.raises(DataError, match="Write it again"):
        other.commit(Commit("write", 12, {id: parts}))


def test_a_write_that_has_read_what_others_changed(store: Store, history: History) -> None:
    ids = define(history, 3)
    other = History(store)
    based = other.version
    write(history, {ids[0]: [(1, "a", 1)]}, 5)
    other.commit(Commit("write", 6), expected=based, reads=ids[1:])
    with pytest.raises(CommitConflictError, match=f"{ids[0]}, which it has read"):
        other.commit(Commit("write", 7), expected=based, reads=ids)
    history.commit(Commit("define", 7, dropped=[ids[2]]))
    with pytest.raises(CommitConflictError, match="dropped"):
        other.commit(Commit("write", 8), expected=based, reads=ids[2:])
    with pytest.raises(CommitConflictError, match="dropped"):
        other.commit(Commit("write", 8, {ids[2]: []}))
    with pytest.raises(CommitConflictError, match="dropped"):
        other.commit(Commit("define", 8, dropped=[ids[2]]))


def test_a_tick_in_the_past_while_others_write(store: Store, history: History) -> None:
    table, view = define(history, 2)
    write(history, {table: [(1, "a", 1)]}, 5)
    other = History(store)
    based = history.version
    parts = written(history, view, 5, [(1, "a", 1)])
    write(other, {table: [(2, "b", 1)]}, 8)
    history.commit(Commit("tick", 5, {view: parts}, ticked=5), expected=based)
    assert (history.time, history.ticked) == (8, 5)
    assert history.collection(view).upper == 6
    with pytest.raises(CommitConflictError, match="another tick or definition"):
        other.commit(Commit("tick", 5, ticked=5))
    with pytest.raises(CommitConflictError, match="not after that"):
        history.commit(Commit("tick", 5, {view: []}, ticked=5))
    for wrong in (4, 9):
        with pytest.raises(OptionError, match="they move forward"):
            history.commit(Commit("tick", 8, ticked=wrong))


def test_a_tick_ahead_of_what_it_has_seen(store: Store, history: History) -> None:
    table, view = define(history, 2)
    write(history, {table: [(1, "a", 1)]}, 5)
    other = History(store)
    based = history.version
    write(other, {table: [(2, "b", 1)]}, 8)
    for time in (8, 20):
        with pytest.raises(CommitConflictError, match="meanwhile another process has committed"):
            history.commit(Commit("tick", time, ticked=time), expected=based)
    # Nothing that counts came between: a tick may as well be the newest of all.
    history.roll_forward()
    history.commit(Commit("tick", 20, {view: []}, ticked=20))
    assert (history.time, history.collection(view).upper) == (20, 21)


def test_mistakes(history: History) -> None:
    with pytest.raises(OptionError, match="kind"):
        Commit("insert", 1)
    with pytest.raises(OptionError, match="times are"):
        history.commit(Commit("write", -1))
    with pytest.raises(OptionError, match="expected=9"):
        history.commit(Commit("write", 1), expected=9)
    with pytest.raises(OptionError, match="not created"):
        history.commit(Commit("define", 1, created={"unknown": {}}))
    with pytest.raises(WindrowError, match="no collection"):
        history.roll_forward(["unknown"])
    (id,) = define(history)
    parts = written(history, id, 3, [(1, "a", 1)])
    Path(history.collection(id).store.uri, parts[0].path).unlink()
    with pytest.raises(StorageError, match=parts[0].path):
        history.commit(Commit("write", 3, {id: parts}))
    assert history.version == 1


def test_one_process_ticks_at_a_time(store: Store, history: History) -> None:
    other = History(store)
    with history.claim_ticks(), history.claim_ticks():  # one within the other
        busy = pytest.raises(CommitConflictError, match=f"process {os.getpid()} on")
        with busy, other.claim_ticks(wait=0.05):
            pass
        refused: list[BaseException] = []

        def tick() -> None:
            try:
                with history.claim_ticks(wait=0.05):
                    pass
            except CommitConflictError as error:
                refused.append(error)

        thread = threading.Thread(target=tick)
        thread.start()
        thread.join()
        assert "another thread" in str(refused)
        (id,) = define(history)
    with other.claim_ticks(wait=0):
        assert list(other.collections()) == [id]


# Records and checkpoints


def fill(history: History, records: int) -> str:
    (id,) = define(history)
    for _ in range(records - 1):
        write(history, {id: [(1, "a", 1)]})
    return id


def test_checkpoints(store: Store) -> None:
    history = History(store, roll_after=10_000)
    id = fill(history, 2 * CHECKPOINT_EVERY + 7)
    files = files_of(store)
    assert files.checkpoints() == [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]
    assert History(store)._state == history._state
    for version in range(1, CHECKPOINT_EVERY + 1):
        path_of(store, record_name(version)).unlink()  # as `tidy` does
    newest = path_of(store, checkpoint_name(2 * CHECKPOINT_EVERY))
    newest.write_bytes(newest.read_bytes().replace(b"a", b"b", 1))
    found = History(store)  # from the one before
    assert found._state == history._state
    assert content(found.collection(id)) == {(1, "a"): 2 * CHECKPOINT_EVERY + 6}
    path_of(store, checkpoint_name(CHECKPOINT_EVERY)).unlink()
    with pytest.raises(StorageError, match=checkpoint_name(2 * CHECKPOINT_EVERY)):
        History(store)


def test_old_records_are_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_files, "CHECKPOINT_EVERY", 5)
    history = History(store)
    stale, hopeful = History(store), History(store)
    id = fill(history, 12)
    files = files_of(store)
    assert files.records() == list(range(1, 13))  # they are young
    for name in map(checkpoint_name, files.checkpoints()):
        os.utime(path_of(store, name), (0, 0))
    fill(history, 3)
    for name in map(checkpoint_name, files.checkpoints()):
        os.utime(path_of(store, name), (0, 0))
    files.tidy()
    assert files.checkpoints() == [10, 15]  # the newest two stay, however old they are
    assert files.records() == list(range(10, 16))
    stale.refresh()
    assert stale._state == history._state == History(store)._state
    # One that knows nothing of all this takes a number that is free again, and notices.
    assert files.append(hopeful._state, {"kind": "write", "time": 1, "at": 0}) is not None
    path_of(store, record_name(1)).unlink()
    behind = State(version=3, checksum="of another time")
    assert files.append(behind, {"kind": "write", "time": 1, "at": 0}) is None
    assert files.records() == list(range(10, 16))
    assert id in History(store).collections()


def test_a_head_that_lags_or_is_lost(store: Store, history: History) -> None:
    fill(history, 3)
    head = path_of(store, "head.json")
    lagging = head.read_bytes()
    id = fill(history, 3)
    for content_ in (lagging, b"not a head", None):
        head.unlink() if content_ is None else head.write_bytes(content_)
        found = History(store)
        assert found._state == history._state
        found.refresh()
    write(found, {id: [(1, "b", 1)]})
    history.refresh()
    assert history._state == found._state


# Damage


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "flipped":
            middle = len(data) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        case "checksum":
            path.write_bytes(data[:15] + bytes([data[15] ^ 1]) + data[16:])


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "flipped", "checksum"])
@pytest.mark.parametrize("version", [1, 3, 5])
def test_a_damaged_record(store: Store, history: History, version: int, how: str) -> None:
    id = fill(history, 5)
    damage(path_of(store, record_name(version)), how)
    with pytest.raises(StorageError, match=f"{record_name(version)} is .*Restore the file"):
        History(store)
    if version == 5:
        # A handle that knew better does not build on it.
        assert content(history.collection(id)) == {(1, "a"): 4}


def test_a_record_in_anothers_place(store: Store, history: History) -> None:
    fill(history, 5)
    shutil.copy(path_of(store, record_name(4)), path_of(store, record_name(3)))
    with pytest.raises(StorageError, match="another record than its name says"):
        History(store)


def test_a_record_of_another_history(store: Store, history: History, tmp_path: Path) -> None:
    fill(history, 5)
    other = Store.at(tmp_path / "other")
    fill(History(other), 5)
    shutil.copy(path_of(other, record_name(3)), path_of(store, record_name(3)))
    with pytest.raises(StorageError, match=f"{record_name(2)} or {record_name(3)} is not what"):
        History(store)


def test_a_shard_that_is_not_what_the_history_says(store: Store, history: History) -> None:
    (id,) = define(history)
    folder = Path(history.collection(id).store.uri)
    shutil.copytree(folder, folder.with_name("earlier"))
    write(history, {id: [(1, "a", 1)]})
    history.roll_forward()
    rolled = folder.rename(folder.with_name("rolled"))
    folder.with_name("earlier").rename(folder)
    with pytest.raises(StorageError, match="the history knows of version 1"):
        History(store).collection(id)
    shutil.rmtree(folder)
    rolled.rename(folder)
    Shard.open(folder).append(pa.table({"k": [1], "v": ["b"]}), lower=2, upper=9)
    with pytest.raises(StorageError, match="someone appended to the shard itself"):
        History(store).collection(id)


# Rolling forward, maintaining, sweeping


def test_batches_wait_and_are_rolled_forward_together(store: Store) -> None:
    history = History(store, roll_after=4)
    ids = define(history, 2)
    shards = [Shard.open(history.collection(id).store.uri) for id in ids]
    for _ in range(4):
        write(history, {id: [(1, "a", 1)] for id in ids})
    assert [shard.refresh().upper for shard in shards] == [0, 0]
    write(history, {ids[0]: [(1, "a", 1)]})
    assert [shard.refresh().upper for shard in shards] == [6, 0]
    assert len(history._state.collections[ids[0]].pending) == 5  # the next record says so
    write(history, {ids[1]: []})
    assert [len(e.pending) for e in history._state.collections.values()] == [0, 5]
    assert [shard.refresh().upper for shard in shards] == [6, 7]
    history.close()
    again = History(store)
    assert [len(e.pending) for e in again._state.collections.values()] == [0, 0]
    version = again.version
    again.roll_forward()
    assert again.version == version
    assert [len(shard.refresh().parts()) for shard in shards] == [5, 4]
    assert [len(shard._log.commits()) for shard in shards] == [2, 2]


def test_many_shards_are_not_rolled_forward_at_once(store: Store) -> None:
    history = History(store, roll_after=1)
    ids = define(history, 5)
    for _ in range(6):
        write(history, {id: [(1, "a", 1)] for id in ids})
    most = max(len(entry.pending) for entry in history._state.collections.values())
    assert 2 <= most <= 4


def test_two_handles_roll_forward_different_amounts(store: Store, history: History) -> None:
    (id,) = define(history)
    write(history, {id: [(1, "a", 1)]})
    behind = History(store)
    behind.collection(id)
    write(history, {id: [(1, "a", 1)]})
    history.roll_forward()
    behind_entry = behind._state.collections[id]
    assert not roll_forward(behind._log(id), behind_entry)
    for as_of in (None, 1_000):
        assert content(behind.collection(id), as_of) == {(1, "a"): 1}  # as of its version
    behind.refresh()
    assert content(behind.collection(id)) == {(1, "a"): 2}


def maintained(history: History, id: str, batches: int = 12) -> None:
    for _ in range(batches):
        write(history, {id: [(1, "a", 1)]})
    history.commit(Commit("tick", history.time, ticked=history.time))
    assert history.maintain()[id].merges


def test_how_much_history_is_kept(store: Store, history: History) -> None:
    (latest,), (kept,) = define(history, retain="latest"), define(history, retain="history")
    for _ in range(12):
        write(history, {id: [(1, "a", 1)] for id in (latest, kept)})
    assert history.maintain()  # the views are at 0
    assert [history.collection(id).since for id in (latest, kept)] == [0, 0]
    now = history.next_time()
    for time in range(now - 12, now):
        write(history, {id: [(1, "a", 1)] for id in (latest, kept)}, time)
    history.commit(Commit("tick", history.time, ticked=now - 2))
    history.maintain(kept=now - 100)
    assert history.collection(latest).since == now - 2
    assert 100 <= history.collection(kept).since < 100_000


def test_maintenance_by_another_process_is_noticed(store: Store, history: History) -> None:
    (id,) = define(history, retain="latest")
    other = History(store)
    assert not other.collection(id).parts
    maintained(history, id)
    stale = history.collection(id)
    other.refresh()
    assert other.collection(id).parts == stale.parts
    write(other, {id: [(1, "a", 1)]})
    maintained(other, id)
    removed = other.sweep(hours=0)
    assert len(removed) > len(stale.parts)
    with pytest.raises(StorageError, match="is gone"):
        stale.snapshot().to_table()
    history.refresh()
    assert content(history.collection(id)) == {(1, "a"): 25}


def test_a_maintenance_that_died_before_it_was_recorded(
    store: Store, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = define(history)
    for _ in range(12):
        write(history, {id: [(1, "a", 1)]})
    history.roll_forward()
    other = History(store)
    stale = history.collection(id)
    with monkeypatch.context() as patch:
        patch.setattr(History, "_record", lambda *args: None)
        assert other.maintain()
    assert History(store).sweep(hours=0)
    with pytest.raises(StorageError, match="is gone"):
        stale.snapshot().to_table()
    history.refresh()
    assert content(history.collection(id)) == {(1, "a"): 12}


def test_a_reader_that_holds_reads_what_is_there_now(store: Store, history: History) -> None:
    (id,) = define(history)
    write(history, {id: [(1, "a", 1)]})
    reader = History(store)
    stale = reader.collection(id)
    for _ in range(12):
        write(history, {id: [(1, "a", 1)]})
    assert history.maintain()
    with reader.hold([id]) as held:
        history.sweep(hours=0)
        assert content(held[id]) == {(1, "a"): 1}
        with pytest.raises(StorageError, match="is gone"):
            stale.snapshot().to_table()


def test_a_handle_that_is_too_far_behind_is_told(store: Store, history: History) -> None:
    (id,) = define(history, retain="latest")
    write(history, {id: [(1, "a", 1)]})
    behind = History(store)
    maintained(history, id)
    with pytest.raises(TimeRangeError, match="Refresh the history"):
        behind.collection(id)
    with pytest.raises(TimeRangeError), behind.hold([id], 1):
        pass
    with behind.hold([id]) as held:  # the newest time, whatever it is
        assert content(held[id]) == {(1, "a"): 13}
    assert content(behind.collection(id)) == {(1, "a"): 13}


def test_readers_that_hold_are_not_disturbed(store: Store, history: History) -> None:
    (id,) = define(history, retain="latest")
    write(history, {id: [(1, "a", 1)]})
    write(history, {id: [(1, "b", 1)]})
    reader = History(store)
    with reader.hold([id], 1, reader="a slow report") as held:
        maintained(history, id)
        history.sweep(hours=0)
        assert content(held[id], 1) == {(1, "a"): 1}
        assert history.collection(id).since <= 1
        history.commit(Commit("define", history.time, dropped=[id]))
        history.sweep(hours=0)
        assert content(held[id], 2) == {(1, "a"): 1, (1, "b"): 1}
    assert f"collections/{id}" in history.sweep(hours=0)
    assert not Path(held[id].store.uri).exists()
    assert not history._state.dropped
    assert History(store)._state == history._state


def test_a_hold_of_a_time_that_is_forgotten(store: Store, history: History) -> None:
    (id,) = define(history, retain="latest")
    maintained(history, id)
    with pytest.raises(TimeRangeError), history.hold([id], 1):
        pass
    with history.hold([id], history.time + 100) as held:
        assert content(held[id]) == {(1, "a"): 12}
    assert not Shard.open(held[id].store.uri).holds()


def test_what_is_left_over_is_swept(store: Store, history: History) -> None:
    ids = define(history, 2)
    write(history, {id: [(1, "a", 1)] for id in ids})
    written(history, ids[0], 9, [(1, "b", 1)])  # its commit never comes
    lost = history.create_collection(SCHEMA, ["k"])
    assert not history.sweep()  # all of it is young
    parts = [f"collections/{ids[0]}/{name}" for name in history.collection(ids[0]).store.names()]
    assert len(parts) == 2
    assert History(store).sweep(hours=0) == parts[1:]  # the one that begins at 2
    assert Path(store.uri, "collections", lost).exists()  # this process lives
    history._creating.pop(lost).end()
    assert not history.sweep(hours=1)
    assert history.sweep(hours=0) == [f"collections/{lost}"]
    assert not list(found_leases(store.beneath("history/leases")))
    # A folder that a writer made again after it was removed has no log.
    stray = Path(store.uri, "collections", "stray")
    stray.mkdir()
    (stray / "x.parquet").write_text("x")
    assert not history.sweep(hours=1)
    assert history.sweep(hours=0) == ["collections/stray"]
    for id in ids:
        assert content(History(store).collection(id)) == {(1, "a"): 1}


def test_a_collection_that_is_discarded(store: Store, history: History) -> None:
    id = history.create_collection(SCHEMA, ["k"])
    parts = written(history, id, 3, [(1, "a", 1)])
    history.discard(Commit("define", 3, {id: parts}, created={id: {}}))
    history.discard_collection(id)
    assert not Path(store.uri, "collections", id).exists()
    assert not list(found_leases(store.beneath("history/leases")))
    with pytest.raises(Exception, match="at least one column"):
        history.create_collection(pa.schema([]), [])
    assert not list(found_leases(store.beneath("history/leases")))


def test_what_is_committed_all_the_same_is_not_discarded(
    store: Store, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = define(history)
    new = history.create_collection(SCHEMA, ["k"])
    appends = {one: written(history, one, 3, [(1, "a", 1)]) for one in (id, new)}
    commit = Commit("define", 3, appends, created={new: {}})

    def interrupted(history: History, *args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(History, "_move", interrupted)
        patch.setattr(History, "refresh", lambda history: None)
        history._files.append(history._state, {"at": 0, **commit.to_json()})
        with pytest.raises(KeyboardInterrupt):
            history.commit(commit)
    History(store).roll_forward([id])
    history.discard(commit)
    history.discard_collection(new)
    for one in (id, new):
        assert content(history.collection(one)) == {(1, "a"): 1}
        assert content(History(store).collection(one)) == {(1, "a"): 1}
    assert not list(found_leases(store.beneath("history/leases")))


def test_a_sweep_that_died_in_the_middle_of_removing(store: Store, history: History) -> None:
    (id,) = define(history)
    write(history, {id: [(1, "a", 1)]})
    history.commit(Commit("define", history.time, dropped=[id]))
    shutil.rmtree(Path(store.uri, "collections", id, "_delta_log"))
    assert history.sweep(hours=0) == [f"collections/{id}"]
    assert not Path(store.uri, "collections", id).exists()


def test_one_process_maintains_at_a_time(store: Store, history: History) -> None:
    (id,) = define(history)
    for _ in range(12):
        write(history, {id: [(1, "a", 1)]})
    from windrow.views.history.claims import is_claimed

    with is_claimed(store.beneath("history/leases"), "maintain"):
        assert not history.maintain()
        assert not history.sweep(hours=0)
    assert history.maintain()


# On an object store


def test_a_history_on_an_object_store(s3_options: dict[str, str], s3_uri: str) -> None:
    store = Store.at(s3_uri, s3_options)
    history, other = History(store), History(store)
    (id,) = define(history, retain="latest")
    write(history, {id: [(1, "a", 1)]}, 5)
    with pytest.raises(CommitConflictError):
        other.commit(Commit("write", 5))
    write(other, {id: [(1, "a", 1)]})
    history.roll_forward()
    other.refresh()
    assert content(other.collection(id)) == content(history.collection(id)) == {(1, "a"): 2}
    assert History(store)._state == other._state
    folder = store.beneath("once")
    made = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(put_new(folder, "x", bytes([n]))))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, False, True]
