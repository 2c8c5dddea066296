"""The plan of a backfill: every decision, as data. `explain` prints it, `run` obeys it.

read      which tables, by tasks or by Spark's reader, and why
arrange   which arrangements are there, which are built, and why
compute   which groups in one pass over the sorted queries
store     where the result goes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from windrow.errors import ShardNotFoundError
from windrow.features.arrange import EventInputs
from windrow.features.backfill import SLICE_ROWS, Pass, check_keys, passes_of
from windrow.features.definitions import Join
from windrow.features.queries import QueryInputs
from windrow.shard.shard import Shard
from windrow.shard.store import Store
from windrow.sources.bound import BoundTable
from windrow.sources.files import FileRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Reading:
    """How a table is read: by tasks (`rows`), or by Spark's reader; and why."""

    table: BoundTable
    rows: FileRows | None
    reason: str

    def __str__(self) -> str:
        reader = "tasks read the files" if self.rows is not None else "Spark reads it"
        return f"{self.table.text}{_size(self.table)}: {reader} ({self.reason})"


@dataclass(frozen=True)
class Arranging:
    """An arrangement: where it rests, whether it is there, and why it is built or not.

    `kept` arrangements rest beneath the project; others are dropped with the backfill.
    """

    inputs: EventInputs
    name: str
    kept: bool
    rows: int | None  # of the arrangement, if it is there
    reason: str

    @property
    def there(self) -> bool:
        return self.rows is not None

    @property
    def reading(self) -> Reading:
        return Reading(self.inputs.table, self.inputs.rows, self.inputs.reason)

    @property
    def estimated_rows(self) -> int | None:
        if self.rows is not None:
            return self.rows
        parquet = self.inputs.table.parquet
        return parquet.rows if parquet is not None else None

    def __str__(self) -> str:
        group = self.inputs.group
        action = "use" if self.there else "build"
        size = f", {self.rows:,} events" if self.rows is not None else ""
        columns = ", ".join(self.inputs.inputs)
        return (
            f"{action} {self.name}{size}: by {', '.join(group.keys)} and {group.source.time}, "
            f"with {columns} ({self.reason})"
        )


@dataclass(frozen=True)
class Merging:
    """A pass: groups computed together, merged with the queries sorted by the same keys.

    `arrangements` are numbers of the plan's arrangements, one per group.
    """

    keys: Pass
    arrangements: tuple[int, ...]
    events: int | None
    queries: int | None

    def __str__(self) -> str:
        features = sum(len(g.group.features) for g in self.keys.groups)
        windows = {f.window for g in self.keys.groups for f in g.group.features}
        names = ", ".join(g.group.name for g in self.keys.groups)
        text = (
            f"{names}: merge by {', '.join(self.keys.left_keys)}; {_many(features, 'feature')} "
            f"in {_many(len(windows), 'window')}, one pass over the events"
        )
        if self.events is not None and self.queries is not None:
            slices = max(-(-(self.events + self.queries) // SLICE_ROWS), 1)
            text += f"; at least {_many(slices, 'slice')} of at most {SLICE_ROWS:,} rows, or a key"
        return text


@dataclass(frozen=True)
class BackfillPlan:
    """All of a backfill. `str(plan)` is what `explain` prints."""

    join: Join
    start: str | None
    end: str | None
    queries: QueryInputs
    reading: Reading
    arrangements: tuple[Arranging, ...]
    passes: tuple[Merging, ...]
    result: Store

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        span = " all queries"
        if self.start is not None or self.end is not None:
            span = f" queries from {self.start or 'the first'} to {self.end or 'the last'}"
        yield f"backfill {self.join.name}:{span}"
        yield f"  read     queries from {self.reading}"
        for one in self.arrangements:
            if not one.there:
                yield f"  read     {one.inputs.group.source.name} from {one.reading}"
        for one in self.arrangements:
            yield f"  arrange  {one}"
        for number, one_pass in enumerate(self.passes):
            keys = ", ".join(one_pass.keys.left_keys)
            again = "again, with the features so far, " if number else ""
            yield f"  sort     queries {again}by {keys} and {self.join.left.time}"
            yield f"  compute  {one_pass}"
        left_out = [g.group.name for g in self.join.all_groups if not g.group.offline]
        if left_out:
            yield f"  skip     {', '.join(left_out)} (offline=False)"
        if self.join.derive:
            yield f"  derive   {', '.join(self.join.derive)} with Spark SQL"
        columns = len(self.queries.schema) + len(self.join.derive)
        columns += sum(len(g.group.features) for g in self.join.groups)
        yield f"  store    {_many(columns, 'column')} as a Delta table, {self.result.uri}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _size(table: BoundTable) -> str:
    if table.parquet is not None:
        size = table.parquet.bytes
        shown = f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"
        files = _many(len(table.parquet.files), "file")
        return f" ({files}, {shown}, {table.parquet.rows:,} rows)"
    return f" ({_many(len(table.uris), 'file')})" if table.uris is not None else ""


def plan_backfill(
    spark: SparkSession,
    store: Store,
    join: Join,
    start: str | date | None,
    end: str | date | None,
) -> BackfillPlan:
    """Decide how to backfill `join`. Reads schemas, footers and logs, no rows."""
    options = store.options_dict
    queries = QueryInputs.bind(join, spark, start, end, options)
    passes = passes_of(join)
    arrangements: dict[str, Arranging] = {}
    numbers: list[tuple[int, ...]] = []
    for one in passes:
        found = []
        for group in one.groups:
            inputs = EventInputs.bind(group.group, spark, options)
            check_keys(group, queries.schema, inputs.schema)
            arranging = _arranging(inputs, store)
            arrangements.setdefault(arranging.name, arranging)
            found.append(list(arrangements).index(arranging.name))
        numbers.append(tuple(found))
    known = tuple(arrangements.values())
    rows, reason = None, "no features to compute"
    if passes:
        rows, reason = queries.rows(spark, passes[0].left_keys)
    return BackfillPlan(
        join,
        None if start is None else str(start),
        None if end is None else str(end),
        queries,
        Reading(queries.table, rows, reason),
        known,
        tuple(_merging(p, n, known, queries) for p, n in zip(passes, numbers, strict=True)),
        Store.at(f"{store.uri}/results/{join.name}", options),
    )


def _merging(
    keys: Pass, numbers: tuple[int, ...], known: Sequence[Arranging], queries: QueryInputs
) -> Merging:
    rows = [known[n].estimated_rows for n in set(numbers)]
    events = None if None in rows else sum(r for r in rows if r is not None)
    parquet = queries.table.parquet
    return Merging(keys, numbers, events, None if parquet is None else parquet.rows)


def _arranging(inputs: EventInputs, store: Store) -> Arranging:
    """The arrangement that a group needs, and whether it is there.

    It is kept only if a change of its source would be noticed: if the source is files. What a
    view, a table name or a DataFrame stands for may be another thing next time.
    """
    name = f"{inputs.group.source.name}-{inputs.fingerprint}"
    version = inputs.table.version()
    if version is None:
        why = "a change behind a name would not be noticed, so it is built each time"
        return Arranging(inputs, name, False, None, why)
    name = f"{name}-{version}"
    uri = f"{store.uri}/arrangements/{name}"
    try:
        shard = Shard.open(uri, storage_options=store.options_dict)
    except ShardNotFoundError:
        return Arranging(inputs, name, True, None, "not there yet")
    if shard.upper == 0:
        return Arranging(inputs, name, True, None, "begun but not finished")
    return Arranging(inputs, name, True, shard.stats().rows, "its files have not changed")
