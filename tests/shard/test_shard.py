"""What a shard does, by example."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from oracle import Oracle, canonical, count_updates
from strategies import NAN, SCALARS, to_table
from windrow import Consolidation, Shard, by_columns, by_hash, col
from windrow.shard import compact as compact_module
from windrow.shard import part
from windrow.shard import shard as shard_module
from windrow.shard.compact import FANOUT, tier
from windrow.shard.log import Log
from windrow.shard.merge import merges, read_slice
from windrow.shard.part import Part
from windrow.shard.plan import runs_of
from windrow.shard.scan import Counters, Slice
from windrow.shard.spec import Order, ShardSpec
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.storage.store import Store

UTC = dt.UTC
EVENTS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
levels = pytest.mark.parametrize("level", list(Consolidation), ids=lambda level: level.value)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> int:
    """Row groups of 100 updates; with `part_bytes=1` parts of as many. Not in Spark's tasks."""
    monkeypatch.setattr(part, "ROW_GROUP_ROWS", 100)
    return 100


def events(count: int, start: int = 0, **more: Any) -> pa.Table:
    """`n` counts up, `k` is spread over it, `s` is nearly as sorted as `n`."""
    n = np.arange(start, start + count)
    columns = {"k": n * 7_919 % 1_009, "n": n, "s": [f"{i // 10:06d}" for i in n]}
    return pa.table(columns | more)


def rows_in(table: pa.Table) -> Counter[Any]:
    return count_updates(table, with_time=True)


def listed(table: pa.Table, *names: str) -> list[str]:
    """The rows in their order; as text, in which NaN equals NaN."""
    return [repr(row) for row in table.select(names or table.column_names).to_pylist()]


def in_slices(read: Any, slices: int) -> list[pa.Table]:
    return [
        pa.Table.from_batches(
            list(read_slice(read.scan, s, read.level, Counters())), schema=read.schema
        )
        for s in read.plan(slices).slices
    ]


# Frontiers, inputs and sizes


