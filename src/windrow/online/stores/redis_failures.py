"""What a Redis server says when it fails, or that it says nothing, as an error of ours."""

from __future__ import annotations

from redis import exceptions as said

from windrow.errors import StorageError, StorageUnavailableError

# Worth another try: the server may be starting again, or its connection was lost.
PASSING = (said.ConnectionError, said.TimeoutError)
# Connections that are not, although redis-py counts them among the others.
_FINAL = (said.AuthenticationError, said.AuthorizationError, said.MaxConnectionsError)

_ANSWERS = [
    (
        "OOM",
        "it is out of memory (maxmemory). Give it more, or remove what is not needed; reads go on",
    ),
    (
        "READONLY",
        "it is a replica, which can only be read. Give the address of its primary",
    ),
    (
        "MISCONF",
        "it cannot write to its disk, and takes nothing until it can. Look into its log, and free "
        "some space",
    ),
    ("NOREPLICAS", "too few of its replicas answer (min-replicas-to-write)"),
    (
        "MOVED",
        "it is part of a cluster. Give the address of a server by itself: what is served together "
        "is read in one step",
    ),
    ("CLUSTERDOWN", "its cluster is down. Give the address of a server by itself"),
    ("NOPERM", "its user may not do this. Allow it in the server's ACL"),
]


def is_passing(error: said.RedisError) -> bool:
    return isinstance(error, PASSING) and not isinstance(error, _FINAL)


def explain(shown: str, what: str, error: said.RedisError) -> StorageError:
    """The error for what failed at a server; `shown` is its address without secrets."""
    place, text = f"{shown}: {what}", str(error).rstrip(".")
    if isinstance(error, said.BusyLoadingError):
        return StorageUnavailableError(
            f"{place}: it is starting, and still reads its data. Try again in a while"
        )
    if isinstance(error, (said.AuthenticationError, said.AuthorizationError)):
        return StorageUnavailableError(
            f"{place}: it does not accept user and password. Check those in the address"
        )
    for word, meaning in _ANSWERS:
        if word in text or word in type(error).__name__.upper():
            return StorageUnavailableError(f"{place}: {meaning}")
    if isinstance(error, said.ReadOnlyError):
        return StorageUnavailableError(f"{place}: {_ANSWERS[1][1]}")
    if isinstance(error, said.OutOfMemoryError):
        return StorageUnavailableError(f"{place}: {_ANSWERS[0][1]}")
    if is_passing(error):
        return StorageUnavailableError(
            f"{place}: it does not answer ({text}). Try again once it does; what was acknowledged "
            "is stored as its settings of persistence promise"
        )
    return StorageError(f"{place}: it says {text!r}")
