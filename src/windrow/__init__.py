"""Windrow keeps aggregates true as data changes."""

from windrow import agg, errors, updates
from windrow.features.definitions import EventSource, GroupBy, Join, Queries
from windrow.project import Project
from windrow.shard import Consolidation, Shard, by_columns, by_hash, col

__version__ = "0.1.0"

__all__ = [
    "Consolidation",
    "EventSource",
    "GroupBy",
    "Join",
    "Project",
    "Queries",
    "Shard",
    "agg",
    "by_columns",
    "by_hash",
    "col",
    "errors",
    "updates",
]
