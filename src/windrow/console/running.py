"""What is under way in a project, and why the last tick failed: read from leases and records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windrow.console.catalogue import Catalogue
from windrow.console.refs import Ref, link
from windrow.console.text import length
from windrow.storage.leases import found_leases
from windrow.storage.store import Store
from windrow.storage.underway import under_way
from windrow.views.engine.tick_failures import last_failure
from windrow.views.history.files import FOLDER
from windrow.views.history.history import LEASES

STALLED = 30_000  # milliseconds after which a micro-batch that has not ended may have been killed


@dataclass(frozen=True)
class Failure:
    """Why the last tick failed."""

    at: int
    time: int
    says: str
    error: str
    view: str | None


@dataclass(frozen=True)
class Running:
    """Something under way; `done` is the share of its stage that is done, if that is known."""

    what: str
    says: str
    href: str
    done: float | None = None
    began: int | None = None


def failure_of(root: Store, catalogue: Catalogue) -> Failure | None:
    """Of the last tick; None if it did not fail."""
    found = last_failure(root, catalogue.ticked)
    if found is None:
        return None
    view = found.view if found.view in catalogue.relations else None
    return Failure(found.at, found.time, found.message, found.error, view)


def running(root: Store, catalogue: Catalogue, now: int) -> list[Running]:
    """Ticks, upkeep, backfills, uploads and micro-batches that run now."""
    return [*_claims(root, catalogue), *_noted(root), *_streams(catalogue, now)]


def _claims(root: Store, catalogue: Catalogue) -> Iterator[Running]:
    says = {
        "tick": ("tick", "views are brought up to date, or one is made"),
        "maintain": ("upkeep", "runs are merged, and old history is forgotten"),
    }
    for lease in found_leases(root.beneath(f"{FOLDER}/{LEASES}")):
        claim = lease.about.get("claim")
        if claim in says and lease.about.get("decided") and lease.is_live():
            what, text = says[str(claim)]
            ticks = [note for note in catalogue.notes if note.get("kind") == "tick"]
            if claim == "tick" and ticks:
                seconds = sum(one["seconds"] for one in ticks[0].get("operators", {}).values())
                text += f"; the jobs of the last tick took {length(1000 * seconds)}"
            process = f"process {lease.process.pid} on {lease.process.host.split()[0]}"
            yield Running(what, f"{process}: {text}", link("ticks"))


def _noted(root: Store) -> Iterator[Running]:
    for one in under_way(root):
        progress = one.progress
        name = progress.what.rpartition(" of ")[2].partition(",")[0]
        says = f"process {one.pid} on {one.host}"
        if progress.stage:
            says += f": {progress.stage}"
            if progress.rows is not None:
                says += f", {progress.rows:,} rows"
        done = progress.done / progress.of if progress.of else None
        if progress.of:
            says += f", {progress.done} of {progress.of} tasks"
        yield Running(progress.what, says, Ref("join", name).href, done, progress.began)


def _streams(catalogue: Catalogue, now: int) -> Iterator[Running]:
    for name, state in catalogue.streams.items():
        if state.under_way and now - (state.batch_at or 0) < STALLED:
            says = f"micro-batch {state.batch}; {state.rows:,} rows are in"
            yield Running(f"stream of {name}", says, Ref("source", name).href, None, state.batch_at)
