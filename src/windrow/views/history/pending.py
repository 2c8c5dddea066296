"""Parts that only the history names yet: what a task reported of a file, as a part of a shard.

A shard's log gives the same facts from the same statistics, so it does not matter to a reader
whether a part is in the log by now.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from windrow.shard.part import Part, PartName, scalar_columns
from windrow.shard.predicate import Bounds
from windrow.shard.spec import PREFIX
from windrow.spark.tasks import WrittenFile
from windrow.updates import TIME

_KNOWN_PARTS = 16_384


@functools.lru_cache(maxsize=_KNOWN_PARTS)
def part_name(path: str) -> PartName:
    """The facts in a part's name; names are long, and the same ones come again and again."""
    return PartName.parse(path)


def part_of(file: WrittenFile, schema: pa.Schema) -> Part:
    """The part in a file that was written for a shard whose rows have the columns of `schema`."""
    statistics = json.loads(file.statistics)
    low, high = statistics["minValues"], statistics["maxValues"]
    return Part(
        file.path,
        part_name(file.path),
        file.rows,
        file.bytes,
        (low[PREFIX], high[PREFIX]),
        (low[TIME], high[TIME]),
        _StatedBounds(statistics, schema),
    )


def first_time(file: WrittenFile) -> int:
    """The time of the earliest update in a file."""
    return int(json.loads(file.statistics)["minValues"][TIME])


class _StatedBounds(Mapping[str, Bounds]):
    """The bounds of a part's columns, made from Delta's statistics when someone asks for them."""

    __slots__ = ("_names", "_schema", "_statistics")

    def __init__(self, statistics: Mapping[str, Any], schema: pa.Schema) -> None:
        self._statistics, self._schema = statistics, schema
        known = statistics["minValues"].keys() | statistics["nullCount"].keys()
        self._names = [name for name in scalar_columns(schema) if name in known]

    def __getitem__(self, name: str) -> Bounds:
        if name not in self._names:
            raise KeyError(name)
        type_ = self._schema.field(name).type
        return Bounds(
            _value(self._statistics["minValues"].get(name), type_),
            _value(self._statistics["maxValues"].get(name), type_),
            self._statistics["nullCount"].get(name),
            self._statistics["numRecords"],
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _value(stated: Any, type_: pa.DataType) -> Any:
    """A value as Parquet's statistics give it, from Delta's JSON."""
    if stated is None:
        return None
    if pa.types.is_timestamp(type_):
        stamp = dt.datetime.fromisoformat(stated.removesuffix("Z"))
        return stamp if type_.tz is None else stamp.replace(tzinfo=dt.UTC)
    return dt.date.fromisoformat(stated) if pa.types.is_date(type_) else stated
