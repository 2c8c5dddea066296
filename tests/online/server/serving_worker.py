"""A worker in a thread, to be asked over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from windrow.online.server.app import App
from windrow.online.server.limits import Limits
from windrow.online.server.listening import listen
from windrow.online.server.worker import Worker


@dataclass
class Serving:
    """A worker in a thread of this process, and requests to it over loopback."""

    app: App
    worker: Worker
    port: int
    loop: asyncio.AbstractEventLoop
    headers: dict[str, str] = field(default_factory=dict)

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Over a connection of its own: status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, sent, {**self.headers, **headers})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of a page that is there."""
        status, _, body = self.request("GET", path)
        assert status == 200, body
        return json.loads(body)

    def post(self, path: str, body: Any) -> Any:
        """The JSON of an answer; what JSON does not know of is an error."""
        status, _, answer = self.request("POST", path, body)
        assert status == 200, answer
        return json.loads(answer, parse_constant=pytest.fail)

    def refused(self, path: str, body: Any = None, method: str = "POST") -> tuple[int, str, str]:
        """Status, code and message of a refusal."""
        status, headers, answer = self.request(method, path, body)
        assert headers["content-type"] == "application/json"
        error = json.loads(answer)["error"]
        assert "Traceback" not in error["message"]
        return status, error["code"], error["message"]

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


Start = Callable[..., Serving]


@contextlib.contextmanager
def running(served: Any, limits: Limits | None = None, **options: Any) -> Iterator[Serving]:
    app = App(served, limits, **options)
    begun = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def started() -> None:
        loops.append(asyncio.get_running_loop())
        begun.set()

    worker = Worker(app, started=started)
    (listening,) = listen("127.0.0.1", 0, 1)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=worker.run, args=([listening],))
    thread.start()
    try:
        assert begun.wait(60)
        yield Serving(app, worker, port, loops[0])
    finally:
        worker.should_exit = True
        thread.join(60)
        app.close()
    assert not thread.is_alive()
