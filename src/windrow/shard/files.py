"""Opening the files of parts; a file that cannot be read is named."""

from __future__ import annotations

import functools
import resource
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import StorageError
from windrow.shard.part import Part
from windrow.shard.sums import CheckedFile
from windrow.storage.failures import unavailable
from windrow.storage.store import Store

_SPARE_FILES = 512


def allow_open_files(count: int) -> None:
    """Raise this process's limit on open files, as far as it may, for a merge of many runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def open_part(store: Store, part: Part) -> pq.ParquetFile:
    """The part's Parquet file, to be closed with `force`: else its handle stays open."""
    try:
        source = store.open_input(part.path)
    except OSError as error:
        raise unreadable(store, part, error) from error
    return parquet_file(store, part, source, pre_buffer=not store.is_local)


def parquet_file(store: Store, part: Part, source: Any, **options: Any) -> pq.ParquetFile:
    """The Parquet file in an open `source`, which has to be what the log says of the part."""
    try:
        file = pq.ParquetFile(checked(store, part, source), **options)
    except BaseException as error:
        source.close()
        if isinstance(error, (pa.ArrowInvalid, OSError)):
            raise unreadable(store, part, error) from error
        raise
    try:
        check_rows(store, part, file.metadata)
    except BaseException:
        file.close(force=True)
        raise
    return file


def checked(store: Store, part: Part, source: Any) -> Any:
    """The file in `source`, whose bytes are compared with the part's checksums when read."""
    if part.name.tail is None:
        return source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, "r")
    fail = functools.partial(unreadable, store, part)
    return pa.PythonFile(CheckedFile(source, part.bytes, part.name.tail, fail), "r")


def check_rows(store: Store, part: Part, metadata: Any) -> None:
    if metadata.num_rows != part.rows:
        found = f"it has {metadata.num_rows} updates, and the log says {part.rows}"
        raise unreadable(store, part, found)


def unreadable(store: Store, part: Part, error: Exception | str) -> StorageError:
    """The error for a part: of its store, if that could not be reached, else of its file."""
    return unavailable(f"{store.uri}/{part.path}", error) or StorageError(
        f"{store.uri}: part {part.path} cannot be read: {error}. Restore the file from a copy, or "
        "restore the shard's folder to an earlier state"
    )
