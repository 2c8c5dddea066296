"""Fetching: the features of keys at a time, of groups and of joins, from a store of records.

A fetch reads the notes of its groups and the records of its keys at one moment. Requests that come
at the same time are read and evaluated together (`fetch_all`), and an event loop need not wait for
the store meanwhile (`fetch_soon`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from windrow.online.asking import Asking
from windrow.online.fetched import Description, Done, Fetched, Outcome, Request
from windrow.online.plans import OpenGroup, Plans
from windrow.online.stores.store import Read, RecordStore
from windrow.time import now_millis


class Fetcher:
    """Answers requests from a store. Safe to share between threads."""

    def __init__(self, records: RecordStore, now: Callable[[], int] = now_millis) -> None:
        self._records, self._now = records, now
        self._plans = Plans(records)

    @property
    def waits(self) -> bool:
        """Whether a fetch may have to wait: for another process, or another machine."""
        return self._records.waits

    @property
    def _groups(self) -> dict[str, OpenGroup]:
        return self._plans.groups

    def names(self) -> list[str]:
        """The groups, joins and views that are served."""
        return self._plans.names()

    def describe(self, name: str) -> Description:
        """The keys and features of a group, join or view."""
        plans = self._plans
        join = plans.join(name)
        keys: dict[str, pa.DataType] = {}
        features: list[tuple[str, pa.DataType]] = []
        groups: dict[str, str] = {}
        staleness = []
        for use in join.uses:
            group = plans.require(use.group)
            keys |= dict(zip(use.left_keys, group.served.key_types, strict=True))
            features += zip(use.names, group.served.types, strict=True)
            groups |= dict.fromkeys(use.names, use.group)
            if group.served.max_staleness is not None:
                staleness.append(group.served.max_staleness)
        return Description(
            name,
            tuple(keys.items()),
            (*features, *join.derived.types),
            tuple(one for one in join.derived.inputs if one[0] not in keys),
            groups,
            min(staleness, default=None),
            plans.version(join),
        )

    def fetch(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        at: int | None = None,
        features: Sequence[str] | None = None,
    ) -> Fetched:
        """The features of keys at a time, by default now; of all features, or of some by name."""
        (found,) = self.fetch_all([Request(name, keys, at, features)])
        if isinstance(found, Exception):
            raise found
        return found

    def fetch_all(self, requests: Sequence[Request]) -> list[Outcome]:
        """The answer to each request, or its error; all as the store was at one moment."""
        asking = Asking(self._plans, requests, self._now())
        while (wanted := asking.wanted()) is not None:
            if asking.take(*self._records.read(*wanted)):
                break
        return asking.outcomes

    def fetch_soon(self, requests: Sequence[Request], done: Done) -> bool:
        """The same from an event loop, which does not wait: `done` is given the outcomes.

        False if that is not possible now, and nothing is under way. `done` is given None if it
        turned out not to be: then `fetch_all` answers, or says what is wrong.
        """
        if not self._is_known(requests):
            return False
        return self._ask(Asking(self._plans, requests, self._now()), requests, done)

    def _is_known(self, requests: Sequence[Request]) -> bool:
        return all(map(self._plans.knows, {request.name for request in requests}))

    def _ask(self, asking: Asking, requests: Sequence[Request], done: Done) -> bool:
        wanted = asking.wanted()
        if wanted is None:
            done(asking.outcomes)
            return True

        def take(found: Read | None) -> None:
            if found is None:
                done(None)
            elif asking.take(*found):
                done(asking.outcomes)
            elif not self._is_known(requests) or not self._ask(asking, requests, done):
                done(None)

        return self._records.read_soon(*wanted, take)
