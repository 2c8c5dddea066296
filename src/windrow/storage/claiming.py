"""Claims on a busy store: the leases of others vanish while they are looked at.

A lease that is listed may be gone before it is read, and an object store says so in many ways, not
all of which can be told from a failure. It is gone when one looks again; a failure is not.
"""

from __future__ import annotations

import time

from windrow.errors import StorageError
from windrow.storage.leases import Lease, claim
from windrow.storage.store import Store

_LOOKS = 4
_PAUSE = 0.05


def try_claim(folder: Store, what: str) -> Lease | None:
    """As `claim`: a lease on `what` that no two have at a time; None if another has it."""
    for _ in range(_LOOKS - 1):
        try:
            return claim(folder, what)
        except StorageError:
            time.sleep(_PAUSE)
    return claim(folder, what)
