"""Checksums of parts: every byte of a part that is read is compared with what was written.

    PAR1 │ row groups ... │ sums │ footer │ length, PAR1
                          └─────── tail ───────────────┘

A part's sums are those of its column chunks. They stand before the footer, where no Parquet reader
looks: nothing in such a file is found by its distance from the footer. The first is none, but says
how they were made; in parts of earlier versions, which made them by xxHash64, it is missing. The
part's name, which the log knows, holds the length of the tail and its checksum. So a reader that
trusts the log knows whether the footer is right before it is parsed, and whether a column chunk is
before it is decoded; and one part cannot stand in for another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from windrow.shard.random_access import RandomAccessFile
from windrow.storage.checksum import checksum, chunk_sum
from windrow.storage.footers import footer_bytes

_SUM = np.dtype([("start", "<i8"), ("end", "<i8"), ("checksum", "<u8")])
_MARK = -1  # where no chunk starts: what follows are sums of the kind that the mark names
_CHUNK_SUM = 1


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Where a column chunk lies in its file, given its Parquet metadata."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def chunk_sums(metadata: Any, read: Callable[[int, int], Any]) -> bytes:
    """The sums of a file's column chunks; `read` gives the bytes from a start to an end."""
    ranges = []
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        ranges += [chunk_range(group.column(i)) for i in range(group.num_columns)]
    sums = [(a, b, chunk_sum(read(a, b))) for a, b in sorted(ranges)]
    return np.array([(_MARK, _MARK, _CHUNK_SUM), *sums], _SUM).tobytes()


def tail_facts(tail: Any) -> tuple[int, int]:
    """What a part's name says of its tail."""
    return len(tail), checksum(tail)


class CheckedFile(RandomAccessFile):
    """A part's file as Arrow reads it, from `source`: bytes come only if their checksums are right.

    `fail` makes the error of what is wrong.
    """

    def __init__(
        self, source: Any, size: int, tail: tuple[int, int], fail: Callable[[str], Exception]
    ) -> None:
        self._source, self._fail = source, fail
        self._read = getattr(source, "read_buffer", source.read)  # of Arrow's: without a copy
        source.seek(0, os.SEEK_END)
        super().__init__(source.tell())
        if self.size != size:
            raise fail(f"it has {self.size} bytes, and the log says {size}")
        length = tail[0]
        self._tail_start = size - length
        self._tail = self._fetch(self._tail_start, size)
        if tail_facts(self._tail) != tail:
            raise fail("its footer is damaged, or it is another part's")
        block = np.frombuffer(self._tail, np.uint8)[: length - footer_bytes(self._tail)]
        found = block.view(_SUM)
        self._sum = checksum
        if found.size and found["start"][0] == _MARK:
            if found["checksum"][0] != _CHUNK_SUM:
                raise fail("its checksums are of a kind that a later version wrote")
            self._sum, found = chunk_sum, found[1:]
        ends = zip(found["end"].tolist(), found["checksum"].tolist(), strict=True)
        self._sums = dict(zip(found["start"].tolist(), ends, strict=True))
        self._starts = found["start"]  # sorted

    def bytes_between(self, start: int, end: int) -> Any:
        if start >= self._tail_start:
            return memoryview(self._tail)[start - self._tail_start : end - self._tail_start]
        data = self._fetch(start, end)
        chunk_end, expected = self._sums.get(start, (0, 0))
        if chunk_end == end:  # Arrow reads a chunk at a time,
            if self._sum(data) != expected:
                raise self._damaged(start, end)
            return data
        # or several that lie together.
        first = max(int(np.searchsorted(self._starts, start, "right")) - 1, 0)
        last = int(np.searchsorted(self._starts, end))
        for at in self._starts[first:last].tolist():
            self._check(at, start, end, data)
        return data

    def _check(self, at: int, start: int, end: int, data: Any) -> None:
        """Raise unless the chunk that begins `at` is right; some of it is `data`, [start, end)."""
        chunk_end, expected = self._sums[at]
        if chunk_end <= start:
            return
        if start <= at and chunk_end <= end:
            found = memoryview(data)[at - start : chunk_end - start]
        else:
            found = self._fetch(at, chunk_end)
        if self._sum(found) != expected:
            raise self._damaged(at, chunk_end)

    def _damaged(self, start: int, end: int) -> Exception:
        return self._fail(f"its bytes from {start} to {end} are damaged")

    def _fetch(self, start: int, end: int) -> Any:
        self._source.seek(start)
        return self._read(end - start)

    def check_all(self) -> None:
        """Read every column chunk; raises if one is damaged."""
        for start, (end, _) in self._sums.items():
            self.bytes_between(start, end)

    def release(self) -> None:
        self._source.close()
