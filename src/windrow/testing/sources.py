"""The tables of a source, in memory: which of their rows count, and when each became known.

This is what `windrow.sources.pieces` does with tables on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import DataError, OptionError, unknown_column
from windrow.features.definitions import Queries
from windrow.rows.types import single_chunk
from windrow.sources.changes import UpdateColumns, replaces, snapshot_times
from windrow.sources.columns import Form, Taken
from windrow.sources.definitions import EntitySource, EventSource, Source
from windrow.sources.times import check_time_type
from windrow.spark.schemas import quoted
from windrow.testing.rows import Rows
from windrow.testing.sql import column_name, condition, evaluate, plain_name
from windrow.updates import DIFF, TIME

_TABLES = ("snapshots", "mutations", "changes", "shard")


def given_rows(source: Source, data: Any, schema: pa.Schema | None) -> dict[str, Rows]:
    """The rows of each table of a source."""
    if not isinstance(source, EntitySource):
        times = raw_times(source, _known_at_of(source, ""))
        return {"": Rows.make(data, source.what, times, schema)}
    names = [name for name in _TABLES if getattr(source, name) is not None]
    names = names or [source.feed]  # a stream alone
    if "snapshots" not in names:
        data = {names[0]: data}
    elif not isinstance(data, Mapping) or set(data) != set(names):
        wanted = ", ".join(f"{name!r}: [...]" for name in names)
        raise OptionError(f"{source.what}: the rows are {data!r}; give a dict, {{{wanted}}}")
    return {
        name: Rows.make(
            data[name],
            f"{source.what}: {name}",
            raw_times(source, _known_at_of(source, name)),
            schema,
        )
        for name in names
    }


def _known_at_of(source: Source, table: str) -> list[str]:
    """The column of a table that says when a row became known, if there is one."""
    if isinstance(source, EntitySource):
        return [] if table == "snapshots" else [UpdateColumns.of(source, table).known_at]
    known = source.known if isinstance(source, EventSource) else None
    return [] if known is None else [known]


def raw_times(definition: Source | Queries, known_at: Sequence[str] = ()) -> list[str]:
    """The columns of a table, before select, that become its times as they are."""
    if not definition.selected:
        return [definition.time, *known_at]
    # An expression, which is more than the name of a column, needs the values as they were given.
    wanted = {definition.time, *known_at}
    names = [plain_name(text) for name, text in definition.selected if name in wanted]
    kept = wanted - {definition.time} - {name for name, _ in definition.selected}
    return [name for name in [*names, *kept] if name is not None]


def selected(rows: Rows, definition: Source | Queries, what: str, also: Sequence[str] = ()) -> Rows:
    """The rows that pass `where`, with the columns of `select`; `also` are kept in any case."""
    if rows.open:
        return rows.extended([*(name for name, _ in definition.selected), *also])
    rows = _in_range(rows, definition)
    if definition.where is not None:
        mask = condition(rows.table, definition.where, f"{what}: where")
        rows = rows.filter(mask.to_pylist())
    if not definition.selected:
        return rows
    arrays, given = {}, {}
    names = {name for name, _ in definition.selected}
    kept = [n for n in also if n not in names and column_name(quoted(n), rows.table.column_names)]
    for name, text in (*definition.selected, *((name, quoted(name)) for name in kept)):
        arrays[name] = evaluate(rows.table, text, f"{what}: select {name!r}")
        source = column_name(text, rows.table.column_names)
        if source is not None and source in rows.given:
            given[name] = rows.given[source]
    return replace(rows, table=pa.table(arrays), given=given)


def _in_range(rows: Rows, definition: Source | Queries) -> Rows:
    """The rows of the partitions that are read, if they say of which they are."""
    days = definition.partitions
    if days is None or days.column not in rows.table.column_names:
        return rows
    found = rows.column(days.column).cast(pa.string()).to_pylist()
    return rows.filter(
        [day in days if day is not None else days.start is days.end is None for day in found]
    )


def require_columns(rows: Rows, names: Sequence[str], what: str) -> None:
    for name in names:
        if name not in rows.table.column_names:
            raise unknown_column(name, rows.table.column_names, what)


def time_column(rows: Rows, name: str, what: str) -> pa.Array:
    column = rows.column(name)
    if pa.types.is_null(column.type):
        return column.cast(pa.timestamp("us", tz="UTC"))
    check_time_type(column.type, what)
    return column


@dataclass(frozen=True)
class Part:
    """Rows of one table of a source.

    `known_at` (milliseconds) says when each became known, None for rows that always are; `diffs`
    says whether it is added or retracted, and how often. `replaced` are the times of snapshots,
    ascending, each of which retracts what precedes it.
    """

    source: Source
    what: str
    rows: Rows
    known_at: pa.Array | None = None
    diffs: pa.Array | None = None
    replaced: tuple[int, ...] = ()

    def filter(self, mask: np.ndarray) -> Part:
        keep = pa.array(mask, pa.bool_())
        known_at = None if self.known_at is None else self.known_at.filter(keep)
        diffs = None if self.diffs is None else self.diffs.filter(keep)
        return replace(self, rows=self.rows.filter(mask.tolist()), known_at=known_at, diffs=diffs)


def parts_of(source: Source, given: Mapping[str, Rows]) -> list[Part]:
    """The tables of a source; `given` has the rows of each."""
    if not isinstance(source, EntitySource):
        known, what = _known_at_of(source, ""), source.what
        rows = selected(given[""], source, what, known)
        times = [_millis(rows, name, f"{what}: known") for name in known]
        return [Part(source, what, rows, *times)]
    parts: list[Part] = []
    replaced: tuple[int, ...] = ()
    for table, rows in given.items():
        if table == "snapshots":
            part = _snapshots(source, rows)
            replaced = part.replaced
        else:
            part = _changes(source, table, rows, replaced)
        parts.append(part)
    return parts


def _snapshots(source: EntitySource, rows: Rows) -> Part:
    """The whole table, at the end of each day."""
    assert source.partition is not None
    what = f"{source.what}: snapshots"
    rows = rows.extended([source.partition])
    require_columns(rows, [source.partition], f"{source.what}: partition")
    # A day all of whose rows `where` leaves out is a snapshot too.
    wanted = source.partitions
    assert wanted is not None
    days = sorted({str(day) for day in rows.column(source.partition).to_pylist()})
    days = [day for day in days if day in wanted]
    times = dict(zip(days, snapshot_times(source, days), strict=True))
    rows = selected(rows, source, what, [source.partition])
    known_at = [times[str(day)] for day in rows.column(source.partition).to_pylist()]
    return Part(source, what, rows, pa.array(known_at, pa.int64()), None, tuple(times.values()))


def _changes(source: EntitySource, table: str, rows: Rows, replaced: tuple[int, ...]) -> Part:
    """Updates: mutations, a change feed, or those of a shard."""
    what = f"{source.what}: {table}"
    columns = UpdateColumns.of(source, table)
    rows = selected(rows, source, what, columns.names).extended(columns.names)
    option = what if table == "shard" else f"{source.what}: mutation_time"
    known_at = _millis(rows, columns.known_at, option)
    require_columns(rows, [columns.sign], f"{source.what}: {columns.option}")
    part = Part(source, what, rows, known_at, None, replaced)
    if replaced:
        early = replaces(replaced[0], known_at.fill_null(replaced[0] + 1).to_numpy(), False)
        part = part.filter(~early)
    signs = _signs(part.rows.column(columns.sign), columns, source)
    part = replace(part, diffs=_made(signs, columns.sign, columns.form))
    if table == "shard":
        for label, values in ((TIME, part.known_at), (DIFF, part.diffs)):
            if values is not None and values.null_count:
                count = f"{values.null_count} of {len(values)}"
                raise DataError(f"{what}: {count} updates have a null {label!r}")
    return part


def _signs(column: pa.Array, columns: UpdateColumns, source: EntitySource) -> pa.Array:
    found, type_ = column.type, columns.type
    if pa.types.is_integer(found) and pa.types.is_integer(type_):
        return column
    if pa.types.is_null(found) or (pa.types.is_large_string(found) and type_ == pa.string()):
        return column.cast(type_)
    columns.check(found, source)
    return column


def _millis(rows: Rows, name: str, what: str) -> pa.Array:
    """The times in a column, in milliseconds."""
    rows = rows.extended([name])
    require_columns(rows, [name], what)
    return _made(time_column(rows, name, f"{what} {name!r}"), name, Form.MILLIS)


def _made(column: pa.Array, name: str, form: Form) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([single_chunk(column)], names=[name])
    return Taken(name, name, pa.int64(), form).make(batch)
