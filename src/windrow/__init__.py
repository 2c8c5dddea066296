"""Windrow keeps aggregates true as data changes."""

from windrow import errors, updates
from windrow.shard import Consolidation, Shard, by_columns, by_hash, col

__version__ = "0.1.0"

__all__ = ["Consolidation", "Shard", "by_columns", "by_hash", "col", "errors", "updates"]
