"""Damage in footers that others wrote is an error with the file's name; this process lives on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from windrow import Shard
from windrow.errors import StorageError
from windrow.sources.files import ParquetFiles
from windrow.storage.footers import check_file, check_footer, footer_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pa.table({"k": list(range(100)), "s": [f"v{i % 7}" for i in range(100)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50, write_page_checksum=True)
    return tmp_path / "a.parquet"


def test_a_sound_file(path: Path) -> None:
    with pa.OSFile(str(path)) as file:
        check_footer(file, "a")
        check_file(file, "a")


def test_no_bit_of_a_footer_ends_this_process(path: Path) -> None:
    """Some of these end the process that looks first: it is started again for the next."""
    whole = path.read_bytes()
    start = len(whole) - footer_bytes(whole)
    ended = 0
    for at in range(8 * start, 8 * len(whole), 3):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:
            ParquetFiles.read([str(path)], None)
        except StorageError as error:
            assert str(path) in str(error)  # noqa: PT017
            ended += "ends the process" in str(error)
    assert ended > 0


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\xff" * 4 + b"PAR1", b"text" * 9])
def test_what_is_no_parquet_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match=path.name):
        ParquetFiles.read([str(path)], None)
    shard = Shard.create(path.parent / "s", pa.schema([("k", pa.int64())]), key=["k"])
    with pytest.raises(StorageError, match=path.name):
        shard.adopt([path], lower=0, upper=1)


def test_a_page_that_is_damaged(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 4
    path.write_bytes(damaged)
    with pa.OSFile(str(path)) as file, pytest.raises(StorageError, match="CRC"):
        check_file(file, path.name)
