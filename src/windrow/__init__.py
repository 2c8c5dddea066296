"""Windrow keeps aggregates true as data changes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow import agg, errors, updates
    from windrow.algebra.windows import default_hops
    from windrow.features.definitions import GroupBy, Join, Queries
    from windrow.project import Project
    from windrow.shard import Consolidation, Shard, by_columns, by_hash, col
    from windrow.sources.definitions import EntitySource, EventSource, PreAggregatedSource
    from windrow.sources.streams import FolderStream, KafkaStream

__version__ = "0.1.0"

__all__ = [
    "Consolidation",
    "EntitySource",
    "EventSource",
    "FolderStream",
    "GroupBy",
    "Join",
    "KafkaStream",
    "PreAggregatedSource",
    "Project",
    "Queries",
    "Shard",
    "agg",
    "by_columns",
    "by_hash",
    "col",
    "default_hops",
    "errors",
    "updates",
]

# Loaded at first use: commands start sooner, and Ctrl-C is handled from the start.
_MODULES = {
    "windrow.algebra.windows": ["default_hops"],
    "windrow.features.definitions": ["GroupBy", "Join", "Queries"],
    "windrow.project": ["Project"],
    "windrow.shard": ["Consolidation", "Shard", "by_columns", "by_hash", "col"],
    "windrow.sources.definitions": ["EntitySource", "EventSource", "PreAggregatedSource"],
    "windrow.sources.streams": ["FolderStream", "KafkaStream"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in __all__:
        return import_module(f"windrow.{name}")
    raise AttributeError(f"module 'windrow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
