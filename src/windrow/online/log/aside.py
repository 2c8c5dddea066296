"""A serving log that is written by a process of its own, so that requests share no interpreter
with it.

    answers ── packed ──▶ bytes ── thread of the log ──▶ process: Arrow, Parquet, commits
                                                     ◀── what came of it

Answers are packed into bytes as soon as they were sent: of those that wait for long, the garbage
collector would look at every list. The process writes at a lower priority than whoever serves. It
ends with its log: when its input does. What it had taken and not yet written when it died is
counted as dropped, and another process takes its place.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from typing import IO, Any, cast

from windrow.online.fetched import Status
from windrow.online.log.columns import LogColumns, Taken, letters_of
from windrow.online.log.counts import Count, Place
from windrow.online.log.writing import Answer, Done, LogWriter, Waiting
from windrow.storage.store import Store
from windrow.time import HOUR, now_millis

_NICE = 19  # whoever serves comes first
_LENGTH = struct.Struct("<Q")
_UNSHARED = 2  # version of marshal: later ones take time to look for objects that occur twice
_PICKLED = b"pickle:"  # a tuple of marshal's begins with another byte


class AsideWriter:
    """Writes in another process; see `Writer`."""

    def __init__(self, root: Store, writer: str) -> None:
        self._begin = (root, writer)
        self._process: subprocess.Popen[bytes] | None = None
        self._known: set[tuple[str, str]] = set()  # whose columns it has
        self._held: Counter[Place] = Counter()  # requests that it has, and has not written
        self._values = 0  # of those
        self._statuses: tuple[Sequence[Sequence[Status]], str] = ((), "")  # the last, as letters

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def pack(self, answer: Answer) -> bytes:
        columns, number, fetched, asked, clock, size = answer
        statuses, letters = self._statuses
        if fetched.statuses != statuses:  # most answers have the same ones
            letters = letters_of(fetched.statuses)
            self._statuses = fetched.statuses, letters
        names = fetched.names
        features = None if names is columns.names or names == columns.names else names
        at, keys, found, fresh = fetched.at, fetched.keys, fetched.columns, fetched.fresh_at
        return pack((number, at, asked, clock, keys, features, found, fresh, size, None, letters))

    def pack_failed(self, taken: Taken) -> bytes:
        return pack(tuple(taken))

    def add(self, columns: LogColumns, waiting: Sequence[Waiting]) -> Done:
        name, version = columns.description.name, columns.description.version
        # Whatever this thread does, requests wait for: hours are counted as numbers, at once.
        hours = Counter([at - at % HOUR for _, at, _, _ in waiting])
        self._held.update({(name, version, hour): n for hour, n in hours.items()})
        self._values += sum([size for _, _, size, _ in waiting])
        try:
            self._start()
            if (name, version) not in self._known:
                self._send(("columns", columns))
                self._known.add((name, version))
            return self._result(("add", (name, version), [data for _, _, _, data in waiting]))
        except (OSError, EOFError) as error:
            return self._lost(error)

    def write(self, seen: dict[Place, Count], *, closed: Collection[str]) -> Done:
        if self._process is None and not seen and not closed:
            return Done()
        try:
            self._start()
            return self._result(("write", seen, closed))
        except (OSError, EOFError) as error:
            return self._lost(error)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _start(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for whoever serves
        )
        self._known = set()
        self._send(self._begin)

    def _send(self, message: Any) -> None:
        assert self._process is not None
        send(cast(IO[bytes], self._process.stdin), message)

    def _result(self, message: Any) -> Done:
        self._send(message)
        assert self._process is not None
        done: Done = receive(cast(IO[bytes], self._process.stdout))
        for place, count in done.counts.items():
            self._held[place] -= count.logged + count.dropped
        self._held = +self._held
        self._values -= done.freed
        return done

    def _lost(self, error: BaseException) -> Done:
        """The process is gone, with what it held."""
        self.close()
        held = {place: Count(dropped=number) for place, number in self._held.items()}
        why = f"the process that writes the serving log ended ({type(error).__name__})"
        done = Done(self._values, held, messages=[f"{why}; what it held is dropped"], lost=True)
        self._held, self._values = Counter(), 0
        return done


def pack(answer: Any) -> bytes:
    """The fields of a `Taken` as bytes; features are None if they are all."""
    try:
        # Several times as fast, of texts and numbers and lists of them.
        return marshal.dumps(answer, _UNSHARED)
    except ValueError:
        return _PICKLED + pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes, columns: LogColumns) -> Taken:
    if data.startswith(_PICKLED):
        found = Taken(*pickle.loads(data[len(_PICKLED) :]))
    else:
        found = Taken(*marshal.loads(data))
    return found._replace(features=columns.names) if found.features is None else found


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # it is gone already
            cast(IO[bytes], pipe).close()
    process.wait()


def send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message; an EOFError if there is none."""
    size = pipe.read(_LENGTH.size)
    if len(size) < _LENGTH.size:
        raise EOFError("the other side has ended")
    (length,) = _LENGTH.unpack(size)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the other side has ended")
    return pickle.loads(data)


def run() -> None:
    """The process: it answers each request of its log until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when its log does
    os.nice(_NICE)
    # Answers are trees, which go when they are dropped: looking for cycles among them would take
    # longer than reading them.
    gc.disable()
    # What anything else prints is not part of the conversation.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    root, name = receive(requests)
    writer = LogWriter(root, name, now_millis)
    known: dict[tuple[str, str], LogColumns] = {}
    while True:
        try:
            what, *about = receive(requests)
        except EOFError:
            return
        if what == "columns":
            described = about[0].description
            known[described.name, described.version] = about[0]
        elif what == "add":
            columns = known[about[0]]
            taken = [unpack(data, columns) for data in about[1]]
            send(answers, _plain(writer.convert(columns, taken)))
        else:
            send(answers, _plain(writer.write(about[0], closed=about[1])))


def _plain(done: Done) -> Done:
    """With an error that can be pickled: its text is what is reported."""
    if done.failure is not None:
        done.failure = type(done.failure)(str(done.failure))
    return done


# The same modules as here, wherever they were found.
_PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from windrow.online.log.aside import run
run()
"""
