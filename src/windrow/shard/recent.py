"""Parts that this process has looked keys up in, as they were: the next lookup reads only new ones.

A process that keeps a view looks keys up in the same collections over and over, in a large part and
many small ones that were written since it was made. Opening and decoding those costs more than what
is done with them. Parts never change, so a table that was read once stays right.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from windrow.storage.store import Store

LARGEST_BYTES = 4 << 20  # of a decoded part that is kept
DECODED_BYTES = 64 << 20
MAPPED_BYTES = 4 << 30  # of files whose pages belong to the system


Mark = tuple[int, ...]  # tells one state of a file from others


@dataclass(frozen=True)
class Recent:
    """A part, and the file that it is mapped from, if it is, as that was then."""

    table: pa.Table
    file: str | None = None
    mark: Mark = ()

    def is_whole(self) -> bool:
        """False if the file has been written to, or deleted: its pages may be gone."""
        if self.file is None:
            return True
        try:
            return mark_of(os.stat(self.file)) == self.mark
        except OSError:
            return False


def mark_of(found: os.stat_result) -> Mark:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class RecentParts:
    """Parts by store and path, the least recently used of which go first. For several threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._parts: OrderedDict[tuple[str, str], Recent] = OrderedDict()
        # Kept apart: to ask a mapped part whose file was cut short ends the process.
        self._sizes: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def get(self, store: Store, path: str) -> pa.Table | None:
        key = store.uri, path
        with self._lock:
            found = self._parts.get(key)
            if found is None:
                return None
            if not found.is_whole():
                self._drop(key)
                return None
            self._parts.move_to_end(key)
            return found.table

    def put(self, store: Store, path: str, part: Recent) -> None:
        key = store.uri, path
        with self._lock:
            if key in self._parts:
                self._drop(key)
            self._parts[key] = part
            self._sizes[key] = part.table.nbytes
            self._bytes += self._sizes[key]
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._parts)))

    def _drop(self, key: tuple[str, str]) -> None:
        del self._parts[key]
        self._bytes -= self._sizes.pop(key)

    def clear(self) -> None:
        with self._lock:
            self._parts.clear()
            self._sizes.clear()
            self._bytes = 0


decoded = RecentParts(DECODED_BYTES)
mapped = RecentParts(MAPPED_BYTES)


def recent(store: Store, path: str) -> pa.Table | None:
    """A part that this process has read or written of late."""
    found = decoded.get(store, path)
    return mapped.get(store, path) if found is None else found


def remember(store: Store, path: str, table: pa.Table) -> None:
    """Keep a part that was decoded, or is about to be stored, if it is small."""
    if table.nbytes <= LARGEST_BYTES:
        decoded.put(store, path, Recent(table.combine_chunks()))


def forget() -> None:
    decoded.clear()
    mapped.clear()
