"""The bytes of partial states: one codec for every kind, driven by the types of its fields.

The bytes of a state are a header (see `header`) and then its fields:

    int64           zigzag varint
    binary          length (varint), bytes
    first list      length n (varint), then n elements
    further lists   n elements: every list of a state has the length of the first
      of int64 `times` or `counts`: zigzag varints, each the difference to the one before
      of numbers, booleans, dates, timestamps, decimals: little endian, at their own width
      of strings and binaries: length (varint), bytes
      of nested values: length (varint), an Arrow IPC stream of all n

Whole columns are written and read at once: a cursor per state moves from field to field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from windrow.errors import DataError
from windrow.rows.hashing import byte_ranges, decimal_halves, fixed_width
from windrow.rows.lists import list_parts
from windrow.rows.types import single_chunk

t = pa.types
COMPANIONS = ("times", "counts")


@njit(cache=True, nogil=True)
def _varints(values: Any, starts: Any) -> Any:
    """Zigzag varints of values; those of [starts[i], starts[i+1]) as differences, in one string.

    Returns offsets (one string for each i) and data.
    """
    out = np.empty(10 * values.size, np.uint8)
    offsets = np.zeros(starts.size, np.int64)
    used = 0
    for i in range(starts.size - 1):
        previous = np.int64(0)
        for p in range(starts[i], starts[i + 1]):
            change = values[p] - previous  # wraps around, as does adding it again
            previous = values[p]
            word = np.uint64((change << 1) ^ (change >> 63))
            while word >= np.uint64(128):
                out[used] = np.uint8(word & np.uint64(127)) | np.uint8(128)
                word >>= np.uint64(7)
                used += 1
            out[used] = np.uint8(word)
            used += 1
        offsets[i + 1] = used
    return offsets, out[:used].copy()


@njit(cache=True, nogil=True)
def _read_varints(data: Any, cursor: Any, ends: Any, starts: Any) -> Any:
    """The inverse: the values, and whether all states held them; moves `cursor`."""
    values = np.zeros(starts[-1], np.int64)
    for i in range(starts.size - 1):
        previous = np.int64(0)
        for p in range(starts[i], starts[i + 1]):
            word = np.uint64(0)
            shift = 0
            more = True
            while more:
                if cursor[i] >= ends[i] or shift > 63:
                    return values, False
                byte = np.uint64(data[cursor[i]])
                cursor[i] += 1
                word |= (byte & np.uint64(127)) << np.uint64(shift)
                shift += 7
                more = bool(byte >= np.uint64(128))
            change = np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1))
            previous += change
            values[p] = previous
    return values, True


@njit(cache=True, nogil=True)
def _read_bytes(data: Any, cursor: Any, ends: Any, lengths: Any) -> Any:
    """The next `lengths[i]` bytes of each state: offsets, data, and whether they were there."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    for i in range(lengths.size):
        if lengths[i] < 0 or lengths[i] > ends[i] - cursor[i]:
            return offsets, np.zeros(0, np.uint8), False
        offsets[i + 1] = offsets[i] + lengths[i]
    out = np.empty(offsets[-1], np.uint8)
    for i in range(lengths.size):
        out[offsets[i] : offsets[i + 1]] = data[cursor[i] : cursor[i] + lengths[i]]
        cursor[i] += lengths[i]
    return offsets, out, True


@njit(cache=True, nogil=True)
def _read_strings(data: Any, cursor: Any, ends: Any, starts: Any) -> Any:
    """Strings [starts[i], starts[i+1]) of each state, each after its length."""
    n = starts[-1]
    froms, offsets = np.zeros(n, np.int64), np.zeros(n + 1, np.int64)
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            word = np.uint64(0)
            shift = 0
            more = True
            while more:
                if cursor[i] >= ends[i] or shift > 63:
                    return offsets, np.zeros(0, np.uint8), False
                byte = np.uint64(data[cursor[i]])
                cursor[i] += 1
                word |= (byte & np.uint64(127)) << np.uint64(shift)
                shift += 7
                more = bool(byte >= np.uint64(128))
            length = np.int64(word >> np.uint64(1))
            if length < 0 or length > ends[i] - cursor[i]:
                return offsets, np.zeros(0, np.uint8), False
            froms[p] = cursor[i]
            offsets[p + 1] = offsets[p] + length
            cursor[i] += length
    out = np.empty(offsets[-1], np.uint8)
    for p in range(n):
        length = offsets[p + 1] - offsets[p]
        out[offsets[p] : offsets[p + 1]] = data[froms[p] : froms[p] + length]
    return offsets, out, True


def binary_array(offsets: np.ndarray, data: np.ndarray, type_: pa.DataType = None) -> pa.Array:
    """Strings of bytes from their offsets and data."""
    if offsets[-1] > np.iinfo(np.int32).max:
        raise DataError("a column of states exceeds 2 GiB; take fewer groups at a time")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_ or pa.binary(), offsets.size - 1, buffers)


