"""Consistency: the verdict over time, and one report with its features and examples."""

from __future__ import annotations

from typing import Any

from windrow.consistency.equality import OUTCOMES
from windrow.console.catalogue import Catalogue
from windrow.console.consistency import FeatureReport, Report
from windrow.console.pages.reading import Reading
from windrow.console.refs import link
from windrow.console.requests import Absent, Page, Request
from windrow.console.text import short

_RUNS = 60
_EXAMPLES = 40


def consistency(reading: Reading, request: Request) -> Page:
    """All names with their verdicts; or, with a name, its newest report or the one of a run."""
    every = reading.reports()
    name = request.get("name")
    if not name:
        names: dict[str, list[Report]] = {}
        for one in every:
            names.setdefault(one.name, []).append(one)
        listed = {
            "names": [(n, runs[0], list(reversed(runs[:_RUNS]))) for n, runs in names.items()],
        }
        return Page("consistencies.html", listed)
    own = [one for one in every if one.name == name]
    run = request.get("run")
    found = next((one for one in own if not run or one.run == run), None)
    if found is None:
        raise Absent(f"There is no report of consistency about {short(name)!r}.")
    features = sorted(found.features, key=lambda one: (one.counted.share, one.name))
    context = {
        "report": found,
        "runs": list(reversed(own[:_RUNS])),
        "features": [(one, hours(one)) for one in features],
        "places": _places(reading.catalogue(), found),
        "examples": found.examples[:_EXAMPLES],
        "more_examples": max(0, len(found.examples) - _EXAMPLES),
        "outcomes": OUTCOMES,
    }
    return Page("consistency.html", context)


def _places(catalogue: Catalogue, report: Report) -> dict[str, str]:
    """The pages of the features of a report, by their names in it."""
    join = catalogue.joins.get(report.name)
    names = (report.name,) if join is None else join.groups
    found: dict[str, str] = {}
    for group in (catalogue.groups[name] for name in names if name in catalogue.groups):
        for feature in group.names:
            place = link("feature", group=group.name, name=feature)
            found[feature if join is None else f"{group.name}_{feature}"] = place
    return found


def hours(one: FeatureReport) -> list[dict[str, Any]]:
    """The hours of a feature as columns of a small drawing; the newest ones if there are many."""
    shown = one.hours[-96:]
    return [
        {"x": 4 * at, "hour": hour, "share": counted.share, "total": counted.total}
        for at, (hour, counted) in enumerate(shown)
    ]
