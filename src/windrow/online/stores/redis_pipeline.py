"""Reading a Redis server from an event loop: questions go out as they come, nobody waits.

One connection, whose answers come in the order of the questions. It is made in the background, by
the same code that makes all others. Whatever is out of the ordinary (it is not connected yet, the
connection is lost, an answer does not come or is an error) is answered with None: who asked then
asks in a thread, where waiting, trying again and saying what is wrong have their place.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

import hiredis
from redis.connection import AbstractConnection

from windrow.online.stores.redis_server import Server

Found = list[bytes | None]
_RECEIVED = 1 << 18  # bytes at a time
_KEPT = 1 << 22  # bytes of a buffer that is kept for the next answers
_PAUSE = 0.2  # seconds between two attempts to connect


class Pipeline:
    """A connection that belongs to the running event loop, and is used there only."""

    def __init__(self, server: Server, timeout: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._server, self._timeout = server, timeout
        self._connection: AbstractConnection | None = None
        self._socket: socket.socket | None = None
        self._reader, self._received = _reader(), bytearray(_RECEIVED)
        self._asked: deque[Callable[[Found | None], None]] = deque()
        self._unsent = b""
        self._answers = 0
        self._watched = False
        self._connecting, self._next_attempt, self._closed = False, 0.0, False

    def read(
        self,
        names: Sequence[bytes],
        prefix: bytes,
        keys: Sequence[bytes],
        done: Callable[[Found | None], None],
    ) -> bool:
        """Ask for values: of `names`, and of keys that all begin with `prefix`.

        False if there is no connection, which is then made.
        """
        if self._socket is None:
            self._connect()
            return False
        self._asked.append(done)
        command = _command(names, prefix, keys)
        if self._unsent:
            self._unsent += command
        else:
            self._send(command)
        if not self._watched:
            self._watch()
        return True

    def close(self) -> None:
        """From any thread; what was asked is answered with None."""
        self._closed = True
        try:
            self.loop.call_soon_threadsafe(self._lose)
        except RuntimeError:  # the loop has ended, and nobody waits any more
            self._socket = None
            self._disconnect()

    # The connection

    def _connect(self) -> None:
        if self._connecting or self._closed or time.monotonic() < self._next_attempt:
            return
        self._connecting = True
        self.loop.run_in_executor(None, self._server.connected).add_done_callback(self._adopt)

    def _adopt(self, made: asyncio.Future[AbstractConnection]) -> None:
        self._connecting = False
        self._next_attempt = time.monotonic() + _PAUSE
        if made.cancelled() or made.exception() is not None:
            return  # the threads will say why
        self._connection = made.result()
        if self._closed:
            self._lose()
            return
        found: socket.socket | None = getattr(self._connection, "_sock", None)
        assert found is not None
        found.setblocking(False)
        self._socket, self._reader = found, _reader()
        self.loop.add_reader(found.fileno(), self._receive)

    def _lose(self) -> None:
        """Give up the connection; everybody who asked has to ask otherwise."""
        if self._socket is not None:
            self.loop.remove_reader(self._socket.fileno())
            self.loop.remove_writer(self._socket.fileno())
            self._socket, self._unsent = None, b""
        self._disconnect()
        asked, self._asked = self._asked, deque()
        for done in asked:
            done(None)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()  # type: ignore[no-untyped-call]
            self._connection = None

    def _watch(self) -> None:
        """Look after a while whether anything has been answered since."""
        self._watched = bool(self._asked)
        if self._watched:
            self.loop.call_later(self._timeout, self._look, self._answers)

    def _look(self, answers: int) -> None:
        if self._asked and self._answers == answers:
            self._lose()
        self._watch()

    # Questions and answers

    def _send(self, command: bytes) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(command)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Not right here: who asks is not told twice.
            self.loop.call_soon(self._lose)
            return
        self._unsent = command[sent:]
        if self._unsent:
            self.loop.add_writer(self._socket.fileno(), self._send_more)

    def _send_more(self) -> None:
        assert self._socket is not None
        self.loop.remove_writer(self._socket.fileno())
        self._send(self._unsent)

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            size = self._socket.recv_into(self._received)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        try:
            if not size:
                raise ConnectionError
            self._reader.feed(self._received, 0, size)  # type: ignore[arg-type]
            answer = self._reader.gets()
            while answer is not False:
                self._answers += 1
                self._asked.popleft()(answer if isinstance(answer, list) else None)
                answer = self._reader.gets()
        except (ConnectionError, hiredis.ProtocolError, IndexError):
            self._lose()


def _command(names: Sequence[bytes], prefix: bytes, keys: Sequence[bytes]) -> bytes:
    """An MGET, as Redis reads it."""
    parts = [b"*%d\r\n$4\r\nMGET\r\n" % (1 + len(names) + len(keys))]
    parts += [b"$%d\r\n%b\r\n" % (len(name), name) for name in names]
    sizes = set(map(len, keys))
    if len(sizes) == 1:  # as keys of one integer are: all of them at once
        head = b"$%d\r\n%b" % (len(prefix) + sizes.pop(), prefix)
        parts += [head, (b"\r\n" + head).join(keys), b"\r\n"]
    else:
        parts += [b"$%d\r\n%b%b\r\n" % (len(prefix) + len(key), prefix, key) for key in keys]
    return b"".join(parts)


def _reader() -> hiredis.Reader:
    made = hiredis.Reader()
    made.setmaxbuf(_KEPT)
    return made
