"""The plan of a backfill: every decision, as data. `explain` prints it, `run` obeys it.

read      which tables, by tasks or by Spark's reader, and why
arrange   which arrangements are there, which are built, and why
compute   which groups in one pass over the sorted queries
store     where the result goes
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pyarrow as pa

from windrow.arrangements.find import Todo, as_it_is, find
from windrow.errors import OptionError
from windrow.features.definitions import Join
from windrow.features.inputs.groups import GroupInputs, check_keys
from windrow.features.inputs.queries import QueryInputs
from windrow.features.inputs.streams import over_streams
from windrow.features.plan.arrangement import PlannedArrangement, Reading, many
from windrow.features.plan.passes import PassPlan, passes_of, plan_pass
from windrow.features.plan.strategy import BROADCAST, GATHER, STRATEGIES
from windrow.features.strategies.group_events import feature_fields
from windrow.features.strategies.shares import RowShares
from windrow.spark.session import Engine
from windrow.storage.names import digest
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store

SLICES = "slices.json"  # in the work folder: the cuts of each pass


@dataclass(frozen=True)
class BackfillPlan:
    """All of a backfill. `str(plan)` is what `explain` prints."""

    join: Join
    start: str | None
    end: str | None
    queries: QueryInputs
    reading: Reading
    arrangements: tuple[PlannedArrangement, ...]
    passes: tuple[PassPlan, ...]
    result: Store
    finished: int = 0  # slices that an interrupted run of the same has finished
    shares: RowShares | None = None  # by which the result's files are laid out

    @property
    def arranged(self) -> set[int]:
        """The arrangements that are kept and used: not those of passes over raw events."""
        merging = (one for one in self.passes if one.strategy not in (BROADCAST, GATHER))
        return {number for one in merging for number in one.arrangements}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: those of the queries, then the features; none derived."""
        fields = list(self.queries.schema)
        for one in self.passes:
            for group, number in zip(one.keys.groups, one.arrangements, strict=True):
                fields += feature_fields(group, self.arrangements[number].inputs.layout)
        return pa.schema(fields)

    @property
    def fingerprint(self) -> str | None:
        """The same for the same work over the same data; None if nobody can tell."""
        stamps = self.queries.table.stamps()
        if stamps is None or any(one.todo.uri is None for one in self.arrangements):
            return None
        groups = [
            [g.left_keys, g.prefix, g.group.name, g.group.accuracy, g.group.refresh]
            for g in self.join.groups
        ]
        aggregations = [
            (a.identity, a.alias) for g in self.join.groups for a in g.group.aggregations
        ]
        parts: list[Any] = [
            aggregations,
            self.join.name,
            groups,
            dict(self.join.derive),
            sorted(stamps.items()),
        ]
        parts += [self.queries.span.start, self.queries.span.end, str(self.queries.schema)]
        parts += [(one.todo.uri, one.todo.state, one.todo.chosen) for one in self.arrangements]
        parts += [self.join.left.selected, self.join.left.where]
        parts += [one.strategy for one in self.passes]
        parts.append(None if self.shares is None else self.shares.starts)
        return digest(*parts)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        span = " all queries"
        if self.start is not None or self.end is not None:
            span = f" queries from {self.start or 'the first'} to {self.end or 'the last'}"
        yield f"backfill {self.join.name}:{span}"
        yield f"  read     queries from {self.reading}"
        reads = [f"{n} from {r}" for one in self.arrangements for n, r in one.readings()]
        for text in dict.fromkeys(reads):  # groups may share a source
            yield f"  read     {text}"
        for number, one in enumerate(self.arrangements):
            if number in self.arranged:
                yield f"  arrange  {one}"
        for number, one_pass in enumerate(self.passes):
            keys = ", ".join(one_pass.keys.left_keys)
            again = "again, with the features so far, " if number else ""
            few = "" if one_pass.sorts else " (few: every task sorts them itself)"
            yield f"  sort     queries {again}by {keys} and {self.join.left.time}{few}"
            yield f"  compute  {one_pass}"
        if self.finished:
            yield f"  resume   after {many(self.finished, 'slice')} of an interrupted run"
        left_out = [g.group.name for g in self.join.all_groups if not g.group.offline]
        if left_out:
            yield f"  skip     {', '.join(left_out)} (offline=False)"
        if self.join.derive:
            yield f"  derive   {', '.join(self.join.derive)} with Spark SQL"
        columns = len(self.queries.schema) + len(self.join.derive)
        columns += sum(len(g.group.features) for g in self.join.groups)
        yield f"  store    {many(columns, 'column')} as a Delta table, {self.result.shown}"


