"""Reports of consistency, as pages show them.

Whatever is missing in a report is taken to be nothing; one that cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from windrow.consistency.equality import OUTCOMES
from windrow.consistency.report import CONSISTENT, INCONSISTENT
from windrow.consistency.report import Counted as CountedOutcomes
from windrow.consistency.stored import CONSISTENCY, read_report
from windrow.consistency.stored import reports as stored_reports
from windrow.errors import WindrowError
from windrow.storage.store import Store


@dataclass(frozen=True)
class Counted(CountedOutcomes):
    """How many values had which outcome, for drawing: shares are numbers, also of nothing."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> Counted:
        return Counted(**{name: int(found.get(name) or 0) for name in OUTCOMES})

    @property
    def share(self) -> float:
        """Of all values, those that were as they should be."""
        return (self.equal + self.both_empty) / self.total if self.total else 1.0

    @property
    def shares(self) -> list[tuple[str, float]]:
        """The share of each outcome."""
        return [(name, getattr(self, name) / max(self.total, 1)) for name in OUTCOMES]


@dataclass(frozen=True)
class FeatureReport:
    """The outcomes of one feature, in all and by hour."""

    name: str
    counted: Counted
    hours: tuple[tuple[Any, Counted], ...] = ()
    errors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """One run of the consistency job."""

    name: str
    run: str
    version: str
    start: Any
    end: Any
    threshold: float
    verdict: str
    counted: Counted
    coverage: Mapping[str, Any]
    features: tuple[FeatureReport, ...]
    examples: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Of all values, those on which both sides agree."""
        return self.counted.share

    @property
    def level(self) -> str:
        """As states are shown: there may be nothing to compare."""
        return {CONSISTENT: "ok", INCONSISTENT: "bad"}.get(self.verdict, "off")


def reports(store: Store) -> list[Report]:
    """All reports of a project, the newest first."""
    found: list[Report] = []
    for one in stored_reports(store):
        with suppress(WindrowError):
            found += _read(read_report(store, one.name, one.run), one.name, one.run)
    return found


def stamp(store: Store) -> tuple[tuple[str, str], ...]:
    """Changes when a report is added, or replaced."""
    found = store.beneath(CONSISTENCY).stamps()
    return tuple(sorted((n, s) for n, s in found.items() if n.endswith(".json")))


def _read(found: Any, name: str, run: str) -> Iterator[Report]:
    try:
        counted = Counted.of(found.get("counted") or {})
        yield Report(
            name,
            run,
            str(found.get("version") or ""),
            found.get("start"),
            found.get("end"),
            float(found.get("threshold") or 0.0),
            str(found.get("verdict") or ""),
            counted,
            _mapping(found.get("coverage")),
            tuple(_features(found.get("features") or ())),
            tuple(_mapping(one) for one in found.get("examples") or ()),
            tuple(map(str, found.get("notes") or ())),
        )
    except (ValueError, TypeError, AttributeError):
        return  # written by something else


def _features(found: Iterable[Mapping[str, Any]]) -> Iterator[FeatureReport]:
    for one in found:
        hours = tuple((hour.get("hour"), Counted.of(hour)) for hour in one.get("hours") or ())
        errors = _mapping(one.get("error_quantiles"))
        yield FeatureReport(str(one.get("name")), Counted.of(one), hours, errors)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
