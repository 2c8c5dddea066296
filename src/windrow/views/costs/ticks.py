"""Rows, bytes and seconds of each operator in the last ticks of a view.

Tasks report what they did, by stage; stages belong to operators. The sums are noted in the record
of the tick, so that every process that reads the history sees them. Operators are known by their
place in the printed plan, the view itself by `OUTPUT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from windrow.views.run.jobs import ViewJob
from windrow.views.run.task import Reported

OUTPUT = -1
NOTE = "operators"  # of a record: what each view's operators did


@dataclass(frozen=True)
class OperatorRun:
    """What one operator did in one run. Seconds are those of its Python stages, in all tasks."""

    rows_in: int = 0
    rows_out: int = 0
    looked_up: int = 0  # rows of state that were read
    written: int = 0  # updates
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ViewRun:
    """One run of a view's job: a tick, or the fill when it was created."""

    version: int
    time: int
    fill: bool
    seconds: float
    operators: Mapping[int, OperatorRun]


def noted(job: ViewJob, reported: Reported, seconds: float) -> dict[str, Any]:
    """What a run of a view's job did, as JSON."""
    rows = [[number, *astuple(one)] for number, one in sorted(operator_runs(job, reported).items())]
    return {"seconds": round(seconds, 4), "operators": rows}


def operator_runs(job: ViewJob, reported: Reported) -> dict[int, OperatorRun]:
    """By operator. What an operator takes is what its first stage does, and its last stage gives
    what it gives; between them may be one of Spark's.
    """
    numbers = {id(node): at for at, node in enumerate(job.plan.operators())}
    stages: dict[int, list[int]] = {}
    for stage, node in enumerate(job.stages):
        stages.setdefault(OUTPUT if node is None else numbers[id(node)], []).append(stage)
    found = {}
    counted: set[str] = set()  # what two operators share, the first of them writes
    for number, own in stages.items():
        counts = [reported.counts.get(stage, {}) for stage in own]
        node = job.stages[own[0]]
        kept = [job.plan.output] if node is None else node.arrangements
        places = {job.places[one.name] for one in kept} - counted
        counted |= places
        parts = [part for place in places for part in reported.parts.get(place, [])]
        changes = counts[-1].get("changes")
        found[number] = OperatorRun(
            counts[0].get("given", 0) if node is None or node.inputs else 0,
            counts[-1].get("given_out", 0) if changes is None else changes,
            sum(one.get("looked_up", 0) for one in counts),
            sum(part.rows for part in parts),
            sum(part.bytes for part in parts),
            round(sum(reported.seconds.get(stage, 0.0) for stage in own), 4),
        )
    return found


def last_runs(
    notes: Iterable[Mapping[str, Any]], views: Iterable[str], most: int
) -> dict[str, list[ViewRun]]:
    """The last runs of each view, the newest first, up to and with its fill; from notes (see
    `History.notes`) that are the newest first, too.
    """
    found: dict[str, list[ViewRun]] = {name: [] for name in views}
    filled: set[str] = set()
    for note in notes:
        for name, about in note.get(NOTE, {}).items():
            runs = found.get(name)
            if runs is None or name in filled or len(runs) >= most:
                continue
            fill = note.get("view") == name
            operators = {number: OperatorRun(*rest) for number, *rest in about["operators"]}
            runs.append(ViewRun(note["version"], note["time"], fill, about["seconds"], operators))
            if fill:
                filled.add(name)
        if note.get("dropped") in found:
            filled.add(note["dropped"])
    return found
