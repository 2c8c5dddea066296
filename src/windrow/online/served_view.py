"""A relation of the project as it is served: a row by its key columns, as of the last tick."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.online.served import FORMAT, ServedGroup
from windrow.online.types import schema_of, schema_text
from windrow.storage.names import digest

ROW = "row"  # the form of its records


@dataclass(frozen=True)
class ServedView:
    """A view or a table: its key columns, all others, and the collection that its rows are in.

    A view that is rebuilt has another collection, so it is another one here.
    """

    name: str
    kind: str  # view or table
    collection: str
    keys: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]  # as requests give them: integers are int64
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    form = ROW
    max_staleness = None
    refuses_stale = False

    @property
    def sources(self) -> tuple[str, ...]:
        """What positions are counted of."""
        return (self.collection,)

    @functools.cached_property
    def digest(self) -> int:
        """Tells definitions apart, in every record."""
        return int(digest(FORMAT, self.to_json())[:15], 16)

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored; `from_json` reads it in any process."""
        return {
            "format": FORMAT,
            "name": self.name,
            "relation": self.kind,
            "collection": self.collection,
            "keys": schema_text(list(zip(self.keys, self.key_types, strict=True))),
            "columns": schema_text(list(zip(self.names, self.types, strict=True))),
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> ServedView:
        keys, columns = schema_of(found["keys"]), schema_of(found["columns"])
        return ServedView(
            found["name"],
            found["relation"],
            found["collection"],
            tuple(keys.names),
            tuple(keys.types),
            tuple(columns.names),
            tuple(columns.types),
        )


Servable = ServedGroup | ServedView


def served_of(found: Mapping[str, Any]) -> Servable:
    """What a generation serves, of its JSON."""
    return ServedView.from_json(found) if is_view(found) else ServedGroup.from_json(found)


def is_view(found: Mapping[str, Any]) -> bool:
    """Whether it is a view or table, not a group."""
    return "relation" in found
