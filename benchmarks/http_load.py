"""Requests as fast as they are answered, over some connections, and how long each took.

`python benchmarks/http_load.py` measures `windrow serve` without a store beside a bare echo on the
same uvicorn, by turns, and prints one line of JSON: what the server itself costs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

_SPAWN = multiprocessing.get_context("spawn")
CONNECTIONS, SECONDS, ROUNDS = 16, 4.0, 3
BODY = b'{"keys":[{"user_id":123}]}'


@dataclass(frozen=True)
class Load:
    """What was seen: requests per second, and milliseconds of a request."""

    rps: float
    p50_ms: float
    p99_ms: float
    failed: int


class Answers(asyncio.Protocol):
    """One connection: gathers an answer, and hands it over once all of it is there."""

    transport: Any  # from the moment that it is connected
    _gathered = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._gathered = self._gathered + data if self._gathered else data
        end = answer.find(b"\r\n\r\n")
        if end < 0:
            return
        place = answer.find(b"content-length: ")
        size = int(answer[place + 16 : answer.index(b"\r", place)])
        if len(answer) < end + 4 + size:
            return
        self._gathered = b""
        self.answered(answer.startswith(b"HTTP/1.1 200"), answer[end + 4 :])

    def answered(self, succeeded: bool, body: bytes) -> None:
        raise NotImplementedError


class _Client(Answers):
    """A request, its answer, the next request."""

    def __init__(self, request: bytes, until: float) -> None:
        self._request, self._until = request, until
        self._began = 0.0
        self.took: list[float] = []
        self.failed = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        self.transport.write(self._request)

    def answered(self, succeeded: bool, body: bytes) -> None:
        now = time.perf_counter()
        self.took.append(now - self._began)
        self.failed += not succeeded
        if now < self._until:
            self._send()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _drive(port: int, request: bytes, connections: int, seconds: float) -> Load:
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    clients = [
        (
            await loop.create_connection(
                lambda: _Client(request, began + seconds), "127.0.0.1", port
            )
        )[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for client in clients))
    took = sorted(one for client in clients for one in client.took)
    elapsed = time.perf_counter() - began
    percentiles = statistics.quantiles(took, n=100)
    failed = sum(client.failed for client in clients)
    return Load(len(took) / elapsed, percentiles[49] * 1e3, percentiles[98] * 1e3, failed)


def post(path: str, body: bytes) -> bytes:
    """The bytes of a request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def load(
    port: int, path: str, body: bytes, connections: int = CONNECTIONS, seconds: float = SECONDS
) -> Load:
    """Ask a server on this machine."""
    return uvloop.run(_drive(port, post(path, body), connections, seconds))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The least that an application can do: it answers what it was sent."""
    body = (await receive())["body"]
    size = (b"content-length", b"%d" % len(body))
    headers = [(b"content-type", b"application/json"), size]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run_echo(listening: socket.socket) -> None:
    """The echo, on uvicorn as `windrow serve` has it."""
    import uvicorn

    config = uvicorn.Config(
        echo,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    uvicorn.Server(config).run([listening])


def run_windrow(listening: socket.socket) -> None:
    """The server, with ten features that cost nothing to fetch."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "online" / "server"))
    from serving_fake import constant

    from windrow.online.server.settings import Settings
    from windrow.online.server.worker import run_worker

    run_worker(constant, Settings(), listening)


def measure(run: Callable[[socket.socket], None]) -> Load:
    """Start a server in a process of its own, and ask it."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    server = _SPAWN.Process(target=run, args=(listening,))
    server.start()
    port = listening.getsockname()[1]
    listening.close()
    try:
        load(port, "/v1/features/activity", BODY, seconds=0.5)  # warm
        return load(port, "/v1/features/activity", BODY)
    finally:
        server.terminate()
        server.join()


def main() -> None:
    pairs = [(measure(run_echo), measure(run_windrow)) for _ in range(ROUNDS)]
    ratios = [ours.rps / echo.rps for echo, ours in pairs]
    best = max((ours for _, ours in pairs), key=lambda one: one.rps)
    found = {
        "http_vs_echo": round(statistics.median(ratios), 3),
        "rps": round(best.rps),
        "p50_ms": round(best.p50_ms, 3),
        "p99_ms": round(best.p99_ms, 3),
        "echo_rps": round(max(echo.rps for echo, _ in pairs)),
        "failed": sum(ours.failed for _, ours in pairs),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
