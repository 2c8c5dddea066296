"""A serving log: answers in, rows of tables out. One for each process that serves.

`take` is on the path of a request: it puts a reference into a list. What was taken is counted, and
handed to a writer if it is to be logged, some answers at a time. The writer is a thread in this
process, or a process of its own (`write_aside`, for servers). The log holds a bounded number of
values, on their way to a table or waiting for a store that fails; what comes when it is full is
dropped, and counted.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import random
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.errors import DataError, DefinitionError, OptionError, WindrowError
from windrow.online.fetched import Description, Fetched, Outcome, Request
from windrow.online.log.aside import AsideWriter
from windrow.online.log.columns import LogColumns, Taken, size_of
from windrow.online.log.counts import Count, Place
from windrow.online.log.upkeep import start_tending
from windrow.online.log.writing import (
    Answers,
    Done,
    LogWriter,
    Writer,
)
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.time import HOUR, now_millis, parse_length

VALUES = 2_000_000  # held in memory, at most
EVERY = 5.0  # seconds between two commits
FULL = 1_000_000  # values that are committed before that
_PAUSE = 0.0  # seconds between two columns: the other threads have their turn, and this one next
# Answers after which an event loop counts and packs them: together they cost less than one by one,
# and many more would hold up its next turn.
TOGETHER = 64
_AT_EXIT = 5.0  # seconds for what is left when a process ends
_UPKEEP = 3600.0  # seconds between two looks at whether files can be merged or removed

Describe = Callable[[str], Description]
Report = Callable[[str], None]
Soon = Callable[[Callable[[], None]], Any]  # calls it soon, as an event loop does


def check_rate(rate: float) -> float:
    """A share of requests."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise OptionError(f"log_rate is {rate!r}; give a share of requests, from 0 to 1")
    return float(rate)


def check_keep(keep: str | None) -> int | None:
    """Milliseconds for which what was logged is kept; None: for ever."""
    if keep is None:
        return None
    try:
        return parse_length(keep, "log_keep")
    except DefinitionError as error:
        raise OptionError(str(error)) from error


@dataclass(frozen=True)
class Figures:
    """Of one name, since the log was opened: requests, and what became of them."""

    requests: int = 0
    logged: int = 0
    sampled_out: int = 0
    dropped: int = 0


# Requests that were answered together, what came of them, when, and who describes what they are of.
_Given = tuple[Sequence[Request], Sequence[Outcome], int, Describe]


@dataclass(slots=True)
class _Same:
    """Answers of one name and version; see `Answers`."""

    describe: Describe
    found: list[Fetched] = field(default_factory=list)
    asked: list[bool] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)


