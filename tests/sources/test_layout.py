"""Columns that Windrow finds by itself are those that Spark would find."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from windrow.sources.bound import bind_table
from windrow.sources.files import ParquetFiles
from windrow.sources.layout import list_parquet, spark_schema
from windrow.sources.partitions import PartitionRange
from windrow.spark.schemas import spark_to_arrow_schema
from windrow.spark.session import Engine
from windrow.storage.store import Store

NOON = dt.datetime(2021, 9, 1, 12)
PLAIN: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "tiny": (pa.int8(), 1),
    "short": (pa.int16(), 1),
    "int": (pa.int32(), 1),
    "long": (pa.int64(), 1),
    "real": (pa.float32(), 1.5),
    "double": (pa.float64(), 1.5),
    "text": (pa.string(), "a"),
    "bytes": (pa.binary(), b"a"),
    "day": (pa.date32(), dt.date(2021, 9, 1)),
    "money": (pa.decimal128(12, 2), Decimal("1.50")),
    "utc": (pa.timestamp("us", "UTC"), NOON),
    "berlin": (pa.timestamp("ms", "Europe/Berlin"), NOON),
    "local": (pa.timestamp("us"), NOON),
}
DOUBTFUL: dict[str, tuple[pa.DataType, Any]] = {
    "unsigned": (pa.uint32(), 1),
    "wide": (pa.uint64(), 1),
    "list": (pa.list_(pa.int64()), [1]),
    "struct": (pa.struct([("a", pa.int64())]), {"a": 1}),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "seconds": (pa.timestamp("s"), NOON),  # stored as milliseconds
    "category": (pa.dictionary(pa.int32(), pa.string()), "a"),
    "large": (pa.large_string(), "a"),
    "half": (pa.float16(), 1.5),
    "clock": (pa.time64("us"), dt.time(12)),
}


def table_of(columns: dict[str, tuple[pa.DataType, Any]]) -> pa.Table:
    return pa.table({name: pa.array([value, None], t) for name, (t, value) in columns.items()})


def found_schema(path: Path) -> pa.Schema | None:
    known = list_parquet(str(path), "test", None)
    assert known is not None
    return spark_schema(ParquetFiles.read(known.uris, None), known)


def spark_finds(spark: Any, path: Path) -> pa.Schema:
    return spark_to_arrow_schema(spark.read.parquet(str(path)).schema)


def test_plain_columns_are_typed_as_spark_does(spark: Any, tmp_path: Path) -> None:
    pq.write_table(table_of(PLAIN), tmp_path / "a.parquet")
    assert found_schema(tmp_path) == spark_finds(spark, tmp_path)
    assert found_schema(tmp_path / "a.parquet") == spark_finds(spark, tmp_path)


@pytest.mark.parametrize("name", DOUBTFUL)
def test_other_columns_are_left_to_spark(spark: Any, tmp_path: Path, name: str) -> None:
    pq.write_table(table_of({"long": PLAIN["long"], name: DOUBTFUL[name]}), tmp_path / "a.parquet")
    found = found_schema(tmp_path)
    assert found is None or found == spark_finds(spark, tmp_path)


def test_files_of_spark(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT 1 AS a, 'x' AS b, date'2021-09-01' AS c, timestamp'2021-09-01 12:00:00' AS d, "
        "timestamp_ntz'2021-09-01 12:00:00' AS e, 1.5BD AS f, binary('a') AS g"
    )
    frame.write.parquet(f"{tmp_path}/plain")
    found = found_schema(tmp_path / "plain")
    assert found is None or found == spark_finds(spark, tmp_path / "plain")
    frame.drop("d").write.parquet(f"{tmp_path}/dated/ds=2021-09-01")
    frame.drop("d").write.parquet(f"{tmp_path}/dated/ds=2021-09-02")
    assert found_schema(tmp_path / "dated") == spark_finds(spark, tmp_path / "dated")


@pytest.mark.parametrize(
    "folders",
    [
        ["ds=2021-09-01", "ds=2021-09-02"],
        ["ds=2021-02-28", "ds=2021-02-30"],
        ["ds=1", "ds=2"],
        ["ds=2021-09-01/hour=1", "ds=2021-09-01/hour=2"],
        ["ds=2021-09-01", "ds=later"],
        ["ds=2021-09-01", "ds=__HIVE_DEFAULT_PARTITION__"],
        ["plain", "other"],
    ],
)
def test_folders_of_partitions(spark: Any, tmp_path: Path, folders: list[str]) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(table_of({"long": PLAIN["long"]}), tmp_path / folder / "a.parquet")
    found = found_schema(tmp_path)
    if "=" in folders[0]:
        assert found is None or found == spark_finds(spark, tmp_path)
    table = bind_table(Engine(spark), str(tmp_path), "test")
    assert table.parquet is not None
    assert table.parquet.rows == 2 * len(folders)
    assert table.schema.names[0] == "long"


def test_files_that_differ_are_left_to_spark(tmp_path: Path) -> None:
    pq.write_table(table_of({"a": PLAIN["long"]}), tmp_path / "1.parquet")
    pq.write_table(table_of({"a": PLAIN["int"]}), tmp_path / "2.parquet")
    assert found_schema(tmp_path) is None
    pq.write_table(table_of({"a": PLAIN["long"], "A": PLAIN["long"]}), tmp_path / "x.parquet")
    assert found_schema(tmp_path / "x.parquet") is None  # to Spark they are one name


def test_hidden_files_do_not_count(spark: Any, tmp_path: Path) -> None:
    for name in ("a.parquet", "_b.parquet", ".c.parquet"):
        pq.write_table(table_of({"a": PLAIN["long"]}), tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_temporary").mkdir()
    pq.write_table(table_of({"a": PLAIN["long"]}), tmp_path / "_temporary" / "d.parquet")
    table = bind_table(Engine(spark), str(tmp_path), "test")
    assert table.uris == (f"{tmp_path}/a.parquet",)
    assert table.frame.count() == 2


def test_names_with_odd_characters(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c"
    folder.mkdir()
    pq.write_table(table_of({"a": PLAIN["long"]}), folder / "x y.parquet")
    table = bind_table(Engine(spark), str(folder), "test")
    assert table.parquet is not None
    assert table.frame.count() == table.parquet.rows == 2
    rows, _ = table.rows([], [], 2)
    assert rows is not None
    write_deltalake(str(tmp_path / "d e"), table_of({"a": PLAIN["long"]}))
    assert bind_table(Engine(spark), str(tmp_path / "d e"), "test").frame.count() == 2


def test_only_files_with_times_in_range_are_kept(spark: Any, tmp_path: Path) -> None:
    for day in range(4):
        at = dt.datetime(2021, 9, day + 1, tzinfo=dt.UTC)
        times = [at, None if day == 3 else at + dt.timedelta(hours=23)]
        pq.write_table(
            pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))}),
            tmp_path / f"{day}.parquet",
        )
    table = bind_table(Engine(spark), str(tmp_path), "test")
    second = int(dt.datetime(2021, 9, 2, tzinfo=dt.UTC).timestamp() * 1000)

    def kept(start: int | None, end: int | None) -> list[str]:
        return [uri[-9] for uri in table.within("ts", start, end).uris or ()]

    day = 86_400_000
    assert kept(None, None) == ["0", "1", "2", "3"]
    assert kept(second, second + day) == ["1", "3"]  # rows without a time are always asked for
    assert kept(second + 1, None) == ["1", "2", "3"]
    assert kept(None, second) == ["0", "3"]
    assert table.times("ts") == (second - day, second + 2 * day)
    assert Store.of_file((table.uris or ())[0])[1] == "0.parquet"


def test_a_range_without_partitions_is_empty(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "ds=2021-09-01").mkdir()
    pq.write_table(table_of({"a": PLAIN["long"]}), tmp_path / "ds=2021-09-01" / "a.parquet")
    days = PartitionRange("ds", start="2022-01-01", missing="ignore")
    table = bind_table(Engine(spark), str(tmp_path), "test", partitions=days)
    assert table.uris == ()
    assert table.schema.names == table.frame.columns == ["a", "ds"]
    assert table.frame.count() == 0
