"""A group bound to rows in memory: the checks of a backfill, then the algebra of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from windrow.errors import DataError, SchemaError
from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.compute.lifetimes import ALWAYS, lifetimes
from windrow.features.compute.types import feature_type
from windrow.features.definitions import GroupBy, JoinedGroup
from windrow.features.inputs.groups import check_keys
from windrow.features.inputs.layout import condition_mask, key_names, key_type
from windrow.rows.types import (
    canonical_schema,
    canonical_type,
    canonical_values,
    has_type,
    single_chunk,
)
from windrow.sources.changes import replaces
from windrow.sources.times import to_millis
from windrow.testing.rows import NULL, Rows, filled, settled, with_types
from windrow.testing.sources import Part, parts_of, require_columns, time_column
from windrow.testing.sql import condition


def canonical(table: pa.Table) -> pa.Table:
    """`table` with the types that Spark would give it; a column of nulls alone stays as it is."""
    known = canonical_schema(
        pa.schema([(f.name, settled(f.type, pa.string())) for f in table.schema])
    )
    return with_types(
        table, lambda f: f.type if pa.types.is_null(f.type) else known.field(f.name).type
    )


def features_of(
    joined: JoinedGroup, given: Mapping[str, Mapping[str, Rows]], left: Rows, time: pa.Array
) -> list[pa.Array]:
    """One array for each feature of the group, for the queries `left`, whose times are `time`.

    `given` has, for each source, the rows of its tables.
    """
    group = joined.group
    inputs = _input_columns(group)
    parts = [
        _checked(group, part, inputs)
        for source in group.sources
        for part in parts_of(source, given[source.name])
    ]
    values = _input_values(group, parts, inputs)
    left_keys, keys = _keys(joined, left, _together(group, parts, group.keys, key_type))
    times = np.concatenate([_times(part)[0] for part in parts])
    events = Events(keys, times, values, _conditions(group, parts))
    if any(part.known_at is not None for part in parts):
        events = _alive(group, parts, events)
    query_millis, valid = to_millis(time)
    return group_features(group, events, QueryTimes(left_keys, query_millis, valid))


def _checked(group: GroupBy, part: Part, inputs: Sequence[str]) -> Part:
    """The rows that have their times; all columns that the group reads are there."""
    time = part.source.time
    rows = part.rows.extended([time, *group.keys, *inputs])
    part = replace(part, rows=rows)
    require_columns(rows, [time], f"{part.source.what}: time")
    require_columns(rows, group.keys, f"GroupBy {group.name!r}: keys")
    _, valid = _times(part)
    require_columns(rows, inputs, f"GroupBy {group.name!r}")
    if part.known_at is not None:
        valid = valid & part.known_at.is_valid().to_numpy(zero_copy_only=False)
    return part.filter(valid)


def _times(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """The rows' own times, in milliseconds, and where they have one."""
    name = part.source.time
    return to_millis(time_column(part.rows, name, f"{part.source.what}: time {name!r}"))


def _alive(group: GroupBy, parts: Sequence[Part], events: Events) -> Events:
    """The rows with their lifetimes, from updates that say when they appeared and disappeared."""
    sizes = [part.rows.table.num_rows for part in parts]
    update, known_at, diffs = (np.concatenate(each) for each in zip(*_updates(parts), strict=True))
    # A row is retracted only from its own source.
    names = [source.name for source in group.sources]
    origin = np.repeat([names.index(part.source.name) for part in parts], sizes)
    columns = [pa.array(origin), pa.array(events.times)]
    columns += [canonical_values(single_chunk(c)) for c in events.keys.columns]
    columns += [canonical_values(single_chunk(c)) for c in events.inputs.columns]
    columns += [pa.array(mask) for mask in events.conditions.values()]
    taken = [column.take(pa.array(update)) for column in columns]
    snapshots = sorted({time for part in parts for time in part.replaced})
    found = lifetimes(taken, known_at, diffs, snapshots)
    if found.missing.size:
        first = found.missing[known_at[found.missing].argmin()]
        raise _not_there(group, parts, int(update[first]), int(known_at[first]))
    rows = update[found.rows]
    return Events(
        events.keys.take(pa.array(rows)),
        events.times[rows],
        events.inputs.take(pa.array(rows)),
        {text: mask[rows] for text, mask in events.conditions.items()},
        lives=(found.born, found.died),
    )


