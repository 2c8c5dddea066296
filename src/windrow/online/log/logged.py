"""What is served, with a log of it: the same answers, each handed to the log as it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windrow.errors import DataError
from windrow.online.fetched import Description, Fetched, Served
from windrow.online.log.serving_log import ServingLog


class Logged:
    """Answers as another `Served` does."""

    def __init__(self, served: Served, log: ServingLog) -> None:
        self._served, self.log = served, log
        self.waits = served.waits

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
        self.log.take(found, at is not None, self._served.describe)
        return found

    def close(self) -> None:
        """Write what is left."""
        self.log.close()
        close = getattr(self._served, "close", None)
        if close is not None:
            close()
