"""What the stages of a run share: where they work, what they counted, how long they took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow.progress import Progress
from windrow.shard.part import new_id
from windrow.shard.report import Written, add_counters
from windrow.shard.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Stages:
    """One run, from its first stage to its last. `id` begins the names of the files it writes."""

    spark: SparkSession
    store: Store
    progress: Progress
    id: str = field(default_factory=new_id)
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        """Show a stage while it runs, and note how long it took."""
        started = time.perf_counter()
        with self.progress.stage(title, rows):
            yield
        self.seconds[title] = self.seconds.get(title, 0.0) + time.perf_counter() - started

    def add(self, counter: str, value: int) -> None:
        self.counters = add_counters([self.counters, {counter: value}])

    def count(self, written: Written) -> None:
        self.counters = add_counters([self.counters, written.counters])
