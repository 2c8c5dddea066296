"""A replay: logged requests as the queries of a backfill, each with what was served.

Served values travel through the backfill as columns of the queries, so that its result has both
sides of every comparison, and nothing has to be joined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    PREFIX,
    REQUEST,
    STATUSES,
    WRITER,
)
from windrow.spark.schemas import quoted

ONLINE = "_log_online_"  # columns of served values, by number
BESIDE = "windrow_beside"  # what sketches are judged by
OWN = (ASKED, CLOCK, WRITER, REQUEST, STATUSES, FRESH, ERROR)


@dataclass(frozen=True)
class ComparedFeature:
    """A feature, and the columns of a replay's result that have its values."""

    name: str
    group: str | None  # None: derived
    online: str
    offline: str
    rule: Rule
    beside: str | None = None
    status: int | None = None  # its letter among the statuses, from their end


@dataclass(frozen=True)
class Sides:
    """Both sides of a replay's result. Picklable: tasks carry it.

    `own` says that the log is Windrow's, with its columns.
    """

    features: tuple[ComparedFeature, ...]
    keys: tuple[str, ...]
    inputs: tuple[str, ...]
    own: bool
    version: str | None


@dataclass(frozen=True)
class Replay:
    """The join whose backfill has both sides; and features that the log does not have."""

    join: Join
    sides: Sides
    left_out: tuple[str, ...]


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
    if log.own:
        taken |= {name: name for name in OWN}
    taken |= {f"{ONLINE}{i}": log.columns[name] for i, name in enumerate(there)}
    select = {name: quoted(column) for name, column in taken.items()}
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
    sides = Sides(tuple(features), tuple(keys), tuple(inputs), log.own, log.version)
    return Replay(join, sides, left_out)


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
