"""Fetching ahead: what a read will need next is requested in advance.

An object store answers each request after tens of milliseconds, so a read that waits for one
answer after the other spends its time waiting. Here threads of the reading process keep several
requests under way, for parts and row groups in the order in which the read will come to them:

    read        ▐ decode ▌▐ decode ▌▐ decode ▌ ...
    fetched                ▒▒▒ ▒▒▒ ▒▒▒ ▒▒▒                 with those under way, bounded by bytes
    under way                              ░░░ ░░░ ░░░     bounded in number

The threads only fetch bytes. The Parquet reader runs where it did, on a file whose reads find
them there. What was not requested ahead is fetched on demand, so nothing but time
depends on the order of requests.
"""

from __future__ import annotations

import functools
import heapq
import math
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import OptionError
from windrow.rows.ordering import LOWEST
from windrow.shard.fetched import FetchedFile, OpenedPart, Request, WantedPart, fetch_part
from windrow.shard.files import open_part, parquet_file
from windrow.shard.part import Part
from windrow.storage.store import Store


@dataclass(frozen=True)
class Ahead:
    """How far one reader runs ahead: requests at a time, and bytes that it has not taken yet."""

    requests: int = 16
    bytes: int = 32 << 20

    @staticmethod
    def default() -> Ahead:
        """From `WINDROW_FETCH_REQUESTS` (1: one at a time) and `WINDROW_FETCH_BYTES`."""
        return Ahead(
            _from_environment("WINDROW_FETCH_REQUESTS", Ahead.requests),
            _from_environment("WINDROW_FETCH_BYTES", Ahead.bytes),
        )


def _from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"{name} is {text!r}; it has to be a whole number above 0")
    return int(text)


class _Fetching:
    """A part on its way: the request that opens it, and then those of its row groups."""

    def __init__(self, store: Store, wanted: WantedPart, sequence: _Sequence, prefix: int) -> None:
        self.path = wanted.part.path
        self.sequence = sequence
        self.comes_whole = wanted.comes_whole
        work = functools.partial(fetch_part, store, wanted)
        self.opening = Request(work, wanted.first_bytes, prefix)
        self._opened: OpenedPart | None = None

    def open(self, take: Callable[[Request], Any]) -> OpenedPart:
        self._opened = take(self.opening)
        return self._opened

    @property
    def opened(self) -> OpenedPart | None:
        """What opening it brought, if that is there already."""
        if self._opened is None and self._is_done and not self._has_failed:
            assert self.opening.future is not None
            self._opened = self.opening.future.result()
        return self._opened

    def next_request(self) -> Request | None:
        """The first, of those that are known, that nobody submitted or took."""
        requests = [self.opening, *(self.opened.requests if self.opened else [])]
        return next((r for r in requests if r.future is None and not r.taken), None)

    @property
    def may_bring_more(self) -> bool:
        """Its row groups are not known yet."""
        return self.opened is None and not self.comes_whole and not self._has_failed

    @property
    def _is_done(self) -> bool:
        future = self.opening.future
        return future is not None and future.done() and not future.cancelled()

    @property
    def _has_failed(self) -> bool:
        future = self.opening.future
        return self._is_done and future is not None and future.exception() is not None


class _Sequence:
    """Parts that are opened one after the other."""

    def __init__(self, number: int, store: Store, parts: Iterable[WantedPart]) -> None:
        self.number = number
        self.parts: deque[_Fetching] = deque()
        for wanted in parts:
            # A read abreast begins with the first part of each sequence.
            prefix = wanted.part.prefix[0] if self.parts else LOWEST
            self.parts.append(_Fetching(store, wanted, self, prefix))
        self.is_queued = False

    def next_request(self) -> Request | None:
        """None if all is submitted, or if the footer of a part has to come first."""
        while self.parts:
            request = self.parts[0].next_request()
            if request is not None or self.parts[0].may_bring_more:
                return request
            self.parts.popleft()
        return None


class FetchAhead:
    """The files of parts that a read opens, with requests under way for what it needs next.

    Each of `sequences` is opened in its order; several are read abreast, in the order of prefixes.
    A read that may stop early starts with one request for each sequence, and may double them with
    each that it takes.
    """

    def __init__(
        self,
        store: Store,
        sequences: Iterable[Iterable[WantedPart]],
        ahead: Ahead,
        *,
        may_stop_early: bool = False,
    ) -> None:
        self._store = store
        self._ahead = ahead
        self._sequences = [_Sequence(n, store, parts) for n, parts in enumerate(sequences)]
        self._parts = {f.path: f for sequence in self._sequences for f in sequence.parts}
        self._most = float(len(self._sequences)) if may_stop_early else math.inf
        self._count = self._bytes = 0  # requests that are ahead
        self._heap: list[tuple[int, int]] = []  # (prefix, number of a sequence)
        # Sequences with something to submit, perhaps. Threads add to it as footers arrive.
        self._waking = deque(self._sequences)
        # Whoever takes a request that no thread has begun fetches it: one more request.
        threads = ahead.requests - 1
        self._pool = ThreadPoolExecutor(threads, "windrow-fetch") if threads else None
        self._top_up()

    def __enter__(self) -> FetchAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, part: Part) -> pq.ParquetFile:
        """The part's file, to be closed with `force`. Row groups are to be read in order."""
        fetching = self._parts.pop(part.path, None)
        if fetching is None:
            return open_part(self._store, part)
        opened = fetching.open(self._take)
        self._waking.append(fetching.sequence)
        self._top_up()
        if opened.whole is not None:
            return parquet_file(self._store, part, pa.BufferReader(opened.whole))
        source = FetchedFile(opened, self._take)
        return parquet_file(self._store, part, source, metadata=opened.metadata, pre_buffer=False)

    def close(self) -> None:
        """Drop what was fetched for nothing. No thread is left, and no file open."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        for fetching in self._parts.values():
            if fetching.opened is not None:
                fetching.opened.close()
        self._parts = {}

    def _take(self, request: Request) -> Any:
        if request.is_ahead:
            self._count -= 1
            self._bytes -= request.size
        request.taken = True
        self._most *= 2
        self._top_up()  # now, since taking may mean waiting
        return request.take()

    def _top_up(self) -> None:
        """Submit what may be ahead, in the order of prefixes."""
        if self._pool is None:
            return
        while self._waking:
            sequence = self._waking.popleft()
            if not sequence.is_queued:
                sequence.is_queued = True
                heapq.heappush(self._heap, (LOWEST, sequence.number))
        while self._heap:
            prefix, number = self._heap[0]
            sequence = self._sequences[number]
            request = sequence.next_request()
            if request is None:
                heapq.heappop(self._heap)
                sequence.is_queued = False
            elif request.prefix > prefix:
                heapq.heapreplace(self._heap, (request.prefix, number))
            elif self._count and not self._has_room(request.size):
                return
            else:
                self._submit(request, sequence)

    def _has_room(self, size: int) -> bool:
        return self._count < self._most and self._bytes + size <= self._ahead.bytes

    def _submit(self, request: Request, sequence: _Sequence) -> None:
        assert self._pool is not None
        self._count += 1
        self._bytes += request.size
        request.submit(self._pool, then=lambda _: self._waking.append(sequence))
