"""Processes that share one shard: writers, compaction, readers and vacuum at the same time."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from oracle import Oracle, Row, count_updates
from windrow import Shard
from windrow.errors import ShardExistsError, StorageError, UpperMismatchError
from windrow.shard.compact import Compacted
from windrow.shard.log import Log
from windrow.shard.part import Part
from windrow.spark.tasks import WrittenFile
from windrow.storage.store import Store
from windrow.updates import update_schema

# `at` repeats the time of the update, which `_time` no longer tells once `since` has passed it.
SCHEMA = pa.schema([("writer", pa.string()), ("seq", pa.int64()), ("at", pa.int64())])
BATCHES = 60
PROCESSES = 5
PATIENCE = 60  # seconds after which something hangs
MONTH = 30 * 24 * 3600

Update = tuple[dict[str, Any], int, int]


@dataclass(frozen=True)
class Meeting:
    """How the tasks of a test meet. The same in all of them, whether threads or processes."""

    pair: Any  # a barrier for two
    everyone: Any  # a barrier for all processes
    stop: Any  # an event


meeting = Meeting(threading.Barrier(2), threading.Barrier(PROCESSES), threading.Event())


def join_meeting(other: Meeting) -> None:
    global meeting
    meeting = other


@pytest.fixture(scope="module")
def shared() -> Meeting:
    spawn = multiprocessing.get_context("spawn")
    return Meeting(spawn.Barrier(2), spawn.Barrier(PROCESSES), spawn.Event())


@pytest.fixture(scope="module")
def processes(shared: Meeting) -> Iterator[Executor]:
    spawn = multiprocessing.get_context("spawn")  # a fork would lose the threads of delta-rs
    with ProcessPoolExecutor(PROCESSES, spawn, join_meeting, (shared,)) as pool:
        yield pool


@pytest.fixture(params=["threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        with ThreadPoolExecutor(2) as threads:
            yield threads


def rows_of(updates: Sequence[Update]) -> pa.Table:
    rows = [{**row, "_time": time, "_diff": diff} for row, time, diff in updates]
    return pa.Table.from_pylist(rows, update_schema(SCHEMA))


def insertions(writer: str, first: int, count: int, at: int) -> list[Update]:
    return [({"writer": writer, "seq": first + i, "at": at}, at, 1) for i in range(count)]


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard.create(tmp_path / "shard", SCHEMA, key=["writer"])


def filled(shard: Shard, batches: int) -> Oracle:
    oracle = Oracle(SCHEMA)
    for lower in range(shard.upper, shard.upper + batches):
        updates = insertions("filler", lower * 10, 3, lower)
        if lower:
            updates.append(
                ({"writer": "filler", "seq": lower * 10 - 10, "at": lower - 1}, lower, -1)
            )
        shard.append(rows_of(updates), lower=lower, upper=lower + 1)
        oracle.append(updates)
    return oracle


def check(shard: Shard, oracle: Oracle) -> None:
    """The shard holds the oracle's history, no more and no less."""
    shard.refresh()
    oracle.since = shard.since
    newest = count_updates(shard.snapshot().to_table(), with_time=False)
    assert newest == oracle.snapshot(shard.upper - 1)
    changes = count_updates(shard.changes(shard.since).to_table(), with_time=True)
    assert changes == oracle.changes(shard.since, shard.upper)


def check_files(shard: Shard) -> None:
    """The store holds the files that the log names, no more and no less."""
    assert Store.at(shard.uri).names() == sorted(part.path for part in shard.snapshot().parts)


# Everyone at once


@dataclass
class Written:
    """What a writer believes that it wrote, in order."""

    updates: list[Update] = field(default_factory=list)
    losses: int = 0


