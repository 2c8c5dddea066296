"""Sources that are defined in Python, of every kind: random histories against a plain replay."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import windrow as wr
from windrow.errors import DataError, RelationExistsError, SchemaError
from windrow.shard import Shard
from windrow.views.sources.files import SourceFiles

Row = tuple[Any, ...]  # k, v, ts
ROWS = pa.schema([("k", pa.string()), ("v", pa.float64()), ("ts", pa.int64())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def project(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[wr.Project]:
    with wr.Project(tmp_path_factory.mktemp("state"), spark=spark) as found:
        yield found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were handed to Spark's reader, by their names."""
    found: list[str] = []
    plain = SourceFiles.read

    def reading(self: SourceFiles, *given: Any) -> Any:
        found.extend(place.removeprefix(f"{self.store.uri}/") for place in given[2])
        return plain(self, *given)

    monkeypatch.setattr(SourceFiles, "read", reading)
    return found


def put(file: Path, rows: Sequence[Row], more: dict[str, tuple[pa.DataType, list[Any]]]) -> None:
    """Write, or rewrite, a Parquet file of rows with some more columns."""
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {f.name: pa.array([r[i] for r in rows], f.type) for i, f in enumerate(ROWS)}
    columns |= {name: pa.array(values, type_) for name, (type_, values) in more.items()}
    pq.write_table(pa.table(columns), file)
    put.clock += 1_000_000_000  # type: ignore[attr-defined]
    at = file.stat().st_mtime_ns + put.clock  # type: ignore[attr-defined]
    os.utime(file, ns=(at, at))  # clocks of file systems are coarse


put.clock = 0  # type: ignore[attr-defined]


def some_row(rng: random.Random) -> Row:
    value = rng.choice([0.0, -0.0, 1.5, float("nan"), None])
    return rng.choice(["a", "b", None]), value, rng.randrange(2)


def plain(row: Sequence[Any]) -> str:
    """Rows that Spark takes for equal have one text."""
    return repr(tuple(0.0 if value == 0 else value for value in row))


def check(project: wr.Project, name: str, net: Counter[str], timeless: int = 0) -> None:
    """The relation, the view over it and the quarantine are what a replay gives."""
    done = project.tick()
    rows = [tuple(row) for row in project.read(name).collect()]
    assert Counter(map(plain, rows)) == +net
    counts = Counter(row[0] for row in rows)
    assert {row["k"]: row["n"] for row in project.read(f"{name}_keys").collect()} == dict(counts)
    left: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for row in project.quarantine(name).collect():
        left[row["reason"].endswith("is null")][plain(row[:3])] += row["times"]
    assert left[False] == -net
    assert left[True].total() == timeless
    assert done.quarantined == (-net).total() + timeless


def define(project: wr.Project, name: str, source: wr.EventSource | wr.EntitySource) -> None:
    project.source(name, source)
    project.sql(
        f"CREATE MATERIALIZED VIEW {name}_keys AS SELECT k, count(*) AS n FROM {name} GROUP BY k"
    )


def forget(project: wr.Project, name: str) -> None:
    project.sql(f"DROP MATERIALIZED VIEW {name}_keys")
    project.sql(f"DROP TABLE {name}")


# Change feeds and logs of mutations

Change = tuple[Row, int, int | None]  # the row, its sign, its time


def put_changes(file: Path, changes: Sequence[Change]) -> None:
    types = [("insert", "update_postimage"), ("delete", "update_preimage")]
    stamps = [None if at is None else EPOCH + timedelta(milliseconds=at) for _, _, at in changes]
    names = [types[sign < 0][i % 2] for i, (_, sign, _) in enumerate(changes)]
    put(
        file,
        [row for row, _, _ in changes],
        {
            "_change_type": (pa.string(), names),
            "_commit_timestamp": (pa.timestamp("us", "UTC"), stamps),
            "_commit_version": (pa.int64(), list(range(len(changes)))),
        },
    )


def timeless(files: dict[str, list[Change]]) -> int:
    return sum(at is None for changes in files.values() for _, _, at in changes)


