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

    def arrange(self) -> Shard:
        source = wr.EventSource("views", str(self.events), time="ts")
        group = wr.GroupBy("g", source, ["k"], [agg.sum("x")])
        self.content = GroupInputs.bind(group, self.engine).content
        stages = Stages(self.engine, self.state, Silent())
        builder = Builder(stages, lambda piece, name: None)
        work = Store.at(f"{self.state.uri}/tmp")
        todo = find(self.content, self.state)
        with ExitStack() as holds:
            shard, _ = builder.build(self.content, todo, None, work, holds)
            assert "a run" in [one.reader for one in shard.holds()]
        return Shard.open(shard.uri)


def summed(uri: str) -> Counter[Any]:
    """The content of a Delta table of updates, as a reader sees it who knows only `_diff`."""
    files = DeltaTable(uri).file_uris()
    if not files:
        return Counter()
    query = f"SELECT {ROWS}, sum(_diff) FROM read_parquet(?) GROUP BY ALL HAVING sum(_diff) != 0"
    return Counter({row[:3]: int(row[3]) for row in duckdb.execute(query, [files]).fetchall()})


@pytest.mark.parametrize("seed", range(4))
def test_a_reader_that_knows_nothing_of_windrow_finds_the_sources_rows(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)
    folder = Folder(spark, tmp_path)

    def some_rows() -> list[Row]:
        count = random_.choice([0, 1, 3, 8])
        values = [None, 1, 2]
        return [
            (random_.randrange(3), random_.randrange(4), random_.choice(values))
            for _ in range(count)
        ]

    folder.write("0", [(1, 1, 1), (1, 1, 1)])
    for step in range(1, 7):
        for _ in range(random_.randrange(4)):
            name = random_.choice([*folder.files, f"{step}-new"])
            if name in folder.files and len(folder.files) > 1 and random_.random() < 0.4:
                folder.remove(name)
            else:
                folder.write(name, some_rows())
        shard = folder.arrange()
        assert summed(shard.uri) == folder.rows()
        times = [batch.column("_time") for batch in shard.snapshot().batches()]
        assert all(t.to_pylist() == [shard.upper - 1] * len(t) for t in times)
        if random_.random() < 0.3:
            shard.advance_since(shard.upper - 1)
            shard.compact(everything=True)
            assert summed(shard.uri) == folder.rows()


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
    source = wr.EventSource("views", str(folder.events), time="ts")
    for name in ("training", "scoring"):
        group = wr.GroupBy("g", source, ["k"], [agg.sum("x")])
        join = wr.Join(name, wr.Queries(str(tmp_path / "q.parquet"), time="ts"), [group])
        wr.Project(folder.state.uri, spark=spark).backfill(join, strategy="merge")
    (entry,) = entries(folder.state)
    assert (entry.title, entry.key, entry.columns) == ("views", ("k",), ("k", "ts", "x"))
    assert (entry.rows, entry.files, entry.finished) == (3, 2, True)
    assert sorted(user.name for user in entry.users) == ["Join 'scoring'", "Join 'training'"]


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
