"""What a server counts, for Prometheus.

A request adds to a few numbers of its own worker, which takes half a microsecond. Once a second, a
worker puts them into a file of its slot; whichever worker is asked for `/metrics` adds up its own
and the files of the others. A worker that is started anew in a slot goes on from the slot's file,
so that counters never go back.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from windrow.online.log.serving_log import Figures

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.encode()
# Upper ends of the buckets of latencies, in seconds.
_ENDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_OUTCOMES = ("logged", "sampled_out", "dropped")
_SEPARATOR = "\t"  # between the parts of a label: JSON's keys are texts


class Seen(msgspec.Struct):
    """What the workers of a slot have counted, and how its present one is."""

    requests: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    latency: dict[str, list[int]] = msgspec.field(default_factory=dict)
    seconds: dict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    fetches: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    keys: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    errors: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    fresh_at: dict[str, int] = msgspec.field(default_factory=dict)
    log: dict[str, int] = msgspec.field(default_factory=dict)  # a name and an outcome
    started: float = 0.0
    memory: int = 0
    connections: int = 0


class Tallies:
    """The numbers of this worker, and where those of the others are."""

    def __init__(self, slot: int = 0, folder: Path | None = None) -> None:
        self._slot, self._folder = slot, folder
        self.seen = self._read(slot) or Seen()
        self.seen.started = time.time()
        self._fresh: dict[str, list[int]] = {}
        self.connections = 0
        self.figures: Callable[[], Mapping[str, Figures]] = dict  # of the serving log
        self._log_before = dict(self.seen.log)  # by earlier workers of this slot

    def request(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        seen = self.seen
        seen.requests[f"{route}{_SEPARATOR}{status}"] += 1
        seen.seconds[route] += seconds
        try:
            counts = seen.latency[route]
        except KeyError:
            counts = seen.latency[route] = [0] * (len(_ENDS) + 1)
        counts[bisect_left(_ENDS, seconds)] += 1

    def fetched(self, name: str, keys: int, fresh_at: list[int]) -> None:
        """Features were fetched; `name` is one that is served."""
        self.seen.fetches[name] += 1
        self.seen.keys[name] += keys
        self._fresh[name] = fresh_at  # looked at when somebody wants to know

    def error(self, code: str) -> None:
        """A request was refused."""
        self.seen.errors[code] += 1

    def publish(self) -> None:
        """Bring `seen` up to date and, if there are other workers, let them see it."""
        for name, times in self._fresh.items():
            if times:
                self.seen.fresh_at[name] = min(times)
        for name, one in self.figures().items():
            for outcome in _OUTCOMES:
                label = f"{name}{_SEPARATOR}{outcome}"
                before = self._log_before.get(label, 0)
                self.seen.log[label] = before + getattr(one, outcome)
        self.seen.memory = _resident_bytes()
        self.seen.connections = self.connections
        if self._folder is not None:
            path = self._path(self._slot)
            new = path.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(self.seen))
            new.replace(path)

    def text(self) -> bytes:
        """Everything that all workers have counted, as Prometheus reads it."""
        self.publish()
        slots = {self._slot: self.seen}
        if self._folder is not None:
            for path in self._folder.glob("*.json"):
                slot = int(path.stem)
                if slot != self._slot and (seen := self._read(slot)) is not None:
                    slots[slot] = seen
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(slots))
        return generate_latest(registry)

    def _path(self, slot: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{slot}.json"

    def _read(self, slot: int) -> Seen | None:
        if self._folder is None:
            return None
        try:
            seen = msgspec.json.decode(self._path(slot).read_bytes(), type=Seen)
        except (OSError, msgspec.DecodeError):
            return None
        for field in ("requests", "fetches", "keys", "errors"):
            setattr(seen, field, defaultdict(int, getattr(seen, field)))
        seen.seconds = defaultdict(float, seen.seconds)
        return seen


class _Collected:
    """The numbers of all slots as metrics."""

    def __init__(self, slots: dict[int, Seen]) -> None:
        self._slots = slots

    def collect(self) -> Iterator[Metric]:
        """Families, each with all its samples."""
        slots = self._slots.values()
        requests = CounterMetricFamily(
            "windrow_requests", "Requests that were answered.", labels=["route", "status"]
        )
        for label, count in _added(seen.requests for seen in slots).items():
            requests.add_metric(label.split(_SEPARATOR), count)
        yield requests
        yield self._latency()
        for name, help, field, label in (
            ("windrow_fetches", "Fetches of features, by name.", "fetches", "name"),
            ("windrow_keys", "Keys whose features were fetched, by name.", "keys", "name"),
            ("windrow_errors", "Requests that were refused or failed, by code.", "errors", "code"),
        ):
            family = CounterMetricFamily(name, help, labels=[label])
            for one, count in _added(getattr(seen, field) for seen in slots).items():
                family.add_metric([one], count)
            yield family
        log = CounterMetricFamily(
            "windrow_log_requests",
            "Requests at the serving log, by what became of them.",
            labels=["name", "outcome"],
        )
        for label, count in _added(seen.log for seen in slots).items():
            log.add_metric(label.split(_SEPARATOR), count)
        yield log
        fresh = GaugeMetricFamily(
            "windrow_fresh_at_seconds",
            "Up to which time, since 1970, the rows behind the features last fetched are in.",
            labels=["name"],
        )
        for name, at in self._fresh_at().items():
            fresh.add_metric([name], at / 1000)
        yield fresh
        for name, help, field in (
            ("windrow_worker_memory_bytes", "Resident memory.", "memory"),
            ("windrow_worker_connections", "Open connections.", "connections"),
            ("windrow_worker_started_seconds", "When it was started, since 1970.", "started"),
        ):
            gauge = GaugeMetricFamily(name, f"Of a worker: {help}", labels=["worker"])
            for slot, seen in sorted(self._slots.items()):
                gauge.add_metric([str(slot)], getattr(seen, field))
            yield gauge

    def _latency(self) -> Metric:
        family = HistogramMetricFamily(
            "windrow_request_seconds",
            "From a request's head to the end of its answer.",
            labels=["route"],
        )
        seconds = _added(seen.seconds for seen in self._slots.values())
        for route, total in seconds.items():
            all_counts = (seen.latency.get(route, []) for seen in self._slots.values())
            counts = [sum(some) for some in zip(*filter(None, all_counts), strict=True)]
            buckets, below = [], 0
            for end, count in zip((*map(str, _ENDS), "+Inf"), counts, strict=True):
                below += count
                buckets.append((end, below))
            family.add_metric([route], buckets=buckets, sum_value=total)
        return family

    def _fresh_at(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for seen in self._slots.values():
            for name, at in seen.fresh_at.items():
                found[name] = max(at, found.get(name, at))
        return found


def _added(many: Iterable[dict[str, int] | dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(int)
    for one in many:
        for label, count in one.items():
            total[label] += count
    return total


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
