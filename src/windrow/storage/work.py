"""The folder of a backfill at work, beneath `tmp/`: for one run at a time, found again by the next.

    tmp/NAME/owner.json     who works in it; written anew while that run lives
    tmp/NAME/...            sorted queries, notes of finished slices, features on the way

A run that is interrupted leaves its folder, and the next of the same work goes on in it. Two runs
of the same work at the same time would be in each other's way, so the second gets a folder of its
own. A folder that nobody has come back to for a week is removed.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.errors import StorageError, WindrowError
from windrow.storage.names import new_id
from windrow.storage.store import Store

BEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0  # without a sign of life: then the run is taken for dead
KEPT_SECONDS = 7 * 24 * 3600.0
_OWNER = "owner.json"


@contextmanager
def work_folder(root: Store, name: str | None) -> Iterator[Store]:
    """The folder for the work of this name; None is work that no other run can go on with.

    Whoever enters owns it until the end of the block. It is removed then, also after an error that
    Windrow reports itself, since data or definitions have to change first; after any other, it
    stays for the next run.
    """
    folder = Store.at(f"{root.uri}/tmp", root.options_dict)
    _sweep(folder)
    run = new_id()
    work = Store.at(f"{folder.uri}/{name or run}", root.options_dict)
    if not _claim(work, run):
        work = Store.at(f"{folder.uri}/{name}-{run}", root.options_dict)
        _claim(work, run)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            _write(work, run)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    interrupted = False
    try:
        yield work
    except WindrowError:
        raise
    except BaseException:
        interrupted = True
        raise
    finally:
        over.set()
        thread.join()
        if interrupted:
            _write(work, run, ended=True)
        else:
            work.remove()


def _claim(work: Store, run: str) -> bool:
    """Become the owner, unless another run that lives is."""
    if _lives(_owner(work)):
        return False
    _write(work, run)
    return _owner(work).get("run") == run  # of two that came at once, the last one


def _write(work: Store, run: str, ended: bool = False) -> None:
    owner = {"run": run, "host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}
    with work.open_output(_OWNER) as out:
        out.write(json.dumps({**owner, "ended": ended}).encode())


def _owner(work: Store) -> dict[str, object]:
    try:
        found = json.loads(work.open_input(_OWNER).read())
    except (StorageError, OSError, ValueError):
        return {}  # nobody, or half written
    return found if isinstance(found, dict) else {}


def _lives(owner: dict[str, object]) -> bool:
    if not owner or owner.get("ended") or _silence(owner) > SILENT_SECONDS:
        return False
    if owner.get("host") != socket.gethostname():
        return True
    try:
        os.kill(int(str(owner["pid"])), 0)
    except (ProcessLookupError, ValueError, KeyError):
        return False
    except PermissionError:
        return True  # it is there, and someone else's
    return True


def _silence(owner: dict[str, object]) -> float:
    """Seconds since the last sign of life."""
    return time.time() - float(str(owner.get("at", 0)))


def _sweep(folder: Store) -> None:
    """Remove what interrupted runs left long ago."""
    for name in folder.folders():
        work = Store.at(f"{folder.uri}/{name}", folder.options_dict)
        owner = _owner(work)
        if owner and _silence(owner) > KEPT_SECONDS:
            work.remove()
