"""Records as bytes: what a key of a group has in the store.

    word 0      'W', version, form, number of sources (a byte each), checksum of the rest (4 bytes)
    word 1      digest of the definition
    word 2      sealed time: queries from it on can be answered
    word 3      n, the number of cells (or of updates)
    words       for each source the time of its shard up to which it has been taken in
    words       tiles: n starts of cells, then column by column the n machine words of each
    words       for each lane the length of its bytes
    bytes       the lanes, each padded to whole words: lists written by `algebra.codec`

All words are int64, little endian. A record is read by compiled code where it lies: nothing is
decoded but what a request needs.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.codec import read_states, write_states
from windrow.algebra.types import list_type
from windrow.errors import DataError
from windrow.online.cells import Cells, CellStates
from windrow.online.served import FORMAT, TILES, Lane, ServedGroup
from windrow.rows.lists import list_parts

HEAD = 4  # words before the positions
DIGEST, SEALED, COUNT = 1, 2, 3
_FIRST = struct.Struct("<BBBBI")
_MARK = ord("W")


@dataclass(frozen=True)
class Heads:
    """What is known of some records: sealed times and positions, (keys,) and (keys, sources)."""

    sealed: np.ndarray
    positions: np.ndarray


def sealed_bytes(body: bytes, served: ServedGroup, sources: int) -> bytes:
    """A record, of all that follows its first word."""
    form = 0 if served.form == TILES else 1
    return _FIRST.pack(_MARK, FORMAT, form, sources, zlib.crc32(body)) + body


def check(record: bytes, served: ServedGroup) -> bool:
    """Whether a record is of this definition; a DataError if it is damaged."""
    if len(record) < 8 * HEAD or len(record) % 8:
        raise DataError("the record is damaged: it ends early")
    mark, version, _, _, checksum = _FIRST.unpack_from(record)
    if mark != _MARK or version != FORMAT or zlib.crc32(memoryview(record)[8:]) != checksum:
        if mark == _MARK and version > FORMAT:
            raise DataError(f"the record has format {version}, which a later release wrote")
        raise DataError("the record is damaged: its checksum is another")
    return int.from_bytes(record[8:16], "little", signed=True) == served.digest


def encode_cells(served: ServedGroup, cells: Cells, heads: Heads) -> list[bytes | None]:
    """The records of keys 0 to n - 1; None for those without cells."""
    keys = heads.sealed.size
    edges = cells.per_key(keys)
    words, ends = _written(
        cells.start, cells.words, edges, served.digest, heads.sealed, heads.positions
    )
    lanes = [
        _lane_bytes(lane, one, cells, edges).to_pylist()
        for lane, one in zip(served.lanes, cells.states, strict=True)
    ]
    sources = heads.positions.shape[1]
    return split_records(served, words, ends, np.diff(edges), sources, lanes)


def split_records(
    served: ServedGroup,
    words: np.ndarray,
    ends: np.ndarray,
    sizes: np.ndarray,
    sources: int,
    lanes: Sequence[Sequence[bytes]],
) -> list[bytes | None]:
    """Records whose words but the first stand one after the other; None for those without cells."""
    raw = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
    found: list[bytes | None] = []
    start = 0
    for number, (end, size) in enumerate(zip((8 * ends).tolist(), sizes.tolist(), strict=True)):
        if not size:
            found.append(None)
        else:
            body = bytes(raw[start:end])
            if lanes:
                body += lane_section([lane[number] for lane in lanes])
            found.append(sealed_bytes(body, served, sources))
        start = end
    return found


def lane_section(lanes: Sequence[bytes]) -> bytes:
    """The lengths of lanes, and their bytes."""
    lengths = struct.pack(f"<{len(lanes)}q", *map(len, lanes))
    return lengths + b"".join(lane + b"\0" * (-len(lane) % 8) for lane in lanes)


@njit(cache=True, nogil=True)
def _written(starts: Any, words: Any, edges: Any, digest: Any, sealed: Any, positions: Any) -> Any:
    """The words of all records but their first, one after the other, and where each ends."""
    keys, sources, width = sealed.size, positions.shape[1], words.shape[1]
    ends = np.empty(keys, np.int64)
    total = 0
    for k in range(keys):
        total += HEAD - 1 + sources + (edges[k + 1] - edges[k]) * (1 + width)
        ends[k] = total
    out = np.empty(total, np.int64)
    at = 0
    for k in range(keys):
        first, last = edges[k], edges[k + 1]
        n = last - first
        out[at], out[at + 1], out[at + 2] = digest, sealed[k], n
        at += HEAD - 1
        for s in range(sources):
            out[at] = positions[k, s]
            at += 1
        for i in range(first, last):
            out[at] = starts[i]
            at += 1
        for c in range(width):
            for i in range(first, last):
                out[at] = words[i, c]
                at += 1
    return out, ends


def _lane_fields(lane: Lane) -> list[pa.Field]:
    """The lists of a lane: number of the cell within its record, buckets, state."""
    levels = [pa.field(f"b{i}", list_type(type_)) for i, type_ in enumerate(lane.levels)]
    return [
        pa.field("times", list_type(pa.int64())),
        *levels,
        pa.field("s", list_type(pa.binary())),
    ]


def _lane_bytes(lane: Lane, one: CellStates, cells: Cells, edges: np.ndarray) -> pa.Array:
    """The bytes of a lane for each key."""
    owner = cells.key[one.cell]
    starts = np.searchsorted(owner, np.arange(edges.size))
    within = one.cell - edges[owner]
    offsets = pa.array(starts.astype(np.int32))
    columns = [pa.array(within), *one.levels, lane.states.serialise(one.states)]
    fields = _lane_fields(lane)
    lists = [
        pa.ListArray.from_arrays(offsets, column, type=field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    return write_states(lists, fields, b"")


@dataclass(frozen=True)
class Found:
    """Records that were read, one after the other; `at` is the word at which each begins, or -1.

    `lanes` and `heads` read what the compiled code does not.
    """

    served: ServedGroup
    data: np.ndarray
    at: np.ndarray

    @staticmethod
    def of(served: ServedGroup, records: Sequence[bytes | None]) -> Found:
        """Records of this definition, checked; those of another one are as if they were not."""
        if len(records) == 1:
            record = records[0]
            if record is None or not check(record, served):
                return Found(served, np.zeros(1, np.int64), np.array([-1]))
            return Found(served, np.frombuffer(record, np.int64), np.array([0]))
        there = [r if r is not None and check(r, served) else b"" for r in records]
        sizes = np.array([len(r) // 8 for r in there], np.int64)
        at = np.where(sizes > 0, np.cumsum(sizes) - sizes, -1)
        joined = b"".join(there)
        data = np.frombuffer(joined, np.int64) if joined else np.zeros(1, np.int64)
        return Found(served, data, at)

    def latest_sealed(self, least: int) -> int:
        """The latest sealed time of these records, and not before `least`."""
        if self.at.size == 1:
            return least if self.at[0] < 0 else max(least, int(self.data[SEALED]))
        there = self.at[self.at >= 0]
        return max(least, int(self.data[there + SEALED].max())) if there.size else least

    def heads(self, sealed: int, positions: Sequence[int]) -> Heads:
        """Of all keys; those without a record have these."""
        there = self.at >= 0
        at = self.at[there]
        all_sealed = np.full(self.at.size, sealed, np.int64)
        all_sealed[there] = self.data[at + SEALED]
        all_positions = np.tile(np.array(positions, np.int64), (self.at.size, 1))
        for s in range(len(positions)):
            all_positions[there, s] = self.data[at + HEAD + s]
        return Heads(all_sealed, all_positions)

    def starts(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of the key and the start of each cell."""
        key, start, _ = _read(self.data, self.at, 0)
        return key, start

    def cells(self) -> Cells:
        """The cells of all records."""
        key, start, words = _read(self.data, self.at, self.served.word_parts.width)
        edges = np.searchsorted(key, np.arange(self.at.size + 1))
        states = tuple(
            self._states(lane, number, edges) for number, lane in enumerate(self.served.lanes)
        )
        return Cells(key, start, words, states)

    def _states(self, lane: Lane, number: int, edges: np.ndarray) -> CellStates:
        owner, within, levels, raw = self.lane(lane, number)
        return CellStates(edges[owner] + within, levels, lane.states.deserialise(raw))

    def lane(
        self, lane: Lane, number: int
    ) -> tuple[np.ndarray, np.ndarray, tuple[pa.Array, ...], pa.Array]:
        """Of a lane, for each state: the key, the cell within its record, buckets, and bytes."""
        there = np.flatnonzero(self.at >= 0)
        raw = self.lane_bytes(number).take(pa.array(there))
        lists = read_states(raw, _lane_fields(lane), 0)
        starts, within = list_parts(lists[0])
        owner = np.repeat(there, np.diff(starts))
        levels = tuple(list_parts(one)[1] for one in lists[1:-1])
        return owner, within.to_numpy(zero_copy_only=False), levels, list_parts(lists[-1])[1]

    def lane_bytes(self, number: int) -> pa.Array:
        """The bytes of a lane for each key; empty for those without a record."""
        served = self.served
        tiles = served.form == TILES
        words, lanes = (1 + served.word_parts.width, len(served.lanes)) if tiles else (0, 1)
        first, last = _lane_bounds(self.data, self.at, words, lanes, number)
        raw = self.data.view(np.uint8)
        pieces = [raw[a:b].tobytes() for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        return pa.array(pieces, pa.binary())


@njit(cache=True, nogil=True)
def _lane_bounds(data: Any, at: Any, words: Any, lanes: Any, number: Any) -> Any:
    """The bytes [first, last) of a lane, for each record; empty for those that are not there."""
    first, last = np.zeros(at.size, np.int64), np.zeros(at.size, np.int64)
    for k in range(at.size):
        if at[k] < 0:
            continue
        base = at[k] + HEAD + ((data[at[k]] >> 24) & 0xFF) + data[at[k] + COUNT] * words
        place = 8 * (base + lanes)
        for lane in range(number):
            place += (data[base + lane] + 7) // 8 * 8
        first[k], last[k] = place, place + data[base + number]
    return first, last


@njit(cache=True, nogil=True)
def _read(data: Any, at: Any, width: Any) -> Any:
    """The cells of records: the number of the key, start and words of each."""
    total = 0
    for k in range(at.size):
        if at[k] >= 0:
            total += data[at[k] + COUNT]
    key, start = np.empty(total, np.int64), np.empty(total, np.int64)
    words = np.empty((total, width), np.int64)
    done = 0
    for k in range(at.size):
        if at[k] < 0:
            continue
        n = data[at[k] + COUNT]
        base = at[k] + HEAD + ((data[at[k]] >> 24) & 0xFF)
        for i in range(n):
            key[done + i], start[done + i] = k, data[base + i]
        for c in range(width):
            column = base + n * (1 + c)
            for i in range(n):
                words[done + i, c] = data[column + i]
        done += n
    return key, start, words
