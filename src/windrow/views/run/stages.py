"""The Python stages of a job: each turns the rows of a task into others, with state beside it.

Columns that flow between Spark and a stage have the names c0, c1, ...; a stage knows the names
under which its state keeps them. What each takes and gives:

    ReadChanges     nothing                                -> columns of an input, _diff
    ReadSides       nothing                                -> side, _diff, columns of all inputs
    Constants       columns, _diff                         -> the same, or nothing
    JoinSides       side, _diff, left columns, right ones  -> left columns, right ones, _diff
    Candidates      the same                               -> pairs to evaluate the condition of
    Settle          candidates, whether they match         -> left columns, right ones, _diff
    Distinct        columns, _diff                         -> columns, _diff
    Touched         columns, _diff                         -> flag, all rows of the touched keys
    Difference      flag, what Spark computed of them      -> columns, _diff
    Sink            columns, _diff                         -> nothing
    Tap             columns, _diff                         -> the same
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import DataError, WindrowError
from windrow.shard.merge import read_slice
from windrow.shard.scan import Counters
from windrow.spark.heap import freeze_modules, keep_freed_memory
from windrow.updates import DIFF
from windrow.views.run import joining
from windrow.views.run.joining import Side
from windrow.views.run.task import Arranged, Job, Task
from windrow.views.run.weighted import (
    Weighted,
    batches_of,
    chunks,
    concatenated,
    distinct,
    number_rows,
    table_of,
    take,
)

ROW, GONE, UNTOUCHED = 0, 1, 2  # flags of what `Touched` gives
LONGEST = 200  # characters of a value that is shown


@dataclass(frozen=True)
class Stage:
    """One stage of a job. `given` and `gives` are the columns that it takes and gives."""

    job: Job
    number: int
    given: pa.Schema
    gives: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_freed_memory()
        table, given = self.gathered(batches)  # first: a task has to read its input to the end
        task = Task(self.job, self.number)
        probe = task.run.probe
        if probe is not None and self.number > probe.stage:
            return
        try:
            out = list(self.compute(task, table))
            rows, shown = sum(one.num_rows for one in out), None
            if probe is not None and self.number == probe.stage:
                out = list(_between(out, probe.start, rows if probe.end is None else probe.end))
                shown = _shown(out)
            task.report(row=shown, given=given, given_out=rows)
        except WindrowError as error:
            self.job.failed(task.run.id, self.number, error)
            raise
        for one in out:
            yield from batches_of(one, self.gives)
        freeze_modules()

    def gathered(self, batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, int]:
        """What matters of the input, and how many rows it had."""
        table = table_of(batches, self.given)
        return table, table.num_rows

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        raise NotImplementedError


@dataclass(frozen=True)
class Fused:
    """Stages in one process, where Spark has nothing to do between them.

    Each but the first takes some columns of what the one before it gives, by their places.
    """

    first: Stage
    others: tuple[tuple[tuple[int, ...], Stage], ...] = ()

    def then(self, places: Sequence[int], stage: Stage) -> Fused:
        return Fused(self.first, (*self.others, (tuple(places), stage)))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = self.first(batches)
        for places, stage in self.others:
            found = stage(_selected(found, places))
        yield from found


def _selected(
    batches: Iterator[pa.RecordBatch], places: tuple[int, ...]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(list(places))


def _between(tables: Iterable[pa.Table], start: int, end: int) -> Iterator[pa.Table]:
    """The rows of several tables at the positions from `start` on and before `end`."""
    for table in tables:
        yield table.slice(min(max(start, 0), table.num_rows), max(end - max(start, 0), 0))
        start, end = start - table.num_rows, end - table.num_rows


def _shown(tables: Iterable[pa.Table]) -> list[str] | None:
    """The values of the first row, as text that is not too long; None if there is no row."""
    for table in tables:
        if table.num_rows:
            values = [repr(column[0].as_py()) for column in table.columns]
            return [one if len(one) <= LONGEST else f"{one[:LONGEST]}..." for one in values]
    return None


@dataclass(frozen=True)
class Tap(Stage):
    """Passes on what comes. It ends what Spark evaluates at once, to find out what fails."""

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        yield table


@dataclass(frozen=True)
class ReadChanges(Stage):
    """The changes of an input in this run; in a fill, all of it. Slices are partitions."""

    collection: str
    columns: tuple[str, ...]
    slices: int
    first: bool  # of this job's stages that read this input

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        for number in table.column(0).to_pylist():
            yield changes_of(
                task, self.collection, self.columns, self.first, number, self.slices
            ).updates()


def changes_of(
    task: Task,
    id: str,
    columns: Sequence[str],
    first: bool,
    number: int = 0,
    slices: int = 1,
) -> Weighted:
    """A slice of the changes of an input in this run; in a fill, of all that there is.

    The rows of a relation by key, which all views share, are kept by the job that the run names:
    by the stage that is `first` to read the relation.
    """
    run, collection = task.run, task.collection(id)
    kept = [task.collection(one) for one in run.arranges.get(id, ())] if first else []
    every = dict.fromkeys([*columns, *(name for one in kept for name in one.spec.schema.names)])
    if run.fill:
        read = collection.snapshot(run.time, columns=list(every))
    else:
        read = collection.changes(run.lower, run.time + 1, columns=list(every))
    parts = read.plan(slices).slices
    if number >= len(parts):
        return Weighted.of(read.schema.empty_table().select([*columns, DIFF]))
    batches = read_slice(read.scan, parts[number], read.level, Counters())
    found = pa.Table.from_batches(list(batches), schema=read.schema)
    for one in kept:
        rows = Weighted.of(found.select([*one.spec.schema.names, DIFF]))
        task.append(one, rows if run.fill else rows.consolidated())
    # What is left of rows after a projection may be equal, and cancel.
    rows = Weighted.of(found.select([*columns, DIFF]))
    return rows if run.fill else rows.consolidated()


@dataclass(frozen=True)
class SideRead:
    """An input among those that are read side by side."""

    number: int
    collection: str
    columns: tuple[str, ...]
    first: bool


@dataclass(frozen=True)
class ReadSides(Stage):
    """The changes of several inputs: the number of the input, `_diff`, columns of all of them."""

    inputs: tuple[SideRead, ...]

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        start = 2
        for one in self.inputs:
            found = changes_of(task, one.collection, one.columns, one.first)
            columns = [pa.nulls(found.size, field.type) for field in self.gives]
            columns[0] = pa.array(np.full(found.size, one.number, np.int8))
            columns[1] = pa.array(found.weights)
            columns[start : start + len(one.columns)] = chunks(found.rows)
            start += len(one.columns)
            if found.size:
                yield pa.table(columns, names=self.gives.names)


@dataclass(frozen=True)
class Constants(Stage):
    """Rows of the query itself: all of them in a fill, and none later."""

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        if task.run.fill:
            yield table


@dataclass(frozen=True)
class _TwoSides(Stage):
    """A stage with two inputs, their rows side by side: what is not a row's own side is NULL."""

    kind: str
    left: Arranged
    right: Arranged

    def sides(self, table: pa.Table) -> tuple[Weighted, Weighted]:
        width = len(self.left.schema)
        sides = table.column(0).to_numpy()
        found = []
        for side, start, arranged in ((0, 2, self.left), (1, 2 + width, self.right)):
            names = self.given.names[start : start + len(arranged.schema)]
            mine = table.select([*names, self.given.names[1]])
            mine = mine.filter(pa.array(sides == side))
            named = mine.rename_columns([*arranged.schema.names, DIFF])
            found.append(Weighted.of(named).consolidated())
        return found[0], found[1]

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.left.key, self.right.key

    def touched(self, task: Task, table: pa.Table) -> tuple[Side, Side, int]:
        """Both sides as far as they matter to the change, and the number of keys.

        The right side of every touched key tells how many matches there are. The left side is
        needed where they may change: for keys of the right change (of a full join, of both).
        """
        dl, dr = self.sides(table)
        task.write(self.left, dl)
        task.write(self.right, dr)
        left_keys = distinct(dl.rows.select(list(self.left.key)))
        right_keys = distinct(dr.rows.select(list(self.right.key)))
        as_left = right_keys.rename_columns(list(self.left.key))
        as_right = left_keys.rename_columns(list(self.right.key))
        both = distinct(pa.concat_tables([left_keys, as_left]).combine_chunks())
        lo = task.old(self.left, both if self.kind == joining.FULL else as_left)
        ro = task.old(self.right, distinct(pa.concat_tables([as_right, right_keys])))
        left, right = joining.side_of(lo, dl), joining.side_of(ro, dr)
        return joining.with_keys(left, right, self.keys)

    def joined(self, left: Side, right: Side, outputs: list[joining.Output]) -> Iterator[pa.Table]:
        for one in outputs:
            for start in range(0, one.weights.size, joining.PAIRS):
                part = slice(start, start + joining.PAIRS)
                columns = joining.taken_or_null(left.rows, one.left[part])
                if one.flags is not None:
                    columns.append(pa.array(one.flags[part]))
                elif self.kind not in (joining.SEMI, joining.ANTI):
                    columns += joining.taken_or_null(right.rows, one.right[part])
                columns.append(pa.array(one.weights[part]))
                yield pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


