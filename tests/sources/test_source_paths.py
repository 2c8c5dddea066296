"""Tables and roots in folders of any name give the rows that plain names give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import windrow as wr
from windrow import agg
from windrow.errors import OptionError, StorageError
from windrow.sources.bound import bind_table
from windrow.spark.session import Engine

# Where Spark sees patterns, URIs escapes and queries, and Hive columns of a table.
ANY = "a b/100%/q?r#s/k=7/[1]/{a,b}*/ü;'\"&+,:/n=1/ds=2020-01-01"
ONLY_FILES = "a%20b/%2F/a\\b"  # no Delta table can be here

EVENTS = pa.table(
    {
        "k": pa.array([1, 1, 2], pa.int64()),
        "n": pa.array([5, 7, 9], pa.int64()),
        "ts": pa.array([1_000, 2_000, 3_000], pa.int64()),
    }
)
MORE = pa.table(
    {
        "k": pa.array([2, 3], pa.int64()),
        "n": pa.array([1, 2], pa.int64()),
        "ts": pa.array([1_500, 2_500], pa.int64()),
    }
)
QUERIES = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "ts": pa.array([10_000] * 3, pa.int64())})
FORMATS = ["parquet", "filtered", "csv", "json", "delta"]


def write(folder: Path, format_: str, table: pa.Table, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    match format_:
        case "csv":
            pyarrow.csv.write_csv(table, folder / f"{name}.csv")
        case "json":
            lines = (str(row).replace("'", '"') for row in table.to_pylist())
            (folder / f"{name}.json").write_text("\n".join(lines))
        case "delta":
            write_deltalake(str(folder), table, mode="append")
        case _:
            pq.write_table(table, folder / f"{name}.parquet")


def join(folder: Path, formats: list[str]) -> wr.Join:
    groups = []
    for format_ in formats:
        more: dict[str, Any] = {"where": "n > 0"} if format_ == "filtered" else {}
        if format_ == "csv":
            more = {"select": {name: f"CAST({name} AS BIGINT)" for name in EVENTS.column_names}}
        source = wr.EventSource(format_, str(folder / format_), time="ts", **more)
        groups.append(wr.GroupBy(f"g_{format_}", source, ["k"], [agg.sum("n"), agg.count("n")]))
    return wr.Join("j", wr.Queries(str(folder / "queries"), time="ts"), groups)


def sums(project: wr.Project, one: wr.Join, formats: list[str]) -> dict[int, set[Any]]:
    """For each key the different answers of all formats: one, if they agree."""
    rows = project.backfill(one).collect()
    return {row.k: {row[f"g_{format_}_n_sum"] for format_ in formats} for row in rows}


def test_tables_and_a_root_in_folders_of_any_name(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / ANY
    project = wr.Project(folder / "state", spark=spark)
    for format_ in FORMATS:
        # delta-rs itself cannot write to some of these folders; it can read what was moved there.
        aside = tmp_path / "aside" / format_
        write(aside, format_, EVENTS, "one")
        folder.mkdir(parents=True, exist_ok=True)
        aside.rename(folder / format_)
    write(folder / "queries", "parquet", QUERIES, "all")
    one = join(folder, FORMATS)
    assert sums(project, one, FORMATS) == {1: {12}, 2: {9}, 3: {None}}
    # Later files are ingested by themselves.
    for format_ in FORMATS[:-1]:
        write(folder / format_, format_, MORE, "two")
    assert sums(project, one, FORMATS[:-1]) == {1: {12}, 2: {10}, 3: {2}}


def test_tables_where_no_delta_table_can_be(spark: Any, tmp_path: Path) -> None:
    project = wr.Project(tmp_path / "state", spark=spark)
    folder, formats = tmp_path / ONLY_FILES, ["parquet", "filtered", "csv"]
    for format_ in formats:
        write(folder / format_, format_, EVENTS, "one")
    write(folder / "queries", "parquet", QUERIES, "all")
    assert sums(project, join(folder, formats), formats) == {1: {12}, 2: {9}, 3: {None}}
    for format_ in formats:
        write(folder / format_, format_, MORE, "two")
    assert sums(project, join(folder, formats), formats) == {1: {12}, 2: {10}, 3: {2}}
    write(tmp_path / "delta", "delta", EVENTS, "one")
    (tmp_path / "delta").rename(folder / "delta")
    with pytest.raises((OptionError, StorageError), match="choose another name"):
        project.backfill(join(folder, ["delta"]))


@pytest.mark.parametrize("where", [None, "n > 0"], ids=["by tasks", "by Spark"])
def test_only_folders_beneath_the_table_are_columns(
    spark: Any, tmp_path: Path, where: str | None
) -> None:
    """A folder `k=7` above the table must not replace its column `k`."""
    root = tmp_path / "k=7" / "ds=2020-01-01" / "events"
    for day in ("2021-09-01", "2021-09-02"):
        write(root / f"ds={day}", "parquet", EVENTS, "x")
    table = bind_table(Engine(spark), str(root), "test", where=where)
    assert table.folders == ("ds",)
    days = {str(row.ds) for row in table.frame.collect()}
    assert days == {"2021-09-01", "2021-09-02"}
    source = wr.EventSource("views", str(root), time="ts", partition="ds", where=where)
    write(tmp_path / "queries", "parquet", QUERIES, "all")
    group = wr.GroupBy("g", source, ["k"], [agg.sum("n"), agg.last("ds")])
    one = wr.Join("j", wr.Queries(str(tmp_path / "queries"), time="ts"), [group])
    found = wr.Project(tmp_path / "k=7" / "state", spark=spark).backfill(one).collect()
    assert {row.k: row.g_n_sum for row in found} == {1: 24, 2: 18, 3: None}
    assert {str(row.g_ds_last) for row in found} == {"2021-09-02", "None"}


def test_a_pattern_still_names_many_files(spark: Any, tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        write(tmp_path / "a [b]", "parquet", EVENTS, name)
    pattern = str(tmp_path / "a ?b?" / "{one,two}.parquet")
    assert bind_table(Engine(spark), pattern, "test").frame.count() == 6


def test_tables_of_the_catalogue(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "k=7" / "a b%"
    for day in ("2021-09-01", "2021-09-02"):
        write(folder / f"ds={day}", "parquet", EVENTS, "x y")
    spark.sql("DROP TABLE IF EXISTS odd_place")
    spark.sql(
        "CREATE TABLE odd_place (k BIGINT, n BIGINT, ts BIGINT, ds DATE) USING parquet "
        f"PARTITIONED BY (ds) LOCATION '{folder}'"
    )
    try:
        spark.sql("MSCK REPAIR TABLE odd_place")
        table = bind_table(Engine(spark), "odd_place", "test")
        assert table.folders == ("ds",)
        assert table.uris is not None
        assert all(Path(uri).is_file() for uri in table.uris)
        assert table.frame.count() == 6
        assert table.only(table.uris[:1]).frame.count() == 3
    finally:
        spark.sql("DROP TABLE odd_place")
