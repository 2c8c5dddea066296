"""A store that many machines share: a Redis server.

Everything is a plain string, and its name says what it is: `windrow:NAMESPACE:r:KEY` is a record,
`windrow:NAMESPACE:n:NAME` a note, and the set `windrow:NAMESPACE:names` has the names of all notes.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from windrow.errors import CommitConflictError, StorageError
from windrow.online.stores.chunks import chunks
from windrow.online.stores.redis_address import RedisAddress
from windrow.online.stores.redis_pipeline import Pipeline
from windrow.online.stores.redis_scripts import REPLACE, REPLACE_NOTE, replacement
from windrow.online.stores.redis_server import Server
from windrow.online.stores.store import Fold, Read, RecordStore, StoreSize, check_distinct, folded

_LOADED, _LOADED_BYTES = 1000, 4 << 20  # by one command: others wait meanwhile
_READ = 1000
_REPLACED, _REPLACED_BYTES = 200, 1 << 20
_SCANNED = 1000
_MOST_ROUNDS = 200
_SPECIAL = re.compile(rb"([*?\[\]\\^-])")


class RedisStore(RecordStore):
    """Records and notes of a namespace; a command is given up after `timeout` seconds."""

    def __init__(self, address: RedisAddress, namespace: str, timeout: float) -> None:
        self.address = address.shown
        self._arguments = address, namespace, timeout
        self._records = f"windrow:{namespace}:r:".encode()
        self._notes = f"windrow:{namespace}:n:".encode()
        self._names = f"windrow:{namespace}:names".encode()
        self._server = Server(address, timeout)
        self._checked = False
        self._pipeline: Pipeline | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def __repr__(self) -> str:
        return f"RedisStore({self.address!r}, namespace={self._arguments[1]!r})"

    @property
    def is_local(self) -> bool:
        return self._arguments[0].is_local

    @property
    def waits(self) -> bool:
        return True

    def read(self, notes: Sequence[str], keys: Sequence[bytes]) -> Read:
        names = [self._notes + name.encode() for name in notes]
        if not names and not keys:
            return [], []
        prefix = self._records
        found = self._server.ask(
            "the store cannot be read", "MGET", *names, *[prefix + key for key in keys]
        )
        return found[: len(names)], found[len(names) :]

    def read_soon(
        self, notes: Sequence[str], keys: Sequence[bytes], done: Callable[[Read | None], None]
    ) -> bool:
        if self._arguments[0].is_encrypted:
            return False  # a socket that is written when it reads, and the other way round
        pipeline = self._pipeline
        if pipeline is None or pipeline.loop is not asyncio.get_running_loop():
            if pipeline is not None:
                pipeline.close()
            pipeline = self._pipeline = Pipeline(self._server, self._arguments[2])
        names = [self._notes + name.encode() for name in notes]
        count = len(names)

        def take(found: list[bytes | None] | None) -> None:
            done(None if found is None else (found[:count], found[count:]))

        return pipeline.read(names, self._records, keys, take)

    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        self._check()
        prefix = self._records
        for chunk in chunks(records, _LOADED, _LOADED_BYTES):
            named = chain.from_iterable((prefix + key, value) for key, value in chunk)
            self._server.ask("records cannot be loaded", "MSET", *named)

    def update(self, keys: Sequence[bytes], fold: Fold) -> None:
        check_distinct(keys)
        self._check()
        names = [self._records + key for key in keys]
        found: list[bytes | None] = [None] * len(names)
        left = list(range(len(names)))
        for number in range(_MOST_ROUNDS):
            for some in (left[i : i + _READ] for i in range(0, len(left), _READ)):
                read = self._server.ask("records cannot be read", "MGET", *[names[i] for i in some])
                for i, value in zip(some, read, strict=True):
                    found[i] = value
            # Those that are replaced already are there as they were before: nobody asks for them.
            made = folded(keys, tuple(found), fold)
            left = [
                i
                for some in _steps(left, found, made)
                for i in self._replace(some, names, found, made)
            ]
            if not left:
                return
            _pause(number)
        raise CommitConflictError(
            f"{self.address}: other writers kept changing {len(left)} of {len(keys)} records; let "
            "one writer update a key"
        )

    def _replace(
        self,
        some: list[int],
        names: list[bytes],
        found: list[bytes | None],
        made: list[bytes | None],
    ) -> list[int]:
        """Those of `some` that another writer has changed; the others are replaced."""
        arguments = list(chain.from_iterable(replacement(found[i], made[i]) for i in some))
        lost = self._server.run(
            "records cannot be replaced", REPLACE, [names[i] for i in some], arguments
        )
        return [some[place - 1] for place in lost]

    def change_note(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        self._check()
        key = self._notes + name.encode()
        for number in range(_MOST_ROUNDS):
            found = self._server.ask("a note cannot be read", "GET", key)
            made = change(found)
            if made == found:
                return
            arguments = [*replacement(found, made), name.encode()]
            keys = [key, self._names]
            if not self._server.run("a note cannot be replaced", REPLACE_NOTE, keys, arguments):
                return
            _pause(number)
        raise CommitConflictError(f"{self.address}: other writers kept changing the note {name!r}")

    def notes(self, prefix: str = "") -> list[str]:
        found = self._server.ask("notes cannot be listed", "SMEMBERS", self._names)
        return sorted(name for each in found if (name := each.decode()).startswith(prefix))

    def remove(self, prefix: bytes) -> int:
        pattern = _SPECIAL.sub(rb"\\\1", self._records + prefix) + b"*"
        what = "records cannot be removed"
        cursor, removed = b"0", 0
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
            cursor, found = self._server.ask(what, *command)
            if found:
                removed += self._server.ask(what, "UNLINK", *found)
            if cursor == b"0":
                return removed

    def size(self) -> StoreSize:
        what = "its size cannot be told"
        memory = self._memory(what)
        records = self._server.ask(what, "DBSIZE")
        return StoreSize(records, int(memory.get("used_memory_dataset", memory["used_memory"])))

    def close(self) -> None:
        self._server.close()
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    def _check(self) -> None:
        """Refuse to write to a server that would forget records when its memory is full."""
        if self._checked:
            return
        policy = self._memory("the store cannot be written").get("maxmemory_policy", "")
        if policy.startswith("allkeys"):
            raise StorageError(
                f"{self.address}: it is a cache: when its memory is full it forgets what it holds "
                f"(maxmemory-policy {policy}), and keys would be served as if never seen. Set "
                "maxmemory-policy to noeviction, or give a server of its own"
            )
        self._checked = True

    def _memory(self, what: str) -> dict[str, str]:
        lines = self._server.ask(what, "INFO", "memory").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def _steps(
    left: list[int], found: list[bytes | None], made: list[bytes | None]
) -> Iterator[list[int]]:
    """The places that change, as many at a time as one script is to handle."""
    step: list[int] = []
    size = 0
    for i in left:
        if found[i] == made[i]:
            continue
        step.append(i)
        size += len(found[i] or b"") + len(made[i] or b"")
        if len(step) >= _REPLACED or size >= _REPLACED_BYTES:
            yield step
            step, size = [], 0
    if step:
        yield step


def _pause(number: int) -> None:
    """After so many rounds that were lost: each writer another time, so that one of them wins."""
    if number:
        time.sleep(random.uniform(0, min(0.0005 * 2 ** min(number, 6), 0.02)))
