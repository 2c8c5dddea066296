"""What a shard is made of: its row schema, its key, and the order its updates are stored in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import OptionError, SchemaError, unknown_column
from windrow.rows.hashing import hash_keys, hash_rows
from windrow.rows.ordering import check_orderable, coarse, is_lossless
from windrow.rows.types import (
    canonical_schema,
    has_type,
    is_nested,
    only_update_columns,
    single_chunk,
)
from windrow.spark.schemas import quoted
from windrow.updates import UPDATE_FIELDS

PREFIX = "_prefix"
HASH = "_hash"
FORMAT_VERSION = 1
STATISTICS_COLUMNS = 32  # of a row's own, as Delta does by default


@dataclass(frozen=True)
class Order:
    """The order of a shard's updates. Make one with `by_hash` or `by_columns`."""

    kind: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = ", ".join(self.columns)
        if self.kind == "hash":
            return f"hash of the key{', then ' + names if names else ''}"
        return f"columns {names}"


def by_hash(*then: str) -> Order:
    """Updates are sorted by the hash of their key, then by the columns `then`.

    The order for looking things up by key, and for spreading keys evenly over tasks.
    """
    return Order("hash", then)


def by_columns(*columns: str) -> Order:
    """Updates are sorted by `columns` in their natural order (NULL first, NaN last).

    The order for reading ranges of the first column.
    """
    return Order("natural", columns)


@dataclass(frozen=True)
class ShardSpec:
    """Row schema (canonical), key columns and order; everything a task needs to sort rows.

    Updates are stored sorted by these words, each an int64:

        _prefix | one word per order column | _hash | _time

    `_prefix` is the key's hash, or the coarse encoding of the first order column. `_hash` is the
    hash of the whole row, which brings equal rows together.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    order: Order

    @staticmethod
    def make(schema: pa.Schema, key: Sequence[str], order: Order) -> ShardSpec:
        if not len(schema):
            raise SchemaError("a shard needs at least one column")
        only_update_columns(schema.names)
        schema = canonical_schema(schema)
        for name in (*key, *order.columns):
            if name not in schema.names:
                raise unknown_column(name, schema.names, "shard")
        for names, what in ((key, "key"), (order.columns, "order")):
            if len(set(names)) < len(names):
                raise OptionError(f"a {what} column is named twice: {list(names)}")
        if order.kind == "hash" and not key:
            raise OptionError(
                "a shard in hash order needs key columns; or order it by_columns(...)"
            )
        if order.kind == "natural" and not order.columns:
            raise OptionError("by_columns() needs at least one column")
        for name in key:
            if has_type(schema.field(name).type, pa.types.is_map):
                raise SchemaError(f"key column {name!r}: a map cannot be a key; use its entries")
        for name in order.columns:
            check_orderable(schema.field(name))
        return ShardSpec(schema, tuple(key), order)

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of a part: the row's own, `_time`, `_diff`, `_prefix`, `_hash`."""
        extra = [pa.field(PREFIX, pa.int64()), pa.field(HASH, pa.int64())]
        return pa.schema([*self.schema, *UPDATE_FIELDS, *extra])

    @property
    def statistics_columns(self) -> list[str]:
        """The columns whose bounds and null counts the log holds for each part."""
        scalars = [f.name for f in self.schema if not is_nested(f.type)]
        return [*(f.name for f in UPDATE_FIELDS), PREFIX, *scalars[:STATISTICS_COLUMNS]]

    @property
    def prefix_columns(self) -> tuple[str, ...]:
        """The columns that `_prefix` is computed from."""
        return self.key if self.order.kind == "hash" else self.order.columns[:1]

    def prefix(self, table: pa.Table) -> np.ndarray:
        columns = [single_chunk(table.column(name)) for name in self.prefix_columns]
        return hash_keys(columns) if self.order.kind == "hash" else coarse(columns[0])

    def row_hash(self, table: pa.Table) -> np.ndarray:
        return hash_rows([single_chunk(table.column(name)) for name in self.schema.names])

    @property
    def minor_column(self) -> str | None:
        """A column whose coarse encoding never decreases among updates of one `_prefix`.

        It lets a prefix with very many updates be cut further; None if there is no such column.
        """
        rest = self.order.columns
        if self.order.kind == "natural":
            if not is_lossless(self.schema.field(rest[0]).type):
                return None
            rest = rest[1:]
        return rest[0] if rest else HASH

    def minor(self, table: pa.Table) -> np.ndarray:
        assert self.minor_column is not None
        return coarse(single_chunk(table.column(self.minor_column)))

    def check_columns(self, columns: Iterable[str], where: str) -> tuple[str, ...]:
        names = tuple(columns)
        known = set(self.schema.names)
        for name in names:
            if name not in known:
                raise unknown_column(name, self.schema.names, where)
        return names

    def to_properties(self) -> dict[str, str]:
        """Table properties that, with the Delta schema, make the spec again."""
        # delta-rs stops looking for named columns at the first struct that is not named.
        structs = [f.name for f in self.schema if pa.types.is_struct(f.type)]
        known = [*self.statistics_columns, *structs]
        return {
            "windrow.format": str(FORMAT_VERSION),
            "windrow.key": json.dumps(self.key),
            "windrow.order": json.dumps([self.order.kind, *self.order.columns]),
            # By default Delta looks at the first columns, and `_time` and `_prefix` come last. All
            # columns would do too, but then each commit reads statistics of thousands of them.
            "delta.dataSkippingStatsColumns": ",".join(map(quoted, known)),
        }

    @staticmethod
    def from_properties(stored: pa.Schema, properties: dict[str, str]) -> ShardSpec:
        kind, *columns = json.loads(properties["windrow.order"])
        rows = pa.schema([f for f in stored if f.name not in ("_time", "_diff", PREFIX, HASH)])
        return ShardSpec(
            canonical_schema(rows),
            tuple(json.loads(properties["windrow.key"])),
            Order(kind, tuple(columns)),
        )