def write_along(uri: str, writer: str) -> Written:
    """Append batches by compare-and-append, until `BATCHES` of them are in."""
    random, shard, written = Random(writer), Shard.open(uri), Written()
    live: list[dict[str, Any]] = []
    meeting.everyone.wait(PATIENCE)
    lower, seq, batches = shard.upper, 0, 0
    while batches < BATCHES:
        upper = lower + random.randint(1, 4)
        at = sorted(random.choices(range(lower, upper), k=random.randint(1, 3)))
        batch: list[Update] = [
            ({"writer": writer, "seq": seq + i, "at": time}, time, 1) for i, time in enumerate(at)
        ]
        retracted = random.choice(live) if live and random.random() < 0.4 else None
        if retracted is not None:
            batch.append((retracted, upper - 1, -1))
        try:
            assert shard.append(rows_of(batch), lower=lower, upper=upper)
        except UpperMismatchError as error:
            written.losses += 1
            lower = error.upper
            continue
        written.updates += batch
        live += [row for row, _, diff in batch if diff > 0]
        if retracted is not None:
            live.remove(retracted)
        lower, seq, batches = upper, seq + len(at), batches + 1
    return written


def compact_along(uri: str) -> Compacted:
    shard, total = Shard.open(uri), Compacted()
    meeting.everyone.wait(PATIENCE)
    while not meeting.stop.wait(0.02):
        total += shard.compact(fanout=3, everything=total.merges % 4 == 3)
    return total


def maintain_along(uri: str) -> tuple[int, int]:
    """Advance `since` and vacuum; return how often, and how many files went."""
    shard, advanced, vacuumed = Shard.open(uri), 0, 0
    meeting.everyone.wait(PATIENCE)
    while not meeting.stop.wait(0.05):
        since = shard.refresh().upper // 2
        if since > shard.since:
            shard.advance_since(since)
            advanced += 1
        # The file of a writer that died long ago, so that vacuum has something to delete.
        dead = Path(uri) / f"{advanced:020d}-dead.parquet"
        dead.write_bytes(b"PAR1")
        os.utime(dead, (time.time() - MONTH, time.time() - MONTH))
        vacuumed += len(shard.vacuum())
    return advanced, vacuumed


Seen = list[tuple[int, Counter[Row]]]


def read_along(uri: str) -> Seen:
    """Snapshots and their times. What changes say must take one snapshot to the next."""
    shard, seen = Shard.open(uri), []
    meeting.everyone.wait(PATIENCE)
    stopped = False
    while not stopped:
        stopped = meeting.stop.is_set()
        if shard.refresh().upper == 0:
            continue
        read = shard.snapshot()
        upper = shard.upper
        found = count_updates(read.to_table(), with_time=False)
        if seen:
            frontier, state = seen[-1][0] + 1, seen[-1][1].copy()
            if shard.refresh().since < frontier:
                changes = shard.changes(frontier, upper)
                # `since` may have come here just now; then changes start with the state.
                if shard.since < frontier:
                    state.update(count_updates(changes.to_table(), with_time=False))
                    assert Counter({row: n for row, n in state.items() if n}) == found
        seen.append((upper - 1, found))
    return seen


def test_writers_compaction_maintenance_and_readers_at_once(
    processes: Executor, shared: Meeting, shard: Shard
) -> None:
    shared.stop.clear()
    writers = [processes.submit(write_along, shard.uri, name) for name in ("ann", "bob")]
    compaction = processes.submit(compact_along, shard.uri)
    maintenance = processes.submit(maintain_along, shard.uri)
    reader = processes.submit(read_along, shard.uri)
    try:
        histories = [writer.result(PATIENCE) for writer in writers]
    finally:
        shared.stop.set()
    compacted = compaction.result(PATIENCE)
    advanced, vacuumed = maintenance.result(PATIENCE)
    seen = reader.result(PATIENCE)

    # Everyone was really at work.
    assert sum(history.losses for history in histories) > 0
    assert compacted.merges > 0
    assert advanced > 0
    assert vacuumed > 0
    assert len(seen) > 1

    # Each writer's times only grow, so what it wrote up to a time is a prefix of its history.
    for history in histories:
        times = [time for _, time, _ in history.updates]
        assert times == sorted(times)
    oracle = Oracle(SCHEMA, [u for history in histories for u in history.updates])
    assert [as_of for as_of, _ in seen] == sorted(as_of for as_of, _ in seen)
    for as_of, found in seen:
        assert found == oracle.snapshot(as_of)

    check(shard, oracle)
    for name in ("ann", "bob"):
        rows = [
            row
            for row in shard.changes(shard.since).to_table().to_pylist()
            if row["writer"] == name and row["_diff"] > 0
        ]
        assert all(row["_time"] == max(row["at"], shard.since) for row in rows)
        in_time = [row["seq"] for row in sorted(rows, key=lambda r: (r["at"], r["seq"]))]
        assert in_time == sorted(set(in_time))
    shard.compact(everything=True)
    check(shard, oracle)
    shard.vacuum(retention_hours=0)
    check_files(shard)
    check(shard, oracle)


