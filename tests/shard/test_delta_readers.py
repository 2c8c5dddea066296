"""Any Delta reader sees a shard's updates, and the statistics in the log are right."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from oracle import Oracle, Row, count_updates
from strategies import SCALARS, to_table
from windrow import Shard, by_columns, by_hash, col
from windrow.shard import part
from windrow.shard.spec import Order

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
Updates = list[tuple[dict[str, Any], int, int]]


def with_pyarrow(uri: str) -> pa.Table:
    return DeltaTable(uri).to_pyarrow_table()


def with_datafusion(uri: str) -> pa.Table:
    table = DeltaTable(uri)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def with_polars(uri: str) -> pa.Table:
    return pl.read_delta(uri).to_arrow()


READERS = [with_pyarrow, with_datafusion, with_polars]
readers = pytest.mark.parametrize("read", READERS, ids=lambda reader: reader.__name__)

NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(pa.float64()), [[], [0.5, None, NAN], [-0.0]]),
    "struct": (
        pa.struct([("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]),
        [
            {"at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), "tags": ["x", None]},
            {"at": None, "tags": None},
        ],
    ),
    "map": (pa.map_(pa.string(), pa.decimal128(38, 2)), [[("a", Decimal("1.25")), ("b", None)]]),
}
VALUES = {f"c{i}": values for i, (_, values) in enumerate(SCALARS)} | {
    name: values for name, (_, values) in NESTED.items()
}
SCHEMA = pa.schema(
    [(f"c{i}", type_) for i, (type_, _) in enumerate(SCALARS)]
    + [(name, type_) for name, (type_, _) in NESTED.items()]
)
KEY = "c3"


def some_rows(lower: int, upper: int, count: int = 40) -> Updates:
    pick = random.Random(lower)
    pool = [
        {name: pick.choice([*values, None]) for name, values in VALUES.items()} for _ in range(12)
    ]
    return [
        (pick.choice(pool), pick.randrange(lower, upper), pick.choice([1, 1, 2, -1]))
        for _ in range(count)
    ]


def seen(table: pa.Table, since: int) -> Counter[Row]:
    """What a reader found, consolidated, with history before `since` at `since`."""
    # Readers have layouts of their own (large and view strings); values are what counts.
    table = table.select([*SCHEMA.names, "_time", "_diff"])
    at = table.column_names.index("_time")
    times = pc.max_element_wise(table.column("_time"), pa.scalar(since))
    return count_updates(table.set_column(at, "_time", times), with_time=True)


@readers
@pytest.mark.parametrize("order", [by_hash(), by_columns("c12", "c6")], ids=str)
def test_readers_see_what_the_shard_holds(
    tmp_path: Path, read: Callable[[str], pa.Table], order: Order
) -> None:
    shard, oracle = Shard.create(tmp_path / "s", SCHEMA, key=[KEY], order=order), Oracle(SCHEMA)

    def check() -> None:
        expected = oracle.changes(shard.since, shard.upper)
        assert seen(shard.changes(shard.since).to_table(), shard.since) == expected
        assert seen(read(shard.uri), shard.since) == expected

    for lower in (0, 10):
        rows = some_rows(lower, lower + 10)
        shard.append(to_table(rows, SCHEMA), lower=lower, upper=lower + 10)
        oracle.append(rows)
    check()
    rows = some_rows(20, 30)
    pq.write_table(to_table(rows, SCHEMA), tmp_path / "adopted.parquet", row_group_size=9)
    shard.adopt([tmp_path / "adopted.parquet"], lower=20, upper=30)
    oracle.append(rows)
    check()
    shard.advance_since(15)
    oracle.since = 15
    check()
    shard.compact(everything=True)
    check()
    shard.vacuum(retention_hours=0)
    check()


def test_readers_that_start_from_a_checkpoint_see_the_same(tmp_path: Path) -> None:
    shard, oracle = Shard.create(tmp_path / "s", SCHEMA, key=[KEY]), Oracle(SCHEMA)
    for lower in range(105):
        rows = some_rows(lower, lower + 1, count=2)
        shard.append(to_table(rows, SCHEMA), lower=lower, upper=lower + 1)
        oracle.append(rows)
        if lower == 60:
            shard.compact()
    assert (tmp_path / "s" / "_delta_log" / "_last_checkpoint").exists()
    for read in READERS:
        assert seen(read(shard.uri), 0) == oracle.changes(0, 105)
    again = Shard.open(shard.uri)
    assert (again.upper, again.stats()) == (105, shard.stats())
    assert seen(again.changes(0).to_table(), 0) == oracle.changes(0, 105)
    assert_statistics(again)


@readers
def test_an_empty_shard_has_its_columns(tmp_path: Path, read: Callable[[str], pa.Table]) -> None:
    shard = Shard.create(tmp_path / "s", SCHEMA, key=[KEY])
    found = read(shard.uri)
    assert found.num_rows == 0
    assert found.column_names == [*SCHEMA.names, "_time", "_diff", "_prefix", "_hash"]


def test_readers_may_skip_by_the_statistics(tmp_path: Path) -> None:
    """Values at the very ends of what the log says are found."""
    start = dt.datetime(1969, 12, 31, 23, 59, 59, 1, UTC)
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())])
    shard = Shard.create(tmp_path / "s", schema, key=["k"])
    for lower in range(4):
        at = [start + dt.timedelta(seconds=lower, microseconds=i) for i in range(3)]
        rows = {"k": range(3), "at": pa.array(at, schema.field("at").type), "s": ["a", "é", "zz"]}
        shard.append(pa.table(rows), lower=lower, upper=lower + 1)
    table = DeltaTable(shard.uri)
    for row in shard.changes(0).to_table().to_pylist():
        arrow = table.to_pyarrow_table(filters=[("at", "=", row["at"])])
        lazy = pl.scan_delta(shard.uri).filter(pl.col("at") == row["at"]).collect()
        own = shard.changes(0, where=col("at") == row["at"])
        assert arrow.num_rows == lazy.height == own.to_table().num_rows == 1
        assert own.counters.parts_skipped == 3
        assert arrow.column("_time").to_pylist() == [row["_time"]] == lazy["_time"].to_list()


STATISTICS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "int8": (pa.int8(), lambda r: r.randint(-128, 127)),
    "int32": (pa.int32(), lambda r: r.randint(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), lambda r: r.randint(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), lambda r: r.choice([NAN, 0.1, -0.0, 0.0, r.uniform(-1e30, 1e30)])),
    "float64": (pa.float64(), lambda r: r.choice([NAN, 5e-324, -1e308, r.gauss(0, 1)])),
    "infinite": (pa.float64(), lambda r: r.choice([INF, -INF, NAN, 1.5])),
    "only_nan": (pa.float64(), lambda r: NAN),
    "decimal": (pa.decimal128(20, 3), lambda r: Decimal(r.randint(-(10**19), 10**19)) / 1000),
    "date": (pa.date32(), lambda r: dt.date.fromordinal(r.randint(1, dt.date.max.toordinal()))),
    "at": (
        pa.timestamp("us", "UTC"),
        lambda r: (
            dt.datetime(1970, 1, 1, tzinfo=UTC)
            + dt.timedelta(microseconds=r.randint(-6 * 10**16, 25 * 10**16))
        ),
    ),
    "local": (
        pa.timestamp("us"),
        lambda r: dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=r.randint(-(10**15), 10**15)),
    ),
    "short": (pa.string(), lambda r: r.choice(["", "é", 'quote " \\', "\N{GRINNING FACE}", "zz"])),
    "long": (pa.string(), lambda r: "x" * r.randint(60, 70)),
    "bytes": (pa.binary(), lambda r: r.randbytes(r.randint(0, 80))),
    "nothing": (pa.string(), lambda r: None),
}
STATISTICS_SCHEMA = pa.schema([(name, type_) for name, (type_, _) in STATISTICS.items()])


def random_updates(seed: int, time: int, count: int) -> pa.Table:
    pick = random.Random(f"{seed}/{time}")
    nulls = pick.choice([0.0, 0.1, 0.9])
    columns = {
        name: pa.array([None if pick.random() < nulls else draw(pick) for _ in range(count)], type_)
        for name, (type_, draw) in STATISTICS.items()
    }
    columns["_time"] = pa.array([time + pick.randrange(5) for _ in range(count)])
    columns["_diff"] = pa.array([pick.choice([-1, 1, 3]) for _ in range(count)])
    return pa.table(columns)


def in_statistics(value: Any) -> bool:
    """Whether Delta's statistics can hold this bound exactly."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return len(value) <= 64
    return not isinstance(value, bool | bytes | Decimal)


