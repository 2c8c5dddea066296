"""Computing a tick: the jobs of views, in the order of their dependencies, several at a time.

A job reads state as it was before the tick, so jobs do not wait for each other, unless a view reads
what another gives. Most of the time of a small job is spent waiting (for Python processes, for
Spark's scheduler), so several threads run them; jobs that exchange rows have all cores for
themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.spark.tasks import WrittenFile
from windrow.views.costs import ticks
from windrow.views.history.collections import Collection
from windrow.views.history.history import History
from windrow.views.history.pending import part_of
from windrow.views.run.jobs import ViewJob
from windrow.views.run.task import Reported

Ran = tuple[Reported, float]  # what a job has written, and its seconds


@dataclass
class Tick:
    """What a tick changes, as its jobs find out."""

    history: History
    lower: int
    upto: int
    pool: Executor
    partitions: Callable[[int], int | None]  # for a number of changes
    collections: dict[str, Collection] = field(default_factory=dict)
    appends: dict[str, Sequence[WrittenFile]] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)  # what the operators of each view did

    _counted: dict[str, int] = field(default_factory=dict)
    _running: dict[str, tuple[ViewJob, Future[Ran]]] = field(default_factory=dict)

    @property
    def changes_in(self) -> int:
        return sum(self._counted.values())

    def run(self, jobs: Sequence[ViewJob]) -> None:
        """Run all jobs whose inputs have changed; a view comes after those that it reads."""
        owners = _owners(jobs)
        arranges = _arranges(jobs)
        outputs = {job.places[job.plan.output.name]: job.name for job in jobs}
        try:
            for job in jobs:
                inputs = {one.collection for one in job.plan.inputs}
                self._settle([outputs[id] for id in inputs if id in outputs])
                mine = arranges.get(job.name, {})
                for id in {*job.collections, *(one for ids in mine.values() for one in ids)}:
                    if id not in self.collections:
                        self.collections[id] = self.history.collection(id)
                sizes = {id: self.collections[id].updates_since(self.lower) for id in inputs}
                if not any(sizes.values()):
                    continue
                self._counted |= {id: size for id, size in sizes.items() if id not in outputs}
                written = {id for name, id in job.places.items() if owners[name] == job.name}
                self._start(job, written, mine, sum(sizes.values()))
            self._settle(list(self._running))
        finally:  # nothing is at work any more when an error is raised
            wait([future for _, future in self._running.values()])

    def _start(
        self,
        job: ViewJob,
        written: set[str],
        arranges: Mapping[str, Sequence[str]],
        size: int,
    ) -> None:
        partitions = self.partitions(size)
        collections = dict(self.collections)

        def run() -> Ran:
            started = time.perf_counter()
            reported = job.run(
                collections,
                written,
                lower=self.lower,
                time=self.upto,
                fill=False,
                partitions=partitions,
                arranges=arranges,
            )
            return reported, time.perf_counter() - started

        if partitions is None:
            job.prepare()  # by this thread, whose session is the active one
            self._running[job.name] = job, self.pool.submit(run)
        else:
            self._settle(list(self._running))
            future: Future[Ran] = Future()
            future.set_result(run())
            self._running[job.name] = job, future

    def _settle(self, names: Sequence[str]) -> None:
        """Wait for jobs, and take in what they have written."""
        for name in names:
            if name not in self._running:
                continue
            job, future = self._running[name]
            reported, seconds = future.result()
            del self._running[name]
            self.appends.update(reported.parts)
            output = job.places[job.plan.output.name]
            parts = self.appends.get(output, [])
            self.collections[output] = extended(self.collections[output], parts, self.upto)
            self.changes[name] = sum(one.get("changes", 0) for one in reported.counts.values())
            self.runs[name] = ticks.noted(job, reported, seconds)


def _owners(jobs: Sequence[ViewJob]) -> dict[str, str]:
    """Which job writes each arrangement: the first that has it. All see the same changes."""
    owners: dict[str, str] = {}
    for job in jobs:
        for name in job.places:
            owners.setdefault(name, job.name)
    return owners


def _arranges(jobs: Sequence[ViewJob]) -> dict[str, dict[str, list[str]]]:
    """Which job keeps the rows of relations by key: the first that reads the relation.

    By job: relations, and the collections of what is kept of them.
    """
    kept: dict[str, dict[str, None]] = {}
    for job in jobs:
        for name, one in job.plan.arrangements.items():
            if one.source is not None:
                kept.setdefault(one.source, {})[job.places[name]] = None
    found: dict[str, dict[str, list[str]]] = {}
    for job in jobs:
        for input in job.plan.inputs:
            if input.collection in kept:
                ids = list(kept.pop(input.collection))
                found.setdefault(job.name, {})[input.collection] = ids
    return found


def extended(collection: Collection, parts: Sequence[WrittenFile], time: int) -> Collection:
    """A collection with what this tick has written to it, and will commit."""
    if not parts:
        return collection
    added = [part_of(part, collection.spec.schema) for part in parts]
    return replace(collection, upper=time + 1, parts=(*collection.parts, *added))
