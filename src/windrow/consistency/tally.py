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
_DENSE = 100_000  # hours of a batch, from the first to the last, that are counted in an array
_NUMBERS = pa.list_(pa.int64())
_SCHEMA = pa.schema(  # a row for each feature
    [
        ("feature", pa.string()),
        ("hours", _NUMBERS),
        *((name, _NUMBERS) for name in OUTCOMES),
        ("sketch", pa.binary()),
    ]
)


@dataclass
class FeatureTally:
    """Of one feature: counts of outcomes for each hour, and a sketch of errors that are not 0."""

    _parts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    errors: kll_doubles_sketch = field(default_factory=lambda: kll_doubles_sketch(_K))

    def add(self, found: Compared, hours: Hours, asked: np.ndarray | None = None) -> None:
        """Comparisons of values at `hours`; `asked` says which count (None: all)."""
        places, outcomes, total = hours.places, found.outcomes, hours.counts
        if asked is not None:
            places, outcomes = places[asked], outcomes[asked]
            total = np.bincount(places, minlength=hours.hours.size)
        size = len(OUTCOMES)
        # Most are equal: the others are counted, and equal is the rest.
        other = np.flatnonzero(outcomes)
        spots = places[other] * size + outcomes[other]
        counts = np.bincount(spots, minlength=hours.hours.size * size).reshape(-1, size)
        counts[:, Outcome.EQUAL] = total - counts.sum(axis=1)
        self._parts.append((hours.hours, counts))
        places = np.flatnonzero(found.errors)
        if asked is not None:
            places = places[asked[places]]
        outcomes, errors = found.outcomes[places], found.errors[places]
        errors = errors[(outcomes == Outcome.EQUAL) | (outcomes == Outcome.DIFFERENT)]
        if errors.size:
            self.errors.update(errors)

    def merge(self, other: FeatureTally) -> None:
        self._parts += other._parts
        self.errors.merge(other.errors)

    def by_hour(self) -> tuple[np.ndarray, np.ndarray]:
        """The hours with values, ascending, and for each the counts of outcomes."""
        if not self._parts:
            return np.zeros(0, np.int64), np.zeros((0, len(OUTCOMES)), np.int64)
        hours, places = np.unique(
            np.concatenate([one for one, _ in self._parts]), return_inverse=True
        )
        counts = np.zeros((hours.size, len(OUTCOMES)), np.int64)
        np.add.at(counts, places, np.concatenate([one for _, one in self._parts]))
        some = counts.any(axis=1)
        self._parts = [(hours[some], counts[some])]
        return self._parts[0]

    @property
    def hours(self) -> dict[int, np.ndarray]:
        hours, counts = self.by_hour()
        return dict(zip(hours.tolist(), counts, strict=True))

    @property
    def counts(self) -> np.ndarray:
        found: np.ndarray = self.by_hour()[1].sum(axis=0)
        return found

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
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as out:
            for name, tally in self.features.items():
                hours, counts = tally.by_hour()
                row = [name, hours, *counts.T, tally.errors.serialize()]
                arrays = [
                    pa.array([value], field.type) for value, field in zip(row, _SCHEMA, strict=True)
                ]
                out.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes) -> Tally:
        found = Tally()
        for batch in pa.ipc.open_stream(data):
            name, hours, *counts, sketch = (column[0] for column in batch.columns)
            tally = found.of(name.as_py())
            numbers = [one.values.to_numpy() for one in (hours, *counts)]
            tally._parts.append((numbers[0], np.stack(numbers[1:], axis=1)))
            tally.errors.merge(kll_doubles_sketch.deserialize(sketch.as_py()))
        return found


@dataclass(frozen=True)
class Hours:
    """The hours of times, in milliseconds, and for each time the place of its hour."""

    times: np.ndarray
    hours: np.ndarray
    places: np.ndarray
    counts: np.ndarray  # how many times each has

    @staticmethod
    def of(times: np.ndarray) -> Hours:
        """Of some times: there is at least one."""
        hours = times // HOUR
        first = int(hours.min())
        span = int(hours.max()) - first + 1
        if span > _DENSE:
            some, places, counts = np.unique(hours, return_inverse=True, return_counts=True)
            return Hours(times, some * HOUR, places, counts)
        counts = np.bincount(hours - first, minlength=span)
        some = np.flatnonzero(counts)
        places = (np.cumsum(counts > 0) - 1)[hours - first]
        return Hours(times, (some + first) * HOUR, places, counts[some])
