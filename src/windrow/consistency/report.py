"""What a run of the job found, as data: frozen, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from windrow.consistency.equality import OUTCOMES
from windrow.consistency.texts import moment
from windrow.online.log.reading import Coverage

CONSISTENT, INCONSISTENT, NO_DATA = "consistent", "inconsistent", "no data"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class Cause(Enum):
    """Why a served value is not the backfilled one."""

    ARRIVED_LATER = "arrived_later"
    STORE_BEHIND = "store_behind"
    LOST = "lost_event"
    TWICE = "delivered_twice"
    DEFINITION = "definition_changed"
    CLOCK = "clock_off"
    DAMAGED = "record_damaged"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Reason:
    """One reason: what it says to people, and the rows that show it.

    `proven` says that the definition, computed over the rows as the reason has them, gives the
    served value.
    """

    cause: Cause
    says: str
    rows: Sequence[Mapping[str, Any]] = ()
    proven: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "reason": self.cause.value,
            "says": self.says,
            "proven": self.proven,
            "rows": list(self.rows),
        }


@dataclass(frozen=True)
class Example:
    """A value that was served, and is not the one that was backfilled."""

    feature: str
    keys: Mapping[str, Any]
    at: int
    outcome: str
    online: Any
    offline: Any
    error: float
    served_version: str | None = None
    served_clock: int | None = None
    fresh_at: int | None = None
    reasons: tuple[Reason, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "feature": self.feature,
            "keys": dict(self.keys),
            "at": moment(self.at),
            "outcome": self.outcome,
            "online": self.online,
            "offline": self.offline,
            "error": self.error,
            "served_version": self.served_version,
            "served_clock": None if self.served_clock is None else moment(self.served_clock),
            "fresh_at": None if self.fresh_at is None else moment(self.fresh_at),
            "reasons": [reason.to_json() for reason in self.reasons],
        }


@dataclass(frozen=True)
class Counted:
    """Comparisons by outcome."""

    equal: int = 0
    both_empty: int = 0
    only_online: int = 0
    only_offline: int = 0
    different: int = 0

    @property
    def total(self) -> int:
        return sum(self.to_json().values())

    @property
    def share(self) -> float | None:
        """Of values on which both sides agree, that they are empty included; None of none."""
        total = self.total
        return None if not total else (self.equal + self.both_empty) / total

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in OUTCOMES}


@dataclass(frozen=True)
class FeatureReport:
    """What was found of one feature; `hours` are the starts of hours, in milliseconds."""

    name: str
    counted: Counted
    error_quantiles: Mapping[str, float]
    hours: Mapping[int, Counted]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self.counted.to_json(),
            "share": self.counted.share,
            "error_quantiles": dict(self.error_quantiles),
            "hours": [{"hour": moment(h), **one.to_json()} for h, one in self.hours.items()],
        }


@dataclass(frozen=True)
class Report:
    """The verdict on a name: that every feature agrees in at least `threshold` of its values.

    `coverage` says what the log has of all requests; it is None for a log of another system.
    `left_out` are features that the log does not have. `notes` are what else should be known.
    """

    name: str
    run: str
    version: str | None
    start: str | None
    end: str | None
    threshold: float
    verdict: str
    counted: Counted
    features: tuple[FeatureReport, ...] = ()
    examples: tuple[Example, ...] = ()
    coverage: Coverage | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    page: str | None = None  # where it is stored

    @property
    def consistent(self) -> bool:
        return self.verdict == CONSISTENT

    @property
    def share(self) -> float | None:
        return self.counted.share

    @property
    def causes(self) -> dict[Cause, int]:
        """How many examples have each cause first."""
        found: dict[Cause, int] = {}
        for example in self.examples:
            for reason in example.reasons[:1]:
                found[reason.cause] = found.get(reason.cause, 0) + 1
        return found

    def to_json(self) -> dict[str, Any]:
        coverage = self.coverage
        return {
            "name": self.name,
            "run": self.run,
            "version": self.version,
            "start": self.start,
            "end": self.end,
            "threshold": self.threshold,
            "verdict": self.verdict,
            "share": self.share,
            "counted": self.counted.to_json(),
            "coverage": None
            if coverage is None
            else {
                "requests": coverage.requests,
                "logged": coverage.logged,
                "sampled_out": coverage.sampled_out,
                "dropped": coverage.dropped,
                "unclosed": coverage.unclosed,
            },
            "features": [feature.to_json() for feature in self.features],
            "examples": [example.to_json() for example in self.examples],
            "left_out": list(self.left_out),
            "notes": list(self.notes),
            "seconds": dict(self.seconds),
        }


def verdict_of(features: Sequence[FeatureReport], threshold: float) -> str:
    """Every feature has to agree often enough: a wrong one is not made up for by the others."""
    shares = [one.counted.share for one in features]
    known = [share for share in shares if share is not None]
    if not known:
        return NO_DATA
    return CONSISTENT if min(known) >= threshold else INCONSISTENT
