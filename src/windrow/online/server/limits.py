"""How much a server does for a client: one place, read when a decision is made."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from windrow.errors import OptionError
from windrow.online.server.refusals import Refusal

SPARE_FILES = 64  # descriptors that are not connections: the store, logs, pipes
INLINE_KEYS = 256  # requests with more are fetched in a thread, beside the others
KEPT = 1.0  # seconds, after which a description is asked for again
HEAD_BYTES = 32 * 1024  # of a request line and its headers
LINGER = 0.5  # seconds for which a server that stops waits for what is on its way to it
SWEEP = 1.0  # seconds between two looks for clients that are too slow


@dataclass(frozen=True)
class Limits:
    """Of one worker. Bytes, keys, seconds and counts."""

    body: int = 2**20
    keys: int = 10_000
    timeout: float = 10.0
    keep_alive: int = 75
    connections: int = 4096
    threads: int = 8
    waiting: int = 64  # requests that wait for a thread

    def __post_init__(self) -> None:
        for name, least in (("body", 64), ("keys", 1), ("timeout", 0.001), ("connections", 1)):
            if getattr(self, name) < least:
                raise OptionError(
                    f"the limit of {name} is {getattr(self, name)}; give at least {least}"
                )

    def check_keys(self, count: int) -> None:
        """Refuse a request for too many keys."""
        if count > self.keys:
            raise Refusal("too_large", f"{count} keys are more than the {self.keys} allowed")

    @property
    def most_connections(self) -> int:
        """As many as the system lets this process open, too."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return self.connections
        return max(1, min(self.connections, files - SPARE_FILES))

    @property
    def shutdown(self) -> float:
        """Seconds in which a worker that was told to stop has stopped."""
        return self.timeout + LINGER + 1.0
