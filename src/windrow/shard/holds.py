"""Holds: as long as somebody reads a shard at a time, its history from there on stays.

    _holds/ID.json     a lease (see `storage.leases`) about the reader, the time that it reads at,
                       and the version of the log that it knew when it began

While a hold is live

- `since` does not pass its time, so compaction, which forgets only what is before `since`, keeps
  what the reader needs;
- `vacuum` deletes no part that was in the log at its version or later, however short the retention;
- the shard is not retired.

A hold is written, and then the log is read; those who take something away read the log, and then
the holds. Whoever looks last sees the other. In detail:

**vacuum** reads the log at version w, lists the files that w does not name, then reads the holds,
then deletes what it listed, except parts that were in a version from the lowest held one on. A hold
that it did not see was written later: so its reader, which reads the log once more before it reads
anything else, finds w or a later version, in which a part that w had lost is not.
Parts on their way into the log, which no version names yet, are kept if they belong to a compaction
that has said so: it writes its lease before its first part, and releases it after its commit. A
lease that vacuum did not see was written after the files were listed, or ended before; then the
commit is in the log, which is read again, and what came into it after w is kept.

**since** moves in two commits. The first announces a goal; then the holds are read; the second
moves `since` as far as they allow, and takes the announcement back. It fails, and all of this is
done again, if there was any other commit since the log was read. A reader writes its hold and reads
the log.
  - If it finds no goal beyond its time, then later ones are announced later, and those who
    announce them read the holds after that: they see this one.
  - If it finds such a goal, it makes an empty commit. Whoever had read the holds before it was
    written fails to commit, and reads them again.
In both cases, if `since` is not beyond the reader's time by then, it will not be until the hold
ends; otherwise the reader is told. No clock is involved, and nobody waits. Those who hold pay one
small file, and a commit only in the rare case that `since` is just moving.

**Retiring** is moving `since` beyond all times, if there is no hold at all.

Appends take no lease, for the sake of their speed: until they are committed, their parts are those
of a writer that died, once they are older than the retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from windrow.errors import StorageError, TimeRangeError
from windrow.shard.log import LATEST, Log
from windrow.shard.part import PartName
from windrow.shard.retention import still_young
from windrow.storage.leases import Found, Lease, drop_leases, found_leases, live_leases
from windrow.storage.store import Store

FOLDER = "_holds"


@dataclass(frozen=True)
class Held:
    """A hold as others see it."""

    reader: str
    time: int
    version: int


class Hold:
    """A hold of this process. `time` is the earliest time that can be read under it."""

    def __init__(self, log: Log, lease: Lease) -> None:
        self._log = log
        self._lease = lease

    @property
    def time(self) -> int:
        return int(self._lease.about["time"])

    @property
    def reader(self) -> str:
        return str(self._lease.about["reader"])

    def __repr__(self) -> str:
        return f"Hold({self._log.store.uri!r}, time={self.time}, reader={self.reader!r})"

    def advance(self, time: int) -> None:
        """Release history before `time`, and parts that only earlier reads needed."""
        self._log.refresh()
        if not self.time <= time <= max(self._log.upper, self.time):
            raise TimeRangeError(
                f"{self._log.store.uri}: a hold cannot move from {self.time} to {time}: it moves "
                f"forward, and not beyond upper ({self._log.upper})"
            )
        self._lease.change(_about(self.reader, time, self._log.version))


@contextmanager
def hold(log: Log, time: int, reader: str, seconds: float | None) -> Iterator[Hold]:
    """Hold the log's shard at `time`."""
    lease = Lease.take(_folder(log), _about(reader, time, log.version), seconds=seconds)
    try:
        log.refresh()
        log.fence(time)
        if time < log.since:
            raise log.retired_error() if log.retired else _too_late(log, time)
        if log.version > lease.about["version"]:
            lease.change(_about(reader, time, log.version))
        yield Hold(log, lease)
    finally:
        lease.release()


@contextmanager
def writing(log: Log, run: str) -> Iterator[None]:
    """Keep the parts of a run, which no version of the log names yet."""
    lease = Lease.take(_folder(log), {"run": run})
    try:
        yield
    finally:
        lease.release()


def _too_late(log: Log, time: int) -> TimeRangeError:
    return TimeRangeError(
        f"{log.store.uri}: history before {log.since} may be forgotten already, so it cannot be "
        f"held at {time}; hold a time in [{log.since}, {log.upper})"
    )


def live_holds(log: Log) -> list[Held]:
    """The holds that count, as of now."""
    return _held(live_leases(_folder(log)))


def _held(leases: Iterable[Found]) -> list[Held]:
    return [Held(**lease.about) for lease in leases if "run" not in lease.about]


def advance_since(log: Log, since: int) -> int:
    """Move `since` forward, no further than holds allow; where it is then."""

    def allowed() -> int:
        # A hold below `since` was too late, and its reader got an error.
        times = (held.time for held in live_holds(log))
        return min((time for time in times if time >= log.since), default=since)

    return log.move_since(since, allowed)


def retire(log: Log) -> bool:
    """Make the shard unreadable, unless somebody holds it."""
    log.move_since(LATEST, lambda: log.since if live_holds(log) else LATEST)
    return log.retired


def vacuum(log: Log, retention_hours: int) -> list[str]:
    """Delete files that are in no version of the log that somebody needs; their names."""
    log.refresh()  # a part that this handle does not know yet would pass for an orphan
    seen = log.version
    unused = log.unused(retention_hours)
    unused -= still_young(log, unused, retention_hours)
    folder = _folder(log)
    leases = list(found_leases(folder))
    live = [lease for lease in leases if lease.is_live()]
    log.refresh()
    oldest = min((held.version for held in _held(live)), default=seen)
    since_seen, since_oldest = log.added_and_removed(seen), log.added_and_removed(oldest)
    if since_seen is None or since_oldest is None:
        return []  # held for longer than Delta keeps the entries of its log
    unused -= since_seen[0] | since_oldest[1]
    runs = {lease.about.get("run") for lease in live}
    useless = sorted(name for name in unused if _run(name) not in runs)
    try:
        log.store.delete(useless)
        for inner in (folder, log.store.beneath("_delta_log")):
            inner.drop_half_written()
        drop_leases(folder, [lease for lease in leases if lease not in live])
    except StorageError as error:
        raise type(error)(
            f"{error}. Vacuum stopped there: what it deleted nobody needed; run it again for the "
            "rest"
        ) from error
    return useless


def _run(name: str) -> str | None:
    """The run of a part; None if it is another file."""
    try:
        return PartName.parse(name).run
    except StorageError:
        return None


def _about(reader: str, time: int, version: int) -> dict[str, object]:
    return {"reader": reader, "time": time, "version": version}


def _folder(log: Log) -> Store:
    return Store.at(f"{log.store.uri}/{FOLDER}", log.store.options_dict)