def binary_parts(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (int64) and data of an array of strings or binaries without NULLs."""
    offsets, data = byte_ranges(array)
    return offsets.astype(np.int64), data


def _singles(values: np.ndarray) -> pa.Array:
    return binary_array(*_varints(values.astype(np.int64), np.arange(values.size + 1)))


def varint(value: int) -> bytes:
    return bytes(_varints(np.array([value]), np.array([0, 1]))[1])


def element_bytes(values: pa.Array, starts: np.ndarray) -> pa.Array:
    """For each list its elements as bytes; `starts` are the lists' offsets."""
    type_ = values.type
    if t.is_nested(type_):
        streams = [
            _ipc(values.slice(a, b - a))
            for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        lengths = _singles(np.array([len(s) for s in streams], np.int64))
        return pc.binary_join_element_wise(lengths, pa.array(streams, pa.binary()), b"")
    if t.is_string(type_) or t.is_binary(type_):
        offsets, _ = binary_parts(values)
        lengths = _singles(np.diff(offsets))
        joined = pc.binary_join_element_wise(lengths, values.cast(pa.binary()), b"")
        offsets, data = binary_parts(joined)
        return binary_array(offsets[starts], data)
    if t.is_decimal(type_):
        raw, width = np.ascontiguousarray(decimal_halves(values)), 16
    else:
        raw = np.ascontiguousarray(fixed_width(values))
        width = raw.dtype.itemsize
    return binary_array(starts * width, raw.view(np.uint8).ravel())


def _ipc(values: pa.Array) -> bytes:
    if not len(values):
        return b""
    batch = pa.record_batch([values], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def write_states(
    columns: Sequence[pa.Array], fields: Sequence[pa.Field], header: bytes
) -> pa.Array:
    """The bytes of each state."""
    if not len(columns[0]):
        return pa.array([], pa.binary())
    pieces: list[Any] = [pa.scalar(header, pa.binary())]
    listed = False
    for field, column in zip(fields, columns, strict=True):
        if t.is_int64(field.type):
            pieces.append(_singles(column.to_numpy(zero_copy_only=False)))
        elif t.is_binary(field.type):
            offsets, _ = binary_parts(column)
            pieces += [_singles(np.diff(offsets)), column]
        else:
            starts, values = list_parts(column)
            if not listed:
                pieces.append(_singles(np.diff(starts)))
                listed = True
            if field.name in COMPANIONS:
                numbers = values.to_numpy(zero_copy_only=False)
                pieces.append(binary_array(*_varints(numbers, starts)))
            else:
                pieces.append(element_bytes(values, starts))
    return pc.binary_join_element_wise(*pieces, b"")


def read_states(data: pa.Array, fields: Sequence[pa.Field], skip: int) -> list[pa.Array]:
    """The inverse of `write_states`, after `skip` bytes of header, which have been checked."""
    offsets, content = binary_parts(data)
    cursor, ends = offsets[:-1] + skip, offsets[1:]
    reader = _Reader(content, cursor, ends)
    columns: list[pa.Array] = []
    starts: np.ndarray | None = None
    for field in fields:
        if t.is_int64(field.type):
            columns.append(pa.array(reader.integers()))
        elif t.is_binary(field.type):
            columns.append(binary_array(*reader.strings(reader.integers())))
        else:
            if starts is None:
                starts = reader.list_starts()
            values = reader.elements(starts, field)
            parts = pa.array(starts.astype(np.int32))
            columns.append(pa.ListArray.from_arrays(parts, values, type=field.type))
    reader.finish()
    return columns


class _Reader:
    """Reads one field of every state at a time."""

    def __init__(self, data: np.ndarray, cursor: np.ndarray, ends: np.ndarray) -> None:
        self.data, self.cursor, self.ends = data, cursor, ends

    def _check(self, right: bool) -> None:
        if not right:
            raise DataError(
                "the bytes of a state are damaged (they end early, late, or do not hold what they "
                "announce); rebuild the states from the events"
            )

    def integers(self) -> np.ndarray:
        values, right = _read_varints(
            self.data, self.cursor, self.ends, np.arange(self.cursor.size + 1)
        )
        self._check(right)
        return np.asarray(values)

    def strings(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets, data, right = _read_bytes(self.data, self.cursor, self.ends, lengths)
        self._check(right)
        return offsets, data

    def list_starts(self) -> np.ndarray:
        lengths = self.integers()
        # No element is shorter than a byte: of nested ones, at least the time is as long.
        self._check(bool((lengths >= 0).all() and (lengths <= self.ends - self.cursor).all()))
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def elements(self, starts: np.ndarray, field: pa.Field) -> pa.Array:
        type_ = field.type.value_type
        if field.name in COMPANIONS:
            values, right = _read_varints(self.data, self.cursor, self.ends, starts)
            self._check(right)
            return pa.array(values)
        if t.is_nested(type_):
            return self._nested(starts, type_)
        if t.is_string(type_) or t.is_binary(type_):
            offsets, data, right = _read_strings(self.data, self.cursor, self.ends, starts)
            self._check(right)
            return self._valid(binary_array(offsets, data, type_))
        width = 1 if t.is_boolean(type_) else type_.bit_width // 8
        _, data = self.strings(np.diff(starts) * width)
        if t.is_boolean(type_):
            return pa.array(data != 0)
        return self._valid(
            pa.Array.from_buffers(type_, int(starts[-1]), [None, pa.py_buffer(data)])
        )

    def _valid(self, values: pa.Array) -> pa.Array:
        """Not all bytes are text, nor do all fit the digits of a decimal."""
        if t.is_string(values.type) or t.is_decimal(values.type):
            try:
                values.validate(full=True)
            except pa.ArrowInvalid:
                self._check(False)
        return values

    def _nested(self, starts: np.ndarray, type_: pa.DataType) -> pa.Array:
        offsets, data = self.strings(self.integers())
        raw = data.tobytes()
        found = [pa.array([], type_)]
        for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            if a < b:
                try:
                    found.append(single_chunk(pa.ipc.open_stream(raw[a:b]).read_all().column(0)))
                except (pa.ArrowInvalid, OSError):
                    self._check(False)
        self._check(all(part.type == type_ for part in found))
        values = pa.concat_arrays(found)
        self._check(len(values) == starts[-1])
        return values

    def finish(self) -> None:
        self._check(bool((self.cursor == self.ends).all()))
