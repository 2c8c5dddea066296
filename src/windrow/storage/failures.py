"""What a file system or an object store says when it fails, as an error of ours.

Arrow raises OSError, with a number on a file system and with a text alone for an object store;
delta-rs raises classes of its own, whose text holds the number. Here is the one place that
reads them: it says which file it is about, what happened, and what to do.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.errors import StorageError, StorageUnavailableError
from windrow.storage.uris import is_local

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_LOST = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.EPIPE,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.ESTALE,
}
_NUMBER = re.compile(r"(?:\bos error |\berrno |\bOs { code: )(\d+)")
_NO_ANSWER = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN|curlCode|timed out|"
    r"error sending request|error decoding response body|connection (?:closed|reset|refused)|"
    r"dns error|(?:status|HTTP)\D{0,20}50[0234]",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|"
    r"SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|(?:status|HTTP)\D{0,20}40[13]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def explained(place: str, doing: str) -> Iterator[None]:
    """A block that is `doing` something (write, read, delete, list) at `place`."""
    try:
        yield
    except OSError as error:
        raise failure(place, f"cannot {doing} it", error) from error


def failure(place: str, what: str, error: BaseException) -> StorageError:
    """The error for what failed at `place`, a file or the root of many.

    >>> print(failure("/data/s", "the commit failed", OSError(28, "No space left on device")))
    /data/s: the commit failed: the disk is full (No space left on device). Free some space and \
try again; of a shard, vacuum deletes what no reader needs, and takes no space itself
    """
    number, said = _number(error), plain(error)
    if number in _FULL:
        return StorageUnavailableError(
            f"{place}: {what}: the disk is full ({os.strerror(number)}). Free some space and try "
            "again; of a shard, vacuum deletes what no reader needs, and takes no space itself"
        )
    if number == errno.EROFS:
        return StorageUnavailableError(
            f"{place}: {what}: the file system is read-only. Mount it for writing, or choose "
            "another place"
        )
    if number in _FORBIDDEN:
        return StorageUnavailableError(f"{place}: {what}: {os.strerror(number)}. {_rights(place)}")
    if number == errno.ENAMETOOLONG:
        return StorageError(f"{place}: {what}: the name is too long for the file system")
    if number in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return StorageError(
            f"{place}: {what}: {os.strerror(number)}. Something else is in its place: move that "
            "away, or choose another place"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return StorageUnavailableError(
            f"{place}: {what}: {os.strerror(number)}. Allow this process more (ulimit -n)"
        )
    if not is_local(place) and _REFUSED.search(said):
        return StorageUnavailableError(
            f"{place}: {what}: the store refuses it ({said}). Check the credentials in "
            "storage_options or the environment, and what they allow"
        )
    if number in _LOST or (not is_local(place) and _NO_ANSWER.search(said)):
        return StorageUnavailableError(
            f"{place}: {what}: the store does not answer ({said}). Try again once it does: what "
            "was acknowledged is stored, and an append that is repeated is not doubled"
        )
    return StorageError(f"{place}: {what}: {said}")


def unavailable(place: str, error: Exception | str) -> StorageUnavailableError | None:
    """The error for a file that could not be read now; None if the file itself is at fault.

    A file behind a lost connection is not damaged: nobody is to restore it from a copy.
    """
    if not isinstance(error, OSError):
        return None
    found = failure(place, "cannot read it", error)
    return found if isinstance(found, StorageUnavailableError) else None


def plain(error: BaseException) -> str:
    """What an error says, on one line: delta-rs writes trees, in colours."""
    lines = _COLOUR.sub("", str(error)).replace("↳", " ").split()
    return " ".join(lines).rstrip(".") or type(error).__name__


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _NUMBER.search(str(error))
    return None if found is None else int(found[1])


def _rights(place: str) -> str:
    """Who asks, and whose the folder is."""
    user = _user(os.geteuid())
    if not is_local(place):
        return f"This process runs as {user}"
    path = place
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.stat(path)
    except OSError:
        return f"This process runs as {user}, who has no right to look there"
    return (
        f"This process runs as {user}; {path} belongs to {_user(found.st_uid)}, with mode "
        f"{found.st_mode & 0o7777:o}. Run it as a user who may, or change the owner or the mode"
    )


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"
