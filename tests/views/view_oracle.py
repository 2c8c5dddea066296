"""What a view has to be: its query, evaluated by Spark over plain rows.

`Model` holds the rows of every table as Python lists and evaluates queries over temporary views of
them; it knows nothing of Windrow. `History` does to a project what it does to a model, and compares
each view with the model's answer: the same columns and types, and the same multiset of rows.

Rows are tuples in the order of the columns; structs are dicts, maps lists of pairs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from windrow.updates import DIFF, TIME
from windrow.views.relations.rows import repeated

Row = tuple[Any, ...]
Change = tuple[Row, int]  # a row and how many copies of it come (or, negative, go)
Batch = Mapping[str, Sequence[Change]]  # changes by table

RELATIVE, ABSOLUTE = 1e-9, 1e-12  # of floats: sums depend on the order of their terms
SHOWN = 8  # rows of each kind in a message


class NotMaintainedError(AssertionError):
    """A view that is not what its query gives, or that Windrow did not make at all."""


# --- values -----------------------------------------------------------------------------------


def canonical(value: Any, type_: pa.DataType, unordered: bool = False) -> Any:
    """A hashable form in which equal values are equal: NaN is NaN, maps have no order.

    `unordered` is for lists whose order Spark leaves open.
    """
    if value is None:
        return None
    if pa.types.is_floating(type_):
        return "NaN" if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
    if pa.types.is_struct(type_):
        return tuple(canonical(value[f.name], f.type) for f in type_)
    if pa.types.is_map(type_):
        key, item = type_.key_type, type_.item_type
        pairs = [(canonical(k, key), canonical(v, item)) for k, v in value]
        return ("map", *sorted(pairs, key=repr))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        found = [canonical(element, type_.value_type) for element in value]
        return ("list", *(sorted(found, key=repr) if unordered else found))
    return value


def canonical_rows(table: pa.Table, unordered: Iterable[str] = ()) -> list[Row]:
    # By position: a query may give two columns one name.
    columns = [
        [canonical(value, f.type, f.name in unordered) for value in column.to_pylist()]
        for f, column in zip(table.schema, table.columns, strict=True)
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def close(a: Any, b: Any) -> bool:
    """Equal up to the last digits of floats."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def difference(expected: Iterable[Row], found: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that are missing, and those that should not be there."""
    wanted, there = Counter(expected), Counter(found)
    extra = list((there - wanted).elements())
    missing = []
    for row in (wanted - there).elements():
        match = next((i for i, other in enumerate(extra) if close(row, other)), None)
        if match is None:
            missing.append(row)
        else:
            del extra[match]
    return missing, extra


# --- the model --------------------------------------------------------------------------------


# The same meaning as a project's session has, and nothing that a few rows do not need: one task
# without an exchange, no generated code. That takes a third of the time, and compares the code
# that Spark generates with what it was generated from.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

# Code that Spark generates for whole stages: the tests' own session goes without.
GENERATED = {"spark.sql.codegen.wholeStage": "true"}


def quiet_session(spark: Any, settings: Mapping[str, str] = SETTINGS) -> Any:
    """A session of its own, whose temporary views are nobody else's."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@dataclass(frozen=True)
class Stored:
    """Rows that were read already."""

    schema: Any
    rows: pa.Table

    def toArrow(self) -> pa.Table:  # noqa: N802  # as a DataFrame has it
        return self.rows


class Model:
    """Tables as lists of rows, and Spark's answers over them."""

    def __init__(self, spark: Any, tables: Mapping[str, str]) -> None:
        """`tables`: columns by name of the table, as in CREATE TABLE."""
        from pyspark.sql.types import StructType

        self.spark = quiet_session(spark)
        self.columns = dict(tables)
        self.types = {name: StructType.fromDDL(text) for name, text in tables.items()}
        # Spark says what they are in Arrow: the function for it differs between its releases.
        self.schemas = {
            name: self.spark.createDataFrame([], type_).toArrow().schema
            for name, type_ in self.types.items()
        }
        self.rows: dict[str, list[Row]] = {name: [] for name in tables}
        self._answers: dict[str, Stored] = {}
        for name in tables:
            self._register(name)

    def arrow(self, table: str, rows: Sequence[Row]) -> pa.Table:
        schema = self.schemas[table]
        columns = [
            pa.array([row[i] for row in rows], f.type, from_pandas=False)
            for i, f in enumerate(schema)
        ]
        return pa.table(columns, schema=schema)

    def key(self, table: str, row: Row) -> Row:
        return tuple(canonical(v, f.type) for v, f in zip(row, self.schemas[table], strict=True))

    def apply(self, batch: Batch) -> None:
        """Add the rows that come and take those away that go, which have to be there."""
        for table, changes in batch.items():
            # Additions first: within a batch, only the sum counts.
            kept = self.rows[table] + [row for row, diff in changes for _ in range(diff)]
            gone = Counter(self.key(table, row) for row, diff in changes for _ in range(-diff))
            self.rows[table] = []
            for row in kept:
                if gone[self.key(table, row)]:
                    gone[self.key(table, row)] -= 1
                else:
                    self.rows[table].append(row)
            assert not gone.total(), f"{table}: deletes rows that are not there: {gone}"
            self._register(table)

    def _register(self, table: str) -> None:
        self._answers.clear()
        rows = self.arrow(table, self.rows[table])
        frame = self.spark.createDataFrame(rows, schema=self.types[table])
        frame.createOrReplaceTempView(table)

    def define(self, view: str, query: str) -> None:
        """Let other queries use this one by name."""
        self._answers.clear()
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {query}")

    def answer(self, query: str) -> Stored:
        """Spark's answer; that of a query which several views have is computed once."""
        if query not in self._answers:
            frame = self.spark.sql(query)
            self._answers[query] = Stored(frame.schema, frame.toArrow())
        return self._answers[query]


