"""Backfills whose processes die, in local mode and on a cluster: no row is lost, wrong or twice.

A project's rows are compared with those of an undisturbed backfill in local mode, which are
compared with plain loops.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_processes import BUCKET, Cluster, Drivers, Gate, Program, runs, wait_for
from deltalake import DeltaTable

from feature_oracle import feature
from windrow.arrangements import find as arrangements
from windrow.cli import main
from windrow.features import limits
from windrow.features.strategies.slices import SliceTarget, write_file
from windrow.spark.tasks import Written
from windrow.storage.records import read_record
from windrow.storage.store import Store
from windrow.workspace import Workspace

START, HOUR = 1_630_000_000_000, 3_600_000
# SLICE_ROWS; STEP_ROWS, less than two files of views; FEW_QUERIES: all are sorted by a job.
SIZES = (60, 150, 0)
FILES, FILE_ROWS, QUERIES = 3, 100, 60

DEFINITIONS = """
import windrow as wr
from windrow import agg

DATA = {data!r}
views = wr.EventSource(name="views", table=f"{{DATA}}/views", time="ts")
aggregations = [agg.count("n").over("2d"), agg.sum("n"), agg.last_k("n", 3).over("5d")]
users = wr.GroupBy(name="users", source=views, keys=["user"], aggregations=aggregations)
items = wr.GroupBy(name="items", source=views, keys=["item"], aggregations=aggregations)
training = wr.Join(
    name="training",
    left=wr.Queries(table=f"{{DATA}}/checkouts.parquet", time="ts"),
    features=[users, items],
)
"""


@dataclass(frozen=True)
class Shop:
    """Views and checkouts, at rest and as rows."""

    folder: Path
    views: pa.Table
    checkouts: pa.Table


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(11)

    def some(rows: int, **more: Any) -> pa.Table:
        times = START + rng.integers(0, 200, rows) * HOUR
        columns = {
            "user": pa.array(rng.integers(0, 25, rows), pa.int64()),
            "item": pa.array([f"item {i}" for i in rng.integers(0, 25, rows)]),
            "ts": pa.array(times, pa.timestamp("ms", "UTC")),
        }
        return pa.table({**columns, **more})

    (folder / "views").mkdir()
    files = [some(FILE_ROWS, n=pa.array(rng.integers(0, 9, FILE_ROWS))) for _ in range(FILES)]
    for number, file in enumerate(files):
        pq.write_table(file, folder / "views" / f"{number}.parquet")
    checkouts = some(QUERIES, id=pa.array(range(QUERIES)))
    pq.write_table(checkouts, folder / "checkouts.parquet")
    return Shop(folder, pa.concat_tables(files), checkouts)


@dataclass(frozen=True)
class Place:
    """A project folder over the shop's data, and where its state rests."""

    folder: Path
    state: Store

    @staticmethod
    def make(
        folder: Path,
        shop: Shop,
        root: str = "state",
        options: dict[str, str] | None = None,
        spark: dict[str, str] | None = None,
    ) -> Place:
        folder.mkdir()
        (folder / "features.py").write_text(DEFINITIONS.format(data=str(shop.folder)))
        lines = [f"root = {json.dumps(root)}", 'definitions = ["features.py"]']
        for name, table in (("storage_options", options), ("spark", spark)):
            lines.append(f"[{name}]")
            lines += [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in (table or {}).items()]
        (folder / "windrow.toml").write_text("\n".join(lines))
        return Place(folder, Store.at(root if "://" in root else folder / root, options))

    def result(self) -> DeltaTable:
        uri = f"{self.state.uri}/results/training"
        return DeltaTable(uri, storage_options=self.state.options_dict)

    def rows(self) -> list[dict[str, Any]]:
        return by_id(self.result().to_pyarrow_table())

    def result_files(self) -> set[str]:
        return {uri.rpartition("/")[2] for uri in self.result().file_uris()}

    def check_log(self) -> None:
        """No commit both adds and removes a file: what that means, readers do not agree on."""
        log = Store.at(f"{self.state.uri}/results/training/_delta_log", self.state.options_dict)
        assert log.names()
        for name in log.names():
            lines = [json.loads(line) for line in log.open_input(name).read().splitlines()]
            added = {line["add"]["path"] for line in lines if "add" in line}
            removed = {line["remove"]["path"] for line in lines if "remove" in line}
            assert not added & removed, name

    def notes(self) -> dict[str, dict[str, Any]]:
        """What is noted of finished slices, by the notes' names."""
        names = [n for n in self.state.names() if n.startswith("tmp/") and "/done-" in n]
        found = {}
        for name in names:
            note = read_record(self.state, name)
            if note is not None:  # else it is being written
                found[name] = note
        return found

    def wait_for_last_pass(self, slices: int) -> dict[str, dict[str, Any]]:
        """The notes, once the first `slices` of the last of two passes are finished."""

        def found() -> dict[str, dict[str, Any]] | None:
            notes = self.notes()
            counts = Counter(name.rpartition("/")[0] for name in notes)
            return notes if len(counts) == 2 and min(counts.values()) == slices else None

        return dict(wait_for(found, f"{slices} finished slices"))

    def temporary(self) -> list[str]:
        return [name for name in self.state.names() if name.startswith("tmp/")]

    def finish(self, spark: Any) -> Any:
        """Backfill in this process; the summary."""
        workspace = Workspace.load(self.folder)
        project = workspace.project()
        assert project.spark is spark
        project.backfill(workspace.join("training"))
        return project.summary


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def noted_files(notes: dict[str, dict[str, Any]]) -> set[str]:
    return {part["path"] for note in notes.values() for part in note["parts"]}


