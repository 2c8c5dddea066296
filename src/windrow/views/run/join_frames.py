"""Joins as pieces of Spark's plan.

    InnerJoin    changes of all inputs, side by side -> JoinInputs -> Spark's filter -> changes
    Join         both changes, side by side -> JoinSides, or Candidates, Spark, Settle -> changes

Changes of relations are read by one stage for all inputs of an inner join. Where rows are
exchanged, each step of a path is a stage, after an exchange by its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ByteType, LongType, StructType

from windrow.spark.catalyst import Catalyst
from windrow.spark.schemas import spark_to_arrow_schema
from windrow.views.plan.flattening import together
from windrow.views.plan.inner import InnerJoin
from windrow.views.plan.nodes import Accumulate, Arrangement, Input, Join, Node
from windrow.views.run import joining, paths, stages
from windrow.views.run.pieces import Piece, attribute_of, nullable, value_of
from windrow.views.run.task import EVERYTHING, Arranged, Job
from windrow.views.stored import stored_type, to_stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class JoinFrames:
    """The part of `Frames` that builds joins."""

    if TYPE_CHECKING:  # what the others of its parts give
        catalyst: Catalyst
        job: Job
        partitions: int | None
        fill: bool
        persisted: list[DataFrame]

        def _build(self, node: Node) -> Piece: ...
        def _accumulate(self, node: Accumulate, raw: bool = False) -> Piece: ...
        def _first_read(self, node: Input) -> bool: ...
        def _given(self, expressions: Sequence[Any], plan: Any) -> tuple[DataFrame, pa.Schema]: ...
        def _struct(self, attributes: Sequence[Any | None]) -> StructType: ...
        def _columns(
            self,
            frame: DataFrame,
            attributes: Sequence[Any],
            stored: bool = True,
            hidden: int = 0,
        ) -> Any: ...
        def _output(self, frame: DataFrame, attributes: Sequence[Any]) -> Piece: ...
        def _arranged(self, arrangement: Arrangement) -> Arranged: ...
        def _stage(self, node: Node | None, takes: int = 1) -> int: ...
        def _through(
            self, frame: DataFrame, stage: stages.Stage, gives: StructType
        ) -> DataFrame: ...

    # Inner joins.

    def _inner(self, node: InnerJoin) -> Piece:
        c = self.catalyst
        wanted = self._wanted(node)
        gives = [attribute_of(node.sides[one].columns[place]) for one, place in wanted]
        struct = self._struct([*gives, None])
        found = (
            self._met(node, wanted, struct)
            if self.partitions is None
            else self._exchanged(node, wanted, struct, self.partitions)
        )
        piece = self._output(found, gives)
        plan = piece.plan
        if node.condition is not None:
            plan = c.filter(node.condition, plan)
        return Piece(c.project([*node.output, piece.diff], plan), piece.diff)

    def _wanted(self, node: InnerJoin) -> list[tuple[int, int]]:
        """The columns of inputs that conditions and outputs refer to."""
        c = self.catalyst
        needed = {id for one in node.output for id in c.column_ids(value_of(one))}
        if node.condition is not None:
            needed |= set(c.column_ids(node.condition))
        return [
            (number, place)
            for number, side in enumerate(node.sides)
            for place, column in enumerate(side.columns)
            if c.id_of(column) in needed
        ]

    def _steps(self, node: InnerJoin) -> tuple[tuple[paths.Step, ...], ...]:
        return tuple(
            tuple(
                paths.Step(hop.source, hop.keys, hop.target, self._arranged(hop.arrangement))
                for hop in path
            )
            for path in node.paths
        )

    def _own(self, node: InnerJoin) -> tuple[tuple[int, Arranged], ...]:
        """What is kept of inputs by the join itself."""
        return tuple(
            (number, self._arranged(one))
            for number, one in node.looked_up
            if one.is_kept and one.source is None
        )

    def _met(
        self, node: InnerJoin, wanted: Sequence[tuple[int, int]], struct: StructType
    ) -> DataFrame:
        """All paths in one stage."""
        c = self.catalyst
        reads = [number for number, one in enumerate(node.over) if isinstance(one, Input)]
        rows = [self._read(node, reads)] if reads else []
        for number in range(len(node.over)):
            if number not in reads:
                piece = self._filtered(node, number)
                side = c.literal(number, ByteType())
                rows.append(c.project(self._beside(node, [number], side, piece.diff), piece.plan))
        frame = c.frame(rows[0] if len(rows) == 1 else c.union(rows)).coalesce(1)
        own = self._own(node)
        stage = paths.JoinInputs(
            self.job,
            self._stage(node, takes=len(rows)),
            spark_to_arrow_schema(nullable(frame.schema)),
            spark_to_arrow_schema(struct),
            tuple(side.names for side in node.sides),
            self._steps(node),
            own,
            tuple(wanted),
        )
        return self._through(frame, stage, struct)

    def _beside(self, node: InnerJoin, numbers: Sequence[int], side: Any, diff: Any) -> list[Any]:
        """Side, `_diff`, and the columns of all inputs; NULL for those of other ones."""
        c = self.catalyst
        values = [side, diff]
        for number, one in enumerate(node.sides):
            values += [
                to_stored(c, value_of(column))
                if number in numbers
                else c.literal(None, stored_type(c.type_of(column)))
                for column in one.columns
            ]
        return [c.named(value, f"c{i}") for i, value in enumerate(values)]

    def _read(self, node: InnerJoin, numbers: Sequence[int]) -> Any:
        """The changes of all inputs that are relations, by one stage; filters choose among them."""
        c = self.catalyst
        side = c.named(c.literal(0, ByteType()), "side")
        diff = c.named(c.literal(0, LongType()), "_diff")
        columns: list[Any] = [side, diff]
        read = []
        for number in numbers:
            one = node.over[number]
            assert isinstance(one, Input)
            names = set(one.columns)
            columns += [a for a in c.output(one.java) if str(a.name()) in names]
            read.append(stages.SideRead(number, one.collection, one.columns, self._first_read(one)))
        struct = self._struct(columns)
        stage = stages.ReadSides(
            self.job,
            self._stage(node, takes=0),
            pa.schema([("n", pa.int64())]),
            spark_to_arrow_schema(struct),
            tuple(read),
        )
        read_rows = self._through(c.spark.range(0, 1, 1, 1), stage, struct)
        plan = self._columns(read_rows, columns, hidden=2)
        e = c.expressions
        conditions = [
            e.Or(
                e.Not(e.EqualTo(side.toAttribute(), c.literal(number, ByteType()))),
                node.sides[number].filtered,
            )
            for number in numbers
            if node.sides[number].filtered is not None
        ]
        condition = together(c, conditions)
        if condition is not None:
            plan = c.filter(condition, plan)
        return c.project(self._beside(node, numbers, side.toAttribute(), diff.toAttribute()), plan)

    def _filtered(self, node: InnerJoin, number: int) -> Piece:
        """The changes of an input that a join has to look at."""
        over = node.over[number]
        reduced = any(
            hop.arrangement.results is not None
            for path in node.paths
            for hop in path
            if hop.target == number
        )
        return self._changes(over, reduced, node.sides[number].filtered)

    def _changes(self, node: Node, reduced: bool, condition: Any | None) -> Piece:
        """The changes of an operator for which a condition holds; of a reduction, its results."""
        if reduced and isinstance(node, Accumulate):
            piece = self._accumulate(node, raw=True)
        else:
            piece = self._build(node)
        if condition is None:
            return piece
        return Piece(self.catalyst.filter(condition, piece.plan), piece.diff)

    # Inner joins whose rows are exchanged.

    def _exchanged(
        self,
        node: InnerJoin,
        wanted: Sequence[tuple[int, int]],
        struct: StructType,
        partitions: int,
    ) -> DataFrame:
        """A stage for each step of each path. In a fill, all rows meet on the last one."""
        own = self._own(node)
        steps = self._steps(node)
        last = len(steps) - 1
        followed = [last] if self.fill else list(range(len(steps)))
        uses = [
            sum(1 for path in followed if path >= number) + sum(1 for n, _ in own if n == number)
            for number in range(len(node.over))
        ]
        deltas = [self._delta(node, number, uses[number] > 1) for number in range(len(node.over))]
        found = [
            self._followed(node, number, steps[number], deltas, wanted, partitions)
            for number in followed
        ]
        for number, state in own:
            frame = deltas[number]
            names = node.sides[number].names
            by = [frame.columns[names.index(name)] for name in state.key if name in names]
            frame = frame.repartition(partitions if by else 1, *by)
            stage = paths.Keep(
                self.job,
                self._stage(node, takes=0),
                spark_to_arrow_schema(nullable(frame.schema)),
                spark_to_arrow_schema(struct),
                state,
                names,
            )
            found.append(self._through(frame, stage, struct))
        together_ = found[0]
        for one in found[1:]:
            together_ = together_.union(one)
        return together_

    def _delta(self, node: InnerJoin, number: int, several: bool) -> DataFrame:
        """The columns of an input and `_diff`; what is used several times is computed once."""
        c = self.catalyst
        piece = self._filtered(node, number)
        columns = [to_stored(c, value_of(one)) for one in node.sides[number].columns]
        named = [c.named(one, f"i{number}_{place}") for place, one in enumerate(columns)]
        frame = c.frame(c.project([*named, c.named(piece.diff, "d")], piece.plan))
        if several:
            frame = frame.persist()
            self.persisted.append(frame)
        return frame

    def _followed(
        self,
        node: InnerJoin,
        number: int,
        path: Sequence[paths.Step],
        deltas: Sequence[DataFrame],
        wanted: Sequence[tuple[int, int]],
        partitions: int,
    ) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        def nothing(like: DataFrame) -> list[Any]:
            fields = [field for field in like.schema if field.name != "d"]
            return [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]

        frame = deltas[number]
        for step in path:
            target = deltas[step.target]
            mine, theirs = frame.columns[:-1], target.columns[:-1]
            names = node.sides[step.target].names
            by = [f"i{step.source}_{place}" for place in step.keys]
            others = [theirs[place] for place in _key_places(step.state)]
            tag = F.lit(0).cast("byte").alias("side")
            keys = [F.col(name).alias(f"k{i}") for i, name in enumerate(by)]
            rows = frame.select(tag, "d", *mine, *nothing(target), *keys)
            if step.target < number:
                tag = F.lit(1).cast("byte").alias("side")
                keys = [F.col(name).alias(f"k{i}") for i, name in enumerate(others)]
                rows = rows.union(target.select(tag, "d", *nothing(frame), *theirs, *keys))
            rows = rows.repartition(partitions if by else 1, *[f"k{i}" for i in range(len(by))])
            rows = rows.select("side", "d", *mine, *theirs)
            fields = {field.name: field for field in rows.schema}
            struct = StructType([fields[name] for name in (*mine, *theirs, "d")])
            stage = paths.HalfJoin(
                self.job,
                self._stage(node),
                spark_to_arrow_schema(nullable(rows.schema)),
                spark_to_arrow_schema(nullable(struct)),
                len(mine),
                tuple(mine.index(name) for name in by),
                step.state,
                names,
            )
            frame = self._through(rows, stage, nullable(struct))
        return frame.select(*[f"i{one}_{place}" for one, place in wanted], "d")

    # Other joins.

    def _join(self, node: Join) -> Piece:
        c = self.catalyst
        left, right = (
            self._changes(one, arranged.results is not None, condition)
            for one, arranged, condition in (
                (node.left, node.left_arranged, node.filtered[0]),
                (node.right, node.right_arranged, node.filtered[1]),
            )
        )
        la, ra = node.left_arranged, node.right_arranged
        frame, given = self._side_by_side(node, left, right)
        states = self._arranged(la), self._arranged(ra)
        everything = [*la.expressions, *ra.expressions]
        residual = node.condition is not None
        if node.kind == joining.INNER or not residual:
            gives = self._joined_columns(node)
            struct = self._struct([*gives, None])
            stage: stages.Stage = stages.JoinSides(
                self.job,
                self._stage(node, takes=2),
                given,
                spark_to_arrow_schema(struct),
                node.kind,
                *states,
            )
            piece = self._output(self._through(frame, stage, struct), gives)
            if residual:
                piece = Piece(c.filter(node.condition, piece.plan), piece.diff)
            return self._as_join(node, piece)
        numbers = [c.named(c.literal(0, LongType()), f"n{i}") for i in range(6)]
        struct = self._struct([*numbers, *everything])
        stage = stages.Candidates(
            self.job,
            self._stage(node, takes=2),
            given,
            spark_to_arrow_schema(struct),
            node.kind,
            *states,
        )
        pairs = self._columns(
            self._through(frame, stage, struct), [*numbers, *everything], hidden=6
        )
        match = c.named(node.condition, "match")
        checked, given = self._given(
            [*(one.toAttribute() for one in numbers), *map(attribute_of, everything), match], pairs
        )
        gives = self._joined_columns(node)
        struct = self._struct([*gives, None])
        stage = stages.Settle(
            self.job,
            self._stage(node),
            given,
            spark_to_arrow_schema(struct),
            node.kind,
            *states,
        )
        return self._as_join(node, self._output(self._through(checked, stage, struct), gives))

    def _joined_columns(self, node: Join) -> list[Any]:
        """The columns that a stage of a join gives, before `_diff`."""
        left, right = node.left_arranged.expressions, node.right_arranged.expressions
        if node.kind in (joining.SEMI, joining.ANTI):
            return list(left)
        if node.kind == joining.EXISTENCE:
            return [*left, self.catalyst.output(node.java)[-1]]
        return [*left, *right]

    def _as_join(self, node: Join, piece: Piece) -> Piece:
        """The columns of the join, for the rows that it is about."""
        c, plan = self.catalyst, piece.plan
        if node.above is not None:
            plan = c.filter(node.above, plan)
        return Piece(c.project([*node.output, piece.diff], plan), piece.diff)

    def _side_by_side(self, node: Join, left: Piece, right: Piece) -> tuple[DataFrame, pa.Schema]:
        """Both changes as one frame: side, `_diff`, columns of the left, columns of the right.

        Of the other side's columns, a row has NULLs. Rows of a key come to one task.
        """
        c = self.catalyst
        la, ra = node.left_arranged, node.right_arranged
        rows = []
        for side, piece, arrangement in ((0, left, la), (1, right, ra)):
            values = [c.literal(side, ByteType()), piece.diff]
            for other, one in ((0, la), (1, ra)):
                values += [
                    to_stored(c, value_of(e))
                    if one is arrangement and other == side
                    else c.literal(None, stored_type(c.type_of(e)))
                    for e in one.expressions
                ]
            if self.partitions is not None:
                # What rows are brought together by: the key of their own side.
                keys = [to_stored(c, value_of(e)) for e in self._key_of(arrangement)]
                values += keys
            named = [c.named(one, f"c{i}") for i, one in enumerate(values)]
            rows.append(c.project(named, piece.plan))
        frame = c.frame(c.union(rows))
        width = 2 + len(la.expressions) + len(ra.expressions)
        if self.partitions is None:
            frame = frame.coalesce(1)
        else:
            keys = frame.columns[width:]
            has_key = la.key != ("_all",)
            frame = frame.repartition(self.partitions if has_key else 1, *keys)
            frame = frame.select(*frame.columns[:width])
        return frame, spark_to_arrow_schema(nullable(frame.schema))

    def _key_of(self, arrangement: Arrangement) -> list[Any]:
        names = arrangement.schema.names
        return [arrangement.expressions[names.index(name)] for name in arrangement.key]


def _key_places(state: Arranged) -> list[int]:
    """The places of key columns among those that are looked up."""
    own = [name for name in state.schema.names if name != EVERYTHING]
    return [own.index(name) for name in state.key if name != EVERYTHING]
