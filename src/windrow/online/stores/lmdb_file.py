"""The files of an LMDB environment: made whole or not at all, and examined before they are mapped.

LMDB maps its files into memory. Whoever touches a mapped page that the file does not reach is
ended by SIGBUS: of a data file that was cut short, or of a lock file on a disk without space. So
both are looked at with ordinary reads and writes, which fail with an error, before LMDB opens them.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass

import lmdb
from lmdb.verify import VerifyError, verify

from windrow.errors import StorageError

DATA, LOCK = "data.mdb", "lock.mdb"
RECORDS, NOTES = b"records", b"notes"
_ASIDE = "new"
_READER = 64  # bytes of a slot in the lock file
# The two first pages: number, flags, magic, version, page size, last page, transaction.
_META = struct.Struct("=Q2xH4xII16xI92xQQ")
_MAGIC, _VERSION, _IS_META = 0xBEEFC0DE, 1, 0x08
_MOST_TRIES = 20


def create(folder: str, descriptor: int) -> None:
    """An empty data file, if there is none; the caller is alone in `folder`, open as `descriptor`.

    It is made aside and gets its name when it is whole, so that a process that dies, or a disk
    without space, leaves nothing that could be mistaken for it. A lock file that is left of an
    earlier one goes with it: its transactions are not those of the new one.
    """
    if os.path.lexists(os.path.join(folder, DATA)):
        return
    aside = os.path.join(folder, _ASIDE)
    shutil.rmtree(aside, ignore_errors=True)
    os.mkdir(aside, 0o700)
    try:
        # Without a lock file: it would be mapped, and nobody else is here.
        with lmdb.open(
            aside, map_size=1 << 20, max_dbs=2, mode=0o600, lock=False, lib_version=0
        ) as made:
            for name in (RECORDS, NOTES):
                made.open_db(name)
        if os.path.lexists(os.path.join(folder, LOCK)):
            os.remove(os.path.join(folder, LOCK))
        os.rename(os.path.join(aside, DATA), os.path.join(folder, DATA))
        os.fsync(descriptor)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def reserve_lock(folder: str, readers: int) -> None:
    """Space on the disk for the lock file; while this process has no environment open there.

    Nor may it ever be open twice: closing one would release the locks of the other.
    """
    size = _READER * (readers + 8)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(os.path.join(folder, LOCK), flags, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def extend(path: str, size: int) -> None:
    """Make a file reach so far, if it does not; never shorter, whoever else is writing to it."""
    if os.stat(path).st_size >= size:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, size - 1, 1)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Meta:
    """What the file says of itself, as of its newest transaction."""

    page: int
    pages: int
    transaction: int


def examine(path: str) -> None:
    """Raise StorageError if the data file is not whole.

    A transaction may end with pages that it took and gave back, and never wrote: then a sound file
    is shorter than it says. `extend` follows each commit, so that this is rare; where it is so, the
    whole file is read, page by page, to see whether any of those that are missing is in use.
    """
    for _ in range(_MOST_TRIES):
        meta = _newest(path)
        size = meta.page * meta.pages
        if os.stat(path).st_size >= size:
            return
        try:
            found = list(verify(path, subdir=False))  # type: ignore[no-untyped-call]
        except VerifyError as error:
            found = [str(error)]
        # Pages are used again from the second transaction after this one.
        if _newest(path).transaction > meta.transaction + 1:
            continue
        if found:
            raise damaged(path, f"it ends before its last page ({found[0]})")
        extend(path, size)
        return


def _newest(path: str) -> _Meta:
    """The newer of the two first pages; they are written in turn, perhaps right now."""
    for left in range(_MOST_TRIES, 0, -1):
        with open(path, "rb") as file:
            first = _meta(file.read(_META.size), 0)
            if first is not None:
                file.seek(first.page)
                second = _meta(file.read(_META.size), 1)
                if second is not None and second.page == first.page:
                    return max(first, second, key=lambda meta: meta.transaction)
            if left == 1:
                what = (
                    "is empty"
                    if not os.fstat(file.fileno()).st_size
                    else "is no data file of LMDB, or its first pages are damaged"
                )
                raise damaged(path, f"it {what}")
    raise AssertionError


def _meta(content: bytes, number: int) -> _Meta | None:
    if len(content) < _META.size:
        return None
    found, flags, magic, version, page, last, transaction = _META.unpack(content)
    if (found, magic, version) != (number, _MAGIC, _VERSION) or not flags & _IS_META:
        return None
    if not 256 <= page <= 65536 or page & (page - 1) or last >= 1 << 48:
        return None
    return _Meta(page, last + 1, transaction)


def damaged(path: str, what: str) -> StorageError:
    return StorageError(
        f"{path} is damaged: {what}. Move its folder away and upload again (windrow upload): "
        "all of it is made from tables and shards. Or put a copy of the folder in its place"
    )
