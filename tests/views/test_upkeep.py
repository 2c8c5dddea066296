"""What a project does beside its ticks: upkeep, closing, and removing what dead processes left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.errors import StorageError
from windrow.storage.leases import claim
from windrow.storage.store import Store
from windrow.views.engine import engine
from windrow.views.history.history import History
from windrow.views.run.jobs import JobFolders

VIEW = "CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM t GROUP BY k"


def test_ticks_upkeep_and_close(tmp_path: Path, spark: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(engine, "UPKEEP_TICKS", 2)
    done: list[str] = []
    monkeypatch.setattr(History, "sweep", lambda self, hours: done.append("sweep") or [])

    def maintain(self: History) -> None:
        done.append("maintain")
        if done.count("maintain") == 3:
            raise StorageError("the store does not answer")

    monkeypatch.setattr(History, "maintain", maintain)
    with windrow.Project(tmp_path, spark=spark) as project:
        project.sql("CREATE TABLE t (k INT)")
        project.sql(VIEW)
        already = project._statements.views._ticker.committed  # creating a view ticks, too
        for k in range(6 - already):
            project.sql(f"INSERT INTO t VALUES ({k})")
            project.tick()
            project.tick()  # nothing to do, nothing to count
        assert done == ["maintain", "sweep", "maintain", "maintain"][-len(done) :]
        assert done.count("sweep") == 1
        assert Store.at(tmp_path / "tmp").folders()
    assert Store.at(tmp_path / "tmp").folders() == []
    assert Store.at(tmp_path / "claims").names() == []
    history = History(Store.at(tmp_path))
    assert not any(entry.pending for entry in history._state.collections.values())
    project.sql("INSERT INTO t VALUES (0)")  # opens itself again
    project.tick()
    rows = {row.k: row.n for row in project.read("counted").collect()}
    assert rows == {0: 2, **dict.fromkeys(range(1, 6 - already), 1)}
    project.close()
    project.close()


def test_folders_of_dead_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Store.at(tmp_path)
    dead, live = JobFolders(root), JobFolders(root)
    for one in (dead, live):
        one.new().put("run.json", b"{}")
    assert dead._lease is not None
    dead._lease.end()  # as if its process had ended
    backfill = claim(root.beneath("claims"), "some backfill")
    assert backfill is not None
    backfill.end()  # the work of others, who may resume it
    root.beneath("tmp/some backfill").put("queries", b"")
    assert live.sweep(hours=24) == []
    removed = live.sweep(hours=0)
    assert len(removed) == 1
    assert len(root.beneath("tmp").folders()) == 2
    assert len(root.beneath("claims").names()) == 2
    live.close()
    assert root.beneath("tmp").folders() == ["some backfill"]
