"""Parts: sorted Parquet files, what they say of themselves, and how they are written.

A part's name carries what Delta's log has no place for:

    00000000000000000100-00000000000000000200-4f1c…-00003-9ab2…-c17.parquet
    lower                upper                run   index nonce form and retractions

All parts of one run share its id and are ordered by index; the nonce tells apart the attempts
of a task that ran twice. A prefix that fills row groups by itself is named after them
(`-h9f...a0.65536`: prefix, rows), and then the tail with the checksums (`-t1830.5c...e1`: bytes,
checksum; see `sums`). The form is `u` (unsorted: an adopted file), `s` (sorted) or `c`
(sorted and consolidated: every (row, time) once in its run).
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from windrow.errors import StorageError
from windrow.rows.types import single_chunk
from windrow.shard.predicate import Bounds
from windrow.shard.spec import HASH, PREFIX, ShardSpec
from windrow.shard.sums import chunk_sums, tail_facts
from windrow.spark.tasks import WrittenFile
from windrow.storage.encoding import pq_leaves
from windrow.storage.footers import footer_bytes
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.updates import DIFF, TIME, int64_values

UNSORTED, SORTED, CONSOLIDATED = "u", "s", "c"
ROW_GROUP_ROWS = 32_768
PART_BYTES = 64 << 20
_LONGEST_STATISTIC = 64
_SAMPLE_ROWS = (256, 4_096)  # with fewer, a dictionary saves nothing


@dataclass(frozen=True)
class PartName:
    """The facts in a part's file name."""

    lower: int
    upper: int
    run: str
    index: int
    nonce: str
    form: str
    retractions: int
    hot: tuple[int, int] | None = None  # a prefix that fills whole row groups, and their rows
    tail: tuple[int, int] | None = None  # bytes and checksum; None in parts of earlier releases

    def __str__(self) -> str:
        hot = "" if self.hot is None else f"-h{self.hot[0] % 2**64:016x}.{self.hot[1]}"
        tail = "" if self.tail is None else f"-t{self.tail[0]}.{self.tail[1]:016x}"
        return (
            f"{self.lower:020d}-{self.upper:020d}-{self.run}-{self.index:08d}-{self.nonce}"
            f"-{self.form}{self.retractions}{hot}{tail}.parquet"
        )

    @staticmethod
    def parse(name: str) -> PartName:
        try:
            stem = name.removesuffix(".parquet")
            lower, upper, run, index, nonce, form, *rest = stem.split("-")
            hot = tail = None
            for text in rest:
                left, _, right = text[1:].partition(".")
                if text[0] == "h":
                    hot = (int(np.uint64(int(left, 16)).view(np.int64)), int(right))
                elif text[0] == "t":
                    tail = (int(left), int(right, 16))
                else:
                    raise ValueError(text)
            facts = int(lower), int(upper), run, int(index), nonce, form[0], int(form[1:])
            return PartName(*facts, hot, tail)
        except (ValueError, IndexError) as error:
            raise StorageError(
                f"{name!r} is not the name of a part; was the table written without Windrow?"
            ) from error


@dataclass(frozen=True)
class Part:
    """A part as the log knows it. Prefix bounds are None for unsorted parts without them."""

    path: str
    name: PartName
    rows: int
    bytes: int
    prefix: tuple[int, int]
    time: tuple[int, int]
    bounds: Mapping[str, Bounds] = field(default_factory=dict, compare=False, repr=False)

    @property
    def sorted(self) -> bool:
        return self.name.form != UNSORTED

    @property
    def order(self) -> tuple[int, int]:
        """Parts of a run, put in this order, are one sorted sequence."""
        return (self.prefix[0], self.name.index)


