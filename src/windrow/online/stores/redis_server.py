"""Asking a Redis server: a connection for each thread, made again for as long as there is time.

Commands are sent and answers read as they are. redis-py's client would take a connection from a
pool for each command, look whether it is alive, and measure it: as long again as Redis takes.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Any

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from windrow.online.stores.redis_address import RedisAddress
from windrow.online.stores.redis_failures import explain, is_passing
from windrow.online.stores.redis_scripts import Script

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5


class _Patience:
    """Pauses that grow, until the time is up."""

    def __init__(self, seconds: float) -> None:
        self._give_up = time.monotonic() + seconds
        self._next = _FIRST_PAUSE

    def pause(self) -> bool:
        """Wait; or say that there is no time left."""
        pause = self._next * random.uniform(0.5, 1.0)
        if time.monotonic() + pause > self._give_up:
            return False
        time.sleep(pause)
        self._next = min(2 * self._next, _LONGEST_PAUSE)
        return True


class Server:
    """A server, and this process's connections to it."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self.shown = address.shown
        self._timeout = timeout
        self._pool = ConnectionPool.from_url(  # only for what it makes of the address
            address.url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            client_name="windrow",
        )
        self._mine = threading.local()

    def ask(self, what: str, *command: Any) -> Any:
        """The answer to a command, which may be carried out twice if an answer is lost.

        `what` says in an error what could not be done.
        """
        patience = _Patience(self._timeout)
        while True:
            try:
                return self._exchange(command)
            except RedisError as error:
                self._endure(what, error, patience)

    def run(self, what: str, script: Script, keys: list[bytes], arguments: list[bytes]) -> Any:
        """The answer of a script. Its first argument is 1 if it may have been run before."""
        patience = _Patience(self._timeout)
        repeated = b"0"
        while True:
            try:
                return self._exchange(
                    ("EVALSHA", script.digest, len(keys), *keys, repeated, *arguments)
                )
            except NoScriptError:
                self.ask(what, "SCRIPT", "LOAD", script.text)
            except RedisError as error:
                self._endure(what, error, patience)
                repeated = b"1"

    def connected(self) -> AbstractConnection:
        """A connection of its own for who asks; a RedisError if there is none to be had."""
        made = self._made()
        made.connect()  # type: ignore[no-untyped-call]
        return made

    def close(self) -> None:
        self._mine = threading.local()

    def _exchange(self, command: tuple[Any, ...]) -> Any:
        connection = self._connection()
        try:
            connection.send_command(*command)  # type: ignore[no-untyped-call]
            return connection.read_response()
        except RedisError:
            raise
        except BaseException:
            self._drop()  # interrupted between a question and its answer
            raise

    def _endure(self, what: str, error: RedisError, patience: _Patience) -> None:
        """Be ready to ask again, if that may help and there is time; raise what it means if not."""
        if not is_passing(error):
            raise explain(self.shown, what, error) from error
        self._drop()
        if not patience.pause():
            raise explain(self.shown, what, error) from error

    def _connection(self) -> AbstractConnection:
        try:
            process, connection = self._mine.connection
            if process == os.getpid():
                found: AbstractConnection = connection
                return found
        except AttributeError:
            pass
        made = self._made()
        self._mine.connection = os.getpid(), made
        return made

    def _made(self) -> AbstractConnection:
        made: AbstractConnection = self._pool.connection_class(**self._pool.connection_kwargs)
        return made

    def _drop(self) -> None:
        found = self._mine.__dict__.pop("connection", None)
        if found is not None and found[0] == os.getpid():
            found[1].disconnect()
