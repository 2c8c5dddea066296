"""Rows that change, in records: the updates of a key that can still count, as they came.

Where rows are retracted, or become known late, no state of several of them is enough: any of them
may go, and "known before the query" is decided by the query. So the updates are kept, and the
features computed from them as a backfill does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.algebra.codec import read_states, write_states
from windrow.algebra.types import list_type
from windrow.features.compute.events import Events
from windrow.features.compute.lifetimes import lifetimes
from windrow.features.inputs.layout import EVENT_TIME, SOURCE, Layout
from windrow.online.records import (
    COUNT,
    DIGEST,
    HEAD,
    SEALED,
    Found,
    Heads,
    split_records,
    with_lanes,
)
from windrow.online.served import ServedGroup
from windrow.rows.hashing import hash_rows
from windrow.rows.lists import list_parts
from windrow.rows.types import canonical_values, single_chunk
from windrow.sources.columns import KNOWN_AT
from windrow.updates import DIFF, int64_values
from windrow.words.groups import group_ids

t = pa.types


@dataclass(frozen=True)
class LiveRows:
    """Updates of some keys: `key` is the number of each one's key, ascending.

    `rows` has the columns of the arrangement but its keys, and `_diff`.
    """

    key: np.ndarray
    rows: pa.Table

    @property
    def size(self) -> int:
        return int(self.key.size)


def columns_of(layout: Layout) -> list[str]:
    """The columns of an update, in order."""
    found = [EVENT_TIME, KNOWN_AT, DIFF, *layout.values, *layout.masks]
    return [*found, SOURCE] if layout.several else found


def schema_of(layout: Layout) -> pa.Schema:
    types = {field.name: field.type for field in layout.schema} | {DIFF: pa.int64()}
    return pa.schema([(name, types[name]) for name in columns_of(layout)])


def joined(several: Sequence[LiveRows]) -> LiveRows:
    """All of these updates, by key."""
    key = np.concatenate([one.key for one in several])
    rows = pa.concat_tables([one.rows for one in several]).combine_chunks()
    order = np.argsort(key, kind="stable")
    return LiveRows(key[order], rows.take(pa.array(order)))


def settled(served: ServedGroup, live: LiveRows, sealed: np.ndarray) -> LiveRows:
    """Only what queries from `sealed` (by key) on can tell apart, as few updates as say it.

    All of them see every update before that time, so equal rows are summed up there: it does not
    matter in which order they came, and what was inserted and retracted is gone. So are rows that
    no window reaches.
    """
    times, known_at = int64_values(live.rows, EVENT_TIME), int64_values(live.rows, KNOWN_AT)
    # Queries are answered as of the last refresh before them, which may be before the sealed time.
    diffs, limit = int64_values(live.rows, DIFF), served.group.effective_times(sealed)[live.key]
    reached = np.full(times.size, True)
    if served.reach is not None:
        reached = times >= limit - served.reach
    before = known_at < limit
    old = np.flatnonzero(before & reached)
    columns = [pa.array(live.key[old]), *(column.take(pa.array(old)) for column in _columns(live))]
    group = group_ids(hash_rows(columns)[None, :], columns)
    _, leader, number = np.unique(group, return_index=True, return_inverse=True)
    sums = np.zeros(leader.size, np.int64)
    np.add.at(sums, number, diffs[old])
    kept = sums != 0
    new = np.flatnonzero(~before & reached)
    take = np.concatenate([old[leader[kept]], new])
    known = np.concatenate([limit[old[leader[kept]]] - 1, known_at[new]])
    diff = np.concatenate([sums[kept], diffs[new]])
    order = np.lexsort((known, times[take], live.key[take]))
    made = live.rows.take(pa.array(take[order]))
    made = made.set_column(made.schema.get_field_index(KNOWN_AT), KNOWN_AT, pa.array(known[order]))
    made = made.set_column(made.schema.get_field_index(DIFF), DIFF, pa.array(diff[order]))
    return LiveRows(live.key[take[order]], made)


def _columns(live: LiveRows) -> list[pa.Array]:
    """What makes two rows of a key equal, canonical."""
    rows = live.rows.drop_columns([KNOWN_AT, DIFF])
    return [canonical_values(single_chunk(column)) for column in rows.columns]


def events_of(served: ServedGroup, live: LiveRows) -> Events:
    """The rows as events with lifetimes; the number of the key is the key."""
    known_at, diffs = int64_values(live.rows, KNOWN_AT), int64_values(live.rows, DIFF)
    found = lifetimes([pa.array(live.key), *_columns(live)], known_at, diffs)
    order = np.argsort(found.rows, kind="stable")
    at = found.rows[order]
    rows = live.rows.take(pa.array(at))
    layout = served.layout
    return Events(
        pa.table({"k0": live.key[at]}),
        int64_values(rows, EVENT_TIME),
        layout.input_table(rows),
        layout.condition_masks(rows),
        None,
        (found.born[order], found.died[order]),
    )


def _fields(layout: Layout) -> list[pa.Field]:
    """How updates are written: times as differences, and for each scalar where it is not null."""
    fields = []
    for field in schema_of(layout):
        name = {EVENT_TIME: "times", KNOWN_AT: "counts"}.get(field.name, field.name)
        if name == field.name and not t.is_nested(field.type) and name not in (DIFF, SOURCE):
            fields.append(pa.field(f"{name}_valid", list_type(pa.bool_())))
        fields.append(pa.field(name, list_type(field.type)))
    return fields


def encode_rows(served: ServedGroup, live: LiveRows, heads: Heads) -> list[bytes | None]:
    """The records of keys 0 to n - 1. One without rows is kept for its positions."""
    keys, sources = heads.positions.shape
    edges = np.searchsorted(live.key, np.arange(keys + 1))
    offsets = pa.array(edges.astype(np.int32))
    columns: list[pa.Array] = []
    for field in schema_of(served.layout):
        values = single_chunk(live.rows.column(field.name))
        if field.name not in (EVENT_TIME, KNOWN_AT, DIFF, SOURCE) and not t.is_nested(field.type):
            columns.append(values.is_valid())
            values = pc.fill_null(values, _zero(field.type)) if values.null_count else values
        columns.append(values)
    fields = _fields(served.layout)
    lists = [
        pa.ListArray.from_arrays(offsets, column, type=field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    written = write_states(lists, fields, b"").to_pylist()
    words = np.zeros((keys, HEAD + sources), np.int64)
    words[:, DIGEST], words[:, SEALED], words[:, COUNT] = (
        served.digest,
        heads.sealed,
        np.diff(edges),
    )
    words[:, HEAD:] = heads.positions
    ends = np.arange(1, keys + 1) * (HEAD + sources)
    made, ends = with_lanes(words.ravel(), ends, [written])
    return split_records(served, made, ends, np.ones(keys, np.bool_), sources)


def _zero(type_: pa.DataType) -> pa.Scalar:
    if t.is_string(type_) or t.is_binary(type_):
        return pa.scalar(b"" if t.is_binary(type_) else "", type_)
    if t.is_boolean(type_):
        return pa.scalar(False)
    return pa.scalar(0, pa.int32() if t.is_date(type_) else pa.int64()).cast(type_)


def decode_rows(found: Found) -> LiveRows:
    """The updates of all records."""
    layout = found.group.layout
    there = np.flatnonzero(found.at >= 0)
    fields = _fields(layout)
    lists = read_states(found.lane_bytes(0).take(pa.array(there)), fields, 0)
    columns: dict[str, pa.Array] = {}
    starts = np.zeros(1, np.int64)
    valid: pa.Array | None = None
    for field, column in zip(fields, lists, strict=True):
        starts, values = list_parts(column)
        if field.name.endswith("_valid"):
            valid = values
            continue
        if valid is not None:
            values = pc.if_else(valid, values, pa.scalar(None, values.type))
            valid = None
        name = {"times": EVENT_TIME, "counts": KNOWN_AT}.get(field.name, field.name)
        columns[name] = values
    rows = pa.table([columns[name] for name in columns_of(layout)], schema=schema_of(layout))
    return LiveRows(np.repeat(there, np.diff(starts)), rows)
