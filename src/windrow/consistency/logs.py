"""What was served, wherever it was logged: a table with keys, a time and values.

Windrow's own log has a table for each version of a definition. Another system's has whatever
columns it has; `keys` and `values` say which of them stand for the columns of a definition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from windrow.errors import OptionError, SchemaError
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.features.run.results import write_frame
from windrow.online.log.columns import AT
from windrow.online.log.places import log_tables
from windrow.sources.bound import BoundTable, bind_table
from windrow.sources.columns import Taken
from windrow.sources.delta import is_delta
from windrow.spark.schemas import quoted
from windrow.spark.session import Engine
from windrow.storage.store import Store

_WHAT = "the log"


@dataclass(frozen=True)
class Log:
    """One table of served values.

    `table` is what `Queries` take: a path, a table of Spark, or a DataFrame. `own` says that it has
    the columns of Windrow's log. `columns` maps the names of keys, inputs and features of a
    definition to the table's columns, whose types are those of `schema`. `bound` is that table, if
    it has been looked at.
    """

    table: Any = field(repr=False)
    time: str
    columns: Mapping[str, str]
    schema: pa.Schema
    version: str | None = None
    own: bool = True
    bound: BoundTable | None = field(default=None, repr=False, compare=False)


def own_logs(engine: Engine, root: Store, name: str) -> list[Log]:
    """The tables of Windrow's log of a name, by version."""
    found = []
    for version, store in log_tables(root, name).items():
        if not is_delta(store):
            continue
        bound = bind_table(engine, store.uri, _WHAT, options=root.options_dict)
        if bound.uris:
            columns = {one: one for one in bound.schema.names}
            found.append(Log(store.uri, AT, columns, bound.schema, version, bound=bound))
    return found


def foreign_log(
    engine: Engine,
    root: Store,
    definition: Join | GroupBy,
    table: Any,
    time: str | None,
    keys: Mapping[str, str] | None,
    values: Mapping[str, str] | None,
) -> Log:
    """A log of another system; columns that are not mapped have the names of the definition's."""
    bound = bind_table(engine, table, _WHAT, options=root.options_dict)
    names = bound.schema.names
    if time is None:
        raise OptionError("say which column of the log is the time of a request: --time COLUMN")
    if time not in names:
        raise SchemaError(f"{_WHAT}: there is no time {time!r}; its columns are {names}")
    given = {**(keys or {}), **(values or {})}
    known = {*key_columns(definition), *feature_columns(definition)}
    for name, column in given.items():
        if column not in names:
            raise SchemaError(f"{_WHAT}: there is no column {column!r}; its columns are {names}")
        if name not in known and values is not None and name in values:
            raise OptionError(f"{definition.name} has no feature {name!r}: {sorted(known)}")
    columns = {name: name for name in names} | given
    for key in key_columns(definition):
        if key not in columns:
            raise SchemaError(
                f"{_WHAT}: there is no column for the key {key!r}; say which it is, such as "
                f"--keys {key}=COLUMN. Its columns are {names}"
            )
    return Log(table, time, columns, bound.schema, own=False, bound=bound)


def as_files(engine: Engine, log: Log, needed: Collection[str], place: Store) -> Log | None:
    """The same log, as Parquet files that tasks can read: they need it twice, in one order.

    Of a log that is none, the columns that are `needed` are stored at `place`; None if it has no
    rows.
    """
    bound = log.bound
    assert bound is not None
    taken = [Taken(name, name, bound.schema.field(name).type) for name in needed]
    if bound.rows(taken, (), engine.tasks)[0] is not None:
        return log
    frame = bound.frame.select(*(quoted(name) for name in needed))
    written = write_frame(bound.executed(frame), place, "log")
    columns = {name: column for name, column in log.columns.items() if column in needed}
    return replace(log, table=place.uri, columns=columns, bound=None) if written.parts else None


def joined_groups(definition: Join | GroupBy) -> tuple[JoinedGroup, ...]:
    """The groups that are both served and backfilled."""
    groups = definition.all_groups if isinstance(definition, Join) else (JoinedGroup(definition),)
    return tuple(one for one in groups if one.group.offline and one.group.online)


def key_columns(definition: Join | GroupBy) -> list[str]:
    """The columns of keys, as requests name them."""
    return list(dict.fromkeys(key for one in joined_groups(definition) for key in one.left_keys))


def feature_columns(definition: Join | GroupBy) -> list[str]:
    """The features, as they are served."""
    if isinstance(definition, GroupBy):
        return [feature.name for feature in definition.features]
    names = [one.column(f) for one in joined_groups(definition) for f in one.group.features]
    return [*names, *definition.derive]
