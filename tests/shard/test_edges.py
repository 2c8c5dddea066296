"""The least and the largest value of a key, compared with a look at all rows."""

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
from windrow.shard import edges as module
from windrow.shard.edges import Change, edges

NAN = float("nan")
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1])),
    "float": (pa.float64(), st.sampled_from([-1e300, 0.0, 0.5, 1e300, float("inf"), NAN])),
    "text": (pa.string(), st.sampled_from(["", "a", "ab", "same start 1", "same start 2", "ü"])),
}


def rank(value: Any) -> tuple[bool, Any]:
    """NaN is larger than all other numbers."""
    is_nan = isinstance(value, float) and value != value
    return is_nan, 0 if is_nan else value


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
@settings(max_examples=30)
def test_edges_equal_a_look_at_all_rows(kind: str, data: st.DataObject) -> None:
    type_, values = TYPES[kind]
    keys = st.sampled_from(["a", "b", "c", None])
    there: Counter[tuple[Any, str]] = Counter()
    known: dict[str, Any] = {}

    def batch(at_most: int) -> list[tuple[Any, Any, int]]:
        rows = []
        for _ in range(data.draw(st.integers(0, at_most))):
            key, value = data.draw(keys), data.draw(values)
            known[repr(value)] = value
            diff = data.draw(st.integers(-there[key, repr(value)], 2))
            there[key, repr(value)] += diff
            rows.append((key, value, diff))
        return rows

    schema = pa.schema([("k", pa.string()), ("v", type_)])
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        colliding_hashes(data.draw(st.sampled_from([1, 62]))),
    ):
        patch.setattr(module, "_FIRST", data.draw(st.integers(1, 4)))
        patch.setattr(module, "_GROWTH", 2)
        shard = Shard.create(f"{folder}/s", schema, key=["k"], order=by_hash("v"))
        for _ in range(data.draw(st.integers(1, 4))):
            rows = batch(12)
            table = pa.table(
                {
                    "k": pa.array([k for k, _, _ in rows], pa.string()),
                    "v": pa.array([v for _, v, _ in rows], type_),
                    "_diff": pa.array([d for _, _, d in rows], pa.int64()),
                }
            )
            upper = shard.upper
            shard.append(table, lower=upper, upper=upper + 1)
        wanted = ["a", "b", "c", None, "not there"]
        rows = batch(6)
        change = Change(
            np.array([wanted.index(k) for k, _, _ in rows], np.int64),
            pa.array([v for _, v, _ in rows], type_),
            np.array([d for _, _, d in rows], np.int64),
        )
        asked = pa.table({"k": pa.array(wanted, pa.string())})
        for largest in (False, True):
            found = edges(shard.snapshot(), asked, "v", largest=largest, change=change).to_pylist()
            for key, value in zip(wanted, found, strict=True):
                left = [known[v] for (k, v), n in there.items() if k == key and n > 0]
                pick = max if largest else min
                best = pick(left, key=rank) if left else None
                assert (value is None) == (best is None)
                assert best is None or rank(value) == rank(best)