def summed(files: dict[str, list[Change]]) -> Counter[str]:
    net: Counter[str] = Counter()
    for changes in files.values():
        for row, sign, at in changes:
            net[plain(row)] += sign if at is not None else 0
    return net


def some_changes(rng: random.Random, known: Sequence[Row]) -> list[Change]:
    """Insertions, and retractions of what is perhaps there."""
    found: list[Change] = [(some_row(rng), 1, rng.randrange(100)) for _ in range(3)]
    found += [(rng.choice(known), -1, rng.randrange(100)) for _ in range(2) if known]
    found.append((some_row(rng), rng.choice([1, -1]), rng.choice([None, 7])))
    rng.shuffle(found)
    return found


def test_change_feeds(project: wr.Project, tmp_path: Path, read: list[str]) -> None:
    rng = random.Random(1)
    files = {"0.parquet": [(("a", 1.0, 0), 1, 1), (("b", 1.0, 0), -1, 1)]}
    put_changes(tmp_path / "0.parquet", files["0.parquet"])
    define(project, "feed", wr.EntitySource(name="feed", changes=tmp_path, time="ts"))
    check(project, "feed", summed(files))
    assert str(project.tick()).endswith(", 1 in quarantine")
    for step in ["add", "rewrite", "add", "remove"]:
        read.clear()
        known = [row for changes in files.values() for row, _, _ in changes]
        name = f"{len(files)}.parquet" if step == "add" else rng.choice(sorted(files))
        if step == "remove":
            del files[name]
            (tmp_path / name).unlink()
        else:
            files[name] = some_changes(rng, known)
            put_changes(tmp_path / name, files[name])
        check(project, "feed", summed(files), timeless(files))
        assert read == ([] if step == "remove" else [name])
    put_changes(tmp_path / "bad.parquet", [(("a", 1.0, 0), 1, 1)])
    table = pq.read_table(tmp_path / "bad.parquet")
    bad = table.set_column(3, "_change_type", pa.array(["upsert"]))
    pq.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="unknown _change_type: upsert"):
        project.tick()
    (tmp_path / "bad.parquet").unlink()
    forget(project, "feed")


# Snapshots


def day(number: int) -> str:
    return str(date(2024, 5, 1) + timedelta(days=number))


def end_of(number: int) -> int:
    since = datetime(2024, 5, 2, tzinfo=UTC) + timedelta(days=number) - EPOCH
    return since // timedelta(milliseconds=1) - 1


def put_mutations(file: Path, changes: Sequence[Change]) -> None:
    before = [sign < 0 for _, sign, _ in changes]
    put(
        file,
        [row for row, _, _ in changes],
        {
            "is_before": (pa.bool_(), before),
            "mutation_time": (pa.int64(), [at for _, _, at in changes]),
        },
    )


@pytest.mark.parametrize("by_folder", [True, False])
def test_snapshots(project: wr.Project, tmp_path: Path, read: list[str], by_folder: bool) -> None:
    rng = random.Random(2)
    days: dict[int, list[Row]] = {}

    def snapshot(number: int) -> None:
        old = days.get(number) or (days[max(days)] if days else [])
        days[number] = [*rng.sample(old, max(len(old) - 1, 0)), *[some_row(rng) for _ in range(3)]]
        for part in range(2):
            rows = days[number][part::2]
            if by_folder:
                put(tmp_path / f"ds={day(number)}" / f"{part}.parquet", rows, {})
            else:
                named = (pa.string(), [day(number)] * len(rows))
                put(tmp_path / f"{number}-{part}.parquet", rows, {"ds": named})

    def remove(number: int) -> None:
        del days[number]
        if by_folder:
            shutil.rmtree(tmp_path / f"ds={day(number)}")
        else:
            for part in range(2):
                (tmp_path / f"{number}-{part}.parquet").unlink()

    snapshot(1)
    source = wr.EntitySource(name="s", snapshots=str(tmp_path), partition="ds", time="ts")
    define(project, "snaps", source)
    for change, number in [(None, 1), (snapshot, 2), (snapshot, 0), (snapshot, 2), (remove, 2)]:
        read.clear()
        if change is not None:
            change(number)
        check(project, "snaps", Counter(map(plain, days[max(days)])))
        if by_folder and number == 0:
            assert read == []  # it is older than what is there
    if by_folder:
        put(tmp_path / f"ds={day(3)}" / "_temporary" / "0" / "x.parquet", [], {})
        put(tmp_path / f"ds={day(3)}" / "x.parquet", [], {})
        check(project, "snaps", Counter(map(plain, days[max(days)])))  # a writer is at work
        shutil.rmtree(tmp_path / f"ds={day(3)}" / "_temporary")
        check(project, "snaps", Counter())
        rows = [some_row(rng) for _ in range(3)]
        put(tmp_path / ".work" / "x.parquet", rows, {})
        check(project, "snaps", Counter())
        (tmp_path / ".work").rename(tmp_path / f"ds={day(4)}")
        check(project, "snaps", Counter(map(plain, rows)))
        put(tmp_path / f"ds={day(4)}" / "_SUCCESS", [], {})
        put(tmp_path / f"ds={day(5)}" / "x.parquet", rows[:1], {})
        check(project, "snaps", Counter(map(plain, rows)))  # others say when they are done
        put(tmp_path / f"ds={day(5)}" / "_SUCCESS", [], {})
        check(project, "snaps", Counter([plain(rows[0])]))
    forget(project, "snaps")


