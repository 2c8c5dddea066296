"""The front door: one object, one state root."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.features.definitions import Join
from windrow.features.plan.backfill import BackfillPlan, plan_backfill
from windrow.features.run.backfill import BackfillRun, BackfillSummary
from windrow.spark.progress import progress_for
from windrow.spark.session import Engine
from windrow.spark.stages import Stages
from windrow.storage import footers
from windrow.storage.store import Store
from windrow.storage.uris import for_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Project:
    """A state root and the Spark session that works on it (a local one by default).

    `progress` shows bars while long work runs; by default if standard error is a terminal.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        spark: SparkSession | Engine | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: bool | None = None,
    ) -> None:
        self._store = Store.at(root, storage_options)
        for_delta(self._store.uri)  # a root that cannot hold tables is refused at once
        self._engine = spark if isinstance(spark, Engine) else Engine(spark)
        self._progress = progress
        self.summary: BackfillSummary | None = None  # of the last backfill

    @property
    def spark(self) -> SparkSession:
        return self._engine.given

    def plan(
        self,
        join: Join,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        strategy: str | None = None,
    ) -> BackfillPlan:
        """What `backfill` with the same arguments would do. Reads schemas and logs, no rows."""
        self._engine.renew()
        footers.start()  # while everything else is prepared
        return plan_backfill(self._engine, self._store, join, start, end, strategy)

    def explain(
        self,
        join: Join,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        strategy: str | None = None,
    ) -> None:
        """Print what will be read, arranged, computed and stored, with sizes and reasons."""
        print(self.plan(join, start=start, end=end, strategy=strategy))

    def backfill(
        self,
        join: Join,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        strategy: str | None = None,
    ) -> DataFrame:
        """The join's queries with their features, as they were at each query's time.

        `start` and `end` are days (UTC), both included; without them all queries are answered.
        The result is stored as a Delta table, `results/NAME` beneath the root, in place of that
        of an earlier backfill, and returned as a DataFrame. `summary` says what was done.
        `strategy` ("merge", "broadcast" or "tiles") overrides the choice that `explain` prints.
        """
        plan = self.plan(join, start=start, end=end, strategy=strategy)
        progress = progress_for(self.spark, self._progress)
        run = BackfillRun(Stages(self._engine, self._store, progress), plan)
        frame, self.summary = run.run()
        return frame
