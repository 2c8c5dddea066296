"""The folder of a backfill at work: one run at a time, found again after an interruption."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from windrow.errors import DataError
from windrow.storage import leases, work
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store
from windrow.storage.work import work_folder


@pytest.fixture
def root(tmp_path: Path) -> Store:
    return Store.at(tmp_path)


def enter(root: Store, name: str | None = "same") -> str:
    """Do some work and be interrupted; where it was."""
    with contextlib.suppress(KeyboardInterrupt), work_folder(root, name) as folder:
        Path(folder.uri).mkdir(parents=True, exist_ok=True)
        (Path(folder.uri) / "note").touch()
        raise KeyboardInterrupt
    return folder.uri


def owned_by(root: Store, **changes: Any) -> None:
    """Change the one claim there is, as if another process had made it."""
    (path,) = (Path(root.uri) / "claims").iterdir()
    claims = Store.at(path.parent)
    record = {**(read_record(claims, path.name) or {}), "ended": False}
    process = {**record["process"], **changes.pop("process", {})}
    write_record(claims, path.name, {**record, "process": process, **changes})


def test_an_interrupted_run_is_resumed(root: Store) -> None:
    first = enter(root)
    with work_folder(root, "same") as folder:
        assert folder.uri == first
        assert (Path(first) / "note").exists()
    assert not Path(first).exists()
    assert not list((Path(root.uri) / "claims").iterdir())


def test_two_runs_at_once_do_not_share_a_folder(root: Store) -> None:
    with work_folder(root, "same") as one, work_folder(root, "same") as two:
        assert one.uri != two.uri
        for folder in (one, two):
            folder.put("note", b"")
    assert not list((Path(root.uri) / "tmp").iterdir())


def test_work_without_a_name_is_not_found_again(root: Store) -> None:
    assert enter(root, None) != enter(root, None)


def test_an_error_in_data_leaves_nothing(root: Store) -> None:
    folder = enter(root)
    with pytest.raises(DataError), work_folder(root, "same"):
        raise DataError("x is null")
    assert not Path(folder).exists()
    assert enter(root) == folder


def test_work_that_cannot_be_removed_is_left_to_a_later_run(
    root: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Store) -> None:
        raise OSError("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "remove", fail)
        with pytest.raises(OSError, match="does not answer"), work_folder(root, "same") as folder:
            folder.put("note", b"")
    assert enter(root) == folder.uri


def test_a_run_whose_process_is_gone_is_dead(root: Store) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    folder = enter(root)
    owned_by(root, process={"pid": int(gone.stdout)})
    assert enter(root) == folder
    # Its number may be used again, by a process that started at another time.
    owned_by(root, process={"started": "1"})
    assert enter(root) == folder


def test_a_run_on_another_machine_lives_while_it_gives_signs(root: Store) -> None:
    folder = enter(root)
    elsewhere = {"host": "elsewhere"}
    owned_by(root, process=elsewhere, at=time.time() - 5)
    assert enter(root) != folder
    (path, *_) = sorted((Path(root.uri) / "claims").iterdir(), key=os.path.getmtime)
    for other in (Path(root.uri) / "claims").iterdir():
        if other != path:
            other.unlink()
    owned_by(root, process=elsewhere, at=time.time() - leases.SECONDS - 1)
    assert enter(root) == folder


CHILD = """
import sys
from windrow.storage.store import Store
from windrow.storage.work import work_folder

with work_folder(Store.at(sys.argv[1]), "same") as folder:
    folder.put("note", b"")
    print(folder.uri, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("silent", [0, 3600])
def test_a_stopped_run_is_not_a_dead_one(root: Store, silent: float) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", CHILD, root.uri]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        folder = child.stdout.readline().strip()
        os.kill(child.pid, signal.SIGSTOP)
        try:
            owned_by(root, at=time.time() - silent)  # it has given no sign for so long
            with work_folder(root, "same") as other:
                assert other.uri != folder
        finally:
            os.kill(child.pid, signal.SIGCONT)
        child.communicate()
    assert child.returncode == 0
    assert not Path(folder).exists()


def test_a_killed_run_leaves_its_folder_to_the_next(root: Store) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", CHILD, root.uri]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        folder = child.stdout.readline().strip()
        child.kill()
    assert enter(root) == folder


def test_what_nobody_comes_back_to_is_removed(root: Store) -> None:
    folder = enter(root)
    owned_by(root, at=time.time() - work.KEPT_SECONDS + 60, ended=True)
    with work_folder(root, "other"):
        assert Path(folder).exists()
    owned_by(root, at=time.time() - work.KEPT_SECONDS - 60, ended=True)
    with work_folder(root, "other"):
        assert not Path(folder).exists()
    assert not list((Path(root.uri) / "claims").iterdir())
