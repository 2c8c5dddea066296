"""How a pass is computed by Spark's tasks: merge, broadcast, tiles."""
