"""A local cache of parts in a form that can be searched without decoding.

Looking up a thousand keys touches nearly every row group of a part, for a handful of updates in
each: in Parquet that costs as much as reading everything. A cached part is an uncompressed Arrow
file, mapped into memory: a binary search over `_prefix` finds the updates, and only they are
touched. Parts never change, so an entry is never stale; the least recently used go first.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from windrow.shard.part import Part
from windrow.shard.scan import Scan, open_part
from windrow.storage.names import new_id

_SMALLEST_PART = 4_096  # updates; decoding fewer is as fast as finding the cached file


@dataclass(frozen=True)
class PartCache:
    """A folder on local disk that holds up to `max_bytes` of parts. Shared by processes."""

    folder: str
    max_bytes: int

    @staticmethod
    def default() -> PartCache | None:
        """From `WINDROW_CACHE` (a folder, or `off`) and `WINDROW_CACHE_BYTES`."""
        folder = os.environ.get("WINDROW_CACHE")
        if folder == "off":
            return None
        if folder is None:
            folder = os.path.join(tempfile.gettempdir(), f"windrow-cache-{os.getuid()}")
        return PartCache(folder, int(os.environ.get("WINDROW_CACHE_BYTES", 8 << 30)))

    def part(self, scan: Scan, part: Part) -> pa.Table | None:
        """The part with its stored columns, memory-mapped; None if it is better read directly."""
        if part.rows < _SMALLEST_PART or part.bytes * 4 > self.max_bytes:
            return None
        path = Path(self.folder) / (part.path.removesuffix(".parquet") + ".arrow")
        try:
            return self._open(path)
        except (OSError, pa.ArrowInvalid):
            pass  # not there, or not whole
        try:
            self._fill(path, scan, part)
            return self._open(path)
        except (OSError, pa.ArrowInvalid):
            return None  # no space, no permission: the part can be read without a cache

    def _open(self, path: Path) -> pa.Table:
        with pa.memory_map(os.fspath(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        with contextlib.suppress(OSError):
            os.utime(path)
        return table

    def _fill(self, path: Path, scan: Scan, part: Part) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with open_part(scan.store, part) as file:
            names = scan.spec.stored_schema.names
            table = file.read(columns=names, use_threads=False).combine_chunks()
        # Written aside and renamed, so that no one sees half an entry.
        temporary = path.with_suffix(f".{new_id()}")
        try:
            with (
                pa.OSFile(os.fspath(temporary), "wb") as sink,
                pa.ipc.new_file(sink, table.schema) as writer,
            ):
                writer.write_table(table)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
        self._evict(keep=path)

    def _evict(self, keep: Path) -> None:
        entries = []
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                entries.append((found.st_mtime, found.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.max_bytes:
                return
            if path != os.fspath(keep):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
                total -= size
