"""What a serving log tells of its writers: their clocks, and how fresh their answers were."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from windrow.consistency.choosing import millis


@dataclass(frozen=True)
class ServedHistory:
    """From the table of counts; small, since it has a few rows for each commit of a writer."""

    clocks: dict[str, list[tuple[int, int]]]  # by writer: when, and how far ahead its clock was
    fresh: dict[str, list[tuple[int, int]]]  # by group: served up to then, and how fresh

    @staticmethod
    def of(counts: pa.Table) -> ServedHistory:
        clocks: dict[str, list[tuple[int, int]]] = {}
        fresh: dict[str, list[tuple[int, int]]] = {}
        for row in counts.to_pylist():
            written, last = millis(row["written"]), millis(row["last_clock"])
            if row["clock_ahead"] is not None and written is not None:
                clocks.setdefault(row["writer"], []).append((written, row["clock_ahead"]))
            for group, time in row["fresh"] or ():
                at = millis(time)
                if last is not None and at is not None:
                    fresh.setdefault(group, []).append((last, at))
        return ServedHistory(clocks, fresh)

    def clock_ahead(self, writer: str | None, clock: int) -> int:
        """By how many milliseconds a writer's clock was ahead; 0 if nobody knows."""
        known = self.clocks.get(writer or "", [])
        if not known:
            return 0
        return min(known, key=lambda one: abs(one[0] - clock))[1]

    def fresher(self, group: str, clock: int) -> int | None:
        """How fresh a group had been served, by requests before `clock`."""
        before = [fresh for last, fresh in self.fresh.get(group, ()) if last < clock]
        return max(before, default=None)
