"""What the operators of all views keep: one line each, with its estimate and its size."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from windrow.views.costs.advice import Level, advise
from windrow.views.costs.estimates import Estimate
from windrow.views.costs.measured import Measured, counted, measured
from windrow.views.costs.ticks import OUTPUT, OperatorRun, ViewRun, last_runs
from windrow.views.history.history import History
from windrow.views.plan.nodes import Arrangement, ViewPlan
from windrow.views.relations.names import Names, Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TICKS = 10  # the last ones that are looked at
RECORDS = 100  # of the history, in which they are looked for


@dataclass(frozen=True)
class Kept:
    """What an operator keeps, as the definition of a view says it; see `ViewDefinition.keeps`."""

    operator: int  # its place in the printed plan; `OUTPUT` is the view itself
    title: str
    what: str
    key: tuple[str, ...]
    collection: str
    records: int | None  # estimated
    keys: int | None
    level: tuple[int, int] | None = None  # of which stack of the operator, and which one of it


def keeps(
    plan: ViewPlan, places: Mapping[str, str], estimates: Mapping[str, Estimate]
) -> tuple[dict[str, Any], ...]:
    """What the operators of a plan keep, in its order, the rows of the view last; as JSON."""
    found = []
    for number, node in enumerate(plan.operators()):
        levels = {
            one.name: (stack, level)
            for stack, several in enumerate(node.stacks)
            for level, one in enumerate(several)
        }
        for one in node.arrangements:
            if one.name in places:
                about = _json(number, node.title, one, places, estimates)
                found.append({**about, "level": levels.get(one.name)})
    return (*found, _json(OUTPUT, "View", plan.output, places, estimates))


def _json(
    number: int,
    title: str,
    one: Arrangement,
    places: Mapping[str, str],
    estimates: Mapping[str, Estimate],
) -> dict[str, Any]:
    estimate = estimates.get(one.name)
    return {
        "operator": number,
        "title": title,
        "what": one.what,
        "key": [name for name in one.key if name != "_all"],
        "collection": places[one.name],
        "records": None if estimate is None else round(estimate.records),
        "keys": None if estimate is None else round(estimate.keys),
    }


def kept_of(view: Relation) -> list[Kept]:
    """What the operators of a view keep."""
    found = view.definition.get("keeps", ())
    return [
        Kept(**{**one, "key": tuple(one["key"]), "level": tuple(one.get("level") or ()) or None})
        for one in found
    ]


def stored_estimates(view: Relation, places: Mapping[str, str]) -> dict[str, Estimate]:
    """What was estimated of a view before it was filled, by the names of its arrangements."""
    found = {one.collection: one for one in kept_of(view)}
    return {
        name: Estimate(found[id].records or 0, found[id].keys or 0)
        for name, id in places.items()
        if id in found and found[id].records is not None
    }


@dataclass(frozen=True)
class Line:
    """One line of SHOW ARRANGEMENTS: an arrangement, as one operator of one view uses it."""

    view: str
    number: int
    operator: str
    what: str
    key: str
    estimate: int | None
    estimated_keys: int | None
    records: int
    exact: bool
    distinct_keys: int | None
    bytes: int
    batches: int
    updates: int
    updates_since_compaction: int
    shared_by: tuple[str, ...]  # other operators, as "view (number)"
    rows_in: int | None  # of the last run in which the operator had something to do
    rows_out: int | None
    looked_up: int | None
    bytes_written: int | None
    seconds: float | None
    advice: str | None  # on the expected size of groups, at the first level of a stack
    collection: str


def arrangements(
    names: Names,
    history: History,
    view: str | None = None,
    spark: SparkSession | None = None,
    notes: Iterable[Mapping[str, Any]] | None = None,
) -> list[Line]:
    """The arrangements of a view, or of all; with a session, counted instead of bounded.

    `notes` are those of the newest records, for a caller who has them already.
    """
    views = names.known("view") if view is None else [names.find(view, "view")]
    wanted = {one.name for one in views}
    kept = {view.name: kept_of(view) for view in names.known("view")}
    users: dict[str, list[tuple[str, int]]] = {}
    for view, several in kept.items():
        for one in several:
            users.setdefault(one.collection, []).append((view, one.operator))
    own = {one.collection: None for view in wanted for one in kept[view]}
    found = {id: history.collection(id) for id in own}
    sizes = (
        {id: measured(one) for id, one in found.items()} if spark is None else counted(spark, found)
    )
    known = history.notes(RECORDS) if notes is None else notes
    runs = last_runs(known, wanted, TICKS)
    return [
        _line(
            view,
            one,
            sizes[one.collection],
            users[one.collection],
            runs[view],
            level_advice(one, several, sizes),
        )
        for view, several in kept.items()
        if view in wanted
        for one in several
    ]


def _line(
    view: str,
    kept: Kept,
    size: Measured,
    users: Sequence[tuple[str, int]],
    runs: Sequence[ViewRun],
    advice: str | None,
) -> Line:
    others = dict.fromkeys(user for user in users if user != (view, kept.operator))
    shared = tuple(f"{name} ({number})" for name, number in others)
    run = last_of(runs, kept.operator)
    return Line(
        view,
        kept.operator,
        kept.title,
        kept.what,
        ", ".join(kept.key),
        kept.records,
        kept.keys,
        size.records,
        size.exact,
        size.distinct_keys,
        size.bytes,
        size.batches,
        size.updates,
        size.updates_since_compaction,
        shared,
        None if run is None else run.rows_in,
        None if run is None else run.rows_out,
        None if run is None else run.looked_up,
        None if run is None else run.bytes,
        None if run is None else run.seconds,
        advice,
        kept.collection,
    )


def level_advice(one: Kept, several: Sequence[Kept], sizes: Mapping[str, Measured]) -> str | None:
    """What a better size of groups would save; told with the first level of a stack."""
    if one.level is None or one.level[1] != 0:
        return None
    mine = [
        other
        for other in several
        if other.operator == one.operator and other.level and other.level[0] == one.level[0]
    ]
    mine.sort(key=lambda other: other.level or ())
    found = advise([Level(level.what, sizes[level.collection].records) for level in mine])
    return str(found) if found is not None and found.saves else None


def estimate_error(lines: Sequence[Line]) -> float | None:
    """The median of how far estimates are off, as a share of what there is; each arrangement once.

    Lines are to be exact. What is empty counts as one record.
    """
    errors = {
        line.collection: abs(max(line.estimate, 1) / max(line.records, 1) - 1)
        for line in lines
        if line.estimate is not None and line.exact and line.number != OUTPUT
    }
    return statistics.median(errors.values()) if errors else None


def bytes_shared(lines: Sequence[Line]) -> tuple[int, int]:
    """The bytes of all arrangements, and what they would be if no view shared any."""
    once = {line.collection: line.bytes for line in lines}
    alone = {(line.view, line.collection): line.bytes for line in lines}
    return sum(once.values()), sum(alone.values())


def last_of(runs: Sequence[ViewRun], operator: int) -> OperatorRun | None:
    """The newest run in which an operator had something to do, or else the newest of all."""
    found = [run.operators[operator] for run in runs if operator in run.operators]
    return next((one for one in found if one.rows_in), found[0] if found else None)


def lines_frame(spark: SparkSession, lines: Sequence[Line]) -> DataFrame:
    """Lines as a DataFrame."""
    rows = [
        tuple(list(v) if isinstance(v, tuple) else v for v in vars(line).values()) for line in lines
    ]
    return spark.createDataFrame(rows, _schema())


def _schema() -> StructType:
    from pyspark.sql.types import (
        ArrayType,
        BooleanType,
        DoubleType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    types = {
        "view": StringType(),
        "number": IntegerType(),
        "operator": StringType(),
        "what": StringType(),
        "key": StringType(),
        "exact": BooleanType(),
        "shared_by": ArrayType(StringType()),
        "seconds": DoubleType(),
        "advice": StringType(),
        "collection": StringType(),
    }
    names = [field.name for field in fields(Line)]
    return StructType([StructField(name, types.get(name, LongType())) for name in names])
