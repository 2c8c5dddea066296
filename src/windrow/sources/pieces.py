"""Pieces: the tables of a source, and how each becomes rows of an arrangement.

An event log is one piece, and its stream another. A table that changes may be two: dated snapshots
and a log of mutations. A snapshot replaces the state that mutations led to (see `changes`). If the
two agree, as they should, retracted rows and those of the snapshot cancel, and only what really
changed remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import DefinitionError
from windrow.rows.types import is_storable
from windrow.shard.shard import Shard
from windrow.sources.bound import BoundTable, bind_table, file_days
from windrow.sources.changes import UpdateColumns, end_of_day, replaces, snapshot_times
from windrow.sources.columns import KNOWN_AT, Form, Taken
from windrow.sources.definitions import EntitySource, EventSource, PreAggregatedSource, Source
from windrow.sources.files import FileRows, TimeFilter
from windrow.sources.stream_columns import declared_columns
from windrow.sources.stream_shard import open_stream, stream_rows
from windrow.sources.streams import TakenIn
from windrow.sources.tables import require_columns
from windrow.sources.times import check_time_type, millis_sql
from windrow.spark.errors import known_errors
from windrow.spark.schemas import arrow_to_spark_schema, empty_frame, quoted
from windrow.spark.session import Engine
from windrow.storage.names import Anchored, written
from windrow.updates import DIFF, update_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SNAPSHOT_TIME = "__snapshot_time"


@dataclass(frozen=True)
class Piece:
    """A table of a source, and how its rows are read.

    `known_at` names the column that says when an update became known, `sign` the one that says
    whether it adds or retracts a row, and its form. `replaced` are the times of snapshots,
    ascending, each of which retracts what precedes it. With `rows`, tasks read the table; `reason`
    says why or why not.
    """

    source: Source
    table: BoundTable
    known_at: str | None = None
    sign: tuple[str, Form] | None = None
    replaced: tuple[int, ...] = ()
    columns: tuple[Taken, ...] = ()
    required: tuple[str, ...] = ()
    rows: FileRows | None = None
    reason: str = ""
    shard: Shard | None = None  # the shard that stores the rows
    streamed: bool = False  # of a stream, as far as it was taken in

    def taking(
        self, columns: tuple[Taken, ...], required: tuple[str, ...], engine: Engine
    ) -> Piece:
        """The same piece, with the columns that are taken from it."""
        taken = replace(self, columns=columns, required=required)
        if self.replaced:
            return replace(taken, rows=None, reason="snapshots retract what precedes them")
        keep = [TimeFilter(name) for name in required]
        rows, reason = self.table.rows(columns, keep, engine.tasks)
        return replace(taken, rows=rows, reason=reason)

    def only(self, uris: Sequence[str], engine: Engine) -> Piece:
        """The same piece, reduced to some of its files."""
        return replace(self, table=self.table.only(uris)).taking(
            self.columns, self.required, engine
        )

    def during(self, span: tuple[int, int], engine: Engine) -> Piece:
        """Of a shard: the same piece, reduced to updates at times in [lower, upper)."""
        assert self.shard is not None
        if self.streamed:
            piece = replace(self, table=_stream_table(engine, self.source, self.shard, span))
        else:
            assert isinstance(self.source, EntitySource)
            piece = _shard_piece(engine, self.source, self.shard, span)
        return piece.taking(self.columns, self.required, engine)

    def recent(self, start: int) -> tuple[str, ...]:
        """The files that may hold updates at `start` or later."""
        uris = self.table.uris or ()
        partitions = self.source.partitions
        days = (
            None if partitions is None else file_days(uris, partitions.column, self.table.folders)
        )
        if self.sign is None and days is not None:  # snapshots: each at the end of its day
            first = str(date(1970, 1, 1) + timedelta(milliseconds=start))
            return tuple(uri for uri in uris if days[uri] >= first)
        assert self.known_at is not None
        return self.table.within(self.known_at, start, None).uris or ()

    @property
    def fingerprint(self) -> list[Any]:
        columns = [(c.name, c.source, str(c.type), c.form.name, c.value) for c in self.columns]
        selected = (self.source.selected, self.source.where)
        # A stream is the same before it ran and after: see `stream_shard`.
        shard = None if self.shard is None or self.streamed else self.shard.id
        return [self.table.text, selected, columns, bool(self.replaced), shard]

    @property
    def exchanged(self) -> bool:
        """Whether rows have to be brought together by key, to cancel before they are stored."""
        return bool(self.replaced)

    def frame(self, back: int | None = None) -> DataFrame:
        """Rows of the arrangement through Spark's reader; those without a time are left out.

        With `back`, only what snapshots after that time retract of earlier rows.
        """
        from pyspark.sql import functions as F  # noqa: N812

        types = arrow_to_spark_schema(pa.schema([(c.name, c.type) for c in self.columns]))
        frame = self._rows().select(
            *(c.sql(self.table.schema, types[c.name].dataType) for c in self.columns)
        )
        for name in self.required:
            frame = frame.where(F.col(name).isNotNull())
        if self.replaced:
            frame = _replaced(frame, self.replaced, self.sign is None, back)
        return self.table.executed(frame)

    def _rows(self) -> DataFrame:
        """The table's rows; of mutations, those after the first snapshot, or without a time."""
        after = self._after_first_snapshot()
        frame = self.table.frame
        return frame if after is None else frame.where(after.isNull() | after)

    def early(self) -> DataFrame | None:
        """Mutations that the first snapshot holds already; None if there are none for sure."""
        after = self._after_first_snapshot()
        if after is None:
            return None
        assert self.known_at is not None
        known = self.table.times(self.known_at)
        if known is not None and not replaces(self.replaced[0], known[0], False):
            return None
        return self.table.executed(self.table.frame.where(~after))

    def _after_first_snapshot(self) -> Column | None:
        from pyspark.sql import functions as F  # noqa: N812

        if not self.replaced or self.sign is None:
            return None
        assert self.known_at is not None
        type_ = self.table.schema.field(self.known_at).type
        known_at = F.expr(millis_sql(quoted(self.known_at), type_))
        early: Column = replaces(F.lit(self.replaced[0]), known_at, False)
        return ~early

    def never_rejects(self) -> bool:
        """Whether it is known, without reading, that every row has its times."""
        names = [c.source for c in self.columns if c.name in self.required]
        return all(self.table.has_no_null(name) for name in names)

    def rejected(self) -> DataFrame:
        """The table's rows without a time, with the reason; what cannot be stored is text."""
        from pyspark.sql import functions as F  # noqa: N812

        names = [c.source for c in self.columns if c.name in self.required]
        frame = self._rows()
        label = "reason"
        while label in {name.lower() for name in frame.columns}:
            label += "_"
        reason = F.coalesce(
            *(F.when(F.col(quoted(n)).isNull(), F.lit(f"{n} is null")) for n in names)
        )
        kept = [
            F.col(quoted(field.name))
            if is_storable(field.type)
            else F.col(quoted(field.name)).cast("string").alias(field.name)
            for field in self.table.schema
        ]
        frame = frame.select(*kept, reason.alias(label)).where(F.col(label).isNotNull())
        return self.table.executed(frame)


