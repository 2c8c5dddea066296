"""A store in a folder of this machine: LMDB, which every process maps into its memory.

Readers never wait. Writers do, for each other: one writes at a time, of all processes, and what it
wrote is on disk before it returns. Of what a process that is killed had under way nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from os import getpid
from time import monotonic
from typing import Any, TypeVar

import lmdb

from windrow.online.stores.chunks import Record, chunks
from windrow.online.stores.lmdb_environment import Opened, Transaction, opened
from windrow.online.stores.lmdb_failures import explain
from windrow.online.stores.store import Fold, Read, RecordStore, StoreSize, check_distinct, folded

T = TypeVar("T")

MAP_SIZE = 1 << 38
_CHUNK, _CHUNK_BYTES = 10_000, 32 << 20  # of a transaction


class LmdbStore(RecordStore):
    """Records and notes in a folder; `map_size` is the most that it can hold, in bytes."""

    def __init__(self, folder: str, map_size: int = MAP_SIZE) -> None:
        self.address = folder
        self._folder = folder
        self._map_size = map_size
        self._opened: Opened | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._folder, self._map_size)

    def __repr__(self) -> str:
        return f"LmdbStore({self._folder!r})"

    @property
    def is_local(self) -> bool:
        return True

    @property
    def waits(self) -> bool:
        return False

    def read(self, notes: Sequence[str], keys: Sequence[bytes]) -> Read:
        while True:
            found = self._opened
            # As `Opened.is_current` does, without the calls: this is what every fetch waits for.
            if (
                found is None
                or found.closed
                or monotonic() >= found.look_at
                or getpid() != found.process
            ):
                found = self._current()
            try:
                transaction = found.reading()
                try:
                    get, names = transaction.get, found.notes
                    return (
                        [get(name.encode(), None, names) for name in notes],
                        [get(key) for key in keys],
                    )
                finally:
                    transaction.abort()
            except lmdb.Error as error:
                if not found.closed:  # by a fork
                    raise explain(self._folder, "the store cannot be read", error) from error

    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        for chunk in chunks(records, _CHUNK, _CHUNK_BYTES):
            # Of records with the same key the last one stays: sorting keeps their order.
            chunk.sort(key=itemgetter(0))
            self._write(partial(_put, chunk))

    def update(self, keys: Sequence[bytes], fold: Fold) -> None:
        check_distinct(keys)
        order = sorted(range(len(keys)), key=keys.__getitem__)

        def apply(transaction: Transaction, _: Opened) -> None:
            found: list[bytes | None] = [None] * len(keys)
            for i in order:
                found[i] = transaction.get(keys[i])
            made = folded(keys, found, fold)
            for i in order:
                _replace(transaction, keys[i], found[i], made[i])

        self._write(apply)

    def change_note(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        def apply(transaction: Transaction, environment: Opened) -> None:
            key, notes = name.encode(), environment.notes
            found = transaction.get(key, None, notes)
            _replace(transaction, key, found, change(found), notes)

        self._write(apply)

    def notes(self, prefix: str = "") -> list[str]:
        start = prefix.encode()

        def collect(transaction: Transaction, found: Opened) -> list[str]:
            names = []
            with transaction.cursor(found.notes) as cursor:
                if cursor.set_range(start):
                    for key in cursor.iternext(values=False):
                        if not key.startswith(start):
                            break
                        names.append(key.decode())
            return names

        return self._read(collect)

    def remove(self, prefix: bytes) -> int:
        removed = 0

        def some(transaction: Transaction, _: Opened) -> int:
            count = 0
            with transaction.cursor() as cursor:
                more = cursor.set_range(prefix)
                while more and count < _CHUNK and cursor.key().startswith(prefix):
                    more = cursor.delete() and cursor.key() != b""
                    count += 1
            return count

        while count := self._write(some):
            removed += count
        return removed

    def size(self) -> StoreSize:
        def measure(transaction: Transaction, found: Opened) -> StoreSize:
            both = [transaction.stat(found.records), transaction.stat(found.notes)]
            pages = sum(s["branch_pages"] + s["leaf_pages"] + s["overflow_pages"] for s in both)
            return StoreSize(both[0]["entries"], pages * both[0]["psize"])

        return self._read(measure)

    def close(self) -> None:
        self._opened = None

    def _current(self) -> Opened:
        found = self._opened
        if found is None or not found.is_current():
            found = self._opened = opened(self._folder, self._map_size)
        return found

    def _read(self, action: Callable[[Transaction, Opened], T]) -> T:
        while True:
            found = self._current()
            try:
                transaction = found.reading()
                try:
                    return action(transaction, found)
                finally:
                    transaction.abort()
            except lmdb.Error as error:
                if not found.closed:
                    raise explain(self._folder, "the store cannot be read", error) from error

    def _write(self, action: Callable[[Transaction, Opened], T]) -> T:
        """Carry out `action` in one transaction; on disk when this returns."""
        while True:
            found = self._current()
            try:
                with found.writing() as transaction:
                    result = action(transaction, found)
            except lmdb.Error as error:
                if found.closed:  # by a fork, before anything was written
                    continue
                if isinstance(error, lmdb.PanicError):
                    found.close()  # it says that of everything until it is opened again
                raise explain(self._folder, "the store cannot be written", error) from error
            found.extend()
            return result


def _put(chunk: list[Record], transaction: Transaction, _: Opened) -> None:
    with transaction.cursor() as cursor:
        cursor.putmulti(chunk)


def _replace(
    transaction: Transaction,
    key: bytes,
    found: bytes | None,
    made: bytes | None,
    database: Any = None,
) -> None:
    if made is None:
        if found is not None:
            transaction.delete(key, db=database)
    elif made != found:
        transaction.put(key, made, db=database)