def _updates(parts: Sequence[Part]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Which row (of all parts) is added or retracted, when, and how often."""
    found, start = [], 0
    for part in parts:
        size = part.rows.table.num_rows
        row = np.arange(start, start + size)
        known_at = np.full(size, ALWAYS) if part.known_at is None else part.known_at.to_numpy()
        diffs = np.ones(size, np.int64) if part.diffs is None else part.diffs.to_numpy()
        found.append((row, known_at, diffs))
        if part.replaced:  # each update is retracted at the next snapshot after it
            snapshots = np.array(part.replaced)
            later = replaces(snapshots[:, None], known_at, part.diffs is None)
            back = later.any(axis=0)
            found.append((row[back], snapshots[later.argmax(axis=0)[back]], -diffs[back]))
        start += size
    return found


def _not_there(group: GroupBy, parts: Sequence[Part], row: int, time: int) -> DataError:
    at = 0
    while row >= parts[at].rows.table.num_rows:
        row -= parts[at].rows.table.num_rows
        at += 1
    values = parts[at].rows.to_python()[row]
    names = dict.fromkeys([*group.keys, parts[at].source.time, *_input_columns(group)])
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
    shown = {name: values[name] for name in names}
    return DataError(
        f"{parts[at].what}: {shown} is retracted at {when.isoformat()}, but is not there"
    )


def _input_columns(group: GroupBy) -> list[str]:
    names = (name for a in group.aggregations for name in (a.column, a.bucket))
    return list(dict.fromkeys(name for name in names if name is not None))


def _input_values(group: GroupBy, parts: Sequence[Part], inputs: Sequence[str]) -> pa.Table:
    """The columns that aggregations read, their types checked."""
    table = _together(group, parts, inputs, lambda type_: type_, _likely_type)
    for aggregation in group.aggregations:
        where = f"GroupBy {group.name!r}: {aggregation.column} {aggregation.function.label}"
        feature_type(aggregation, table.schema, where)
    return table


def _together(
    group: GroupBy,
    parts: Sequence[Part],
    names: Sequence[str],
    kind: Callable[[pa.DataType], pa.DataType],
    leaf: Callable[[GroupBy, str], pa.DataType] = lambda group, name: NULL,
) -> pa.Table:
    """Columns of all parts, one part below the other; of values of one `kind`."""
    tables = [part.rows.table.select(list(names)) for part in parts]
    types = {}
    for name in names:
        found = [table.schema.field(name).type for table in tables]
        # A column without values takes the type that it has in another part.
        first = min(range(len(found)), key=lambda i: _unknown(found[i]))
        types[name] = settled(found[first], leaf(group, name))
        wanted = _plain(kind, types[name], name)
        for part, type_ in zip(parts, found, strict=True):
            if _plain(kind, filled(type_, types[name]), name) != wanted:
                raise SchemaError(
                    f"GroupBy {group.name!r}: column {name!r} is {type_} in {part.what} and "
                    f"{found[first]} in {parts[first].what}; cast one of them in select"
                )
    same = [canonical(with_types(t, lambda f: filled(f.type, types[f.name]))) for t in tables]
    same = [with_types(t, lambda f: _plain(kind, f.type, f.name)) for t in same]
    return pa.concat_tables([pa.table(t.columns, names=list(names)) for t in same])


def _unknown(type_: pa.DataType) -> int:
    """How little is known of a type: 0 if all is, 2 if nothing is."""
    return 2 if type_ == NULL else int(has_type(type_, pa.types.is_null))


def _plain(
    kind: Callable[[pa.DataType], pa.DataType], type_: pa.DataType, name: str
) -> pa.DataType:
    if type_ == NULL:
        return type_
    return kind(canonical_type(settled(type_, pa.string()), f"column {name!r}"))


def _likely_type(group: GroupBy, column: str) -> pa.DataType:
    """A type that suits all aggregates of a column, for one without values."""
    functions = [a.function for a in group.aggregations if a.column == column]
    likely = (pa.int64(), pa.bool_())
    return next((t for t in likely if all(t in f.takes for f in functions)), likely[0])


def _keys(joined: JoinedGroup, left: Rows, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The keys of the queries and of the events, as columns k0, k1, ... of the same types."""
    group, table = joined.group, left.extended(joined.left_keys).table
    names = key_names(len(group.keys))
    # A side that has no values takes the type of the other.
    found, wanted = {}, {}
    for key, name in zip(group.keys, joined.left_keys, strict=True):
        type_ = events.schema.field(key).type
        if name in table.column_names:
            found[name] = settled(table.schema.field(name).type, settled(type_, pa.int64()))
        wanted[key] = settled(type_, found.get(name, pa.int64()))
    table = with_types(table, lambda f: found.get(f.name, f.type))
    events = with_types(events, lambda f: key_type(wanted[f.name])).rename_columns(names)
    check_keys(joined, table.schema, events.schema.types)
    keys = with_types(table.select(list(joined.left_keys)), lambda f: key_type(f.type))
    return keys.rename_columns(names), events


def _conditions(group: GroupBy, parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """Where each aggregation's condition holds."""
    texts = dict.fromkeys(a.condition for a in group.aggregations)
    return {
        text: np.concatenate([_holds(group, part.rows, text) for part in parts])
        for text in texts
        if text is not None
    }


def _holds(group: GroupBy, rows: Rows, text: str) -> np.ndarray:
    if rows.open:
        return np.zeros(0, np.bool_)
    mask = condition(rows.table, text, f"GroupBy {group.name!r}: where")
    return condition_mask(pa.table({"holds": mask}), "holds")
