"""How much memory a task holds at most, and how much a run adds to the process that it runs in.

A task's process does nothing else meanwhile, so its peak is the task's. The driver's process is the
user's: what it held before is not the run's, and its own record of a peak is left alone.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes; 0 where there is none."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def peak_memory() -> int:
    """The most memory that this process has held since `reset_peak`, in bytes; 0 if unknown."""
    # VmHWM and not ru_maxrss, which a new process takes over from the one that started it.
    return _status("VmHWM")


def reset_peak() -> None:
    """Start over with `peak_memory`, from what the process holds now."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


@dataclass
class Growth:
    """How much more memory this process holds than at the start, at most, as far as is seen.

    The process's record of its peak tells if it is a new one; otherwise what it holds now and then
    does, whenever someone looks.
    """

    start: int = field(default_factory=lambda: _status("VmRSS"))
    before: int = field(default_factory=peak_memory)
    seen: int = 0

    def look(self) -> int:
        peak = peak_memory()
        held = peak if peak > self.before else _status("VmRSS")
        self.seen = max(self.seen, held - self.start)
        return self.seen
