"""Ticks and other commits of the history, the failure of the last one, and arrangements."""

from __future__ import annotations

from typing import Any

from windrow.console.lineage import health_of
from windrow.console.pages.reading import Reading
from windrow.console.refs import link
from windrow.console.requests import Page, Request


def ticks(reading: Reading, request: Request) -> Page:
    """The newest records of the history."""
    catalogue = reading.catalogue()
    context = {
        "catalogue": catalogue,
        "notes": catalogue.notes[:60],
        "running": reading.running(catalogue),
        "failure": reading.failure(catalogue),
        "slowest": max((_seconds(note) for note in catalogue.notes), default=0.0) or 1.0,
        "seconds": _seconds,
    }
    return Page("ticks.html", context)


def failure(reading: Reading, request: Request) -> Page:
    """Why the last tick failed, and what waits for it."""
    catalogue = reading.catalogue()
    found = reading.failure(catalogue)
    context = {
        "catalogue": catalogue,
        "failure": found,
        "health": health_of(reading.attention(catalogue)),
    }
    return Page("failure.html", context)


def arrangements(reading: Reading, request: Request) -> Page:
    """What backfills and uploads share, and what several views do."""
    catalogue = reading.catalogue()
    users: dict[str, list[tuple[str, Any]]] = {}
    for name, one in catalogue.relations.items():
        for kept in one.definition.get("keeps") or ():
            if kept["operator"] >= 0:
                users.setdefault(kept["collection"], []).append((name, kept))
    shared = [(id, found) for id, found in users.items() if len({n for n, _ in found}) > 1]
    context = {
        "catalogue": catalogue,
        "shared": shared[:200],
        "own": len(users) - len(shared),
        "found": catalogue.arrangements[:200],
    }
    return Page("arrangements.html", context)


def upkeep(reading: Reading, form: dict[str, str]) -> str:
    """Merge runs and forget old history, as a tick does now and then; of one view, or of all."""
    history = reading.looking.history
    history.refresh()
    name = form.get("name", "")
    ids = None
    if name in history.catalogue:
        kept = history.catalogue[name].get("keeps") or ()
        ids = [one["collection"] for one in kept]
    history.maintain(ids)
    return link("view", name=name) if ids else link("ticks")


def _seconds(note: Any) -> float:
    """How long the jobs of a tick took."""
    found = note.get("operators") or {}
    return float(sum(one.get("seconds", 0.0) for one in found.values()))
