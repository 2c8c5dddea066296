"""The sizes by which a backfill is planned: one place, read when a decision is made.

Each bounds what a task holds, or says from where on one way is faster than another;
docs/performance.md has the measurements.
"""

SLICE_ROWS = 1_000_000  # events and queries that a task holds; a key is never cut
BATCH_ROWS = 262_144  # of a slice, read and computed at a time: what a processor's cache holds
SMALLEST_SLICE = 50_000  # below that, a slice is not worth a task
SHARES = 4  # of slices, for each task that runs at a time
LARGE_KEY_SLICES = 8  # a key with more events than this many slices is computed by tiles
NUMBERED_SHARES = 64  # of a result that is read by the numbers of its queries, or more
FEW_QUERIES = 50_000  # every task reads and sorts them itself: that costs less than a Spark job
NEARLY_ALL = 0.9  # of the events can count: then filtering the others costs more than it spares
FEW_REQUESTED = 50  # events for each query of a slice, from which on filtering first pays
BROADCAST_QUERIES = 20_000  # a task holds all of them
BROADCAST_RATIO = 100  # events for each query, at least: else arranging pays soon
BROADCAST_SHARES = 4  # of a table, for one task: lifting takes about as long for one as for all
BROADCAST_EVENTS = 500_000  # events of requested keys that a task holds before it lifts them
