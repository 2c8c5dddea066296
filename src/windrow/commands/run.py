"""`windrow tick` and `windrow run`: views are brought up to date, once or as data arrive."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from windrow.errors import WindrowError
from windrow.project import Project

EVERY = 1.0  # seconds between two looks at the sources
_BLINK = 0.1  # seconds, after which it is noticed that somebody wants to stop


def tick(project: Project) -> None:
    """Bring all views up to date, and say what was done."""
    print(project.tick(), flush=True)


@dataclass
class Stop:
    """Says that it is enough. A plain flag: no handler of a signal has to wait for a lock."""

    asked: bool = False

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked."""
        end = time.monotonic() + seconds
        while not self.asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _BLINK))


def run(project: Project, every: float = EVERY, stop: Stop | None = None) -> None:
    """Tick whenever sources or tables have changed, until Ctrl-C, SIGTERM, or `stop` is asked.

    A line for each tick. What goes wrong is told once, and tried again with the next look: a file
    that cannot be read may be replaced.
    """
    stop = stop or Stop()
    project.spark  # noqa: B018  it starts here: Spark has a way of its own with Ctrl-C
    with stopped_by_signals(stop):
        at, told = -1, ""
        while not stop.asked:
            try:
                done = project.tick()
                if done.time != at:
                    print(done, flush=True)
                at, told = done.time, ""
            except WindrowError as error:
                if str(error) != told:
                    print(f"windrow: {error}", file=sys.stderr, flush=True)
                told = str(error)
            stop.wait(every)


@contextlib.contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """A block in which Ctrl-C and SIGTERM ask `stop`: a tick that is at work is finished.

    The second Ctrl-C interrupts that, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    names = (signal.SIGINT, signal.SIGTERM)

    def stopping(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {name: signal.signal(name, stopping) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
