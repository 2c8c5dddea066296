"""What the stages of a run share: where they work, what they counted, how long they took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow.spark.memory import Growth
from windrow.spark.progress import Progress
from windrow.spark.session import Engine
from windrow.spark.tasks import Written, add_counters
from windrow.storage.names import new_id
from windrow.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Stages:
    """One run, from its first stage to its last. `id` begins the names of the files it writes."""

    engine: Engine
    store: Store
    progress: Progress
    id: str = field(default_factory=new_id)
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    memory: Growth = field(default_factory=Growth)  # of the driver's Python

    @property
    def spark(self) -> SparkSession:
        """For expressions and tables."""
        return self.engine.spark

    @property
    def given(self) -> SparkSession:
        """For tasks that read and write by themselves: no setting matters to them."""
        return self.engine.given

    @contextmanager
    def stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        """Show a stage while it runs, and note how long it took."""
        started = time.perf_counter()
        with self.progress.stage(title, rows):
            yield
        self.memory.look()
        self.seconds[title] = self.seconds.get(title, 0.0) + time.perf_counter() - started

    def add(self, counter: str, value: int) -> None:
        self.counters = add_counters([self.counters, {counter: value}])

    def count(self, written: Written) -> None:
        self.counters = add_counters([self.counters, written.counters])
