"""Arrangements after random histories, read by someone who knows only that diffs are added up.

Files come, are rewritten, go, and come back as they were; runs are interrupted between steps; the
arrangement is compacted and vacuumed; somebody holds it at an earlier time. After each finished
run, the sum of diffs of the Delta table, by DuckDB, is the rows of the sources.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow import agg
from windrow.arrangements import find as finding
from windrow.arrangements.build import Builder
from windrow.features.inputs.groups import GroupInputs
from windrow.shard.shard import Shard
from windrow.spark.progress import Silent
from windrow.spark.session import Engine
from windrow.spark.stages import Stages
from windrow.storage.store import Store

STAMP = pa.timestamp("ms", "UTC")
DAY = 86_400_000
FIELDS = {
    "k": pa.int64(),
    "ts": STAMP,
    "x": pa.int64(),
    "at": STAMP,
    "is_before": pa.bool_(),
    "_change_type": pa.string(),
}
KINDS = {
    "insert": 1,
    "update_postimage": 1,
    "update_preimage": -1,
    "delete": -1,
}

Row = tuple[Any, ...]
Content = Counter[tuple[int | None, int, int | None]]

keys = st.sampled_from([1, 2, None])
values = st.sampled_from([None, 0, 1, 2])
days = st.integers(0, 3)


@dataclass
class Folder:
    """Parquet files of rows; `columns` are theirs."""

    path: Path
    columns: tuple[str, ...]
    row: st.SearchStrategy[Row]
    names: tuple[str, ...] = ("a", "b", "c", "d")
    files: dict[str, list[Row]] = field(default_factory=dict)
    versions: dict[str, list[tuple[list[Row], int]]] = field(default_factory=dict)

    def write(self, name: str, rows: list[Row], stamp: int | None = None) -> None:
        known = self.versions.setdefault(name, [])
        if stamp is None:
            stamp = len(known) + 1
            known.append((rows, stamp))
        arrays = [
            pa.array([row[i] for row in rows], FIELDS[column])
            for i, column in enumerate(self.columns)
        ]
        path = self.path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(arrays, names=list(self.columns)), path)
        os.utime(path, ns=(stamp * 10**9, stamp * 10**9))
        self.files[name] = rows

    def remove(self, name: str) -> None:
        (self.path / f"{name}.parquet").unlink()
        del self.files[name]

    def change(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.names), "file")
        known = self.versions.get(name, [])
        actions = ["write"]
        actions += ["restore"] if known else []
        actions += ["remove"] if name in self.files and len(self.files) > 1 else []
        match data.draw(st.sampled_from(actions), "change"):
            case "write":
                self.write(name, data.draw(st.lists(self.row, max_size=4), "rows"))
            case "restore":
                rows, stamp = data.draw(st.sampled_from(known), "version")
                self.write(name, rows, stamp)
            case "remove":
                self.remove(name)

    def rows(self) -> Iterator[Row]:
        for rows in self.files.values():
            yield from rows


class World:
    """The tables of a group, what they hold, and its arrangement."""

    def __init__(self, spark: Any, root: Path, kind: str) -> None:
        self.kind, self.root = kind, root
        self.engine = Engine(spark)
        self.state = Store.at(root / "state")
        times = st.one_of(st.none(), days)
        event = st.tuples(keys, times, values)
        known_at = days.map(lambda day: day * DAY + 1)
        self.folders: list[Folder] = []
        self.stock: Shard | None = None
        self.sold: list[Row] = []  # the updates of the shard
        if kind in ("events", "two sources", "filtered"):
            for name in ("one", "two")[: 1 + (kind == "two sources")]:
                self.folders.append(Folder(root / name, ("k", "ts", "x"), event))
        if kind in ("mutations", "snapshots", "mixed"):
            mutation = st.tuples(keys, days, values, known_at, st.booleans())
            columns = ("k", "ts", "x", "at", "is_before")
            self.folders.append(Folder(root / "log", columns, mutation))
        if kind == "changes":
            change = st.tuples(keys, days, values, known_at, st.sampled_from(sorted(KINDS)))
            columns = ("k", "ts", "x", "at", "_change_type")
            self.folders.append(Folder(root / "feed", columns, change))
        if kind == "snapshots":
            row = st.tuples(keys, days, values)
            names = tuple(f"ds=1970-01-0{day}/part" for day in (1, 2, 3))
            self.folders.append(Folder(root / "snapshots", ("k", "ts", "x"), row, names))
        if kind in ("shard", "mixed"):
            schema = pa.schema([(name, FIELDS[name]) for name in ("k", "ts", "x")])
            self.stock = Shard.create(root / "stock", schema, key=["x"])
        for folder in self.folders:
            folder.write(folder.names[0], [])

    def sources(self) -> list[Any]:
        path = {folder.path.name: str(folder.path) for folder in self.folders}
        log = {"mutations": path.get("log"), "mutation_time": "at"}
        match self.kind:
            case "filtered":
                return [wr.EventSource("one", path["one"], time="ts", where="x > 0")]
            case "events" | "two sources":
                return [wr.EventSource(name, table, time="ts") for name, table in path.items()]
            case "mutations":
                return [wr.EntitySource("log", "ts", **log)]
            case "changes":
                return [wr.EntitySource("feed", "ts", changes=path["feed"], mutation_time="at")]
            case "snapshots":
                folder = {"snapshots": path["snapshots"], "partition": "ds"}
                return [wr.EntitySource("both", "ts", **log, **folder)]
            case "shard":
                return [wr.EntitySource("stock", "ts", shard=str(self.root / "stock"))]
            case "mixed":
                stock = wr.EntitySource("stock", "ts", shard=str(self.root / "stock"))
                return [wr.EntitySource("log", "ts", **log), stock]
        raise AssertionError(self.kind)

    def change(self, data: st.DataObject) -> None:
        if self.stock is not None and (not self.folders or data.draw(st.booleans(), "stock")):
            diffs = st.sampled_from([-1, 1, 1])
            rows = data.draw(st.lists(st.tuples(keys, days, values, diffs), max_size=4), "updates")
            columns = [[row[i] for row in rows] for i in range(4)]
            names = ("k", "ts", "x", "_diff")
            types = [FIELDS["k"], STAMP, FIELDS["x"], pa.int64()]
            arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
            upper = self.stock.upper
            self.stock.append(pa.table(arrays, names=list(names)), lower=upper, upper=upper + 5)
            self.sold += rows
            if data.draw(st.integers(0, 3), "forget") == 0:
                self.stock.advance_since(self.stock.upper - 1)
                self.stock.compact(everything=True)
                self.stock.vacuum(retention_hours=0)
        else:
            data.draw(st.sampled_from(self.folders), "folder").change(data)

    def rows(self) -> Content:
        """What the tables hold by now."""
        found: Content = Counter()
        last = -1
        for folder in self.folders:
            if folder.path.name == "snapshots":
                day = max(folder.files)
                last = (int(day[len("ds=1970-01-") : -len("/part")])) * DAY - 1
                for k, ts, x in folder.files[day]:
                    found[k, ts, x] += 1
        for folder in self.folders:
            if folder.path.name == "snapshots":
                continue
            for k, ts, x, *more in folder.rows():
                diff = 1
                if more:
                    time, sign = more
                    diff = KINDS[sign] if isinstance(sign, str) else 1 - 2 * sign
                    diff = diff if time > last else 0
                if ts is not None and (self.kind != "filtered" or (x is not None and x > 0)):
                    found[k, ts, x] += diff
        for k, ts, x, diff in self.sold:
            found[k, ts, x] += diff
        return Counter({row: n for row, n in found.items() if n})

    def arrange(self) -> Shard:
        group = wr.GroupBy("g", self.sources(), ["k"], [agg.sum("x")])
        content = GroupInputs.bind(group, self.engine).content
        stages = Stages(self.engine, self.state, Silent())
        builder = Builder(stages, lambda piece, name: None)
        with ExitStack() as holds:
            todo = finding.find(content, self.state)
            work = Store.at(f"{self.state.uri}/tmp")
            shard, _ = builder.build(content, todo, None, work, holds)
        return Shard.open(shard.uri)


def summed(uri: str) -> Content:
    """The content of a Delta table of updates, as a reader sees it who knows only `_diff`."""
    files = DeltaTable(uri).file_uris()
    if not files:
        return Counter()
    query = (
        "SELECT k0, __time, v0, sum(_diff) FROM read_parquet(?) GROUP BY ALL HAVING sum(_diff) != 0"
    )
    return Counter({row[:3]: int(row[3]) for row in duckdb.execute(query, [files]).fetchall()})


def snapshot(shard: Shard, time: int) -> Content:
    found: Content = Counter()
    for row in shard.snapshot(time).to_table().to_pylist():
        found[row["k0"], row["__time"], row["v0"]] += row["_diff"]
    return Counter({row: n for row, n in found.items() if n})


@contextmanager
def interrupted_at(step: int, done: bool) -> Iterator[None]:
    """Interrupt a run at one of its appends, before it or after it."""
    real, count = Builder.append, 0

    def append(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count > step and not done:
            raise KeyboardInterrupt
        real(*arguments)
        if count > step:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "append", append)
        yield


EXAMPLES = int(os.environ.get("WINDROW_HISTORIES", "4"))


@pytest.mark.parametrize(
    "kind",
    ["events", "two sources", "filtered", "mutations", "changes", "snapshots", "shard", "mixed"],
)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_reader_that_knows_nothing_of_windrow_finds_the_sources_rows(
    spark: Any,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(finding, "STEP_ROWS", 3)  # several appends of a few files each
    world = World(spark, tmp_path_factory.mktemp("world"), kind)
    held: list[tuple[Any, Shard, int, Content]] = []
    for _ in range(data.draw(st.integers(1, 4), "runs")):
        for _ in range(data.draw(st.integers(0, 5), "changes")):
            world.change(data)
        if data.draw(st.integers(0, 2), "interrupted") == 0:
            step, done = data.draw(st.integers(0, 2), "step"), data.draw(st.booleans(), "done")
            with interrupted_at(step, done):
                try:
                    world.arrange()
                except KeyboardInterrupt:
                    world.change(data)
        shard = world.arrange()
        assert summed(shard.uri) == world.rows()
        assert snapshot(shard, shard.upper - 1) == world.rows()
        action = data.draw(st.sampled_from(["nothing", "compact", "hold", "let go"]), "then")
        if action == "compact":
            shard.advance_since(shard.upper - 1)
            shard.compact(everything=True)
            shard.vacuum(retention_hours=0)
            assert summed(shard.uri) == world.rows()
        elif action == "hold":
            hold = shard.hold()
            held.append((hold, shard, hold.__enter__().time, world.rows()))
        while held and action == "let go":
            hold, shard, time, rows = held.pop()
            assert snapshot(shard, time) == rows
            hold.__exit__(None, None, None)
    for hold, shard, time, rows in held:
        assert snapshot(shard, time) == rows
        hold.__exit__(None, None, None)