def bounds_of(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The smallest and largest value, NULL and NaN left out."""
    values = column.drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    # Strings in the order of their bytes, which is also that of Python's code points.
    found = values.to_pylist()
    return (min(found), max(found)) if found else (None, None)


def has_nan(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def assert_statistics(shard: Shard) -> None:
    """The log says of each file of the shard what is in it."""
    actions = pa.table(DeltaTable(shard.uri).get_add_actions(flatten=True)).to_pylist()
    assert actions
    for action in actions:
        path = Path(shard.uri) / action["path"]
        file = pq.read_table(path)
        assert action["num_records"] == file.num_rows
        assert action["size_bytes"] == path.stat().st_size
        for name in ("_time", "_diff", *shard.schema.names):
            if pa.types.is_nested(file.schema.field(name).type):
                continue
            low, high = bounds_of(file.column(name))
            known = low is not None and in_statistics(low) and in_statistics(high)
            expected = (low, high) if known else (None, None)
            found = action.get(f"min.{name}"), action.get(f"max.{name}")
            # A row group of NaN alone says nothing of its bounds, and so the file does not.
            unsaid = found == (None, None) and has_nan(file.column(name))
            assert found == expected or unsaid, (name, file.column(name))
            assert action[f"null_count.{name}"] == file.column(name).null_count, name


@pytest.mark.parametrize("seed", range(6))
def test_statistics_say_what_is_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Several row groups to a file, so that their bounds are put together.
    monkeypatch.setattr(part, "ROW_GROUP_ROWS", 7)
    order = random.Random(seed).choice([by_hash(), by_columns("at"), by_columns("short", "date")])
    shard = Shard.create(tmp_path / "s", STATISTICS_SCHEMA, key=["int64"], order=order)
    for lower in (0, 5, 10):
        table = random_updates(seed, lower, 30)
        if lower == 5:
            pq.write_table(table, tmp_path / "f.parquet", row_group_size=8)
            shard.adopt([tmp_path / "f.parquet"], lower=lower, upper=lower + 5)
        else:
            size = 4_000 if lower else part.PART_BYTES
            shard.append(table, lower=lower, upper=lower + 5, part_bytes=size)
        assert_statistics(shard)
    assert shard.stats().parts > 3
    shard.compact(everything=True)
    assert_statistics(shard)
    assert_reads_find_bounds(shard)


def assert_reads_find_bounds(shard: Shard) -> None:
    """Reads by the bounds of a column lose nothing to its statistics."""
    everything = shard.changes(0).to_table()
    for name in ("int64", "float32", "float64", "infinite", "date", "at", "local", "short", "long"):
        low, high = bounds_of(everything.column(name))
        for value in (low, high):
            if value is None:
                continue
            found = shard.changes(0, where=col(name) == value).to_table()
            kept = pc.fill_null(pc.equal(everything.column(name), pa.scalar(value)), False)
            assert found.num_rows == pc.sum(kept).as_py() > 0
        for bound in (col(name) >= high, col(name) <= low):
            assert shard.changes(0, where=bound).to_table().num_rows > 0


def test_files_of_other_writers_lose_nothing_to_their_statistics(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("x", pa.float64())])
    at = [dt.datetime(1969, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(2024, 5, 5, 1, 2, 3, 999_999, UTC)]
    foreign = [("k", pa.large_string()), ("at", pa.timestamp("ns", "UTC")), ("x", pa.float64())]
    foreign += [("_time", pa.int64()), ("_diff", pa.int64())]
    columns: dict[str, Any] = {"k": ["a" * 70, "b"], "at": at, "x": [NAN, -0.0], "_diff": [1, 1]}

    def table(time: int) -> pa.Table:
        return pa.table({**columns, "_time": [time, time]}, schema=pa.schema(foreign))

    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    pl.from_arrow(table(0)).write_parquet(paths[0])
    encoded = table(1).column("k").dictionary_encode()
    pq.write_table(table(1).set_column(0, "k", encoded), paths[1])
    pq.write_table(table(2), paths[2], write_statistics=False)
    shard = Shard.create(tmp_path / "s", schema, key=["k"])
    for time, path in enumerate(paths):
        shard.adopt([path], lower=time, upper=time + 1)
        for row in (0, 1):
            where = col("k") == columns["k"][row], col("at") == at[row], col("at") >= at[row]
            for condition in where:
                found = shard.changes(time, where=condition & (col("k") == columns["k"][row]))
                assert found.to_table().column("_time").to_pylist() == [time]
        assert shard.changes(time, where=col("x") > 1).to_table().num_rows == 1
        assert shard.changes(time, where=col("x") == 0).to_table().num_rows == 1
    assert seen_rows(shard) == [6, 6, 6]
    shard.compact(everything=True)
    assert seen_rows(shard) == [6, 6, 6]


def seen_rows(shard: Shard) -> list[int]:
    return [read(shard.uri).num_rows for read in READERS]
