"""A local cache of parts in a form that can be searched without decoding.

Looking up a thousand keys touches nearly every row group of a part, for a handful of updates in
each: in Parquet that costs as much as reading everything. A cached part is an uncompressed Arrow
file, mapped into memory: a binary search over `_prefix` finds the updates, and only they are
touched. Parts never change, so an entry is never stale; the least recently used go first.

An entry is an Arrow file and a trailer, which says whose part it is and what its bytes add up to.
It is believed only if both are right, and is made again from the part if not. Its bytes are added
up once: an attribute of the file says so to other processes, until it is written to, or the machine
is started again. Where files have no attributes, each process adds them up once.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import OptionError
from windrow.shard.part import Part
from windrow.shard.recent import LARGEST_BYTES, Mark, Recent, mapped, mark_of, recent, remember
from windrow.shard.scan import Scan
from windrow.storage.checksum import checksum
from windrow.storage.names import identity
from windrow.storage.private import PrivateFolder, is_private
from windrow.storage.store import Store

_SMALLEST_FILE = 4_096  # updates; decoding fewer is as fast as finding the cached file
_WIDEST = 256  # columns; of wider parts, only those that are wanted are decoded
_ENTRY = re.compile(r"[0-9a-f]{64}\.arrow(\.[0-9a-f]+)?")  # whole, or being written
_TRAILER = struct.Struct("<8s32sQQ")  # magic, the part's identity, bytes before, their checksum
_MAGIC = b"windrow1"
_verified: set[Mark] = set()  # files that were added up, as far as this process knows
_NOTE = "user.windrow.verified"  # an attribute of a file that was added up


@dataclass(frozen=True)
class PartCache:
    """A folder on local disk that holds up to `max_bytes` of parts. Shared by processes.

    It has to be its user's alone. Without a folder, one of that kind is found or made in the
    temporary folder of whichever machine the lookup runs on.
    """

    folder: str | None
    max_bytes: int

    @staticmethod
    def default() -> PartCache | None:
        """From `WINDROW_CACHE` (a folder, or `off`) and `WINDROW_CACHE_BYTES`."""
        folder = os.environ.get("WINDROW_CACHE")
        if folder == "off":
            return None
        size = os.environ.get("WINDROW_CACHE_BYTES", str(8 << 30))
        if not size.isdecimal():
            raise OptionError(f"WINDROW_CACHE_BYTES is {size!r}; it is a number of bytes")
        return PartCache(folder or None, int(size))

    def takes(self, scan: Scan, part: Part) -> bool:
        """Whether it is better to search the part here than to read it."""
        large = part.rows >= _SMALLEST_FILE and part.bytes * 4 <= self.max_bytes
        return large or _is_small(scan, part)

    def holds(self, scan: Scan, part: Part) -> bool:
        """Whether the part seems to be here already; it may be evicted at any time."""
        if recent(scan.store, part.path) is not None:
            return True
        try:
            with self._open() as folder:
                os.close(folder.open(_name(_identity(scan.store, part))))
        except OSError:
            return False
        return True

    def part(
        self, scan: Scan, part: Part, open_file: Callable[[Part], pq.ParquetFile]
    ) -> pa.Table | None:
        """The part with its stored columns, in memory; None if it has to be read directly.

        Small parts are decoded, others memory-mapped. Raises StorageError if the folder was named
        and is open to others.
        """
        known = recent(scan.store, part.path)
        if known is not None:
            return known
        try:
            if _is_small(scan, part):
                found = _whole(scan, part, open_file)
                remember(scan.store, part.path, found)
                return found
            entry = self._entry(scan, part, open_file)
        except (OSError, pa.ArrowInvalid):
            return None  # no space, no permission: the part can be read without a cache
        if entry is None:
            return None
        mapped.put(scan.store, part.path, entry)
        return entry.table

    def _entry(
        self, scan: Scan, part: Part, open_file: Callable[[Part], pq.ParquetFile]
    ) -> Recent | None:
        identity = _identity(scan.store, part)
        name = _name(identity)
        with self._open() as folder:
            found = _load(folder, name, identity)
            if found is None:
                _fill(folder, name, identity, _whole(scan, part, open_file))
                self._evict(folder, keep=name)
                found = _load(folder, name, identity)
            return found

    def _open(self) -> AbstractContextManager[PrivateFolder]:
        path = _temporary_folder() if self.folder is None else os.path.abspath(self.folder)
        return PrivateFolder.at(path, "the cache of parts (WINDROW_CACHE)")

    def _evict(self, folder: PrivateFolder, keep: str) -> None:
        entries = [
            (found.st_atime_ns, found.st_size, name)
            for name, found in folder.files()
            if _ENTRY.fullmatch(name)  # nothing else is ours to delete
        ]
        total = sum(size for _, size, _ in entries)
        for _, size, name in sorted(entries):
            if total <= self.max_bytes:
                return
            if name != keep:
                folder.remove(name)
                total -= size


def _temporary_folder() -> str:
    """A private folder within the temporary one, which this user's other processes find too.

    Its name is easy to guess. If someone else was there first, it gets one that is not.
    """
    parent, name = tempfile.gettempdir(), f"windrow-cache-{os.geteuid()}"
    path = os.path.join(parent, name)
    if is_private(path):
        return path
    for other in sorted(os.listdir(parent)):
        path = os.path.join(parent, other)
        if other.startswith(f"{name}-") and is_private(path):
            return path
    return tempfile.mkdtemp(prefix=f"{name}-", dir=parent)


def _is_small(scan: Scan, part: Part) -> bool:
    """Whether a part is decoded, and kept by this process alone."""
    narrow = len(scan.spec.stored_schema) <= _WIDEST
    return part.rows < _SMALLEST_FILE and part.bytes <= LARGEST_BYTES and narrow


def _identity(store: Store, part: Part) -> bytes:
    """Tells a part from every other: where it is stored, and all that the log says of it."""
    known = [str(getattr(part, field.name)) for field in fields(part) if field.compare]
    return identity(store.uri, *known)


def _name(identity: bytes) -> str:
    return f"{identity.hex()}.arrow"


def _load(folder: PrivateFolder, name: str, identity: bytes) -> Recent | None:
    """The entry, if it is there and whole."""
    try:
        descriptor = folder.open(name)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if found.st_size <= _TRAILER.size:
            return None
        pages = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        # The time of access tells what was used last; the other stays, and with it the file's mark.
        os.utime(descriptor, ns=(time.time_ns(), found.st_mtime_ns))
    finally:
        os.close(descriptor)
    length = found.st_size - _TRAILER.size
    magic, owner, before, expected = _TRAILER.unpack(pages[length:])
    if (magic, owner, before) != (_MAGIC, identity, length):
        return None
    content = pa.py_buffer(pages).slice(0, length)
    mark = mark_of(found)
    if not _is_verified(folder, name, (*mark, expected)):
        if checksum(content) != expected:
            return None
        _note_verified(folder, name, (*mark, expected))
    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    return Recent(table, os.path.join(folder.path, name), mark)


def _is_verified(folder: PrivateFolder, name: str, mark: Mark) -> bool:
    """Whether this process, or another one since the machine was started, has added a file up."""
    if mark not in _verified:
        with suppress(OSError, AttributeError):  # not all systems and disks have attributes
            if os.getxattr(os.path.join(folder.path, name), _NOTE) == _noted(mark):
                _verified.add(mark)
    return mark in _verified


def _note_verified(folder: PrivateFolder, name: str, mark: Mark) -> None:
    _verified.add(mark)
    with suppress(OSError, AttributeError):
        os.setxattr(os.path.join(folder.path, name), _NOTE, _noted(mark))


def _noted(mark: Mark) -> bytes:
    return " ".join([_start(), *map(str, mark)]).encode()


@functools.cache
def _start() -> str:
    """Tells this start of the machine from others: what was written before it may be lost."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _whole(scan: Scan, part: Part, open_file: Callable[[Part], pq.ParquetFile]) -> pa.Table:
    file = open_file(part)
    names = scan.spec.stored_schema.names
    try:
        groups = [
            file.read_row_group(number, columns=names, use_threads=False)
            for number in range(file.metadata.num_row_groups)
        ]
    finally:
        file.close(force=True)
    return pa.concat_tables(groups).combine_chunks()


def _fill(folder: PrivateFolder, name: str, identity: bytes, table: pa.Table) -> None:
    with folder.replacing(name) as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        length = file.tell()
        with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as written:
            found = checksum(written)
        file.write(_TRAILER.pack(_MAGIC, identity, length, found))
