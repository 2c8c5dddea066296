"""Files that are created once: of several processes that write the same one, one succeeds.

On a file system a file is written under another name and then linked to its own, which fails if
that is taken. Object stores have no such call for us, so there it is checked and put under a claim
(see `leases`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from windrow.errors import CommitConflictError
from windrow.storage.claiming import try_claim
from windrow.storage.failures import explained
from windrow.storage.names import new_id
from windrow.storage.store import Store

LEASES = "leases"  # the folder of claims, beside the file
_PATIENCE = 60.0  # seconds to wait for another process that puts the same file
_PAUSE = 0.05


def put_new(store: Store, name: str, data: bytes) -> bool:
    """Write a small file, entirely or not at all; False if it is there already.

    >>> import tempfile
    >>> store = Store.at(tempfile.mkdtemp())
    >>> put_new(store, "a.json", b"1"), put_new(store, "a.json", b"2"), store.get("a.json")
    (True, False, b'1')

    When this returns, a local file is on disk: it outlives a power failure.
    """
    return _link(store, name, data) if store.is_local else _put_claimed(store, name, data)


def _link(store: Store, name: str, data: bytes) -> bool:
    path = Path(store.uri, name)
    temporary = path.with_name(f".{path.name}-{new_id()}")
    with explained(f"{store.uri}/{name}", "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        finally:
            with suppress(OSError):  # what is told is why it could not be written
                temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    return True


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _put_claimed(store: Store, name: str, data: bytes) -> bool:
    until = time.monotonic() + _PATIENCE
    while not store.exists(name):
        began = time.monotonic()
        lease = try_claim(store.beneath(LEASES), name)
        if lease is None:
            if began > until:
                raise CommitConflictError(
                    f"{store.uri}/{name}: another process has been about to write it for "
                    f"{_PATIENCE:.0f} s; nothing was written. Try again, or end that process"
                )
            time.sleep(_PAUSE)
            continue
        try:
            if store.exists(name):
                return False
            if time.monotonic() - began < lease.seconds / 2:  # else it may be lost by now
                store.put(name, data)
                return True
        finally:
            lease.release()
    return False
