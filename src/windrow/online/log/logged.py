"""What is served, with a log of it: the same answers, each handed to the log as it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from windrow.online.fetched import Description, Done, Fetched, Outcome, Request, Served
from windrow.online.log.columns import copied
from windrow.online.log.serving_log import ServingLog


class Logged:
    """Answers as another `Served` does.

    With `copies`, whoever asks may change what it gave and was given.
    """

    def __init__(self, served: Served, log: ServingLog, *, copies: bool = False) -> None:
        self._served, self.log, self._copies = served, log, copies
        self._describe = served.describe
        self.waits = served.waits

    @cached_property
    def copying(self) -> Logged:
        """The same, with copies."""
        return Logged(self._served, self.log, copies=True)

    def names(self) -> list[str]:
        return self._served.names()

    def describe(self, name: str) -> Description:
        return self._served.describe(name)

    def fetch(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        at: int | None = None,
        features: Sequence[str] | None = None,
    ) -> Fetched:
        (found,) = self.fetch_all([Request(name, keys, at, features)])
        if isinstance(found, Exception):
            raise found
        return found

    def fetch_all(self, requests: Sequence[Request]) -> list[Outcome]:
        outcomes = self._served.fetch_all(requests)
        self._take(requests, outcomes)
        return outcomes

    def fetch_soon(self, requests: Sequence[Request], done: Done) -> bool:
        def take(outcomes: list[Outcome] | None) -> None:
            if outcomes is not None:
                self._take(requests, outcomes)
            done(outcomes)

        return self._served.fetch_soon(requests, take)

    def _take(self, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> None:
        if self._copies:
            outcomes = [copied(one) if isinstance(one, Fetched) else one for one in outcomes]
        self.log.take(requests, outcomes, self._describe)

    def close(self) -> None:
        """Write what is left."""
        self.log.close()
        close = getattr(self._served, "close", None)
        if close is not None:
            close()
