"""A serving log that is written by a process of its own, so that requests share no interpreter
with it.

    answers ── packed ──▶ pipe of answers ──▶ process: Arrow, Parquet, commits
    thread of the log ── write ──▶ its input
                      ◀── what came of it ── its output

Whoever has packed some answers puts them into the pipe, as far as it has room: no thread has to
take the interpreter for that, and the process looks into the pipe a few times a second, so that
nobody has to wake it. It writes at a lower priority than whoever serves. It ends with its log: when
its input does. What it had taken and not yet written when it died is counted as dropped, and
another process takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import os
import pickle
import select
import signal
import struct
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import IO, Any, NamedTuple, cast

from windrow.online.fetched import Status
from windrow.online.log.columns import LogColumns, Taken, letters_of
from windrow.online.log.counts import Count, Place
from windrow.online.log.interpreter import start
from windrow.online.log.writing import Answers, Done, LogWriter
from windrow.priority import give_way, stay_off
from windrow.storage.store import Store
from windrow.time import now_millis

_LENGTH = struct.Struct("<Q")
_FRAME = struct.Struct("<QI")  # bytes that follow, and the number of the table that they are of
_COLUMNS = 0  # instead of a table: the columns of the next one follow
_UNSHARED = 2  # version of marshal: later ones take time to look for objects that occur twice
_PICKLED = b"pickle:"  # a tuple of marshal's begins with another byte
_PIPE = 1 << 20  # bytes that a pipe holds; as many as Linux allows everybody
_NAP = 0.05  # seconds between two looks of the process into the pipe
_LOOK = 0.5  # seconds between two looks of the log's thread at what the pipe had no room for


class _Frame(NamedTuple):
    """Answers on their way."""

    columns: LogColumns
    hours: Mapping[int, int]
    size: int
    data: bytes


class AsideWriter:
    """Writes in another process; see `Writer`."""

    look = _LOOK

    def __init__(self, root: Store, writer: str) -> None:
        self._begin = (root, writer)
        self._process: subprocess.Popen[bytes] | None = None
        self._letters: tuple[list[list[Status]], str] = ([], "")  # the last statuses, and theirs
        # Whoever puts something into the pipe holds the lock. It is never held while waiting.
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._broken = False  # the process no longer reads
        self._frames: deque[_Frame] = deque()  # for which there was no room
        self._rest = memoryview(b"")  # of one that is in the pipe in part
        self._taken = 0  # frames, ever
        self._numbers: dict[tuple[str, str], int] = {}  # of the tables that the process knows
        self._held: Counter[Place] = Counter()  # requests that it has, and has not written
        self._values = 0  # of those

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    # On the path of a request

    def take(self, answers: Answers) -> None:
        self._add(_Frame(answers.columns, answers.hours, answers.size, pack(self._fields(answers))))

    def take_failed(
        self, columns: LogColumns, taken: Taken, size: int, hours: Mapping[int, int]
    ) -> None:
        _, *fields, error = taken
        alone = (taken.number, *([field] for field in fields), error)
        self._add(_Frame(columns, hours, size, pack(alone)))

    def _fields(self, answers: Answers) -> tuple[Any, ...]:
        """Those of a `Taken`, each for all answers; what is the same for all is there once."""
        columns, first, found, asked, clocks, _, _ = answers
        every = columns.names
        names = [one.names for one in found]
        given = None if names.count(every) == len(found) else names
        fresh: list[Any] = [one.fresh_at for one in found]
        if fresh.count(fresh[0]) == len(found):
            fresh = fresh[:1]
        statuses = [one.statuses for one in found]
        last, text = self._letters
        if statuses[0] != last:
            last, text = self._letters = statuses[0], letters_of(statuses[0])
        letters = [text] if statuses.count(last) == len(found) else answers.letters()
        ats, keys = [one.at for one in found], [one.keys for one in found]
        values = [one.columns for one in found]
        return (first, ats, asked, clocks, keys, given, values, fresh, letters, None)

    def _add(self, frame: _Frame) -> None:
        with self._lock:
            self._taken += 1
            self._frames.append(frame)
            self._send()

    def _send(self) -> None:
        """Put into the pipe what there is room for."""
        if self._pipe is None or self._broken:
            return
        while self._rest or self._frames:
            if not self._rest:
                self._rest = memoryview(self._next())
            try:
                self._rest = self._rest[os.write(self._pipe, self._rest) :]
            except BlockingIOError:
                return
            except OSError:
                self._broken = True
                return

    def _next(self) -> bytes:
        """The next bytes. The process has them from the first one on."""
        columns, hours, size, data = self._frames[0]
        name, version = columns.description.name, columns.description.version
        number = self._numbers.get((name, version))
        if number is None:
            self._numbers[name, version] = len(self._numbers) + 1
            about = pickle.dumps(columns, pickle.HIGHEST_PROTOCOL)
            return _FRAME.pack(len(about), _COLUMNS) + about
        self._frames.popleft()
        self._values += size
        for hour, count in hours.items():
            self._held[name, version, hour] += count
        return _FRAME.pack(len(data), number) + data

    # In the thread of the log

    def work(self) -> Done:
        try:
            if self._frames:
                self._start()
            with self._lock:
                self._send()
                if self._broken:
                    raise BrokenPipeError
        except OSError as error:
            return self._lost(error)
        return Done()

    def write(self, seen: dict[Place, Count], *, closed: Collection[str]) -> Done:
        if self._process is None and not (seen or closed or self._frames):
            return Done()
        try:
            self._start()
            self._send_all()
            return self._result(("write", seen, closed))
        except (OSError, EOFError) as error:
            return self._lost(error)

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            pipe, self._pipe = self._pipe, None
        if process is not None:
            cast(IO[bytes], process.stdin).close()
            cast(IO[bytes], process.stdout).close()
        if pipe is not None:
            os.close(pipe)
        if process is not None:
            process.wait()

    def _start(self) -> None:
        if self._process is not None:
            return
        theirs, ours = os.pipe()
        try:
            os.set_blocking(ours, False)
            with contextlib.suppress(OSError):  # it is smaller then
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE)
            self._process = start(
                "windrow.online.log.aside",
                str(theirs),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[theirs],
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        with self._lock:
            self._pipe, self._broken, self._numbers = ours, False, {}
        _send(cast(IO[bytes], self._process.stdin), self._begin)

    def _send_all(self) -> None:
        """Wait until all that was taken by now is in the pipe."""
        wanted: int | None = None
        while True:
            with self._lock:
                self._send()
                if self._broken or self._pipe is None:
                    raise BrokenPipeError
                wanted = self._taken if wanted is None else wanted
                if self._taken - len(self._frames) - bool(self._rest) >= wanted:
                    return
                pipe = self._pipe
            waiting = select.poll()  # select knows no numbers from 1024 on
            waiting.register(pipe, select.POLLOUT)
            waiting.poll()

    def _result(self, message: Any) -> Done:
        assert self._process is not None
        _send(cast(IO[bytes], self._process.stdin), message)
        done: Done = _receive(cast(IO[bytes], self._process.stdout))
        with self._lock:
            for place, count in done.counts.items():
                self._held[place] -= count.logged + count.dropped
            self._held = +self._held
            self._values -= done.freed
        return done

    def _lost(self, error: BaseException) -> Done:
        """The process is gone, with what it held."""
        self.close()
        with self._lock:
            held = {place: Count(dropped=number) for place, number in self._held.items()}
            values, self._held, self._values = self._values, Counter(), 0
            self._rest = memoryview(b"")
        why = f"the process that writes the serving log ended ({type(error).__name__})"
        return Done(values, held, messages=[f"{why}; what it held is dropped"], lost=True)


def pack(answers: tuple[Any, ...]) -> bytes:
    try:
        # Several times as fast, of texts and numbers and lists of them.
        return marshal.dumps(answers, _UNSHARED)
    except ValueError:
        return _PICKLED + pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes, columns: LogColumns) -> list[Taken]:
    pickled = data.startswith(_PICKLED)
    found = pickle.loads(data[len(_PICKLED) :]) if pickled else marshal.loads(data)
    first, ats, asked, clocks, keys, names, values, fresh, letters, error = found
    count = len(ats)
    if names is None:
        names = [columns.names]
    numbers = range(first, first + count)
    names, fresh, letters = (
        several * count if len(several) < count else several for several in (names, fresh, letters)
    )
    fields = (numbers, ats, asked, clocks, keys, names, values, fresh, letters)
    return [Taken._make((*one, error)) for one in zip(*fields, strict=True)]


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    """The next message; an EOFError if there is none."""
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return pickle.loads(_read(pipe, length))


def _read(pipe: IO[bytes], size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = pipe.read(size - len(found))
        if not more:
            raise EOFError("the other side has ended")
        found += more
    return found


class _Incoming:
    """What comes out of the pipe of answers."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe = pipe
        self._data = bytearray()  # of a frame that is not complete
        self._tables: list[LogColumns] = []

    def read(self) -> list[tuple[LogColumns, list[Taken]]]:
        """The answers that are there, those of one table that follow each other together."""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.pipe, _PIPE):
                self._data += more
        found: list[tuple[LogColumns, list[Taken]]] = []
        start = 0
        while start + _FRAME.size <= len(self._data):
            size, number = _FRAME.unpack_from(self._data, start)
            end = start + _FRAME.size + size
            if end > len(self._data):
                break
            data = bytes(self._data[start + _FRAME.size : end])
            start = end
            if number == _COLUMNS:
                self._tables.append(pickle.loads(data))
                continue
            columns = self._tables[number - 1]
            if not found or found[-1][0] is not columns:
                found.append((columns, []))
            found[-1][1].extend(unpack(data, columns))
        del self._data[:start]
        return found