def _replaced(
    frame: DataFrame, snapshots: tuple[int, ...], by_snapshot: bool, back: int | None
) -> DataFrame:
    """Each update once more, retracted at the next snapshot after it.

    `by_snapshot`: they are rows of snapshots. With `back`, only retractions of updates that no
    snapshot up to that time retracts.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if DIFF not in frame.columns:
        frame = frame.withColumn(DIFF, F.lit(1).cast("long"))
    names = frame.columns
    known = F.array(*(F.lit(m).cast("long") for m in snapshots))
    known_at = F.col(KNOWN_AT)
    if back is not None:
        frame = frame.where(~replaces(F.lit(back), known_at, by_snapshot))
    following = F.array_min(F.filter(known, lambda one: replaces(one, known_at, by_snapshot)))
    taken = frame.withColumn(KNOWN_AT, following).where(F.col(KNOWN_AT).isNotNull())
    taken = taken.withColumn(DIFF, -F.col(DIFF)).select(*names)
    return taken if back is not None else frame.unionByName(taken)


def bind_source(engine: Engine, source: Source, options: Mapping[str, str] | None) -> list[Piece]:
    """Find the tables of a source, and what was taken in of its stream."""
    if isinstance(source, EntitySource):
        pieces = _entity(engine, source, options)
    else:
        assert isinstance(source, EventSource | PreAggregatedSource)
        pieces = [] if source.table is None else [_log(engine, source, source.table, options)]
    if source.stream is not None:
        pieces.append(_stream(engine, source, pieces[0].table if pieces else None, options))
    return pieces


def _log(engine: Engine, source: Source, table: Any, options: Mapping[str, str] | None) -> Piece:
    """A table of events."""
    known = _known(source)
    bound = _bind(engine, source, table, source.what, known, options)
    return _of_events(source, bound)


def _known(source: Source) -> list[str]:
    """The column that says when an event became known, if there is one."""
    known = source.known if isinstance(source, EventSource) else None
    return [] if known is None else [known]


def _of_events(source: Source, table: BoundTable) -> Piece:
    for known in _known(source):
        require_columns(table.schema.names, [known], f"{source.what}: known")
        check_time_type(table.schema.field(known).type, f"{source.what}: known {known!r}")
    return Piece(source, table, known_at=next(iter(_known(source)), None))


def _bind(
    engine: Engine,
    source: Source,
    table: Any,
    what: str,
    also: Sequence[str],
    options: Mapping[str, str] | None,
    *,
    whole: bool = False,
) -> BoundTable:
    """A table of a source; columns `also` are kept whatever `select` says.

    With `whole`, whatever range of partitions the source names.
    """
    partitions = None if whole else source.partitions
    if partitions is not None and partitions.is_open and isinstance(source, EntitySource):
        partitions = None  # nothing is chosen by it, so the table need not have the column
    select = source.selected
    if select:
        names = {name for name, _ in select}
        select += tuple((name, quoted(name)) for name in also if name not in names)
    return bind_table(
        engine,
        table,
        what,
        select=select,
        where=source.where,
        partitions=partitions,
        options=options,
    )


def _entity(engine: Engine, source: EntitySource, options: Mapping[str, str] | None) -> list[Piece]:
    if source.view is not None:
        raise DefinitionError(
            f"{source.what}: {source.view!r} is a name of a project, which only its backfill "
            "knows; call project.plan or project.backfill with the join"
        )
    pieces = []
    times: tuple[int, ...] = ()
    if source.snapshots is not None:
        snapshots, times = _snapshots(engine, source, options)
        pieces.append(snapshots)
    if source.mutations is not None:
        pieces.append(replace(_updates(engine, source, "mutations", options), replaced=times))
    if source.changes is not None:
        pieces.append(_updates(engine, source, "changes", options))
    if source.shard is not None:
        pieces.append(_shard(engine, source, options))
    return pieces


def _updates(
    engine: Engine, source: EntitySource, name: str, options: Mapping[str, str] | None
) -> Piece:
    """Mutations, or a change feed."""
    columns = UpdateColumns.of(source, name)
    what = f"{source.what}: {name}"
    table = _bind(engine, source, getattr(source, name), what, columns.names, options)
    return _of_updates(source, table, columns)


def _of_updates(source: EntitySource, table: BoundTable, columns: UpdateColumns) -> Piece:
    schema = table.schema
    require_columns(schema.names, [columns.known_at], f"{source.what}: mutation_time")
    check_time_type(
        schema.field(columns.known_at).type, f"{source.what}: mutation_time {columns.known_at!r}"
    )
    require_columns(schema.names, [columns.sign], f"{source.what}: {columns.option}")
    columns.check(schema.field(columns.sign).type, source)
    return Piece(source, table, columns.known_at, (columns.sign, columns.form))


def _snapshots(
    engine: Engine, source: EntitySource, options: Mapping[str, str] | None
) -> tuple[Piece, tuple[int, ...]]:
    """Snapshots as a piece, and their times."""
    from pyspark.sql import functions as F  # noqa: N812

    assert source.partition is not None
    what = f"{source.what}: snapshots"
    table = _bind(engine, source, source.snapshots, what, [source.partition], options)
    require_columns(table.schema.names, [source.partition], f"{source.what}: partition")
    times = snapshot_times(source, _snapshot_days(engine, source, options))
    days = f"datediff(CAST({quoted(source.partition)} AS DATE), DATE'1970-01-01')"
    time = end_of_day(F.expr(days).cast("long"))
    table = table.changed(
        lambda frame: frame.withColumn(_SNAPSHOT_TIME, time),
        [pa.field(_SNAPSHOT_TIME, pa.int64())],
    )
    return Piece(source, table, _SNAPSHOT_TIME, None, times), times


def _snapshot_days(
    engine: Engine, source: EntitySource, options: Mapping[str, str] | None
) -> list[str]:
    """The days of snapshots, those without a row that passes `where` too."""
    from pyspark.sql import functions as F  # noqa: N812

    assert source.partition is not None
    what = f"{source.what}: snapshots"
    whole = bind_table(
        engine, source.snapshots, what, partitions=source.partitions, options=options
    )
    require_columns(whole.schema.names, [source.partition], f"{source.what}: partition")
    folders = file_days(whole.uris, source.partition, whole.folders)
    if folders is not None:
        return sorted(set(folders.values()))
    day = F.col(quoted(source.partition)).cast("string")
    days = whole.executed(whole.frame.select(day).distinct())
    with known_errors():
        return sorted(str(r[0]) for r in days.collect())  # few


def _shard(engine: Engine, source: EntitySource, options: Mapping[str, str] | None) -> Piece:
    """A shard's history: its own times are those of the changes."""
    given = source.shard
    shard = given if isinstance(given, Shard) else Shard.open(given, storage_options=options)
    return _shard_piece(engine, source, shard, (shard.since, shard.upper))


