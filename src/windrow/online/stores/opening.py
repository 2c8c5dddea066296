"""Opening a store by its address."""

from __future__ import annotations

import os
import re

from windrow.errors import OptionError
from windrow.online.stores.redis_address import RedisAddress, redacted
from windrow.online.stores.store import RecordStore
from windrow.storage.uris import is_local, place_of

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORMS = (
    "write a folder, lmdb:FOLDER, redis://[user:password@]host[:port][/db], rediss://... (TLS) or "
    "unix:///path/of/the.sock[?db=0]"
)
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_PAGE = 4096


def open_store(
    address: str | os.PathLike[str],
    *,
    namespace: str = "default",
    map_size: int | None = None,
    timeout: float = 5.0,
) -> RecordStore:
    """The store at an address: a folder of this machine (LMDB), or a Redis server.

    `namespace` keeps the projects apart that share a Redis; a folder is one project's alone.
    `map_size` is the most that a folder can hold, in bytes: address space, which costs nothing.
    `timeout` says for how many seconds an operation waits for Redis, connecting again if need be.
    Nothing is opened until it is needed, in each process that has the store.
    """
    text = os.fspath(address)
    if not isinstance(text, str) or not text:
        raise OptionError(f"{address!r} is not an address of a store; {_FORMS}")
    if not _NAMESPACE.fullmatch(namespace):
        raise OptionError(
            f"{namespace!r} is not a namespace; it has 1 to 100 letters, digits, '_', '-' and '.'"
        )
    if not 0 < timeout < 1e6:
        raise OptionError(f"a timeout of {timeout!r} seconds has no meaning; 5 is a good one")
    scheme = _SCHEME.match(text)
    kind = scheme[1].lower() if scheme else "lmdb"
    if kind in ("redis", "rediss", "unix"):
        return _redis(RedisAddress.parse(text), namespace, timeout)
    if kind == "lmdb":
        folder = text[scheme.end() :] if scheme else text
        if folder and not folder.startswith("//") and is_local(folder):
            return _lmdb(place_of(folder), map_size)
    if kind == "file":
        return _lmdb(place_of(text), map_size)
    raise OptionError(f"{redacted(text)!r} is not an address of a store; {_FORMS}")


def _lmdb(folder: str, map_size: int | None) -> RecordStore:
    try:
        from windrow.online.stores.lmdb_store import MAP_SIZE, LmdbStore
    except ModuleNotFoundError as error:
        raise _missing(error, "lmdb", f"a store in a folder ({folder})", "online") from error
    if map_size is not None and not 1 << 20 <= map_size < 1 << 47:
        raise OptionError(f"a map_size of {map_size} bytes; it is from 1 MiB up to 128 TiB")
    # A multiple of the page size, as LMDB wants it.
    return LmdbStore(folder, MAP_SIZE if map_size is None else -(-map_size // _PAGE) * _PAGE)


def _redis(address: RedisAddress, namespace: str, timeout: float) -> RecordStore:
    try:
        from windrow.online.stores.redis_store import RedisStore
    except ModuleNotFoundError as error:
        raise _missing(error, "redis", f"the store {address.shown}", "redis") from error
    return RedisStore(address, namespace, timeout)


def _missing(error: ModuleNotFoundError, module: str, what: str, extra: str) -> Exception:
    if error.name is None or error.name.partition(".")[0] != module:
        return error
    return OptionError(
        f"{what} needs the package {module}, which is not installed: pip install 'windrow[{extra}]'"
    )
