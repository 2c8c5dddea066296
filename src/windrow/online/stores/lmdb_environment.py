"""An LMDB environment of this process, shared by all its stores of the same folder.

LMDB must not open a file twice in a process, nor use one that was opened before a fork. So there is
one for each file, kept as long as a store uses it, and a fork closes them all before it happens:
parent and child open their own when they next need one. Who is reading meanwhile is told by an
error, finds the environment closed, and repeats the read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from typing import TypeAlias
from weakref import WeakValueDictionary

import lmdb

from windrow.errors import StorageError, StorageUnavailableError
from windrow.online.stores.lmdb_failures import explain, is_open_elsewhere
from windrow.online.stores.lmdb_file import (
    DATA,
    NOTES,
    RECORDS,
    create,
    examine,
    extend,
    reserve_lock,
)
from windrow.storage.private import PrivateFolder

READERS = 2048  # threads of all processes that can read at once
_LOOK_EVERY = 1.0  # seconds after which a file is looked at again: it may have been replaced
_CLOSING = 5.0  # seconds that another thread may take to close what is opened again


Transaction: TypeAlias = "lmdb.Transaction[bytes]"


class Opened:
    """An open environment, and its two databases."""

    def __init__(self, folder: str, env: lmdb.Environment) -> None:
        self.path = os.path.join(folder, DATA)
        self.env = env
        self.records = env.open_db(RECORDS, create=False)
        self.notes = env.open_db(NOTES, create=False)
        self.closed = False
        self.process = os.getpid()
        self.identity = identity(self.path)
        self.look_at = 0.0
        self._page = env.stat()["psize"]

    def reading(self) -> Transaction:
        """A transaction that sees one moment; `abort` it after use, and it is used again."""
        try:
            return self.env.begin(self.records, None, False, False)
        except lmdb.ReadersFullError:
            self.env.reader_check()
            return self.env.begin(self.records, None, False, False)

    def writing(self) -> Transaction:
        """A write transaction, once all others have ended; readers that were killed are gone."""
        self.env.reader_check()
        return self.env.begin(self.records, None, True, False)

    def extend(self) -> None:
        """Make the file as long as it says it is, after a commit."""
        with contextlib.suppress(OSError, lmdb.Error):
            extend(self.path, self._length())

    def _length(self) -> int:
        return self._page * (self.env.info()["last_pgno"] + 1)

    def is_current(self) -> bool:
        """Whether the file is still the one that was opened; looks only once in a while.

        One that was cut short meanwhile is an error, and not touched again.
        """
        if self.closed or self.process != os.getpid():
            return False
        now = time.monotonic()
        if now < self.look_at:
            return True
        self.look_at = now + _LOOK_EVERY
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        if (found.st_dev, found.st_ino) != self.identity:
            return False
        # What is mapped is the first two pages at least, in which it says how long it is.
        try:
            if found.st_size < 2 * self._page or found.st_size < self._length():
                self.look_at = 0.0
                examine(self.path)
        except lmdb.Error:
            return not self.closed  # by a fork, just now
        return True

    def close(self) -> None:
        """At once, whoever uses it; a write transaction is waited for."""
        self.closed = True
        self.env.close()


_opened: WeakValueDictionary[tuple[int, int], Opened] = WeakValueDictionary()
_lock = threading.Lock()


def opened(folder: str, map_size: int) -> Opened:
    """The environment in `folder`, opened, and made if it is not there."""
    with _lock:
        try:
            return _open(folder, map_size)
        except (OSError, lmdb.Error) as error:
            raise explain(folder, "the store cannot be opened", error) from error


def _open(folder: str, map_size: int) -> Opened:
    path = os.path.join(folder, DATA)
    with _alone(folder) as descriptor:
        create(folder, descriptor)
        found = _opened.get(identity(path))
        if found is not None and not found.closed and found.process == os.getpid():
            return found
        examine(path)
        reserve_lock(folder, READERS)
        made = Opened(folder, _environment(folder, map_size))
        made.env.reader_check()
        _opened[made.identity] = made
        return made


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[int]:
    """The folder, open; other processes that open the store wait."""
    with contextlib.ExitStack() as stack:
        try:
            private = stack.enter_context(PrivateFolder.at(folder, "the store"))
        except StorageError as error:  # somebody else's: nothing is wrong with what is stored
            raise StorageUnavailableError(str(error)) from error
        fcntl.flock(private.descriptor, fcntl.LOCK_EX)
        yield private.descriptor


def _environment(folder: str, map_size: int) -> lmdb.Environment:
    give_up = time.monotonic() + _CLOSING
    while True:
        try:
            return lmdb.open(
                folder,
                map_size=map_size,
                create=False,
                mode=0o600,
                max_dbs=2,
                max_readers=READERS,
                max_spare_txns=1,
                lib_version=0,
            )
        except lmdb.Error as error:
            # The last store that used it was dropped, and another thread is closing it right now.
            if not is_open_elsewhere(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.001)


def identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _before_fork() -> None:
    _lock.acquire()
    for environment in list(_opened.values()):
        environment.close()


os.register_at_fork(
    before=_before_fork, after_in_parent=_lock.release, after_in_child=_lock.release
)
