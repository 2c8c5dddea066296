"""Writing a serving log: answers become rows of tables, and what was counted is added up.

This is all of a log that is not on the path of a request. It runs in the thread of a log, or in a
process of its own (`windrow.online.log.aside`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from windrow.errors import StorageError
from windrow.online.fetched import Fetched
from windrow.online.log.appending import Appender
from windrow.online.log.columns import LogColumns, Taken, letters_of
from windrow.online.log.counts import COUNTS, Count, Place, counts_table, hour_of
from windrow.online.log.places import counts_table_of, log_table
from windrow.storage.store import Store

STEP = 20_000  # values that are converted together
# Seconds between two looks at what was taken: objects that wait for long are looked at by the
# garbage collector, and converting many of them takes the interpreter for long.
_LOOK = 0.05

Clock = Callable[[], int]


@dataclass
class Done:
    """What came of answers that were handed over, since the last time."""

    freed: int = 0  # values that are not held any more
    counts: dict[Place, Count] = field(default_factory=dict)  # logged, or left out
    messages: list[str] = field(default_factory=list)
    failure: StorageError | None = None
    lost: bool = False  # the writer ended; what it was given to count has to be given again

    def count(self, place: Place, found: Count) -> None:
        self.counts.setdefault(place, Count()).add(found)

    def add(self, later: Done) -> None:
        self.freed += later.freed
        for place, found in later.counts.items():
            self.count(place, found)
        self.messages += later.messages
        self.failure = later.failure or self.failure


class Answers(NamedTuple):
    """Answers of one name and version."""

    columns: LogColumns
    first: int  # the number of the first request, which those of the others follow
    found: Sequence[Fetched]
    asked: Sequence[bool]  # whether their requests named a time
    clocks: Sequence[int]  # when they were given
    size: int  # how many values they hold
    hours: Mapping[int, int]  # how many are of each hour

    def letters(self) -> list[str]:
        return [letters_of(one.statuses) for one in self.found]


class Writer(Protocol):
    """Writes the answers of one log."""

    look: float  # seconds between two calls of `work`

    def take(self, answers: Answers) -> None:
        """Answers to be written, on the path of requests."""

    def take_failed(
        self, columns: LogColumns, taken: Taken, size: int, hours: Mapping[int, int]
    ) -> None:
        """The same, of one that could not be given."""

    def work(self) -> Done:
        """Do, off that path, what has to be done from time to time."""

    def write(self, seen: dict[Place, Count], *, closed: Collection[str]) -> Done:
        """Commit what was taken, then what was counted. What fails stays, and is tried again.

        Of the names in `closed` there will be no more.
        """

    def close(self) -> None:
        """No more will come."""


@dataclass
class _Table:
    """The rows of one name and version on their way."""

    columns: LogColumns
    appender: Appender
    rows: list[pa.Table] = field(default_factory=list)
    counts: dict[Place, Count] = field(default_factory=dict)  # of `rows`
    written: dict[Place, Count] = field(default_factory=dict)  # of files that wait for a commit
    values: int = 0

    def place(self, hour: int) -> Place:
        return self.columns.description.name, self.columns.description.version, hour


class LogWriter:
    """Writes beneath a project's root, in this process.

    `breathe` is called between columns, for others who use this interpreter to have their turn.
    """

    look = _LOOK

    def __init__(
        self, root: Store, writer: str, now: Clock, breathe: Callable[[], None] = lambda: None
    ) -> None:
        self._root, self._writer, self._now, self._breathe = root, writer, now, breathe
        self._tables: dict[tuple[str, str], _Table] = {}
        self._unwritten: dict[Place, Count] = {}  # counts that no store has taken yet
        self._names: dict[str, Appender] = {}  # the tables of counts
        self._ahead: int | None = None  # milliseconds, of this clock before the store's
        self._taken: deque[tuple[LogColumns, Callable[[], list[Taken]]]] = deque()

    def take(self, answers: Answers) -> None:
        self._taken.append((answers.columns, partial(_given, answers)))

    def take_failed(
        self, columns: LogColumns, taken: Taken, size: int, hours: Mapping[int, int]
    ) -> None:
        self._taken.append((columns, lambda: [taken]))

    def work(self) -> Done:
        by_table: dict[int, tuple[LogColumns, list[Taken]]] = {}
        while self._taken:
            columns, given = self._taken.popleft()
            by_table.setdefault(id(columns), (columns, []))[1].extend(given())
        done = Done()
        for columns, taken in by_table.values():
            done.add(self.convert(columns, taken))
        return done

    def convert(self, columns: LogColumns, taken: Sequence[Taken]) -> Done:
        """Turn answers into Arrow, a step at a time."""
        done = Done()
        table = self._table(columns)
        ends = np.cumsum([one.size for one in taken])
        first = 0
        while first < len(taken):
            before = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, before + STEP, "right")), first + 1)
            self._convert(table, taken[first:last], done)
            first = last
        return done

    def _convert(self, table: _Table, taken: Sequence[Taken], done: Done) -> None:
        try:
            rows = table.columns.table(taken, self._writer, self._breathe)
        except Exception as error:
            if len(taken) > 1:  # one of them, then
                for one in taken:
                    self._convert(table, [one], done)
                return
            (one,) = taken
            name = table.columns.description.name
            done.messages.append(f"the serving log leaves out a request of {name}: {error}")
            done.count(table.place(hour_of(one.at)), Count(dropped=1))
            done.freed += one.size
            return
        self._breathe()
        table.rows.append(rows)
        table.values += sum(one.size for one in taken)
        hours = np.array([hour_of(one.at) for one in taken])
        clocks = np.array([one.clock for one in taken])
        known = table.columns.fresh_times(taken)
        for hour in np.unique(hours).tolist():
            mine = hours == hour
            latest = {group: int(times[mine].max()) for group, times in known.items()}
            fresh = {group: time for group, time in latest.items() if time >= 0}
            found = Count(logged=int(mine.sum()), last_clock=int(clocks[mine].max()), fresh=fresh)
            table.counts.setdefault(table.place(hour), Count()).add(found)

    def _table(self, columns: LogColumns) -> _Table:
        name, version = columns.description.name, columns.description.version
        found = self._tables.get((name, version))
        if found is None:
            store = log_table(self._root, name, version)
            found = _Table(columns, Appender(store, columns.schema))
            self._tables[name, version] = found
        return found

    def write(self, seen: dict[Place, Count], *, closed: Collection[str]) -> Done:
        done = Done()
        for place, count in seen.items():
            self._unwritten.setdefault(place, Count()).add(count)
        for table in self._tables.values():
            try:
                self._write_table(table, done)
            except StorageError as error:
                done.failure = error
        try:
            self._write_counts(closed)
        except StorageError as error:
            done.failure = error
        return done

    def _write_table(self, table: _Table, done: Done) -> None:
        if table.rows:
            modified = table.appender.write(pa.concat_tables(table.rows).combine_chunks())
            self._ahead = self._now() - modified
            table.rows.clear()
            for place, count in table.counts.items():
                table.written.setdefault(place, Count()).add(count)
            table.counts.clear()
            done.freed += table.values
            table.values = 0
        table.appender.commit()
        for place, count in table.written.items():
            done.count(place, count)
            self._unwritten.setdefault(place, Count()).add(count)
        table.written.clear()

    def _write_counts(self, closed: Collection[str]) -> None:
        # Those of an appender, too: a file may wait for a commit.
        for name in sorted({*(name for name, _, _ in self._unwritten), *self._names, *closed}):
            appender = self._names.get(name)
            if appender is None:
                store = counts_table_of(self._root, name)
                appender = self._names[name] = Appender(store, COUNTS)
            mine = {place: one for place, one in self._unwritten.items() if place[0] == name}
            if mine or name in closed:
                end, now = name in closed, self._now()
                rows = counts_table(self._writer, mine, written=now, ahead=self._ahead, closed=end)
                appender.write(rows)
                for place in mine:
                    del self._unwritten[place]
            appender.commit()

    def close(self) -> None:
        pass


def _given(answers: Answers) -> list[Taken]:
    _, first, found, asked, clocks, _, _ = answers
    said = answers.letters()
    return [
        Taken(
            first + i,
            one.at,
            asked[i],
            clocks[i],
            one.keys,
            one.names,
            one.columns,
            one.fresh_at,
            said[i],
        )
        for i, one in enumerate(found)
    ]
