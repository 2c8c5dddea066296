"""Shards that are wide, or long, or in very many parts: the same answers, at a sensible price."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from windrow import Shard, col

WIDE = pa.schema(
    [
        ("k", pa.int64()),
        *((f"c{i}", [pa.int64(), pa.string(), pa.float64()][i % 3]) for i in range(2_000)),
    ]
)


def wide_rows(*keys: int) -> pa.Table:
    def value(i: int, key: int) -> object:
        return [key + i, f"{key}-{i}", key / (i + 1)][i % 3]

    rows = [{"k": key, **{f"c{i}": value(i, key) for i in range(2_000)}} for key in keys]
    return pa.Table.from_pylist(rows, schema=WIDE)


def test_a_wide_shard(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "wide", WIDE, key=["k"])
    shard.append(wide_rows(1, 2), lower=0, upper=1)
    shard.append(wide_rows(3, 4), lower=1, upper=2)
    shard = Shard.open(tmp_path / "wide")

    def rows(table: pa.Table) -> list[dict[str, object]]:
        return table.select(WIDE.names).sort_by("k").to_pylist()

    assert rows(shard.snapshot().to_table()) == wide_rows(1, 2, 3, 4).to_pylist()
    assert rows(shard.snapshot(keys={"k": [3]}).to_table()) == wide_rows(3).to_pylist()
    late = shard.snapshot(where=col("c1998") > 2_000, columns=["k"]).to_table()
    assert sorted(late.column("k").to_pylist()) == [3, 4]
    shard.compact(everything=True)
    assert rows(shard.snapshot().to_table()) == wide_rows(1, 2, 3, 4).to_pylist()


def test_the_log_holds_statistics_of_few_columns_of_a_wide_shard(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "wide", WIDE, key=["k"])
    shard.append(wide_rows(1, 2), lower=0, upper=1)
    stream = shard._log._table.get_add_actions(flatten=False)
    low = pa.RecordBatchReader.from_stream(stream).read_all().schema.field("min").type
    assert {f.name for f in low} == {"_time", "_diff", "_prefix", *WIDE.names[:32]}


def test_statistics_of_columns_with_odd_names(tmp_path: Path) -> None:
    names = ["a.b", "a,b", "`", "a`,`b", "ü ", "_x", "(1)"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    shard = Shard.create(tmp_path / "odd", schema, key=names[:1])
    row = dict(zip(names, range(len(names)), strict=True))
    shard.append(pa.Table.from_pylist([row], schema=schema), lower=0, upper=1)
    (part,) = Shard.open(tmp_path / "odd").parts()
    assert {name: part.bounds[name].low for name in names} == row


def test_statistics_beside_nested_columns(tmp_path: Path) -> None:
    inner = pa.struct([("b", pa.int64()), ("c", pa.struct([("d", pa.string())]))])
    nested = [("a", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))]
    schema = pa.schema([*nested, ("k", pa.int64()), ("z", inner), ("x", pa.int64())])
    shard = Shard.create(tmp_path / "nested", schema, key=["k"])
    shard.append(pa.Table.from_pylist([{"k": 1, "x": 2}], schema=schema), lower=0, upper=1)
    (part,) = Shard.open(tmp_path / "nested").parts()
    assert (part.bounds["k"].low, part.bounds["x"].high, part.time) == (1, 2, (0, 0))
