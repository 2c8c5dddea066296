"""What a backfill finds done already: arrangements grow with their files, and are built once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg
from windrow.arrangements import build
from windrow.arrangements import find as arrangements
from windrow.features import limits
from windrow.features.plan.arrangement import PlannedArrangement
from windrow.features.run import backfill as run
from windrow.shard.shard import Shard

DAY = 86_400_000
STAMP = pa.timestamp("ms", "UTC")


class Site:
    """A folder of events by day, a file of queries, and a project."""

    def __init__(self, spark: Any, root: Path) -> None:
        self.root = root
        self.project = wr.Project(root / "state", spark=spark)
        self.events: dict[tuple[int, str], list[int]] = {}
        self.day(0)
        self.ask([5 * DAY])

    def day(self, day: int, values: tuple[int, ...] = (1, 2, 3), name: str = "part") -> None:
        """Write the events of a day, in place of those of the same name."""
        folder = self.root / "events" / f"ds=1970-01-{day + 1:02}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.parquet"
        before = path.stat().st_mtime_ns if path.exists() else 0
        times = pa.array([day * DAY + i for i in range(len(values))], STAMP)
        keys = pa.array([1] * len(values), pa.int64())
        pq.write_table(pa.table({"k": keys, "x": pa.array(values, pa.int64()), "ts": times}), path)
        os.utime(path, ns=(before + 1_000_000, before + 1_000_000))
        self.events[day, name] = list(values)

    def drop(self, day: int) -> None:
        (self.root / "events" / f"ds=1970-01-{day + 1:02}" / "part.parquet").unlink()
        del self.events[day, "part"]

    def ask(self, times: list[int]) -> None:
        table = pa.table(
            {"k": pa.array([1] * len(times), pa.int64()), "ts": pa.array(times, STAMP)}
        )
        pq.write_table(table, self.root / "queries.parquet")

    def join(self, *aggregations: Any, name: str = "j", **options: Any) -> wr.Join:
        source = wr.EventSource("views", str(self.root / "events"), time="ts", **options)
        group = wr.GroupBy("g", source, ["k"], aggregations or [agg.sum("x")])
        return wr.Join(name, wr.Queries(str(self.root / "queries.parquet"), time="ts"), [group])

    def generations(self) -> list[Path]:
        """The arrangements that are kept."""
        return list((self.root / "state" / "arrangements").glob("*/*"))

    def run(self, join: wr.Join | None = None, strategy: str = "merge") -> tuple[list[Any], int]:
        """The features of all queries, and the raw rows that were read for them."""
        join = join or self.join()
        rows = self.project.backfill(join, strategy=strategy).collect()
        assert self.project.summary is not None
        column = join.groups[0].column(join.groups[0].group.features[0])
        return [row[column] for row in rows], self.project.summary.raw_rows_read

    def total(self) -> int:
        return sum(sum(values) for values in self.events.values())

    def plan(self, join: wr.Join | None = None) -> str:
        return str(self.project.plan(join or self.join(), strategy="merge"))


@pytest.fixture
def site(spark: Any, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


def test_new_partitions_are_arranged_once(site: Site) -> None:
    assert "build views-" in site.plan()
    assert "(not there yet)" in site.plan()
    assert site.run() == ([site.total()], 3)
    assert "(its inputs have not changed)" in site.plan()
    assert site.run() == ([site.total()], 0)
    site.day(1, (10, 20))
    site.day(2, (100,))
    plan = site.plan()
    assert "extend views-" in plan
    assert "(2 new files)" in plan
    assert "2 files, " in plan
    assert site.run() == ([site.total()], 3)
    assert site.run() == ([site.total()], 0)
    site.day(0, (7,), name="late")  # a late file in an old partition
    assert site.run() == ([site.total()], 1)
    assert len(list((site.root / "state" / "arrangements").iterdir())) == 1


def test_other_queries_windows_and_joins_read_no_raw_events(site: Site) -> None:
    site.run()
    site.ask([5 * DAY, DAY, 2])
    found, raw = site.run()
    assert sorted(found) == [3, 6, 6]
    assert raw == 0
    found, raw = site.run(site.join(agg.max("x").over("7d"), name="other"))
    assert (sorted(found), raw) == ([2, 3, 3], 0)
    # Another input, another key or another condition is another arrangement.
    assert site.run(site.join(agg.count("k")))[1] == 3


def test_a_changed_file_is_read_again_and_nothing_else(site: Site) -> None:
    for day in (1, 2, 3, 5, 6, 7):
        site.day(day)
    site.ask([9 * DAY])
    site.run()
    site.day(0, (50, 60))
    assert "extend views-" in site.plan()
    assert "(1 file rewritten or removed)" in site.plan()
    assert site.run() == ([site.total()], 2)
    site.drop(1)
    site.day(4)
    assert "(1 new file and 1 file rewritten or removed)" in site.plan()
    assert site.run() == ([site.total()], 3)
    assert site.run() == ([site.total()], 0)
    site.drop(2)
    assert site.run() == ([site.total()], 0)
    assert len(site.generations()) == 1


def test_an_arrangement_of_which_most_has_changed_is_rebuilt(site: Site) -> None:
    site.day(1)
    site.run()
    site.drop(0)
    site.day(1, (50, 60))
    assert "build views-" in site.plan()
    assert "(most of its files were rewritten or removed)" in site.plan()
    assert site.run() == ([site.total()], 2)
    assert len(site.generations()) == 1  # what cannot be used again is gone


def test_changes_that_add_up_are_compacted_away(site: Site) -> None:
    for day in (1, 2, 3):
        site.day(day)
    site.run()
    actions = []
    for value in range(4):
        site.day(0, (value, value))
        (one,) = site.project.plan(site.join(), strategy="merge").arrangements
        actions.append(one.todo.action)
        assert site.run()[0] == [site.total()]
    assert actions == ["extend"] * 4
    (generation,) = site.generations()
    stats = Shard.open(generation).stats()
    assert (stats.rows, stats.retractions) == (11, 0)


def test_partitions_out_of_range_are_not_read(site: Site) -> None:
    for day in (1, 2, 3):
        site.day(day)
    options = {"partition": "ds", "start_partition": "1970-01-02", "end_partition": "1970-01-03"}
    assert site.run(site.join(**options)) == ([12], 6)
    options["end_partition"] = "1970-01-04"
    assert "extend" in site.plan(site.join(**options))
    assert site.run(site.join(**options)) == ([18], 3)
    # Of a smaller range all is there: the rest is left out.
    options["start_partition"] = "1970-01-03"
    assert site.run(site.join(**options)) == ([12], 0)
    options["start_partition"] = "1970-01-02"
    assert site.run(site.join(**options)) == ([18], 0)
    options |= {"start_partition": "1970-01-01", "end_partition": "1970-01-02"}
    assert site.run(site.join(**options)) == ([12], 3)
    assert site.run(site.join(**options), strategy="tiles") == ([12], 0)
    assert site.run() == ([24], 0)
    assert len(site.generations()) == 1


def test_runs_are_merged_once_there_are_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "RUNS", 4)
    runs = []
    for day in range(1, 8):
        site.day(day)
        site.ask([9 * DAY])
        assert site.run() == ([site.total()], 6 if day == 1 else 3)
        (generation,) = site.generations()
        runs.append(Shard.open(generation).stats().runs)
    assert max(runs) <= 4
    # Rows know their file after that, too.
    site.day(3, (1_000, 2_000))
    assert site.run() == ([site.total()], 2)
    assert site.run(strategy="tiles") == ([site.total()], 0)


def test_a_log_of_mutations_that_is_rewritten(site: Site) -> None:
    """Deletions of a day come to nothing when its file is replaced."""
    log = site.root / "log"
    log.mkdir()

    def write(day: int, rows: list[tuple[int, int, bool]]) -> None:
        table = pa.table(
            {
                "k": pa.array([1] * len(rows), pa.int64()),
                "x": pa.array([x for x, _, _ in rows], pa.int64()),
                "ts": pa.array([ts for _, ts, _ in rows], STAMP),
                "mutation_ts": pa.array([day * DAY] * len(rows), STAMP),
                "is_before": [before for _, _, before in rows],
            }
        )
        pq.write_table(table, log / f"{day}.parquet")

    rows = [(x, x, False) for x in range(10)]
    for day in range(5):
        write(day, rows[2 * day : 2 * day + 2])
    source = wr.EntitySource("log", "ts", mutations=str(log), mutation_time="mutation_ts")
    join = wr.Join(
        "m",
        wr.Queries(str(site.root / "queries.parquet"), time="ts"),
        [wr.GroupBy("g", source, ["k"], [agg.sum("x"), agg.max("x")])],
    )
    site.ask([9 * DAY])
    assert site.run(join) == ([45], 10)
    write(5, [(9, 9, True), (8, 8, True), (100, 7, False)])
    assert site.run(join) == ([128], 3)
    write(5, [(0, 0, True)])
    assert site.run(join) == ([45], 1)
    # What is left out of the arrangement is not left out of rows that are read for this run alone.
    assert site.run(join, strategy="broadcast") == ([45], 11)


def test_files_that_spark_reads_together_are_left_out_together(site: Site) -> None:
    for day in (1, 2, 3):
        site.day(day)
    ranged = {"where": "x > 0", "partition": "ds"}
    assert site.run(site.join(**ranged)) == ([24], 12)
    # Their rows cannot be told apart, so a part of them is another arrangement.
    assert site.run(site.join(**ranged, end_partition="1970-01-02")) == ([12], 6)
    assert site.run(site.join(**ranged)) == ([24], 0)
    assert site.run(site.join(**ranged, end_partition="1970-01-02")) == ([12], 0)
    site.day(4, (7, 7, 7, 7, 7, 7, 7, 7, 7))
    assert site.run(site.join(**ranged)) == ([24 + 63], 9)
    site.day(4, (9,))
    assert site.run(site.join(**ranged))[0] == [24 + 9]


def test_files_that_spark_reads_are_taken_in_too(site: Site) -> None:
    join = site.join(where="x > 1")
    assert site.run(join)[0] == [5]
    site.day(1, (1, 10))
    assert "(1 new file)" in site.plan(join)
    assert site.run(join) == ([15], 1)


def test_an_interrupted_arrangement_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangements, "STEP_ROWS", 1)  # an append per file
    for day in (1, 2, 3):
        site.day(day)
    appended = []
    real = build.Builder.append

    def stop_at_third(*arguments: Any) -> None:
        if len(appended) == 2:
            raise KeyboardInterrupt
        real(*arguments)
        appended.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(build.Builder, "append", stop_at_third)
        with pytest.raises(KeyboardInterrupt):
            site.run()
    plan = site.project.plan(site.join(), strategy="merge")
    (one,) = plan.arrangements
    assert isinstance(one, PlannedArrangement)
    assert (one.todo.done, len(one.todo.manifest.steps)) == (2, 4)
    assert "(interrupted before)" in str(plan)
    assert site.run() == ([site.total()], 6)
    # The same while it is extended.
    site.day(4)
    site.day(5)
    appended[:] = [1]
    with monkeypatch.context() as patch:
        patch.setattr(build.Builder, "append", stop_at_third)
        with pytest.raises(KeyboardInterrupt):
            site.run()
    assert site.run() == ([site.total() - 6], 3)


def test_files_that_change_while_an_arrangement_is_half_done(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrangements, "STEP_ROWS", 1)
    site.day(1)
    real = build.Builder.append
    appended = []

    def stop_at_second(*arguments: Any) -> None:
        if appended:
            raise KeyboardInterrupt
        real(*arguments)
        appended.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(build.Builder, "append", stop_at_second)
        with pytest.raises(KeyboardInterrupt):
            site.run()
    site.day(0, (500,))
    assert site.run()[0] == [site.total()]


def test_an_interrupted_computation_goes_on_after_the_last_slice(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(limits, "SLICE_ROWS", 40)
    rows = 400
    keys = pa.array([i % 50 for i in range(rows)], pa.int64())
    times = pa.array([i * 1000 for i in range(rows)], STAMP)
    pq.write_table(pa.table({"k": keys, "ts": times}), tmp_path / "events.parquet")
    pq.write_table(
        pa.table({"k": keys.slice(0, 60), "ts": times.slice(300, 60)}), tmp_path / "queries.parquet"
    )
    source = wr.EventSource("e", str(tmp_path / "events.parquet"), time="ts")
    join = wr.Join(
        "j",
        wr.Queries(str(tmp_path / "queries.parquet"), time="ts"),
        [wr.GroupBy("g", source, ["k"], [agg.count("k")])],
        derive={"twice": "g_k_count * 2"},
    )
    project = wr.Project(tmp_path / "state", spark=spark)
    expected = sorted(map(tuple, project.backfill(join, strategy="merge").collect()))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "read_result", interrupted)  # slices are done, nothing is committed
        with pytest.raises(KeyboardInterrupt):
            project.backfill(join, strategy="merge")
    (work,) = (tmp_path / "state" / "tmp").iterdir()
    (notes,) = work.glob("done-*")
    one = sorted(notes.iterdir())[0]
    one.write_text(one.read_text()[:20])  # a note that was being written
    found = project.backfill(join, strategy="merge")
    assert sorted(map(tuple, found.collect())) == expected
    assert project.summary is not None
    assert project.summary.slices_resumed >= 3
    assert project.summary.queries == 60
    assert not list((tmp_path / "state" / "tmp").iterdir())


@pytest.mark.parametrize("where", [None, "x > 0"])
def test_tables_of_the_catalogue_are_watched_by_their_files(
    spark: Any, tmp_path: Path, where: str | None
) -> None:
    name = f"reuse_{'tasks' if where is None else 'spark'}"
    spark.sql(f"DROP TABLE IF EXISTS {name}")

    def add(day: int, values: list[int]) -> None:
        rows = [(1, x, day * DAY + i, f"1970-01-{day + 1:02}") for i, x in enumerate(values)]
        frame = spark.createDataFrame(rows, "k long, x long, ts long, ds string")
        path = f"{tmp_path}/table"
        frame.write.mode("append").format("parquet").partitionBy("ds").saveAsTable(name, path=path)

    add(0, [1, 2, 3])
    pq.write_table(pa.table({"k": [1], "ts": [9 * DAY]}), tmp_path / "queries.parquet")
    left = wr.Queries(str(tmp_path / "queries.parquet"), time="ts")

    def run(table: str) -> tuple[int, int]:
        source = wr.EventSource("t", table, time="ts", partition="ds", where=where)
        join = wr.Join("j", left, [wr.GroupBy("g", source, ["k"], [agg.sum("x")])])
        (row,) = project.backfill(join, strategy="merge").collect()
        assert project.summary is not None
        return row.g_x_sum, project.summary.raw_rows_read

    project = wr.Project(tmp_path / "state", spark=spark)
    try:
        assert run(name) == (6, 3)
        assert run(name) == (6, 0)
        add(1, [10])
        assert run(name) == (16, 1)
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {name}_view AS SELECT * FROM {name}")
        assert run(f"{name}_view") == (16, 4)
        assert run(f"{name}_view") == (16, 4)  # a view may be another one next time
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
