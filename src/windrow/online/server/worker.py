"""One worker: a process with an event loop, which answers requests until it is told to stop.

When it stops, it finishes what has begun. It accepts no connection any more, says in each answer
that it is the last one of its connection, and waits a moment for requests that are on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from types import FrameType

import uvicorn

from windrow.errors import OptionError
from windrow.online import kernels
from windrow.online.log.logged import Logged
from windrow.online.log.serving_log import ServingLog, Soon
from windrow.online.server.app import App
from windrow.online.server.limits import LINGER, SWEEP
from windrow.online.server.logs import Handler, Log
from windrow.online.server.metrics import Tallies
from windrow.online.server.protocol import Connection
from windrow.online.server.settings import Opening, Settings
from windrow.online.server.tokens import Tokens

_TICK = 0.1  # seconds between two ticks of uvicorn
# Seconds after which another thread, such as that of the serving log, has to let the event loop go
# on. By default Python lets it run for 5 ms: many requests.
_TURN = 0.0005
# So many new containers make the garbage collector look at them. By default 700 do, as many as two
# dozen answers have that wait for the serving log; hardly any of them is part of a cycle.
_YOUNG = 20_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_worker(
    opening: Opening,
    settings: Settings,
    listening: socket.socket,
    *,
    slot: int = 0,
    folder: Path | None = None,
    parent: Pipe | None = None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until SIGTERM, SIGINT, or the end of the parent.

    `folder` is where workers publish what they count. `parent` is a pipe that the parent holds
    open; `started` is called once requests are answered.
    """
    sys.setswitchinterval(_TURN)
    log = Log(requests=settings.log_requests)
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [Handler(log)], False
    tokens = Tokens.find(settings.token_file)
    served = opening()
    app = App(
        served,
        settings.limits,
        tokens,
        Tallies(slot, folder),
        log,
        None if settings.mounting is None else settings.mounting(tokens, log),
        features=settings.features,
    )
    worker = Worker(app, parent, started, served.log if isinstance(served, Logged) else None)
    kernels.load()  # before anybody waits for an answer
    try:
        worker.run(sockets=[listening])
    finally:
        app.close()


def _soon(loop: asyncio.AbstractEventLoop) -> Soon:
    """Calls something once the loop is done with what is at hand.

    From the loop's own thread, where most answers are given, nothing has to wake it.
    """
    own = threading.get_ident()

    def soon(call: Callable[[], None]) -> None:
        (loop.call_soon if threading.get_ident() == own else loop.call_soon_threadsafe)(call)

    return soon


class Worker(uvicorn.Server):
    """uvicorn's server, with bounds, and an end that loses no request."""

    def __init__(
        self,
        app: App,
        parent: Pipe | None = None,
        started: Callable[[], None] = lambda: None,
        log: ServingLog | None = None,
    ) -> None:
        limits = app.limits
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=limits.keep_alive,
            )
        )
        self._app, self._parent, self._on_start, self._log = app, parent, started, log

    @property
    def _connections(self) -> list[Connection]:
        return list(self.server_state.connections)  # type: ignore[arg-type]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        if self._log is not None:
            self._log.write_aside(_soon(asyncio.get_running_loop()))
        await super().startup(sockets)
        # What was made so far stays; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG)
        if self._parent is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._parent.fileno(), self._orphaned)
        self._on_start()

    def _orphaned(self) -> None:
        assert self._parent is not None
        asyncio.get_running_loop().remove_reader(self._parent.fileno())
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Every tenth of a second; once a second look at connections, numbers and tokens."""
        if counter % round(SWEEP / _TICK) == 0:
            self._sweep()
        return await super().on_tick(counter)

    def _sweep(self) -> None:
        app, connections = self._app, self._connections
        now = asyncio.get_running_loop().time()
        for connection in connections:
            connection.look(now)
        app.tallies.connections = len(connections)
        try:
            app.tallies.publish()
        except OSError as error:  # a full disk must not end the worker
            app.log.write("warning", "metrics", message=error.strerror or "not written")
        if app.mounted is not None:
            app.mounted.refresh()
        if app.tokens.file is not None:
            try:
                app.tokens.refresh()
            except OptionError as error:
                app.log.write("warning", "tokens", message=f"{error}; the ones before stay")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what has begun, within a bound."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._app.limits.shutdown
        self._app.closing = True
        for _ in range(3):  # accept what waits to be accepted
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        while (connections := self._connections) and loop.time() < end and not self.force_exit:
            now = loop.time()
            for connection in connections:
                if connection.look(now) > LINGER:
                    connection.transport.close()
            await asyncio.sleep(_TICK / 4)
        for connection in self._connections:
            connection.transport.abort()
        for task in self.server_state.tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            self._app.tallies.publish()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the worker, which then ends as one that has done its work."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        before = {one: signal.signal(one, stop) for one in _SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
