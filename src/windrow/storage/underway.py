"""What is under way in a project, for others to see: a lease for each run, with how far it is.

    running/ID.json      a lease about what runs, its stage, and how many of its tasks are done

A run that is killed takes its note with it: the lease ends with the process. A note that cannot be
written is left out; the work goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from windrow.errors import StorageError
from windrow.storage.leases import Lease, drop_leases, found_leases
from windrow.storage.store import Store

FOLDER = "running"


@dataclass(frozen=True)
class Progress:
    """How far a run is: `done` of `of` tasks of its stage. Times are milliseconds."""

    what: str
    began: int
    stage: str = ""
    stage_began: int = 0
    rows: int | None = None
    done: int = 0
    of: int = 0


@dataclass(frozen=True)
class UnderWay:
    """A run as others see it."""

    progress: Progress
    pid: int
    host: str


class Note:
    """The note of a run of this process."""

    def __init__(self, lease: Lease | None, progress: Progress) -> None:
        self._lease, self._progress = lease, progress

    def stage(self, title: str, rows: int | None) -> None:
        """A stage begins."""
        self._say(Progress(self._progress.what, self._progress.began, title, _now(), rows))

    def done(self, done: int, of: int) -> None:
        """So many tasks of the stage are done."""
        if (done, of) != (self._progress.done, self._progress.of):
            self._say(replace(self._progress, done=done, of=of))

    def _say(self, progress: Progress) -> None:
        self._progress = progress
        if self._lease is not None:
            with suppress(StorageError):
                self._lease.change(asdict(progress))


@contextmanager
def noted(root: Store, what: str) -> Iterator[Note]:
    """A block of code during which others see that `what` is under way."""
    progress = Progress(what, _now())
    lease: Lease | None = None
    with suppress(StorageError):
        folder = root.beneath(FOLDER)
        drop_leases(folder, [one for one in found_leases(folder) if not one.is_live()])
        lease = Lease.take(folder, asdict(progress))
    try:
        yield Note(lease, progress)
    finally:
        if lease is not None:
            lease.release()


def under_way(root: Store) -> list[UnderWay]:
    """What runs now, the oldest first."""
    found = []
    for one in found_leases(root.beneath(FOLDER)):
        with suppress(TypeError, KeyError):  # of another release
            if one.is_live():
                host = one.process.host.split()[0]
                found.append(UnderWay(Progress(**one.about), one.process.pid, host))
    return sorted(found, key=lambda one: one.progress.began)


def _now() -> int:
    return int(time.time() * 1000)
