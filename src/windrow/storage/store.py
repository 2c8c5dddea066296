"""Where files are stored: a local folder or an object store, behind one set of calls.

A file that is put is there entirely or not at all, and once it is there everyone sees it, in
listings too: so it is on file systems (a file is renamed into place) and on object stores (a put
is atomic, and S3 and its like are strongly consistent). Leases and holds depend on that.

Storage options are those of delta-rs (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...), so that the
log and the parts are reached with one set of names; what is not given comes from the environment.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow.fs as pafs

from windrow.errors import OptionError, StorageError
from windrow.storage.failures import explained
from windrow.storage.names import new_id, written
from windrow.storage.uris import for_delta, is_local, place_of
from windrow.time import parse_length

_REQUESTS = 16  # to an object store at a time
# As `put` names a file that it will move into place, and as delta-rs does.
_HALF_WRITTEN = re.compile(r"\..+-[0-9a-f]{16}|.+#\d+")


@dataclass(frozen=True)
class Store:
    """A root URI and how to reach it. Picklable: tasks open their own file systems from it."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # they hold secrets
    shown: str = field(default="", repr=False, compare=False)  # the URI as the user wrote it

    @staticmethod
    def at(uri: str | Path, options: Mapping[str, str] | None = None) -> Store:
        return Store(place_of(uri), _checked(options), written(os.fspath(uri)))

    def beneath(self, name: str) -> Store:
        """The store of a folder in this one."""
        return Store(f"{self.uri}/{name}", self.options, f"{self.shown.rstrip('/')}/{name}")

    @staticmethod
    def of_file(path: str, options: Mapping[str, str] | None = None) -> tuple[Store, str]:
        """The store of the folder that holds the file at a URI or path, and its name there."""
        folder, _, name = place_of(path).rpartition("/")
        return Store.at(folder or "/", options), name

    @property
    def is_local(self) -> bool:
        return is_local(self.uri)

    @property
    def delta_uri(self) -> str:
        """The root as delta-rs takes it; OptionError if no Delta table can be kept here."""
        return for_delta(self.uri)

    @property
    def options_dict(self) -> dict[str, str] | None:
        return dict(self.options) or None

    @contextmanager
    def creating(self) -> Iterator[None]:
        """A block that creates the root. If it fails, the empty folders that it made go again."""
        made = []
        path = f"{self.uri}/_delta_log"
        while self.is_local and not os.path.lexists(path):
            made.append(path)
            path = os.path.dirname(path)
        try:
            yield
        except BaseException:
            for folder in made:
                with suppress(OSError):  # not empty: another creator was first
                    os.rmdir(folder)
            raise

    def open_input(self, name: str) -> Any:
        system, root = _file_system(self)
        path = f"{root}/{name}"
        try:
            with explained(f"{self.uri}/{name}", "read"):
                return system.open_input_file(path)
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise StorageError(
                f"{self.uri}: part {name} is gone. It was probably compacted and vacuumed while "
                "this read was running: read again, or vacuum with a longer retention"
            ) from error

    def open_output(self, name: str) -> Any:
        """A new file to write to. What fails later, while it is written, is for `write` to say."""
        system, root = _file_system(self)
        with explained(f"{self.uri}/{name}", "write"):
            if self.is_local:
                os.makedirs(root, exist_ok=True)
            return system.open_output_stream(f"{root}/{name}")

    def write(self, name: str, pieces: Iterable[Any]) -> None:
        """Write a new file from buffers. If that fails, nothing is left of it."""
        try:
            with explained(f"{self.uri}/{name}", "write"), self.open_output(name) as out:
                for piece in pieces:
                    out.write(piece)
        except BaseException:
            self.discard([name])
            raise

    def put(self, name: str, data: bytes) -> None:
        """Write a small file, or replace it: entirely or not at all."""
        with explained(f"{self.uri}/{name}", "write"):
            if not self.is_local:
                with self.open_output(name) as out:
                    out.write(data)
                return
            path = Path(self.uri, name)
            temporary = path.with_name(f".{path.name}-{new_id()}")
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(data)
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):  # what is told is why it could not be written
                    temporary.unlink(missing_ok=True)
                raise

    def get(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        system, root = _file_system(self)
        with explained(f"{self.uri}/{name}", "read"):
            try:
                with system.open_input_file(f"{root}/{name}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int:
        return int(self._info(name).size)

    def modified(self, name: str) -> int:
        """When a file was written, in milliseconds, by the clock of the store."""
        return int(self._info(name).mtime_ns) // 1_000_000

    def stamp(self, name: str) -> str:
        """Changes whenever the file is rewritten: its size and its time."""
        found = self._info(name)
        return f"{found.size} {found.mtime_ns}"

    def stamps(self) -> dict[str, str]:
        """The stamps of all files beneath the root, by name; if it is a file, its own, by ""."""
        own = self._info()
        if own.type == pafs.FileType.File:
            return {"": f"{own.size} {own.mtime_ns}"}
        root, listed = self._list(recursive=True)
        files = (i for i in listed if i.type == pafs.FileType.File)
        return {i.path[len(root) + 1 :]: f"{i.size} {i.mtime_ns}" for i in files}

    def exists(self, name: str) -> bool:
        return bool(self._info(name).type != pafs.FileType.NotFound)

    def is_there(self) -> bool:
        """Whether the root is a file, or a folder, or has keys beneath it."""
        return bool(self._info().type != pafs.FileType.NotFound)

    def is_file(self) -> bool:
        """Whether the root is one file, and not a folder."""
        return bool(self._info().type == pafs.FileType.File)

    def _info(self, name: str | None = None) -> Any:
        """What the store says of a file, or of the root."""
        system, root = _file_system(self)
        inner = "" if name is None else f"/{name}"
        with explained(f"{self.uri}{inner}", "look at"):
            return system.get_file_info(f"{root}{inner}")

    def names(self) -> list[str]:
        """All files beneath the root, relative to it; not the log's, nor those half written."""
        root, listed = self._list(recursive=True)
        found = (i for i in listed if i.type == pafs.FileType.File)
        names = (i.path[len(root) + 1 :] for i in found if not i.base_name.startswith("."))
        return sorted(name for name in names if not name.startswith("_"))

    def folders(self) -> list[str]:
        """Names of the folders right beneath the root."""
        _, listed = self._list(recursive=False)
        return sorted(i.base_name for i in listed if i.type == pafs.FileType.Directory)

    def _list(self, recursive: bool) -> tuple[str, list[Any]]:
        """The root's path, and all that is beneath it."""
        system, root = _file_system(self)
        selector = pafs.FileSelector(root, recursive=recursive, allow_not_found=True)
        with explained(self.uri, "list"):
            return root, system.get_file_info(selector)

    def remove(self) -> None:
        """Delete everything beneath the root."""
        system, root = _file_system(self)
        with explained(self.uri, "delete"):
            if system.get_file_info(root).type == pafs.FileType.Directory:
                with suppress(FileNotFoundError):  # someone else removes it, too
                    system.delete_dir(root)

    def discard(self, names: Sequence[str]) -> None:
        """Delete files of something that failed, if possible: that failure is what counts."""
        with suppress(StorageError):
            self.delete(names)

    def drop_half_written(self, seconds: float = 3600.0) -> None:
        """Delete what processes that were killed had begun to put here, longer ago than this."""
        if not self.is_local:
            return  # an object store shows nothing that is not whole
        for folder, _, names in os.walk(self.uri):
            for name in filter(_HALF_WRITTEN.fullmatch, names):
                path = os.path.join(folder, name)
                with suppress(OSError):  # another one deletes it, or it may not be deleted
                    if time.time() - os.stat(path).st_mtime >= seconds:
                        os.remove(path)

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; those that are gone already are passed over."""
        system, root = _file_system(self)

        def delete_one(name: str) -> None:
            with explained(f"{self.uri}/{name}", "delete"), suppress(FileNotFoundError):
                system.delete_file(f"{root}/{name}")

        if self.is_local or len(names) < 2:
            for name in names:
                delete_one(name)
        else:
            with ThreadPoolExecutor(_REQUESTS) as pool:
                list(pool.map(delete_one, names))


def _checked(options: Any) -> tuple[tuple[str, str], ...]:
    """Storage options, sorted. Errors do not show values: they may be secrets."""
    if options is None:
        return ()
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise OptionError(f"storage_options is a {kind}; give a dict of names and texts")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            kind = type(value).__name__
            raise OptionError(f"storage_options: {name!r} is a {kind}; names and values are texts")
    return tuple(sorted(options.items()))


@functools.lru_cache(maxsize=64)
def _file_system(store: Store) -> tuple[Any, str]:
    """The Arrow file system of `store` and the root's path in it."""
    if store.is_local:
        return pafs.LocalFileSystem(), store.uri
    scheme, rest = store.uri.split("://", 1)
    if scheme in ("s3", "s3a"):
        return _s3(dict(store.options)), rest
    try:
        system, path = pafs.FileSystem.from_uri(store.uri)
    except Exception as error:
        raise OptionError(
            f"{store.uri}: cannot open this kind of store ({error}); use a folder or s3://"
        ) from error
    return system, path


def _s3(options: dict[str, str]) -> Any:
    given = {name.upper(): value for name, value in options.items()}

    def option(*names: str) -> str | None:
        for name in names:
            value = given.get(name) or given.get(f"AWS_{name}") or os.environ.get(f"AWS_{name}")
            if value:
                return value
        return None

    arguments: dict[str, Any] = {
        "access_key": option("ACCESS_KEY_ID"),
        "secret_key": option("SECRET_ACCESS_KEY"),
        "session_token": option("SESSION_TOKEN"),
        "region": option("REGION", "DEFAULT_REGION"),
        "anonymous": (option("SKIP_SIGNATURE") or "").lower() in ("1", "true"),
    }
    retries = option("MAX_RETRIES") or ""
    if retries.isdecimal():
        arguments["retry_strategy"] = pafs.AwsStandardS3RetryStrategy(int(retries) + 1)
    timeout = option("TIMEOUT")
    if timeout:
        arguments["request_timeout"] = parse_length(timeout, "storage_options: timeout") / 1000
    endpoint = option("ENDPOINT_URL", "ENDPOINT")
    if endpoint:
        parsed = urlparse(endpoint if "://" in endpoint else f"https://{endpoint}")
        arguments |= {"endpoint_override": parsed.netloc, "scheme": parsed.scheme}
    return pafs.S3FileSystem(**{k: v for k, v in arguments.items() if v})