def run(answers: str) -> None:
    """The process: it writes what comes until its log has ended; `answers` is their pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when its log does
    give_way()  # whoever serves comes first
    # Answers are trees, which go when they are dropped: looking for cycles among them would take
    # longer than reading them.
    gc.disable()
    # What anything else prints is not part of the conversation.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(0, "rb", buffering=0)  # what is read ahead could not be waited for
    root, name = _receive(requests)
    pipe, server = int(answers), os.getppid()
    writer, incoming, done = LogWriter(root, name, now_millis), _Incoming(pipe), Done()
    asked, anything = select.poll(), select.poll()
    asked.register(0, select.POLLIN)
    anything.register(0, select.POLLIN)
    anything.register(pipe, select.POLLIN)
    idle = True
    while True:
        # Where answers come, it sleeps for a while instead of being woken by each of them.
        ready = dict(anything.poll() if idle else asked.poll(_NAP * 1000))
        stay_off(server)
        # Before the request: its answers are those that were there when it was sent.
        came = incoming.read()
        for columns, taken in came:
            done.add(writer.convert(columns, taken))
        if 0 in ready:
            try:
                _, seen, closed = _receive(requests)
            except EOFError:
                return
            for place, count in done.counts.items():  # what was left out
                seen.setdefault(place, Count()).add(count)
            done.add(writer.write(seen, closed=closed))
            _send(results, _plain(done))
            done = Done()
        idle = not came


def _plain(done: Done) -> Done:
    """With an error that can be pickled: its text is what is reported."""
    if done.failure is not None:
        done.failure = type(done.failure)(str(done.failure))
    return done
