"""`windrow init`: a project folder with an example in it, ready to be planned and backfilled."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path

from windrow.commands.shop import write_shop_data
from windrow.errors import OptionError
from windrow.storage.failures import explained, failure
from windrow.workspace import SETTINGS

_WORK = ".windrow-init-"  # then the process's number


def init(folder: str | Path) -> Path:
    """Make a project of the example shop in `folder`, which it returns.

    Nothing that is there is ever overwritten. All is made in a folder beside, then moved, the
    settings last: a folder that holds them is complete.
    """
    place = Path(folder).resolve()
    template = files("windrow") / "templates" / "shop"
    names = sorted(
        (entry.name for entry in template.iterdir() if not entry.name.startswith("__")),
        key=lambda name: name == SETTINGS,
    )
    names.insert(0, "data")
    _refuse_existing(place, names)
    missing = not place.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _sweep(place)
        work = Path(tempfile.mkdtemp(prefix=f"{_WORK}{os.getpid()}-", dir=place))
    except OSError as error:
        if missing:
            _remove_empty(place)
        raise failure(str(place), "cannot write there", error) from error
    moved: list[Path] = []
    try:
        with explained(str(place), "write"):
            write_shop_data(work / "data")
            for name in names[1:]:
                with as_file(template / name) as file:
                    shutil.copyfile(file, work / name)
            for name in names:
                os.rename(work / name, place / name)
                moved.append(place / name)
    except BaseException:
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if missing:
            _remove_empty(place)
    return place


def _remove_empty(place: Path) -> None:
    with suppress(OSError):  # it is not there, or holds something
        place.rmdir()


def _sweep(place: Path) -> None:
    """Remove what an `init` that was killed has left."""
    for folder in place.glob(f"{_WORK}*"):
        pid = folder.name.removeprefix(_WORK).partition("-")[0]
        if not (pid.isdecimal() and _runs(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is someone else's
    return True


def _refuse_existing(place: Path, names: list[str]) -> None:
    if place.exists() and not place.is_dir():
        raise OptionError(f"{place} is a file; name a folder")
    if (place / SETTINGS).exists():
        raise OptionError(f"{place} is a project already: it holds {SETTINGS}; name another folder")
    there = [name for name in names if (place / name).exists()]
    if there:
        raise OptionError(
            f"{place} holds {', '.join(there)}, which would be overwritten; name another folder"
        )


def next_steps(folder: str | Path) -> str:
    """What to do in a new project."""
    step = f"cd {folder}\n  " if str(folder) != "." else ""
    return (
        f"A shop is set up: definitions in features.py, a month of its data in data/.\n\n  {step}"
        "windrow plan\n  windrow backfill training\n"
    )
