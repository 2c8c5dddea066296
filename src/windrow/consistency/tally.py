"""Counts of comparisons, by feature and hour, and errors: small, and added up over tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from datasketches import kll_doubles_sketch

from windrow.consistency.equality import OUTCOMES, Compared, Outcome
from windrow.time import HOUR

_K = 400  # of the sketch of errors
_SCHEMA = pa.schema(
    [
        ("feature", pa.string()),
        ("hour", pa.int64()),
        *((name, pa.int64()) for name in OUTCOMES),
        ("sketch", pa.binary()),
    ]
)


@dataclass
class FeatureTally:
    """Of one feature: counts of outcomes for each hour, and a sketch of errors that are not 0."""

    hours: dict[int, np.ndarray] = field(default_factory=dict)
    errors: kll_doubles_sketch = field(default_factory=lambda: kll_doubles_sketch(_K))

    def add(self, found: Compared, hours: np.ndarray, places: np.ndarray) -> None:
        """Comparisons at `hours[places]`."""
        size = len(OUTCOMES)
        counts = np.bincount(places * size + found.outcomes, minlength=hours.size * size)
        for hour, row in zip(hours.tolist(), counts.reshape(-1, size), strict=True):
            if row.any():
                self._at(hour).__iadd__(row)
        both = (found.outcomes == Outcome.EQUAL) | (found.outcomes == Outcome.DIFFERENT)
        errors = found.errors[both & (found.errors > 0)]
        if errors.size:
            self.errors.update(errors)

    def _at(self, hour: int) -> np.ndarray:
        return self.hours.setdefault(hour, np.zeros(len(OUTCOMES), np.int64))

    def merge(self, other: FeatureTally) -> None:
        for hour, row in other.hours.items():
            self._at(hour).__iadd__(row)
        self.errors.merge(other.errors)

    @property
    def counts(self) -> np.ndarray:
        total = np.zeros(len(OUTCOMES), np.int64)
        for row in self.hours.values():
            total += row
        return total

    def quantiles(self, fractions: Iterable[float]) -> list[float]:
        """Of the errors of values that both sides have; 0 where there are none."""
        counts = self.counts
        total = int(counts[Outcome.EQUAL] + counts[Outcome.DIFFERENT])
        some = self.errors.n
        found = []
        for fraction in fractions:
            rank = fraction * total - (total - some)  # among those that are not 0
            if some == 0 or (rank <= 0 and fraction < 1):
                found.append(0.0)
            elif fraction >= 1:
                found.append(float(self.errors.get_max_value()))
            else:
                found.append(float(self.errors.get_quantile(min(1.0, rank / some))))
        return found


@dataclass
class Tally:
    """Of all features, by name."""

    features: dict[str, FeatureTally] = field(default_factory=dict)

    def of(self, name: str) -> FeatureTally:
        return self.features.setdefault(name, FeatureTally())

    def merge(self, other: Tally) -> None:
        for name, tally in other.features.items():
            self.of(name).merge(tally)

    def to_bytes(self) -> bytes:
        """For another process."""
        rows = []
        for name, tally in self.features.items():
            for hour, row in tally.hours.items():
                counts = dict(zip(OUTCOMES, row.tolist(), strict=True))
                rows.append({"feature": name, "hour": hour, **counts})
            rows.append({"feature": name, "sketch": tally.errors.serialize()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as out:
            out.write_table(pa.Table.from_pylist(rows, _SCHEMA))
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes) -> Tally:
        found = Tally()
        for row in pa.ipc.open_stream(data).read_all().to_pylist():
            tally = found.of(row["feature"])
            if row["sketch"] is not None:
                tally.errors.merge(kll_doubles_sketch.deserialize(row["sketch"]))
            else:
                tally._at(row["hour"]).__iadd__([row[name] for name in OUTCOMES])
        return found


def hours_of(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hours of times, in milliseconds, and for each time the place of its hour."""
    return np.unique(times // HOUR * HOUR, return_inverse=True)
