"""The columns of a group's arrangement, by what they are for: the one place that names them.

k0, k1, ...   keys                       v0, v1, ...   inputs of aggregations
__time        the row's own time, ms     w0, w1, ...   where conditions hold
__known_at    when the update became known, ms: only if rows change, or become known late
__source      the number of its source: only if there are several, and rows change
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.rows.types import single_chunk
from windrow.shard.spec import by_hash
from windrow.sources.columns import KNOWN_AT

EVENT_TIME = "__time"
SOURCE = "__source"
EVENT_ORDER = by_hash(EVENT_TIME)


def key_type(type_: pa.DataType) -> pa.DataType:
    """Integers of any width are one kind of key, and so are floats."""
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else type_


def key_names(count: int) -> list[str]:
    """The columns of a key of `count` columns."""
    return [f"k{i}" for i in range(count)]


def positional(keys: pa.Table) -> pa.Table:
    """A table of keys, whatever its columns are called, under the names of an arrangement."""
    return keys.rename_columns(key_names(keys.num_columns))


@dataclass(frozen=True)
class Layout:
    """Which columns a group reads: key types, inputs with their types, conditions.

    `changing`: rows are retracted, or become known late. `several`: so they do in several sources.
    """

    key_types: tuple[pa.DataType, ...]
    inputs: tuple[str, ...]
    input_types: tuple[pa.DataType, ...]
    conditions: tuple[str, ...]
    changing: bool
    several: bool = False

    @property
    def keys(self) -> list[str]:
        return key_names(len(self.key_types))

    @property
    def values(self) -> list[str]:
        return [f"v{i}" for i in range(len(self.inputs))]

    @property
    def masks(self) -> list[str]:
        return [f"w{i}" for i in range(len(self.conditions))]

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row of the arrangement."""
        fields = [pa.field(n, t) for n, t in zip(self.keys, self.key_types, strict=True)]
        fields.append(pa.field(EVENT_TIME, pa.int64()))
        fields += [pa.field(n, t) for n, t in zip(self.values, self.input_types, strict=True)]
        fields += [pa.field(name, pa.bool_()) for name in self.masks]
        if self.changing:
            fields.append(pa.field(KNOWN_AT, pa.int64()))
        if self.several:
            fields.append(pa.field(SOURCE, pa.int64()))  # equal rows of two sources are two rows
        return pa.schema(fields)

    @property
    def input_schema(self) -> pa.Schema:
        """The inputs under the names that the group gives them."""
        return pa.schema(list(zip(self.inputs, self.input_types, strict=True)))

    def input_table(self, rows: pa.Table) -> pa.Table:
        return rows.select(self.values).rename_columns(list(self.inputs))

    def condition_masks(self, rows: pa.Table) -> Mapping[str, np.ndarray]:
        """Where each condition is true; NULL is not."""
        return {
            text: condition_mask(rows, name)
            for text, name in zip(self.conditions, self.masks, strict=True)
        }


def condition_mask(table: pa.Table, name: str) -> np.ndarray:
    """Where a condition is true; NULL is not."""
    mask: Any = pc.fill_null(single_chunk(table.column(name)), False)
    found: np.ndarray = mask.to_numpy(zero_copy_only=False)
    return found
