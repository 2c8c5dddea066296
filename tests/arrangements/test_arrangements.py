"""Arrangements, read by anyone: after any history of files, the sum of diffs is their rows."""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import windrow as wr
from windrow import agg
from windrow.arrangements import Arrangement, cut_alike, entries
from windrow.arrangements.build import Builder
from windrow.arrangements.find import find
from windrow.errors import UpperMismatchError
from windrow.features.inputs.groups import GroupInputs
from windrow.shard.shard import Shard
from windrow.spark.progress import Silent
from windrow.spark.session import Engine
from windrow.spark.stages import Stages
from windrow.storage.store import Store

STAMP = pa.timestamp("ms", "UTC")
ROWS = "k0, __time, v0"  # key, time and input, as an arrangement of the folder below has them

Row = tuple[int, int, int | None]


class Folder:
    """Files of events that come, are rewritten and go, and an arrangement of them."""

    def __init__(self, spark: Any, root: Path) -> None:
        self.events, self.state = root / "events", Store.at(root / "state")
        self.events.mkdir(parents=True)
        self.engine = Engine(spark)
        self.files: dict[str, list[Row]] = {}
        self.clock = 0

    def write(self, name: str, rows: list[Row]) -> None:
        columns = {
            "k": pa.array([k for k, _, _ in rows], pa.int64()),
            "ts": pa.array([ts for _, ts, _ in rows], STAMP),
            "x": pa.array([x for _, _, x in rows], pa.int64()),
        }
        path = self.events / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        self.clock += 1_000_000
        os.utime(path, ns=(self.clock, self.clock))
        self.files[name] = rows

    def remove(self, name: str) -> None:
        (self.events / f"{name}.parquet").unlink()
        del self.files[name]

    def rows(self) -> Counter[Row]:
        return Counter(row for rows in self.files.values() for row in rows)

    def arrange(self, holds: ExitStack | None = None) -> Shard:
        """The arrangement; with `holds`, the very version that a run reads."""
        source = wr.EventSource("views", str(self.events), time="ts")
        group = wr.GroupBy("g", source, ["k"], [agg.sum("x")])
        self.content = GroupInputs.bind(group, self.engine).content
        stages = Stages(self.engine, self.state, Silent())
        builder = Builder(stages, lambda piece, name: None)
        work = Store.at(f"{self.state.uri}/tmp")
        todo = find(self.content, self.state)
        if holds is not None:
            return builder.build(self.content, todo, None, work, holds)[0]
        with ExitStack() as stack:
            shard, _ = builder.build(self.content, todo, None, work, stack)
            assert "a run" in [one.reader for one in shard.holds()]
        return Shard.open(shard.uri)


def summed(uri: str) -> Counter[Any]:
    """The content of a Delta table of updates, as a reader sees it who knows only `_diff`."""
    files = DeltaTable(uri).file_uris()
    if not files:
        return Counter()
    query = f"SELECT {ROWS}, sum(_diff) FROM read_parquet(?) GROUP BY ALL HAVING sum(_diff) != 0"
    return Counter({row[:3]: int(row[3]) for row in duckdb.execute(query, [files]).fetchall()})