@dataclass(frozen=True)
class JoinSides(_TwoSides):
    """A join whose condition is the equality of keys; of an inner join, Spark filters the rest."""

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        if self.kind != joining.INNER:
            left, right, keys = self.touched(task, table)
            outputs = joining.joined(self.kind, left, right, keys)
            yield from self.joined(left, right, outputs)
            return
        dl, dr = self.sides(table)
        task.write(self.left, dl)
        task.write(self.right, dr)
        left_keys = distinct(dl.rows.select(list(self.left.key)))
        right_keys = distinct(dr.rows.select(list(self.right.key)))
        lo = task.old(self.left, right_keys.rename_columns(list(self.left.key)))
        ro = task.old(self.right, left_keys.rename_columns(list(self.right.key)))
        for left_rows, right_rows, weights in joining.inner_pairs(dl, dr, lo, ro, self.keys):
            columns = [*left_rows.columns, *right_rows.columns, pa.array(weights)]
            yield pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


@dataclass(frozen=True)
class Candidates(_TwoSides):
    """Pairs of a join other than inner, for Spark to evaluate the rest of the condition.

    Gives left position, right position, both weights before and after, then the columns.
    """

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        left, right, _ = self.touched(task, table)
        at, to = joining.candidates(left, right)
        numbers = [
            at,
            to,
            *(
                np.where(at >= 0, weights[at], 0) if left.old.size else np.zeros_like(at)
                for weights in (left.old, left.new)
            ),
            *(
                np.where(to >= 0, weights[to], 0) if right.old.size else np.zeros_like(to)
                for weights in (right.old, right.new)
            ),
        ]
        for start in range(0, at.size, joining.PAIRS):
            part = slice(start, start + joining.PAIRS)
            columns = [pa.array(one[part]) for one in numbers]
            columns += joining.taken_or_null(left.rows, at[part])
            columns += joining.taken_or_null(right.rows, to[part])
            yield pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


