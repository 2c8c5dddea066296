"""Rolling forward: the batches that only the history names become part of their shard's log.

A commit to a shard's log takes ten times as long as a record of the history, and a tick appends to
many shards. So batches wait, and all that wait for a shard go into its log in one commit. The log's
upper tells which ones are there: it moves from the end of one batch to the end of a later one, by
compare-and-append. So it does not matter who rolls forward, how often, or where it was killed; what
the history knows of it is a hint that may lag.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.errors import CommitConflictError, UpperMismatchError
from windrow.shard.chain import LOG_FOLDER, entry_name
from windrow.shard.log import Log
from windrow.storage.durable import sync
from windrow.views.history.state import Batch, Entry

ROLL_AFTER = 16  # batches that may wait
ROLLS_PER_COMMIT = 2  # shards that a commit rolls forward, so that none of them takes long
_ATTEMPTS = 100


def waiting(log: Log, entry: Entry) -> list[Batch]:
    """The batches that are not in the log."""
    return [batch for batch in entry.pending if batch.upper > log.upper]


def roll_forward(log: Log, entry: Entry) -> bool:
    """Append to a shard's log what waits for it; False if nothing does."""
    for _ in range(_ATTEMPTS):
        batches = waiting(log, entry)
        if not batches:
            return False
        files = [file for batch in batches for file in batch.files]
        last = batches[-1]
        before = log.version
        try:
            log.append(files, log.upper, last.upper, f"history-{last.version}")
        except UpperMismatchError:
            continue  # another process rolled some of it forward; what it left is next
        sync_log(log, before)
        return True
    raise CommitConflictError(
        f"{log.store.uri}: {_ATTEMPTS} attempts to roll forward lost to other processes. Nothing "
        "is lost; it is done again after the next commit"
    )


def sync_log(log: Log, version: int) -> None:
    """Bring the log's entries after `version` to disk, before the history relies on them."""
    names = [f"{LOG_FOLDER}/{entry_name(v)}" for v in range(version + 1, log.version + 1)]
    sync((log.store, name) for name in names)


def most_waiting(entries: Mapping[str, Entry], after: int) -> list[str]:
    """The few collections with most batches that wait, if those are more than `after`."""
    many = [id for id, entry in entries.items() if len(entry.pending) > after]
    many.sort(key=lambda id: len(entries[id].pending), reverse=True)
    return many[:ROLLS_PER_COMMIT]