def test_snapshots_and_mutations(project: wr.Project, tmp_path: Path) -> None:
    rng = random.Random(3)
    days: dict[int, list[Row]] = {}
    files: dict[str, list[Change]] = {}
    folders = tmp_path / "snapshots", tmp_path / "log"

    def replayed() -> Counter[str]:
        newest = max(days)
        net = Counter(map(plain, days[newest]))
        for changes in files.values():
            for row, sign, at in changes:
                net[plain(row)] += sign if at is not None and at > end_of(newest) else 0
        return net

    def snapshot(number: int) -> None:
        days[number] = [some_row(rng) for _ in range(4)]
        put(folders[0] / f"ds={day(number)}" / "x.parquet", days[number], {})

    def remove(number: int) -> None:
        del days[number]
        shutil.rmtree(folders[0] / f"ds={day(number)}")

    def log(name: str) -> None:
        known = [*days[max(days)], *(row for changes in files.values() for row, _, _ in changes)]
        at = [None, *(end_of(number) + more for number in range(4) for more in (0, 1))]
        files[name] = [(some_row(rng), 1, rng.choice(at)) for _ in range(4)]
        files[name] += [(rng.choice(known), -1, rng.choice(at)) for _ in range(3)]
        put_mutations(folders[1] / name, files[name])

    def unlog(name: str) -> None:
        del files[name]
        (folders[1] / name).unlink()

    snapshot(0)
    log("a.parquet")
    source = wr.EntitySource(
        name="d", snapshots=folders[0], mutations=folders[1], partition="ds", time="ts"
    )
    define(project, "dated", source)
    check(project, "dated", replayed(), timeless(files))
    for step in range(7):
        if step in (0, 2):
            log(f"{step}.parquet")
        if step in (1, 2):
            snapshot(step)
        if step == 3:
            unlog("a.parquet")  # its mutations up to the snapshot stay, others go
        if step == 4:
            log("0.parquet")
            snapshot(2)
        if step == 5:
            remove(2)
        if step == 6:
            snapshot(3)
            unlog("2.parquet")
        check(project, "dated", replayed(), timeless(files))
    forget(project, "dated")


# Shards


def test_shards(project: wr.Project, tmp_path: Path) -> None:
    rng = random.Random(4)
    shard = Shard.create(tmp_path / "shard", ROWS, key=["k"])
    net: Counter[str] = Counter()

    def append() -> None:
        rows = [some_row(rng) for _ in range(4)]
        diffs = [rng.choice([2, 1, -1]) for _ in rows]
        upper = shard.upper
        columns = {f.name: pa.array([r[i] for r in rows], f.type) for i, f in enumerate(ROWS)}
        table = pa.table({**columns, "_diff": pa.array(diffs, pa.int64())})
        shard.append(table, lower=upper, upper=upper + 10)
        for row, diff in zip(rows, diffs, strict=True):
            net[plain(row)] += diff

    define(project, "followed", wr.EntitySource(name="f", shard=tmp_path / "shard", time="ts"))
    check(project, "followed", net)
    for step in range(4):
        append()
        if step == 2:  # what was taken over, and what is new, become one
            shard.advance_since(shard.upper - 1)
            shard.compact(everything=True)
        check(project, "followed", net)
    details = {row[0]: row[1] for row in project.sql("DESCRIBE EXTENDED followed").collect()}  # type: ignore[union-attr]
    assert details["Read up to"] == "40"
    forget(project, "followed")


