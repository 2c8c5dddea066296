"""Records of views: what a key has of rows, in a form to which changes are added.

A record counts the rows of its key, and keeps the exclusive or of their bytes, each after its
length. Of one row that is the row itself; of several it is nothing to be read, but takes no more
room than the longest of them, and is the row again that is left when the others are retracted. To
retract a row is to add it once more. So a change is applied without knowing what other rows there
are.

A record is laid out as all are (see `windrow.online.records`): its number of cells is that of rows,
and its one lane has the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from windrow.algebra.codec import binary_array, binary_parts
from windrow.errors import DataError, RequestError
from windrow.online.evaluate import Column
from windrow.online.keys import key_bytes
from windrow.online.records import COUNT, DIGEST, HEAD, Found, split_records, with_lanes
from windrow.online.row_codec import RowDecoder, encode_rows
from windrow.online.served_view import ServedView
from windrow.rows.types import single_chunk

_SIZE = struct.Struct("<q")
_LENGTH = 4  # bytes before those of a row
_BODY = 8 * (HEAD + 2)  # where the lane begins: after the position and its length


@dataclass(frozen=True)
class Sums:
    """Rows added up by key: the keys of records, each once, with bytes and numbers of rows."""

    keys: pa.Array
    rows: pa.Array
    counts: np.ndarray

    @staticmethod
    def of(served: ServedView, number: int, changes: pa.Table, diffs: np.ndarray) -> Sums:
        """Of changes, which have the columns of the view, those of its key first."""
        width = len(served.keys)
        keys = changes.select(range(width)).rename_columns([f"k{i}" for i in range(width)])
        there = np.ones(changes.num_rows, np.bool_)
        for column in keys.columns:  # no request finds a key that is NULL
            there &= column.is_valid().to_numpy()
        if not there.all():
            kept = pa.array(there)
            changes, keys, diffs = changes.filter(kept), keys.filter(kept), diffs[there]
        keys = keys.cast(pa.schema(list(zip(keys.column_names, served.key_types, strict=True))))
        rows = encode_rows(changes.columns[width:], changes.num_rows)
        offsets, _ = binary_parts(rows)
        lengths = np.diff(offsets).astype("<u4").view(np.uint8)
        heads = binary_array(_LENGTH * np.arange(len(rows) + 1), lengths)
        rows = pc.binary_join_element_wise(heads, rows, b"")
        if (diffs % 2 == 0).any():  # what is added an even number of times leaves no trace
            rows = pc.if_else(pa.array(diffs % 2 != 0), rows, pa.scalar(b"", pa.binary()))
        names = pa.array(key_bytes(number, keys), pa.binary())
        return Sums.together([Sums(names, rows, diffs)])

    @staticmethod
    def together(several: Sequence[Sums]) -> Sums:
        """The sum of several; in them, a key may be there more than once."""
        keys = pa.chunked_array([one.keys for one in several], pa.binary()).combine_chunks()
        rows = pa.chunked_array([one.rows for one in several], pa.binary())
        counts = np.concatenate([one.counts for one in several])
        coded = single_chunk(keys).dictionary_encode()
        place = coded.indices.to_numpy().astype(np.int64)
        total = np.zeros(len(coded.dictionary), np.int64)
        np.add.at(total, place, counts)
        return Sums(coded.dictionary, _xored(single_chunk(rows), place, total.size), total)


def _xored(rows: pa.Array, place: np.ndarray, count: int) -> pa.Array:
    """The bytes of all rows of a place, added up, for each of so many places."""
    offsets, data = binary_parts(rows)
    return binary_array(*_xor(offsets, data, place, count))


def _settled(rows: pa.Array, counts: np.ndarray) -> pa.Array:
    """The bytes of so many rows, no longer than they have to be."""
    starts, raw = binary_parts(rows)
    sizes = np.diff(starts)
    lone = np.flatnonzero((counts == 1) & (sizes >= _LENGTH))
    lengths = np.zeros(counts.size, np.int64)
    for byte in range(_LENGTH):
        lengths[lone] |= raw[starts[lone] + byte].astype(np.int64) << (8 * byte)
    wanted = np.where(counts == 1, _LENGTH + lengths, np.where(counts == 0, 0, sizes))
    if (wanted > sizes).any() or (counts < 0).any():
        raise DataError(
            "what was served of a view does not fit the changes of its rows; REFRESH MATERIALIZED "
            "VIEW writes it anew"
        )
    return binary_array(*_cut(starts, raw, wanted))


@njit(cache=True, nogil=True)
def _xor(offsets: Any, data: Any, place: Any, count: Any) -> Any:
    """For each place the exclusive or of its strings, as long as the longest."""
    sizes = np.zeros(count, np.int64)
    for i in range(place.size):
        sizes[place[i]] = max(sizes[place[i]], offsets[i + 1] - offsets[i])
    starts = np.zeros(count + 1, np.int64)
    for k in range(count):
        starts[k + 1] = starts[k] + sizes[k]
    out = np.zeros(starts[-1], np.uint8)
    for i in range(place.size):
        at = starts[place[i]]
        for b in range(offsets[i + 1] - offsets[i]):
            out[at + b] ^= data[offsets[i] + b]
    return starts, out


@njit(cache=True, nogil=True)
def _cut(starts: Any, data: Any, sizes: Any) -> Any:
    """The first `sizes[k]` bytes of each string."""
    ends = np.zeros(sizes.size + 1, np.int64)
    for k in range(sizes.size):
        ends[k + 1] = ends[k] + sizes[k]
    out = np.empty(ends[-1], np.uint8)
    for k in range(sizes.size):
        out[ends[k] : ends[k + 1]] = data[starts[k] : starts[k] + sizes[k]]
    return ends, out


def encode_records(
    served: ServedView, rows: pa.Array, counts: np.ndarray, position: int
) -> list[bytes]:
    """Records of keys, of all of their rows; those without rows are kept for their position."""
    words = np.zeros((counts.size, HEAD + 1), np.int64)
    words[:, DIGEST], words[:, COUNT], words[:, HEAD] = served.digest, counts, position
    ends = (HEAD + 1) * np.arange(1, counts.size + 1)
    lanes = [_settled(rows, counts).to_pylist()]
    words, ends = with_lanes(words.ravel(), ends, lanes)
    kept = split_records(served, words, ends, np.ones(counts.size, np.bool_), 1)
    return [record for record in kept if record is not None]


@dataclass
class Adding:
    """Adds changes to the records of their keys, which are then at the position `upper`.

    Records that are not there have no rows at `lower`. Those that are at `upper` already stay.
    `made` and `emptied` count records that are new, and that have no rows any more.
    """

    served: ServedView
    sums: Sums
    lower: int
    upper: int
    made: int = 0
    emptied: int = 0

    def __call__(self, records: Sequence[bytes | None]) -> list[bytes | None]:
        found = Found.of(self.served, records)
        before = found.heads(0, (self.lower,)).positions[:, 0]
        todo = np.flatnonzero(before < self.upper)
        there = found.at >= 0
        counts = np.zeros(there.size, np.int64)
        counts[there] = found.data[found.at[there] + COUNT]
        rows = pa.concat_arrays([found.lane_bytes(0).take(pa.array(todo)), self._changes(todo)])
        total = counts[todo] + self.sums.counts[todo]
        added = _xored(rows, np.tile(np.arange(todo.size), 2), todo.size)
        self.made = int((~there[todo]).sum())
        self.emptied = int((total == 0).sum() - (there & (counts == 0))[todo].sum())
        made = list(records)
        again = encode_records(self.served, added, total, self.upper)
        for place, record in zip(todo.tolist(), again, strict=True):
            made[place] = record
        return made

    def _changes(self, todo: np.ndarray) -> pa.Array:
        return self.sums.rows.take(pa.array(todo))


class RowReader:
    """Reads the rows of keys; made once, used for every request."""

    def __init__(self, served: ServedView) -> None:
        self.served = served
        self._decode = RowDecoder(served.types)

    def features(self, found: Found, times: Sequence[int]) -> list[Column]:
        """A column for each of the view's, for the keys of `found`."""
        nothing = [None] * len(self.served.names)
        rows, empty = [], []
        raw = found.data.tobytes()
        for number, word in enumerate(found.at.tolist()):
            at = 8 * word
            count = 0 if word < 0 else _SIZE.unpack_from(raw, at + 8 * COUNT)[0]
            if count > 1:
                raise RequestError(self._several(number, count))
            empty.append(not count)
            if not count:
                rows.append(nothing)
                continue
            (size,) = _SIZE.unpack_from(raw, at + _BODY - 8)
            rows.append(self._decode(raw[at + _BODY + _LENGTH : at + _BODY + size]))
        missing = empty if True in empty else None
        return [Column(list(values), missing) for values in zip(*rows, strict=True)]

    def _several(self, number: int, count: int) -> str:
        one = self.served
        return (
            f"{one.name}: there are {count} rows for keys[{number}]; serve the {one.kind} by "
            f"columns that identify a row, which {', '.join(one.keys)} "
            f"{'does' if len(one.keys) == 1 else 'do'} not"
        )