@dataclass(frozen=True)
class Settle(_TwoSides):
    """What becomes of candidates once it is known which of them match.

    Takes the columns of `Candidates`, then whether the condition holds (NULL: it does not).
    """

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        at, to = table.column(0).to_numpy(), table.column(1).to_numpy()
        match = table.column(table.num_columns - 1).fill_null(False).to_numpy()
        width = len(self.left.schema)
        names = table.column_names
        left = _one_side(table, at, names[2:4], names[6 : 6 + width])
        right = _one_side(table, to, names[4:6], names[6 + width : -1])
        outputs = joining.settled(self.kind, left, right, at, to, match)
        yield from self.joined(left, right, outputs)


def _one_side(
    table: pa.Table, positions: np.ndarray, weights: list[str], columns: list[str]
) -> Side:
    """The rows of one side of candidates, at their positions again."""
    known, first = np.unique(positions, return_index=True)
    first = first[known >= 0]
    rows = table.take(pa.array(first)).combine_chunks()
    old, new = (rows.column(name).to_numpy() for name in weights)
    return Side(rows.select(columns), np.zeros(0, np.int64), old, new)


@dataclass(frozen=True)
class Distinct(Stage):
    """Each row once, as long as it is there at all. The columns are the key, and all there is."""

    arranged: Arranged

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        names = self.arranged.schema.names
        delta = Weighted.of(table.rename_columns([*names, DIFF])).consolidated()
        task.write(self.arranged, delta)
        old = task.old(self.arranged, delta.rows.select(list(self.arranged.key)))
        side = joining.side_of(old, delta)
        check_weights(side.rows, side.new)
        change = (side.new > 0).astype(np.int64) - (side.old > 0)
        at = np.flatnonzero(change)
        yield Weighted(take(side.rows, at), change[at]).updates()


