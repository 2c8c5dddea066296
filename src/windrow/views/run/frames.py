"""A plan as Spark DataFrames: straight from its operators, without a decision of its own.

Each operator becomes a piece of Spark's plan whose columns have the identities that the operators
above refer to, and `_diff` last. Stateful ones are a Python stage, or two with Spark's own operator
between them:

    Recompute   changes -> Touched -> Spark's operator -> Difference -> changes
    Join        both changes, side by side -> JoinSides -> Spark's filter -> changes

A job on one partition has no exchange, so it is prepared once and executed at every tick. On
several, rows are brought together by key before each stage, and the job is built each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BooleanType, ByteType, LongType, StructField, StructType

from windrow.spark.catalyst import Catalyst, SplitAggregate
from windrow.spark.schemas import spark_to_arrow_schema
from windrow.views.plan.inner import InnerJoin
from windrow.views.plan.nodes import (
    Accumulate,
    Arrangement,
    Basic,
    Constant,
    Distinct,
    Extremes,
    ExtremeValue,
    Input,
    Join,
    Node,
    Recompute,
    Reduce,
    Stateless,
    TopK,
    TopRows,
    ViewPlan,
    Windows,
)
from windrow.views.run import extremes, reducing, stages, top_stages
from windrow.views.run.join_frames import JoinFrames
from windrow.views.run.levels import Level
from windrow.views.run.pieces import Piece, attribute_of, nullable, value_of
from windrow.views.run.task import Arranged, Job
from windrow.views.run.top_thinning import Thin
from windrow.views.stored import from_stored, stored_type, to_stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Frames(JoinFrames):
    """Builds the frame of one job.

    `places` maps names of arrangements to collections. `partitions` is None for a job on one
    partition, which serves fills and ticks alike; of others, `fill` says which it is.
    """

    catalyst: Catalyst
    job: Job
    places: Mapping[str, str]
    partitions: int | None
    fill: bool = False
    tapped: bool = False  # whether each operator is evaluated by itself, to find out which fails
    operators: list[Node | None] = field(default_factory=list)  # whose a stage is; None: the view's
    evaluated: dict[int, Node | None] = field(default_factory=dict)  # by stage: what takes its rows
    names: dict[int, list[str]] = field(default_factory=dict)  # of a stage's columns; "": hidden
    _open: list[int] = field(default_factory=list)  # stages whose rows nobody has taken yet
    seen: set[str] = field(default_factory=set)  # arrangements that a stage has already
    persisted: list[DataFrame] = field(default_factory=list)  # what Spark keeps until it has run
    # What gives columns, by the identity of the first: the rows that it takes, and its stages.
    _made: dict[int, tuple[DataFrame, stages.Fused]] = field(default_factory=dict)

    def view(self, plan: ViewPlan) -> DataFrame:
        """The job that maintains a view. Its result is empty; stages report what they wrote."""
        piece = self._build(plan.root)
        arranged = self._arranged(plan.output)
        frame, given = self._given([*plan.output.expressions, piece.diff], piece.plan)
        stage = stages.Sink(self.job, self._stage(None), given, _EMPTY, arranged)
        made = self._through(frame, stage, StructType([StructField("nothing", LongType())]))
        return self.catalyst.ready(made)

    # One method for each kind of operator.

    def _build(self, node: Node) -> Piece:
        piece = self._operator(node)
        if self.tapped and not isinstance(node, Input | Constant):
            return self._tap(node, piece)
        return piece

    def _tap(self, node: Node, piece: Piece) -> Piece:
        """A piece whose rows have been evaluated before anything else takes them."""
        c = self.catalyst
        own = c.id_of(piece.diff)
        attributes = [one for one in c.output(piece.plan) if c.id_of(one) != own]
        frame, given = self._given([*attributes, piece.diff], piece.plan)
        gives = self._struct([*attributes, None])
        union = isinstance(node, Stateless) and node.operator == "Union"
        number = self._stage(node, takes=len(node.inputs) if union else 1)
        stage = stages.Tap(self.job, number, given, spark_to_arrow_schema(gives))
        return self._output(self._through(frame, stage, gives), attributes)

    def _operator(self, node: Node) -> Piece:
        match node:
            case Input():
                return self._input(node)
            case Constant():
                return self._constant(node)
            case Stateless():
                return self._stateless(node)
            case Join():
                return self._join(node)
            case InnerJoin():
                return self._inner(node)
            case Distinct():
                return self._distinct(node)
            case Accumulate():
                return self._accumulate(node)
            case Reduce():
                return self._reduce(node)
            case Windows():
                return self._recompute(node, self._windows)
            case TopK():
                return self._recompute(node, self._top_k)
            case TopRows():
                return self._top_rows(node)
        raise NotImplementedError(type(node).__name__)

    def _input(self, node: Input) -> Piece:
        c = self.catalyst
        names = set(node.columns)
        attributes = [one for one in c.output(node.java) if str(one.name()) in names]
        count = self.partitions or 1
        numbers = c.spark.range(0, count, 1, count)
        gives = self._struct([*attributes, None])
        stage = stages.ReadChanges(
            self.job,
            self._stage(node, takes=0),
            pa.schema([("n", pa.int64())]),
            spark_to_arrow_schema(gives),
            node.collection,
            node.columns,
            count,
            self._first_read(node),
        )
        return self._output(self._through(numbers, stage, gives), attributes)

    def _constant(self, node: Constant) -> Piece:
        c = self.catalyst
        attributes = c.output(node.java)
        diff = c.named(c.literal(1, LongType()), "_diff")
        frame, given = self._given([*attributes, diff], node.java)
        gives = self._struct([*attributes, None])
        stage = stages.Constants(
            self.job, self._stage(node, takes=0), given, spark_to_arrow_schema(gives)
        )
        return self._output(self._through(frame, stage, gives), attributes)

    def _stateless(self, node: Stateless) -> Piece:
        c = self.catalyst
        pieces = [self._build(one) for one in node.over]
        kind, java, first = node.operator, node.java, pieces[0]
        if kind == "Union":
            plan = c.union([piece.plan for piece in pieces])
            if self.partitions is None:
                plan = c.analyzed(c.frame(plan).coalesce(1))
            # Spark gives the columns of a union new identities.
            return self._output(c.frame(plan), c.output(java), stored=False)
        if kind == "Expand":
            return Piece(c.expand(java, first.diff, first.plan), first.diff)
        if kind == "Project":
            # An aggregate's expressions over its results are a projection, too.
            split = c.kind(java) == "Aggregate"
            values = c.split_aggregate(java).output if split else c.items(java.projectList())
            return Piece(c.project([*values, first.diff], first.plan), first.diff)
        if kind == "Generate":
            return Piece(c.generate(java, first.plan), first.diff)
        plan = c.with_children(java, [first.plan])
        if c.id_of(c.output(plan)[-1]) != c.id_of(first.diff):
            plan = c.project([*c.output(java), first.diff], plan)
        return Piece(plan, first.diff)

    def _distinct(self, node: Distinct) -> Piece:
        piece = self._build(node.over)
        frame, given = self._by_key(node.rows, piece)
        gives = [attribute_of(one) for one in node.rows.expressions]
        struct = self._struct([*gives, None])
        stage = stages.Distinct(
            self.job,
            self._stage(node),
            given,
            spark_to_arrow_schema(struct),
            self._arranged(node.rows),
        )
        return self._output(self._through(frame, stage, struct), gives)

    def _accumulate(self, node: Accumulate, raw: bool = False) -> Piece:
        """`raw`: keys and results as they are, before what Spark makes of them."""
        c = self.catalyst
        piece = self._build(node.over)
        more = [] if node.basic is None else node.basic.rows.expressions[len(node.keys) :]
        frame, given = self._given([*node.keys, *node.values, *more, piece.diff], piece.plan)
        if self.partitions is not None:
            has_key = node.totals.key != ("_all",)
            by = frame.columns[: len(node.keys)]
            frame = frame.repartition(self.partitions if has_key else 1, *by)
        keys = [attribute_of(one) for one in node.keys]
        if node.basic is None:
            gives = [*keys, *node.results]
            struct = self._struct([*gives, None])
            stage = reducing.Reduce(**self._reducing(node, given, struct))
            found = self._output(self._through(frame, stage, struct), gives)
        else:
            found = self._mixture(node, node.basic, frame, given)
        if raw or (node.basic is None and len(node.output) == len(node.results)):
            return found
        basic = [] if node.basic is None else [f.resultAttribute() for f in node.basic.functions]
        return Piece(c.project([*keys, *basic, *node.output, found.diff], found.plan), found.diff)

    def _reducing(self, node: Accumulate, given: pa.Schema, struct: StructType) -> dict[str, Any]:
        """What a stage that reduces has to know."""
        return {
            "job": self.job,
            "number": self._stage(node),
            "given": given,
            "gives": spark_to_arrow_schema(struct),
            "functions": node.functions,
            "types": tuple(spark_to_arrow_schema(self._struct(node.results)).types),
            "totals": self._arranged(node.totals),
            "extremes": self._extremes(node.extremes),
            "sets": tuple((numbers, self._arranged(one)) for numbers, one in node.sets),
        }

    def _extremes(self, found: Extremes | None) -> tuple[tuple[int, extremes.Extremes], ...]:
        """How the least and largest of each value are maintained."""
        if found is None:
            return ()
        return tuple((one.value, self._extreme(found.plan, one)) for one in found.values)

    def _extreme(self, plan: str, one: ExtremeValue) -> extremes.Extremes:
        stored = [self._arranged(arrangement) for arrangement in one.stored]
        if plan == "monotonic":
            return extremes.Growing()
        if plan == "sorted":
            return extremes.Sorted(*stored)
        pairs = zip_longest(stored[::2], stored[1::2])
        return extremes.Leveled(tuple(Level(*pair) for pair in pairs), one.sides)

    def _mixture(self, node: Accumulate, basic: Basic, frame: DataFrame, given: pa.Schema) -> Piece:
        """Functions whose states are kept, beside those that Spark computes.

        A touched group is its rows, for Spark, and one more row with the results of the others.
        """
        c = self.catalyst
        flag = c.named(c.literal(0, ByteType()), "flag")
        is_result = c.named(c.literal(False, BooleanType()), "is_result")
        passed = [c.named(c.null_like(one), str(one.name())) for one in node.results]
        columns = [flag, is_result, *map(attribute_of, basic.rows.expressions), *passed]
        struct = self._struct(columns)
        known = self._reducing(node, given, struct)
        stage = reducing.ReduceSome(**known, rows=self._arranged(basic.rows))
        plan = self._columns(self._through(frame, stage, struct), columns, hidden=2)
        e = c.expressions
        is_row = e.Not(is_result.toAttribute())
        functions = [c.filtered_function(one, is_row) for one in basic.functions]
        functions += [c.first_known(attribute_of(one)) for one in passed]
        results = [*(one.resultAttribute() for one in basic.functions), *node.results]
        keys = [attribute_of(one) for one in node.keys]
        split = SplitAggregate(keys, functions, results, [])
        found = c.aggregate(keys, split, flag.toAttribute(), plan)
        computed, given = self._given([c.output(found)[0], *basic.results.expressions], found)
        gives = [attribute_of(one) for one in basic.results.expressions]
        struct = self._struct([*gives, None])
        difference = stages.Difference(
            self.job,
            self._stage(node),
            given,
            spark_to_arrow_schema(struct),
            self._arranged(basic.results),
        )
        return self._output(self._through(computed, difference, struct), gives)

    def _reduce(self, node: Reduce) -> Piece:
        split: SplitAggregate = node.steps[0]

        def aggregate(plan: Any, flag: Any) -> tuple[Any, Any]:
            keys = [key.toAttribute() for key in split.keys]
            found = self.catalyst.aggregate(keys, split, flag, plan)
            return found, self.catalyst.output(found)[0]

        return self._recompute(node, lambda _node, plan, flag: aggregate(plan, flag))

    def _windows(self, node: Recompute, plan: Any, flag: Any) -> tuple[Any, Any]:
        for window in node.steps:
            plan = self.catalyst.with_children(window, [plan])
        return plan, flag

    def _top_k(self, node: Recompute, plan: Any, flag: Any) -> tuple[Any, Any]:
        assert isinstance(node, TopK)
        plan = self.catalyst.sorted(node.steps, plan)
        if node.limit is not None and node.offset + node.limit <= _MOST:
            plan = self.catalyst.first(node.offset + node.limit, plan)
        return plan, flag

    def _top_rows(self, node: TopRows) -> Piece:
        piece = self._build(node.over)
        base = node.columns_of_rows
        frame, given = self._given([*base, *node.others, piece.diff], piece.plan)
        ranked = top_stages.ranked_of(node)
        if self.partitions is not None:
            if self.fill or top_stages.can_thin(node):
                struct = nullable(frame.schema)
                number = self._stage(node)
                stored = top_stages.stored_of(node, self._arranged)
                thin = Thin(self.job, number, given, given, ranked, stored)
                frame = self._through(frame, thin, struct)
            names = node.schema.names
            by = [frame.columns[names.index(name)] for name in node.key]
            frame = frame.repartition(self.partitions if node.key != ("_all",) else 1, *by)
        gives = [attribute_of(one) for one in base[: node.width]]
        if node.rank is not None:
            gives.append(node.rank)
        struct = self._struct([*gives, None])
        about = (self.job, self._stage(node), given, spark_to_arrow_schema(struct))
        stage = top_stages.stage_of(node, about, ranked, self._arranged)
        return self._output(self._through(frame, stage, struct), gives)

    def _recompute(
        self, node: Recompute, operator: Callable[[Recompute, Any, Any], tuple[Any, Any]]
    ) -> Piece:
        """Touched keys, what Spark computes of them, and the difference to what it was."""
        c = self.catalyst
        piece = self._build(node.over)
        frame, given = self._by_key(node.rows, piece)
        flag = c.named(c.literal(0, ByteType()), "flag")
        columns = [flag, *map(attribute_of, node.rows.expressions)]
        struct = self._struct(columns)
        touched = stages.Touched(
            self.job,
            self._stage(node),
            given,
            spark_to_arrow_schema(struct),
            self._arranged(node.rows),
            isinstance(node, Reduce),
        )
        plan = self._columns(self._through(frame, touched, struct), columns, hidden=1)
        plan, flagged = operator(node, plan, flag.toAttribute())
        found, given = self._given([flagged, *node.results.expressions], plan)
        if self.partitions is not None and _is_coarser(node):
            # Spark has exchanged rows by all groups, of which a key has several.
            names = node.results.schema.names
            keys = [found.columns[1 + names.index(name)] for name in node.results.key]
            found = found.repartition(self.partitions if node.has_key else 1, *keys)
        gives = [attribute_of(one) for one in node.results.expressions]
        struct = self._struct([*gives, None])
        skip, limit = (node.offset, node.limit) if isinstance(node, TopK) else (0, None)
        difference = stages.Difference(
            self.job,
            self._stage(node),
            given,
            spark_to_arrow_schema(struct),
            self._arranged(node.results),
            skip,
            limit,
        )
        return self._output(self._through(found, difference, struct), gives)

    # Columns on their way to a stage and back.

    def _through(self, frame: DataFrame, stage: stages.Stage, gives: StructType) -> DataFrame:
        """The rows of a frame, through a stage: in one process with those before it, if it takes
        what they give as it is. Where rows are exchanged, few stages follow each other."""
        c = self.catalyst
        fused = stages.Fused(stage)
        if self.tapped or self.partitions is not None:
            return frame.mapInArrow(fused, gives)
        passed = c.passed_on(frame)
        if passed is not None and passed[0] in self._made:
            frame, before = self._made[passed[0]]
            fused = before.then(passed[1], stage)
        made = frame.mapInArrow(fused, gives)
        self._made[c.id_of(c.analyzed(made).output().head())] = frame, fused
        return made

    def _by_key(self, arrangement: Arrangement, piece: Piece) -> tuple[DataFrame, pa.Schema]:
        """The columns of an arrangement and `_diff`, the rows of a key in one task."""
        frame, given = self._given([*arrangement.expressions, piece.diff], piece.plan)
        if self.partitions is not None:
            names = arrangement.schema.names
            keys = [frame.columns[names.index(name)] for name in arrangement.key]
            has_key = arrangement.key != ("_all",)
            frame = frame.repartition(self.partitions if has_key else 1, *keys)
        return frame, given

    def _given(self, expressions: Sequence[Any], plan: Any) -> tuple[DataFrame, pa.Schema]:
        """Expressions over a plan, as they are stored, under the names c0, c1, ..."""
        c = self.catalyst
        named = [c.named(to_stored(c, value_of(one)), f"c{i}") for i, one in enumerate(expressions)]
        frame = c.frame(c.project(named, plan))
        if self.partitions is None:
            # Some operators hide that there is one partition, and Spark would exchange its rows.
            frame = frame.coalesce(1)
        return frame, spark_to_arrow_schema(nullable(frame.schema))

    def _struct(self, attributes: Sequence[Any | None]) -> StructType:
        """The columns that a stage gives; None stands for `_diff`."""
        c = self.catalyst
        types = [LongType() if a is None else stored_type(c.type_of(a)) for a in attributes]
        return StructType([StructField(f"c{i}", type_) for i, type_ in enumerate(types)])

    def _columns(
        self, frame: DataFrame, attributes: Sequence[Any], stored: bool = True, hidden: int = 0
    ) -> Any:
        """The columns that a stage gave, under the identities of `attributes`.

        The first ones may be `hidden` from users.
        """
        c = self.catalyst
        if stored:  # else they are not of a stage
            names = [str(one.name()) for one in attributes[hidden:]]
            self.names[len(self.operators) - 1] = [""] * hidden + names
        plan = c.analyzed(frame)

        def own(column: Any, attribute: Any) -> Any:
            return from_stored(c, column, c.type_of(attribute)) if stored else column

        found = [
            c.renamed(own(column, attribute), attribute_of(attribute))
            for column, attribute in zip(c.output(plan), attributes, strict=False)
        ]
        return c.project([*found, *c.output(plan)[len(attributes) :]], plan)

    def _output(self, frame: DataFrame, attributes: Sequence[Any], stored: bool = True) -> Piece:
        plan = self._columns(frame, attributes, stored)
        return Piece(plan, self.catalyst.output(plan)[-1])

    def _arranged(self, arrangement: Arrangement) -> Arranged:
        about = arrangement.key, arrangement.schema
        if arrangement.source is not None:  # those who read the relation's changes keep it
            place = self.places[arrangement.name] if arrangement.is_kept else arrangement.source
            return Arranged(place, *about, False)
        place = self.places[arrangement.name]
        if arrangement.results is not None:
            return Arranged(place, *about, False, results=arrangement.results)
        first = arrangement.name not in self.seen
        self.seen.add(arrangement.name)
        return Arranged(place, *about, first, arrangement.order)

    def _first_read(self, node: Input) -> bool:
        """Whether no other stage of this job has read this input before."""
        known = f"input {node.collection}"
        first = known not in self.seen
        self.seen.add(known)
        return first

    def _stage(self, node: Node | None, takes: int = 1) -> int:
        """The number of a new stage, which takes the rows of the last ones that nobody took."""
        number = len(self.operators)
        self.operators.append(node)
        taken = self._open[len(self._open) - takes :]
        del self._open[len(self._open) - takes :]
        self.evaluated |= dict.fromkeys(taken, node)
        self._open.append(number)
        return number


_MOST = 2**31 - 1  # rows that Spark can limit to; `Difference` takes the rest away
_EMPTY = pa.schema([("nothing", pa.int64())])


def _is_coarser(node: Recompute) -> bool:
    """Whether what is kept has a coarser key than what Spark computes by."""
    match node:
        case Reduce():
            return bool(node.groups) and len(node.results.key) < len(node.groups)
        case Windows():
            return bool(node.partition) and len(node.results.key) < len(node.partition)
    return False
