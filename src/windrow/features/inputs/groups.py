"""A group bound to its sources: what its arrangement holds, and how its columns are made.

An arrangement holds what one group needs of its sources: the keys, the row's time in
milliseconds, the columns that aggregations read, and where their conditions hold. Rows of a log
are inserted once. A row that changes is retracted (`_diff` -1) and inserted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from windrow.arrangements.content import Content
from windrow.errors import DefinitionError, SchemaError
from windrow.features.compute.lifetimes import ALWAYS
from windrow.features.compute.types import feature_type
from windrow.features.definitions import GroupBy, JoinedGroup
from windrow.features.inputs.layout import EVENT_ORDER, SOURCE, Layout, key_type
from windrow.rows.types import canonical_schema
from windrow.shard.shard import Shard
from windrow.sources.columns import KNOWN_AT, Form, Taken
from windrow.sources.definitions import EntitySource, EventSource, Source
from windrow.sources.expressions import check_by_row
from windrow.sources.pieces import Piece, bind_source
from windrow.sources.tables import require_columns
from windrow.sources.times import check_time_type
from windrow.spark.session import Engine
from windrow.updates import DIFF

_LONGEST_TITLE = 100  # a folder is called after it


@dataclass(frozen=True)
class GroupInputs:
    """What a group reads of its sources, once bound to their columns.

    `content` is what its arrangement holds. With `shard`, the source is a shard by the group's own
    keys: its rows are read as they are, and nothing is arranged.
    """

    group: GroupBy
    layout: Layout
    content: Content
    shard: Shard | None = None

    @staticmethod
    def bind(group: GroupBy, engine: Engine, options: dict[str, str] | None = None) -> GroupInputs:
        """Check the group against its tables' columns and types."""
        conditions = tuple(
            dict.fromkeys(a.condition for a in group.aggregations if a.condition is not None)
        )
        layout: Layout | None = None
        pieces: list[Piece] = []
        for source in group.sources:
            for piece in bind_source(engine, source, options):
                found = _layout(group, source, piece.table.schema, conditions)
                if layout is not None and found != layout:
                    raise _differ(group, source, found, layout)
                layout = found
                _check_keys(group, piece)
                for text in conditions:
                    _check_condition(group, piece, text)
                columns = _columns(group, source, piece, found)
                pieces.append(piece.taking(columns, _times(columns), engine))
        assert layout is not None
        title = "-".join(source.name for source in group.sources)[:_LONGEST_TITLE]
        content = Content(title, tuple(pieces), layout.schema, tuple(layout.keys), EVENT_ORDER)
        return GroupInputs(group, layout, content, _shard_by_keys(group, layout, pieces))

    @property
    def name(self) -> str:
        return self.content.name


def _shard_by_keys(group: GroupBy, layout: Layout, pieces: Sequence[Piece]) -> Shard | None:
    """The shard whose rows can be read as they are: it is by the group's keys, hashed alike."""
    (source, *others) = group.sources
    shard = pieces[0].shard
    if shard is None or others or layout.conditions or source.selected or source.where:
        return None
    if pieces[0].streamed:  # its rows are those of a table, and not updates
        return None
    types = tuple(shard.schema.field(name).type for name in group.keys)
    if shard.key != tuple(group.keys) or shard.order.kind != "hash" or types != layout.key_types:
        return None
    # Rows without a time are quarantined when they are arranged.
    return shard if shard.has_no_null(source.time) else None


def _check_keys(group: GroupBy, piece: Piece) -> None:
    """Rows of a file without a key column would belong to no key, and be lost in silence."""
    for name in group.keys:
        found = piece.table.files_without(name)
        if found:
            more = f" and {len(found) - 1} more files" if len(found) > 1 else ""
            raise SchemaError(
                f"GroupBy {group.name!r}: keys: there is no column {name!r} in {found[0]}{more}; "
                "such rows would count for no key. Rewrite them, take them out of the folder, or "
                f"say what the key is in select, for example coalesce({name}, 0)"
            )


