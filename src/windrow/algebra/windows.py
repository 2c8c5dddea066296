"""Windows: which events count for a query. The one place that knows.

For a query at time `q`, a window of length `W` with hop `h`:

    sliding    [q - W, q)
    hopping    [floor(q - W, h), floor(q, h))
    sawtooth   [floor(q - W, h), q)
    lifetime   (-inf, q)

All times are int64 milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum

import numpy as np

from windrow.errors import DefinitionError
from windrow.rows.ordering import LOWEST
from windrow.time import DAY, HOUR, MINUTE, SECOND, floor_to, parse_length


class WindowKind(Enum):
    SLIDING = "sliding"
    HOPPING = "hopping"
    SAWTOOTH = "sawtooth"
    LIFETIME = "lifetime"


_STANDARD_HOPS = ((12 * DAY, DAY), (12 * HOUR, HOUR), (0, 5 * MINUTE))
_hops: ContextVar[tuple[tuple[int, int], ...]] = ContextVar("hops", default=_STANDARD_HOPS)


def default_hop(length: int) -> int:
    """One day for windows of 12 days and more, one hour from 12 hours, else five minutes.

    `default_hops` gives others.
    """
    return next(hop for least, hop in _hops.get() if length >= least)


@contextmanager
def default_hops(rules: Mapping[str, str]) -> Iterator[None]:
    """Windows that are made within get these hops, unless they say `hop=` themselves.

    `rules` maps the length from which on windows get a hop to that hop; shorter windows than
    all of them get hops of five minutes.

    >>> with default_hops({"1d": "1h", "1m": "1m"}):
    ...     print(Window.make("30d"), "/", Window.make("2m"))
    30d sawtooth, hop 3600s / 2m sawtooth, hop 60s
    """
    found = [(0, 5 * MINUTE)]
    for text, hop_text in rules.items():
        least, hop = parse_length(text, "hops: length"), parse_length(hop_text, "hops: hop")
        if DAY % hop:
            raise DefinitionError(f"hops: hop {hop_text!r} does not divide a day")
        if hop > least:
            raise DefinitionError(
                f"hops: windows from {text!r} on get the hop {hop_text!r}, which is longer"
            )
        found.append((least, hop))
    token = _hops.set(tuple(sorted(found, reverse=True)))
    try:
        yield
    finally:
        _hops.reset(token)


@dataclass(frozen=True)
class Window:
    """A window as written: `text` is what the feature's name shows ('' for lifetime)."""

    text: str
    length: int
    hop: int
    kind: WindowKind

    @staticmethod
    def make(text: str, kind: str | WindowKind = "sawtooth", hop: str | None = None) -> Window:
        try:
            kind = WindowKind(kind)
        except ValueError:
            names = [k.value for k in WindowKind if k is not WindowKind.LIFETIME]
            raise DefinitionError(f"window kind {kind!r}: it is one of {names}") from None
        if kind is WindowKind.LIFETIME:
            raise DefinitionError("a lifetime aggregate has no window; leave .over(...) out")
        length = parse_length(text)
        step = default_hop(length) if hop is None else parse_length(hop, "hop")
        if DAY % step:
            raise DefinitionError(f"hop {hop!r} does not divide a day; use '1h' or '5m', say")
        if step > length and (hop is not None or kind is not WindowKind.SLIDING):
            shown = hop or f"{step // MINUTE}m, the default,"
            raise DefinitionError(
                f"hop {shown} is longer than its window {text!r}; give a shorter hop=..., or "
                "use kind='sliding'"
            )
        return Window(text.strip(), length, step, kind)

    @staticmethod
    def lifetime() -> Window:
        return Window("", 0, 1, WindowKind.LIFETIME)

    def bounds(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each query time, the start (inclusive) and end (exclusive) of its events' times.

        Times are an array, or one number.

        >>> window = Window.make("1h", hop="30m")
        >>> q = np.array([90 * MINUTE + 1])
        >>> [int(t[0]) // MINUTE for t in window.bounds(q)]
        [30, 90]
        """
        if self.kind is WindowKind.LIFETIME:
            return np.full(np.shape(queries), LOWEST), queries
        start = queries - self.length
        if self.kind is WindowKind.SLIDING:
            return start, queries
        if self.kind is WindowKind.SAWTOOTH:
            return floor_to(start, self.hop), queries
        return floor_to(start, self.hop), floor_to(queries, self.hop)

    def __str__(self) -> str:
        if self.kind is WindowKind.LIFETIME:
            return "lifetime"
        hop = "" if self.kind is WindowKind.SLIDING else f", hop {self.hop // SECOND}s"
        return f"{self.text} {self.kind.value}{hop}"
