"""Ticks, computed and committed: all views to one time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from windrow.spark.session import Engine, has_own_jobs, parallelism
from windrow.spark.tasks import WrittenFile
from windrow.views.costs import ticks
from windrow.views.engine.planning import Planning
from windrow.views.engine.ticking import Tick
from windrow.views.history.collections import Collection
from windrow.views.history.commits import TICK, Commit
from windrow.views.history.history import History

LARGE = 200_000  # changes; from then on rows are exchanged between several tasks
ROWS_PER_TASK = 1_000_000
MOST_THREADS = 8  # that run jobs of one tick


@dataclass(frozen=True)
class TickSummary:
    """What a tick did: the time that all views are at, and the changes of each that it touched."""

    time: int
    changes_in: int = 0
    changes_out: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    quarantined: int = 0  # changes that sources have left out

    def __str__(self) -> str:
        left = f", {self.quarantined:,} in quarantine" if self.quarantined else ""
        return self._changes() + left

    def _changes(self) -> str:
        if not self.changes_out:
            return f"no changes, {self.seconds:.2f} s"
        out = sum(self.changes_out.values())
        views = len(self.changes_out)
        return (
            f"{self.changes_in:,} changes in, {out:,} out, {views} "
            f"view{'s' if views != 1 else ''}, {self.seconds:.2f} s"
        )


@dataclass(frozen=True)
class Computed:
    """What a tick changes, before it is committed; based on a version of the history.

    `collections` are those that it has read, with what it has added to views.
    """

    version: int
    upto: int
    appends: Mapping[str, Sequence[WrittenFile]]
    changes: Mapping[str, int]
    changes_in: int
    collections: Mapping[str, Collection]
    runs: Mapping[str, Any]  # what the operators of each view did, to be noted


class Ticker:
    """Computes and commits the ticks of a project; who calls it has claimed them."""

    def __init__(self, engine: Engine, history: History, planning: Planning) -> None:
        self._engine, self._history, self._planning = engine, history, planning
        self._pool: ThreadPoolExecutor | None = None
        self.committed = 0  # ticks, by this process

    def tick(self) -> TickSummary:
        """Bring all views to the newest time of their inputs."""
        started = time.perf_counter()
        found = self.computed()
        if found is None:
            return TickSummary(self._history.ticked)
        at, note = found.upto, {"changes": found.changes, ticks.NOTE: found.runs}
        self._history.commit(
            Commit(TICK, at, appends=found.appends, ticked=at, note=note), expected=found.version
        )
        self.committed += 1
        return TickSummary(at, found.changes_in, found.changes, time.perf_counter() - started)

    def computed(self, without: Sequence[str] = ()) -> Computed | None:
        """What a tick of all views but some changes; None if nothing has changed since the last.

        Others may not read those that are left out, which are about to be replaced.
        """
        history = self._history
        lower, upto, version = history.ticked + 1, history.time, history.version
        if upto < lower:
            return None
        jobs = self._planning.ordered_jobs(without)
        tick = Tick(history, lower, upto, self._threads(), self.partitions)
        tick.run(jobs)
        return Computed(
            version,
            upto,
            tick.appends,
            tick.changes,
            tick.changes_in,
            tick.collections,
            tick.runs,
        )

    def partitions(self, rows: int) -> int | None:
        """How many tasks rows are exchanged between; None: one task does it all."""
        if rows < LARGE:
            return None
        return max(2 * parallelism(self._engine.given), -(-rows // ROWS_PER_TASK))

    def _threads(self) -> ThreadPoolExecutor:
        """Threads that run jobs: kept, since each has a connection to the JVM."""
        if self._pool is None:
            given = self._engine.given
            count = min(parallelism(given), MOST_THREADS) if has_own_jobs(given) else 1
            self._pool = ThreadPoolExecutor(max(1, count), "windrow-tick")
        return self._pool

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
