"""Sources that are shards: read as they are by their own key, arranged once by another."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg
from windrow.errors import StorageUnavailableError
from windrow.features.run import ingest
from windrow.shard.shard import Shard
from windrow.storage.store import Store

STAMP = pa.timestamp("ms", "UTC")
SCHEMA = pa.schema([("user", pa.int64()), ("item", pa.int64()), ("n", pa.int64()), ("ts", STAMP)])


@dataclass
class Site:
    """A shard of stock, by item, on a store that only the project's options open."""

    spark: Any
    root: str
    options: dict[str, str] | None

    def __post_init__(self) -> None:
        self.shard = Shard.create(
            f"{self.root}/stock", SCHEMA, key=["item"], storage_options=self.options
        )
        self.project = wr.Project(
            f"{self.root}/state", spark=self.spark, storage_options=self.options
        )
        self.rows: list[tuple[int, int, int]] = []
        queries = pa.table(
            {
                "user": pa.array([1, 2, 3], pa.int64()),
                "item": pa.array([1, 2, 3], pa.int64()),
                "ts": pa.array([10**9] * 3, STAMP),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(queries, sink)
        Store.at(self.root, self.options).put("queries.parquet", sink.getvalue().to_pybytes())

    def append(self, rows: list[tuple[int, int, int]], diff: int = 1) -> None:
        columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
        table = pa.table([*columns, pa.array([5] * len(rows), STAMP)], schema=SCHEMA)
        table = table.append_column("_diff", pa.array([diff] * len(rows), pa.int64()))
        self.shard.append(table, lower=self.shard.upper, upper=self.shard.upper + 10)
        for row in rows:
            if diff > 0:
                self.rows.append(row)
            else:
                self.rows.remove(row)

    def join(self, key: str) -> wr.Join:
        source = wr.EntitySource("stock", "ts", shard=f"{self.root}/stock")
        group = wr.GroupBy("g", source, [key], [agg.sum("n")])
        return wr.Join("j", wr.Queries(f"{self.root}/queries.parquet", time="ts"), [group])

    def run(self, key: str) -> int:
        """Check the sums of all queries; the rows that were read to arrange."""
        found = self.project.backfill(self.join(key), strategy="merge").collect()
        place = ["user", "item"].index(key)
        expected = {}
        for k in (1, 2, 3):
            values = [row[2] for row in self.rows if row[place] == k]
            expected[k] = sum(values) if values else None
        assert {row[key]: row.g_n_sum for row in found} == expected
        assert self.project.summary is not None
        return self.project.summary.raw_rows_read

    def arrangements(self) -> list[str]:
        return Store.at(f"{self.root}/state/arrangements", self.options).folders()

    def generations(self) -> list[Shard]:
        folder = Store.at(f"{self.root}/state/arrangements", self.options)
        return [
            Shard.open(f"{folder.uri}/{name}/{generation}", storage_options=self.options)
            for name in folder.folders()
            for generation in Store.at(f"{folder.uri}/{name}", self.options).folders()
        ]


@pytest.fixture(params=["folder", "s3"])
def site(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Site:
    if request.param == "folder":
        return Site(spark, str(tmp_path), None)
    options = request.getfixturevalue("s3_options")
    return Site(spark, request.getfixturevalue("s3_uri"), options)


def test_a_shard_is_read_as_it_is_or_arranged_once(site: Site) -> None:
    site.append([(1, 1, 10), (2, 1, 20), (3, 2, 30)])
    assert "read as it is" in str(site.project.plan(site.join("item"), strategy="merge"))
    assert site.run("item") == 0
    assert site.arrangements() == []
    # By another key it is arranged, and then only what is new of it.
    assert site.run("user") == 3
    assert site.run("user") == 0
    site.append([(1, 2, 5), (3, 3, 7)])
    site.append([(2, 1, 20)], diff=-1)
    plan = str(site.project.plan(site.join("user"), strategy="merge"))
    assert "(new updates of a shard)" in plan
    assert site.run("user") == 3
    assert site.run("item") == 0
    (generation,) = site.generations()
    assert generation.stats().rows == 6
    assert site.shard.holds() == []
    assert generation.holds() == []


def test_a_shard_that_has_forgotten_what_came_after_is_arranged_again(
    spark: Any, tmp_path: Path
) -> None:
    site = Site(spark, str(tmp_path), None)
    site.append([(1, 1, 10)])
    site.run("user")
    site.append([(1, 1, 10)], diff=-1)
    site.append([(2, 2, 20)])
    site.shard.advance_since(site.shard.upper - 1)
    site.shard.compact(everything=True)
    plan = str(site.project.plan(site.join("user"), strategy="merge"))
    assert "(the shard has forgotten what has changed since)" in plan
    site.run("user")
    assert len(site.generations()) == 1


@pytest.mark.parametrize("key", ["item", "user"])
def test_a_backfill_holds_the_shard_that_it_reads(
    spark: Any, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, another process forgets, compacts and deletes all it can."""
    site = Site(spark, str(tmp_path), None)
    site.append([(1, 1, 10), (2, 1, 20), (3, 2, 30)])
    site.append([(1, 1, 10)], diff=-1)
    tidied = threading.Event()
    real = ingest.hold_sources

    def hold_and_tidy(*arguments: Any) -> None:
        real(*arguments)
        other = Shard.open(site.shard.uri)
        assert [one.reader for one in other.holds()] == ["Join 'j'"]
        assert other.advance_since(other.upper - 1) == 0
        other.compact(everything=True)
        assert other.vacuum(retention_hours=0) == []
        tidied.set()

    monkeypatch.setattr("windrow.features.run.backfill.hold_sources", hold_and_tidy)
    site.run(key)
    assert tidied.is_set()
    assert site.shard.holds() == []
    assert len(site.shard.vacuum(retention_hours=0)) == 2


def test_a_shard_that_cannot_be_held_is_read_all_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(spark, str(tmp_path), None)
    site.append([(1, 1, 10)])
    put = Store.put

    def refuse(store: Store, name: str, data: bytes) -> None:
        if store.uri.startswith(site.shard.uri):
            raise StorageUnavailableError("read-only file system")
        put(store, name, data)

    monkeypatch.setattr(Store, "put", refuse)
    with pytest.warns(UserWarning, match="do not vacuum it meanwhile"):
        site.run("item")