def parquet_options(spec: ShardSpec, sample: pa.Table) -> dict[str, Any]:
    """How a part is encoded, given its first updates.

    A dictionary pays only where few values repeat: on others it makes writing three times and
    reading twice as slow. Numbers that repeat next to each other, such as keys and times of
    updates, are found by compression alone, which writes them in two thirds of the time or less.
    Other integers and times are written as differences, which takes half the time and the space of
    compressing them. Hashes of rows look random, and are left as they are; so are those of keys,
    unless a key has many rows in a row.
    """
    leaves = pq_leaves(spec.stored_schema)
    sample = sample.slice(0, _SAMPLE_ROWS[1])
    few = sample.num_rows // 8
    scalars = [] if sample.num_rows < _SAMPLE_ROWS[0] else scalar_columns(spec.stored_schema)
    repeated = [
        name
        for name in scalars
        if name != HASH and pc.count_distinct(sample.column(name)).as_py() <= few
    ]
    adjacent = [name for name in repeated if name == PREFIX or _is_adjacent(sample.column(name))]
    # Diffs are small, and close to each other.
    repetitive = [name for name in repeated if name not in (DIFF, *adjacent)]
    differing = [
        name
        for name in scalars
        if name not in (PREFIX, HASH, *adjacent, *repetitive)
        and _is_wide(spec.stored_schema.field(name).type)
    ]
    plain = {HASH, *differing, *({PREFIX} - set(repeated))}
    return {
        "compression": {leaf: "none" if leaf in plain else "lz4" for leaf in leaves},
        "use_dictionary": repetitive or False,
        "column_encoding": dict.fromkeys(differing, "DELTA_BINARY_PACKED") or None,
        "write_statistics": True,
        "max_rows_per_page": 16_384,
        "data_page_size": 1 << 20,
        "store_schema": True,
        "write_page_checksum": True,  # for readers that do not know of our own
    }


def _is_adjacent(column: pa.ChunkedArray) -> bool:
    """Whether a column of numbers mostly has the value of the row before."""
    words = {32: pa.int32(), 64: pa.int64()}
    width = column.type.bit_width if pa.types.is_primitive(column.type) else 0
    if column.null_count or width not in words:
        return False
    values = single_chunk(column).view(words[width]).to_numpy()
    return bool(np.count_nonzero(values[1:] != values[:-1]) * 8 <= values.size)


def _is_wide(type_: pa.DataType) -> bool:
    """Whether Parquet holds values of the type as 64-bit integers."""
    return bool(pa.types.is_int64(type_) or pa.types.is_timestamp(type_))


