"""The front door: one object, one state root.

Views, serving and consistency are imported where they are first used: a plan, or a fetch, starts in
half the time without the others.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from windrow.errors import OptionError
from windrow.features.definitions import GroupBy, Join, Queries
from windrow.features.inputs.streams import group_over_streams
from windrow.features.plan.backfill import BackfillPlan, plan_backfill
from windrow.features.run.backfill import BackfillRun, BackfillSummary
from windrow.sources.definitions import Source
from windrow.spark.progress import Noting, Progress, progress_for
from windrow.spark.session import Engine
from windrow.spark.stages import Stages
from windrow.storage import footers
from windrow.storage.names import digest
from windrow.storage.store import Store
from windrow.storage.underway import noted
from windrow.storage.uris import for_delta
from windrow.views.times import millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from windrow.consistency.report import Report
    from windrow.online.fetch import Fetcher
    from windrow.online.fetched import Fetched, Served
    from windrow.online.follow import Followed
    from windrow.online.log.logged import Logged
    from windrow.online.publish import Publisher
    from windrow.online.serving import Serving
    from windrow.online.stores.store import RecordStore
    from windrow.online.streams.batches import After
    from windrow.online.streams.running import Streams
    from windrow.online.upload import Uploaded
    from windrow.views.costs.catalogue import Line
    from windrow.views.engine.ticker import TickSummary
    from windrow.views.statements.statements import Statements
    from windrow.views.tables.table import Table


class Project:
    """A state root and the Spark session that works on it (a local one by default).

    A project that is not closed loses nothing; closing it, by hand or with `with`, brings the
    shards of its tables and views up to date and removes folders that only this process used.
    `progress` shows bars while long work runs; by default if standard error is a terminal.
    `online` is where records of served features are: a folder of this machine (by default `online`
    beneath the root), or the URL of a Redis server. `log_rate` is the share of fetches, of 1, that
    is logged beneath `served`, for `consistency`; what was logged is removed once it is older than
    `log_keep` (None: never).
    """

    def __init__(
        self,
        root: str | Path,
        *,
        spark: SparkSession | Engine | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: bool | None = None,
        online: str | Path | None = None,
        log_rate: float = 0.0,
        log_keep: str | None = "30d",
    ) -> None:
        self._store = Store.at(root, storage_options)
        for_delta(self._store.uri)  # a root that cannot hold tables is refused at once
        self._engine = spark if isinstance(spark, Engine) else Engine(spark)
        self._progress = progress
        self._online = online
        self._log_rate = log_rate
        if log_rate:
            from windrow.online.log.serving_log import check_keep, check_rate

            check_rate(log_rate)
            self._log_keep = check_keep(log_keep)
        self.summary: BackfillSummary | None = None  # of the last backfill

    @property
    def spark(self) -> SparkSession:
        return self._engine.given

    @property
    def store(self) -> Store:
        """The state root."""
        return self._store

    @functools.cached_property
    def _statements(self) -> Statements:
        """Opened with the first statement: a project of backfills alone has no history."""
        from windrow.views.statements.statements import Statements

        progress = progress_for(self.spark, self._progress)
        return Statements(self._engine, self._store, progress, lambda: self._publisher)

    def close(self) -> None:
        """Tidy up. The Spark session stays; a project that is used again opens itself again."""
        statements: Statements | None = vars(self).pop("_statements", None)
        if statements is not None:
            statements.close()
        served: Served | None = vars(self).pop("served", None)
        if served is not None and self._log_rate:
            cast("Logged", served).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sql(
        self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> DataFrame | None:
        """Run one statement of SQL over the tables, sources and views of the project.

        A query gives its rows, and so do SHOW and DESCRIBE; other statements give None. A query
        sees everything that was committed before it; views that it reads are brought up to date.
        `args` are the values of its parameters: a mapping, for those that the text has as `:name`,
        or a list, for `?`.
        """
        return self._statements.run(text, args)

    def table(self, name: str) -> Table:
        """A table of the project, to insert, delete and apply changes from Python."""
        return self._statements.table(name)

    def source(self, name: str, definition: Source, *, append_only: bool = False) -> None:
        """Make an `EventSource` or an `EntitySource` a relation of the project.

        Its rows are those that are there now. It is looked at by every tick, and by every query
        that mentions `name`; only what is new is read. With `append_only`, a row that is gone is
        an error, and views count on that.
        """
        self._statements.create_source(name, definition, append_only)

    def quarantine(self, name: str) -> DataFrame:
        """The changes of a source that are left out: each as a row, with `reason` and `times`.

        A change takes away a row that is not there, until what brings it has been read; or it has
        no time.
        """
        return self._statements.quarantine(name)

    def view(
        self,
        name: str,
        df: DataFrame,
        *,
        properties: Mapping[str, str] | None = None,
        online: Sequence[str] | None = None,
    ) -> None:
        """Create a view of a DataFrame that was made of the project's relations.

        They come from `read`, `sql` or `table(...).rows()`; what counts is the query, not the time
        at which they were read. A process that did not create the view calls this again, with the
        same DataFrame, before views are brought up to date. `properties` are those of
        TBLPROPERTIES, which choose plans. `online` are the columns that its rows are served by.
        """
        if online is not None:
            properties = {**(properties or {}), "online": ", ".join(online)}
        self._statements.create_view(name, df, properties)

    def streams(
        self,
        *sources: Source,
        once: bool = False,
        trigger: float = 0.5,
        after: After | None = None,
    ) -> Streams:
        """The streams of sources; `run` takes in what arrives in them.

        With `once`, what is there now, and no more. Otherwise a micro-batch begins every `trigger`
        seconds. After each, `after` is called with the source's name and the time up to which the
        stream's shard is known.
        """
        from windrow.online.streams.running import Streams

        pause = None if once else trigger
        return Streams(self._engine, self._store, sources, trigger=pause, after=after)

    def tick(self) -> TickSummary:
        """Read what is new in sources, and bring all views up to date, in one commit.

        Then what is served of views and tables by key is as of this time.
        """
        return self._statements.tick()

    def read(self, name: str, as_of: int | str | date | datetime | None = None) -> DataFrame:
        """The rows of a table, source or view: the newest that are there, or those at a time.

        A time is milliseconds since the epoch, a datetime, or text such as '2024-05-01 12:30:00'.
        """
        return self._statements.read(name, as_of)

    def changes(
        self,
        name: str,
        start: int | str | date | datetime,
        end: int | str | date | datetime | None = None,
    ) -> DataFrame:
        """What changed in a relation after `start`, up to and with `end` (by default the newest).

        Each row comes with `_change_type` (insert, delete; with a primary key also
        update_preimage and update_postimage), `_commit_timestamp` and `_commit_version`, the
        same time in milliseconds.
        """
        return self._statements.changes(name, start, end)

    def arrangements(self, view: str | None = None, *, exact: bool = False) -> DataFrame:
        """What the operators of a view (of all views) keep, a row each: estimate, size, sharing.

        `records` is what the stored files allow at most, unless `exact`: then Spark counts, which
        reads all of it.
        """
        return self._statements.arrangements(view, exact)

    def costs(self, view: str | None = None, *, exact: bool = False) -> list[Line]:
        """The same lines as objects; unless they are to be exact, no Spark is needed."""
        if exact or "_statements" in vars(self):
            self._statements.history.refresh()
            return self._statements.cost_lines(view, exact=exact)
        from windrow.views.costs.catalogue import arrangements
        from windrow.views.history.history import History
        from windrow.views.relations.names import Names

        history = History(self._store)
        return arrangements(Names(history), history, view)

    def upload(
        self,
        *served: Join | GroupBy,
        as_of: int | str | date | datetime | None = None,
    ) -> list[Uploaded]:
        """Put joins and groups online: write the records of all their keys, and serve them.

        What is served already goes on being served until the new records are complete. Features can
        be fetched at `as_of` (by default now) and at later times.
        """
        time = None if as_of is None else millis(as_of, "as_of")
        names = ", ".join(one.name for one in served)
        with noted(self._store, f"upload of {names}") as note:
            progress = Noting(progress_for(self.spark, self._progress), note, self.spark)
            return self._serving_with(progress).upload(served, time)

    def follow(self, *groups: GroupBy, source: str | None = None) -> list[Followed]:
        """Bring the records of served groups up to what the shards of their sources have now."""
        return self._serving.follow(groups, source)

    def following(self, *groups: GroupBy) -> After:
        """What streams call after each micro-batch: it brings records of served groups up to it."""
        follower = self._serving.follower([self._resolved(group) for group in groups])

        def after(source: str, upper: int) -> None:
            follower.follow(source)

        return after

    def fetch(
        self,
        name: str | Join | GroupBy,
        keys: Sequence[Mapping[str, Any]],
        *,
        at: int | str | date | datetime | None = None,
        features: Sequence[str] | None = None,
    ) -> Fetched:
        """The features of keys at a time, by default now, of a join or group that is served.

        Each of `keys` maps the names of key columns to values, and, for derived columns, those of
        left columns that they use. Of a view or table that is served by key columns, all other
        columns are given, as of the last tick.
        """
        time = None if at is None else millis(at, "at")
        known = name if isinstance(name, str) else name.name
        served = self.served
        if self._log_rate:
            served = cast("Logged", served).copying
        return served.fetch(known, keys, at=time, features=features)

    @functools.cached_property
    def served(self) -> Served:
        """What answers fetches, and logs them if `log_rate` says so; it needs no Spark."""
        if not self._log_rate:
            return self.fetcher
        from windrow.online.log.logged import Logged
        from windrow.online.log.serving_log import ServingLog

        return Logged(self.fetcher, ServingLog(self._store, self._log_rate, keep=self._log_keep))

    def flush_log(self) -> None:
        """Write to the serving log now what waits to be written."""
        if self._log_rate:
            cast("Logged", self.served).log.flush()

    def consistency(
        self,
        definition: Join | GroupBy,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        threshold: float = 0.999,
        examples: int = 50,
        log: Any = None,
        time: str | None = None,
        keys: Mapping[str, str] | None = None,
        values: Mapping[str, str] | None = None,
    ) -> Report:
        """Compare what was served of a join or group with what a backfill computes.

        `start` and `end` are days (UTC) of requests, both included. The verdict is that every
        feature agrees in at least `threshold` of its values. The report is stored beneath
        `consistency/NAME`, and so are all comparisons; it explains at most so many `examples`.

        `log` is a table, path or DataFrame that another system has logged, with the column `time`;
        `keys` and `values` map keys and features to its columns, where these have other names.
        """
        from windrow.consistency.job import Request, check_consistency

        request = Request(
            definition,
            None if start is None else str(start),
            None if end is None else str(end),
            threshold,
            examples,
            log,
            time,
            keys,
            values,
        )
        return check_consistency(
            self._engine,
            self._store,
            progress_for(self.spark, self._progress),
            request,
            lambda join, numbered: self._plan(join, start, end, None, numbered),
            self._resolved,
            None if log is not None else self._version,
        )

    def _version(self, definition: Join | GroupBy) -> str:
        return self._serving.version(definition)

    @functools.cached_property
    def fetcher(self) -> Fetcher:
        """What answers fetches, and logs none."""
        from windrow.online.fetch import Fetcher

        return Fetcher(self.records)

    @functools.cached_property
    def records(self) -> RecordStore:
        """Where records of served features are; opened when it is first needed."""
        address = self._online
        if address is None:
            if not self._store.is_local:
                raise OptionError(
                    f"the root {self._store.shown} is not a folder of this machine; say where "
                    "records are served from: Project(..., online='redis://...' or a local folder)"
                )
            address = f"{self._store.uri}/online"
        from windrow.online.stores.opening import open_store

        return open_store(address, namespace=digest(self._store.uri))

    @functools.cached_property
    def _publisher(self) -> Publisher:
        """What serves views and tables; made when one is to be served."""
        from windrow.online.publish import Publisher

        return Publisher(
            self._engine,
            self._store,
            lambda: self.records,
            lambda: progress_for(self.spark, self._progress),
        )

    @property
    def _serving(self) -> Serving:
        return self._serving_with(progress_for(self.spark, self._progress))

    def _serving_with(self, progress: Progress) -> Serving:
        from windrow.online.serving import Serving

        return Serving(self._engine, self._store, self.records, self._resolved, progress)

    def _resolved(self, group: GroupBy) -> GroupBy:
        """A group over the shards of the project's streams and views."""
        group = group_over_streams(group, self._store)
        if not group.reads_views:
            return group
        join = Join(group.name, Queries(table="none", time="none"), [group])
        (resolved,) = self._statements.resolved(join).all_groups
        return resolved.group

    def plan(
        self,
        join: Join,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        strategy: str | None = None,
    ) -> BackfillPlan:
        """What `backfill` with the same arguments would do. Reads schemas and logs, no rows."""
        return self._plan(join, start, end, strategy)

    def _plan(
        self,
        join: Join,
        start: str | date | None,
        end: str | date | None,
        strategy: str | None = None,
        numbered: str | None = None,
    ) -> BackfillPlan:
        self._engine.renew()
        footers.start()  # while everything else is prepared
        if any(one.group.reads_views for one in join.all_groups):
            join = self._statements.resolved(join)
        return plan_backfill(self._engine, self._store, join, start, end, strategy, numbered)

    def explain(
        self,
        join: Join | str,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        strategy: str | None = None,
    ) -> None:
        """Print what will be read, arranged, computed and stored, with sizes and reasons.

        Of a view, by its name, or of a query that could be one: how it is maintained.
        """
        if isinstance(join, str):
            print(self._statements.explain(join))
            return
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
        shown = progress_for(self.spark, self._progress)
        with noted(self._store, f"backfill of {join.name}") as note:
            progress = Noting(shown, note, self.spark)
            run = BackfillRun(Stages(self._engine, self._store, progress), plan)
            frame, self.summary = run.run()
        return frame