# Writers against each other


def append_together(uri: str, updates: list[Update], lower: int, upper: int) -> bool:
    """Append from a handle that does not know of the other writer yet."""
    shard = Shard.open(uri)
    assert shard.upper == lower
    meeting.pair.wait(PATIENCE)
    return shard.append(rows_of(updates), lower=lower, upper=upper)


def test_of_two_writers_one_wins(
    executor: Executor, shard: Shard, many: Callable[..., int]
) -> None:
    oracle = Oracle(SCHEMA)
    for _ in range(many(30, 5)):
        lower = shard.refresh().upper
        # Batches of different lengths: `upper` tells who won.
        batches = {lower + 1 + i: insertions(f"writer {i}", lower, 3, lower) for i in range(2)}
        tasks = {
            upper: executor.submit(append_together, shard.uri, updates, lower, upper)
            for upper, updates in batches.items()
        }
        errors = {upper: task.exception(PATIENCE) for upper, task in tasks.items()}
        (winner,) = (upper for upper, error in errors.items() if error is None)
        (loser,) = (error for error in errors.values() if error is not None)
        assert tasks[winner].result() is True
        assert isinstance(loser, UpperMismatchError)
        assert loser.upper == winner == shard.refresh().upper
        assert "Nothing was appended" in str(loser)
        oracle.append(batches[winner])
    check(shard, oracle)
    check_files(shard)  # losers take their files with them


def test_of_two_equal_appends_one_is_a_repetition(
    executor: Executor, shard: Shard, many: Callable[..., int]
) -> None:
    oracle = Oracle(SCHEMA)
    for lower in range(many(15, 4)):
        updates = insertions("twin", lower, 3, lower)
        tasks = [
            executor.submit(append_together, shard.uri, updates, lower, lower + 1) for _ in range(2)
        ]
        assert sorted(task.result(PATIENCE) for task in tasks) == [False, True]
        oracle.append(updates)
    check(shard, oracle)
    check_files(shard)


def create_together(uri: str, key: str) -> str:
    meeting.pair.wait(PATIENCE)
    Shard.create(uri, SCHEMA, key=[key])
    return key


def test_of_two_creators_one_wins(
    executor: Executor, tmp_path: Path, many: Callable[..., int]
) -> None:
    for number in range(many(15, 4)):
        uri = os.fspath(tmp_path / str(number))
        tasks = [executor.submit(create_together, uri, key) for key in ("writer", "seq")]
        errors = [task.exception(PATIENCE) for task in tasks]
        (winner,) = (task for task, error in zip(tasks, errors, strict=True) if error is None)
        (loser,) = (error for error in errors if error is not None)
        assert isinstance(loser, ShardExistsError)
        assert Shard.open(uri).key == (winner.result(),)


# Compaction against others


def compact_together(uri: str) -> Compacted:
    """Compact, and commit no sooner than the other has merged, too."""
    replace = Log.replace

    def meet_and_replace(log: Log, removed: Sequence[Part], parts: Sequence[WrittenFile]) -> bool:
        Log.replace = replace  # type: ignore[method-assign]
        meeting.pair.wait(PATIENCE)
        return replace(log, removed, parts)

    Log.replace = meet_and_replace  # type: ignore[method-assign]
    try:
        return Shard.open(uri).compact(everything=True)
    finally:
        Log.replace = replace  # type: ignore[method-assign]


