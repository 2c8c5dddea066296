"""One connection: uvicorn's protocol, with bounds on what a client may keep a server waiting for.

uvicorn bounds how long a connection may be idle after an answer. Here are the other waits: for the
first request, for the rest of a head or a body, and for a client that does not read its answer.
A request costs nothing for it: the worker looks at all connections once a second, and notices
which of them are where they were before.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windrow.online.server.app import App
from windrow.online.server.limits import HEAD_BYTES
from windrow.online.server.refusals import Refusal, bare


class Waiting(Enum):
    """What a connection waits for."""

    REQUEST = "a request to begin"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"
    ANSWER = "an answer to be made"
    READER = "an answer to be read"


class Connection(HttpToolsProtocol):
    """A connection that can tell what it waits for, and for how long."""

    _head_bytes = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        app = self.config.app
        assert isinstance(app, App)
        self._windrow: App = app
        self._seen: tuple[Waiting, object] | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept it, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._windrow.limits.most_connections:
            self.refuse(Refusal("busy", "too many connections"))

    def data_received(self, data: bytes) -> None:
        """Parse what has come; a head must not be too long."""
        if self.parser is None:
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.scope is not self.scope:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.refuse(Refusal("head_too_large", f"a head has at most {HEAD_BYTES} bytes"))
        elif self._head_bytes:
            self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        """For what is no HTTP."""
        self.refuse(Refusal("bad_request", "this is not HTTP/1.1"))

    @property
    def waiting(self) -> Waiting:
        """What it waits for now."""
        if self.transport.get_write_buffer_size() > 0:
            return Waiting.READER
        cycle = self.cycle
        # uvicorn makes a scope where a head begins, and a cycle of it where the head ends.
        if self.scope is not None and (cycle is None or cycle.scope is not self.scope):
            return Waiting.HEAD
        if cycle is None:
            return Waiting.REQUEST
        if cycle.more_body:
            return Waiting.BODY
        return Waiting.REQUEST if cycle.response_complete else Waiting.ANSWER

    def look(self, now: float) -> float:
        """End it if its client is too slow; else for how many seconds it waits for a request."""
        waiting = self.waiting
        # The scope is that of one request: the next has another, so that its wait begins anew.
        if self._seen is None or self._seen[0] is not waiting or self._seen[1] is not self.scope:
            self._seen, self._since = (waiting, self.scope), now
        waited = now - self._since
        limits = self._windrow.limits
        match waiting:
            case Waiting.REQUEST:
                if waited > limits.keep_alive:
                    self.transport.close()
                return waited
            case Waiting.READER if waited > limits.timeout:
                self.transport.abort()
            case Waiting.HEAD | Waiting.BODY if waited > limits.timeout:
                if waiting is Waiting.BODY and self.cycle.response_started:
                    self.transport.abort()  # answered before all of it had come
                else:
                    self.refuse(Refusal("timeout", "the request did not arrive in time"))
        return 0.0

    def refuse(self, refusal: Refusal) -> None:
        """Answer without a request, and hang up."""
        self._windrow.tallies.error(refusal.code)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # its task ends as if the client had gone
            self.cycle.message_event.set()
        self.transport.write(bare(refusal))
        self.transport.close()
