"""What a server is started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from windrow.errors import OptionError
from windrow.online.fetched import Served
from windrow.online.server.limits import Limits
from windrow.online.server.logs import Log
from windrow.online.server.mounted import Mounted
from windrow.online.server.tokens import Tokens

# Makes what is served, in the process of a worker; has to be importable there.
Opening = Callable[[], Served]
# Makes an application that answers beneath a path of its own; the same holds for it.
Mounting = Callable[[Tokens, Log], Mounted]


@dataclass(frozen=True)
class Settings:
    """Where it listens, how many workers it has, who may ask, and how much."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    token_file: str | None = None
    log_requests: bool = False
    limits: Limits = field(default_factory=Limits)
    mounting: Mounting | None = None
    features: bool = True  # False: only what is mounted is answered, and health

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise OptionError(f"port is {self.port}; give one from 1 to 65535, or 0 for a free one")
        if not 1 <= self.workers <= 512:
            raise OptionError(f"workers is {self.workers}; give 1 or more, such as one a core")
