"""Columns that are dropped: what is left of the rows is added up, and means the same."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import build, colliding_hashes, in_slices, small_pieces

from oracle import Oracle, canonical, count_updates
from strategies import NAN, to_table
from windrow import Consolidation, Shard, by_columns, by_hash, col
from windrow.shard import projection
from windrow.shard.projection import ProjectionBuffer
from windrow.shard.spec import Order

ADDING = [level for level in Consolidation if level is not Consolidation.NONE]
adding = pytest.mark.parametrize("level", ADDING, ids=lambda level: level.value)
EVENTS = pa.schema([("k", pa.int64()), ("city", pa.string()), ("n", pa.int64())])
CITIES = ["Bern", "Oslo", "Rome", None]


def events(count: int, start: int = 0, **more: Any) -> pa.Table:
    """`n` counts up, `k` is spread over it, `city` has few values."""
    n = np.arange(start, start + count)
    return pa.table(
        {"k": n * 7_919 % 1_009, "city": [CITIES[i % 4] for i in n], "n": n} | more,
        schema=pa.schema([*EVENTS, *(pa.field(name, pa.int64()) for name in more)]),
    )


def with_retractions(folder: Path, runs: int = 4, rows: int = 4_000, **options: Any) -> Shard:
    """Each run takes back a quarter of the one before."""
    shard = Shard.create(folder / "s", EVENTS, key=["k"], **options)
    for run in range(runs):
        tables = [events(rows, run * rows, _diff=[1] * rows)]
        if run:
            gone = rows // 4
            tables.append(events(gone, (run - 1) * rows, _diff=[-1] * gone))
        shard.append(pa.concat_tables(tables), lower=run, upper=run + 1)
    return shard


def sums(table: pa.Table) -> Counter[Any]:
    return count_updates(table, with_time=False)


# Against the oracle


def check_projections(data: st.DataObject, folder: str, *, roomy: bool = False) -> None:
    """Reads of random columns, at every level, whole and in slices.

    With `roomy`, the buffer has space for everything, so that each row comes once.
    """
    shard, oracle, values = build(data, folder)
    columns = data.draw(st.lists(st.sampled_from(shard.schema.names), unique=True))
    as_of = data.draw(st.integers(shard.since, shard.upper - 1))
    lower = data.draw(st.integers(shard.since, shard.upper))
    upper = data.draw(st.integers(lower, shard.upper))
    options: dict[str, Any] = {"columns": columns}
    keys = data.draw(st.none() | st.lists(values["k"], max_size=3))
    if keys is not None:
        options["keys"] = {"k": keys}
    if data.draw(st.booleans()):
        options["where"] = col("k").is_null() | ~col("k").is_null()

    def where(row: dict[str, Any]) -> bool:
        return keys is None or canonical(row["k"]) in [canonical(k) for k in keys]

    at, between = oracle.snapshot(as_of, where), oracle.changes(lower, upper, where)
    for level in Consolidation:
        for read, whole, expected, with_time in (
            (
                shard.snapshot(as_of, consolidate=level, **options),
                at,
                oracle.snapshot(as_of, where, columns),
                False,
            ),
            (
                shard.changes(lower, upper, consolidate=level, **options),
                between,
                oracle.changes(lower, upper, where, columns),
                True,
            ),
        ):
            found = read.to_table()
            assert read.counters.updates_emitted == found.num_rows
            slices = data.draw(st.integers(1, 3))
            for table in (found, in_slices(read, slices)):
                assert count_updates(table, with_time=with_time) == expected
                if level is Consolidation.NONE:
                    continue
                assert 0 not in table.column("_diff").to_pylist()
                if level is Consolidation.FULL:
                    # As if whole rows had been consolidated first.
                    assert table.num_rows <= len(whole)
                if level is not Consolidation.BEST_EFFORT and min(whole.values(), default=1) > 0:
                    assert min(table.column("_diff").to_pylist(), default=1) > 0
            # Whole rows do not pass through the buffer: best effort may leave equal ones apart.
            buffered = len(columns) < len(shard.schema.names) and level is not Consolidation.NONE
            if roomy and buffered and len(read.plan(1).slices) < 2:
                assert found.num_rows == len(expected)
    as_written = shard.snapshot(as_of, consolidate="none", **(options | {"columns": None}))
    read = shard.snapshot(as_of, consolidate="none", **options)
    assert read.to_table().num_rows == as_written.to_table().num_rows


@settings(max_examples=60)
@given(st.data())
def test_projections_equal_the_oracle(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pieces():
        check_projections(data, folder)


@settings(max_examples=40)
@given(st.data())
def test_a_buffer_with_room_for_all_gives_each_row_once(data: st.DataObject) -> None:
    roomy = {"sample": 10**6, "buffered": 10**6, "held": 10**6}
    with tempfile.TemporaryDirectory() as folder, small_pieces(**roomy):
        check_projections(data, folder, roomy=True)


@settings(max_examples=30)
@given(st.data(), st.integers(0, 2))
def test_hash_collisions_mix_no_projections(data: st.DataObject, bits: int) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pieces(), colliding_hashes(bits):
        check_projections(data, folder)


@pytest.mark.parametrize("level", Consolidation, ids=lambda level: level.value)
def test_keys_whose_rows_have_one_hash_are_told_apart(tmp_path: Path, level: Consolidation) -> None:
    with colliding_hashes(0):
        shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
        for time in range(2):
            rows = pa.table({"k": [None, 1], "city": ["Bern"] * 2, "n": [0, 0]}, schema=EVENTS)
            shard.append(rows, lower=time, upper=time + 1)
        for keys, expected in (([None], 2), ([1], 2), ([1, None], 4), ([2], 0)):
            found = shard.snapshot(columns=["city"], keys={"k": keys}, consolidate=level)
            assert sum(sums(found.to_table()).values()) == expected


@settings(max_examples=30)
@given(st.data())
def test_rows_never_appear_negative_while_the_buffer_changes_its_mind(data: st.DataObject) -> None:
    """A stretch with few values, one with many, and again: merged, absorbed, merged."""
    stretches = data.draw(st.lists(st.sampled_from([1, 3, 1_000]), min_size=1, max_size=5))
    length = data.draw(st.integers(5, 40))
    rows = []
    for at, values in enumerate(stretches):
        for i in range(length):
            rows.append(({"k": at * length + i, "c": i % values}, 0, 2))
    back = [(row, 1, -data.draw(st.integers(1, 2))) for row, _, _ in rows]
    schema = pa.schema([("k", pa.int64()), ("c", pa.int64())])
    with tempfile.TemporaryDirectory() as folder, small_pieces(chunk=4, round=8):
        shard = Shard.create(f"{folder}/s", schema, key=["k"], order=by_columns("k"))
        oracle = Oracle(schema)
        for lower, batch in enumerate((rows, back)):
            shard.append(to_table(batch, schema), lower=lower, upper=lower + 1)
            oracle.append(batch)
        for level in (Consolidation.FULL, Consolidation.MONOTONIC):
            found = shard.snapshot(columns=["c"], consolidate=level).to_table()
            assert sums(found) == oracle.snapshot(1, columns=["c"])
            assert min(found.column("_diff").to_pylist(), default=1) > 0


# By example


@adding
def test_without_columns_a_read_is_a_count(tmp_path: Path, level: Consolidation) -> None:
    shard = with_retractions(tmp_path)
    read = shard.snapshot(columns=[], consolidate=level)
    assert read.to_table().to_pylist() == [{"_time": 3, "_diff": 13_000}]
    assert (read.counters.updates_read, read.counters.updates_emitted) == (19_000, 1)
    assert read.counters.seconds_to_first_batch is not None
    assert len(in_slices(read, 3)) == 3
    assert sums(in_slices(read, 3)) == {(): 13_000}
    filtered = shard.snapshot(1, columns=[], consolidate=level, where=col("n") < 5_000)
    assert filtered.to_table().to_pylist() == [{"_time": 1, "_diff": 4_000}]
    some = shard.snapshot(columns=[], consolidate=level, keys={"k": [3, 77]})
    assert sums(some.to_table()) == {
        (): sum(shard.snapshot(keys={"k": [3, 77]}).to_table()[4].to_pylist())
    }
    nothing = shard.snapshot(columns=[], consolidate=level, where=col("n") < 0)
    assert nothing.to_table().num_rows == 0
    assert nothing.schema.names == ["_time", "_diff"]


@adding
def test_a_column_with_few_values_gives_few_updates(tmp_path: Path, level: Consolidation) -> None:
    shard = with_retractions(tmp_path)
    found = shard.snapshot(columns=["city"], consolidate=level).to_table()
    assert found.num_rows == 4
    assert sums(found) == {(city,): 3_250 for city in CITIES}
    # Changes keep their times.
    found = shard.changes(0, columns=["city"], consolidate=level).to_table()
    assert found.num_rows == 16
    assert count_updates(found, with_time=True) == {
        (city, time): 1_000 if time == 0 else 750 for city in CITIES for time in range(4)
    }
    found = shard.changes(0, columns=[], consolidate=level).to_table()
    assert sorted(found.to_pylist(), key=str) == [
        {"_time": time, "_diff": 4_000 if time == 0 else 3_000} for time in range(4)
    ]


def test_nothing_is_added_up_unless_asked_for(tmp_path: Path) -> None:
    shard = with_retractions(tmp_path)
    for columns in ([], ["city"]):
        found = shard.snapshot(columns=columns, consolidate="none").to_table()
        assert found.num_rows == 19_000
        assert set(found.column("_diff").to_pylist()) == {1, -1}


@adding
def test_whole_rows_never_meet_the_buffer(
    tmp_path: Path, level: Consolidation, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = with_retractions(tmp_path)

    def fail(*_: Any) -> None:
        raise AssertionError("the buffer is of no use here")

    monkeypatch.setattr(ProjectionBuffer, "__init__", fail)
    for columns in (None, ["n", "k", "city"]):
        found = shard.snapshot(columns=columns, consolidate=level).to_table()
        assert sum(found.column("_diff").to_pylist()) == 13_000


@pytest.mark.parametrize("order", [by_hash(), by_hash("n"), by_columns("n")], ids=str)
def test_projected_rows_stand_where_the_first_of_them_stood(tmp_path: Path, order: Order) -> None:
    shard = with_retractions(tmp_path, order=order)
    columns = ["k", "city"] if order.kind == "hash" else ["n"]
    whole = [tuple(row[c] for c in columns) for row in shard.snapshot().to_table().to_pylist()]
    found = shard.snapshot(columns=columns).to_table().select(columns).to_pylist()
    assert [tuple(row.values()) for row in found] == list(dict.fromkeys(whole))


def test_values_that_are_equal_are_added_up(tmp_path: Path) -> None:
    nested = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.float32()))])
    entries = pa.map_(pa.string(), pa.float64())
    schema = pa.schema([("k", pa.int64()), ("f", pa.float64()), ("s", nested), ("m", entries)])
    floats = [0.0, -0.0, NAN, -NAN, None, 1.5]
    structs = [{"x": -0.0, "tags": [NAN, None]}, {"x": 0.0, "tags": [NAN, None]}, None]
    maps = [[("a", 0.0), ("b", NAN)], [("b", NAN), ("a", -0.0)], [], None]
    rows = [
        ({"k": i, "f": floats[i % 6], "s": structs[i % 3], "m": maps[i % 4]}, 0, 1)
        for i in range(120)
    ]
    shard = Shard.create(tmp_path / "s", schema, key=["k"])
    shard.append(to_table(rows, schema), lower=0, upper=1)
    oracle = Oracle(schema, rows)
    for columns, count in ((["f"], 4), (["s"], 2), (["m"], 3), (["f", "s"], 5), (["m", "s"], 6)):
        found = shard.snapshot(columns=columns).to_table()
        assert sums(found) == oracle.snapshot(0, columns=columns)
        assert found.num_rows == len(oracle.snapshot(0, columns=columns)) == count


def test_columns_may_be_asked_for_in_any_order_and_twice(tmp_path: Path) -> None:
    shard = with_retractions(tmp_path, rows=400)
    found = shard.snapshot(columns=["city", "city"]).to_table()
    assert found.column_names == ["city", "city", "_time", "_diff"]
    assert found.num_rows == 4
    assert found.column(0) == found.column(1)


@adding
def test_sums_beyond_64_bits_are_several_updates(tmp_path: Path, level: Consolidation) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    large = 2**63 - 1
    shard.append(events(5, _diff=[large] * 5), lower=0, upper=1)
    shard.append(events(5, 5, _diff=[-large] * 2 + [large] * 3), lower=1, upper=2)
    for columns in ([], ["city"]):
        read = shard.snapshot(columns=columns, consolidate=level)
        expected = Oracle(EVENTS)
        for row in shard.snapshot().to_table().to_pylist():
            expected.append([({n: row[n] for n in EVENTS.names}, 1, row["_diff"])])
        assert sums(read.to_table()) == expected.snapshot(1, columns=columns)
    assert shard.snapshot(columns=[]).to_table().column("_diff").to_pylist() == [large] * 6


@adding
@pytest.mark.parametrize("columns", [[], ["city"]])
def test_a_limit_counts_rows_that_are_not_added_up(
    tmp_path: Path, level: Consolidation, columns: list[str]
) -> None:
    """A limited read stops early: it holds nothing back in the hope that equal rows may come."""
    shard = with_retractions(tmp_path, rows=60_000)
    read = shard.snapshot(columns=columns, limit=10, consolidate=level)
    assert read.to_table().num_rows == 10 == read.counters.updates_emitted
    assert read.counters.updates_read <= shard.stats().rows / 10
    everything = shard.snapshot(columns=columns, limit=10**9, consolidate=level).to_table()
    assert sum(everything.column("_diff").to_pylist()) == 195_000


def test_a_count_at_an_earlier_time_finds_its_keys_in_the_cache(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    times = np.arange(20_000) % 10
    shard.append(events(20_000, _time=times), lower=0, upper=10)
    for _ in range(2):  # the second time from the cache
        found = shard.snapshot(4, columns=[], keys={"k": [5]}).to_table()
        expected = shard.snapshot(4, where=col("k") == 5).to_table()
        assert found.to_pylist() == [{"_time": 4, "_diff": expected.num_rows}]


# When the buffer gives up


def emitted(buffer: ProjectionBuffer, tables: list[pa.Table]) -> list[pa.Table]:
    out = [table for given in tables for table in buffer.add(given)]
    return out + list(buffer.rest())


def buffer_of(tmp_path: Path, columns: list[str]) -> ProjectionBuffer:
    shard = Shard.create(tmp_path / "s", EVENTS, key=["k"])
    shard.append(events(1), lower=0, upper=1)
    return ProjectionBuffer(shard.snapshot(columns=columns).scan)


def updates_of(cities: list[Any]) -> pa.Table:
    ones = np.ones(len(cities), np.int64)
    return pa.table({"city": pa.array(cities, pa.string()), "_time": ones, "_diff": ones})


def test_rows_that_differ_pass_through_untouched(tmp_path: Path) -> None:
    buffer = buffer_of(tmp_path, ["city"])
    tables = [updates_of([f"{i} {t}" for i in range(5_000)]) for t in range(40)]
    calls: list[int] = []
    real = projection.group_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "group_rows", lambda w, c: calls.append(w.shape[1]) or real(w, c))
        out = emitted(buffer, tables)
    assert [table.num_rows for table in out] == [5_000] * 40
    assert all(
        one.column(0).chunk(0) is not None and one.equals(given)
        for one, given in zip(out, tables, strict=True)
    )
    # Tried on samples, and less and less often.
    assert set(calls) == {4_096}
    assert len(calls) <= 6


def test_small_tables_are_buffered(tmp_path: Path) -> None:
    buffer = buffer_of(tmp_path, ["city"])
    out = emitted(buffer, [updates_of([city]) for city in CITIES * 10])
    assert [sums(table) for table in out] == [{(city,): 10 for city in CITIES}]


def test_what_it_holds_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "BUFFERED_ROWS", 20_000)
    monkeypatch.setattr(projection, "HELD_ROWS", 1_000)
    buffer = buffer_of(tmp_path, ["city"])
    held = 0
    out: list[pa.Table] = []
    given: Counter[Any] = Counter()
    for t in range(30):
        # Every row five times within its table, and never again.
        table = updates_of([str(i // 5 + t * 1_000) for i in range(5_000)])
        given += sums(table)
        out += buffer.add(table)
        held = max(held, sum(one.num_rows for one in buffer._held))
    out += buffer.rest()
    assert held <= 20_000 + 5_000
    assert len(out) > 3
    assert sum((sums(table) for table in out), Counter()) == given
    assert sum(table.num_rows for table in out) == len(given)


# Spark


def test_tasks_add_up_what_they_project(tmp_path: Path, spark: Any) -> None:
    from pyspark.sql import Observation

    shard = with_retractions(tmp_path)
    for level in (Consolidation.FULL, Consolidation.BEST_EFFORT):
        count = shard.snapshot(columns=[], consolidate=level).dataframe(spark, slices=3)
        assert count.columns == ["_time", "_diff"]
        rows = count.collect()
        assert (len(rows), sum(row["_diff"] for row in rows)) == (3, 13_000)
        observation = Observation()
        read = shard.snapshot(columns=["city"], where=col("n") < 5_000, consolidate=level)
        found = read.dataframe(spark, slices=3, observe=observation).toArrow()
        assert sums(found) == {(city,): 750 for city in CITIES}
        assert found.num_rows <= 12
        assert observation.get["updates_emitted"] == found.num_rows
    changes = shard.changes(0, columns=["city"]).dataframe(spark, slices=2).toArrow()
    assert count_updates(changes, with_time=True) == count_updates(
        shard.changes(0, columns=["city"]).to_table(), with_time=True
    )
    assert changes.num_rows <= 32
    limited = shard.snapshot(columns=["city"], limit=7).dataframe(spark, slices=3)
    assert limited.count() == 7
    keys = spark.range(50).selectExpr("id as k")
    looked_up = shard.snapshot(columns=["city"]).lookup(keys, slices=2).toArrow()
    assert sums(looked_up) == sums(
        shard.snapshot(columns=["city"], keys={"k": range(50)}).to_table()
    )
    assert looked_up.num_rows <= 8