class ServingLog:
    """Logs a share `rate` of all requests beneath a project's root.

    Rows that are older than `keep` milliseconds are removed (None: never).
    """

    def __init__(
        self,
        root: Store,
        rate: float = 1.0,
        *,
        keep: int | None = None,
        every: float = EVERY,
        values: int = VALUES,
        report: Report | None = None,
        now: Callable[[], int] = now_millis,
        draw: Callable[[], float] | None = None,
    ) -> None:
        self.writer = new_id()
        self.rate = check_rate(rate)
        self.report: Report = report or logging.getLogger("windrow").warning
        self._root, self._every, self._most, self._now = root, every, values, now
        self._longest = keep
        self._draw = draw or random.Random().random
        self._lock = threading.Lock()
        self._taken: deque[_Given] = deque()  # not counted yet
        self._unsettled = 0  # requests, of those
        self._soon: Soon | None = None
        self._settles_soon = False
        self._held = 0  # values, of those that wait and those that the writer has
        self._number = 0
        self._seen: dict[Place, Count] = {}  # since they were last written
        self._handed: dict[Place, Count] = {}  # while they are written
        self._totals: dict[str, Count] = {}
        self._known: dict[tuple[str, str], LogColumns | None] = {}
        self._writer: Writer = LogWriter(root, self.writer, now, lambda: time.sleep(_PAUSE))
        self._full = False  # so much is held that it is to be committed at once
        self._wake, self._stop = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._work = threading.Lock()  # held by whoever converts and writes
        self._failing = False
        self._tending: subprocess.Popen[bytes] | None = None

    def write_aside(self, soon: Soon | None = None) -> None:
        """From now on a process of its own writes, since requests need this one's interpreter.

        `soon` lets an event loop call something once it has sent the answers at hand: then some are
        counted and packed together, and no thread has to take the interpreter for it. Where few are
        given, the log's thread does so, after a moment: timers would cost each request more.
        """
        if self._thread is None:
            self._writer, self._soon = AsideWriter(self._root, self.writer), soon

    # On the path of a request

    def take(
        self, requests: Sequence[Request], outcomes: Sequence[Outcome], describe: Describe
    ) -> None:
        """Requests were answered.

        What came of them is read later: what others may change of it is to be copied before.
        """
        self._taken.append((requests, outcomes, self._now(), describe))
        self._unsettled += len(requests)
        if self._thread is None:
            self._start()
        if self._soon is None:
            self._settle()
        elif self._unsettled >= TOGETHER and not self._settles_soon:
            self._settles_soon = True
            try:
                self._soon(self._settle)
            except RuntimeError:  # the event loop has ended
                self._soon = None
                self._settle()

    def _settle(self) -> None:
        """Count the requests that were answered, and keep the answers that are to be logged."""
        self._settles_soon, self._unsettled = False, 0
        answers: dict[tuple[str, str], _Same] = {}
        name = version = None
        while True:
            try:
                requests, outcomes, clock, describe = self._taken.popleft()
            except IndexError:
                break
            for request, found in zip(requests, outcomes, strict=True):
                if isinstance(found, Fetched):
                    if found.name is not name or found.version is not version:
                        name, version = found.name, found.version
                        same = answers.setdefault((name, version), _Same(describe))
                    same.found.append(found)
                    same.asked.append(request.at is not None)
                    same.clocks.append(clock)
                elif isinstance(found, DataError):
                    # What should have been served, and was not, is part of what is compared.
                    self._try(request.name, self._keep_failed, request, str(found), clock, describe)
        for key, same in answers.items():
            self._try(key[0], self._keep, key, same)

    def _try(self, name: str, keep: Callable[..., None], *args: Any) -> None:
        """No request fails because of its log."""
        try:
            keep(*args)
        except Exception as error:
            self.report(f"the serving log leaves out answers of {name}: {error}")

    def _keep_failed(self, request: Request, why: str, clock: int, describe: Describe) -> None:
        """A request could not be answered, since a record is damaged."""
        description = describe(request.name)
        key = description.name, description.version
        columns = self._known.setdefault(key, LogColumns(description))
        time, asked = clock if request.at is None else request.at, request.at is not None
        size = size_of(len(request.keys), 0)
        number, places, _, hours = self._admitted(key, [time], [size], columns is not None)
        if places:
            assert columns is not None
            keys = [dict(one) for one in request.keys]
            answer = Taken(number, time, asked, clock, keys, (), (), (), "", why)
            with self._handing_over(key, size, hours):
                self._writer.take_failed(columns, answer, size, hours)

    def _keep(self, key: tuple[str, str], same: _Same) -> None:
        columns = self._known.get(key)
        if columns is None and key not in self._known:
            columns = self._describe(key, same.describe)
        found, asked, clocks = same.found, same.asked, same.clocks
        times = [one.at for one in found]
        sizes = [size_of(len(one.keys), len(one.columns)) for one in found]
        first, places, size, hours = self._admitted(key, times, sizes, columns is not None)
        if not places:
            return
        assert columns is not None
        if len(places) < len(found):
            found = [found[place] for place in places]
            asked = [asked[place] for place in places]
            clocks = [clocks[place] for place in places]
        with self._handing_over(key, size, hours):
            self._writer.take(Answers(columns, first, found, asked, clocks, size, hours))

    def _admitted(
        self, key: tuple[str, str], times: Sequence[int], sizes: Sequence[int], known: bool
    ) -> tuple[int, Sequence[int], int, dict[int, int]]:
        """Count requests. Of those that are to be logged: the number of the first, which the others
        follow, their places, the values they hold, and how many are of each hour."""
        places: list[int] = []
        hours: dict[int, int] = {}
        held, last, count = 0, -1, Count()
        earliest = min(times)
        with self._lock:
            room = self._most - self._held if known else -1
            hour = earliest - earliest % HOUR
            if self.rate == 1.0 and max(times) < hour + HOUR and (size := sum(sizes)) <= room:
                self._count_of((*key, hour)).requests += len(times)  # the same, all at once
                first = self._number + 1
                self._number += len(times)
                self._held += size
                return first, range(len(times)), size, {hour: len(times)}
            for place, (at, size) in enumerate(zip(times, sizes, strict=True)):
                hour = at - at % HOUR
                if hour != last:
                    last, count = hour, self._count_of((*key, hour))
                count.requests += 1
                if self.rate < 1.0 and self._draw() >= self.rate:
                    count.sampled_out += 1
                elif held + size > room:
                    count.dropped += 1
                else:
                    held += size
                    places.append(place)
                    hours[hour] = hours.get(hour, 0) + 1
            first = self._number + 1
            self._number += len(places)
            self._held += held
        return first, places, held, hours

    def _count_of(self, place: Place) -> Count:
        found = self._seen.get(place)
        if found is None:
            found = self._seen[place] = Count()
        return found

    def _describe(self, key: tuple[str, str], describe: Describe) -> LogColumns | None:
        """The types of an answer's columns, once for each version."""
        name, version = key
        try:
            description = describe(name)
        except WindrowError as error:
            self.report(f"the serving log leaves out an answer of {name}: {error}")
            return None
        if description.version != version:  # it was replaced this very moment
            return None
        found = LogColumns(description)
        try:
            found.schema  # noqa: B018  what cannot be logged is told here
        except WindrowError as error:
            self.report(f"the serving log leaves out {name}: {error}")
            self._known[key] = None
            return None
        self._known[key] = found
        return found

    def figures(self) -> dict[str, Figures]:
        """By name, since the log was opened."""
        self._settle()
        with self._lock:
            totals: dict[str, Count] = {}
            for name, count in self._totals.items():
                totals.setdefault(name, Count()).add(count)
            for (name, _, _), count in (*self._seen.items(), *self._handed.items()):
                totals.setdefault(name, Count()).add(count)
            return {
                name: Figures(one.requests, one.logged, one.sampled_out, one.dropped)
                for name, one in totals.items()
            }

    # In the background

    @contextlib.contextmanager
    def _handing_over(
        self, key: tuple[str, str], size: int, hours: Mapping[int, int]
    ) -> Iterator[None]:
        """What the writer does not take is dropped, and counted."""
        try:
            yield
        except Exception:
            with self._lock:
                self._held -= size
                for hour, number in hours.items():
                    self._count_of((*key, hour)).dropped += number
            raise
        if self._held >= FULL and not self._full:
            self._full = True
            self._wake.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._stop:
                return
            self._thread = threading.Thread(target=self._run, name="serving-log", daemon=True)
        _OPEN.add(self)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic() + self._every
        # Workers that were started together take turns.
        tended = time.monotonic() + random.random() * _UPKEEP
        while not self._stop:
            self._wake.wait(self._writer.look)
            self._wake.clear()
            with self._work:
                self._pass_on()
                late = time.monotonic() >= due
                if late or (self._full and not self._failing):
                    self._write()
                    due = time.monotonic() + self._every
            if time.monotonic() >= tended:
                tended = time.monotonic() + _UPKEEP
                self._tend()

    def _tend(self) -> None:
        """Let another process merge files and remove old ones."""
        if self._tending is None or self._tending.poll() is not None:
            try:
                self._tending = start_tending(self._root, self._longest)
            except OSError as error:
                self.report(f"the files of the serving log are not merged: {error}")

    def flush(self) -> None:
        """Write what was taken so far; a StorageError if that fails."""
        with self._work:
            self._pass_on()
            self._write(raising=True)

    def close(self, timeout: float = _AT_EXIT) -> None:
        """Write what is left, and end. What fails is reported, and never raised."""
        _OPEN.discard(self)
        self._stop = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._tending is not None:
            self._tending.kill()  # what it began, another one does again
            self._tending.wait()
        if not self._work.acquire(timeout=timeout):
            self.report("the serving log could not write what was left in time")
            return
        try:
            self._pass_on()
            self._write(closed=True)
        finally:
            self._writer.close()
            self._work.release()

    def _pass_on(self) -> None:
        self._settle()
        self._take_note(self._writer.work())

    def _write(self, *, raising: bool = False, closed: bool = False, last: bool = False) -> None:
        """Commit rows, then what was counted. What fails stays, and is tried again."""
        with self._lock:
            seen, self._seen = self._seen, {}
            self._handed = seen
            ended = {*self._totals, *(name for name, _, _ in seen)} if closed else set()
        done = self._writer.write(seen, closed=ended)
        with self._lock:
            self._handed = {}
            for place, count in seen.items():
                self._count(place, count, done.lost)
        self._take_note(done, again=done.lost)
        if done.lost and closed and not last:  # there is no next time
            self._write(closed=True, last=True)
        elif done.failure is None:
            self._failing = self._full = False
        elif raising:
            raise done.failure
        else:
            if not self._failing or closed:
                self.report(f"the serving log cannot be written: {done.failure}")
            self._failing = True

    def _take_note(self, done: Done, again: bool = True) -> None:
        """What came of answers; `again` if no store was told of it."""
        for message in done.messages:
            self.report(message)
        with self._lock:
            self._held -= done.freed
            for place, count in done.counts.items():
                self._count(place, count, again)

    def _count(self, place: Place, count: Count, again: bool) -> None:
        """Add it to what a store is still to be told of, or to what it knows."""
        if again:
            self._seen.setdefault(place, Count()).add(count)
        else:
            self._totals.setdefault(place[0], Count()).add(count)


_OPEN: weakref.WeakSet[ServingLog] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for log in list(_OPEN):
        log.close()
