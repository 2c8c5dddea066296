"""Claims on a project: one process at a time ticks, or maintains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from windrow.errors import CommitConflictError
from windrow.storage.claiming import try_claim
from windrow.storage.leases import claims
from windrow.storage.store import Store

CLAIM_SECONDS = 30.0  # to wait for another process, unless said otherwise
_PAUSE = 0.01


@contextmanager
def claiming(leases: Store, what: str, wait: float) -> Iterator[None]:
    """A block that at most one process is in at a time."""
    until = time.monotonic() + wait
    while (lease := try_claim(leases, what)) is None:
        if time.monotonic() >= until:
            raise CommitConflictError(
                f"{leases.uri}: {_owner(leases, what)} has the claim {what!r}, and did not end "
                f"within {wait:g} s. Wait for it, or end it: its claim ends with it"
            )
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        lease.release()


class NestedClaim:
    """A claim that a thread may have several times, one within the other."""

    def __init__(self, leases: Store, what: str) -> None:
        self._leases, self._what = leases, what
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def claimed(self, wait: float) -> Iterator[bool]:
        """A block that one thread of one process is in; told whether it is the outermost."""
        if not self._lock.acquire(timeout=wait):
            raise CommitConflictError(
                f"{self._leases.uri}: another thread of this process has had the claim "
                f"{self._what!r} for more than {wait:g} s. Wait for it, and try again"
            )
        try:
            with ExitStack() as outermost:
                if not self._depth:
                    outermost.enter_context(claiming(self._leases, self._what, wait))
                self._depth += 1
                try:
                    yield self._depth == 1
                finally:
                    self._depth -= 1
        finally:
            self._lock.release()


@contextmanager
def is_claimed(leases: Store, what: str) -> Iterator[bool]:
    """A block that at most one process does something in: the one that is told True."""
    lease = try_claim(leases, what)
    try:
        yield lease is not None
    finally:
        if lease is not None:
            lease.release()


def _owner(leases: Store, what: str) -> str:
    live = [found for found in claims(leases, what) if found.is_live()]
    decided = [found for found in live if found.about["decided"]] or live
    if not decided:
        return "another process"  # it ended just now
    process = decided[0].process
    return f"process {process.pid} on {process.host.split()[0]}"
