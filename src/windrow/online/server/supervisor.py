"""Several workers: processes that are started, watched, started anew, and stopped together."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from windrow.errors import WindrowError
from windrow.online.server.listening import address_of, listen
from windrow.online.server.logs import Log
from windrow.online.server.settings import Opening, Settings
from windrow.online.server.worker import run_worker

# A fresh interpreter for each: nothing that the parent has loaded or opened is shared by accident.
_SPAWN = multiprocessing.get_context("spawn")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_READY = "ready"
_LONGEST_PAUSE = 5.0  # seconds before a worker that keeps ending is started again
_SETTLED = 30.0  # seconds after which a worker counts as one that works
_FAILED = 2


def serve(
    opening: Opening, settings: Settings, started: Callable[[str], None] = lambda address: None
) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit code. `started` is told the address."""
    sockets = listen(settings.host, settings.port, settings.workers)
    address = address_of(sockets[0])
    if settings.workers == 1:
        run_worker(opening, settings, sockets[0], started=lambda: started(address))
        return 0
    with tempfile.TemporaryDirectory(prefix="windrow-serve-") as folder:
        workers = Workers(opening, settings, sockets, Path(folder))
        return workers.run(lambda: started(address))


def _worker_process(
    opening: Opening,
    settings: Settings,
    listening: socket.socket,
    slot: int,
    folder: Path,
    pipe: Pipe,
) -> None:
    """What runs in a worker's process."""
    try:
        run_worker(
            opening,
            settings,
            listening,
            slot=slot,
            folder=folder,
            parent=pipe,
            started=lambda: pipe.send(_READY),
        )
    except WindrowError as error:
        print(f"windrow: {error}", file=sys.stderr)
        sys.exit(_FAILED)


@dataclass
class _Slot:
    """A place for a worker: its socket, and the process that has it now."""

    number: int
    listening: socket.socket
    process: BaseProcess | None = None
    pipe: Pipe | None = None
    ready: bool = False
    began: float = 0.0
    failures: int = 0
    not_before: float = field(default=0.0)


class Workers:
    """All workers of a server."""

    def __init__(
        self, opening: Opening, settings: Settings, sockets: list[socket.socket], folder: Path
    ) -> None:
        self._opening, self._settings, self._folder = opening, settings, folder
        self._slots = [_Slot(number, one) for number, one in enumerate(sockets)]
        self._log = Log()
        self._stop = False
        # Signals interrupt a wait through this pair.
        self._woken, self._wake = socket.socketpair()
        for one in (self._woken, self._wake):
            one.setblocking(False)

    def run(self, started: Callable[[], None]) -> int:
        """Until told to stop; a worker that cannot even start ends them all."""
        before = {one: signal.signal(one, self._told) for one in _SIGNALS}
        previous = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        told, code = False, 0
        try:
            while not self._stop:
                self._start_missing()
                self._wait()
                if (failed := self._reap()) is not None:
                    code = failed
                    break
                if not told and all(slot.ready for slot in self._slots):
                    told = True
                    started()
        finally:
            self._end()
            signal.set_wakeup_fd(previous)
            for one, handler in before.items():
                signal.signal(one, handler)
            self._woken.close()
            self._wake.close()
        return code

    def _told(self, number: int, frame: FrameType | None) -> None:
        self._stop = True

    def _start_missing(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if slot.process is None and now >= slot.not_before:
                self._start(slot)

    def _start(self, slot: _Slot) -> None:
        ours, theirs = _SPAWN.Pipe()
        slot.process = _SPAWN.Process(
            target=_worker_process,
            args=(self._opening, self._settings, slot.listening, slot.number, self._folder, theirs),
            name=f"windrow-worker-{slot.number}",
        )
        slot.pipe, slot.ready, slot.began = ours, False, time.monotonic()
        slot.process.start()
        theirs.close()

    def _wait(self) -> None:
        """For a signal, for word from a worker, or for the end of one."""
        running = [slot for slot in self._slots if slot.process is not None]
        ends = [slot.process.sentinel for slot in running if slot.process is not None]
        pipes = [slot.pipe for slot in running if slot.pipe is not None and not slot.ready]
        waiting = len(running) < len(self._slots)
        wait([self._woken, *ends, *pipes], timeout=0.05 if waiting else None)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _reap(self) -> int | None:
        """Notice who is ready and who has ended; the exit code if it is no use to go on."""
        for slot in self._slots:
            process, pipe = slot.process, slot.pipe
            if process is None or pipe is None:
                continue
            if not slot.ready and pipe.poll():
                with contextlib.suppress(EOFError, OSError):  # its exit code says how it ended
                    slot.ready = pipe.recv() == _READY
            if process.is_alive():
                continue
            process.join()
            was_ready, lived = slot.ready, time.monotonic() - slot.began
            pipe.close()
            slot.process, slot.pipe, slot.ready = None, None, False
            if self._stop:
                continue
            if not was_ready and slot.failures == 0:
                return process.exitcode if (process.exitcode or 0) > 0 else _FAILED
            slot.failures = 1 if lived > _SETTLED else slot.failures + 1
            pause = min(_LONGEST_PAUSE, 0.1 * 2 ** (slot.failures - 1))
            slot.not_before = time.monotonic() + pause
            self._log.write(
                "error",
                "worker",
                message=f"worker {slot.number} ended; it is started again",
                exit_code=process.exitcode,
            )
        return None

    def _end(self) -> None:
        """Stop all, and wait for them within a bound."""
        for slot in self._slots:
            slot.listening.close()  # first: nothing may wait here that nobody will accept
        running = [slot.process for slot in self._slots if slot.process is not None]
        for process in running:
            process.terminate()
        end = time.monotonic() + self._settings.limits.shutdown + 2.0
        for process in running:
            process.join(max(0.0, end - time.monotonic()))
        for process in running:
            if process.is_alive():
                self._log.write("error", "worker", message=f"{process.name} did not stop; killed")
                process.kill()
                process.join()
        for slot in self._slots:
            if slot.pipe is not None:
                slot.pipe.close()
