"""Random shards after random histories, with their oracles; and pieces so small that everything
straddles something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from oracle import Oracle
from strategies import schemas, to_table, updates
from windrow import Shard, by_columns, by_hash
from windrow.rows import hashing
from windrow.shard import merge, part, plan, projection, scan
from windrow.shard.spec import Order


@contextmanager
def small_pieces(**sizes: Any) -> Iterator[None]:
    """Row groups, chunks and rounds of a few updates, so that everything straddles something."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "ROW_GROUP_ROWS", sizes.get("group", 3))
        patch.setattr(scan, "_CHUNK_ROWS", (1, sizes.get("chunk", 2)))
        patch.setattr(scan, "ROUND_ROWS", sizes.get("round", 4))
        patch.setattr(merge, "ROUND_ROWS", sizes.get("round", 4))
        patch.setattr(plan, "UNSORTED_ROWS", sizes.get("unsorted", 5))
        patch.setattr(projection, "SAMPLE_ROWS", sizes.get("sample", 3))
        patch.setattr(projection, "BUFFERED_ROWS", sizes.get("buffered", 6))
        patch.setattr(projection, "HELD_ROWS", sizes.get("held", 3))
        yield


@contextmanager
def colliding_hashes(bits: int) -> Iterator[None]:
    """All but the lowest `bits` of every hash are lost."""
    real = hashing._chain
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_chain", lambda *a, **k: real(*a, **k) & ((1 << bits) - 1))
        yield


@st.composite
def orders(draw: st.DrawFn, schema: pa.Schema) -> Order:
    scalars = [f.name for f in schema if not pa.types.is_nested(f.type)]
    columns = draw(st.lists(st.sampled_from(scalars), unique=True, max_size=2))
    return by_columns(*columns) if columns and draw(st.booleans()) else by_hash(*columns)


def build(data: st.DataObject, folder: str) -> tuple[Shard, Oracle, dict[str, Any]]:
    """A random shard after a random history, and its oracle."""
    schema, values = data.draw(schemas())
    shard = Shard.create(f"{folder}/shard", schema, key=["k"], order=data.draw(orders(schema)))
    oracle = Oracle(schema)
    for step in range(data.draw(st.integers(1, 5))):
        lower = shard.upper
        upper = lower + data.draw(st.integers(1, 3))
        rows = data.draw(updates(values, lower, upper))
        match data.draw(st.sampled_from(["append", "append", "adopt", "small parts"])):
            case "adopt" if rows:
                rows = [r for r in rows if r[2]]
                path = Path(folder) / f"{step}.parquet"
                pq.write_table(to_table(rows, schema), path, row_group_size=4)
                shard.adopt([path], lower=lower, upper=upper)
            case "small parts":
                table = to_table(rows, schema)
                shard.append(table, lower=lower, upper=upper, part_bytes=1)
            case _:
                shard.append(to_table(rows, schema), lower=lower, upper=upper)
        oracle.append(rows)
        match data.draw(st.sampled_from(["", "", "since", "compact", "everything"])):
            case "since":
                since = data.draw(st.integers(shard.since, shard.upper - 1))
                shard.advance_since(since)
                oracle.since = since
            case "compact":
                shard.compact(fanout=2, part_bytes=data.draw(st.sampled_from([1, 1 << 20])))
            case "everything":
                shard.compact(everything=True)
    return shard, oracle, values


def in_slices(read: Any, slices: int) -> pa.Table:
    """The read as tasks would do it: each slice by itself."""
    tables = [
        pa.Table.from_batches(
            list(merge.read_slice(read.scan, s, read.level, scan.Counters())), schema=read.schema
        )
        for s in read.plan(slices).slices
    ]
    return pa.concat_tables([read.schema.empty_table(), *tables])
