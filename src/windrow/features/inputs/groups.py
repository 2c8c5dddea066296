"""Arranging: the rows of a group's sources become a shard, sorted by the hash of the key and time.

An arrangement holds what one group needs of its sources: the keys, the row's time in
milliseconds, the columns that aggregations read, and where their conditions hold. It is named by
what it contains, so that it is built once and used by every backfill that needs the same.

    k0, k1, ...   keys                       v0, v1, ...   inputs of aggregations
    __time        the row's own time, ms     w0, w1, ...   where conditions hold
    __moment      when it changed, ms: only if a source is of rows that change, or become known
    __source      the number of its source: only if there are several, and rows change

Rows of a log are added once. A row that changes is taken away (`_diff` -1) and added again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import DefinitionError, SchemaError
from windrow.features.compute.lifetimes import ALWAYS
from windrow.features.compute.types import feature_type
from windrow.features.definitions import GroupBy, JoinedGroup
from windrow.rows.types import canonical_schema, single_chunk
from windrow.shard.spec import by_hash
from windrow.sources.columns import Form, Taken
from windrow.sources.definitions import EntitySource, EventSource, Source
from windrow.sources.pieces import Piece, bind_source
from windrow.sources.tables import require_columns
from windrow.sources.times import check_time_type
from windrow.spark.session import Engine
from windrow.storage.names import digest
from windrow.updates import DIFF

if TYPE_CHECKING:
    pass

EVENT_TIME = "__time"
MOMENT = "__moment"
SOURCE = "__source"
EVENT_ORDER = by_hash(EVENT_TIME)


def key_type(type_: pa.DataType) -> pa.DataType:
    """Integers of any width are one kind of key, and so are floats."""
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else type_


@dataclass(frozen=True)
class GroupInputs:
    """What a group reads of its sources, once bound to their columns.

    `schema` is that of the arrangement; `pieces` are the tables its rows come from.
    """

    group: GroupBy
    schema: pa.Schema
    inputs: tuple[str, ...]
    conditions: tuple[str, ...]
    pieces: tuple[Piece, ...]

    @staticmethod
    def bind(group: GroupBy, engine: Engine, options: dict[str, str] | None = None) -> GroupInputs:
        """Check the group against its tables' columns and types."""
        inputs = _input_columns(group)
        conditions = tuple(
            dict.fromkeys(a.condition for a in group.aggregations if a.condition is not None)
        )
        changing = any(_changes(source) for source in group.sources)
        schema: pa.Schema | None = None
        pieces: list[Piece] = []
        for source in group.sources:
            for piece in bind_source(engine, source, options):
                found = _schema(group, source, piece.table.schema, inputs, conditions, changing)
                if schema is not None and found != schema:
                    raise _differ(group, source, found, schema)
                schema = found
                for text in conditions:
                    _check_condition(group, piece, text)
                columns = _columns(group, source, piece, found, inputs, conditions)
                pieces.append(piece.taking(columns, _times(columns), engine))
        assert schema is not None
        return GroupInputs(group, schema, inputs, conditions, tuple(pieces))

    @property
    def key_names(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.group.keys))]

    @property
    def changing(self) -> bool:
        """Whether rows come and go, or become known late."""
        return MOMENT in self.schema.names

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The moments of snapshots, at which the state is known as a whole."""
        return tuple(sorted({m for piece in self.pieces for m in piece.replaced}))

    @property
    def matched(self) -> bool:
        """Whether rows are taken away, and have to be matched with those that came."""
        return any(piece.sign is not None or piece.replaced for piece in self.pieces)

    @property
    def fingerprint(self) -> str:
        """Names the arrangement by what it contains."""
        parts = [str(self.schema), tuple(self.group.keys), self.inputs, self.conditions]
        parts += [piece.fingerprint for piece in self.pieces]
        return digest(*parts)

    @property
    def name(self) -> str:
        return "-".join([*(s.name for s in self.group.sources), self.fingerprint])


def _check_condition(group: GroupBy, piece: Piece, text: str) -> None:
    """A condition of an aggregation has to be one, over the columns of the source."""
    from pyspark.sql import functions as F  # noqa: N812

    what = f"GroupBy {group.name!r}: where: "
    try:
        found = piece.table.frame.select(F.expr(text).alias("w")).schema["w"].dataType
    except Exception as error:  # Spark's analysis errors have no common small message
        raise SchemaError(what + str(error).strip().splitlines()[0]) from error
    if found.typeName() not in ("boolean", "void"):
        raise SchemaError(f"{what}{text!r} is {found.simpleString()}, not a condition")


def _changes(source: Source) -> bool:
    return isinstance(source, EntitySource) or (
        isinstance(source, EventSource) and source.known is not None
    )


def _schema(
    group: GroupBy,
    source: Source,
    found: pa.Schema,
    inputs: Sequence[str],
    conditions: Sequence[str],
    changing: bool,
) -> pa.Schema:
    """The arrangement's columns for one table, whose columns are `found`."""
    require_columns(found.names, [source.time], f"{source.what}: time")
    require_columns(found.names, list(group.keys), f"GroupBy {group.name!r}: keys")
    check_time_type(found.field(source.time).type, f"{source.what}: time {source.time!r}")
    for name in inputs:
        require_columns(found.names, [name], f"GroupBy {group.name!r}")
    types = canonical_schema(pa.schema([found.field(name) for name in inputs]))
    for aggregation in group.aggregations:
        where = f"GroupBy {group.name!r}: {aggregation.column} {aggregation.label}"
        feature_type(aggregation, types, where)
    keys = canonical_schema(pa.schema([found.field(name) for name in group.keys]))
    moment = [pa.field(MOMENT, pa.int64())] if changing else []
    if changing and len(group.sources) > 1:
        moment.append(pa.field(SOURCE, pa.int64()))  # equal rows of two sources are two rows
    return pa.schema(
        [
            *(pa.field(f"k{i}", key_type(f.type)) for i, f in enumerate(keys)),
            pa.field(EVENT_TIME, pa.int64()),
            *(pa.field(f"v{i}", f.type) for i, f in enumerate(types)),
            *(pa.field(f"w{i}", pa.bool_()) for i in range(len(conditions))),
            *moment,
        ]
    )