# Change data of Delta tables


def test_change_data_of_delta(project: wr.Project, tmp_path: Path, read: list[str]) -> None:
    uri = str(tmp_path / "delta")

    def table(*rows: Row) -> pa.Table:
        columns = {f.name: pa.array([r[i] for r in rows], f.type) for i, f in enumerate(ROWS)}
        return pa.table(columns)

    feeds = {"delta.enableChangeDataFeed": "true"}
    first = [("a", float(i), 0) for i in range(20)]
    write_deltalake(uri, table(*first), partition_by=["k"], configuration=feeds)
    write_deltalake(uri, table(("b b", 1.0, 0), ("c", 2.0, 0)), mode="append")
    project.sql(f"CREATE TABLE fed USING delta LOCATION '{uri}'")
    project.sql("CREATE MATERIALIZED VIEW fed_keys AS SELECT k, count(*) n FROM fed GROUP BY k")
    only = wr.EventSource(
        name="e", table=uri, time="ts", where="v < 100", select={"k": "k", "ts": "ts", "w": "v * 2"}
    )
    project.source("part", only)

    def same() -> list[str]:
        """The files that were read for what is there now."""
        read.clear()
        rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
        check(project, "fed", Counter(plain((r["k"], r["v"], r["ts"])) for r in rows))
        got = Counter(plain(tuple(row)) for row in project.read("part").collect())
        kept = [r for r in rows if r["v"] is not None and r["v"] < 100]
        assert got == Counter(plain((r["k"], r["ts"], r["v"] * 2)) for r in kept)
        return sorted({name.split("/")[0] for name in read})

    same()
    DeltaTable(uri).update({"v": "v + 1000"}, predicate="k = 'a' AND v = 3")
    assert same() == ["_change_data"]  # not the file that has the rest
    DeltaTable(uri).delete("k = 'b b'")
    assert same() == []  # a lot without files has no rows
    write_deltalake(uri, table(("a", 50.0, 1)), mode="append")
    merged = DeltaTable(uri).merge(
        table(("a", 4.0, 7), ("z", 60.0, 7)), "s.v = t.v", source_alias="s", target_alias="t"
    )
    merged.when_matched_update({"ts": "s.ts"}).when_not_matched_insert_all().execute()
    assert same() == ["_change_data", "k=a"]
    version = DeltaTable(uri).version()
    DeltaTable(uri).optimize.compact()
    assert same() == []  # the same rows in other files
    write_deltalake(uri, table(("a", 51.0, 1)), mode="append")
    DeltaTable(uri).delete("v = 5")
    same()
    DeltaTable(uri).delete("v = 6")
    kept = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    shutil.rmtree(tmp_path / "delta" / "_change_data")
    assert same() == ["k=a", "k=z"]  # by the difference of files, of the lot that MERGE touched
    DeltaTable(uri).restore(version)
    same()
    write_deltalake(uri, table(("y", 1.0, 1)), mode="overwrite")
    DeltaTable(uri).vacuum(**kept)
    same()
    DeltaTable(uri).update({"v": "9"})
    assert same() == ["_change_data"]
    project.sql("DROP TABLE part")
    forget(project, "fed")


# Events


