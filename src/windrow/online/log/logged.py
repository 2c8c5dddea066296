"""What is served, with a log of it: the same answers, each handed to the log as it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from windrow.errors import DataError
from windrow.online.fetched import Description, Fetched, Served
from windrow.online.log.columns import copied
from windrow.online.log.serving_log import ServingLog


class Logged:
    """Answers as another `Served` does.

    With `copies`, whoever asks may change what it gave and was given.
    """

    def __init__(self, served: Served, log: ServingLog, *, copies: bool = False) -> None:
        self._served, self.log, self._copies = served, log, copies
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
        try:
            found = self._served.fetch(name, keys, at=at, features=features)
        except DataError as error:
            # What should have been served, and was not, is part of what is compared.
            self.log.failed(self._served.describe(name), keys, at, str(error))
            raise
        kept = copied(found) if self._copies else found
        self.log.take(kept, at is not None, self._served.describe)
        return found

    def close(self) -> None:
        """Write what is left."""
        self.log.close()
        close = getattr(self._served, "close", None)
        if close is not None:
            close()
