"""The sums of a part's column chunks: of this version, and of those before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from windrow import Shard
from windrow.errors import StorageError
from windrow.shard import part, sums
from windrow.storage.checksum import checksum

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64())])


def by_xxhash(metadata: Any, read: Callable[[int, int], Any]) -> bytes:
    """What earlier versions wrote: xxHash64 of each chunk, and no mark before them."""
    made = np.frombuffer(sums.chunk_sums(metadata, read), sums._SUM)[1:].copy()
    for one in made:
        one["checksum"] = checksum(read(int(one["start"]), int(one["end"])))
    return made.tobytes()


def by_another(metadata: Any, read: Callable[[int, int], Any]) -> bytes:
    made = np.frombuffer(sums.chunk_sums(metadata, read), sums._SUM).copy()
    made["checksum"][0] = 99
    return made.tobytes()


def written(folder: Path, how: Callable[[Any, Any], bytes]) -> tuple[Shard, Path]:
    shard = Shard.create(folder, SCHEMA, key=["k"])
    rows = pa.table({"k": np.arange(1_000), "x": np.arange(1_000) / 7})
    with mock.patch.object(part, "chunk_sums", how):
        shard.append(rows, lower=0, upper=1)
    (file,) = folder.glob("*.parquet")
    return shard, file


@pytest.mark.parametrize("how", [sums.chunk_sums, by_xxhash])
def test_each_chunk_is_compared(tmp_path: Path, how: Callable[[Any, Any], bytes]) -> None:
    shard, file = written(tmp_path / "shard", how)
    assert shard.snapshot().to_table().num_rows == 1_000
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageError, match="are damaged"):
        shard.snapshot().to_table()


def test_sums_of_a_later_version_are_refused(tmp_path: Path) -> None:
    shard, _ = written(tmp_path / "shard", by_another)
    with pytest.raises(StorageError, match="later version"):
        shard.snapshot().to_table()