class PartWriter:
    """Writes one sorted stream of stored tables as a run of parts near a target size.

    Nothing here touches the log. A writer that dies leaves files that no log entry names.
    """

    def __init__(
        self,
        store: Store,
        spec: ShardSpec,
        *,
        lower: int,
        upper: int,
        run: str,
        form: str,
        first_index: int = 0,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._store, self._spec = store, spec
        self._name = PartName(lower, upper, run, first_index, new_id(), form, 0)
        self._part_bytes = part_bytes
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._sink: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._retractions = 0
        self._hot: dict[int, int] = {}
        self.written: list[WrittenFile] = []
        self.rows = 0
        self.bytes = 0

    def write(self, table: pa.Table) -> None:
        """Take the next updates in order: columns of the spec's stored schema."""
        if not table.num_rows:
            return
        self._pending.append(table)
        self._pending_rows += table.num_rows
        while self._pending_rows >= ROW_GROUP_ROWS:
            self._flush(ROW_GROUP_ROWS)

    def close(self) -> list[WrittenFile]:
        if self._pending_rows:
            self._flush(self._pending_rows)
        self._finish()
        return self.written

    def abort(self) -> None:
        """Drop what was written: best effort, since vacuum will do it too."""
        self._writer = None
        self._store.discard([part.path for part in self.written])
        self.written = []

    def _flush(self, rows: int) -> None:
        """Write one row group of `rows` pending updates."""
        table = pa.concat_tables(self._pending)
        group, rest = table.slice(0, rows), table.slice(rows)
        self._pending, self._pending_rows = [rest], rest.num_rows
        if self._writer is None:
            # A part is built in memory: its name holds its count of retractions, which is known
            # only at the end, and a store sees each part whole or not at all.
            self._sink = pa.BufferOutputStream()
            self._writer = pq.ParquetWriter(
                self._sink, self._spec.stored_schema, **parquet_options(self._spec, group)
            )
            self._retractions, self._hot = 0, {}
        self._retractions += int((int64_values(group, DIFF) < 0).sum())
        prefixes = int64_values(group, PREFIX)
        if rows == ROW_GROUP_ROWS and prefixes[0] == prefixes[-1]:
            self._hot[int(prefixes[0])] = self._hot.get(int(prefixes[0]), 0) + rows
        self._writer.write_table(group, row_group_size=rows)
        self.rows += rows
        if self._sink.tell() >= self._part_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        data = self._sink.getvalue()
        metadata = pq.read_metadata(pa.BufferReader(data))
        footer = data.size - footer_bytes(data)
        sums = chunk_sums(metadata, lambda start, end: data.slice(start, end - start))
        tail = pa.py_buffer(sums + data.slice(footer).to_pybytes())
        name = replace(
            self._name,
            index=self._name.index + len(self.written),
            retractions=self._retractions,
            hot=max(self._hot.items(), key=lambda one: one[1], default=None),
            tail=tail_facts(tail),
        )
        self._store.write(str(name), [data.slice(0, footer), tail])
        size = footer + tail.size
        self.bytes += size
        self.written.append(
            WrittenFile(str(name), metadata.num_rows, size, delta_statistics(metadata, self._spec))
        )


def group_bounds(metadata: Any, schema: pa.Schema, names: Iterable[str]) -> list[dict[str, Bounds]]:
    """For each row group, what its statistics say of the top-level scalar columns `names`."""
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    index = {leaf.path: i for i, leaf in enumerate(leaves) if leaf.path == leaf.name}
    wanted = [(name, index[name], schema.field(name).type) for name in names if name in index]
    return [
        {name: _bounds(metadata.row_group(g), i, type_) for name, i, type_ in wanted}
        for g in range(metadata.num_row_groups)
    ]


def _bounds(group: Any, column: int, type_: pa.DataType) -> Bounds:
    statistics = group.column(column).statistics
    if statistics is None:
        return Bounds(rows=group.num_rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max:
        return Bounds(nulls=nulls, rows=group.num_rows)
    if pa.types.is_int64(type_):
        return Bounds(statistics.min, statistics.max, nulls, group.num_rows)
    try:
        low, high = pa.array([statistics.min, statistics.max], type_).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError):
        return Bounds(nulls=nulls, rows=group.num_rows)
    return Bounds(low, high, nulls, group.num_rows)


def merge_bounds(bounds: Iterable[Bounds]) -> Bounds:
    """The bounds of several row groups together."""
    known = list(bounds)
    nulls = None if any(b.nulls is None for b in known) else sum(b.nulls or 0 for b in known)
    rows = sum(b.rows or 0 for b in known)
    # A group of NULLs alone has no bounds and needs none.
    valued = [b for b in known if b.nulls is None or b.nulls < (b.rows or 0)]
    if not valued or any(b.low is None for b in valued):
        return Bounds(nulls=nulls, rows=rows)
    return Bounds(min(b.low for b in valued), max(b.high for b in valued), nulls, rows)


def scalar_columns(schema: pa.Schema) -> list[str]:
    return [f.name for f in schema if not pa.types.is_nested(f.type)]


def delta_statistics(metadata: Any, spec: ShardSpec) -> str:
    """Delta's statistics JSON of a written file, from its Parquet footer."""
    names = spec.statistics_columns
    groups = group_bounds(metadata, spec.stored_schema, names)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in names:
        merged = merge_bounds(group[name] for group in groups if name in group)
        if merged.nulls is not None:
            nulls[name] = merged.nulls
        pair = _json_value(merged.low), _json_value(merged.high)
        if None not in pair:
            low[name], high[name] = pair
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    )


def _json_value(value: Any) -> Any:
    """A value as Delta's statistics write it, or None if they cannot hold it exactly."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_STATISTIC else None
    if isinstance(value, dt.datetime):
        stamp = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return stamp + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    return None


def stored_table(updates: pa.Table, spec: ShardSpec) -> pa.Table:
    """Canonical updates with `_prefix` and `_hash`: the stored schema."""
    prefix, row_hash = spec.prefix(updates), spec.row_hash(updates)
    table = updates.append_column(PREFIX, pa.array(prefix))
    return table.append_column(HASH, pa.array(row_hash))


def fingerprint(table: pa.Table) -> int:
    """A 64-bit digest of stored updates: the same for any order, split or consolidation of them."""
    times = int64_values(table, TIME).view(np.uint64)
    hashes = int64_values(table, HASH).view(np.uint64)
    mixed = (hashes ^ (times * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return int((mixed * int64_values(table, DIFF).view(np.uint64)).sum(dtype=np.uint64))
