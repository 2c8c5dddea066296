"""Parts as the log's add actions tell them.

A shard may have a hundred thousand parts, and a handle sees a new version after each commit. So a
part that is known from an earlier version is kept, and the bounds of columns, which few reads ask
for, stay in Arrow until someone does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.shard.part import Part, PartName, scalar_columns
from windrow.shard.predicate import Bounds
from windrow.shard.spec import PREFIX, ShardSpec
from windrow.updates import TIME


def parts_from_log(actions: pa.Table, spec: ShardSpec, known: Mapping[str, Part]) -> list[Part]:
    """The parts of Delta's table of add actions, in its order.

    `known` are some of them by their paths, from an earlier version.
    """
    paths: list[str] = actions.column("path").to_pylist()
    new = np.flatnonzero([path not in known for path in paths])
    if new.size < len(paths):
        # A copy: bounds refer to their table, and must not keep one of every version alive.
        actions = actions.take(pa.array(new))
    made = iter(_new_parts(actions, spec))
    return [known[path] if path in known else next(made) for path in paths]


def _new_parts(actions: pa.Table, spec: ShardSpec) -> Iterator[Part]:
    # One level only: the column `a.b` and the field `b` of a column `a` stay apart.
    table = actions.flatten()

    def values(name: str) -> list[Any]:
        found: list[Any] = table.column(name).to_pylist()
        return found

    rows = values("num_records")
    statistics = _Statistics(table, scalar_columns(spec.schema), rows)
    columns = zip(
        values("path"),
        rows,
        values("size_bytes"),
        zip(values(f"min.{PREFIX}"), values(f"max.{PREFIX}"), strict=True),
        zip(values(f"min.{TIME}"), values(f"max.{TIME}"), strict=True),
        strict=True,
    )
    for at, (path, count, size, prefix, time) in enumerate(columns):
        bounds = PartBounds(statistics, at)
        yield Part(path, PartName.parse(path), count, size, prefix, time, bounds)


class _Statistics:
    """Bounds and null counts of some parts, column by column."""

    def __init__(self, table: pa.Table, names: list[str], rows: list[int]) -> None:
        present = set(table.column_names)
        self.names = dict.fromkeys(name for name in names if f"min.{name}" in present)
        self._table, self._rows = table, rows
        self._columns: dict[str, list[Bounds]] = {}

    def column(self, name: str) -> list[Bounds]:
        """The bounds of a column in each of the parts."""
        found = self._columns.get(name)
        if found is None:
            low, high, nulls = (self._values(f"{what}.{name}") for what in _WHAT)
            found = [Bounds(*one) for one in zip(low, high, nulls, self._rows, strict=True)]
            self._columns[name] = found
        return found

    def _values(self, name: str) -> list[Any]:
        index = self._table.schema.get_field_index(name)
        if index < 0:
            return [None] * self._table.num_rows
        values: list[Any] = self._table.column(index).to_pylist()
        return values


_WHAT = ("min", "max", "null_count")


class PartBounds(Mapping[str, Bounds]):
    """The bounds of one part's columns. Pickled as a plain dictionary: its own, and no other's."""

    __slots__ = ("_at", "_statistics")

    def __init__(self, statistics: _Statistics, at: int) -> None:
        self._statistics, self._at = statistics, at

    def __getitem__(self, name: str) -> Bounds:
        if name not in self._statistics.names:
            raise KeyError(name)
        return self._statistics.column(name)[self._at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statistics.names)

    def __len__(self) -> int:
        return len(self._statistics.names)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
