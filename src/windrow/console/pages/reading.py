"""What all pages read from: the catalogue, and what follows from it, kept as long as it is true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from windrow.console.attention import Attention, attention
from windrow.console.catalogue import Catalogue
from windrow.console.consistency import Report, reports, stamp
from windrow.console.lineage import Graph, lineage
from windrow.console.looking import EVERY, Looking
from windrow.console.running import Failure, Running, failure_of, running
from windrow.time import now_millis

Found = tuple[str, str, str]  # name, kind and address


class Reading:
    """A project as pages see it. For several threads at once."""

    def __init__(self, looking: Looking) -> None:
        self.looking = looking
        self._lock = threading.Lock()
        self._graphs: dict[bool, tuple[Catalogue, Graph]] = {}
        self._everything: tuple[Catalogue, list[Found]] | None = None
        self._reports: tuple[object, list[Report]] = (None, [])
        self._reports_until = float("-inf")
        self._running: tuple[float, list[Running]] = (float("-inf"), [])

    def catalogue(self) -> Catalogue:
        return self.looking.catalogue()

    def graph(self, catalogue: Catalogue, *, arrangements: bool = True) -> Graph:
        """The lineage; made once for each catalogue."""
        known = self._graphs.get(arrangements)
        if known is None or known[0] is not catalogue:
            known = catalogue, lineage(catalogue, arrangements=arrangements)
            self._graphs[arrangements] = known
        return known[1]

    def everything(
        self, catalogue: Catalogue, list_all: Callable[[Catalogue], Iterable[Found]]
    ) -> list[Found]:
        """What can be searched for; listed once for each catalogue."""
        known = self._everything
        if known is None or known[0] is not catalogue:
            known = self._everything = catalogue, list(list_all(catalogue))
        return known[1]

    def reports(self) -> list[Report]:
        """All reports of consistency, the newest first."""
        with self._lock:
            if time.monotonic() >= self._reports_until:
                seen = stamp(self.looking.store)
                if seen != self._reports[0]:
                    self._reports = seen, reports(self.looking.store)
                self._reports_until = time.monotonic() + 2 * EVERY
            return self._reports[1]

    def failure(self, catalogue: Catalogue) -> Failure | None:
        return failure_of(self.looking.store, catalogue)

    def attention(self, catalogue: Catalogue) -> list[Attention]:
        """What needs attention now."""
        failure = self.failure(catalogue)
        return attention(catalogue, self.reports(), failure, now_millis())

    def running(self, catalogue: Catalogue) -> list[Running]:
        """What is under way."""
        with self._lock:
            until, known = self._running
            if time.monotonic() >= until:
                known = running(self.looking.store, catalogue, now_millis())
                self._running = time.monotonic() + EVERY, known
            return known