@dataclass(frozen=True)
class Touched(Stage):
    """All rows of the keys that a change touches, as they are after it, for Spark to compute with.

    A key that has no rows any more gives one that it had, flagged `GONE`. What has no key gives
    one flagged `UNTOUCHED` if nothing changed, since no rows would mean that there are none;
    `empty` says that what Spark computes of no rows at all is a row, as an aggregate does.
    """

    arranged: Arranged
    empty: bool

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        arranged = self.arranged
        names = arranged.schema.names
        delta = Weighted.of(table.rename_columns([*names, DIFF])).consolidated()
        task.write(arranged, delta)
        if not delta.size and not (task.run.fill and not arranged.has_key):
            if not arranged.has_key:
                yield _flagged(_nulls(arranged.schema), UNTOUCHED)
            return
        keys = distinct(delta.rows.select(list(arranged.key)))
        old = task.old(arranged, keys)
        new = concatenated([old, delta]).consolidated() if old.size else delta
        check_weights(new.rows, new.weights)
        # In one order, so that what depends on it (a list, ties) is the same at each tick.
        yield _flagged(ordered(new).repeated(), ROW)
        (before, after, touched), count = number_rows(
            [rows.select(list(arranged.key)) for rows in (old.rows, new.rows, delta.rows)]
        )
        gone = np.ones(count, np.bool_)
        gone[after] = False
        if arranged.has_key:
            for rows, numbers in ((old.rows, before), (delta.rows, touched)):
                first = _first_of(numbers, gone)
                if first.size:
                    gone[numbers[first]] = False
                    yield _flagged(take(rows, first), GONE)
        elif not new.size and not self.empty:
            yield _flagged(_nulls(arranged.schema), GONE)


def _first_of(numbers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The first position of each wanted number."""
    found, first = np.unique(numbers, return_index=True)
    chosen: np.ndarray = first[wanted[found]]
    return chosen


def ordered(rows: Weighted) -> Weighted:
    from windrow.rows.hashing import hash_rows
    from windrow.views.run.weighted import chunks

    if rows.size < 2:
        return rows
    return rows.take(np.argsort(hash_rows(chunks(rows.rows)), kind="stable"))


def _flagged(rows: pa.Table, flag: int) -> pa.Table:
    flags = pa.array(np.full(rows.num_rows, flag, np.int8))
    return rows.add_column(0, "flag", flags)


def _nulls(schema: pa.Schema) -> pa.Table:
    return pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)


def check_weights(rows: pa.Table, weights: np.ndarray) -> None:
    """A collection never holds a row less than zero times."""
    below = np.flatnonzero(weights < 0)
    if below.size:
        row = {name: rows.column(name)[int(below[0])].as_py() for name in rows.column_names}
        raise DataError(
            f"{below.size} rows are retracted that are not there, the first is {row}. State and "
            "inputs do not agree; REFRESH the view to rebuild it"
        )


@dataclass(frozen=True)
class Difference(Stage):
    """What Spark computed of the touched keys, less what it computed of them last time.

    `rows` are those of what is left after skipping, for a limit with an offset; None is all.
    """

    arranged: Arranged
    skip: int = 0
    limit: int | None = None

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        arranged = self.arranged
        flags = table.column(0).fill_null(ROW).to_numpy()
        if (flags == UNTOUCHED).any():
            return
        rows = table.drop_columns([table.column_names[0]]).rename_columns(arranged.schema.names)
        weighted = Weighted.of(rows.append_column(DIFF, pa.array(np.ones(rows.num_rows, np.int64))))
        keys = distinct(weighted.rows.select(list(arranged.key)))
        there = np.flatnonzero(flags == ROW)
        end = None if self.limit is None else self.skip + self.limit
        new = weighted.take(there[self.skip : end])
        old = task.old(arranged, keys if arranged.has_key else None)
        delta = concatenated([new, old.negated()]).consolidated()
        task.write(arranged, delta)
        yield delta.updates()


@dataclass(frozen=True)
class Sink(Stage):
    """The end of a job: the changes of a view, written to its collection."""

    arranged: Arranged

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        named = table.rename_columns([*self.arranged.schema.names, DIFF])
        delta = Weighted.of(named).consolidated()
        task.write(self.arranged, delta)
        task.counts["changes"] = int(np.abs(delta.weights).sum())
        return iter(())
