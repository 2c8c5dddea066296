"""What a stream took in during a span, as a task reads it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from windrow.errors import DataError
from windrow.shard.shard import Shard
from windrow.sources.columns import Form, Taken
from windrow.sources.spans import SpanRows

SCHEMA = pa.schema([("k", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("v", pa.float32())])
COLUMNS = (
    Taken("k0", "k", pa.int32()),
    Taken("time", "at", pa.int64(), Form.MILLIS),
    Taken("v0", "v", pa.float64()),
)


def appended(place: Path, rows: list[tuple[int, int | None, float, int]]) -> Shard:
    shard = Shard.create(place / "s", SCHEMA, key=["k"])
    columns = [[row[i] for row in rows] for i in range(4)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns[:3], SCHEMA, strict=True)]
    table = pa.table([*arrays, pa.array(columns[3], pa.int64())], names=[*SCHEMA.names, "_diff"])
    shard.append(table, lower=0, upper=10)
    return shard


def rows_of(shard: Shard, span: tuple[int, int]) -> list[tuple[object, ...]]:
    read = pickle.loads(pickle.dumps(SpanRows(shard.changes(*span), COLUMNS, ("time",))))
    table = pa.Table.from_batches(read.batches(), pa.schema([(c.name, c.type) for c in COLUMNS]))
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_rows_come_as_often_as_they_were_taken_in(tmp_path: Path) -> None:
    shard = appended(tmp_path, [(1, 5_000, 0.5, 1), (2, 7_999, 1.5, 3), (3, None, 2.5, 1)])
    assert rows_of(shard, (0, 10)) == [(1, 5, 0.5), (2, 7, 1.5), (2, 7, 1.5), (2, 7, 1.5)]
    shard.append(SCHEMA.empty_table(), lower=10, upper=20)
    assert rows_of(shard, (10, 20)) == []


def test_a_retraction_is_refused(tmp_path: Path) -> None:
    shard = appended(tmp_path, [(1, 5_000, 0.5, -1)])
    with pytest.raises(DataError, match="only ever added"):
        rows_of(shard, (0, 10))
