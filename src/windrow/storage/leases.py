"""Leases: records that count for as long as the process that wrote them is at work.

    FOLDER/ID.json     the process, when it last gave a sign of life, for how long that counts;
                       and what the lease is about

A thread renews the leases of a process while it lives. A lease ends when it is released, and also

- at once if its process has ended, seen from the same host. As long as the process is there, its
  leases count, even if it is stopped or too busy to renew them;
- seen from elsewhere, when it has not been renewed for its length (a minute, unless said
  otherwise). The clocks of hosts that share a store have to agree to within a fraction of that.

A process that was silent for longer (its machine was asleep) continues renewing, but what it held
may be lost in between, seen from another host. Whoever relies on a lease has to notice that by
other means.

**Write, then look.** Of two processes that each write a lease and then read those of the others,
at least one sees the other: whoever looks last. Claims below, and holds of a shard, are made of
this, so they work on every store, with no lock and no conditional write.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from windrow.errors import StorageError
from windrow.storage.names import new_id
from windrow.storage.processes import Process
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store

SECONDS = 60.0  # for which a sign of life counts
BEATS = 6  # signs of life in that time
_PAUSE = 0.005  # seconds between two looks at the leases of others
_READS = 3  # more, of a lease that is there and cannot be read


@dataclass(frozen=True)
class Found:
    """A lease as it is found in a store. `about` is for those who use it."""

    id: str
    process: Process
    at: float  # the last sign of life, in seconds since the epoch
    seconds: float
    ended: bool
    about: Mapping[str, Any]

    def is_live(self) -> bool:
        if self.ended:
            return False
        if self.process == Process.current():
            return _heart.renews(self.id)  # else it could not be deleted when it was released
        running = self.process.is_running()
        return time.time() - self.at <= self.seconds if running is None else running


def found_leases(folder: Store) -> Iterator[Found]:
    """All leases in a folder, live or not."""
    for name in folder.names():
        record = _read(folder, name)
        try:
            if record is not None:
                yield Found(**{**record, "process": Process(**record["process"])})
        except (KeyError, TypeError):
            continue  # something else


def _read(folder: Store, name: str) -> dict[str, Any] | None:
    """A lease that is listed; None if it is gone, or damaged.

    While a lease is renewed, some stores give neither the old nor the new one for a moment.
    Overlooked, it would be claimed by another.
    """
    record = read_record(folder, name)
    for _ in range(_READS):
        if record is not None or not folder.exists(name):
            break
        time.sleep(_PAUSE)
        record = read_record(folder, name)
    return record


def live_leases(folder: Store) -> list[Found]:
    return [found for found in found_leases(folder) if found.is_live()]


def drop_leases(folder: Store, leases: Iterable[Found]) -> None:
    """Remove what is left of leases that have ended."""
    folder.delete([f"{lease.id}.json" for lease in leases])


@dataclass(eq=False)
class Lease:
    """A lease of this process, renewed until it is released."""

    folder: Store
    id: str
    about: Mapping[str, Any]
    seconds: float
    process: Process
    _ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @staticmethod
    def take(
        folder: Store,
        about: Mapping[str, Any],
        *,
        id: str | None = None,
        seconds: float | None = None,
    ) -> Lease:
        """Write a lease; when this returns, everyone can see it."""
        length = SECONDS if seconds is None else seconds
        lease = Lease(folder, id or new_id(), about, length, Process.current())
        _heart.add(lease)  # first: once it can be seen, it counts
        try:
            lease._write()
        except BaseException:
            lease.release()
            raise
        return lease

    @property
    def name(self) -> str:
        return f"{self.id}.json"

    def change(self, about: Mapping[str, Any]) -> None:
        """Say something else; when this returns, everyone can see it."""
        with self._lock:
            self.about = about
            self._write()

    def renew(self) -> None:
        with self._lock:
            if not self._ended:
                self._write()

    def release(self) -> None:
        """End the lease, and leave no trace of it."""
        if self._end():
            try:
                self._delete()
            except StorageError:
                _heart.delete_later(self)

    def end(self) -> None:
        """End the lease; that it was there, and until when, can still be read."""
        if self._end():
            self._write()

    def _end(self) -> bool:
        """Stop renewing; True if there is still something to say about it."""
        if self.process.pid != os.getpid():
            return False  # a fork's copy, whose lock may be held for ever by a thread of the parent
        _heart.remove(self)
        with self._lock:
            first = not self._ended
            self._ended = True
        return first

    def _delete(self) -> None:
        self.folder.delete([self.name])

    def _write(self) -> None:
        found = Found(self.id, self.process, time.time(), self.seconds, self._ended, self.about)
        write_record(self.folder, self.name, asdict(found))


class _Heart:
    """The thread that renews the leases of this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: set[Lease] = set()
        self._released: set[Lease] = set()  # but not deleted: the store did not answer
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        with self._changed:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, lease: Lease) -> None:
        with self._changed:
            self._leases.discard(lease)

    def delete_later(self, lease: Lease) -> None:
        """With the next beats, until the store lets it: to other processes it is a live lease."""
        with self._changed:
            self._released.add(lease)

    def renews(self, id: str) -> bool:
        with self._changed:
            return any(lease.id == id for lease in self._leases)

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            with self._changed:
                while (left := last + self._pause() - time.monotonic()) > 0:
                    self._changed.wait(min(left, SECONDS))
                leases, released = list(self._leases), list(self._released)
            last = time.monotonic()
            for lease in leases:
                # The store did not answer: again at the next beat.
                with suppress(StorageError, OSError):
                    lease.renew()
            for lease in released:
                with suppress(StorageError, OSError):
                    lease._delete()
                    self._released.discard(lease)

    def _pause(self) -> float:
        known = (lease.seconds for lease in (*self._leases, *self._released))
        return min(known, default=SECONDS) / BEATS


_heart = _Heart()


def _forget() -> None:
    """In the child of a fork: its parent renews what it holds."""
    global _heart
    _heart = _Heart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# Claims: of several processes, one at a time.

_LOOKS = 200  # at claims that are not decided yet, before giving way


def claim(folder: Store, what: str, *, seconds: float | None = None) -> Lease | None:
    """A lease on `what` that no two have at a time; None if another has it.

    A claim is first made, then, if no other is seen, decided. Of two that are made at the same
    time, at least one sees the other; one with a lower id waits for the other to be decided or
    withdrawn, one with a higher id gives way.
    """
    lease = Lease.take(folder, {"claim": what, "decided": False}, seconds=seconds)
    try:
        for _ in range(_LOOKS):
            others = [c for c in claims(folder, what) if c.id != lease.id and c.is_live()]
            if not others:
                lease.change({"claim": what, "decided": True})
                return lease
            if any(other.about["decided"] or other.id < lease.id for other in others):
                break
            time.sleep(_PAUSE)
    except BaseException:
        lease.release()
        raise
    lease.release()
    return None


def claims(folder: Store, what: str) -> list[Found]:
    """All claims on `what`, live or not."""
    return [found for found in found_leases(folder) if found.about.get("claim") == what]
