"""Durable collections of updates: sorted parts in a Delta table, consolidated on read."""

from windrow.shard.compact import Compacted
from windrow.shard.merge import Consolidation
from windrow.shard.predicate import Predicate, col
from windrow.shard.read import Read
from windrow.shard.scan import Counters
from windrow.shard.shard import Shard, ShardStats
from windrow.shard.spec import Order, by_columns, by_hash
from windrow.shard.verify import Problem, Verification

__all__ = [
    "Compacted",
    "Consolidation",
    "Counters",
    "Order",
    "Predicate",
    "Problem",
    "Read",
    "Shard",
    "ShardStats",
    "Verification",
    "by_columns",
    "by_hash",
    "col",
]
