"""The naive truth about updates: Python lists and dictionaries, small and obviously right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def canonical(value: Any) -> Any:
    """A hashable stand-in for a value: equal exactly where Spark's GROUP BY says so."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return ("struct", *((name, canonical(item)) for name, item in sorted(value.items())))
    if isinstance(value, list):
        return ("list", *(canonical(item) for item in value))
    return value


def canonical_map(value: Any) -> Any:
    """Maps come as lists of pairs; their order does not count."""
    return ("map", frozenset((canonical(k), canonical(v)) for k, v in value))


def canonical_row(row: dict[str, Any], schema: pa.Schema) -> Row:
    return tuple(
        canonical_map(row[f.name])
        if pa.types.is_map(f.type) and row[f.name] is not None
        else canonical(row[f.name])
        for f in schema
    )


@dataclass
class Oracle:
    """Every update ever appended, in a list."""

    schema: pa.Schema
    updates: list[tuple[dict[str, Any], int, int]] = field(default_factory=list)
    since: int = 0

    def append(self, rows: Iterable[tuple[dict[str, Any], int, int]]) -> None:
        self.updates += rows

    def snapshot(
        self,
        as_of: int,
        where: Callable[[dict[str, Any]], bool] = lambda row: True,
        columns: list[str] | None = None,
    ) -> Counter[Row]:
        """Multiplicity of each (projected) row at `as_of`."""
        schema = self._projected(columns)
        found: Counter[Row] = Counter()
        for row, time, diff in self.updates:
            if time <= as_of and where(row):
                found[canonical_row(row, schema)] += diff
        return Counter({row: count for row, count in found.items() if count})

    def changes(
        self,
        lower: int,
        upper: int,
        where: Callable[[dict[str, Any]], bool] = lambda row: True,
        columns: list[str] | None = None,
    ) -> Counter[Row]:
        """Sum of diffs of each (projected row, time); history before `since` stands at `since`."""
        schema = self._projected(columns)
        found: Counter[Row] = Counter()
        for row, time, diff in self.updates:
            time = max(time, self.since)
            if lower <= time < upper and where(row):
                found[(*canonical_row(row, schema), time)] += diff
        return Counter({row: count for row, count in found.items() if count})

    def _projected(self, columns: list[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        return pa.schema([self.schema.field(name) for name in columns])


def count_updates(table: pa.Table, *, with_time: bool) -> Counter[Row]:
    """What a read returned, in the oracle's terms."""
    schema = pa.schema([f for f in table.schema if f.name not in ("_time", "_diff")])
    found: Counter[Row] = Counter()
    for row in table.to_pylist():
        key = canonical_row(row, schema)
        found[(*key, row["_time"]) if with_time else key] += row["_diff"]
    return Counter({row: count for row, count in found.items() if count})
