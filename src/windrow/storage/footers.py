"""Footers of Parquet files that others wrote: damage in one is an error that names the file.

A file has no checksum of its footer, and Arrow ends the whole process for some that are damaged. So
a process of its own parses each footer first; if that one survives, so do we. It is started when
the first file is looked at, and stays for those that follow.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import StorageError
from windrow.storage.failures import unavailable

_PROGRAM = Path(__file__).with_name("footer_probe.py")
_MAGIC = b"PAR1"
LENGTH_BYTES = 8  # at the end of a file: the length of the footer, and the magic
_TAIL_BYTES = 1 << 16


def check_footer(file: Any, name: str) -> None:
    """Raise StorageError unless the footer of the open Parquet `file` can be read.

    `file` is an Arrow file; it is not closed. `name` is what the error calls it.
    """
    footer = _read_footer(file, name)
    wrong = _probe.wrong_with(footer)
    if wrong is None:
        wrong = "its footer is so damaged that reading it ends the process"
    if wrong:
        raise StorageError(unreadable_text(name, wrong))


def check_file(file: Any, name: str) -> None:
    """Raise StorageError unless all of the open Parquet `file` can be decoded.

    Pages are compared with their checksums, if they have some.
    """
    check_footer(file, name)
    try:
        for _ in pq.ParquetFile(file, page_checksum_verification=True).iter_batches():
            pass
    except (pa.ArrowException, OSError) as error:
        said = StorageError(unreadable_text(name, str(error)))
        raise unavailable(name, error) or said from error


def footer_bytes(end: Any) -> int:
    """The length of a footer with what stands after it, from the `end` of a Parquet file."""
    length = bytes(memoryview(end)[-LENGTH_BYTES : -len(_MAGIC)])
    return int.from_bytes(length, "little") + LENGTH_BYTES


def unreadable_text(name: str, reason: str) -> str:
    first = next(iter(reason.strip().splitlines()), "")
    return f"{name} cannot be read: {first}. Replace the file, or take it out of the folder"


def start() -> None:
    """Start the process, if it does not run, and do not wait for it: a file will be looked at."""
    _probe.start()


def _read_footer(file: Any, name: str) -> bytes:
    """The end of the file from the footer on."""
    size = file.size()
    tail = file.read_at(min(size, _TAIL_BYTES), max(size - _TAIL_BYTES, 0))
    if len(tail) < 12 or tail[-4:] != _MAGIC:
        raise StorageError(unreadable_text(name, "it does not end as a Parquet file does"))
    length = footer_bytes(tail)
    if length > size - len(_MAGIC):
        raise StorageError(unreadable_text(name, "its footer is longer than the file"))
    if length > len(tail):
        return bytes(file.read_at(length, size - length))
    return bytes(tail[-length:])


class _Probe:
    """The process that parses footers. For use by several threads, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        with self._lock:
            self._running()

    def wrong_with(self, footer: bytes) -> str | None:
        """What is wrong; None if the process did not survive it."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(len(footer).to_bytes(8, "little") + footer)
                process.stdin.flush()
                head = process.stdout.read(8)
                if len(head) == 8:
                    return process.stdout.read(int.from_bytes(head, "little")).decode()
            except BrokenPipeError:
                pass
            self._end()
            return None

    def _running(self) -> subprocess.Popen[bytes]:
        """A process of our own: one that forked us is not to be shared with its other children."""
        if self._process is not None and self._owner != os.getpid():
            self._process = None
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.wait()

    def close(self) -> None:
        with self._lock:
            self._end()


_probe = _Probe()
atexit.register(_probe.close)
