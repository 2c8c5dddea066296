"""What is served is logged: every value with its type, and a count of what is not."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from serving_fake import ALL_KEYS, FRESH, KEYS, NOW, TYPES, Fake
from serving_worker import Start

from windrow.errors import DataError, StorageError
from windrow.online.fetched import Fetched, Request
from windrow.online.log import serving_log
from windrow.online.log.appending import Appender
from windrow.online.log.aside import AsideWriter
from windrow.online.log.logged import Logged
from windrow.online.log.places import log_tables
from windrow.online.log.reading import Coverage, counts, coverage
from windrow.online.log.serving_log import Figures, ServingLog
from windrow.storage.store import Store
from windrow.time import HOUR


def read(root: Path, name: str) -> list[dict[str, Any]]:
    (store,) = log_tables(Store.at(root), name).values()
    rows: list[dict[str, Any]] = pa.table(DeltaTable(store.uri).to_pyarrow_table()).to_pylist()
    return sorted(rows, key=lambda row: (row["_log_writer"], row["_log_request"], row["_log_key"]))


def covered(root: Path, name: str) -> Coverage:
    return coverage(counts(Store.at(root), name))


def opened(root: Path, served: Any = None, *, aside: bool = False, **options: Any) -> Logged:
    log = ServingLog(Store.at(root), **options)
    if aside:
        log.write_aside()
    return Logged(served or Fake(), log)


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def aside(request: pytest.FixtureRequest) -> bool:
    """Whether a process of its own writes."""
    return bool(request.param)


def test_values_of_every_type_are_logged(tmp_path: Path, aside: bool) -> None:
    logged = opened(tmp_path, aside=aside)
    answer = logged.fetch("types", [{"row": n} for n in range(5)], at=NOW)
    logged.fetch("types", [{"row": None}])
    logged.close()
    rows = read(tmp_path, "types")
    assert [row["row"] for row in rows] == [0, 1, 2, 3, 4, None]
    for name, values in zip(answer.names, answer.columns, strict=True):
        for row, value in zip(rows, values, strict=False):
            aware = value.astimezone(dt.UTC) if getattr(value, "tzinfo", None) else value
            if name == "moment" and value is not None and value.tzinfo is None:
                aware = value.replace(tzinfo=dt.UTC)
            is_map = pa.types.is_map(TYPES[name][0]) and value is not None
            found, expected = (dict(one) if is_map else one for one in (row[name], aware))
            # NaN is not equal to itself, but looks like itself.
            assert found == expected or repr(found) == repr(expected), name
    first, last = rows[0], rows[-1]
    assert first["_log_at"] == dt.datetime.fromtimestamp(NOW / 1000, dt.UTC)
    assert (first["_log_asked"], last["_log_asked"]) == (True, False)
    assert first["_log_statuses"] == "p" * len(TYPES)
    assert last["_log_statuses"] == "e" * len(TYPES)
    assert covered(tmp_path, "types") == Coverage(2, 2, 0, 0, 0)


def test_keys_are_logged_however_they_were_written(tmp_path: Path, aside: bool) -> None:
    logged = opened(tmp_path, aside=aside)
    logged.fetch("keys", [{name: given for name, (_, _, given) in KEYS.items()}])
    written = {name: value for name, (_, value, _) in KEYS.items()}
    logged.fetch("keys", [{**written, "real": "NaN"}])
    logged.fetch("keys", [dict.fromkeys(written)])
    logged.close()
    first, second, third = read(tmp_path, "keys")
    for name, _ in ALL_KEYS.keys:
        if name != "real":
            assert first[name] == second[name], name
        assert third[name] is None
    assert second["real"] != second["real"]


def test_groups_and_features_that_were_asked_for(tmp_path: Path, aside: bool) -> None:
    logged = opened(tmp_path, aside=aside)
    key = {"user_id": 3, "listing": "rake", "price": 1.5}
    logged.fetch("training", [key, {**key, "user_id": 7}, {**key, "user_id": -1}])
    logged.fetch("training", [key], features=["stars"])
    logged.close()
    rows = read(tmp_path, "training")
    assert [row["_log_statuses"] for row in rows] == ["ppp", "sss", "eee", "-p-"]
    fresh = dt.datetime.fromtimestamp(FRESH / 1000, dt.UTC)
    assert rows[0]["_log_fresh"] == {"activity": fresh, "reputation": fresh}
    assert rows[3]["_log_fresh"] == {"activity": None, "reputation": fresh}
    assert [row["price"] for row in rows] == [1.5] * 4
    assert (rows[3]["views"], rows[3]["stars"]) == (None, 2.0)


def test_what_the_caller_changes_afterwards_is_not_logged(tmp_path: Path) -> None:
    logged = Logged(Fake(), ServingLog(Store.at(tmp_path)), copies=True)
    key = {"user_id": 3}
    found = logged.fetch("activity", [key])
    key["user_id"] = 4
    found.columns[0][0] = -1.0
    logged.close()
    (row,) = read(tmp_path, "activity")
    assert (row["user_id"], row["price_avg_1d"]) == (3, 3 + len("price_avg_1d") / 4)


def test_sampling_and_dropping_are_counted(tmp_path: Path, aside: bool) -> None:
    """Every request is logged, sampled out or dropped, and the hours say when."""
    draw = random.Random(3).random
    logged = opened(tmp_path, rate=0.5, values=14 * 100, draw=draw, every=3600, aside=aside)
    hour = 3_600_000
    for n in range(1000):
        logged.fetch("activity", [{"user_id": n}], at=NOW + hour * (n % 2))
    figures = logged.log.figures()["activity"]
    logged.close()
    rows = read(tmp_path, "activity")
    found = covered(tmp_path, "activity")
    assert found.requests == 1000 == found.logged + found.sampled_out + found.dropped
    assert found.logged == len(rows) >= 100
    assert 400 < found.sampled_out < 600
    assert figures.requests == 1000
    first = coverage(counts(Store.at(tmp_path), "activity"), NOW, NOW + 1)
    assert first.requests == 500


def test_requests_that_come_at_once(
    tmp_path: Path, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several names and hours: sampled and dropped as each would be alone, by name."""
    monkeypatch.setattr(serving_log, "TOGETHER", 1)  # those of a turn
    monkeypatch.setattr(AsideWriter, "look", 1e6)
    pick = random.Random(5)
    draws = [pick.random() for _ in range(500)]
    drawn, numbers = iter(draws), iter(draws)
    log = ServingLog(
        Store.at(tmp_path), rate=0.6, values=1_000, every=1e9, draw=lambda: next(drawn)
    )
    due: list[Callable[[], None]] = []
    if aside:
        log.write_aside(due.append)
    logged = Logged(Fake(), log)
    wanted: list[tuple[str, int, bool, list[int]]] = []
    expected: dict[str, Counter[str]] = {"activity": Counter(), "training": Counter()}
    held = 0
    for _ in range(60):
        requests = [_random_request(pick) for _ in range(pick.randrange(1, 8))]
        given = list(zip(requests, logged.fetch_all(requests), strict=True))
        for settle in due:
            settle()
        due.clear()
        first = requests[0].name
        given.sort(key=lambda one: one[0].name != first)
        for request, found in given:
            assert isinstance(found, Fetched)
            size, counts = len(request.keys) * (len(found.columns) + 4), expected[request.name]
            counts["requests"] += 1
            if next(numbers) >= 0.6:
                counts["sampled_out"] += 1
            elif held + size > 1_000:
                counts["dropped"] += 1
            else:
                held += size
                counts["logged"] += 1
                users = [key["user_id"] for key in request.keys]
                wanted.append((request.name, found.at, request.at is not None, users))
    logged.close()
    for name, counts in expected.items():
        assert counts["dropped"]
        assert logged.log.figures()[name] == Figures(**counts)
        seen = covered(tmp_path, name)
        assert (seen.requests, seen.logged) == (counts["requests"], counts["logged"])
        assert (seen.sampled_out, seen.dropped) == (counts["sampled_out"], counts["dropped"])
        assert [
            (
                row["_log_request"],
                row["_log_key"],
                round(row["_log_at"].timestamp() * 1000),
                row["_log_asked"],
                row["user_id"],
            )
            for row in read(tmp_path, name)
        ] == [
            (number, place, at, asked, user)
            for number, (own, at, asked, users) in enumerate(wanted, 1)
            if own == name
            for place, user in enumerate(users)
        ]


