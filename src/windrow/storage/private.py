"""A folder on local disk that only this user can write to, and the files in it.

Temporary folders are shared with others, who may make a folder of any name first, or a link that
leads elsewhere. So a folder is created for its user alone, and one that is there is opened without
following a link and examined: whose it is, and who may write to it. From then on its files are
reached through the open folder, whatever happens to its name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from windrow.errors import StorageError
from windrow.storage.names import new_id


@dataclass(frozen=True)
class PrivateFolder:
    """An open folder. Names are of files right in it."""

    path: str
    descriptor: int

    @staticmethod
    @contextlib.contextmanager
    def at(path: str, what: str) -> Iterator[PrivateFolder]:
        """The folder at `path`, created if it is not there; `what` says in errors what it is for.

        Raises StorageError if it is a link, or someone else's, or others may write to it.
        """
        descriptor = _open(path, what)
        try:
            intruder = _intruder(os.fstat(descriptor))
            if intruder is not None:
                raise StorageError(
                    f"{what}: {path} {intruder}, who could put files there; name another folder, "
                    "or one that is yours alone (mode 700)"
                )
            yield PrivateFolder(path, descriptor)
        finally:
            os.close(descriptor)

    def open(self, name: str) -> int:
        """A descriptor to read a file with; a link, or someone else's file, is not found."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or _intruder(found):
            os.close(descriptor)
            raise FileNotFoundError(name)
        return descriptor

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """A new file to write to, which takes the place of `name` once it is whole."""
        aside = f"{name}.{new_id()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(aside, flags, 0o600, dir_fd=self.descriptor)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
            os.replace(aside, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        finally:
            self.remove(aside)

    def files(self) -> list[tuple[str, os.stat_result]]:
        """The files and what the file system says of them."""
        found = []
        with os.scandir(self.descriptor) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        return found

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(name, dir_fd=self.descriptor)


def is_private(path: str) -> bool:
    """Whether `path` is a private folder, or now has become one."""
    try:
        with PrivateFolder.at(path, "a folder"):
            return True
    except (StorageError, OSError):
        return False


def _open(path: str, what: str) -> int:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(path):
            raise StorageError(
                f"{what}: {path} is a link; name the folder that it leads to"
            ) from error
        raise


def _intruder(found: os.stat_result) -> str | None:
    """Who else may write to a file or folder; None if only this user may."""
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written to by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