@pytest.fixture
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes that drivers have, in this process too."""
    monkeypatch.setattr(limits, "SLICE_ROWS", SIZES[0])
    monkeypatch.setattr(limits, "FEW_QUERIES", SIZES[2])
    monkeypatch.setattr(arrangements, "STEP_ROWS", SIZES[1])


@pytest.fixture(scope="module")
def expected(spark: Any, shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rows, in local mode and undisturbed; the same as by plain loops."""
    place = Place.make(tmp_path_factory.mktemp("undisturbed") / "project", shop)
    place.finish(spark)
    rows = place.rows()
    assert [row["id"] for row in rows] == list(range(QUERIES))
    millis = pa.int64()
    events = shop.views.append_column("time", shop.views["ts"].cast(millis)).to_pylist()
    times = by_id(shop.checkouts.append_column("time", shop.checkouts["ts"].cast(millis)))
    for row, query in zip(rows, times, strict=True):
        for key in ("user", "item"):
            for name, window in (("count_2d", ("sawtooth", 48 * HOUR, HOUR)), ("sum", None)):
                want = feature(
                    events,
                    {key: row[key]},
                    query["time"],
                    name=name.partition("_")[0],
                    column="n",
                    window=window or ("lifetime", None, None),
                )
                assert row[f"{key}s_n_{name}"] == want
    return rows


def test_a_finished_slice_is_computed_again_if_its_file_is_gone(tmp_path: Path) -> None:
    stores = [Store.at(tmp_path / name) for name in ("result", "quarantine", "notes")]
    target = SliceTarget("run", *stores)
    for number in range(3):
        part = write_file(stores[0], pa.table({"n": [number]}), "run")
        rejected = write_file(stores[1], pa.table({"n": [number]}), "run")
        target.finished(number, Written([part], 0, {"queries": 1}, [rejected]))
    done = target.done()
    assert sorted(done) == [0, 1, 2]
    stores[0].delete([done[0].parts[0].path])
    stores[1].delete([done[1].rejected[0].path])
    with stores[2].open_output("3.json") as out:
        out.write(b'{"parts": [')  # by a process that died
    assert target.done() == {2: done[2]}


# Where a run dies, and what `windrow plan` says then. Views are arranged twice, by user and by
# item, each time in FILES steps; queries are sorted twice.
DEATHS = {
    "append 1": ["views (2 files", "extend views-", "interrupted before", "build views-"],
    f"append {2 * FILES}": ["use views-"],
    "compute 1": ["use views-"],
    "before commit": ["use views-"],
    "after commit": ["use views-"],
}


@dataclass(frozen=True)
class Interrupted:
    """A backfill in local mode that waits at a step to be killed."""

    place: Place
    driver: Program
    gate: Gate
    first: int  # slices before this one are finished, in the last pass

    def kill(self) -> None:
        self.gate.wait_for(1, self.driver)
        if self.first:
            self.place.wait_for_last_pass(self.first)
        self.driver.kill()


@pytest.fixture(scope="module")
def interrupted(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Interrupted]]:
    """One for each; they start together, since each start takes seconds."""
    found = {}
    with Drivers.made(tmp_path_factory.mktemp("drivers")) as drivers:
        for step in DEATHS:
            folder = tmp_path_factory.mktemp("interrupted")
            place, gate = Place.make(folder / "project", shop), Gate.make(folder)
            first = 3 if step.startswith("compute") else 0
            driver = drivers.start(
                projects=[str(place.folder)],
                sizes=SIZES,
                stop=step,
                first=first,
                gate=str(gate.folder),
            )
            found[step] = Interrupted(place, driver, gate, first)
        yield found


@pytest.mark.usefixtures("_small_sizes")
@pytest.mark.parametrize("step", DEATHS)
def test_the_driver_is_killed_in_local_mode(
    interrupted: dict[str, Interrupted],
    spark: Any,
    expected: Any,
    capsys: pytest.CaptureFixture[str],
    step: str,
) -> None:
    interrupted[step].kill()
    place, first = interrupted[step].place, interrupted[step].first
    notes = place.notes()
    assert main(["plan", "--project", str(place.folder)]) == 0
    printed = capsys.readouterr().out
    for text in DEATHS[step]:
        assert text in printed
    if step != "append 1":
        assert "build" not in printed
        assert "interrupted before" not in printed
    resumed = f"  resume   after {len(notes)} slices of an interrupted run\n"
    assert (resumed in printed) if notes else ("resume" not in printed)
    summary = place.finish(spark)
    assert place.rows() == expected
    assert summary.queries == QUERIES
    assert summary.slices_resumed == len(notes)
    steps_left = 2 * FILES - 1 if step == "append 1" else 0
    assert summary.raw_rows_read == steps_left * FILE_ROWS
    kept = noted_files(notes) & place.result_files()
    assert len(kept) == (len(place.result_files()) if "commit" in step else first)
    place.check_log()
    assert place.temporary() == []