def _differ(group: GroupBy, source: Source, found: pa.Schema, first: pa.Schema) -> SchemaError:
    names = [*group.keys, source.time, *_input_columns(group)]
    for name, a, b in zip(names, found, first, strict=False):
        if a.type != b.type:
            return SchemaError(
                f"GroupBy {group.name!r}: column {name!r} is {a.type} in {source.what} and "
                f"{b.type} in another source; cast one of them in select"
            )
    return SchemaError(f"GroupBy {group.name!r}: its sources have different columns")


def _columns(
    group: GroupBy,
    source: Source,
    piece: Piece,
    schema: pa.Schema,
    inputs: Sequence[str],
    conditions: Sequence[str],
) -> tuple[Taken, ...]:
    """How the arrangement's columns are made from a piece's table."""
    sources = [*group.keys, source.time, *inputs, *conditions]
    forms = [Form.PLAIN] * len(group.keys) + [Form.MILLIS] + [Form.PLAIN] * len(inputs)
    forms += [Form.SQL] * len(conditions)
    columns = [
        Taken(f.name, name, f.type, form)
        for f, name, form in zip(schema, sources, forms, strict=False)
    ]
    if MOMENT in schema.names:
        if piece.moment is not None:
            columns.append(Taken(MOMENT, piece.moment, pa.int64(), Form.MILLIS))
        else:
            columns.append(Taken(MOMENT, "", pa.int64(), Form.CONSTANT, ALWAYS))
    if SOURCE in schema.names:
        number = group.sources.index(source)
        columns.append(Taken(SOURCE, "", pa.int64(), Form.CONSTANT, number))
    if piece.sign is not None:
        columns.append(Taken(DIFF, piece.sign[0], pa.int64(), piece.sign[1]))
    return tuple(columns)


def _times(columns: Sequence[Taken]) -> tuple[str, ...]:
    """Columns that no row may be without."""
    return tuple(c.name for c in columns if c.form is Form.MILLIS)


def _input_columns(group: GroupBy) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for aggregation in group.aggregations:
        names[aggregation.column] = None
        if aggregation.bucket is not None:
            names[aggregation.bucket] = None
    return tuple(names)


def condition_mask(table: pa.Table, name: str) -> np.ndarray:
    """Where a condition is true; NULL is not."""
    mask: Any = pc.fill_null(single_chunk(table.column(name)), False)
    found: np.ndarray = mask.to_numpy(zero_copy_only=False)
    return found


def check_keys(group: JoinedGroup, left: pa.Schema, events: pa.Schema) -> None:
    """Keys on both sides have to be of one kind, or nothing would ever match."""
    for i, (key, name) in enumerate(zip(group.group.keys, group.left_keys, strict=True)):
        if name not in left.names:
            raise DefinitionError(
                f"GroupBy {group.group.name!r}: key {key!r} is joined on the left column {name!r}, "
                f"which is not there; left columns: {left.names}. Use .on({key}='...')"
            )
        found, wanted = key_type(left.field(name).type), events.field(f"k{i}").type
        if found != wanted:
            raise DefinitionError(
                f"GroupBy {group.group.name!r}: key {key!r} is {wanted}, the left column {name!r} "
                f"is {left.field(name).type}; cast one of them in select"
            )