def _shard_piece(
    engine: Engine, source: EntitySource, shard: Shard, span: tuple[int, int]
) -> Piece:
    """The updates of a shard in a span of its times."""
    what = f"{source.what}: shard"
    columns, given = UpdateColumns.of(source, "shard"), source.shard
    text = shard.uri if isinstance(given, Shard) else Anchored(shard.uri, written(given))

    def load(_: Sequence[str] | None) -> DataFrame:
        return shard.changes(*span).dataframe(engine.spark)

    if source.selected or source.where:
        table = _bind(engine, source, load(None), what, columns.names, None)
        table = replace(table, text=text)
    else:
        table = BoundTable(
            what=what,
            text=text,
            schema=update_schema(shard.schema),
            uris=None,
            parquet=None,
            sources={},
            obstacle="a shard",
            options=(),
            load=load,
        )
    return Piece(source, table, columns.known_at, (columns.sign, columns.form), shard=shard)


def _stream(
    engine: Engine, source: Source, table: BoundTable | None, options: Mapping[str, str] | None
) -> Piece:
    """What was taken in of a stream; `table` is what it continues."""
    stream = source.stream
    if not isinstance(stream, TakenIn):
        raise DefinitionError(
            f"{source.what}: what was taken in of its stream is in a project, which only its "
            "backfill knows; call project.plan or project.backfill with the join"
        )
    shard = open_stream(stream.uri, options)
    if shard is not None:
        bound = _stream_table(engine, source, shard, (shard.since, shard.upper))
    elif table is not None:
        bound = _no_rows(engine, source, table)
    else:
        columns = arrow_to_spark_schema(declared_columns(engine.spark, source))
        frame = empty_frame(engine.spark, columns)
        bound = _stream_bound(engine, source, frame)
    bound = replace(bound, text=stream.uri, uris=() if shard is None else None)
    if isinstance(source, EntitySource):
        piece = _of_updates(source, bound, UpdateColumns.of(source, source.feed))
    else:
        piece = _of_events(source, bound)
    return replace(piece, shard=shard, streamed=True)


def _stream_table(
    engine: Engine, source: Source, shard: Shard, span: tuple[int, int]
) -> BoundTable:
    """The rows of a stream that were taken in at times of a span."""
    assert source.stream is not None
    frame = stream_rows(shard, span, engine.spark)
    return replace(_stream_bound(engine, source, frame), text=getattr(source.stream, "uri", ""))


def _stream_bound(engine: Engine, source: Source, frame: DataFrame) -> BoundTable:
    if isinstance(source, EntitySource):
        also = UpdateColumns.of(source, source.feed).names
    else:
        also = _known(source)
    what = f"{source.what}: stream"
    bound = _bind(engine, source, frame, what, also, None, whole=True)
    return replace(bound, obstacle="a stream")


def _no_rows(engine: Engine, source: Source, table: BoundTable) -> BoundTable:
    """A stream that never ran: no rows, of the columns that the table has."""
    return BoundTable(
        what=f"{source.what}: stream",
        text="",
        schema=table.schema,
        uris=(),
        parquet=None,
        sources={},
        obstacle="a stream",
        options=(),
        load=lambda _: empty_frame(engine.spark, arrow_to_spark_schema(table.schema)),
    )
