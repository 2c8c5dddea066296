"""The memory of tasks: what a task frees stays with its process, for what it allocates next.

A task allocates and frees the same large arrays over and over. By default most of what it frees
goes back to the system at once, and every page of it costs a fault to get again: up to a third of
the time of a backfill. So Arrow and NumPy share one heap here, which keeps what is freed.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys

import pyarrow as pa

KEPT_BYTES = 512 << 20  # at the end of the heap; more than that goes back to the system
_LARGEST_BLOCK = 32 << 20  # the most for which glibc may prefer its heap to mapping a block
_frozen = 0  # modules that were loaded at the last look
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees. Without glibc nothing changes: False."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    kept = mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    if kept:
        mallopt(_M_MMAP_MAX, 0)  # nor are larger blocks mapped, such as the bytes of a whole part
        pa.set_memory_pool(pa.system_memory_pool())
    return bool(kept)


def freeze_modules() -> None:
    """Leave what modules hold out of garbage collections.

    Spark collects after each task, and would look at every object of every library again: longer
    than a small task takes.
    """
    global _frozen
    if len(sys.modules) > _frozen:
        _frozen = len(sys.modules)
        gc.collect()
        gc.freeze()
