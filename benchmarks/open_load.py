"""Requests at their times, over some connections, whether or not earlier ones have been answered.

A client that waits for an answer before it asks again asks a stalled server once, and sees one
slow request where users would have seen thousands. Here every request has a time, and how long it
took is counted from that time, also while it waits for a connection.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import uvloop

from http_load import CONNECTIONS, Answers

Check = Callable[[bytes], bool]  # whether the body of an answer is right
Ask = Callable[[], tuple[bytes, Check]]  # the next request, made when it is sent

_PAUSE = 0.001  # between two looks at what is due: timers are not finer
_RECONNECT = 0.1  # until a connection is tried again
_GRACE = 30.0  # for answers, after the last request


@dataclass
class Seen:
    """The requests that ended within some time; `took` has the seconds of each."""

    failed: int = 0
    wrong: int = 0
    took: array[float] = field(default_factory=lambda: array("d"))

    def milliseconds(self, percentile: float) -> float:
        return float(np.percentile(self.took, percentile)) * 1e3 if self.took else 0.0


Report = Callable[[Seen], None]


def open_load(
    port: int,
    ask: Ask,
    rate: float,
    seconds: float,
    every: float,
    report: Report,
    connections: int = CONNECTIONS,
) -> None:
    """Send `rate` requests a second to a server on this machine.

    `report` is told what was seen every so many seconds. What has no answer half a minute after the
    last request has failed.
    """
    uvloop.run(_OpenLoad(port, ask, rate, round(rate * seconds)).run(connections, every, report))


class _Client(Answers):
    """A connection that has at most one request under way: `_at` and `_check` are of that."""

    _at: float
    _check: Check | None = None

    def __init__(self, load: _OpenLoad) -> None:
        self._load = load

    def send(self, at: float, request: bytes, check: Check) -> None:
        self._at, self._check = at, check
        self.transport.write(request)

    def answered(self, succeeded: bool, body: bytes) -> None:
        check, self._check = self._check, None
        took = time.perf_counter() - self._at
        if check is None:
            raise AssertionError("an answer to no request")
        self._load.end(took, succeeded, succeeded and check(body))
        self._load.free(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._check is not None:
            self._check = None
            self._load.end(time.perf_counter() - self._at, succeeded=False, right=False)
        self._load.lost(self)


class _OpenLoad:
    """The n-th request is due n / rate seconds after the first; those due wait for a connection."""

    def __init__(self, port: int, ask: Ask, rate: float, total: int) -> None:
        self._port, self._ask, self._rate, self._total = port, ask, rate, total
        self._began = 0.0
        self._sent = self._ended = 0
        self._idle: deque[_Client] = deque()
        self._seen = Seen()
        self._opening: set[asyncio.Task[None]] = set()
        self._closing = False

    async def run(self, connections: int, every: float, report: Report) -> None:
        await asyncio.gather(*(self._open() for _ in range(connections)))
        self._began = time.perf_counter()
        give_up = self._began + self._total / self._rate + _GRACE
        next_report = self._began + every
        while self._ended < self._total and (now := time.perf_counter()) < give_up:
            self._send_due()
            if now >= next_report and self._sent < self._total:
                next_report += every
                report(self._take())
            await asyncio.sleep(_PAUSE)
        # Those that never got a connection, and those that never got an answer.
        self._seen.failed += self._total - self._ended
        report(self._take())
        self._closing = True
        for task in self._opening:
            task.cancel()
        for client in self._idle:
            client.transport.close()

    def _take(self) -> Seen:
        seen, self._seen = self._seen, Seen()
        return seen

    def _send_due(self) -> None:
        due = min(self._total, int((time.perf_counter() - self._began) * self._rate) + 1)
        while self._sent < due and self._idle:
            request, check = self._ask()
            at = self._began + self._sent / self._rate
            self._sent += 1
            self._idle.popleft().send(at, request, check)

    def end(self, took: float, succeeded: bool, right: bool) -> None:
        self._ended += 1
        self._seen.took.append(took)
        self._seen.failed += not succeeded
        self._seen.wrong += succeeded and not right

    def free(self, client: _Client) -> None:
        self._idle.append(client)
        self._send_due()

    def lost(self, client: _Client) -> None:
        """Another connection takes the place of one that was closed by the server."""
        if client in self._idle:
            self._idle.remove(client)
        if not self._closing:
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, client = await loop.create_connection(
                    lambda: _Client(self), "127.0.0.1", self._port
                )
            except OSError:
                await asyncio.sleep(_RECONNECT)
            else:
                self._idle.append(client)
                return
