"""`windrow tick` and `windrow run`: views follow files and tables."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from windrow.cli import main
from windrow.commands.run import Stop, run, tick

WAIT = 120.0  # seconds, at most


@pytest.fixture
def project(spark: Any, tmp_path: Path) -> wr.Project:
    project = wr.Project(tmp_path / "state", spark=spark)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text('{"id": 1}\n')
    project.sql(f"CREATE TABLE s (id INT) USING json LOCATION '{tmp_path / 'data'}'")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT sum(id) AS total FROM s")
    return project


def total(project: wr.Project) -> int:
    project._statements.history.refresh()
    return int(project.read("v").collect()[0][0])


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_one_tick(project: wr.Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data" / "b.json").write_text('{"id": 2}\n')
    tick(project)
    assert capsys.readouterr().out.startswith("1 changes in, 2 out, 1 view, ")
    assert total(project) == 3
    tick(project)
    assert capsys.readouterr().out.startswith("no changes")


def test_views_follow_files(
    spark: Any, project: wr.Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = wr.Project(tmp_path / "state", spark=spark)  # as another process would
    stop, watched = Stop(), project
    thread = threading.Thread(target=run, args=(watched, 0.02, stop))
    thread.start()
    try:
        (tmp_path / "data" / "b.json").write_text('{"id": 2}\n')
        until(lambda: total(seen) == 3)
        bad = tmp_path / "data" / "c.json"
        bad.write_text('{"id": \n')
        time.sleep(1)
        bad.unlink()
        (tmp_path / "data" / "a.json").unlink()
        until(lambda: total(seen) == 2)
    finally:
        stop.asked = True
        thread.join(WAIT)
    said = capsys.readouterr()
    assert len([line for line in said.out.splitlines() if "1 view" in line]) == 2
    assert said.err.count("c.json") <= 1  # it is told once, if it was there for long enough


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it(project: wr.Project, how: signal.Signals) -> None:
    before = signal.getsignal(how)
    killer = threading.Timer(0.5, os.kill, (os.getpid(), how))
    killer.start()
    run(project, every=60)  # returns at once, and not after a minute
    killer.join()
    assert signal.getsignal(how) is before


@pytest.mark.parametrize("every", ["0", "soon", "-1"])
def test_times_that_are_none(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--every", every])
    assert "is not a number of seconds" in capsys.readouterr().err
