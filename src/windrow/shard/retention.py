"""How long ago parts were replaced, by the log's own time.

Delta stamps what a commit removes with the clock of whoever commits. A clock that is set back
makes parts that were replaced just now look old, and they would be deleted beneath those who read
them. But entries of a log follow each other: none was made before those in front of it, whatever
its stamp says. So all that was removed after the first entry within the retention is young.
"""

from __future__ import annotations

import time

from windrow.errors import StorageError
from windrow.shard.log import Log
from windrow.shard.part import PartName


def still_young(log: Log, names: set[str], hours: int) -> set[str]:
    """Those of `names`, files that the log does not name, that are younger than they look."""
    if not hours or not names:
        return set()
    now = int(time.time() * 1000)
    commits = log.commits()
    within = [version for version, at, _ in commits if now - hours * 3_600_000 <= at <= now]
    if not within:
        return set()
    young = {name for name in names if _may_be_appended(name, log.upper)}
    for version, _, compacts in commits:
        if compacts and version >= min(within):
            changed = log.added_and_removed(version - 1, version)
            if changed is None:
                return names  # the entry went just now
            young |= changed[1] & names
    return young


def _may_be_appended(name: str, upper: int) -> bool:
    """Whether a part could be that of an append that is running: any other comes too late."""
    try:
        return PartName.parse(name).lower >= upper
    except StorageError:
        return False
