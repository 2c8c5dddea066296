"""What can be asked for, as JSON: names, and the keys and features of one."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from windrow.online.fetched import Description


class Column(msgspec.Struct):
    """A column of keys, or an input, with its type as Arrow writes it."""

    name: str
    type: str


class Feature(msgspec.Struct, omit_defaults=True):
    """A feature with its type, and the group it is of."""

    name: str
    type: str
    group: str = ""


class Shown(msgspec.Struct):
    """A description. `max_staleness` is in milliseconds, null if values never count as stale."""

    name: str
    version: str
    keys: list[Column]
    inputs: list[Column]
    features: list[Feature]
    max_staleness: int | None


class Listed(msgspec.Struct):
    """The names that can be fetched."""

    names: list[str]


def listed(names: list[str]) -> Listed:
    """In order."""
    return Listed(sorted(names))


def shown(description: Description) -> Shown:
    """For a client."""
    groups = description.groups
    return Shown(
        description.name,
        description.version,
        _columns(description.keys),
        _columns(description.inputs),
        [Feature(name, str(type), groups.get(name, "")) for name, type in description.features],
        description.max_staleness,
    )


def _columns(given: tuple[tuple[str, pa.DataType], ...]) -> list[Column]:
    return [Column(name, str(type)) for name, type in given]
