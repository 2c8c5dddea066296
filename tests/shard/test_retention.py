"""What vacuum takes for old: by the log's own time, not by the clock of one of its writers."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow import Shard

MONTH = 30 * 24 * 3600
SCHEMA = pa.schema([("k", pa.int64())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A shard whose first three parts compaction has replaced."""
    shard = Shard.create(tmp_path / "s", SCHEMA, key=["k"])
    for number in range(3):
        shard.append(pa.table({"k": [number]}), lower=number, upper=number + 1)
    shard.compact(everything=True)
    return tmp_path / "s"


def set_back(folder: Path, first: int) -> None:
    """Let the entries from this one on, and all files, be of a clock that is a month behind."""
    log = folder / "_delta_log"
    for path in sorted(log.glob("*.json"))[first:]:
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("\n".join(json.dumps(_earlier(action)) for action in actions))
    shutil.rmtree(log / "_windrow")  # it has seen the entries as they were
    for path in folder.glob("*.parquet"):
        os.utime(path, (time.time() - MONTH, time.time() - MONTH))


def _earlier(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    stamps = ("timestamp", "deletionTimestamp", "modificationTime")
    return {
        k: v - MONTH * 1000 if k in stamps else _earlier(v)
        for k, v in value.items()
        if k != "previous"  # the checksum of the entry before, which has changed
    }


def parts(folder: Path) -> int:
    return len(list(folder.glob("*.parquet")))


def test_a_clock_set_back_does_not_make_old_what_was_replaced_just_now(folder: Path) -> None:
    set_back(folder, 4)  # the compaction
    before = Shard.open(folder).snapshot()
    assert Shard.open(folder).vacuum() == []
    assert parts(folder) == 4
    assert before.to_table().num_rows == 3
    assert len(Shard.open(folder).vacuum(retention_hours=0)) == 3


def test_what_was_replaced_long_ago_goes(folder: Path) -> None:
    set_back(folder, 0)
    Shard.open(folder).append(pa.table({"k": [9]}), lower=3, upper=4)
    assert len(Shard.open(folder).vacuum()) == 3
    assert parts(folder) == 2
    assert Shard.open(folder).snapshot().to_table().num_rows == 4


def test_a_part_that_may_still_be_appended_is_as_young_as_the_log(folder: Path) -> None:
    (path, *_) = folder.glob("0*-c0-*.parquet")
    for lower in (2, 3):  # another append was first; it could be the next one
        name = f"{lower:020}-{4:020}-{lower:016x}-{0:08}-{0:016x}-c0.parquet"
        (folder / name).write_bytes(path.read_bytes())
    set_back(folder, 5)
    (gone,) = Shard.open(folder).vacuum()
    assert gone.startswith(f"{2:020}")
