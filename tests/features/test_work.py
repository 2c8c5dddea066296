"""The folder of a backfill at work: one run at a time, found again after an interruption."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windrow.errors import DataError
from windrow.storage import work
from windrow.storage.store import Store
from windrow.storage.work import work_folder


@pytest.fixture
def root(tmp_path: Path) -> Store:
    return Store.at(tmp_path)


def enter(root: Store, name: str | None = "same") -> str:
    """Do some work and be interrupted; where it was."""
    with contextlib.suppress(KeyboardInterrupt), work_folder(root, name) as folder:
        (Path(folder.uri) / "note").touch()
        raise KeyboardInterrupt
    return folder.uri


def owned_by(folder: str, **changes: object) -> None:
    path = Path(folder) / "owner.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ended": False, **changes}))


def test_an_interrupted_run_is_gone_on_with(root: Store) -> None:
    first = enter(root)
    with work_folder(root, "same") as folder:
        assert folder.uri == first
        assert (Path(first) / "note").exists()
    assert not Path(first).exists()


def test_two_runs_at_once_do_not_share_a_folder(root: Store) -> None:
    with work_folder(root, "same") as one, work_folder(root, "same") as two:
        assert one.uri != two.uri
        assert Path(one.uri).exists()
        assert Path(two.uri).exists()
    assert not list((Path(root.uri) / "tmp").iterdir())


def test_work_without_a_name_is_not_found_again(root: Store) -> None:
    assert enter(root, None) != enter(root, None)


def test_an_error_in_data_leaves_nothing(root: Store) -> None:
    with pytest.raises(DataError), work_folder(root, "same") as folder:
        raise DataError("x is null")
    assert not Path(folder.uri).exists()


def test_a_run_whose_process_is_gone_is_dead(root: Store) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    folder = enter(root)
    owned_by(folder, pid=int(gone.stdout))
    assert enter(root) == folder


def test_a_run_on_another_machine_lives_while_it_gives_signs(root: Store) -> None:
    folder = enter(root)
    owned_by(folder, host="elsewhere", at=time.time() - 5)
    assert enter(root) != folder
    owned_by(folder, host="elsewhere", at=time.time() - work.SILENT_SECONDS - 1)
    assert enter(root) == folder
    (Path(folder) / "owner.json").write_text('{"run": "half wri')
    assert enter(root) == folder


def test_a_run_gives_signs_of_life(root: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "BEAT_SECONDS", 0.01)
    with work_folder(root, "same") as folder:
        path = Path(folder.uri) / "owner.json"
        path.unlink()
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline


def test_what_nobody_comes_back_to_is_removed(root: Store) -> None:
    folder = enter(root)
    owned_by(folder, at=time.time() - work.KEPT_SECONDS + 60, ended=True)
    enter(root, "other")
    assert Path(folder).exists()
    owned_by(folder, at=time.time() - work.KEPT_SECONDS - 60, ended=True)
    enter(root, "other")
    assert not Path(folder).exists()
