"""The shard against the naive oracle, on random schemas, batches, compactions and reads."""

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

from oracle import Oracle, count_updates
from strategies import schemas, to_table, updates
from windrow import Consolidation, Shard
from windrow.errors import TimeRangeError
from windrow.shard.part import ROW_GROUP_ROWS, PartName


def check_reads(
    data: st.DataObject,
    shard: Shard,
    oracle: Oracle,
    values: dict[str, Any],
    *,
    collisions: bool = False,
) -> None:
    as_of = data.draw(st.integers(shard.since, shard.upper - 1))
    lower = data.draw(st.integers(shard.since, shard.upper))
    upper = data.draw(st.integers(lower, shard.upper))
    names = shard.schema.names
    columns = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True))
    keys = data.draw(st.none() | st.lists(values["k"], max_size=3))
    options: dict[str, Any] = {"columns": columns}

    def where(row: dict[str, Any]) -> bool:
        from oracle import canonical

        return keys is None or canonical(row["k"]) in [canonical(k) for k in keys]

    if keys is not None:
        options["keys"] = {"k": keys}
    snapshot = oracle.snapshot(as_of, where, columns)
    changes = oracle.changes(lower, upper, where, columns)
    for level in Consolidation:
        at = shard.snapshot(as_of, consolidate=level, **options)
        between = shard.changes(lower, upper, consolidate=level, **options)
        for read, expected, with_time in ((at, snapshot, False), (between, changes, True)):
            whole = read.to_table()
            sliced = in_slices(read, data.draw(st.integers(1, 4)))
            assert count_updates(whole, with_time=with_time) == expected
            assert count_updates(sliced, with_time=with_time) == expected
            if level is Consolidation.FULL and columns is None:
                assert whole.num_rows == len(expected)
                assert sliced.num_rows == len(expected)
                # In the shard's order: slices one after another give the same stream. Only rows
                # whose hashes collide have no order among themselves.
                assert collisions or row_list(whole) == row_list(sliced)
        assert set(at.to_table().column("_time").to_pylist()) <= {as_of}


def row_list(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]


@settings(max_examples=60)
@given(st.data())
def test_reads_equal_the_oracle(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pieces():
        check_reads(data, *build(data, folder))


@settings(max_examples=40)
@given(st.data(), st.integers(0, 2))
def test_hash_collisions_mix_nothing(data: st.DataObject, bits: int) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pieces(), colliding_hashes(bits):
        check_reads(data, *build(data, folder), collisions=True)


@settings(max_examples=40)
@given(st.data())
def test_limits_stop_early_and_lose_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pieces():
        shard, oracle, _ = build(data, folder)
        limit = data.draw(st.integers(0, 6))
        everything = oracle.snapshot(shard.upper - 1)
        found = shard.snapshot(limit=limit).to_table()
        assert found.num_rows == min(limit, len(everything))
        for row, count in count_updates(found, with_time=False).items():
            assert everything[row] == count


@settings(max_examples=30)
@given(st.data())
def test_reads_outside_the_valid_range_say_it(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shard, _, _ = build(data, folder)
        for as_of in (shard.since - 1, shard.upper):
            with pytest.raises(TimeRangeError, match=rf"\[{shard.since}, {shard.upper}\)"):
                shard.snapshot(as_of)
        with pytest.raises(TimeRangeError, match=rf"\[{shard.since}, {shard.upper}\)"):
            shard.changes(shard.since, shard.upper + 1)


@settings(max_examples=30)
@given(st.data())
def test_repeating_an_append_changes_nothing(data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    with tempfile.TemporaryDirectory() as folder:
        shard = Shard.create(f"{folder}/shard", schema, key=["k"])
        batches = []
        for lower in range(3):
            rows = data.draw(updates(values, lower, lower + 1))
            shard.append(to_table(rows, schema), lower=lower, upper=lower + 1)
            batches.append(rows)
            if data.draw(st.booleans()):
                shard.compact(everything=True)
        before = shard.stats()
        for lower, rows in enumerate(batches):
            shuffled = data.draw(st.permutations(rows))
            assert not shard.append(to_table(shuffled, schema), lower=lower, upper=lower + 1)
        assert shard.stats() == before


def test_an_empty_shard_has_nothing_to_read(tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "s", pa.schema([("k", pa.int64())]), key=["k"])
    with pytest.raises(TimeRangeError, match="nothing has been appended"):
        shard.snapshot(0)
    shard.append(shard.schema.empty_table(), lower=0, upper=7)
    assert shard.upper == 7
    assert shard.snapshot().to_table().num_rows == 0
    assert count_updates(shard.changes(0).to_table(), with_time=True) == Counter()


@pytest.mark.parametrize("hot", [None, (5, 32_768), (-(2**63), 65_536), (2**63 - 1, 1)])
def test_names_of_parts(hot: tuple[int, int] | None) -> None:
    name = PartName(0, 10, "4f1c", 3, "9ab2", "c", 17, hot)
    assert PartName.parse(str(name)) == name


def test_a_prefix_that_fills_row_groups_is_known(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    shard = Shard.create(tmp_path / "hot", schema, key=["k"])
    rows = 3 * ROW_GROUP_ROWS
    keys = np.where(np.arange(rows) % 8 == 0, np.arange(rows), 7)
    shard.append(pa.table({"k": keys, "x": np.arange(rows)}), lower=0, upper=1)
    (count,) = shard.hot_prefixes().values()
    assert rows * 7 // 8 - 2 * ROW_GROUP_ROWS <= count <= rows * 7 // 8
    shard.append(pa.table({"k": keys, "x": np.arange(rows)}), lower=1, upper=2)
    shard.compact(everything=True)
    (more,) = shard.hot_prefixes().values()
    assert more > count
