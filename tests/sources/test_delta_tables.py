"""Delta tables are read as their logs have them: without rows, with new columns, by partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import windrow as wr
from windrow import agg
from windrow.errors import DataError, StorageError
from windrow.sources.bound import bind_table
from windrow.sources.partitions import PartitionRange
from windrow.spark.session import Engine

EVENTS = pa.table(
    {
        "user": pa.array([1, 1, 2], pa.int64()),
        "n": pa.array([5, 7, 9], pa.int64()),
        "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
        "ts": pa.array([1_000, 2_000, 3_000], pa.timestamp("ms", "UTC")),
    }
)
QUERIES = pa.table(
    {
        "user": pa.array([1, 2, 3], pa.int64()),
        "ts": pa.array([10_000] * 3, pa.timestamp("ms", "UTC")),
    }
)
SPARK = {"select": {"user": "user", "n": "n + 0", "ts": "ts"}, "where": "n > 0"}


def write(path: Path, table: pa.Table, **options: Any) -> str:
    write_deltalake(str(path), table, mode="overwrite", **options)
    return str(path)


def join(folder: Path, **source: Any) -> wr.Join:
    events = wr.EventSource("views", str(folder / "events"), time="ts", **source)
    group = wr.GroupBy("g", events, ["user"], [agg.sum("n")])
    return wr.Join("j", wr.Queries(str(folder / "queries"), time="ts"), [group])


@pytest.mark.parametrize("source", [{}, SPARK], ids=["by tasks", "by Spark"])
def test_a_table_without_rows_is_an_empty_table(
    spark: Any, tmp_path: Path, source: dict[str, Any]
) -> None:
    project = wr.Project(tmp_path / "state", spark=spark)

    def sums() -> dict[int, Any]:
        return {r.user: r.g_n_sum for r in project.backfill(join(tmp_path, **source)).collect()}

    write(tmp_path / "events", EVENTS.slice(0, 0))
    write(tmp_path / "queries", QUERIES.slice(0, 0))
    assert sums() == {}
    write(tmp_path / "queries", QUERIES)
    assert sums() == {1: None, 2: None, 3: None}
    write(tmp_path / "events", EVENTS)
    assert sums() == {1: 12, 2: 9, 3: None}
    DeltaTable(str(tmp_path / "events")).delete()
    assert sums() == {1: None, 2: None, 3: None}


def test_the_columns_of_an_empty_table_are_those_of_a_full_one(spark: Any, tmp_path: Path) -> None:
    full = bind_table(Engine(spark), write(tmp_path / "full", EVENTS), "test")
    empty = bind_table(Engine(spark), write(tmp_path / "empty", EVENTS.slice(0, 0)), "test")
    assert empty.schema.names == full.schema.names == EVENTS.column_names
    assert empty.frame.schema == full.frame.schema
    assert (full.frame.count(), empty.frame.count(), empty.uris) == (3, 0, ())


def test_partitions_have_the_declared_type(spark: Any, tmp_path: Path) -> None:
    days = pa.array(["2021-09-01", "2021-09-02", None], pa.string())
    table = EVENTS.drop(["tags"]).append_column("ds", days).append_column("b", EVENTS.column("n"))
    path = write(tmp_path / "t", table, partition_by=["ds", "b"])
    for where in (None, "n > 0"):
        found = bind_table(Engine(spark), path, "test", where=where)
        assert found.schema.names == ["user", "n", "ts", "ds", "b"]
        assert found.schema.field("ds").type == pa.string()
        assert found.schema.field("b").type == pa.int64()
        rows = {(r.n, r.ds, r.b) for r in found.frame.collect()}
        assert rows == {(5, "2021-09-01", 5), (7, "2021-09-02", 7), (9, None, 9)}
    one = PartitionRange("ds", start="2021-09-02", end="2021-09-02")
    assert bind_table(Engine(spark), path, "test", partitions=one).frame.count() == 1
    empty = write(tmp_path / "empty", table.slice(0, 0), partition_by=["ds", "b"])
    assert bind_table(Engine(spark), empty, "test").frame.columns == found.schema.names
    later = PartitionRange("ds", start="2021-09-02")
    with pytest.raises(DataError, match="there is no partition of 'ds'"):
        bind_table(Engine(spark), empty, "test", partitions=later)


def test_files_from_before_a_column_was_added(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t", EVENTS.drop(["n", "tags"]))
    write_deltalake(path, EVENTS.drop(["tags"]), mode="append", schema_mode="merge")
    found = bind_table(Engine(spark), path, "test")
    assert sorted(r.n or 0 for r in found.frame.collect()) == [0, 0, 0, 5, 7, 9]


def test_tables_whose_files_do_not_tell_all(tmp_path: Path) -> None:
    engine = Engine()
    path = write(tmp_path / "t", EVENTS.append_column("b", EVENTS.column("n")), partition_by=["b"])
    for file in sorted((tmp_path / "t" / "_delta_log").glob("*.json")):
        file.write_text(file.read_text().replace('"path":"b=', '"path":"moved-'))
    with pytest.raises(StorageError, match=r"test: the folder of .*moved-.* does not name"):
        bind_table(engine, path, "test")
    file.write_text("{")
    with pytest.raises(StorageError, match=r"test: the Delta table .* cannot be opened"):
        bind_table(engine, path, "test")
    assert not engine.started
