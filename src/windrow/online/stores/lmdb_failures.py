"""What LMDB says when it fails, as an error of ours."""

from __future__ import annotations

import errno
import os

import lmdb

from windrow.errors import OptionError, StorageError, StorageUnavailableError, WindrowError
from windrow.online.stores.lmdb_file import DATA, damaged
from windrow.storage.failures import failure

# Pages that are not what they should be. `lmdb.Error` with number 0 is py-lmdb's own.
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.PageFullError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,  # of a transaction that has come upon such a page
)
_NO_SPACE = 1 << 16  # bytes
_BUSY = "already open in this process"


def explain(folder: str, what: str, error: Exception) -> WindrowError:
    """The error for what failed in the store in `folder`."""
    if not isinstance(error, lmdb.Error):
        return failure(folder, what, error)
    path = os.path.join(folder, DATA)
    if isinstance(error, lmdb.BadValsizeError):
        return OptionError(f"{folder}: {what}: keys and names of notes have 1 to 511 bytes")
    if isinstance(error, lmdb.MapFullError):
        return StorageUnavailableError(
            f"{folder}: {what}: the store has taken all of its map_size. Open it with a larger "
            "one, in every process that uses it: it is address space, and may exceed the disk"
        )
    if isinstance(error, lmdb.MapResizedError):
        return StorageUnavailableError(
            f"{folder}: {what}: another process has opened the store with a larger map_size, and "
            "filled it beyond this one's. Open it with the same in every process"
        )
    if isinstance(error, lmdb.ReadersFullError):
        return StorageUnavailableError(
            f"{folder}: {what}: more threads read the store than it has places for. Let fewer "
            "processes or threads use it"
        )
    if isinstance(error, lmdb.NotFoundError):
        return StorageError(
            f"{folder}: {what}: it is not a store, but an LMDB environment of something else. Name "
            "another folder"
        )
    if isinstance(error, _DAMAGE):
        return damaged(path, error.reason or str(error))
    if is_open_elsewhere(error):
        return StorageUnavailableError(
            f"{folder}: {what}: something else in this process has it open, or it was forked while "
            "the store was in use. Open the store in the new process only"
        )
    if isinstance(error, lmdb.MemoryError):
        return StorageUnavailableError(
            f"{folder}: {what}: there is not enough address space for its map_size. Open it with a "
            "smaller one, or allow this process more (ulimit -v)"
        )
    number = error.code
    if number == errno.EIO and _is_full(folder):
        number = errno.ENOSPC
    if number > 0:
        return failure(folder, what, OSError(number, os.strerror(number)))
    return StorageError(f"{folder}: {what}: {error}")


def _is_full(folder: str) -> bool:
    """Whether there is no space left: of a write that ends there LMDB says only that it failed."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _NO_SPACE


def is_open_elsewhere(error: lmdb.Error) -> bool:
    return _BUSY in str(error)
