"""Memory that the machine really has, before something is measured.

A virtual machine may hand free memory back to its host and get it again page by page, at 10 to
100 microseconds each: a thousand times what a page costs that is still there. Then a run is as slow
as the memory it is the first to touch, and a system that is measured second finds the pages of the
first. Pages of the page cache are not handed back, so free memory is filled with them: with the
zeros of a file that has only a length. They make way for whatever needs memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

LEFT_FREE = 256 << 20  # what the system itself keeps free, more or less
STEP = 8 << 20
_kept: list[IO[bytes]] = []  # pages of a file go when it is closed


def fill_free_memory() -> None:
    """Fill what is free with pages of the page cache; where that cannot be known, do nothing."""
    size = _free() - LEFT_FREE
    if size <= 0:
        return
    file = tempfile.TemporaryFile()  # noqa: SIM115
    _kept.append(file)
    os.truncate(file.fileno(), size)
    buffer = [bytearray(STEP)]
    for start in range(0, size, STEP):
        os.preadv(file.fileno(), buffer, start)


def _free() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:"))
