"""Records as bytes: what a key of a group has in the store.

    word 0      'W', format, form, number of sources (a byte each), checksum of the rest (4 bytes)
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
from windrow.online.served import FORMAT, ROWS, TILES, Lane, ServedGroup
from windrow.online.served_view import ROW, Servable
from windrow.rows.lists import list_parts
from windrow.storage.checksum import word_sum

HEAD = 4  # words before the positions
DIGEST, SEALED, COUNT = 1, 2, 3
_MARK = ord("W")
_FORMS = {TILES: 0, ROWS: 1, ROW: 2}
_NOTHING = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Heads:
    """What is known of some records: sealed times and positions, (keys,) and (keys, sources)."""

    sealed: np.ndarray
    positions: np.ndarray


def split_records(
    served: Servable,
    words: np.ndarray,
    ends: np.ndarray,
    kept: np.ndarray,
    sources: int,
) -> list[bytes | None]:
    """Records whose words stand one after the other, sealed; None for those that are not kept.

    The first word of each is written here: it has the checksum of all others.
    """
    form = _FORMS[served.form]
    _seal(words, ends, _MARK | FORMAT << 8 | form << 16 | sources << 24)
    raw = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
    found: list[bytes | None] = []
    start = 0
    for end, keep in zip((8 * ends).tolist(), kept.tolist(), strict=True):
        found.append(raw[start:end].tobytes() if keep else None)
        start = end
    return found


@njit(cache=True, nogil=True)
def _checksum(words: Any, begin: Any, end: Any) -> Any:
    """Of a record: 32 bits, of all its words, and of the first one's half that is not the sum."""
    head = (np.uint64(words[begin]) & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B1)
    return (word_sum(words, begin + 1, end) + head) & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _seal(words: Any, ends: Any, first: Any) -> None:
    begin = np.int64(0)
    for k in range(ends.size):
        words[begin] = first
        words[begin] = np.int64(
            np.uint64(first) | _checksum(words, begin, ends[k]) << np.uint64(32)
        )
        begin = ends[k]


def with_lanes(
    words: np.ndarray, ends: np.ndarray, lanes: Sequence[Sequence[bytes]]
) -> tuple[np.ndarray, np.ndarray]:
    """The words of records, each followed by those of its lanes; and where each ends then."""
    raw = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
    pieces: list[Any] = []
    lengths, start = [], 0
    for number, end in enumerate((8 * ends).tolist()):
        section = lane_section([lane[number] for lane in lanes])
        pieces += [raw[start:end], section]
        lengths.append(end - start + len(section))
        start = end
    joined = np.frombuffer(bytearray().join(pieces), np.int64)
    return joined, np.cumsum(np.array(lengths, np.int64)) // 8


# What is wrong with a record, from the worst on; FINE and OTHER can be served.
_FINE, _OTHER, _EARLIER, _LATER, _DAMAGED = range(5)
_WRONG = {
    _DAMAGED: "the record is damaged: its checksum is another",
    _LATER: "the record has a format which a later release wrote",
    _EARLIER: "the record has a format which an earlier release wrote",
}


@njit(cache=True, nogil=True)
def _checked(data: Any, at: Any, sizes: Any, digest: Any) -> Any:
    """The worst of what is wrong with records of `sizes` bytes; `at` of other definitions is -1."""
    worst = _FINE
    for k in range(at.size):
        if at[k] < 0:
            continue
        first, end = np.uint64(data[at[k]]), at[k] + sizes[k] // 8
        form = (first >> np.uint64(8)) & np.uint64(0xFF)
        if first & np.uint64(0xFF) != np.uint64(_MARK):
            found = _DAMAGED
        elif form != np.uint64(FORMAT):
            found = _LATER if form > np.uint64(FORMAT) else _EARLIER
        elif _checksum(data, at[k], end) != first >> np.uint64(32):
            found = _DAMAGED
        elif data[at[k] + DIGEST] != digest:
            at[k], found = -1, _OTHER
        else:
            continue
        worst = max(worst, found)
    return worst


def encode_cells(served: ServedGroup, cells: Cells, heads: Heads) -> list[bytes | None]:
    """The records of keys 0 to n - 1; None for those without cells."""
    keys = heads.sealed.size
    edges = cells.per_key(keys)
    words, ends = _written(
        cells.start, cells.words, edges, served.digest, heads.sealed, heads.positions
    )
    if served.lanes:
        lanes = [
            _lane_bytes(lane, one, cells, edges).to_pylist()
            for lane, one in zip(served.lanes, cells.states, strict=True)
        ]
        words, ends = with_lanes(words, ends, lanes)
    return split_records(served, words, ends, np.diff(edges) > 0, heads.positions.shape[1])


def lane_section(lanes: Sequence[bytes]) -> bytes:
    """The lengths of lanes, and their bytes."""
    lengths = struct.pack(f"<{len(lanes)}q", *map(len, lanes))
    return lengths + b"".join(lane + b"\0" * (-len(lane) % 8) for lane in lanes)


@njit(cache=True, nogil=True)
def _written(starts: Any, words: Any, edges: Any, digest: Any, sealed: Any, positions: Any) -> Any:
    """The words of all records, one after the other, but for their first; and where each ends."""
    keys, sources, width = sealed.size, positions.shape[1], words.shape[1]
    ends = np.empty(keys, np.int64)
    total = 0
    for k in range(keys):
        total += HEAD + sources + (edges[k + 1] - edges[k]) * (1 + width)
        ends[k] = total
    out = np.empty(total, np.int64)
    at = 0
    for k in range(keys):
        first, last = edges[k], edges[k + 1]
        n = last - first
        out[at], out[at + DIGEST], out[at + SEALED], out[at + COUNT] = 0, digest, sealed[k], n
        at += HEAD
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

    served: Servable
    data: np.ndarray
    at: np.ndarray

    @property
    def group(self) -> ServedGroup:
        assert isinstance(self.served, ServedGroup)
        return self.served

    @staticmethod
    def of(served: Servable, records: Sequence[bytes | None]) -> Found:
        """Records of this definition, checked; those of another one are as if they were not."""
        if len(records) == 1:
            joined = records[0]
            if joined is None:
                return Found(served, _NOTHING, np.array([-1]))
            size = len(joined)
            early = size < 8 * HEAD or size % 8 > 0
            sizes, at = np.array([size]), np.array([0])
        else:
            sizes = np.array([-1 if one is None else len(one) for one in records], np.int64)
            at = np.where(sizes >= 0, np.cumsum(np.maximum(sizes, 0)) - sizes, -8) // 8
            joined = b"".join([one for one in records if one is not None])
            early = bool(((sizes >= 0) & ((sizes < 8 * HEAD) | (sizes % 8 > 0))).any())
        if early:
            raise DataError("the record is damaged: it ends early")
        data = np.frombuffer(joined, np.int64) if joined else _NOTHING
        worst = _checked(data, at, sizes, served.digest)
        if worst in _WRONG:
            raise DataError(_WRONG[worst])
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
        key, start, words = _read(self.data, self.at, self.group.word_parts.width)
        edges = np.searchsorted(key, np.arange(self.at.size + 1))
        states = tuple(
            self._states(lane, number, edges) for number, lane in enumerate(self.group.lanes)
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
        words, lanes = 0, 1
        if self.served.form == TILES:
            words, lanes = 1 + self.group.word_parts.width, len(self.group.lanes)
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
