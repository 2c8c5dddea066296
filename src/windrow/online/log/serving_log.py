"""A serving log: answers in, rows of tables out. One for each process that serves.

`take` is on the path of a request: it counts, decides and puts a reference into a list. All else is
done by a thread, a little at a time, since it shares the interpreter with requests. The log holds a
bounded number of values, on their way to a table or waiting for a store that fails; what comes when
it is full is dropped, and counted.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import DefinitionError, OptionError, StorageError, WindrowError
from windrow.online.fetched import Description, Fetched
from windrow.online.log.appending import Appender
from windrow.online.log.columns import LogColumns, Taken, size_of, taken_of
from windrow.online.log.counts import COUNTS, Count, Place, counts_table, hour_of
from windrow.online.log.places import counts_table_of, log_table
from windrow.online.log.upkeep import tend_aside
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.time import HOUR, now_millis, parse_length

VALUES = 500_000  # held in memory, at most
EVERY = 5.0  # seconds between two commits
ROWS = 50_000  # that are committed before that
_STEP = 20_000  # values that are converted together
_PAUSE = 0.0  # seconds between two columns: the other threads have their turn, and this one next
_LOOK = 0.5  # seconds between two looks at what was taken: a table costs more than a row of it
_AT_EXIT = 5.0  # seconds for what is left when a process ends
_UPKEEP = 3600.0  # seconds between two looks at whether files can be merged or removed
# A fresh interpreter: merging must not share this one with requests.
_SPAWN = multiprocessing.get_context("spawn")

Report = Callable[[str], None]


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


@dataclass
class _Table:
    """The rows of one name and version on their way."""

    columns: LogColumns
    appender: Appender
    rows: list[pa.Table] = field(default_factory=list)
    counts: dict[Place, Count] = field(default_factory=dict)  # of `rows`
    written: dict[Place, Count] = field(default_factory=dict)  # of files that wait for a commit
    values: int = 0


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
        self._taken: list[Taken] = []
        self._held = 0  # values, in `_taken` and in tables
        self._number = 0
        self._seen: dict[Place, Count] = {}  # since they were last written
        self._totals: dict[str, Count] = {}
        self._known: dict[tuple[str, str], LogColumns | None] = {}
        self._tables: dict[tuple[str, str], _Table] = {}
        self._unwritten: dict[Place, Count] = {}  # counts that a store did not take
        self._names: dict[str, Appender] = {}  # the tables of counts
        self._ahead: int | None = None
        self._wake, self._stop = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._work = threading.Lock()  # held by whoever converts and writes
        self._failing = False
        self._tending: BaseProcess | None = None

    # On the path of a request

    def take(self, fetched: Fetched, asked: bool, describe: Callable[[str], Description]) -> None:
        """An answer was given; `asked` says whether its time was the request's.

        It is read later: what others may change of it is to be copied before.
        """
        name, version = fetched.name, fetched.version
        if (name, version) not in self._known:
            self._describe((name, version), describe)
        size = size_of(len(fetched.keys), len(fetched.columns))
        number = self._admitted(name, version, fetched.at, size)
        if number:
            self._keep(taken_of(number, fetched, asked, self._now(), size))

    def failed(
        self, description: Description, keys: Sequence[Mapping[str, Any]], at: int | None, why: str
    ) -> None:
        """A request could not be answered, since a record is damaged."""
        name, version = description.name, description.version
        self._known.setdefault((name, version), LogColumns(description))
        time, clock = self._now() if at is None else at, self._now()
        size = size_of(len(keys), 0)
        number = self._admitted(name, version, time, size)
        if number:
            copies = [dict(key) for key in keys]
            asked = at is not None
            self._keep(
                Taken(number, name, version, time, asked, clock, copies, (), (), (), (), size, why)
            )

    def _admitted(self, name: str, version: str, at: int, size: int) -> int:
        """Count a request; its number if it is to be logged, otherwise 0."""
        place = (name, version, at - at % HOUR)
        chosen = self.rate == 1.0 or self._draw() < self.rate
        with self._lock:
            count = self._seen.get(place)
            if count is None:
                count = self._seen[place] = Count()
            count.requests += 1
            if not chosen:
                count.sampled_out += 1
                return 0
            if self._held + size > self._most or self._known.get((name, version)) is None:
                count.dropped += 1
                return 0
            self._held += size
            self._number += 1
            return self._number

    def _keep(self, taken: Taken) -> None:
        with self._lock:
            self._taken.append(taken)
        if self._thread is None:
            self._start()

    def _describe(self, key: tuple[str, str], describe: Callable[[str], Description]) -> None:
        """The types of an answer's columns, once for each version."""
        name, version = key
        found: LogColumns | None = None
        description = describe(name)
        if description.version == version:  # else it was replaced this very moment
            found = LogColumns(description)
            try:
                found.schema  # noqa: B018  what cannot be logged is told here
            except WindrowError as error:
                self.report(f"the serving log leaves out {name}: {error}")
                found = None
            self._known[key] = found

    def figures(self) -> dict[str, Figures]:
        """By name, since the log was opened."""
        with self._lock:
            totals: dict[str, Count] = {}
            for name, count in self._totals.items():
                totals.setdefault(name, Count()).add(count)
            for (name, _, _), count in self._seen.items():
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
                full = any(sum(r.num_rows for r in t.rows) >= ROWS for t in self._tables.values())
                late = time.monotonic() >= due
                if late or (full and not self._failing):
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
            self._convert(lambda: None)
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
            self._convert(lambda: None)
            self._write(closed=True)
        finally:
            self._work.release()

    def _convert(self, breathe: Callable[[], None] = lambda: time.sleep(_PAUSE)) -> None:
        """Turn what was taken into Arrow, a step at a time."""
        taken: list[Taken] = []
        with self._lock:
            taken, self._taken = self._taken, taken
        for (name, version), several in _by_table(taken).items():
            ends = np.cumsum([one.size for one in several])
            first = 0
            while first < len(several):
                before = int(ends[first - 1]) if first else 0
                last = max(int(np.searchsorted(ends, before + _STEP, "right")), first + 1)
                size = int(ends[last - 1]) - before
                self._convert_step(self._table(name, version), several[first:last], size, breathe)
                first = last

    def _convert_step(
        self, table: _Table, taken: list[Taken], size: int, breathe: Callable[[], None]
    ) -> None:
        try:
            rows = table.columns.table(taken, self.writer, breathe)
        except Exception as error:
            if len(taken) > 1:  # one of them, then
                for one in taken:
                    self._convert_step(table, [one], one.size, breathe)
                return
            self.report(f"the serving log leaves out a request of {taken[0].name}: {error}")
            place = (taken[0].name, taken[0].version, hour_of(taken[0].at))
            with self._lock:
                self._seen.setdefault(place, Count()).dropped += 1
                self._held -= size
            return
        breathe()
        table.rows.append(rows)
        table.values += size
        hours = np.array([hour_of(one.at) for one in taken])
        clocks = np.array([one.clock for one in taken])
        known = table.columns.fresh_times(taken)
        for hour in np.unique(hours).tolist():
            mine = hours == hour
            latest = {group: int(times[mine].max()) for group, times in known.items()}
            fresh = {group: time for group, time in latest.items() if time >= 0}
            found = Count(logged=int(mine.sum()), last_clock=int(clocks[mine].max()), fresh=fresh)
            place = (taken[0].name, taken[0].version, hour)
            table.counts.setdefault(place, Count()).add(found)

    def _table(self, name: str, version: str) -> _Table:
        found = self._tables.get((name, version))
        if found is None:
            columns = self._known[name, version]
            assert columns is not None
            store = log_table(self._root, name, version)
            found = _Table(columns, Appender(store, columns.schema))
            self._tables[name, version] = found
        return found

    def _write(self, *, raising: bool = False, closed: bool = False) -> None:
        """Commit rows, then what was counted. What fails stays, and is tried again."""
        failure: StorageError | None = None
        for table in self._tables.values():
            try:
                self._write_table(table)
            except StorageError as error:
                failure = error
        try:
            self._write_counts(closed)
        except StorageError as error:
            failure = error
        if failure is None:
            self._failing = False
            return
        if raising:
            raise failure
        if not self._failing or closed:
            self.report(f"the serving log cannot be written: {failure}")
        self._failing = True

    def _write_table(self, table: _Table) -> None:
        if table.rows:
            modified = table.appender.write(pa.concat_tables(table.rows).combine_chunks())
            self._ahead = self._now() - modified
            table.rows.clear()
            for place, count in table.counts.items():
                table.written.setdefault(place, Count()).add(count)
            table.counts.clear()
            with self._lock:
                self._held -= table.values
            table.values = 0
        table.appender.commit()
        with self._lock:
            for place, count in table.written.items():
                self._seen.setdefault(place, Count()).add(count)
        table.written.clear()

    def _write_counts(self, closed: bool) -> None:
        with self._lock:
            seen, self._seen = self._seen, {}
            for (name, _, _), count in seen.items():
                self._totals.setdefault(name, Count()).add(count)
        for place, count in seen.items():
            self._unwritten.setdefault(place, Count()).add(count)
        names = {name for name, _, _ in self._unwritten} | (set(self._names) if closed else set())
        for name in sorted(names):
            appender = self._names.get(name)
            if appender is None:
                store = counts_table_of(self._root, name)
                appender = self._names[name] = Appender(store, COUNTS)
            mine = {place: one for place, one in self._unwritten.items() if place[0] == name}
            if mine or closed:
                rows = counts_table(
                    self.writer, mine, written=self._now(), ahead=self._ahead, closed=closed
                )
                appender.write(rows)
                for place in mine:
                    del self._unwritten[place]
            appender.commit()


def _by_table(taken: Sequence[Taken]) -> dict[tuple[str, str], list[Taken]]:
    found: dict[tuple[str, str], list[Taken]] = {}
    for one in taken:
        found.setdefault((one.name, one.version), []).append(one)
    return found


_OPEN: weakref.WeakSet[ServingLog] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for log in list(_OPEN):
        log.close()
