"""Requests of one turn of the event loop are fetched together.

While a server answers, requests of other connections arrive. All that have come when the loop turns
to them are one read of the store, and one evaluation: the more there is to do, the less each costs.
A store that answers at once is read right here. One that has to be waited for is asked without
waiting or, where that is not possible, by a thread; so are requests for very many keys.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from windrow.online.fetched import Fetched, Outcome, Request, Served
from windrow.online.server.limits import INLINE_KEYS, Limits
from windrow.online.server.refusals import RETRY, Refusal

T = TypeVar("T")
Answer = Callable[[Outcome], None]  # is told what became of a request; must not raise
Batch = Sequence[tuple[Request, Answer]]


class Turns:
    """Fetches for the event loop of one worker."""

    def __init__(self, served: Served, limits: Limits) -> None:
        self._served, self._limits = served, limits
        self._waits = served.waits
        self._waiting: list[tuple[Request, Answer]] = []
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="fetch")
        self._at_work, self._lock = 0, threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, request: Request, answer: Answer) -> None:
        """Fetch it with all that come in this turn; `answer` is called on the loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.append((request, answer))

    async def fetched(self, request: Request) -> Fetched:
        """The same, for who can wait."""
        future: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()

        def answer(outcome: Outcome) -> None:
            if future.done():  # given up
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.fetch(request, answer)
        return await future

    def _turn(self) -> None:
        """Fetch what waits, as many keys at a time as others may wait for."""
        waiting, self._waiting = self._waiting, []
        batch: list[tuple[Request, Answer]] = []
        size = 0
        for number, one in enumerate(waiting):
            count = len(one[0].keys)
            if count > INLINE_KEYS:
                self._start([one])
            elif size + count > INLINE_KEYS:  # the rest in turns of their own
                self._waiting = waiting[number:]
                asyncio.get_running_loop().call_soon(self._turn)
                break
            else:
                batch.append(one)
                size += count
        if not batch:
            return
        if self._waits:
            self._ask(batch)
        else:
            requests = [request for request, _ in batch]
            try:
                outcomes = self._served.fetch_all(requests)
            except Exception as error:
                outcomes = [error] * len(batch)
            _deliver(batch, outcomes)

    def _ask(self, batch: Batch) -> None:
        """Of a store that has to be waited for; within a bounded time."""
        given_up = False

        def give_up() -> None:
            nonlocal given_up
            given_up = True
            _deliver(batch, [self._too_slow()] * len(batch))

        def done(outcomes: list[Outcome] | None) -> None:
            if given_up:
                return
            timer.cancel()
            if outcomes is None:
                self._start(batch)
            else:
                _deliver(batch, outcomes)

        timer = asyncio.get_running_loop().call_later(self._limits.timeout, give_up)
        try:
            begun = self._served.fetch_soon([request for request, _ in batch], done)
        except Exception as error:
            done([error] * len(batch))
            return
        if not begun:
            done(None)

    def _start(self, batch: Batch) -> None:
        """Fetch in a thread."""
        task = asyncio.get_running_loop().create_task(self._threaded(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _threaded(self, batch: Batch) -> None:
        room = max(0, self._room)
        if room < len(batch):
            _deliver(batch[room:], [_busy()] * (len(batch) - room))
            batch = batch[:room]
        if not batch:
            return
        requests = [request for request, _ in batch]
        outcomes: list[Outcome]
        try:
            outcomes = await self.in_thread(
                partial(self._served.fetch_all, requests), len(requests)
            )
        except Exception as error:
            outcomes = [error] * len(batch)
        _deliver(batch, outcomes)

    # Threads

    @property
    def _room(self) -> int:
        """For how many requests there are threads, or places to wait for one."""
        return self._limits.threads + self._limits.waiting - self._at_work

    async def in_thread(self, call: Callable[[], T], requests: int = 1) -> T:
        """Run it beside the others, for a bounded time, if there are not too many already."""
        with self._lock:
            if self._room < requests:
                raise _busy()
            self._at_work += requests
        future = self._pool.submit(call)
        # Later than a timeout: a thread cannot be ended.
        future.add_done_callback(partial(self._done, requests))
        try:
            async with asyncio.timeout(self._limits.timeout):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise self._too_slow() from None

    def _done(self, requests: int, _: Future[Any]) -> None:
        with self._lock:
            self._at_work -= requests

    def _too_slow(self) -> Refusal:
        said = f"no answer within {self._limits.timeout:g} seconds"
        return Refusal("too_slow", said, headers=[RETRY])

    def close(self) -> None:
        """Start nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _deliver(batch: Batch, outcomes: Sequence[Outcome]) -> None:
    for (_, answer), outcome in zip(batch, outcomes, strict=True):
        answer(outcome)


def _busy() -> Refusal:
    return Refusal("busy", "too many requests are waiting already", headers=[RETRY])
