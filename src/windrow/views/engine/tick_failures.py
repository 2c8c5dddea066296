"""Why the last tick failed, for those who look later: a record beside the history.

    history/failed.json     when, the time that the views were at, the message, and the view

It is written when a tick fails, and means something until one succeeds after it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

from windrow.errors import StorageError, WindrowError
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store
from windrow.time import now_millis
from windrow.views.history.files import FOLDER

NAME = "failed.json"


@dataclass(frozen=True)
class TickFailure:
    """A tick that failed. `time` is that of the newest change, `at` the clock's, both in ms."""

    at: int
    time: int
    error: str
    message: str
    view: str | None = None


def note_failure(root: Store, error: WindrowError, time: int, view: str | None = None) -> None:
    """Remember a failure; if that fails too, the error itself is what counts."""
    found = TickFailure(now_millis(), time, type(error).__name__, str(error), view)
    with suppress(StorageError):
        write_record(root.beneath(FOLDER), NAME, asdict(found))


def last_failure(root: Store, ticked: int) -> TickFailure | None:
    """The failure of the last tick; None if one has succeeded since."""
    found = read_record(root.beneath(FOLDER), NAME)
    if found is None:
        return None
    with suppress(TypeError):  # of another release
        failure = TickFailure(**found)
        return failure if failure.time > ticked else None
    return None
