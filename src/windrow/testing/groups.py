"""A group bound to rows in memory: the checks of a backfill, then the algebra of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.errors import unknown_column
from windrow.features.arrange import condition_mask, key_type
from windrow.features.backfill import check_keys
from windrow.features.compute import Events, QueryTimes, feature_type, group_features
from windrow.features.definitions import EventSource, GroupBy, JoinedGroup, Queries
from windrow.rows.types import canonical_schema
from windrow.sources.times import check_time_type, to_millis
from windrow.testing.rows import Rows, settled, with_types
from windrow.testing.sql import column_name, condition, evaluate, plain_name


def raw_times(definition: EventSource | Queries) -> list[str]:
    """The columns of a table, before select, that become its time as they are."""
    if not definition.selected:
        return [definition.time]
    # An expression, which is more than the name of a column, wants the values as they were given.
    names = (plain_name(text) for name, text in definition.selected if name == definition.time)
    return [name for name in names if name is not None]


def selected(rows: Rows, definition: EventSource | Queries, what: str) -> Rows:
    """The rows that pass `where`, with the columns of `select`."""
    if rows.open:
        return rows.extended(name for name, _ in definition.selected)
    if definition.where is not None:
        mask = condition(rows.table, definition.where, f"{what}: where")
        rows = rows.filter(mask.to_pylist())
    if not definition.selected:
        return rows
    arrays, given = {}, {}
    for name, text in definition.selected:
        arrays[name] = evaluate(rows.table, text, f"{what}: select {name!r}")
        source = column_name(text, rows.table.column_names)
        if source is not None and source in rows.given:
            given[name] = rows.given[source]
    return replace(rows, table=pa.table(arrays), given=given)


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


def canonical(table: pa.Table) -> pa.Table:
    """`table` with the types that Spark would give it; a column of nulls alone stays as it is."""
    known = canonical_schema(
        pa.schema([(f.name, settled(f.type, pa.string())) for f in table.schema])
    )
    return with_types(
        table, lambda f: f.type if pa.types.is_null(f.type) else known.field(f.name).type
    )


def features_of(joined: JoinedGroup, events: Rows, left: Rows, time: pa.Array) -> list[pa.Array]:
    """One array for each feature of the group, for the queries `left`, whose times are `time`."""
    group = joined.group
    source = group.source
    what = f"EventSource {source.name!r}"
    inputs = _input_columns(group)
    rows = selected(events, source, what).extended([source.time, *group.keys, *inputs])
    require_columns(rows, [source.time], f"{what}: time")
    require_columns(rows, group.keys, f"GroupBy {group.name!r}: keys")
    times = time_column(rows, source.time, f"{what}: time {source.time!r}")
    require_columns(rows, inputs, f"GroupBy {group.name!r}")
    rows = rows.filter(times.is_valid().to_pylist())
    values = _input_values(group, rows, inputs)
    left_keys, keys = _keys(joined, left, rows)
    millis, _ = to_millis(times.drop_null())
    query_millis, valid = to_millis(time)
    return group_features(
        group,
        Events(keys, millis, values, _conditions(group, rows)),
        QueryTimes(left_keys, query_millis, valid),
    )


def _input_columns(group: GroupBy) -> list[str]:
    names = (name for a in group.aggregations for name in (a.column, a.bucket))
    return list(dict.fromkeys(name for name in names if name is not None))


def _input_values(group: GroupBy, rows: Rows, inputs: Sequence[str]) -> pa.Table:
    """The columns that aggregations read, their types checked."""
    table = rows.table.select(inputs)
    table = canonical(with_types(table, lambda f: settled(f.type, _likely_type(group, f.name))))
    for aggregation in group.aggregations:
        where = f"GroupBy {group.name!r}: {aggregation.column} {aggregation.label}"
        feature_type(aggregation, table.schema, where)
    return table


def _likely_type(group: GroupBy, column: str) -> pa.DataType:
    """A type that suits all aggregates of a column, for one without values."""
    operations = [a.operation for a in group.aggregations if a.column == column]
    likely = (pa.int64(), pa.bool_())
    return next((t for t in likely if all(o.takes(t) for o in operations)), likely[0])


def _keys(joined: JoinedGroup, left: Rows, rows: Rows) -> tuple[pa.Table, pa.Table]:
    """The keys of the queries and of the events, as columns k0, k1, ... of the same types."""
    group, table = joined.group, left.extended(joined.left_keys).table
    events = canonical(rows.table.select(list(group.keys)))
    names = [f"k{i}" for i in range(len(group.keys))]
    # A side that has no values takes the type of the other.
    found, wanted = {}, {}
    for key, name in zip(group.keys, joined.left_keys, strict=True):
        type_ = events.schema.field(key).type
        if name in table.column_names:
            found[name] = settled(table.schema.field(name).type, settled(type_, pa.int64()))
        wanted[key] = settled(type_, found.get(name, pa.int64()))
    table = with_types(table, lambda f: found.get(f.name, f.type))
    events = with_types(events, lambda f: key_type(wanted[f.name])).rename_columns(names)
    check_keys(joined, table.schema, events.schema)
    keys = with_types(table.select(list(joined.left_keys)), lambda f: key_type(f.type))
    return keys.rename_columns(names), events


def _conditions(group: GroupBy, rows: Rows) -> dict[str, np.ndarray]:
    """Where each aggregation's condition holds."""
    found = {}
    for text in dict.fromkeys(a.condition for a in group.aggregations):
        if text is not None and not rows.open:
            mask = condition(rows.table, text, f"GroupBy {group.name!r}: where")
            found[text] = condition_mask(pa.table({"holds": mask}), "holds")
        elif text is not None:
            found[text] = np.zeros(0, np.bool_)
    return found