def _random_request(pick: random.Random) -> Request:
    at = pick.choice([None, NOW, NOW - HOUR, NOW + 5 * HOUR])
    users = [pick.randrange(9) for _ in range(pick.randrange(4))]
    if pick.random() < 0.7:
        features = pick.choice([None, ["price_avg_1d"]])
        return Request("activity", [{"user_id": user} for user in users], at, features)
    keys = [{"user_id": user, "listing": "rake", "price": 1.5} for user in users]
    return Request("training", keys, at, None)


def test_much_is_written_at_once(
    tmp_path: Path, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only after some time: what is held in memory is bounded."""
    monkeypatch.setattr(serving_log, "FULL", 14 * 3)
    logged = opened(tmp_path, aside=aside, every=3600)
    write, written = logged.log._writer.write, threading.Event()

    def write_and_tell(*arguments: Any, **options: Any) -> Any:
        done = write(*arguments, **options)
        written.set()
        return done

    monkeypatch.setattr(logged.log._writer, "write", write_and_tell)
    for user in range(3):
        logged.fetch("activity", [{"user_id": user}])
    assert written.wait(60)
    assert [row["user_id"] for row in read(tmp_path, "activity")] == [0, 1, 2]
    logged.close()


def stopped(root: Path, said: list[str]) -> tuple[Logged, AsideWriter, int]:
    """A log that has written one row, and whose process is stopped."""
    logged = opened(root, aside=True, every=3600, values=10**9, report=said.append)
    writer = logged.log._writer
    assert isinstance(writer, AsideWriter)
    logged.fetch("activity", [{"user_id": -1}])
    logged.log.flush()
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGSTOP)
    return logged, writer, writer.pid


def test_a_process_that_is_slow_holds_nobody_up(tmp_path: Path) -> None:
    """What a full pipe has no room for waits in memory, and the process gets it in its order."""
    logged, writer, pid = stopped(tmp_path, [])
    keys = [{"user_id": n} for n in range(500)]
    for _ in range(40):  # some megabytes
        logged.fetch("activity", keys)
    assert writer._frames
    os.kill(pid, signal.SIGCONT)
    logged.log.flush()
    assert not writer._frames
    logged.close()
    users = [row["user_id"] for row in read(tmp_path, "activity")]
    assert users == [-1, *list(range(500)) * 40]


def test_a_process_that_is_killed_while_its_pipe_is_full(tmp_path: Path) -> None:
    """What is in the pipe is lost, and counted; what had no room goes to the next process."""
    said: list[str] = []
    logged, writer, pid = stopped(tmp_path, said)
    for number in range(40):
        logged.fetch("activity", [{"user_id": number * 500 + n} for n in range(500)])
    waiting = len(writer._frames)
    assert waiting
    os.kill(pid, signal.SIGKILL)
    logged.close()
    assert "ended" in said[-1]
    users = [row["user_id"] for row in read(tmp_path, "activity")]
    assert users == [-1, *range((40 - waiting) * 500, 40 * 500)]
    assert covered(tmp_path, "activity") == Coverage(41, waiting + 1, 0, 40 - waiting, 0)


class Unpicklable(int):
    """A key that no other process can be told."""

    def __reduce__(self) -> Any:
        raise TypeError("it stays here")


def test_what_cannot_be_handed_over_is_dropped(tmp_path: Path) -> None:
    said: list[str] = []
    logged = opened(tmp_path, aside=True, every=3600, values=14 * 2, report=said.append)
    for user in (1, Unpicklable(2), Unpicklable(3), 4, 5):  # and there is room for two others
        logged.fetch("activity", [{"user_id": user}])
    logged.close()
    assert "it stays here" in said[-1]
    assert [row["user_id"] for row in read(tmp_path, "activity")] == [1, 4]
    assert covered(tmp_path, "activity") == Coverage(5, 2, 0, 3, 0)


def test_a_store_that_fails_fails_no_request(tmp_path: Path, aside: bool) -> None:
    said: list[str] = []
    root = tmp_path / "root"
    root.write_text("a file is in the way")
    logged = opened(root, report=said.append, values=14 * 3, every=3600, aside=aside)
    for n in range(5):
        logged.fetch("activity", [{"user_id": n}])
    with pytest.raises(StorageError):
        logged.log.flush()
    root.unlink()
    logged.fetch("activity", [{"user_id": 9}])  # there is no room for it yet
    logged.log.flush()
    logged.fetch("activity", [{"user_id": 10}])
    logged.close()
    assert [row["user_id"] for row in read(root, "activity")] == [0, 1, 2, 10]
    assert covered(root, "activity") == Coverage(7, 4, 0, 3, 0)
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    another = opened(blocked, report=said.append, aside=aside)
    another.fetch("activity", [{"user_id": 1}])
    another.close()
    assert "the serving log cannot be written" in said[-1]


def test_writers_at_once(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        logged = opened(tmp_path, every=0.01)
        for n in range(200):
            logged.fetch("activity", [{"user_id": writer * 1000 + n}])
            if n % 50 == 0:
                logged.log.flush()
        logged.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    users = sorted(row["user_id"] for row in read(tmp_path, "activity"))
    assert users == [w * 1000 + n for w in range(4) for n in range(200)]
    assert covered(tmp_path, "activity") == Coverage(800, 800, 0, 0, 0)


def test_a_writer_that_was_killed_has_not_ended(tmp_path: Path) -> None:
    logged = opened(tmp_path)
    logged.fetch("activity", [{"user_id": 1}])
    logged.log.flush()
    assert covered(tmp_path, "activity").unclosed == 1
    logged.close()
    assert covered(tmp_path, "activity").unclosed == 0


def test_a_writing_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """What it had and had not written is counted as dropped; what comes after it is logged."""
    said: list[str] = []
    logged = opened(tmp_path, aside=True, report=said.append, every=3600, values=14 * 4)
    writer = logged.log._writer
    assert isinstance(writer, AsideWriter)

    def fetch(users: range) -> None:
        for n in users:
            logged.fetch("activity", [{"user_id": n}])

    def kill() -> None:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)

    fetch(range(3))
    logged.log.flush()
    fetch(range(3, 5))
    logged.log._pass_on()  # it has these
    kill()
    logged.log.flush()
    assert "ended" in said[-1]
    fetch(range(5, 9))  # there is room for four again
    logged.log.flush()
    kill()
    logged.close()  # by yet another one: there are counts to write
    assert [row["user_id"] for row in read(tmp_path, "activity")] == [0, 1, 2, 5, 6, 7, 8]
    assert logged.log.figures()["activity"] == Figures(9, 7, 0, 2)
    assert covered(tmp_path, "activity") == Coverage(9, 7, 0, 2, 0)
    assert writer.pid is None


def test_a_writing_process_ends_with_its_log(tmp_path: Path) -> None:
    """Also if nobody closes it: its input ends when whoever serves does."""
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_serving_log import opened
logged = opened({str(tmp_path)!r}, aside=True, every=3600)
logged.fetch("activity", [{{"user_id": 1}}])
logged.log.flush()
print(logged.log._writer.pid, flush=True)
os._exit(9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    pid = int(done.stdout)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(30)
    assert [row["user_id"] for row in read(tmp_path, "activity")] == [1]


class Damaged(Fake):
    def fetch(self, name: str, keys: Any, **options: Any) -> Fetched:
        raise DataError("group activity, key 1: its checksum is wrong")


def test_a_damaged_record_is_logged_as_not_served(tmp_path: Path, aside: bool) -> None:
    logged = opened(tmp_path, Damaged(), aside=aside)
    with pytest.raises(DataError):
        logged.fetch("activity", [{"user_id": 1}], at=NOW)
    logged.close()
    (row,) = read(tmp_path, "activity")
    assert row["_log_statuses"] == "f" * 10
    assert "checksum" in row["_log_error"]


def test_a_server_logs_and_counts(tmp_path: Path, start: Start) -> None:
    served = opened(tmp_path, every=3600)
    serving = start(served)
    for n in range(3):
        serving.post("/v1/features/activity", {"keys": [{"user_id": n}]})
    entities = {"entities": {"user_id": [8]}, "features": ["activity:price_avg_1d"]}
    serving.post("/get-online-features", entities)
    served.log.flush()
    text = serving.request("GET", "/metrics")[2].decode()
    assert 'windrow_log_requests_total{name="activity",outcome="logged"} 4.0' in text
    assert 'windrow_log_requests_total{name="activity",outcome="dropped"} 0.0' in text
    serving.post("/v1/features/activity", {"keys": [{"user_id": 5}]})
    serving.app.close()  # as a worker that was told to stop
    assert [row["user_id"] for row in read(tmp_path, "activity")] == [0, 1, 2, 8, 5]
    assert served.log.figures()["activity"] == Figures(5, 5, 0, 0)


def test_a_commit_that_another_one_gets_in_the_way_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two writers create the table at once, and the second one's commit comes later."""
    rows = pa.table({"n": pa.array([1, 2])})
    appender = Appender(Store.at(tmp_path / "log"), rows.schema)
    opened, changed = Appender._table, []

    def open_and_change(self: Appender) -> Any:
        table = opened(self)
        if not changed:
            properties = {"delta.logRetentionDuration": "interval 9 days"}
            DeltaTable(tmp_path / "log").alter.set_table_properties(properties)
            changed.append(True)
        return table

    monkeypatch.setattr(Appender, "_table", open_and_change)
    appender.write(rows)
    appender.commit()
    assert changed
    assert DeltaTable(tmp_path / "log").to_pyarrow_table().num_rows == 2
