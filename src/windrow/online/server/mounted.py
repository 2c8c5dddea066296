"""Another application beneath a path of the server: it answers for itself, tokens included."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Message = MutableMapping[str, Any]


class Mounted(Protocol):
    """Answers everything beneath `path`, such as "/console"."""

    @property
    def path(self) -> str:
        """Where it is mounted."""

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request, as ASGI has it."""

    def refresh(self) -> None:
        """Read again what may have changed, such as tokens; called once a second."""

    def close(self) -> None:
        """Let go of what it holds."""
