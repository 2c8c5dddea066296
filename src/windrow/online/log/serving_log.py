"""A serving log: answers in, rows of tables out. One for each process that serves.

`take` is on the path of a request: it counts, decides and puts a reference into a list. A thread
hands what was taken to a writer, which is in this process, a little at a time, or in one of its own
(`write_aside`, for servers). The log holds a bounded number of values, on their way to a table or
waiting for a store that fails; what comes when it is full is dropped, and counted.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

from windrow.errors import DefinitionError, OptionError, WindrowError
from windrow.online.fetched import Description, Fetched
from windrow.online.log.aside import AsideWriter
from windrow.online.log.columns import LogColumns, Taken, size_of
from windrow.online.log.counts import Count, Place
from windrow.online.log.upkeep import tend_aside
from windrow.online.log.writing import Answer, Done, LogWriter, Waiting, Writer
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.time import HOUR, now_millis, parse_length

VALUES = 500_000  # held in memory, at most
EVERY = 5.0  # seconds between two commits
ROWS = 50_000  # that are committed before that
_PAUSE = 0.0  # seconds between two columns: the other threads have their turn, and this one next
# Seconds between two looks at what waits: a table costs more than a row of it, but handing over
# what half a second brought takes several milliseconds of the interpreter, which requests wait for.
_LOOK = 0.05
_AT_EXIT = 5.0  # seconds for what is left when a process ends
_UPKEEP = 3600.0  # seconds between two looks at whether files can be merged or removed
# A fresh interpreter: merging must not share this one with requests.
_SPAWN = multiprocessing.get_context("spawn")

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
        self._taken: deque[Answer] = deque()
        self._waiting: deque[Waiting] = deque()  # the same, packed
        self._soon: Soon | None = None
        self._held = 0  # values, of those that wait and those that the writer has
        self._number = 0
        self._seen: dict[Place, Count] = {}  # since they were last written
        self._handed: dict[Place, Count] = {}  # while they are written
        self._totals: dict[str, Count] = {}
        self._known: dict[tuple[str, str], LogColumns | None] = {}
        self._writer: Writer = LogWriter(root, self.writer, now, lambda: time.sleep(_PAUSE))
        self._rows = 0  # that wait to be written
        self._wake, self._stop = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._work = threading.Lock()  # held by whoever converts and writes
        self._failing = False
        self._tending: BaseProcess | None = None

    def write_aside(self, soon: Soon | None = None) -> None:
        """From now on a process of its own writes, since requests need this one's interpreter.

        `soon` lets an event loop call something once it has sent the answers at hand: then they are
        packed for that process, so that no thread has to take the interpreter for it.
        """
        if self._thread is None:
            self._writer, self._soon = AsideWriter(self._root, self.writer), soon

    # On the path of a request

    def take(self, fetched: Fetched, asked: bool, describe: Callable[[str], Description]) -> None:
        """An answer was given; `asked` says whether its time was the request's.

        It is read later: what others may change of it is to be copied before.
        """
        key = fetched.name, fetched.version
        columns = self._known.get(key)
        if columns is None and key not in self._known:
            columns = self._describe(key, describe)
        at, size = fetched.at, size_of(len(fetched.keys), len(fetched.columns))
        number = self._admitted(key, at, size, columns is not None)
        if number:
            assert columns is not None
            self._keep((columns, number, fetched, asked, self._now(), size))

    def failed(
        self, description: Description, keys: Sequence[Mapping[str, Any]], at: int | None, why: str
    ) -> None:
        """A request could not be answered, since a record is damaged."""
        key = description.name, description.version
        columns = self._known.setdefault(key, LogColumns(description))
        clock = self._now()
        time, asked = clock if at is None else at, at is not None
        size = size_of(len(keys), 0)
        number = self._admitted(key, time, size, columns is not None)
        if number:
            assert columns is not None
            given = [dict(one) for one in keys]
            answer = Taken(number, time, asked, clock, given, (), (), (), size, why)
            self._waiting.append((key, time, size, self._writer.pack_failed(answer)))
            self._start()

    def _admitted(self, key: tuple[str, str], at: int, size: int, known: bool) -> int:
        """Count a request; its number if it is to be logged, otherwise 0."""
        place = (*key, at - at % HOUR)
        chosen = self.rate == 1.0 or self._draw() < self.rate
        with self._lock:
            count = self._seen.get(place)
            if count is None:
                count = self._seen[place] = Count()
            count.requests += 1
            if not chosen:
                count.sampled_out += 1
                return 0
            if self._held + size > self._most or not known:
                count.dropped += 1
                return 0
            self._held += size
            self._number += 1
            return self._number

    def _keep(self, answer: Answer) -> None:
        first = not self._taken
        self._taken.append(answer)
        if first and self._soon is not None:
            try:
                self._soon(self._pack)
            except RuntimeError:  # the event loop has ended
                self._soon = None
        if self._thread is None:
            self._start()

    def _describe(
        self, key: tuple[str, str], describe: Callable[[str], Description]
    ) -> LogColumns | None:
        """The types of an answer's columns, once for each version."""
        name, version = key
        description = describe(name)
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
            self._wake.wait(_LOOK)
            with self._work:
                self._convert()
                late = time.monotonic() >= due
                if late or (self._rows >= ROWS and not self._failing):
                    self._write()
                    due = time.monotonic() + self._every
            if time.monotonic() >= tended:
                tended = time.monotonic() + _UPKEEP
                self._tend()

    def _tend(self) -> None:
        """Let another process merge files and remove old ones."""
        if self._tending is None or not self._tending.is_alive():
            args = (self._root, self._longest)
            self._tending = _SPAWN.Process(target=tend_aside, args=args, daemon=True)
            self._tending.start()

    def flush(self) -> None:
        """Write what was taken so far; a StorageError if that fails."""
        with self._work:
            self._convert()
            self._write(raising=True)

    def close(self, timeout: float = _AT_EXIT) -> None:
        """Write what is left, and end. What fails is reported, and never raised."""
        _OPEN.discard(self)
        self._stop = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        if not self._work.acquire(timeout=timeout):
            self.report("the serving log could not write what was left in time")
            return
        try:
            self._convert()
            self._write(closed=True)
        finally:
            self._writer.close()
            self._work.release()

    def _pack(self) -> None:
        """Let the writer pack what was taken; whoever comes to an answer first does so."""
        while True:
            try:
                answer = self._taken.popleft()
            except IndexError:
                return
            _, _, fetched, _, _, size = answer
            key, packed = (fetched.name, fetched.version), self._writer.pack(answer)
            self._waiting.append((key, fetched.at, size, packed))

    def _convert(self) -> None:
        """Hand all that waits to the writer."""
        self._pack()
        by_table: dict[tuple[str, str], list[Waiting]] = {}
        while self._waiting:
            one = self._waiting.popleft()
            by_table.setdefault(one[0], []).append(one)
        for key, several in by_table.items():
            columns = self._known[key]
            assert columns is not None
            self._take_note(self._writer.add(columns, several))

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
            self._failing = False
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
            self._rows = done.rows
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
