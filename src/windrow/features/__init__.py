"""Features, point in time: definitions, and the backfill on Spark."""