# --- a project beside its model ----------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A view under test. `unordered` names columns whose arrays have no order."""

    name: str
    query: str
    unordered: tuple[str, ...] = ()
    expected: str | None = None  # where Windrow promises more than Spark does, e.g. an order


@dataclass
class History:
    """A project and a model that go through the same changes."""

    project: Any
    model: Model
    spark: Any
    views: dict[str, View] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)  # views whose rows Spark has read once
    steps: list[tuple[str, Batch]] = field(default_factory=list)  # what was done, for messages

    @classmethod
    def start(cls, project: Any, spark: Any, tables: Mapping[str, str]) -> History:
        for name, columns in tables.items():
            project.sql(f"CREATE TABLE {name} ({columns})")
        return cls(project, Model(spark, tables), spark)

    def create(
        self,
        name: str,
        query: str,
        unordered: tuple[str, ...] = (),
        expected: str | None = None,
    ) -> None:
        """A view in the project, and a temporary one of the same name beside the model."""
        self.project.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        self.model.define(name, expected or query)
        self.views[name] = View(name, query, unordered, expected)

    def drop(self, name: str) -> None:
        self.project.sql(f"DROP MATERIALIZED VIEW {name}")
        del self.views[name]
        self.read.discard(name)

    def write(self, batch: Batch, what: str = "changes") -> None:
        """One batch of updates for each table, without a tick."""
        self.steps.append((what, batch))
        self.model.apply(batch)
        for table, changes in batch.items():
            self.project.table(table).apply(self.frame(table, changes))

    def frame(self, table: str, changes: Sequence[Change]) -> Any:
        """Changes as a DataFrame: the table's columns, and `_diff`."""
        from pyspark.sql.types import LongType, StructType

        rows = self.model.arrow(table, [row for row, _ in changes])
        rows = rows.append_column("_diff", pa.array([diff for _, diff in changes], pa.int64()))
        schema = StructType([*self.model.types[table].fields]).add("_diff", LongType())
        return self.spark.createDataFrame(rows, schema=schema)

    def apply(self, batch: Batch) -> None:
        """A batch, a tick, and every view compared."""
        self.write(batch)
        self.tick()

    def tick(self) -> None:
        self.project.tick()
        self.check()

    def check(self, *names: str) -> None:
        """Compare views with the model. Spark reads each once; then it is read without a job."""
        found = (self.problem(name, stored=name in self.read) for name in names or self.views)
        problems = [problem for problem in found if problem is not None]
        self.read |= {*(names or self.views)}
        if problems:
            raise NotMaintainedError("\n\n".join(problems))

    def problem(self, name: str, *, stored: bool = False) -> str | None:
        """What is wrong with a view; None if nothing is.

        Its rows are read by Spark; if `stored`, in this process, without a job.
        """
        view = self.views[name]
        wanted = self.model.answer(view.expected or view.query)
        there = self._stored(name) if stored else None
        lines = differences(wanted, there or self.project.read(name), view.unordered)
        if not lines:
            return None
        done = [
            f"after step {len(self.steps)}:",
            *(describe(step, view) for step in self.steps[-1:]),
        ]
        return "\n  ".join([f"view {view.name}", *lines, *done, f"query: {view.query.strip()}"])

    def _stored(self, name: str) -> Stored | None:
        """A view's rows, if they are stored as queries see them."""
        statements = self.project._statements
        statements.history.refresh()
        relation = statements.relations.find(name)
        if any(kept.back is not None for kept in relation.storable.columns):
            return None
        collection = statements.history.collection(relation.collection)
        read = collection.snapshot(statements.history.ticked, columns=relation.schema.names)
        batches = [rows for batch in read.batches() for rows in repeated(batch)]
        schema = pa.schema([f for f in read.schema if f.name not in (TIME, DIFF)])
        return Stored(relation.schema, pa.Table.from_batches(batches, schema))


def differences(wanted: Any, there: Any, unordered: Iterable[str] = ()) -> list[str]:
    """In what two DataFrames differ, in lines for people; none if they are equal."""
    if (types := types_of(wanted)) != types_of(there):
        return [f"columns {types_of(there)}, expected {types}"]
    expected = canonical_rows(wanted.toArrow(), unordered)
    found = canonical_rows(there.toArrow(), unordered)
    missing, extra = difference(expected, found)
    if not missing and not extra:
        return []
    rows = [*_some("missing", missing), *_some("extra", extra)]
    return [f"{len(found)} rows instead of {len(expected)}", *rows]


def types_of(frame: Any) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in frame.schema]


def _some(kind: str, rows: Sequence[Row]) -> list[str]:
    more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    return [*(f"{kind}: {row}" for row in rows[:SHOWN]), *more]


def describe(step: tuple[str, Batch], view: View) -> str:
    """A batch in a few lines: it may be needed to reproduce a failure by hand."""
    what, batch = step
    lines = [what]
    for table, changes in batch.items():
        if re.search(rf"\b{table}\b", view.query):
            shown = [f"{diff:+d} {row}" for row, diff in changes[:SHOWN]]
            more = [f"... and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
            lines.append(f"{table}: " + "; ".join([*shown, *more]))
    return "\n  ".join(lines)
