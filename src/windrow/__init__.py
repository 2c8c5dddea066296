"""Windrow keeps aggregates true as data changes."""

from windrow import agg, errors, updates
from windrow.algebra.windows import default_hops
from windrow.features.definitions import GroupBy, Join, Queries
from windrow.project import Project
from windrow.shard import Consolidation, Shard, by_columns, by_hash, col
from windrow.sources.definitions import EntitySource, EventSource, PreAggregatedSource

__version__ = "0.1.0"

__all__ = [
    "Consolidation",
    "EntitySource",
    "EventSource",
    "GroupBy",
    "Join",
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
