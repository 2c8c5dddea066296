"""Processes whose work may take longer, so that requests on the same machine do not."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_NICE = 19  # the lowest priority
_GROUP = Path("/proc/self/autogroup")
_LAST_PROCESSOR = 36  # of the fields after the name
_PROCESSORS = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()


def stay_off(pid: int) -> None:
    """Run on other processors than the one on which the main thread of a process was seen last.

    A processor that has nothing to do for microseconds, between two requests, would fetch this
    process, and the next request would have to take its place.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        others = _PROCESSORS - {int(fields[_LAST_PROCESSOR])}
        if others and others != os.sched_getaffinity(0):
            os.sched_setaffinity(0, others)
    except (OSError, AttributeError):  # it has ended; or not Linux
        return


def give_way() -> None:
    """Let other processes go first, from now on, and so with all that this one starts.

    Linux may divide processors between sessions first, and only then between the processes of each.
    A process that leads a session lowers that too; any other leaves it to its session.
    """
    os.nice(_NICE)
    if hasattr(os, "SCHED_IDLE"):
        # What wakes up is put where only such processes run, as if nobody ran there.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # not Linux, or it does not group
            _GROUP.write_text(str(_NICE))
