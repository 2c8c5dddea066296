"""One connection: uvicorn's protocol, with bounds on what a client may keep a server waiting for.

Requests for features are answered without ASGI, which would cost as much again as to answer them:
no task, no messages, and head and body are one write. All others go uvicorn's way.

uvicorn bounds how long a connection may be idle after an answer. Here are the other waits: for the
first request, for the rest of a head or a body, and for a client that does not read its answer.
A request costs nothing for it: the worker looks at all connections once a second, and notices
which of them are where they were before.
"""

from __future__ import annotations

import asyncio
import re
from enum import Enum
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windrow.online.server.app import FEATURES, App, unauthorized
from windrow.online.server.exchange import Exchange, written
from windrow.online.server.limits import HEAD_BYTES
from windrow.online.server.refusals import Headers, Refusal, bare

_PLAIN = re.compile(FEATURES.encode() + rb"[A-Za-z0-9_.-]*")


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
        self._held: tuple[Exchange, int, bytes, Headers] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept it, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._windrow.limits.most_connections:
            self.refuse(Refusal("busy", "too many connections"))

    def data_received(self, data: bytes) -> None:
        """Parse what has come; a head must not be too long."""
        if self.parser is None:
            return
        before = self.scope
        super().data_received(data)
        if self.cycle is None or self.cycle.scope is not self.scope:
            # Of what a head began in, an unknown part belongs to requests before it.
            self._head_bytes = self._head_bytes + len(data) if self.scope is before else 0
            if self._head_bytes > HEAD_BYTES:
                self.refuse(Refusal("head_too_large", f"a head has at most {HEAD_BYTES} bytes"))
        elif self._head_bytes:
            self._head_bytes = 0

    # Requests for features

    def on_headers_complete(self) -> None:
        """A head is complete: begin with it, or keep it until its turn."""
        name = self._asked_for()
        if name is None:
            super().on_headers_complete()
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        exchange = Exchange(
            self.scope, name, keep_alive=keep_alive, expects=self.expect_100_continue
        )
        before, self.cycle = self.cycle, exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            self._begin(exchange)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _asked_for(self) -> str | None:
        """The name whose features are asked for; None if it is something else that is."""
        if self.parser.get_method() != b"POST" or not self._windrow.has_features:
            return None
        if _PLAIN.fullmatch(self.url):
            return self.url[len(FEATURES) :].decode()
        path = unquote(httptools.parse_url(self.url).path.decode("ascii"))
        return path.removeprefix(FEATURES) if path.startswith(FEATURES) else None

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Its turn has come."""
        if isinstance(cycle, Exchange):
            self._begin(cycle)
        else:
            super()._start_asgi_task(cycle, app)

    def _begin(self, exchange: Exchange) -> None:
        exchange.begun = True
        tokens = self._windrow.tokens
        if tokens and not tokens.accept(exchange.scope["headers"]):
            self._refuse(exchange, unauthorized(), route="refused")
        elif exchange.more_body:
            self._check_length(exchange)
            if exchange.expects and not exchange.response_started:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        else:
            self._ask(exchange)

    def on_body(self, body: bytes) -> None:
        """A part of a body, or all of it."""
        exchange: Any = self.cycle
        if not isinstance(exchange, Exchange):
            super().on_body(body)
        elif not exchange.response_complete:
            exchange.add(body)
            if exchange.begun:
                self._check_length(exchange)

    def _check_length(self, exchange: Exchange) -> bool:
        most = self._windrow.limits.body
        if len(exchange.body) <= most:
            return True
        exchange.body = b""
        self._refuse(exchange, Refusal("too_large", f"the body is longer than {most} bytes"))
        return False

    def on_message_complete(self) -> None:
        """All of a request is there."""
        exchange: Any = self.cycle
        if not isinstance(exchange, Exchange):
            super().on_message_complete()
            return
        exchange.more_body = False
        if exchange.begun and not exchange.response_complete:
            self._ask(exchange)

    def _ask(self, exchange: Exchange) -> None:
        if self._check_length(exchange):

            def respond(status: int, body: bytes, headers: Headers) -> None:
                self._respond(exchange, status, body, headers)

            self._windrow.features.answer(exchange.name, exchange.body, respond)

    def _refuse(self, exchange: Exchange, refusal: Refusal, route: str = "features") -> None:
        self._windrow.tallies.error(refusal.code)
        self._respond(exchange, refusal.status, refusal.body, refusal.headers, route)

    def _respond(
        self,
        exchange: Exchange,
        status: int,
        body: bytes,
        headers: Headers,
        route: str = "features",
    ) -> None:
        """Write an answer; what a client sent after it has its turn next."""
        transport, app = self.transport, self._windrow
        if self.flow.write_paused and not transport.is_closing():
            self._held = (exchange, status, body, headers)  # until it has read the one before
            return
        exchange.response_started = exchange.response_complete = True
        close = app.closing or not exchange.keep_alive
        if not transport.is_closing():
            transport.write(written(status, body, headers, close=close))
            if close:
                transport.close()
        seconds = perf_counter() - exchange.began
        app.tallies.request(route, status, seconds)
        if app.log.requests:
            app.log_request(self._described(exchange), route, status, len(body), seconds)
        self.on_response_complete()

    def _described(self, exchange: Exchange) -> dict[str, Any]:
        return {"method": "POST", "path": FEATURES + exchange.name, "client": self.client}

    def resume_writing(self) -> None:
        """The client has read what was written: the next answer may be."""
        super().resume_writing()
        if self._held is not None:
            held, self._held = self._held, None
            self._respond(*held)

    def on_response_complete(self) -> None:
        """As uvicorn does, but for its timer: `look` closes connections that are idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self.loop.call_soon(self._next)  # not right here: there may be thousands of them

    def _next(self) -> None:
        if self.pipeline and not self.transport.is_closing():
            self._start_asgi_task(*self.pipeline.pop())

    # Bounds

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