def test_events_with_options(project: wr.Project, tmp_path: Path, read: list[str]) -> None:
    known = (pa.int64(), [5, 6])
    for number in range(4):
        rows = [("a", float(number), number), ("b", float(number), number)]
        put(tmp_path / f"ds={day(number)}" / "x.parquet", rows, {"seen": known})
    source = wr.EventSource(
        name="e",
        table=str(tmp_path),
        time="ts",
        partition="ds",
        start_partition=day(1),
        end_partition=day(2),
        where="k = 'a'",
        select={"k": "upper(k)", "ts": "ts"},
        known="seen",
    )
    project.source("events", source)
    project.source("events", source)  # as a program does that is run again
    found = project.sql("SELECT * FROM events ORDER BY ts")
    assert found is not None
    assert [tuple(row) for row in found.collect()] == [("A", 1, 5), ("A", 2, 5)]
    assert read == [f"ds={day(1)}/x.parquet", f"ds={day(2)}/x.parquet"]
    text = project.sql("SHOW CREATE TABLE events").collect()[0][0]  # type: ignore[union-attr]
    assert "project.source('events', EventSource(name='e', time='ts'," in text
    other = wr.EventSource(name="e", table=str(tmp_path), time="ts", where="k = 'b'")
    with pytest.raises(RelationExistsError, match="source events is there, and reads"):
        project.source("events", other)
    shutil.rmtree(tmp_path / f"ds={day(1)}")
    with pytest.raises(DataError, match="partitions of 'ds' are missing"):
        project.tick()
    assert project.read("events").count() == 2
    project.sql("DROP TABLE events")

    for number in (5, 7):  # days that no folder names
        named = (pa.string(), [day(number)] * 2)
        put(tmp_path / "flat" / f"{number}.parquet", [("a", 1.0, number)] * 2, {"ds": named})
    given = {"partition": "ds", "start_partition": day(5), "end_partition": day(6)}
    flat = wr.EventSource(name="f", table=str(tmp_path / "flat"), time="ts", **given)
    project.source("flat", flat)
    with pytest.raises(DataError, match=f"partitions of 'ds' are missing: {day(6)}"):
        project.sql("SELECT * FROM flat")
    named = (pa.string(), [day(6), day(7)])
    put(tmp_path / "flat" / "6.parquet", [("b", 1.0, 6), ("b", 1.0, 7)], {"ds": named})
    found = project.sql("SELECT k, ts FROM flat")
    assert found is not None
    assert sorted(map(tuple, found.collect())) == [("a", 5), ("a", 5), ("b", 6)]
    project.sql("DROP TABLE flat")

    pattern = wr.EventSource(name="p", table=f"{tmp_path}/ds=*-0[24]/*.parquet", time="ts")
    project.source("some", pattern)
    found = project.sql("SELECT ts, k FROM some WHERE k = 'a'")
    assert found is not None
    assert sorted(map(tuple, found.collect())) == [(3, "a")]
    put(tmp_path / f"ds={day(1)}" / "y.parquet", [("a", 1.0, 9)], {"seen": (pa.int64(), [1])})
    found = project.sql("SELECT ts, k FROM some WHERE k = 'a'")
    assert found is not None
    assert sorted(map(tuple, found.collect())) == [(3, "a"), (9, "a")]
    project.sql("DROP TABLE some")


def test_definitions_that_do_not_fit(project: wr.Project, tmp_path: Path) -> None:
    put_changes(tmp_path / "feed" / "x.parquet", [(("a", 1.0, 1), 1, 1)])
    put(tmp_path / "days" / f"ds={day(0)}" / "x.parquet", [("a", 1.0, 1)], {})
    feed, days = tmp_path / "feed", tmp_path / "days"
    for source, says in [
        (wr.EventSource(name="e", table=days, time="at"), "'at'"),
        (wr.EventSource(name="e", table=days, time="ts", known="at"), "'at'"),
        (wr.EventSource(name="e", table=days, time="ts", where="x > 1"), "`x`"),
        (wr.EntitySource(name="e", changes=days, time="ts"), "_commit_timestamp"),
        (
            wr.EntitySource(name="e", snapshots=days, mutations=feed, partition="ds", time="ts"),
            "mutation_time",
        ),
    ]:
        with pytest.raises(SchemaError, match=says):
            project.source("wrong", source)
    project.source("wrong", wr.EntitySource(name="e", changes=feed, time="ts", change_type="k"))
    with pytest.raises(DataError, match="unknown k: a"):
        project.sql("SELECT * FROM wrong")
    project.sql("DROP TABLE wrong")
