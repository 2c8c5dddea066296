"""A part in memory, as far as it was fetched: what to request of its file, and how it is read.

A small part is fetched whole. Of a larger one the tail comes first, with the footer; that tells
where the wanted columns of the wanted row groups lie. Arrow then reads a file of blocks, some of
which are there and others on their way.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.shard.files import check_rows, checked, unreadable
from windrow.shard.part import ROW_GROUP_ROWS, Part
from windrow.shard.random_access import RandomAccessFile
from windrow.shard.sums import chunk_range
from windrow.storage.store import Store

WHOLE_BYTES = 1 << 20  # a part up to this size is fetched by one request, whatever is wanted
TAIL_BYTES = 1 << 16  # of a larger part: its footer, unless it is very large
GAP_BYTES = 1 << 16  # less than this between two wanted ranges is fetched too
_TAIL = -1


@dataclass(frozen=True)
class WantedGroup:
    """A row group that will be read, and a lower bound of its prefixes."""

    number: int
    prefix: int


@dataclass(frozen=True)
class WantedPart:
    """A part that will be opened, and what will be read of it, given its Parquet metadata."""

    part: Part
    columns: Sequence[str]
    groups: Callable[[Any], Sequence[WantedGroup]]

    @property
    def comes_whole(self) -> bool:
        """Opening it brings all that is wanted of it, if the log is right."""
        one_group = self.part.sorted and self.part.rows <= ROW_GROUP_ROWS
        return self.part.bytes <= WHOLE_BYTES or one_group

    @property
    def first_bytes(self) -> int:
        """About what opening it brings: its footer and its first row group, or all of it."""
        if self.comes_whole or not self.part.sorted:
            return self.part.bytes
        return TAIL_BYTES + self.part.bytes * ROW_GROUP_ROWS // self.part.rows


class Request:
    """Something to fetch: by a thread, if one is free first, or by its consumer."""

    def __init__(self, work: Callable[[], Any], size: int, prefix: int) -> None:
        self._work = work
        self.size = size
        self.prefix = prefix
        self.future: Future[Any] | None = None  # once it is submitted
        self.taken = False

    @property
    def is_ahead(self) -> bool:
        """Under way or fetched, and not taken."""
        return self.future is not None and not self.taken

    def submit(self, pool: ThreadPoolExecutor, then: Callable[[Future[Any]], None]) -> None:
        self.future = pool.submit(self._work)
        self.future.add_done_callback(then)

    def take(self) -> Any:
        self.taken = True
        if self.future is None or self.future.cancel():
            return self._work()
        return self.future.result()

    def drop(self) -> None:
        """Nobody will take it. Returns when no thread works on it any more."""
        self.taken = True
        if self.future is not None and not self.future.cancel():
            self.future.exception()


@dataclass
class _Block:
    """Bytes [start, end) of a file: of the row group that is read as number `turn`, or the tail."""

    start: int
    end: int
    turn: int
    request: Request | None = None
    data: bytes | None = None


@dataclass
class OpenedPart:
    """The bytes of a small part; of a larger one its source, its metadata, and its blocks."""

    whole: bytes | None = None
    source: Any = None
    metadata: Any = None
    blocks: list[_Block] = field(default_factory=list)

    @property
    def requests(self) -> list[Request]:
        return [block.request for block in self.blocks if block.request is not None]

    def close(self) -> None:
        for request in self.requests:
            request.drop()
        self.blocks = []
        if self.source is not None:
            self.source.close()


def fetch_part(store: Store, wanted: WantedPart) -> OpenedPart:
    """Fetch a small part; of a larger one its footer and what is wanted of the first row group."""
    part = wanted.part
    try:
        source = store.open_input(part.path)
        try:
            size = source.size()
            if size <= WHOLE_BYTES:
                whole = source.read_at(size, 0)
                source.close()
                return OpenedPart(whole=whole)
            tail_bytes = max(TAIL_BYTES, part.name.tail[0] if part.name.tail else 0)
            start = max(size - tail_bytes, 0)
            tail = _Block(start, size, _TAIL, data=source.read_at(size - start, start))
            opened = OpenedPart(source=source, blocks=[tail])
            opened.metadata = pq.read_metadata(checked(store, part, FetchedFile(opened)))
            check_rows(store, part, opened.metadata)
            opened.blocks = [*_wanted_blocks(opened, wanted, before=start), tail]
            return opened
        except BaseException:
            source.close()
            raise
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable(store, part, error) from error


def _wanted_blocks(opened: OpenedPart, wanted: WantedPart, before: int) -> list[_Block]:
    """The blocks of the wanted row groups, as far as they start `before`; the first is fetched."""
    found = []
    for turn, group in enumerate(wanted.groups(opened.metadata)):
        for start, end in column_ranges(opened.metadata, group.number, wanted.columns):
            if start >= before:
                continue  # the tail has it
            fetch = functools.partial(opened.source.read_at, end - start, start)
            block = _Block(start, end, turn)
            if turn:
                block.request = Request(fetch, end - start, group.prefix)
            else:
                block.data = fetch()
            found.append(block)
    return sorted(found, key=lambda block: block.start)


def column_ranges(metadata: Any, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Where `columns` of a row group lie in the file; ranges that lie close together are one."""
    row_group = metadata.row_group(group)
    ranges = []
    for i in range(row_group.num_columns):
        chunk = row_group.column(i)
        path = chunk.path_in_schema
        if not any(path == name or path.startswith(f"{name}.") for name in columns):
            continue
        ranges.append(chunk_range(chunk))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] < GAP_BYTES:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


class FetchedFile(RandomAccessFile):
    """A part's file as Arrow reads it: blocks that are there, or on their way, or neither.

    Reading a row group releases those before it.
    """

    def __init__(self, opened: OpenedPart, take: Callable[[Request], Any] = Request.take) -> None:
        self._opened = opened
        self._take = take
        self._starts = [block.start for block in opened.blocks]
        self._turn = 0
        super().__init__(opened.blocks[-1].end)

    def bytes_between(self, start: int, end: int) -> memoryview:
        i = bisect_right(self._starts, start) - 1
        if i >= 0 and end <= self._opened.blocks[i].end:
            block = self._opened.blocks[i]
            data = self._data(block)
            if data is not None:
                return memoryview(data)[start - block.start : end - block.start]
        return memoryview(self._opened.source.read_at(end - start, start))

    def _data(self, block: _Block) -> bytes | None:
        if block.turn > self._turn:
            self._turn = block.turn
            for earlier in self._opened.blocks:
                if _TAIL < earlier.turn < block.turn:
                    earlier.data = None
        if block.request is not None and not block.request.taken:
            block.data = self._take(block.request)
        return block.data

    def release(self) -> None:
        self._opened.close()