def test_times_are_those_of_taking_in_and_history_can_be_read(spark: Any, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    for name in "abcdefghij":  # many, so that one retraction is not compacted at once
        folder.write(name, [(ord(name), 1, 1)])
    first = folder.arrange()
    before = first.upper - 1
    old = folder.rows()
    folder.write("a", [(7, 7, 7)])
    shard = folder.arrange()
    assert shard.uri == first.uri
    assert 1_600_000_000_000 < before < shard.upper - 1  # milliseconds of a clock, not ordinals

    def content(time: int) -> Counter[Any]:
        rows = shard.snapshot(time).to_table().to_pylist()
        return Counter({(r["k0"], r["__time"], r["v0"]): r["_diff"] for r in rows})

    assert content(before) == old
    assert content(shard.upper - 1) == folder.rows()


def test_two_processes_extend_the_same_arrangement(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(spark, tmp_path)
    folder.write("a", [(1, 1, 1)])
    folder.arrange()
    folder.write("b", [(2, 2, 2)])
    real = Builder.append
    raced: list[int] = []

    def race(self: Builder, content: Any, step: Any, shard: Shard, mark: str, *rest: Any) -> None:
        if not raced:
            raced.append(1)
            folder.arrange()  # another one was first
        real(self, content, step, shard, mark, *rest)

    monkeypatch.setattr(Builder, "append", race)
    shard = folder.arrange()
    assert raced
    assert summed(shard.uri) == folder.rows()


def test_an_append_that_never_wins_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(spark, tmp_path)
    folder.write("a", [(1, 1, 1)])

    def lose(*_: Any) -> None:
        raise UpperMismatchError("another writer was first", upper=5)

    monkeypatch.setattr(Builder, "append", lose)
    with pytest.raises(UpperMismatchError):
        folder.arrange()


def test_the_catalogue_says_what_there_is_and_who_uses_it(spark: Any, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.write("a", [(1, 1, 1)])
    folder.write("b", [(2, 2, 2), (2, 3, 4)])
    pq.write_table(pa.table({"k": [1], "ts": pa.array([9], STAMP)}), tmp_path / "q.parquet")
    for name in ("training", "scoring"):
        # What a source is called does not matter, but what it holds.
        source = wr.EventSource(f"{name}_views", str(folder.events), time="ts")
        group = wr.GroupBy("g", source, ["k"], [agg.sum("x")])
        join = wr.Join(name, wr.Queries(str(tmp_path / "q.parquet"), time="ts"), [group])
        wr.Project(folder.state.uri, spark=spark).backfill(join, strategy="merge")
    (entry,) = entries(folder.state)
    assert (entry.title, entry.key, entry.columns) == ("scoring_views", ("k",), ("k", "ts", "x"))
    assert (entry.rows, entry.files, entry.finished) == (3, 2, True)
    assert sorted(user.name for user in entry.users) == ["Join 'scoring'", "Join 'training'"]
    assert entry.readers == ()
    with Shard.open(entry.uri).hold(reader="a report"):
        (entry,) = entries(folder.state)
        assert [(one.reader, one.time) for one in entry.readers] == [("a report", entry.upper - 1)]


def test_a_generation_that_is_read_stays_until_nobody_reads_it(spark: Any, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.write("a", [(1, 1, 1)])
    first = folder.arrange()
    old = folder.rows()
    with first.hold() as held:
        folder.write("a", [(2, 2, 2)] * 50)  # most of it: it is rebuilt
        second = folder.arrange()
        assert second.uri != first.uri
        rows = first.snapshot(held.time).to_table().to_pylist()
        assert Counter({(r["k0"], r["__time"], r["v0"]): r["_diff"] for r in rows}) == old
        assert Path(first.uri).exists()
    folder.write("b", [(3, 3, 3)])
    folder.arrange()
    assert not Path(first.uri).exists()
    assert [entry.uri for entry in entries(folder.state)] == [second.uri]


def test_a_generation_whose_removal_was_interrupted_is_removed(spark: Any, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.write("a", [(1, 1, 1)])
    retired = folder.arrange()
    assert retired.retire()
    second = folder.arrange()
    assert second.uri != retired.uri  # it is not used any more, nor built upon
    assert summed(second.uri) == folder.rows()
    junk = Store.at(f"{Path(second.uri).parent}/junk")
    junk.put("0-part.parquet", b"PAR1")  # of one whose log is gone already
    folder.write("b", [(3, 3, 3)])
    folder.arrange()
    assert [path.name for path in Path(second.uri).parent.iterdir()] == [Path(second.uri).name]


def test_files_that_are_as_they_were_long_ago(spark: Any, tmp_path: Path) -> None:
    """Their arrangement was built under the same name, and has been extended since."""
    folder = Folder(spark, tmp_path)
    before = [(1, 1, n) for n in range(5)]
    folder.write("a", before)
    stamp = folder.clock
    first = folder.arrange()
    with first.hold():  # so that it is not removed
        folder.write("a", [(2, 2, n) for n in range(50)])
        folder.arrange()
        folder.write("a", before)
        os.utime(folder.events / "a.parquet", ns=(stamp, stamp))
        again = folder.arrange()
        assert summed(again.uri) == folder.rows()
        folder.write("b", [(9, 9, 9)])
        folder.write("a", [(3, 3, 3)] * 50)
        assert summed(folder.arrange().uri) == folder.rows()


def test_a_run_reads_what_it_planned_whatever_others_append(spark: Any, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    for name in "abcdefgh":
        folder.write(name, [(ord(name), 1, 1)])
    folder.arrange()
    old = folder.rows()
    with ExitStack() as holds:
        shard = folder.arrange(holds)
        folder.write("a", [(7, 7, 7)])
        newer = folder.arrange()
        assert summed(newer.uri) == folder.rows()
        newer.advance_since(newer.upper - 1)
        newer.compact(everything=True)
        newer.vacuum(retention_hours=0)
        rows = shard.snapshot().to_table().to_pylist()
        assert Counter({(r["k0"], r["__time"], r["v0"]): r["_diff"] for r in rows}) == old


def test_tasks_look_up_and_read_slices(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    shard = Shard.create(tmp_path / "a", schema, key=["k"])
    rows = [(n % 40, n % 3) for n in range(200)]
    shard.append(
        pa.table([list(c) for c in zip(*rows, strict=True)], schema=schema), lower=0, upper=1
    )
    one = Arrangement.at(shard, 0)
    cuts = cut_alike([one], 3)

    def read(batches: Any) -> Any:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                (rows,) = one.slices(cuts, range(number, number + 1))
                found = one.lookup(rows.select(["k"]))
                counts = [[sum(table.column("_diff").to_pylist())] for table in (rows, found)]
                yield pa.RecordBatch.from_arrays(list(map(pa.array, counts)), ["slice", "found"])

    numbers = spark.range(0, len(cuts) + 1, 1, len(cuts) + 1)
    counted = numbers.mapInArrow(read, "slice long, found long").collect()
    assert [row["slice"] for row in counted] == [row["found"] for row in counted]
    assert sum(row["slice"] for row in counted) == len(rows)


def test_several_arrangements_are_cut_alike(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    random_ = random.Random(5)
    shards, contents = [], []
    for name in "ab":
        shard = Shard.create(tmp_path / name, schema, key=["k"])
        rows = [(random_.randrange(50), random_.randrange(3)) for _ in range(300)]
        for batch in range(3):
            some = rows[100 * batch : 100 * batch + 100]
            table = pa.table([[k for k, _ in some], [x for _, x in some]], schema=schema)
            shard.append(table, lower=batch, upper=batch + 1)
        shards.append(shard)
        contents.append(Counter(rows))
    both = [Arrangement.at(shard) for shard in shards]
    cuts = cut_alike(both, 4)
    count = len(cuts) + 1
    seen: list[set[int]] = [set() for _ in range(count)]
    for one, content in zip(both, contents, strict=True):
        found: Counter[Any] = Counter()
        for number, rows in enumerate(one.slices(cuts, range(count))):
            for row in rows.to_pylist():
                found[row["k"], row["x"]] += row["_diff"]
                seen[number].add(row["k"])
        assert found == content
        some = {k: None for k, _ in content if k % 7 == 0}
        rows = one.lookup(pa.table({"k": pa.array(some, pa.int64())})).to_pylist()
        wanted = Counter({key: n for key, n in content.items() if key[0] in some})
        assert Counter({(r["k"], r["x"]): r["_diff"] for r in rows}) == wanted
    assert sum(len(keys) for keys in seen) == len(set().union(*seen))  # each key in one slice
