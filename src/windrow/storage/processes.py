"""Which process wrote something, and whether it still runs.

A process is known by its host, its number and the time at which it started: numbers are used
again. A host is known by its name, its boot and its space of process numbers, so that containers
that share a name are not taken for one.
"""

from __future__ import annotations

import functools
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_UNKNOWN = ""  # the start of a process, where the system does not tell


@dataclass(frozen=True)
class Process:
    """A process of some host; `started` is in the system's own units."""

    host: str
    pid: int
    started: str

    @staticmethod
    def current() -> Process:
        pid = os.getpid()
        return Process(this_host(), pid, _start(pid) or _UNKNOWN)

    def is_running(self) -> bool | None:
        """Whether it runs (stopped or not); None if that cannot be seen from here.

        A process that has ended, but whose parent has not noticed yet, does not run.
        """
        if self.host != this_host():
            return None
        start = _start(self.pid)
        if start is None:
            return False
        # Without a start, the number may be another process's by now.
        return None if _UNKNOWN in (start, self.started) else start == self.started


@functools.cache
def this_host() -> str:
    found = [socket.gethostname()]
    with suppress(OSError):
        found.append((_PROC / "sys/kernel/random/boot_id").read_text().strip())
        found.append(os.readlink(_PROC / "self/ns/pid"))
    return " ".join(found)


def _start(pid: int) -> str | None:
    """When a process started; None if there is none of this number."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:  # there is none, or it is hidden, or this system has no such files
        return _UNKNOWN if _is_there(pid) else None
    state, *fields = text.rpartition(")")[2].split()  # before it, the name may hold anything
    return None if state in "ZX" else fields[18]


def _is_there(pid: int) -> bool:
    if os.name != "posix":
        return True  # nobody can tell; elsewhere, signal 0 is not a question
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there, and someone else's
    return True