def test_of_two_compactions_one_gives_way(
    processes: Executor, shard: Shard, many: Callable[..., int]
) -> None:
    oracle = Oracle(SCHEMA)
    for _ in range(many(8, 3)):
        oracle.append(filled(shard, 3).updates)
        replaced = {part.path for part in shard.snapshot().parts}
        tasks = [processes.submit(compact_together, shard.uri) for _ in range(2)]
        done = sorted((task.result(PATIENCE) for task in tasks), key=lambda c: c.merges)
        assert [compacted.merges for compacted in done] == [0, 1]
        assert done[0] == Compacted()
        check(shard, oracle)
        # What is left is the one run and what it replaced: the other took its own away.
        assert shard.stats().runs == 1
        named = {part.path for part in shard.snapshot().parts}
        assert set(Store.at(shard.uri).names()) == named | replaced
        shard.vacuum(retention_hours=0)
        check_files(shard)
        check(shard, oracle)


def test_compaction_neither_blocks_nor_loses_what_happens_meanwhile(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = filled(shard, 4)
    replace = Log.replace

    def replace_late(log: Log, removed: Sequence[Part], parts: Sequence[WrittenFile]) -> bool:
        other = Shard.open(shard.uri)
        oracle.append(filled(other, 1).updates)
        other.advance_since(2)
        return replace(log, removed, parts)

    monkeypatch.setattr(Log, "replace", replace_late)
    assert shard.compact(everything=True).merges == 1
    monkeypatch.undo()
    assert shard.stats().runs == 2
    check(shard, oracle)
    # The history before `since` came back to nobody, but is still to be forgotten.
    assert shard.compact(everything=True).merges == 1
    check(shard, oracle)
    shard.vacuum(retention_hours=0)
    check_files(shard)


# Readers and vacuum


def test_a_planned_read_outlives_compaction_but_not_vacuum(shard: Shard) -> None:
    oracle = filled(shard, 4)
    snapshot, changes = shard.snapshot(1), shard.changes(1, 4)
    old_snapshot, old_changes = oracle.snapshot(1), oracle.changes(1, 4)
    other = Shard.open(shard.uri)
    oracle.append(filled(other, 2).updates)
    other.advance_since(3)
    other.compact(everything=True)
    assert count_updates(snapshot.to_table(), with_time=False) == old_snapshot
    assert count_updates(changes.to_table(), with_time=True) == old_changes
    other.vacuum()  # a week has not passed
    assert count_updates(snapshot.to_table(), with_time=False) == old_snapshot
    other.vacuum(retention_hours=0)
    for read in (snapshot, changes):
        with pytest.raises(StorageError, match="read again, or vacuum with a longer retention"):
            read.to_table()
    check(shard, oracle)


def test_vacuum_from_an_outdated_handle_keeps_what_others_wrote(shard: Shard) -> None:
    outdated = Shard.open(shard.uri)
    oracle = filled(shard, 3)
    assert outdated.vacuum(retention_hours=0) == []
    check(shard, oracle)
    shard.compact(everything=True)
    assert len(outdated.vacuum(retention_hours=0)) == 3
    check(shard, oracle)
    check_files(shard)


def vacuum_together(uri: str) -> None:
    shard = Shard.open(uri)
    meeting.pair.wait(PATIENCE)
    shard.vacuum(retention_hours=0)


def test_two_vacuums_at_once(executor: Executor, shard: Shard, many: Callable[..., int]) -> None:
    oracle = Oracle(SCHEMA)
    for _ in range(many(5, 2)):
        oracle.append(filled(shard, 3).updates)
        shard.compact(everything=True)
        for number in range(50):
            (Path(shard.uri) / f"{number:020d}-dead.parquet").write_bytes(b"PAR1")
        for task in [executor.submit(vacuum_together, shard.uri) for _ in range(2)]:
            task.result(PATIENCE)
        check_files(shard)
        check(shard, oracle)
