"""Tables that delta-rs cannot create by itself can be created, replaced and opened."""

from __future__ import annotations

import datetime as dt
import doctest
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from windrow import Shard
from windrow.errors import SchemaError, ShardExistsError, StorageError
from windrow.storage import delta
from windrow.storage.delta import check_storable, create_table, open_table, replace_table
from windrow.storage.store import Store

NTZ = pa.timestamp("us")
NOON = dt.datetime(2021, 9, 30, 12)
PLAIN = pa.table({"n": pa.array([1, 2], pa.int64())})
TABLES = {
    "column": pa.table({"at": pa.array([NOON, None], NTZ)}),
    "list": pa.table({"at": pa.array([[NOON], []], pa.list_(NTZ))}),
    "key": pa.table({"seen": pa.array([[(NOON, 1)], []], pa.map_(NTZ, pa.int64()))}),
    "value": pa.table({"seen": pa.array([[("a", NOON)], None], pa.map_(pa.string(), NTZ))}),
    "deep": pa.table(
        {
            "n": pa.array([1, 2], pa.int64()),
            "seen": pa.array(
                [[{"in": [("a", [NOON])]}], []],
                pa.list_(pa.struct([("in", pa.map_(pa.string(), pa.list_(NTZ)))])),
            ),
        }
    ),
}


def replace(folder: Path, table: pa.Table, name: str) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / name)
    size = (folder / name).stat().st_size
    statistics = json.dumps({"numRecords": table.num_rows})
    file = AddAction(name, size, {}, 0, True, statistics)
    replace_table(Store.at(folder), table.schema, [file])


def rows(folder: Path) -> list[dict[str, Any]]:
    """The table as two readers see it."""
    found: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    assert pl.read_delta(str(folder)).height == len(found)
    return found


def test_the_docstrings() -> None:
    assert doctest.testmod(delta).failed == 0


@pytest.mark.parametrize("name", TABLES)
def test_times_without_a_zone_anywhere_in_a_table(tmp_path: Path, name: str) -> None:
    table = TABLES[name]
    for number, one in enumerate([table, PLAIN, table, table, PLAIN]):
        replace(tmp_path / "t", one, f"{number}.parquet")
        assert rows(tmp_path / "t") == one.to_pylist()


def test_a_table_that_was_plain_takes_them(tmp_path: Path) -> None:
    for number, one in enumerate([PLAIN, TABLES["key"], TABLES["column"], TABLES["value"]]):
        replace(tmp_path / "t", one, f"{number}.parquet")
        assert rows(tmp_path / "t") == one.to_pylist()


def test_of_two_that_create_a_table_one_is_told(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    create_table(store, TABLES["key"].schema)
    with pytest.raises(FileExistsError):
        create_table(store, TABLES["value"].schema)
    assert [p.name for p in (tmp_path / "_delta_log").iterdir()] == [f"{0:020}.json"]
    assert DeltaTable(str(tmp_path)).schema().to_arrow().field(0).name == "seen"


def test_a_shard_of_such_rows(tmp_path: Path) -> None:
    table = TABLES["deep"]
    shard = Shard.create(tmp_path / "s", table.schema, key=["n"])
    with pytest.raises(ShardExistsError, match="there is a table already"):
        Shard.create(tmp_path / "s", table.schema, key=["n"])
    shard.append(table, lower=0, upper=5)
    shard.append(table, lower=5, upper=6)
    shard.compact(everything=True)
    found = Shard.open(tmp_path / "s").snapshot().to_table()
    assert sorted(found.column("n").to_pylist()) == [1, 2]
    assert found.column("_diff").to_pylist() == [2, 2]
    assert {"seen": table.column("seen")[0].as_py()} in found.select(["seen"]).to_pylist()


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (pa.struct([("a", pa.int64()), ("A", pa.int64())]), "Duplicate field name"),
        (pa.duration("us"), "Invalid data type"),
        (pa.uint32(), "is uint32, and a Delta table would hold int32"),
        (pa.list_(pa.uint8()), "would hold"),
    ],
)
def test_columns_that_no_table_can_hold(type_: pa.DataType, message: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("x", type_)])
    with pytest.raises(SchemaError, match=f"Join 'j': .*{message}"):
        check_storable(schema, "Join 'j'")


def test_columns_that_a_table_can_hold() -> None:
    for table in TABLES.values():
        check_storable(table.schema, "Join 'j'")
    odd = ["a b", "a.b", "a,;{}()=", "a\nb", "", "é", "a`b", "a%20b", "x" * 300]
    check_storable(pa.schema([(name, pa.map_(pa.binary(), pa.int64())) for name in odd]), "")


def test_a_table_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    assert open_table(Store.at(tmp_path / "none")) is None
    replace(tmp_path / "t", PLAIN, "0.parquet")
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(StorageError, match=r"/t: the Delta table .* cannot be opened"):
        open_table(Store.at(tmp_path / "t"))
