"""Keeping a serving log small: files of the past are merged, and old ones removed.

Every worker adds a file to a table every few seconds. Once an hour those of past hours are merged,
those of past days into fewer still; and files whose rows were all logged longer ago than the log is
kept are removed. What left a table stays on disk for a day, for those who are reading it.

Several processes may do it at once: of two that merge the same files one commits, the other leaves
nothing behind.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from windrow.errors import WindrowError
from windrow.online.log.interpreter import start
from windrow.online.log.places import all_tables
from windrow.priority import give_way
from windrow.storage.delta import is_failure, open_table
from windrow.storage.encoding import encoding
from windrow.storage.failures import failure
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.time import DAY, HOUR, now_millis

LARGE = 64 << 20  # bytes of a file that is not merged any more
_GROUP_ROWS = 65_536  # rows that are copied together
_TRIES = 5  # of a commit that others get in the way of; there is a next hour
_READERS = 24  # hours for those who read what was merged or removed


@dataclass(frozen=True)
class LogFile:
    """A file of a table; `modified` is when its last row was written, in milliseconds."""

    path: str
    bytes: int
    modified: int
    rows: int


def tend(root: Store, keep: int | None, now: int) -> None:
    """Merge the files of all tables of a project's serving log, and remove those of rows that were
    logged more than `keep` milliseconds ago (None: never)."""
    for store in all_tables(root):
        _tend_table(store, keep, now)


def start_tending(root: Store, keep: int | None) -> subprocess.Popen[bytes]:
    """The same, in a process of its own, which lets others go first."""
    process = start("windrow.online.log.upkeep", stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process.stdin as pipe:
        pickle.dump((root, keep), pipe)
    return process


def run() -> None:
    """The process."""
    give_way()
    root, keep = pickle.load(sys.stdin.buffer)
    try:
        tend(root, keep, now_millis())
    except WindrowError as error:
        print(f"windrow: {error}", file=sys.stderr)


def _tend_table(store: Store, keep: int | None, now: int) -> None:
    try:
        table = open_table(store)
        if table is None:
            return
        files = log_files(table)
        old = [file for file in files if keep is not None and file.modified < now - keep]
        changed = bool(old) and _commit(table, old, None, now)
        for some in to_merge([file for file in files if file not in old], now):
            changed |= _merge(store, table, some, now)
        if changed or now % DAY < HOUR:
            table.vacuum(retention_hours=_READERS, dry_run=False, enforce_retention_duration=False)
    except WindrowError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise failure(store.uri, "the serving log cannot be merged", error) from error


def log_files(table: DeltaTable) -> list[LogFile]:
    """The files of a table, the oldest first."""
    found = pa.table(table.get_add_actions(flatten=True))
    columns = [found[name].to_pylist() for name in ("path", "size_bytes", "num_records")]
    times = found["modification_time"].cast(pa.int64()).to_pylist()
    files = [LogFile(*row) for row in zip(*columns[:2], times, columns[2], strict=True)]
    return sorted(files, key=lambda file: (file.modified, file.path))


def to_merge(files: Sequence[LogFile], now: int) -> Iterator[list[LogFile]]:
    """Which files become one each: small ones of one hour, or of one day that is over.

    None of the last hour: their commits may still be under way.
    """
    places: dict[tuple[int, int], list[LogFile]] = {}
    for file in files:
        if file.bytes >= LARGE or file.modified >= now - HOUR:
            continue
        day, hour = file.modified // DAY, file.modified // HOUR
        place = (day, hour) if day == (now - HOUR) // DAY else (day, -1)
        places.setdefault(place, []).append(file)
    for several in places.values():
        some: list[LogFile] = []
        for file in several:
            if some and sum(one.bytes for one in some) + file.bytes > LARGE:
                if len(some) > 1:
                    yield some
                some = []
            some.append(file)
        if len(some) > 1:
            yield some


def _merge(store: Store, table: DeltaTable, files: Sequence[LogFile], now: int) -> bool:
    """Put one file in the place of several; whether that was done."""
    name = f"{new_id()}.parquet"
    data = _merged(store, [file.path for file in files], pa.schema(table.schema().to_arrow()))
    store.write(name, [data])
    rows = sum(file.rows for file in files)
    modified = max(file.modified for file in files)
    added = AddAction(name, data.size, {}, modified, False, f'{{"numRecords":{rows}}}')
    # If it raises, nobody knows whether the table has the file: it stays.
    done = _commit(table, files, added, now)
    if not done:
        store.discard([name])
    return done


def _merged(store: Store, paths: Sequence[str], schema: pa.Schema) -> pa.Buffer:
    sink, writer = pa.BufferOutputStream(), None
    for rows in _rows(store, paths, schema):
        if writer is None:
            writer = pq.ParquetWriter(sink, schema, **encoding(rows))
        writer.write_table(rows)
    if writer is None:
        writer = pq.ParquetWriter(sink, schema)
    writer.close()
    return sink.getvalue()


def _rows(store: Store, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """All rows in turn, many at a time."""
    held: list[pa.RecordBatch] = []
    for path in paths:
        with pq.ParquetFile(store.open_input(path)) as file:
            for batch in file.iter_batches(_GROUP_ROWS):
                held.append(batch)
                if sum(one.num_rows for one in held) >= _GROUP_ROWS:
                    yield pa.Table.from_batches(held).cast(schema)
                    held = []
    if held:
        yield pa.Table.from_batches(held).cast(schema)


def _commit(
    table: DeltaTable, removed: Sequence[LogFile], added: AddAction | None, now: int
) -> bool:
    """Whether it was done; not, if another process was first.

    delta-rs takes a commit that removes files for one that only appends, and lets it pass whatever
    others removed meanwhile. So it may not try again by itself.
    """
    changes = added is None  # rows go, or are only elsewhere
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(file.path, changes, now, file.bytes) for file in removed
    ]
    actions += [] if added is None else [added]
    schema = Schema.from_arrow(pa.schema(table.schema().to_arrow()))
    once = CommitProperties(max_commit_retries=0)
    for _ in range(_TRIES):
        try:
            table.create_write_transaction(actions, "append", schema, commit_properties=once)
            table.update_incremental()
            return True
        except CommitFailedError:
            table.update_incremental()
            there = {file.path for file in log_files(table)}
            if added is not None and added.path in there:
                return True  # it was done, though it looked otherwise
            if not {file.path for file in removed} <= there:
                return False
    return False