def test_a_cluster_gives_the_rows_of_local_mode(
    shop: Shop,
    expected: Any,
    cluster: Cluster,
    drivers: Drivers,
    s3_options: dict[str, str],
    tmp_path: Path,
) -> None:
    spark = cluster.settings()
    folder = Place.make(tmp_path / "folder", shop, spark=spark)
    s3 = Place.make(tmp_path / "s3", shop, f"s3://{BUCKET}/plain", s3_options, spark)
    drivers.run(projects=[str(folder.folder), str(s3.folder)], sizes=SIZES)
    for place in (folder, s3):
        assert place.rows() == expected
        assert place.temporary() == []


def test_the_driver_of_a_cluster_is_killed(
    shop: Shop,
    expected: Any,
    cluster: Cluster,
    drivers: Drivers,
    gate: Gate,
    s3_options: dict[str, str],
    tmp_path: Path,
) -> None:
    root = f"s3://{BUCKET}/driver"
    place = Place.make(tmp_path / "project", shop, root, s3_options, cluster.settings())
    work = {"projects": [str(place.folder)], "sizes": SIZES}
    driver = drivers.start(**work, stop="compute 1", first=3, gate=str(gate.folder))
    waiting = gate.wait_for(2, driver)
    before = place.wait_for_last_pass(3)
    driver.kill()
    # Its executors end with it: what they were at is not finished behind our back.
    wait_for(lambda: not any(map(runs, waiting)), "the end of its tasks")
    (summary,) = drivers.run(**work)
    assert place.rows() == expected
    assert summary["slices_resumed"] == len(before) > 3
    assert len(noted_files(before) & place.result_files()) == 3  # they were not computed again
    assert len(place.result_files()) > 3
    assert place.temporary() == []


def test_a_worker_is_killed(
    shop: Shop, expected: Any, cluster: Cluster, drivers: Drivers, gate: Gate, tmp_path: Path
) -> None:
    place = Place.make(tmp_path / "project", shop, spark=cluster.settings())
    driver = drivers.start(
        projects=[str(place.folder)],
        sizes=SIZES,
        stop="compute 1",
        first=3,
        gate=str(gate.folder),
    )
    waiting = gate.wait_for(2, driver)
    before = place.wait_for_last_pass(3)
    killed = cluster.kill_worker(cluster.workers[0])
    assert len(waiting & killed) == 1  # each worker was at a slice
    gate.open()
    (summary,) = drivers.summaries(driver)
    assert place.rows() == expected
    assert summary["queries"] == QUERIES
    assert summary["slices_resumed"] == 0
    assert len(noted_files(before) & place.result_files()) == 3
    assert place.temporary() == []


VIEWS = {
    "totals": "SELECT g, count(*) AS n, sum(v) AS s, max(v) AS m FROM t GROUP BY g",
    "pairs": "SELECT t.g, t.v, u.w FROM t LEFT JOIN u ON t.g = u.g",
    "ranks": "SELECT g, v, rank() OVER (PARTITION BY g ORDER BY v) AS r FROM t",
}
STATEMENTS = [
    "CREATE TABLE t (g INT, v INT)",
    "CREATE TABLE u (g INT, w INT)",
    "INSERT INTO t SELECT id % 7, id FROM range(60)",
    "INSERT INTO u SELECT id, id * id FROM range(5)",
    *(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in VIEWS.items()),
    "DELETE FROM t WHERE v % 3 = 0",
    "UPDATE u SET w = w + 1 WHERE g < 3",
    "INSERT INTO u VALUES (6, 60)",
    "TICK",
]


def test_a_worker_is_killed_during_a_tick(
    spark: Any, shop: Shop, cluster: Cluster, drivers: Drivers, gate: Gate, tmp_path: Path
) -> None:
    import windrow

    place = Place.make(tmp_path / "project", shop, spark=cluster.settings())
    driver = drivers.start(
        projects=[str(place.folder)],
        statements=STATEMENTS,
        stop=len(STATEMENTS) - 1,
        gate=str(gate.folder),
    )
    waiting = gate.wait_for(2, driver)
    killed = cluster.kill_worker(cluster.workers[0])
    assert waiting & killed
    gate.open()
    (ticked,) = drivers.summaries(driver)
    assert set(ticked["changes"]) == set(VIEWS)
    project = windrow.Project(place.state.uri, spark=spark, progress=False)
    for name, query in VIEWS.items():
        found, wanted = project.read(name), project.sql(query)
        assert wanted is not None
        assert Counter(found.collect()) == Counter(wanted.collect())
