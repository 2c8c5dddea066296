"""Files of rows that are read by their numbers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import StorageError
from windrow.features.strategies.shares import RowShares
from windrow.features.strategies.slices import write_file
from windrow.storage.store import Store

COLUMNS = ["n", "value", "words"]


def table(numbers: list[int]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "value": pa.array([None if n % 7 == 0 else n / 3 for n in numbers], pa.float64()),
            "words": pa.array([["x"] * (n % 3) for n in numbers], pa.list_(pa.string())),
        }
    )


@given(
    starts=st.lists(st.integers(1, 40), max_size=4, unique=True),
    numbers=st.permutations(range(50)).flatmap(lambda ns: st.integers(0, 50).map(lambda k: ns[:k])),
    cut=st.integers(0, 50),
)
def test_each_share_has_its_rows(
    tmp_path_factory: pytest.TempPathFactory, starts: list[int], numbers: list[int], cut: int
) -> None:
    store = Store.at(tmp_path_factory.mktemp("shares"))
    shares = RowShares("n", (0, *sorted(starts)))
    files = [part for part in (numbers[:cut], numbers[cut:]) if part]
    paths = [write_file(store, table(part), "run", shares).path for part in files]
    for share, (low, high) in enumerate(zip(shares.starts, [*shares.starts[1:], 50], strict=True)):
        found = shares.read(store, paths, share, COLUMNS)
        expected = table(sorted(n for n in numbers if low <= n < high))
        if expected.num_rows:
            assert found.sort_by("n") == expected
        else:
            assert found.num_rows == 0


def test_columns_that_nobody_reads_are_not_stored(tmp_path: Path) -> None:
    store, shares = Store.at(tmp_path), RowShares("n", (0, 3), tuple(COLUMNS[1:2]))
    path = write_file(store, table([5, 1, 4]), "run", shares).path
    found = shares.read(store, [path], 1, COLUMNS[:2])
    assert found.sort_by("n") == table([4, 5]).select(COLUMNS[:2])
    with pytest.raises(KeyError):
        shares.read(store, [path], 1, COLUMNS)


def test_no_byte_can_change_unnoticed(tmp_path: Path) -> None:
    store, shares = Store.at(tmp_path), RowShares("n", (0, 3))
    path = write_file(store, table([5, 1, 4, 2, 0]), "run", shares).path
    whole = (tmp_path / path).read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        (tmp_path / path).write_bytes(damaged)
        with pytest.raises(StorageError, match=path):
            [shares.read(store, [path], share, COLUMNS) for share in range(2)]
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / path).write_bytes(whole[:size])
        with pytest.raises(StorageError, match=path):
            shares.read(store, [path], 0, COLUMNS)
