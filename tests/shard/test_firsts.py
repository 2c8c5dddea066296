"""The first rows of a key, compared with a look at all of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import colliding_hashes

from windrow import Shard, by_hash
from windrow.shard import firsts as module
from windrow.shard.firsts import Rows, first_rows

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.binary())])
VALUES = [b"", b"\x00", b"a", b"ab", b"same start 1", b"same start 2", b"\xff"]


def table(rows: list[tuple[Any, bytes, int]]) -> pa.Table:
    keys, values = [k for k, _, _ in rows], [v for _, v, _ in rows]
    return pa.table([pa.array(keys, pa.string()), pa.array(values, pa.binary())], schema=SCHEMA)


@given(data=st.data())
@settings(max_examples=60)
def test_first_rows_equal_a_look_at_all(data: st.DataObject) -> None:
    there: Counter[tuple[Any, bytes]] = Counter()

    def batch(at_most: int) -> list[tuple[Any, bytes, int]]:
        rows = []
        for _ in range(data.draw(st.integers(0, at_most))):
            key = data.draw(st.sampled_from(["a", "b", None]))
            value = data.draw(st.sampled_from(VALUES))
            diff = data.draw(st.integers(-there[key, value], 3))
            there[key, value] += diff
            rows.append((key, value, diff))
        return rows

    wanted = ["a", "b", None, "not there"]
    least = data.draw(st.integers(1, 6))

    def enough(rows: Rows, count: int) -> np.ndarray:
        found = np.zeros(count, np.int64)
        np.add.at(found, rows.keys, rows.weights)
        return found >= least

    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        colliding_hashes(data.draw(st.sampled_from([1, 62]))),
    ):
        patch.setattr(module, "_GROWTH", 2)
        shard = Shard.create(f"{folder}/s", SCHEMA, key=["k"], order=by_hash("v"))
        for _ in range(data.draw(st.integers(1, 4))):
            rows = batch(12)
            diffs = pa.array([d for _, _, d in rows], pa.int64())
            upper = shard.upper
            shard.append(table(rows).append_column("_diff", diffs), lower=upper, upper=upper + 1)
        rows = batch(6)
        change = Rows(
            table(rows),
            np.array([wanted.index(k) for k, _, _ in rows], np.int64),
            np.array([d for _, _, d in rows], np.int64),
        )
        keys = pa.table({"k": pa.array(wanted, pa.string())})
        depth = data.draw(st.integers(1, 3))
        found = first_rows(shard.snapshot(), keys, "v", change, enough, depth=depth)
    for number, key in enumerate(wanted):
        mine = np.flatnonzero(found.keys == number)
        values = [found.table.column("v")[int(i)].as_py() for i in mine]
        all_ = sorted((v, n) for (k, v), n in there.items() if k == key and n)
        first = list(zip(values, found.weights[mine].tolist(), strict=True))
        assert first == all_[: len(first)]
        assert len(first) == len(all_) or sum(n for _, n in first) >= least
