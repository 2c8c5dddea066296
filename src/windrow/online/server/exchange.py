"""One request for features, and its answer, in place of uvicorn's cycle and its task.

It has what uvicorn's protocol and the sweep of connections look at in a cycle, and takes its turn
among requests that a client sends without waiting for answers.
"""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus
from time import perf_counter
from typing import Any

from windrow.online.server.refusals import JSON, Headers

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_CLOSE = b"connection: close\r\n"


class _NobodyWaits:
    """Stands for the event by which uvicorn wakes the task of a cycle."""

    def set(self) -> None:
        """There is no task."""


class Exchange:
    """A request whose head has come. `begun` is whether its turn has come on its connection."""

    __slots__ = (
        "began",
        "begun",
        "body",
        "disconnected",
        "expects",
        "keep_alive",
        "more_body",
        "name",
        "response_complete",
        "response_started",
        "scope",
    )
    message_event = _NobodyWaits()

    def __init__(self, scope: Any, name: str, *, keep_alive: bool, expects: bool) -> None:
        self.scope, self.name = scope, name
        self.keep_alive, self.expects = keep_alive, expects
        self.body: bytes | bytearray = b""
        self.begun, self.more_body = False, True
        self.response_started = self.response_complete = self.disconnected = False
        self.began = perf_counter()

    def add(self, body: bytes) -> None:
        """A part of its body has come; as a rule it is all of it."""
        if not self.body:
            self.body = body
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        self.body += body


def written(status: int, body: bytes, headers: Headers, *, close: bool) -> bytes:
    """A whole answer: head and body are one write, or a client may wait for the second."""
    if status == 200 and not close and headers == [JSON]:
        return _OK % len(body) + body
    lines = [b"%s: %s\r\n" % header for header in headers]
    if close:
        lines.append(_CLOSE)
    size = b"content-length: %d\r\n\r\n" % len(body)
    return b"".join([_status_line(status), *lines, size, body])


@lru_cache
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
