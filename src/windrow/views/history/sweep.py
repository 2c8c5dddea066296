"""Sweeping: what is certainly dead is removed.

| what | dead once |
| --- | --- |
| a folder in `collections/` that no record names | its creator's lease has ended, long ago |
| the shard of a dropped collection | it was dropped long ago, and nobody holds it: it is retired |
| files of a shard that neither its log nor the history names | as `Shard.vacuum` says |

*Long ago* is a number of hours, for processes that seem dead and are not. Folders are listed before
leases, and leases are read before the history: a collection that is committed meanwhile is found in
one of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from windrow.errors import ShardNotFoundError, StorageError, StorageUnavailableError
from windrow.shard import holds
from windrow.shard.chain import LOG_FOLDER, entry_name
from windrow.shard.log import Log
from windrow.storage.leases import Found, found_leases, live_leases
from windrow.storage.store import Store
from windrow.views.history.collections import FOLDER, collection_store

CREATES = "creates"  # what a lease is about that keeps a collection which no record names yet
SWEEP_HOURS = 24


def creators(leases: Store) -> dict[str, Found]:
    """The leases of those who create collections, live or not, by collection."""
    found = [lease for lease in found_leases(leases) if CREATES in lease.about]
    return {lease.about[CREATES]: lease for lease in found}


def unnamed(root: Store, leases: Store, hours: float) -> Iterator[str]:
    """Folders whose creator is gone; those of them that the history names are none of these."""
    folders = root.beneath(FOLDER).folders()
    known = creators(leases)
    for id in folders:
        lease = known.get(id)
        if lease is not None and lease.is_live():
            continue
        newest = lease.at if lease is not None else _newest(collection_store(root, id))
        if time.time() - newest >= hours * 3600:
            yield id


def _newest(store: Store) -> float:
    """When a file was last written beneath a folder; 0 if there is none."""
    first = f"{LOG_FOLDER}/{entry_name(0)}"
    names = [*store.names(), *([first] if store.exists(first) else [])]
    return max((int(store.stamp(name).split()[1]) / 1e9 for name in names), default=0.0)


def remove_dropped(root: Store, dropped: Mapping[str, int], hours: float) -> Iterator[str]:
    """Remove the shards of collections that were dropped, unless someone still reads them."""
    for id, at in dropped.items():
        store = collection_store(root, id)
        if time.time() - at / 1000 >= hours * 3600 and _is_retired(store):
            store.remove()
            yield id


def _is_retired(store: Store) -> bool:
    """Whether nobody can use a shard any more; also if only a part of its folder is left."""
    try:
        return holds.retire(Log.open(store))
    except StorageUnavailableError:
        raise
    except (ShardNotFoundError, StorageError):
        # Someone died while removing it; then it was retired before. Or it was damaged.
        return not live_leases(store.beneath(holds.FOLDER))
