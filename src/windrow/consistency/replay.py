"""A replay: logged requests as the queries of a backfill.

What was served stays where it is logged: only keys, times and the numbers of rows go through the
backfill. By these numbers its result comes back to the rows of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from windrow.algebra.aggregation import Feature
from windrow.consistency.equality import Rule
from windrow.consistency.logs import Log, feature_columns, joined_groups, key_columns
from windrow.consistency.sketches import companion, sketch_of
from windrow.errors import DefinitionError
from windrow.features.definitions import GroupBy, Join, JoinedGroup, Queries
from windrow.online.log.columns import (
    ASKED,
    AT,
    CLOCK,
    ERROR,
    FRESH,
    KEY,
    PREFIX,
    REQUEST,
    STATUSES,
    WRITER,
)
from windrow.rows.types import canonical_type
from windrow.spark.schemas import quoted

ONLINE = "_log_online_"  # columns of served values, by number
ROW = "_log_row"  # the number of a row of the log
BESIDE = "windrow_beside"  # what sketches are judged by
OWN = (ASKED, CLOCK, WRITER, REQUEST, KEY, STATUSES, FRESH, ERROR)


@dataclass(frozen=True)
class ComparedFeature:
    """A feature, and the columns of the log and of a replay's result that have its values."""

    name: str
    group: str | None  # None: derived
    online: str
    offline: str
    rule: Rule
    beside: str | None = None
    status: int | None = None  # its letter among the statuses, from their end


@dataclass(frozen=True)
class Sides:
    """Both sides of a comparison. Picklable: tasks carry it.

    `own` says that the log is Windrow's, with its columns. `logged` maps the names of what is read
    of the log to its columns: the time, keys, inputs, its own columns and served values.
    """

    features: tuple[ComparedFeature, ...]
    keys: tuple[str, ...]
    inputs: tuple[str, ...]
    own: bool
    version: str | None
    logged: Mapping[str, str] = field(default_factory=dict)

    @property
    def computed(self) -> list[str]:
        """The columns of a replay's result that are compared, or judge what is."""
        found = [name for one in self.features for name in (one.offline, one.beside) if name]
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Replay:
    """The join that is backfilled; and features that the log does not have."""

    join: Join
    sides: Sides
    left_out: tuple[str, ...]
    types: pa.Schema  # of what is read of the log


def plan_replay(definition: Join | GroupBy, log: Log) -> Replay:
    """How the requests of a log are replayed through a definition."""
    names = feature_columns(definition)
    there = [name for name in names if name in log.columns]
    if not there:
        raise DefinitionError(
            f"{definition.name}: the log has none of its features, which are {names}"
        )
    derive = dict(definition.derive) if isinstance(definition, Join) else {}
    if not any(name in derive for name in there):
        derive = {}
    keys = key_columns(definition)
    taken = {AT: log.time} | {key: log.columns[key] for key in keys}
    inputs = []
    if derive:  # whatever else the log has may be an input of them
        for name, column in log.columns.items():
            if name not in taken and name not in names and not name.startswith(PREFIX):
                taken[name] = column
                inputs.append(name)
    select = {name: quoted(column) for name, column in taken.items()}
    logged = dict(taken)
    if log.own:
        logged |= {name: name for name in OWN}
    logged |= {f"{ONLINE}{i}": log.columns[name] for i, name in enumerate(there)}
    groups, columns = _groups(definition)
    features = []
    # Statuses are in the order of the features, which are a log's last columns.
    letters = {name: i - len(log.columns) for i, name in enumerate(log.columns)}
    for number, name in enumerate(there):
        letter = letters.get(name) if log.own else None
        if name in derive:
            found = ComparedFeature(name, None, "", name, Rule(), None)
        else:
            found = columns[name]
        features.append(replace(found, online=f"{ONLINE}{number}", status=letter))
    join = Join(definition.name, Queries(log.table, AT, select=select), groups, derive=derive)
    left_out = tuple(name for name in names if name not in there)
    sides = Sides(tuple(features), tuple(keys), tuple(inputs), log.own, log.version, logged)
    types = [_field(name, column, log) for name, column in logged.items()]
    return Replay(join, sides, left_out, pa.schema(types))


def _field(name: str, column: str, log: Log) -> pa.Field:
    type_ = log.schema.field(column).type
    return pa.field(name, canonical_type(type_, f"the log: column {column!r}"))


def _groups(
    definition: Join | GroupBy,
) -> tuple[list[JoinedGroup], dict[str, ComparedFeature]]:
    """The groups of a replay, with companions of sketches; and features by their served names."""
    groups, columns = [], {}
    for joined in joined_groups(definition):
        group, more = joined.group, []
        beside: dict[str, str] = {}
        for number, aggregation in enumerate(group.aggregations):
            made = companion(aggregation, f"{BESIDE}_{number}")
            if made is not None:
                more.append(made)
                pairs = zip(aggregation.features(), made.features(), strict=True)
                beside |= {one.name: joined.column(other) for one, other in pairs}
        for feature in group.features:
            name = feature.name if isinstance(definition, GroupBy) else joined.column(feature)
            columns[name] = ComparedFeature(
                name,
                group.name,
                "",
                joined.column(feature),
                _rule(feature),
                beside.get(feature.name),
            )
        wider = replace(group, aggregations=[*group.aggregations, *more])
        groups.append(replace(joined, group=wider))
    return groups, columns


def _rule(feature: Feature) -> Rule:
    function = feature.aggregation.function
    return Rule(counts=function.of_nothing == 0, sketch=sketch_of(function))
