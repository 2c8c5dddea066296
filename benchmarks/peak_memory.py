"""The peak memory of a process and all that it starts, seen from outside."""

from __future__ import annotations

import threading
from collections.abc import Collection

SECONDS = 0.05  # between two looks


class PeakMemory:
    """While it is entered, the peak of a process and its descendants, in MiB; shared pages once.

    A process that has ended, or that nobody has waited for yet, holds nothing. One that runs and
    cannot be looked at makes the measurement fail, and so does one of `expected` (names, such as
    "java") that was never seen: a figure without it would be a wrong one.
    """

    def __init__(self, pid: int, expected: Collection[str] = ()) -> None:
        import psutil

        self._root = psutil.Process(pid)
        self._expected = set(expected)
        self._seen: set[str] = set()
        self._failed: Exception | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0.0

    def _watch(self) -> None:
        while not self._done.wait(SECONDS):
            try:
                self.look()
            except Exception as error:
                self._failed = error
                return

    def look(self) -> None:
        import psutil

        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return  # it has ended
        total = sum(self._held(process) for process in processes)
        self.peak = max(self.peak, total / 1024)

    def _held(self, process: object) -> int:
        """What a process holds, in KiB."""
        import psutil

        assert isinstance(process, psutil.Process)
        try:
            name = process.name()
            with open(f"/proc/{process.pid}/smaps_rollup") as file:
                held = sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except (ProcessLookupError, FileNotFoundError, psutil.NoSuchProcess):
            return 0  # it has no memory any more, whether or not it is a zombie by now
        except (OSError, psutil.Error):
            if _has_ended(process):
                return 0
            raise
        if held:
            self._seen.add(name)
        return held

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if kind is not None:
            return  # it failed by itself
        if self._failed is not None:
            raise RuntimeError("a process could not be measured") from self._failed
        missing = self._expected - self._seen
        if missing or not self._seen:
            raise RuntimeError(f"never seen: {sorted(missing) or 'any process'}; no figure then")


def _has_ended(process: object) -> bool:
    import psutil

    assert isinstance(process, psutil.Process)
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
