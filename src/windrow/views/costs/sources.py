"""The inputs of a view, measured: a sample of each, after the filters and projections over it.

What is to be counted is found out first, by estimating without figures; then one Spark job counts
all of it, each source in one task, and only the counts come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from windrow.shard.merge import read_slice
from windrow.shard.scan import Counters, Scan, Slice
from windrow.spark.catalyst import Catalyst
from windrow.spark.schemas import spark_to_arrow_schema
from windrow.updates import DIFF
from windrow.views.costs.distinct import extrapolated
from windrow.views.costs.sizes import Each, Size, Sizes, substituted
from windrow.views.history.collections import Collection
from windrow.views.plan.nodes import Constant, Input, Node, Stateless
from windrow.views.run.frames import Frames
from windrow.views.run.pieces import Piece
from windrow.views.run.task import Job
from windrow.views.run.weighted import Weighted, batches_of, number_rows, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE_ROWS = 100_000  # of an input
_OUT = StructType([StructField("number", LongType()), StructField("found", StringType())])

# What is asked: distinct values of columns, by groups; both by the numbers of the columns.
Request = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Counted:
    """The answer to a request. `groups` are (how many groups, their values) by size of group."""

    distinct: int
    once: int
    groups: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Found:
    """What the sample of a source holds. `fraction` is the part of the input that it is of."""

    fraction: float
    rows: int  # as often as they are there
    counted: Mapping[Request, Counted]


@dataclass(eq=False)
class MeasuredSource:
    """Rows of an input after stateless operators; `most` is how many it has without them.

    Asked before it was measured, it remembers what it was asked, and answers with `most`.
    """

    catalyst: Catalyst
    node: Node
    most: float
    base: MeasuredSource | None = None  # before filters; None: there are none
    expressions: dict[str, Any] = field(default_factory=dict)  # by text, in order
    requests: dict[Request, None] = field(default_factory=dict)
    found: Found | None = None

    @property
    def rows(self) -> float:
        return self.most if self.found is None else self.found.rows / self.found.fraction

    def distinct(self, expressions: Sequence[Any]) -> float:
        return self._distinct(self._request((), expressions))

    def _distinct(self, request: Request) -> float:
        if self.found is None or request not in self.found.counted:
            return self.rows
        one = self.found.counted[request]
        return extrapolated(one.distinct, one.once, self.found.rows, self.found.fraction)

    def domain(self, expressions: Sequence[Any]) -> float:
        if self.base is None:
            return self.distinct(expressions)
        below = _below(self.catalyst, self.node, expressions)
        return self.distinct(expressions) if below is None else self.base.distinct(below)

    def summed(self, groups: Sequence[Any], expressions: Sequence[Any], each: Each) -> float:
        request = self._request(groups, expressions)
        total, count = self._distinct(request), self.distinct(groups)
        if self.found is None or request not in self.found.counted:
            return total
        found, fraction = self.found.counted[request].groups, self.found.fraction
        if sum(several for several, _ in found) < 0.9 * count:
            # The sample has missed groups: all that is known is how large they are on average.
            return min(total, count * each(total / max(count, 1.0)))
        kept = sum(several * each(values / several / fraction) for several, values in found)
        return min(total, kept)

    def _request(self, groups: Sequence[Any], expressions: Sequence[Any]) -> Request:
        request = self._numbers(groups), self._numbers(expressions)
        if self.found is None:
            self.requests.setdefault(request)
        return request

    def _numbers(self, expressions: Sequence[Any]) -> tuple[int, ...]:
        numbers = set()
        for one in expressions:
            text = str(one.toString())
            if self.found is None:
                self.expressions.setdefault(text, one)
            if text in self.expressions:
                numbers.add(list(self.expressions).index(text))
        return tuple(sorted(numbers))


@dataclass(eq=False)
class ConstantSource:
    """Rows of the query itself."""

    rows: float

    def distinct(self, expressions: Sequence[Any]) -> float:
        return self.rows

    domain = distinct

    def summed(self, groups: Sequence[Any], expressions: Sequence[Any], each: Each) -> float:
        return each(self.rows)


@dataclass(eq=False)
class UnionSource:
    """All rows of several sizes; `attributes` are those of the union, `own` those of each."""

    sizes: Sizes
    several: Sequence[Size]
    attributes: Sequence[Any]
    own: Sequence[Sequence[Any]]

    @property
    def rows(self) -> float:
        return sum(one.rows for one in self.several)

    def distinct(self, expressions: Sequence[Any]) -> float:
        found = [
            self.sizes.distinct(size, self._of(expressions, own))
            for size, own in zip(self.several, self.own, strict=True)
        ]
        return sum(found)

    domain = distinct

    def summed(self, groups: Sequence[Any], expressions: Sequence[Any], each: Each) -> float:
        total, count = self.distinct([*groups, *expressions]), max(self.distinct(groups), 1.0)
        return min(count * each(total / count), total)

    def _of(self, expressions: Sequence[Any], own: Sequence[Any]) -> list[Any]:
        c = self.sizes.c
        places = {c.id_of(a): b for a, b in zip(self.attributes, own, strict=True)}
        return [substituted(c, one, places) for one in expressions]


def is_stretch(node: Node) -> bool:
    """Whether an operator and all beneath it are stateless, over one input."""
    while isinstance(node, Stateless) and len(node.over) == 1:
        node = node.over[0]
    return isinstance(node, Input)


def stretch_source(
    c: Catalyst, node: Node, rows: Mapping[str, int], bases: dict[int, MeasuredSource]
) -> MeasuredSource:
    """The source that a stretch is. `rows` are those of collections; `bases` inputs by `id`.

    Two inputs may read the same relation, under other identities of its columns.
    """
    below, filters = node, False
    while isinstance(below, Stateless):
        filters = filters or (below.operator == "Filter" and _is_effective(c, below))
        below = below.over[0]
    assert isinstance(below, Input)
    most = float(rows[below.collection])
    if not filters:
        return MeasuredSource(c, node, most)
    if id(below) not in bases:
        bases[id(below)] = MeasuredSource(c, below, most)
    return MeasuredSource(c, node, most, bases[id(below)])


def constant_source(node: Constant) -> ConstantSource:
    kind = str(node.java.getClass().getSimpleName())
    if kind == "LocalRelation":
        return ConstantSource(float(node.java.data().size()))
    return ConstantSource(float(str(node.java.numElements())) if kind == "Range" else 1.0)


def _is_effective(c: Catalyst, node: Stateless) -> bool:
    """Whether a filter does more than to keep NULLs out."""

    def only_known(condition: Any) -> bool:
        if c.kind(condition) == "And":
            return only_known(condition.left()) and only_known(condition.right())
        return c.kind(condition) == "IsNotNull"

    return not only_known(node.java.condition())


def _below(c: Catalyst, node: Node, expressions: Sequence[Any]) -> list[Any] | None:
    """Expressions over a stretch, over its input; None if an operator between makes rows."""
    found = list(expressions)
    while isinstance(node, Stateless):
        if node.operator == "Project":
            own = {
                c.id_of(one): one.child()
                for one in c.items(node.java.projectList())
                if c.kind(one) == "Alias"
            }
            found = [substituted(c, one, own) for one in found]
        elif node.operator != "Filter":
            return None
        node = node.over[0]
    return found


def needed_columns(c: Catalyst, source: MeasuredSource) -> set[int] | None:
    """The columns of an input that a source needs, by identity; None if they are known by place."""
    found = {id for one in source.expressions.values() for id in c.column_ids(one)}
    node = source.node
    while isinstance(node, Stateless):
        if node.operator not in ("Project", "Filter"):
            return None
        found |= {c.id_of(one) for one in c.items(node.java.references().toSeq())}
        node = node.over[0]
    return found


# Measuring.


def measure(
    c: Catalyst, sources: Sequence[MeasuredSource], collections: Mapping[str, Collection]
) -> None:
    """Answer what sources were asked, by one Spark job."""
    asked = [source for source in sources if source.requests]
    if not asked:
        return
    frames = _Samples(c, cast(Job, None), {}, None, collections=collections)
    together: DataFrame | None = None
    for number, source in enumerate(asked):
        frame = frames.counted(number, source)
        together = frame if together is None else together.unionAll(frame)
    assert together is not None
    for number, text in together.collect():
        about = json.loads(text)
        source = asked[number]
        counted = [
            Counted(distinct, once, tuple((count, values) for count, values in groups))
            for distinct, once, groups in about["counted"]
        ]
        answers = dict(zip(source.requests, counted, strict=True))
        fraction = frames.fractions[number]
        source.found = Found(fraction, about["rows"], answers)


@dataclass
class _Samples(Frames):
    """Frames over samples of inputs, one partition each."""

    collections: Mapping[str, Collection] = field(default_factory=dict)
    fractions: dict[int, float] = field(default_factory=dict)
    _last: float = 1.0
    _needed: set[int] | None = None  # columns of the input, by identity; None: all

    def counted(self, number: int, source: MeasuredSource) -> DataFrame:
        self._needed = needed_columns(self.catalyst, source)
        piece = self._build(source.node)
        self.fractions[number] = self._last
        frame, given = self._given([*source.expressions.values(), piece.diff], piece.plan)
        return frame.mapInArrow(_Count(number, given, tuple(source.requests)), _OUT)

    def _input(self, node: Input) -> Piece:
        c = self.catalyst
        wanted = self._needed
        attributes = [
            one
            for one in c.output(node.java)
            if (str(one.name()) in node.columns if wanted is None else c.id_of(one) in wanted)
        ]
        names = [str(one.name()) for one in attributes]
        gives = self._struct([*attributes, None])
        collection = self.collections[node.collection]
        rows = sum(part.rows for part in collection.parts)
        read = collection.snapshot(columns=names)
        slices = read.plan(max(1, -(-rows // SAMPLE_ROWS))).slices
        # Updates are spread by the hashes of rows: any slice is a random sample.
        chosen = slices[len(slices) // 2] if slices else None
        self._last = 1.0 / max(len(slices), 1)
        sample = _Sample(read.scan, chosen, tuple(names), spark_to_arrow_schema(gives))
        numbers = c.spark.range(0, 1, 1, 1)
        return self._output(numbers.mapInArrow(sample, gives), attributes)


@dataclass(frozen=True)
class _Sample:
    """Reads one slice of an input, in a task."""

    scan: Scan
    slice: Slice | None
    columns: tuple[str, ...]
    gives: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from windrow.shard.merge import Consolidation

        for _ in batches:
            pass
        if self.slice is None:
            return
        for batch in read_slice(self.scan, self.slice, Consolidation.FULL, Counters()):
            table = pa.Table.from_batches([batch]).select([*self.columns, DIFF])
            yield from batches_of(table, self.gives)


@dataclass(frozen=True)
class _Count:
    """Counts what is asked of a source, in a task: one row of JSON comes out."""

    number: int
    given: pa.Schema
    requests: tuple[Request, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = table_of(batches, self.given)
        names = table.column_names
        rows = Weighted.of(table.rename_columns([*names[:-1], DIFF]))
        counted = [_counted(rows, groups, columns) for groups, columns in self.requests]
        about = {"rows": int(rows.weights.sum()), "counted": counted}
        yield pa.record_batch([[self.number], [json.dumps(about)]], names=["number", "found"])


def _counted(rows: Weighted, groups: Sequence[int], columns: Sequence[int]) -> list[Any]:
    """Distinct values, those that come once, and groups by the power of two of their size."""
    if not rows.size:
        return [0, 0, []]
    (values,), count = number_rows([rows.rows.select(list(columns))])
    often = np.bincount(values, rows.weights, minlength=count)
    found: list[Any] = [count, int((often == 1).sum()), []]
    if groups:
        (keys,), _ = number_rows([rows.rows.select(list(groups))])
        _, first = np.unique(values, return_index=True)
        sizes = np.bincount(keys[first])
        sizes = sizes[sizes > 0]
        power = np.frexp(sizes)[1]
        found[2] = [
            [int((power == one).sum()), int(sizes[power == one].sum())] for one in np.unique(power)
        ]
    return found