def plan_backfill(
    engine: Engine,
    store: Store,
    join: Join,
    start: str | date | None,
    end: str | date | None,
    strategy: str | None = None,
    numbered: str | None = None,
) -> BackfillPlan:
    """Decide how to backfill `join`. Reads schemas, footers and logs, no rows.

    With `numbered`, the result has a column of this name: the number of each query, among the rows
    of all its files.
    """
    if strategy is not None and strategy not in STRATEGIES:
        raise OptionError(f"strategy is {strategy!r}; it is one of {list(STRATEGIES)}")
    options = store.options_dict
    join = over_streams(join, store)
    queries = QueryInputs.bind(join, engine, start, end, options, numbered)
    passes = passes_of(join)
    arrangements: dict[str, PlannedArrangement] = {}
    numbers: list[tuple[int, ...]] = []
    for one in passes:
        found = []
        for group in one.groups:
            inputs = GroupInputs.bind(group.group, engine, options)
            check_keys(group, queries.schema, inputs.layout.key_types)
            planned = PlannedArrangement(inputs, _todo(inputs, store))
            arrangements.setdefault(planned.inputs.content.id, planned)
            found.append(list(arrangements).index(planned.inputs.content.id))
        numbers.append(tuple(found))
    known = tuple(arrangements.values())
    rows, reason = None, "no features to compute"
    if passes:
        rows, reason = queries.rows(engine, passes[0].left_keys)
    plan = BackfillPlan(
        join,
        None if start is None else str(start),
        None if end is None else str(end),
        queries,
        Reading(queries.table, rows, reason),
        known,
        tuple(
            plan_pass(
                p,
                n,
                known,
                queries,
                strategy,
                direct=number > 0 or rows is not None,
                tasks=engine.tasks,
            )
            for number, (p, n) in enumerate(zip(passes, numbers, strict=True))
        ),
        store.beneath(f"results/{join.name}"),
        shares=None if numbered is None else _shares(queries, numbered, engine.tasks),
    )
    return _resumed(plan, store)


def _shares(queries: QueryInputs, numbered: str, tasks: int) -> RowShares:
    parquet = queries.table.parquet
    assert parquet is not None
    rows = {file.uri: file.groups for file in parquet.files}
    counts = [
        sum(sum(rows[span.uri][span.first : span.last]) for span in share)
        for share in queries.shares(tasks)
    ]
    return RowShares(numbered, tuple(itertools.accumulate(counts[:-1], initial=0)))


def _todo(inputs: GroupInputs, store: Store) -> Todo:
    if inputs.shard is None:
        return find(inputs.content, store)
    return as_it_is(inputs.shard, "a shard by the same key, read as it is")


def _resumed(plan: BackfillPlan, store: Store) -> BackfillPlan:
    """The plan as an interrupted run of the same has begun it: with its slices.

    What that run arranged would be sliced differently by now, and a run sliced differently cannot
    be resumed.
    """
    if plan.fingerprint is None:
        return plan
    work = Store.at(f"{store.uri}/tmp/{plan.fingerprint}", store.options_dict)
    finished = sum(name.startswith("done-") for name in work.names())
    record = read_record(work, SLICES)
    if record is None:
        return replace(plan, finished=finished)
    passes = [
        one if cuts is None else replace(one, cuts=tuple((prefix, word) for prefix, word in cuts))
        for one, cuts in zip(plan.passes, record["cuts"], strict=True)
    ]
    return replace(plan, passes=tuple(passes), finished=finished)


def record_slices(plan: BackfillPlan, work: Store) -> None:
    """Tell a run that resumes this one at which prefixes it is sliced."""
    write_record(work, SLICES, {"cuts": [one.cuts for one in plan.passes]})
