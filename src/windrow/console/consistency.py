"""Reports of consistency, as the job wrote them: JSON beneath `consistency/NAME/reports`.

Whatever is missing in a report is taken to be nothing; one that cannot be read is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.storage.store import Store

OUTCOMES = ("equal", "both_empty", "only_online", "only_offline", "different")
FOLDER = "consistency"


@dataclass(frozen=True)
class Counted:
    """How many values had which outcome."""

    equal: int = 0
    both_empty: int = 0
    only_online: int = 0
    only_offline: int = 0
    different: int = 0

    @staticmethod
    def of(found: Mapping[str, Any]) -> Counted:
        return Counted(**{name: int(found.get(name) or 0) for name in OUTCOMES})

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in OUTCOMES)

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
    share: float
    counted: Counted
    coverage: Mapping[str, Any]
    features: tuple[FeatureReport, ...]
    examples: tuple[Mapping[str, Any], ...]

    @property
    def passed(self) -> bool:
        return self.verdict.lower() in ("consistent", "passed", "pass", "ok", "true")


def reports(store: Store, name: str | None = None) -> list[Report]:
    """All reports of a project, the newest first; or those about one name."""
    folder = store.beneath(FOLDER)
    found: list[Report] = []
    for file in folder.names():
        parts = file.split("/")
        if len(parts) == 3 and parts[1] == "reports" and file.endswith(".json"):
            if name is not None and parts[0] != name:
                continue
            raw = folder.get(file)
            found += _read(raw, parts[0], parts[2].removesuffix(".json"))
    return sorted(found, key=lambda one: one.run, reverse=True)


def stamp(store: Store) -> tuple[tuple[str, str], ...]:
    """Changes when a report is added, or replaced."""
    found = store.beneath(FOLDER).stamps()
    return tuple(sorted((n, s) for n, s in found.items() if n.endswith(".json")))


def _read(raw: bytes | None, name: str, run: str) -> Iterator[Report]:
    try:
        found = json.loads(raw or b"")
        counted = Counted.of(found.get("counted") or {})
        yield Report(
            str(found.get("name", name)),
            str(found.get("run", run)),
            str(found.get("version", "")),
            found.get("start"),
            found.get("end"),
            float(found.get("threshold", 1.0)),
            str(found.get("verdict", "")),
            float(found.get("share", counted.share)),
            counted,
            _mapping(found.get("coverage")),
            tuple(_features(found.get("features") or ())),
            tuple(_mapping(one) for one in found.get("examples") or ()),
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
