"""Reports beneath a project's root: one JSON and one page for each run.

consistency/NAME/reports/RUN.json
consistency/NAME/reports/RUN.html
consistency/NAME/comparisons         a Delta table: all comparisons of the last run
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.consistency.page import page_of
from windrow.consistency.report import Report
from windrow.errors import OptionError, StorageError
from windrow.storage.store import Store

CONSISTENCY = "consistency"
_RUN = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class StoredReport:
    """Which report it is, and where."""

    name: str
    run: str
    json: str
    html: str


def comparisons(root: Store, name: str) -> Store:
    """Where the comparisons of the last run are: a Delta table."""
    return root.beneath(f"{CONSISTENCY}/{name}/comparisons")


def reports(root: Store, name: str | None = None) -> list[StoredReport]:
    """All reports, or those of a name: the newest first."""
    place = root.beneath(CONSISTENCY)
    names = place.folders() if name is None else [name]
    found = []
    for one in names:
        folder = _folder(root, one)
        runs = [n.removesuffix(".json") for n in folder.names() if n.endswith(".json")]
        found += [StoredReport(one, run, *_files(folder, run)) for run in runs]
    return sorted(found, key=lambda report: (report.run, report.name), reverse=True)


def _files(folder: Store, run: str) -> tuple[str, str]:
    return f"{folder.uri}/{run}.json", f"{folder.uri}/{run}.html"


def read_report(root: Store, name: str, run: str) -> dict[str, Any]:
    """The JSON of a report."""
    data = _folder(root, name).get(f"{_checked(run)}.json")
    if data is None:
        raise OptionError(f"there is no report {run} of {name}")
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise StorageError(f"the report {run} of {name} is not JSON: {error}") from error
    return found


def read_page(root: Store, name: str, run: str) -> bytes:
    """The HTML of a report."""
    data = _folder(root, name).get(f"{_checked(run)}.html")
    if data is None:
        raise OptionError(f"there is no report {run} of {name}")
    return data


def new_run(root: Store, name: str, now: int) -> str:
    """A name for a run: the time of its start, which no other of this name has."""
    folder = _folder(root, name)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now)
    while folder.exists(f"{moment.strftime(_RUN)}.json"):
        moment += timedelta(seconds=1)
    return moment.strftime(_RUN)


def store_report(root: Store, report: Report) -> StoredReport:
    """Write the page, then the JSON by which the report is found."""
    folder = _folder(root, report.name)
    written = report.to_json()
    folder.put(f"{report.run}.html", page_of(written).encode())
    folder.put(f"{report.run}.json", json.dumps(written, allow_nan=False).encode())
    return StoredReport(report.name, report.run, *_files(folder, report.run))


def _folder(root: Store, name: str) -> Store:
    return root.beneath(f"{CONSISTENCY}/{_checked(name)}/reports")


def _checked(name: str) -> str:
    """Names come from requests, too: none may lead elsewhere."""
    if not name or "/" in name or "\\" in name or name.startswith("."):
        raise OptionError(f"{name!r} is not the name of a report")
    return name