def _check_condition(group: GroupBy, piece: Piece, text: str) -> None:
    """A condition of an aggregation has to be one, over the columns of the source."""
    from pyspark.sql import functions as F  # noqa: N812

    what = f"GroupBy {group.name!r}: where: "
    piece.table.check_sql()
    check_by_row(piece.table.frame, [text], f"GroupBy {group.name!r}: where")
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


def _layout(group: GroupBy, source: Source, found: pa.Schema, conditions: Sequence[str]) -> Layout:
    """The arrangement's columns for one table, whose columns are `found`."""
    inputs = _input_columns(group)
    require_columns(found.names, [source.time], f"{source.what}: time")
    require_columns(found.names, list(group.keys), f"GroupBy {group.name!r}: keys")
    check_time_type(found.field(source.time).type, f"{source.what}: time {source.time!r}")
    for name in inputs:
        require_columns(found.names, [name], f"GroupBy {group.name!r}")
    types = canonical_schema(pa.schema([found.field(name) for name in inputs]))
    for aggregation in group.aggregations:
        where = f"GroupBy {group.name!r}: {aggregation.column} {aggregation.function.label}"
        feature_type(aggregation, types, where)
    keys = canonical_schema(pa.schema([found.field(name) for name in group.keys]))
    changing = any(_changes(one) for one in group.sources)
    return Layout(
        tuple(key_type(field.type) for field in keys),
        inputs,
        tuple(types.types),
        tuple(conditions),
        changing,
        changing and len(group.sources) > 1,
    )


def _differ(group: GroupBy, source: Source, found: Layout, first: Layout) -> SchemaError:
    names = [*group.keys, *found.inputs]
    ours, theirs = ([*layout.key_types, *layout.input_types] for layout in (found, first))
    for name, a, b in zip(names, ours, theirs, strict=False):
        if a != b:
            return SchemaError(
                f"GroupBy {group.name!r}: column {name!r} is {a} in {source.what} and "
                f"{b} in another source; cast one of them in select"
            )
    return SchemaError(f"GroupBy {group.name!r}: its sources have different columns")


def _columns(group: GroupBy, source: Source, piece: Piece, layout: Layout) -> tuple[Taken, ...]:
    """How the arrangement's columns are made from a piece's table."""
    sources = [*group.keys, source.time, *layout.inputs, *layout.conditions]
    forms = [Form.PLAIN] * len(group.keys) + [Form.MILLIS] + [Form.PLAIN] * len(layout.inputs)
    forms += [Form.SQL] * len(layout.conditions)
    columns = [
        Taken(f.name, name, f.type, form)
        for f, name, form in zip(layout.schema, sources, forms, strict=False)
    ]
    if layout.changing:
        if piece.known_at is not None:
            columns.append(Taken(KNOWN_AT, piece.known_at, pa.int64(), Form.MILLIS))
        else:
            columns.append(Taken(KNOWN_AT, "", pa.int64(), Form.CONSTANT, ALWAYS))
    if layout.several:
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


def check_keys(group: JoinedGroup, left: pa.Schema, keys: Sequence[pa.DataType]) -> None:
    """Keys on both sides have to be of one kind, or nothing would ever match."""
    for i, (key, name) in enumerate(zip(group.group.keys, group.left_keys, strict=True)):
        if name not in left.names:
            raise DefinitionError(
                f"GroupBy {group.group.name!r}: key {key!r} is joined on the left column {name!r}, "
                f"which is not there; left columns: {left.names}. Use .on({key}='...')"
            )
        found, wanted = key_type(left.field(name).type), keys[i]
        if found != wanted:
            raise DefinitionError(
                f"GroupBy {group.group.name!r}: key {key!r} is {wanted}, the left column {name!r} "
                f"is {left.field(name).type}; cast one of them in select"
            )
