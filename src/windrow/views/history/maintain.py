"""Maintenance of a collection: forget old history, merge runs.

It works on a handle of its own on the shard's log, beside readers and writers. What it did is then
recorded in the history, so that others read the log again; parts that it replaced are deleted
later, by `sweep`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.shard import holds
from windrow.shard.compact import FANOUT, Compacted, choose, compact
from windrow.shard.log import Log
from windrow.shard.part import PART_BYTES
from windrow.storage.durable import sync
from windrow.storage.store import Store
from windrow.time import DAY, now_millis
from windrow.views.history.collections import collection_store
from windrow.views.history.roll_forward import roll_forward, sync_log
from windrow.views.history.state import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETAIN = "retain"  # the fact that says how much history a collection keeps
LATEST_ONLY, WITH_HISTORY = "latest", "history"
HISTORY_KEPT = 7 * DAY


def open_rolled(root: Store, id: str, entry: Entry) -> Log:
    """The log of a collection's shard, with all that the history has appended to it."""
    log = Log.open(collection_store(root, id))
    roll_forward(log, entry)
    return log


def oldest_kept(facts: Mapping[str, Any], ticked: int, kept: int) -> int:
    """The time from which on the history of a collection is needed.

    Never beyond the time that the views are at: a tick reads what was there then.
    """
    if facts.get(RETAIN, WITH_HISTORY) == LATEST_ONLY:
        return ticked
    return min(ticked, now_millis() - kept)


def tidy(log: Log, oldest: int, spark: SparkSession | None) -> Compacted:
    """Forget what is before `oldest`, and merge runs that have become many.

    Forgetting takes commits of its own, and gains nothing unless runs are merged.
    """
    if not choose(log.parts(), FANOUT, everything=False):
        return Compacted()
    before, known = log.version, {part.path for part in log.parts()}
    oldest = min(oldest, log.upper - 1)
    if oldest > log.since:
        holds.advance_since(log, oldest)
    done = compact(log, everything=False, fanout=FANOUT, part_bytes=PART_BYTES, spark=spark)
    sync((log.store, part.path) for part in log.parts() if part.path not in known)
    sync_log(log, before)
    return done
