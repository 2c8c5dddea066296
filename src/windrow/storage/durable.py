"""Files that outlive a power failure: on disk before anyone relies on them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from windrow.storage.failures import explained
from windrow.storage.store import Store

_THREADS = 8


def sync(files: Iterable[tuple[Store, str]]) -> None:
    """Return once files (or folders), and their names, are on disk.

    All at once: the system then writes what they all wait for together, which takes hardly longer
    than one of them. An object store has no need of it.
    """
    paths = [os.path.join(store.uri, name) for store, name in files if store.is_local]
    wanted = [*paths, *sorted(set(map(os.path.dirname, paths)))]
    if len(paths) <= 1:
        for path in wanted:
            _sync(path)
    else:
        list(_pool().map(_sync, wanted))


def _sync(path: str) -> None:
    with explained(path, "write"):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "sync")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay with the parent
