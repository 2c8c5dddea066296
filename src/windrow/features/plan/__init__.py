"""The plan of a backfill: every decision, as data."""
