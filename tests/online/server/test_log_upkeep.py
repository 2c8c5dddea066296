"""A serving log is kept small: files are merged and removed, and no row is lost or doubled."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given
from hypothesis import strategies as st
from serving_fake import Fake

from windrow.errors import OptionError, StorageError
from windrow.online.log import upkeep
from windrow.online.log.appending import Appender
from windrow.online.log.logged import Logged
from windrow.online.log.places import all_tables, counts_table_of, log_tables
from windrow.online.log.reading import counts, coverage
from windrow.online.log.serving_log import ServingLog, check_keep
from windrow.online.log.upkeep import LARGE, LogFile, log_files, tend, to_merge
from windrow.storage.store import Store
from windrow.time import DAY, HOUR, now_millis


def rows(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(store.uri).to_pyarrow_table()).to_pylist()
    return sorted(found, key=repr)


def files(store: Store) -> list[LogFile]:
    return log_files(DeltaTable(store.uri))


@pytest.fixture
def logged(tmp_path: Path) -> Store:
    """Five commits of two names, and their counts."""
    served = Logged(Fake(), ServingLog(Store.at(tmp_path), every=3600))
    for number in range(5):
        served.fetch("activity", [{"user_id": number}])
        served.fetch("types", [{"row": 0}, {"row": None}])
        served.log.flush()
    served.close()
    return Store.at(tmp_path)


def test_a_daemon_may_start_it_too(logged: Store) -> None:
    """Multiprocessing allows daemons no children."""
    program = f"""
from windrow.online.log.upkeep import start_tending
from windrow.storage.store import Store
import multiprocessing
multiprocessing.current_process()._config["daemon"] = True
print(start_tending(Store.at({logged.uri!r}), 0).wait())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("0", "")
    assert not any(files(store) for store in all_tables(logged))


def test_files_of_the_past_are_merged(logged: Store) -> None:
    before = {store.uri: repr(rows(store)) for store in all_tables(logged)}
    sizes = {store.uri: len(rows(store)) for store in all_tables(logged)}
    times = {store.uri: {file.modified for file in files(store)} for store in all_tables(logged)}
    requests = coverage(counts(logged, "activity"))
    tend(logged, 30 * DAY, now_millis())
    assert all(len(files(store)) >= 5 for store in all_tables(logged))  # they may be under way
    tend(logged, 30 * DAY, now_millis() + 2 * DAY)
    for store in all_tables(logged):
        assert len(files(store)) <= 2  # one, unless a day has just begun
        assert repr(rows(store)) == before[store.uri]  # NaN is not equal to itself
        assert {file.modified for file in files(store)} <= times[store.uri]
        assert sum(file.rows for file in files(store)) == sizes[store.uri]
    assert coverage(counts(logged, "activity")) == requests


def test_old_files_are_removed(logged: Store) -> None:
    (store,) = log_tables(logged, "activity").values()
    tend(logged, None, now_millis() + 1_000 * DAY)
    assert len(rows(store)) == 5
    tend(logged, 7 * DAY, now_millis() + 8 * DAY)
    assert not rows(store)
    assert not rows(counts_table_of(logged, "activity"))
    # A writer goes on as before.
    served = Logged(Fake(), ServingLog(logged))
    served.fetch("activity", [{"user_id": 9}])
    served.close()
    assert [row["user_id"] for row in rows(store)] == [9]


def test_those_who_read_are_left_their_files(logged: Store) -> None:
    (store,) = log_tables(logged, "activity").values()
    reading = DeltaTable(store.uri)
    tend(logged, 7 * DAY, now_millis() + 8 * DAY)
    assert reading.to_pyarrow_table().num_rows == 5
    assert not rows(store)


def test_of_two_that_merge_one_leaves_nothing(logged: Store) -> None:
    (store,) = log_tables(logged, "activity").values()
    late, expected = DeltaTable(store.uri), rows(store)
    some = log_files(late)
    tend(logged, None, now_millis() + 2 * DAY)
    there = set(store.names())
    assert not upkeep._merge(store, late, some, now_millis())
    assert set(store.names()) == there
    assert rows(store) == expected


def test_a_commit_that_nobody_is_sure_of_is_not_repeated_after_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("n", pa.int64())])
    store = Store.at(tmp_path / "served/one/v1")
    appender = Appender(store, schema)
    appender.write(pa.table({"n": [0]}, schema=schema))
    appender.commit()
    plain = DeltaTable.create_write_transaction

    def lost(self: DeltaTable, *args: Any, **options: Any) -> None:
        plain(self, *args, **options)
        raise OSError("the answer was lost")

    appender.write(pa.table({"n": [1]}, schema=schema))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", lost)
        with pytest.raises(StorageError, match="the answer was lost"):
            appender.commit()
    tend(Store.at(tmp_path), None, now_millis() + 2 * DAY)
    appender.write(pa.table({"n": [2]}, schema=schema))
    appender.commit()
    appender.write(pa.table({"n": [3]}, schema=schema))
    appender.commit()
    assert [row["n"] for row in rows(store)] == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [OSError, CommitFailedError])
def test_a_merge_whose_answer_is_lost_loses_nothing(
    logged: Store, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    (store,) = log_tables(logged, "activity").values()
    expected, plain = rows(store), DeltaTable.create_write_transaction

    def lost(self: DeltaTable, *args: Any, **options: Any) -> None:
        plain(self, *args, **options)
        raise error("the answer was lost")

    with monkeypatch.context() as patch, contextlib.suppress(StorageError):
        patch.setattr(DeltaTable, "create_write_transaction", lost)
        tend(logged, None, now_millis() + 2 * DAY)
    assert rows(store) == expected
    tend(logged, None, now_millis() + 2 * DAY)
    assert rows(store) == expected


def test_a_file_that_is_gone_is_told(logged: Store) -> None:
    (store,) = log_tables(logged, "activity").values()
    store.delete([files(store)[0].path])
    with pytest.raises(StorageError, match="activity"):
        tend(logged, None, now_millis() + 2 * DAY)


def test_a_process_of_its_own_does_it(logged: Store, capfd: pytest.CaptureFixture[str]) -> None:
    log = ServingLog(logged, keep=DAY)
    log._tend()
    assert log._tending is not None
    assert log._tending.wait(60) == 0
    assert "windrow" not in capfd.readouterr().err


@given(
    st.lists(st.tuples(st.integers(0, 5 * DAY), st.sampled_from([1_000, LARGE // 3, LARGE]))),
    st.integers(0, 6 * DAY),
)
def test_what_is_merged(made: list[tuple[int, int]], now: int) -> None:
    """Each file at most once, with others of its day, and none that is large or young."""
    several = [LogFile(str(n), size, time, 1) for n, (time, size) in enumerate(made)]
    groups = list(to_merge(several, now))
    merged = [file for some in groups for file in some]
    assert len(set(merged)) == len(merged)
    for some in groups:
        assert len(some) > 1
        assert len({file.modified // DAY for file in some}) == 1
        assert sum(file.bytes for file in some) <= LARGE
        assert all(file.bytes < LARGE and file.modified < now - HOUR for file in some)


@pytest.mark.parametrize("keep", ["", "30", "soon", "-3d"])
def test_a_length_that_is_none(keep: str) -> None:
    with pytest.raises(OptionError, match="log_keep"):
        check_keep(keep)