def test_rows_get_the_lower_bound_as_time_and_one_as_diff(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    assert repr(shard) == f"Shard('{tmp_path / 's'}', since=0, upper=0)"
    assert shard.append(events(3), lower=0, upper=10)
    assert shard.append(events(1, _diff=[-1]), lower=10, upper=20)
    assert shard.append(events(1, _time=[25]), lower=20, upper=30)
    assert shard.append(EVENTS.empty_table(), lower=30, upper=40)
    found = shard.changes(0).to_table().select(["n", "_time", "_diff"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        (0, 0, 1),
        (0, 10, -1),
        (0, 25, 1),
        (1, 0, 1),
        (2, 0, 1),
    ]
    assert shard.snapshot().to_table().column("_time").to_pylist() == [39] * 3
    assert (shard.since, shard.upper) == (0, 40)


def test_all_kinds_of_arrow_data_can_be_appended(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    table = events(50)
    batches = table.to_batches(max_chunksize=20)
    inputs: list[Any] = [table, batches[0], batches, iter(batches), table.to_reader(7)]
    for lower, data in enumerate(inputs):
        assert shard.append(data, lower=lower, upper=lower + 1)
    found = shard.changes(0).to_table()
    counts = Counter(found.column("_time").to_pylist())
    assert counts == {0: 50, 1: 20, 2: 50, 3: 50, 4: 50}
    # Columns in another order are the same columns.
    assert not shard.append(table.select(["s", "k", "n"]), lower=0, upper=1)


def test_stats_come_from_the_log(tmp_path: Path, small_groups: int) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    empty = shard.stats()
    assert (empty.rows, empty.bytes, empty.parts, empty.runs, empty.batches) == (0, 0, 0, 0, 0)
    shard.append(events(1_000), lower=0, upper=5, part_bytes=1)
    minus = pa.array([-1] * 30, pa.int64())
    shard.append(events(30, _diff=minus), lower=5, upper=8)
    pq.write_table(to_table([({"k": 1, "n": 2, "s": None}, 8, -1)], EVENTS), tmp_path / "f.parquet")
    shard.adopt([tmp_path / "f.parquet"], lower=8, upper=9)
    shard.advance_since(6)
    stats = shard.stats()
    assert (stats.since, stats.upper, stats.rows, stats.retractions) == (6, 9, 1_031, 31)
    assert (stats.batches, stats.runs, stats.parts, stats.unsorted_parts) == (3, 3, 12, 1)
    files = list((tmp_path / "s").glob("*.parquet"))
    assert stats.bytes == sum(file.stat().st_size for file in files)
    done = shard.compact(everything=True)
    after = shard.stats()
    # What was inserted and retracted before `since` is gone.
    assert (after.rows, after.retractions, after.runs, after.unsorted_parts) == (971, 1, 1, 0)
    assert (done.updates_read, done.updates_written, done.runs_merged, done.merges) == (
        1_031,
        971,
        3,
        1,
    )
    assert done.bytes_written == after.bytes


def test_a_table_may_be_wide(tmp_path: Path) -> None:
    """Delta keeps statistics of 32 columns by default; a read needs those of the last ones."""
    names = [f"c{i:03d}" for i in range(120)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    shard = Shard.create(tmp_path / "s", schema, key=["c119"])
    for lower in (0, 1):
        shard.append(pa.table({n: [lower, 5] for n in names}), lower=lower, upper=lower + 1)
    found = Shard.open(shard.uri).snapshot(where=col("c000") == 1, keys={"c119": [1]})
    assert found.to_table().num_rows == 1
    assert found.counters.parts_skipped == 1


@pytest.mark.parametrize("name", ["a.b", "first name", "naïve", "x`y", "a,b;c", "select", "0"])
def test_a_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    schema = pa.schema([(name, pa.int64()), ("a", pa.struct([("b", pa.int64())]))])
    shard = Shard.create(tmp_path / "s", schema, key=[name], order=by_columns(name))
    for lower in (0, 1):
        table = pa.table({name: [lower, lower + 1], "a": [{"b": 100}, {"b": -100}]})
        shard.append(table, lower=lower, upper=lower + 1)
    shard = Shard.open(shard.uri)
    read = shard.changes(0, where=col(name) == 2)
    assert read.to_table().column(name).to_pylist() == [2]
    assert read.counters.parts_skipped == 1
    shard.compact(everything=True)
    found = shard.changes(0, columns=[name], keys={name: [0, 2]}).to_table()
    assert found.column_names == [name, "_time", "_diff"]
    assert found.column(name).to_pylist() == [0, 2]


# What a read touches


def test_a_filter_on_the_first_order_column_skips_parts(tmp_path: Path, small_groups: int) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, order=by_columns("n"))
    shard.append(events(2_000), lower=0, upper=1, part_bytes=1)
    assert shard.stats().parts == 20
    read = shard.snapshot(where=col("n").between(500, 599))
    assert read.to_table().column("n").to_pylist() == list(range(500, 600))
    counters = read.counters
    assert (counters.parts_fetched, counters.parts_skipped) == (1, 19)
    assert (counters.row_groups_fetched, counters.updates_read) == (1, 100)
    assert counters.updates_emitted == 100
    assert 0 < counters.bytes_fetched < counters.bytes_skipped
    assert counters.seconds_to_first_batch is not None
    nothing = shard.snapshot(where=col("n") > 5_000)
    assert nothing.to_table().num_rows == 0
    assert (nothing.counters.parts_fetched, nothing.counters.bytes_fetched) == (0, 0)
    assert nothing.counters.bytes_skipped == shard.stats().bytes
    # Each read counts anew.
    read.to_table()
    assert read.counters.parts_fetched == 1


def test_a_filter_on_a_clustered_column_skips_row_groups(tmp_path: Path, small_groups: int) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, order=by_columns("n"))
    shard.append(events(2_000), lower=0, upper=1)
    assert shard.stats().parts == 1
    read = shard.snapshot(where=col("s") == "000123")
    assert read.to_table().column("n").to_pylist() == list(range(1_230, 1_240))
    counters = read.counters
    assert (counters.parts_fetched, counters.parts_skipped) == (1, 0)
    assert (counters.row_groups_fetched, counters.row_groups_skipped) == (1, 19)
    assert (counters.updates_read, counters.updates_emitted) == (100, 10)
    assert counters.bytes_fetched < counters.bytes_skipped / 10
    scattered = shard.snapshot(where=col("k") == 17)
    assert scattered.to_table().num_rows == 2
    assert scattered.counters.row_groups_skipped < 5


@pytest.mark.parametrize("part_bytes", [1, part.PART_BYTES])
def test_a_lookup_touches_only_where_its_keys_can_be(
    tmp_path: Path, small_groups: int, part_bytes: int
) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    shard.append(events(2_000), lower=0, upper=1, part_bytes=part_bytes)
    read = shard.snapshot(keys={"k": [3, 999_999]}, cache=None)
    assert set(read.to_table().column("k").to_pylist()) == {3}
    counters = read.counters
    assert counters.parts_fetched + counters.parts_skipped == shard.stats().parts
    # A key's updates may straddle two row groups.
    assert counters.row_groups_fetched <= 4
    assert counters.updates_read <= 400
    skipped = counters.parts_skipped if part_bytes == 1 else counters.row_groups_skipped
    assert skipped >= 16


def test_changes_skip_parts_of_other_times(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    for lower in range(10):
        shard.append(events(10, start=lower), lower=lower, upper=lower + 1)
    read = shard.changes(7, 9)
    assert set(read.to_table().column("_time").to_pylist()) == {7, 8}
    assert (read.counters.parts_fetched, read.counters.parts_skipped) == (2, 8)
    read = shard.snapshot(2)
    assert read.to_table().num_rows == 12
    assert (read.counters.parts_fetched, read.counters.parts_skipped) == (3, 7)


def test_projection_reads_only_what_is_asked_for(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    oracle = Oracle(EVENTS)
    for lower in (0, 1):
        table = events(300, _diff=[1 - 2 * (i % 3 == lower) for i in range(300)])
        shard.append(table, lower=lower, upper=lower + 1)
        oracle.append(
            [({n: r[n] for n in EVENTS.names}, lower, r["_diff"]) for r in table.to_pylist()]
        )
    for columns in (["s"], ["n", "k"], ["s", "n", "k"], []):
        read = shard.snapshot(columns=columns)
        found = read.to_table()
        assert found.column_names == [*columns, "_time", "_diff"] == read.schema.names
        assert count_updates(found, with_time=False) == oracle.snapshot(1, columns=columns)
    # Filters and keys may use columns that are not asked for.
    found = shard.snapshot(columns=["s"], where=col("n") < 20, keys={"k": [0]}).to_table()
    where = {"where": lambda row: row["n"] < 20 and row["k"] == 0}
    assert count_updates(found, with_time=False) == oracle.snapshot(1, columns=["s"], **where)


@levels
@pytest.mark.parametrize("runs", [1, 5])
def test_a_limit_stops_early(tmp_path: Path, runs: int, level: Consolidation) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    for lower in range(runs):
        shard.append(events(60_000, start=lower * 60_000), lower=lower, upper=lower + 1)
    read = shard.snapshot(limit=10, consolidate=level)
    found = read.to_table()
    assert found.num_rows == 10 == read.counters.updates_emitted
    assert read.counters.updates_read <= shard.stats().rows / 10
    everything = set(shard.snapshot().to_table().select(["k", "n", "s"]).to_pandas()["n"])
    assert set(found.column("n").to_pylist()) <= everything
    assert shard.snapshot(limit=0).to_table().num_rows == 0


def test_a_stream_can_be_left_early(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, order=by_columns("n"))
    for lower in (0, 1):
        shard.append(events(200_000, start=lower), lower=lower, upper=lower + 1)
    read = shard.snapshot()
    first = next(read.batches())
    assert first.column("n")[0].as_py() == 0
    assert read.counters.updates_read < shard.stats().rows / 2


# Fast paths of consolidation


def one_slice(read: Any) -> tuple[Any, Slice, Consolidation]:
    (slice_,) = read.plan(1).slices
    return read.scan, slice_, read.level


def merging(shard: Shard, level: str = "full", **times: int) -> bool:
    read = shard.changes(**times, consolidate=level) if times else shard.snapshot(consolidate=level)
    return merges(*one_slice(read))


def test_a_single_run_is_merged_only_if_times_become_one(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    shard.append(events(100), lower=0, upper=10)
    assert not merging(shard)
    assert not merging(shard, lower=0)
    shard.append(events(100, _diff=[-1] * 50 + [1] * 50), lower=10, upper=20)
    assert merging(shard)
    assert merging(shard, lower=0)
    assert not merging(shard, lower=10)  # the first run lies before
    shard.compact(everything=True)
    assert merging(shard)  # the two times of a row become one
    assert not merging(shard, lower=0)
    shard.advance_since(19)
    assert merging(shard)
    shard.compact(everything=True)
    assert not merging(shard)
    assert not merging(shard, lower=19)
    read = shard.snapshot()
    assert read.to_table().column("_diff").to_pylist() == [2] * 50
    assert (read.counters.updates_read, read.counters.updates_emitted) == (50, 50)


def test_monotonic_reads_merge_only_where_something_was_retracted(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    for lower in range(3):
        shard.append(events(100), lower=lower, upper=lower + 1)
    assert merging(shard)
    assert not merging(shard, "monotonic")
    read = shard.snapshot(consolidate="monotonic")
    found = read.to_table()
    assert found.num_rows == 300 == read.counters.updates_read
    full = count_updates(shard.snapshot().to_table(), with_time=False)
    assert count_updates(found, with_time=False) == full
    shard.append(events(1, _diff=[-3]), lower=3, upper=4)
    assert merging(shard, "monotonic")
    found = shard.snapshot(consolidate="monotonic").to_table()
    assert (found.num_rows, set(found.column("_diff").to_pylist())) == (99, {3})
    # A part that is ruled out does not count.
    read = shard.snapshot(2, consolidate="monotonic")
    assert not merges(*one_slice(read))


def test_adopted_files_are_never_taken_for_consolidated(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    row = {"k": 1, "n": 2, "s": "x"}
    pq.write_table(to_table([(row, 0, 1)] * 3, EVENTS), tmp_path / "f.parquet")
    shard.adopt([tmp_path / "f.parquet"], lower=0, upper=1)
    assert merging(shard)
    assert shard.snapshot().to_table().to_pylist() == [row | {"_time": 0, "_diff": 3}]
    assert not merging(shard, "none")
    assert shard.snapshot(consolidate="none").to_table().num_rows == 3
    assert merging(shard, "best_effort")
    assert shard.snapshot(consolidate="best_effort").to_table().num_rows == 1
    shard.compact()  # an unsorted part alone is reason enough
    assert not merging(shard)
    assert shard.stats().unsorted_parts == 0


# A key with most of the rows


@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize(
    "order", [by_hash(), by_hash("n"), by_hash("s"), by_columns("k"), by_columns("k", "n")], ids=str
)
def test_a_hot_key_is_cut_over_several_slices(
    tmp_path: Path, small_groups: int, order: Order, runs: int, many: Callable[..., int]
) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"], order=order)
    total = many(8_000, 2_000)
    table = events(total)
    hot = pa.array([7 if i % 10 else i for i in range(total)], pa.int64())
    table = table.set_column(0, "k", hot)
    for lower in range(runs):
        share = table.take(pa.array(range(lower, total, runs)))
        shard.append(share, lower=lower, upper=lower + 1, part_bytes=1)
    read = shard.changes(0)
    tables = in_slices(read, 8)
    assert len(tables) >= 6
    assert max(t.num_rows for t in tables) <= total / 3
    assert pa.concat_tables(tables) == read.to_table()
    assert Counter(read.to_table().column("n").to_pylist()) == Counter(range(total))
    hot_slices = [t for t in tables if 7 in set(t.column("k").to_pylist())]
    assert len(hot_slices) >= 4
    lookup = shard.changes(0, keys={"k": [7, 10]}, columns=["n"])
    found = pa.concat_tables(in_slices(lookup, 8)).column("n").to_pylist()
    assert sorted(found) == [i for i in range(total) if i % 10 or i == 10]


# Maintenance


def test_write_amplification_is_bounded(tmp_path: Path, many: Callable[..., int]) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    written = appended = 0
    for lower in range(many(300)):
        shard.append(events(5, start=5 * lower), lower=lower, upper=lower + 1)
        appended += 5
        written += shard.compact().updates_written
        assert shard.stats().runs <= FANOUT * (tier(appended, FANOUT) + 1)
    assert written / appended <= 6
    assert shard.snapshot().to_table().num_rows == appended


def tiny(i: int) -> tuple[dict[str, Any], int, int]:
    """Rows that repeat, and are retracted now and then."""
    pick = random.Random(i)
    row = {"k": pick.randrange(40), "n": pick.randrange(3), "s": pick.choice(["a", "b", None])}
    return row, i, pick.choice([1, 1, -1])


def test_many_tiny_appends_are_read_back_without_compaction(
    tmp_path: Path, many: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_module, "COMPACT_EVERY", 0)
    shard, oracle = Shard.create(tmp_path / "s", EVENTS, key=["k"]), Oracle(EVENTS)
    for lower in range(many(600)):
        oracle.append([tiny(lower)])
        shard.append(to_table([tiny(lower)], EVENTS), lower=lower, upper=lower + 1)
    assert shard.stats().runs == many(600)
    check_against(Shard.open(shard.uri), oracle)


def test_appends_merge_small_runs_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_module, "COMPACT_EVERY", 10)
    shard, oracle = Shard.create(tmp_path / "s", EVENTS, key=["k"]), Oracle(EVENTS)
    for lower in range(100):
        oracle.append([tiny(lower)])
        shard.append(to_table([tiny(lower)], EVENTS), lower=lower, upper=lower + 1)
    assert shard.stats().runs < 2 * FANOUT + 10
    check_against(Shard.open(shard.uri), oracle)
    large = shard.stats().runs
    monkeypatch.setattr(compact_module, "SMALL_RUN_ROWS", 0)  # all are large now
    for lower in range(100, 130):
        oracle.append([tiny(lower)])
        shard.append(to_table([tiny(lower)], EVENTS), lower=lower, upper=lower + 1)
    assert shard.stats().runs == large + 30
    check_against(Shard.open(shard.uri), oracle)


def test_thousands_of_tiny_appends(tmp_path: Path, many: Callable[..., int]) -> None:
    # Old log entries go at each checkpoint, as they do after a month in a shard that lives long.
    spec = ShardSpec.make(EVENTS, ["k"], by_hash())
    log = Log.create(
        Store.at(tmp_path / "s"), spec, {"delta.logRetentionDuration": "interval 0 seconds"}
    )
    shard, oracle = Shard(log), Oracle(EVENTS)
    for lower in range(many(1_500, 250)):
        oracle.append([tiny(lower)])
        shard.append(to_table([tiny(lower)], EVENTS), lower=lower, upper=lower + 1)
        if lower % 200 == 199:
            shard.compact()
            assert shard.stats().runs <= FANOUT * (tier(lower, FANOUT) + 1)
    check_against(Shard.open(shard.uri), oracle)
    oracle.since = many(1_500, 250) - 50
    shard.advance_since(oracle.since)
    shard.compact(everything=True)
    shard.vacuum(retention_hours=0)
    check_against(Shard.open(shard.uri), oracle)


def check_against(shard: Shard, oracle: Oracle) -> None:
    upper = shard.upper
    for as_of in (shard.since, (shard.since + upper) // 2, upper - 1):
        found = shard.snapshot(as_of).to_table()
        assert count_updates(found, with_time=False) == oracle.snapshot(as_of)
        assert found.num_rows == len(oracle.snapshot(as_of))
    for lower in (shard.since, upper - 50):
        found = shard.changes(lower).to_table()
        assert rows_in(found) == oracle.changes(lower, upper)
    found = shard.snapshot(keys={"k": [3, 17]}).to_table()
    assert count_updates(found, with_time=False) == oracle.snapshot(
        upper - 1, lambda row: row["k"] in (3, 17)
    )


# Spark


NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(pa.float64()), [[], [0.5, None, NAN], [-0.0], [0.0]]),
    "struct": (
        pa.struct([("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.binary()))]),
        [{"at": dt.datetime(1969, 12, 31, 23, 59, 59, 1, UTC), "tags": [b"x", None]}],
    ),
    "map": (
        pa.map_(pa.string(), pa.decimal128(38, 2)),
        [[("a", Decimal("1.25")), ("b", None)], [("b", None), ("a", Decimal("1.25"))], []],
    ),
    "deep": (pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.date32()))])), [[{"m": []}, None]]),
}
VALUES = {f"c{i}": values for i, (_, values) in enumerate(SCALARS)} | {
    name: values for name, (_, values) in NESTED.items()
}
ALL_TYPES = pa.schema(
    [(f"c{i}", type_) for i, (type_, _) in enumerate(SCALARS)]
    + [(name, type_) for name, (type_, _) in NESTED.items()]
)


def rows_of_all_types(lower: int, upper: int, count: int = 60) -> list[Any]:
    pick = random.Random(lower)
    pool = [
        {name: pick.choice([*values, None]) for name, values in VALUES.items()} for _ in range(25)
    ]
    return [
        (pick.choice(pool), pick.randrange(lower, upper), pick.choice([1, 1, 2, -1]))
        for _ in range(count)
    ]


@pytest.mark.parametrize("order", [by_hash("c12"), by_columns("c6", "c12")], ids=str)
def test_spark_reads_and_writes_what_this_process_does(
    tmp_path: Path, spark: Any, order: Order
) -> None:
    shard = Shard.create(tmp_path / "s", ALL_TYPES, key=["c3", "c12"], order=order)
    oracle = Oracle(ALL_TYPES)
    for lower in (0, 10):
        rows = rows_of_all_types(lower, lower + 10)
        table = to_table(rows, ALL_TYPES)
        frame = spark.createDataFrame(table, arrow_to_spark_schema(table.schema))
        # The same content, whoever brings it.
        if lower:
            assert shard.append(frame, lower=lower, upper=lower + 10)
            assert not shard.append(table, lower=lower, upper=lower + 10)
        else:
            assert shard.append(table, lower=lower, upper=lower + 10)
            assert not shard.append(frame, lower=lower, upper=lower + 10)
        oracle.append(rows)
    for level in Consolidation:
        at = shard.snapshot(14, consolidate=level)
        between = shard.changes(5, 18, consolidate=level)
        for read, expected, with_time in (
            (at, oracle.snapshot(14), False),
            (between, oracle.changes(5, 18), True),
        ):
            local = read.to_table()
            found = read.dataframe(spark, slices=3).toArrow()
            assert count_updates(local, with_time=with_time) == expected
            assert count_updates(found, with_time=with_time) == expected
            assert found.column_names == local.column_names
            if level in (Consolidation.FULL, Consolidation.MONOTONIC):
                assert found.num_rows == len(expected)
            if level is Consolidation.NONE:
                assert sorted(listed(found)) == sorted(listed(local))


def test_the_time_zone_of_the_session_does_not_matter(tmp_path: Path, spark: Any) -> None:
    schema = pa.schema([("k", pa.timestamp("us", "UTC")), ("at", pa.timestamp("us"))])
    shard = Shard.create(tmp_path / "s", schema, key=["k"], order=by_columns("k"))
    # An hour that the clocks of New York skip, and one that they show twice.
    hours = [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 11, 3, 1, 30)]
    rows = [({"k": at.replace(tzinfo=UTC), "at": at}, 0, 1) for at in hours]
    table = to_table(rows, schema)
    expected = Oracle(schema, rows).changes(0, 1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.createDataFrame(table, arrow_to_spark_schema(table.schema))
        assert shard.append(frame, lower=0, upper=1, exchange=2)
        assert not shard.append(table, lower=0, upper=1)
        found = shard.changes(0).dataframe(spark).toArrow()
        looked_up = shard.changes(0).lookup(frame.select("k")).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    for read in (found, looked_up):
        at = read.column_names.index("k")
        utc = read.set_column(at, "k", read.column("k").cast(schema.field("k").type))
        assert rows_in(utc) == expected


def test_a_dataframe_may_be_filtered_projected_and_limited(tmp_path: Path, spark: Any) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"], order=by_columns("n"))
    shard.append(events(2_000), lower=0, upper=1)
    read = shard.snapshot(columns=["s", "n"], where=col("n") >= 1_500)
    frame = read.dataframe(spark, slices=4)
    assert frame.columns == ["s", "n", "_time", "_diff"]
    assert sorted(row.n for row in frame.collect()) == list(range(1_500, 2_000))
    limited = shard.snapshot(limit=17).dataframe(spark, slices=4).collect()
    assert len({row.n for row in limited}) == len(limited) == 17
    nothing = shard.snapshot(where=col("n") < 0).dataframe(spark)
    assert (nothing.columns, nothing.collect()) == (["k", "n", "s", "_time", "_diff"], [])


def test_tasks_report_their_counters(tmp_path: Path, spark: Any, small_groups: int) -> None:
    from pyspark.sql import Observation

    shard = Shard.create(tmp_path / "s", EVENTS, order=by_columns("n"))
    for lower in (0, 1):
        shard.append(events(1_000, start=lower), lower=lower, upper=lower + 1, part_bytes=1)
    read = shard.snapshot(where=col("n") < 250)
    local = read.to_table()
    observation = Observation()
    frame = read.dataframe(spark, slices=3, observe=observation)
    assert frame.columns == [*EVENTS.names, "_time", "_diff"]
    assert count_updates(frame.toArrow(), with_time=True) == rows_in(local)
    counted = observation.get
    assert counted["updates_emitted"] == local.num_rows == read.counters.updates_emitted
    assert counted["parts_skipped"] == read.counters.parts_skipped > 0
    assert counted["bytes_skipped"] >= read.counters.bytes_skipped
    # A part at a border is fetched by the slices on both of its sides.
    assert counted["parts_fetched"] >= read.counters.parts_fetched > 0
    assert counted["row_groups_fetched"] >= read.counters.row_groups_fetched > 0
    assert counted["updates_read"] >= read.counters.updates_read
    assert counted["bytes_fetched"] > 0


@pytest.mark.parametrize("order", [by_hash(), by_columns("k"), by_columns("n")], ids=str)
def test_a_lookup_by_dataframe_equals_one_by_values(
    tmp_path: Path, spark: Any, order: Order
) -> None:
    schema = pa.schema([("k", pa.float64()), ("l", pa.string()), ("n", pa.int64())])
    shard = Shard.create(tmp_path / "s", schema, key=["k", "l"], order=order)
    keys = [0.0, -0.0, NAN, None, 1.5, -7.0]
    rows = [
        ({"k": keys[i % 6], "l": [None, "a", "b"][i % 3], "n": i // 20}, i % 4, 1)
        for i in range(400)
    ]
    shard.append(to_table(rows, schema), lower=0, upper=4)
    wanted = {"k": [-0.0, NAN, None, 1.5, 99.0], "l": [None, "b", None, "b", "b"]}
    frame = spark.createDataFrame(
        [*zip(*wanted.values(), strict=True), (1.5, "b")], "k double, l string"
    )
    pairs = {tuple(map(canonical, pair)) for pair in zip(*wanted.values(), strict=True)}
    expected = Oracle(schema, rows).changes(
        0, 4, lambda row: (canonical(row["k"]), canonical(row["l"])) in pairs
    )
    by_values = shard.changes(0, keys=wanted).to_table()
    assert rows_in(by_values) == expected
    read = shard.changes(0)
    for slices in (1, 7):
        found = read.lookup(frame, slices=slices).toArrow()
        assert rows_in(found) == expected
        assert found.num_rows == by_values.num_rows
    assert read.lookup(frame.where("k = 99")).count() == 0


def float_keys(count: int) -> list[Any]:
    special = [0.0, -0.0, NAN, None, float("inf"), float("-inf"), 5e-324]
    pick = random.Random(1)
    return [pick.choice(special) if i % 3 else pick.uniform(-1e3, 1e3) for i in range(count)]


def string_keys(count: int) -> list[Any]:
    # Many share their first eight bytes, which is all that the prefix keeps of them.
    pick = random.Random(2)
    heads = ["", "a", "common prefix ", "common prefix é", "z"]
    return [None if i % 11 == 0 else pick.choice(heads) + str(i % 97) for i in range(count)]


def assert_one_sorted_run(shard: Shard) -> list[Part]:
    """All parts form one run, and none reaches beyond the beginning of the next."""
    (run,) = runs_of(shard._log.parts())
    by_index = sorted(run, key=lambda part: part.name.index)
    assert by_index == run
    for one, other in itertools.pairwise(run):
        assert one.prefix[1] <= other.prefix[0]
    return run


@pytest.mark.parametrize(
    ("type_", "keys"),
    [(pa.float64(), float_keys), (pa.string(), string_keys)],
    ids=["floats", "strings"],
)
@pytest.mark.parametrize("order", [by_hash(), by_columns("k", "n")], ids=str)
def test_an_exchange_makes_one_run(
    tmp_path: Path, spark: Any, order: Order, type_: pa.DataType, keys: Any
) -> None:
    schema = pa.schema([("k", type_), ("n", pa.int64())])
    shard = Shard.create(tmp_path / "s", schema, key=["k"], order=order)
    rows = [({"k": k, "n": i % 50}, i % 5, 1) for i, k in enumerate(keys(3_000))]
    frame = spark.createDataFrame(to_table(rows, schema)).repartition(3)
    assert shard.append(frame, lower=0, upper=5, exchange=4)
    run = assert_one_sorted_run(shard)
    assert 2 <= len(run) <= 4
    oracle = Oracle(schema, rows)
    read = shard.changes(0)
    assert not merges(*one_slice(read))
    found = read.to_table()
    assert rows_in(found) == oracle.changes(0, 5)
    assert found.num_rows == len(oracle.changes(0, 5))
    assert listed(pa.concat_tables(in_slices(read, 5))) == listed(found)
    if order.kind == "natural":
        assert listed(found, "k", "n") == listed(in_order(found), "k", "n")
    assert not shard.append(to_table(rows, schema), lower=0, upper=5)
    assert rows_in(shard.changes(0, keys={"k": [None]}).to_table()) == oracle.changes(
        0, 5, lambda row: row["k"] is None
    )


def in_order(table: pa.Table) -> pa.Table:
    """By `k` and `n` as Spark's ORDER BY has them: NULL first, NaN last."""
    k = table.column("k")
    if pa.types.is_floating(k.type):
        rank = pc.if_else(pc.fill_null(pc.is_nan(k), False), 2, 1)
    else:
        rank = pa.array(np.ones(len(k), np.int64))
    rank = pc.if_else(pc.is_null(k), 0, rank)
    keyed = table.append_column("rank", rank)
    by = [(name, "ascending") for name in ("rank", "k", "n")]
    return keyed.take(pc.sort_indices(keyed, sort_keys=by)).drop_columns(["rank"])


@pytest.mark.parametrize("order", [by_hash(), by_columns("x.`y")], ids=str)
def test_spark_takes_columns_of_any_name(tmp_path: Path, spark: Any, order: Order) -> None:
    from pyspark.sql import Observation

    schema = pa.schema([("x.`y", pa.int64()), ("x", pa.struct([("`y", pa.string())]))])
    shard = Shard.create(tmp_path / "s", schema, key=["x.`y"], order=order)
    rows = [({"x.`y": i % 10, "x": {"`y": str(i)}}, 0, 1) for i in range(50)]
    frame = spark.createDataFrame(to_table(rows, schema))
    assert shard.append(frame, lower=0, upper=1, exchange=2)
    expected = Oracle(schema, rows).changes(0, 1)
    read = shard.changes(0)
    assert rows_in(read.dataframe(spark, slices=2, observe=Observation()).toArrow()) == expected
    keys = frame.selectExpr("`x.``y`", "1 as unused")
    assert rows_in(read.lookup(keys, slices=2).toArrow()) == expected


def test_without_an_exchange_each_task_writes_a_run(tmp_path: Path, spark: Any) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    frame = spark.createDataFrame(events(900)).repartition(3)
    shard.append(frame, lower=0, upper=1)
    assert shard.stats().runs == 3
    assert shard.snapshot().to_table().num_rows == 900
    # A stray column order or an empty frame is nothing special.
    assert not shard.append(frame.select("s", "n", "k"), lower=0, upper=1)
    assert shard.append(frame.limit(0), lower=1, upper=2, exchange=2)
    assert (shard.upper, shard.stats().runs) == (2, 3)


@pytest.mark.parametrize("order", [by_hash("n"), by_columns("s", "n")], ids=str)
def test_compaction_on_spark_equals_compaction_here(
    tmp_path: Path, spark: Any, order: Order
) -> None:
    def batches() -> Iterator[pa.Table]:
        for lower in range(4):
            table = events(40_000, start=lower * 20_000)
            diffs = np.where(table.column("n").to_numpy() % 5 == lower, -1, 1)
            yield table.append_column("_diff", pa.array(diffs))

    found = []
    for name, session in (("here", None), ("spark", spark)):
        shard = Shard.create(tmp_path / name, EVENTS, key=["k"], order=order)
        for lower, table in enumerate(batches()):
            shard.append(table, lower=lower, upper=lower + 1)
        shard.advance_since(2)
        before = rows_in(shard.changes(2, columns=["n"]).to_table())
        done = shard.compact(everything=True, spark=session)
        assert (done.runs_merged, done.merges) == (4, 1)
        run = assert_one_sorted_run(shard)
        assert len(run) >= (2 if session else 1)
        assert rows_in(shard.changes(2, columns=["n"]).to_table()) == before
        found.append((shard.changes(2).to_table(), done.updates_written, shard.stats().retractions))
    assert found[0] == found[1]
