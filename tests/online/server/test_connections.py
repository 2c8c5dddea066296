"""Clients that are slow, greedy, or speak no HTTP. Time is told to the server, not waited for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from serving_fake import Fake
from serving_worker import Serving, Start

from windrow.online.server.limits import HEAD_BYTES, Limits

BODY = b'{"keys":[{"user_id":1}]}'
HEAD = b"POST /v1/features/activity HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"
CHUNKED = HEAD.replace(b"content-length: %d", b"transfer-encoding: chunked")
REQUEST = HEAD % len(BODY) + b"\r\n" + BODY


def read_all(connection: socket.socket) -> bytes:
    """Until the server hangs up."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def on_loop(serving: Serving, call: Callable[[], Any]) -> Any:
    """Run it where the worker runs."""
    done: list[Any] = []
    ready = threading.Event()

    def run() -> None:
        done.append(call())
        ready.set()

    serving.loop.call_soon_threadsafe(run)
    assert ready.wait(60)
    return done[0]


def pass_time(serving: Serving, seconds: float) -> None:
    """Let the worker look at its connections now, and as if so much time had gone by."""

    def look() -> None:
        now = asyncio.get_running_loop().time()
        for later in (0.0, seconds):
            for connection in serving.worker._connections:
                connection.look(now + later)

    on_loop(serving, look)


def wait_until(serving: Serving, holds: Callable[[], bool]) -> None:
    """Until the worker has seen what was sent; the test's own timeout bounds it."""
    while not on_loop(serving, holds):
        pass


def states(serving: Serving) -> list[str]:
    """What each connection waits for; asked on the loop."""
    return [one.waiting.name for one in serving.worker._connections]


@pytest.mark.parametrize(
    ("sent", "state", "answer"),
    [
        (b"", "REQUEST", b""),
        (b"POST /v1/fea", "HEAD", b" 408 "),
        (HEAD % 10, "HEAD", b" 408 "),
        (HEAD % 1000 + b"\r\n" + BODY, "BODY", b" 408 "),
        (CHUNKED + b"\r\n5\r\nab", "BODY", b" 408 "),
        (REQUEST + b"GET /heal", "HEAD", b" 408 "),
    ],
)
def test_slow_requests_are_ended(start: Start, sent: bytes, state: str, answer: bytes) -> None:
    serving = start()
    with serving.connect() as connection:
        connection.sendall(sent)
        wait_until(serving, lambda: states(serving) == [state])
        pass_time(serving, 9.0)
        assert on_loop(serving, lambda: states(serving)) == [state]  # not yet
        pass_time(serving, 80.0)
        assert answer in read_all(connection)
    wait_until(serving, lambda: not serving.worker._connections)


def test_a_client_that_does_not_read_is_ended(start: Start) -> None:
    serving = start()
    with serving.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        keys = b",".join([b'{"user_id":1}'] * 10_000)
        body = b'{"keys":[' + keys + b"]}"
        for _ in range(20):  # as much as the system's buffers do not take
            connection.sendall(HEAD % len(body) + b"\r\n" + body)
            if on_loop(serving, lambda: states(serving)) == ["READER"]:
                break
        wait_until(serving, lambda: states(serving) == ["READER"])
        pass_time(serving, 9.0)
        pass_time(serving, 80.0)
        wait_until(serving, lambda: not serving.worker._connections)


def test_a_head_without_end_is_refused(start: Start) -> None:
    serving = start()
    with serving.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        line = b"x-more: " + b"y" * 1000 + b"\r\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(HEAD_BYTES // 1000 * 4):
                connection.sendall(line)
        read_all(connection)
    wait_until(serving, lambda: not serving.worker._connections)
    assert serving.app.tallies.seen.errors["head_too_large"] == 1


def test_too_many_connections_are_refused(start: Start) -> None:
    serving = start(limits=Limits(connections=2))
    kept = [serving.connect() for _ in range(2)]
    for one in kept:
        one.sendall(REQUEST)
        assert b" 200 " in one.recv(4096)
    with serving.connect() as third:
        assert b" 503 " in read_all(third)
    for one in kept:
        one.close()


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"],
)
def test_what_is_no_http_is_refused(serving: Serving, sent: bytes) -> None:
    with serving.connect() as connection:
        connection.sendall(sent)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer


def test_requests_in_a_row_are_answered_in_their_order(serving: Serving) -> None:
    with serving.connect() as connection:
        users = range(1, 40)
        for user in users:
            body = b'{"keys":[{"user_id":%d}],"features":["price_avg_1d"]}' % user
            connection.sendall(HEAD % len(body) + b"\r\n" + body)
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answers = read_all(connection)
    places = [answers.index(b'"features":{"price_avg_1d":[%.1f]}' % (user + 3)) for user in users]
    assert places == sorted(places)
    assert answers.endswith(b'{"status":"live"}')


def test_head_and_body_are_one_write(serving: Serving) -> None:
    """A client with delayed acknowledgements would wait for the second one."""
    with serving.connect() as connection:
        for _ in range(20):
            connection.sendall(REQUEST)
            answer = connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"}}")


def test_an_early_refusal_is_read_by_a_client_that_still_sends(start: Start) -> None:
    serving = start(limits=Limits(body=1000))
    with serving.connect() as connection:
        connection.sendall(HEAD % 300_000 + b"\r\n")
        for _ in range(300):
            connection.sendall(b" " * 1000)
        assert b" 413 " in connection.recv(65_536)
        connection.sendall(REQUEST)  # and the connection is good for the next
        assert b" 200 " in connection.recv(65_536)


def test_a_client_that_goes_away_harms_nobody(start: Start) -> None:
    serving = start(Fake())
    for sent in (b"", b"GET", HEAD % 100 + b"\r\n{", REQUEST):
        serving.connect().close()
        with serving.connect() as connection:
            connection.sendall(sent)
    assert serving.post("/v1/features/activity", {"keys": [{"user_id": 1}]})["version"] == "a1"
    assert "internal" not in serving.app.tallies.seen.errors
