"""What is known of each name that is served: its description, and what follows from it.

Kept for a second, then asked for again, so that a server notices new and changed definitions by
itself. What was derived from a description is kept as long as the description is the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypedDict

import msgspec

from windrow.errors import NotServedError
from windrow.online.fetched import Description, Served
from windrow.online.server.key_types import accepted, settled
from windrow.online.server.limits import KEPT
from windrow.online.server.refusals import Refusal
from windrow.online.server.values import Change, changes

Rows = Sequence[Mapping[str, Any]]
Settle = tuple[tuple[str, Callable[[Any], Any]], ...]


class Repeated:
    """Writes lists by name as JSON, where one answer after the other has the same.

    Statuses are nearly always all `present`, and times move with the stream, not with requests. To
    compare is ten times faster than to write.
    """

    _MOST = 64  # sets of features and numbers of keys

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[str, ...], int], tuple[list[Any], msgspec.Raw]] = {}

    def written(self, names: tuple[str, ...], lists: list[Any]) -> msgspec.Raw:
        """`{name: list, ...}`; `lists` has one for each name, and is not changed later on."""
        first = lists[0] if lists else None
        key = (names, len(first) if isinstance(first, list) else 1)
        before, raw = self._last.get(key, _NOTHING)
        if before == lists:
            return raw
        raw = msgspec.Raw(msgspec.json.encode(dict(zip(names, lists, strict=True))))
        if len(self._last) >= self._MOST:
            self._last.clear()
        self._last[key] = (lists, raw)
        return raw


@dataclass(frozen=True)
class Entry:
    """A description, and what is made of it once."""

    description: Description

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The types of what a request gives for each key: its columns, then further inputs."""
        given = (*self.description.keys, *self.description.inputs)
        return {name: accepted(type) for name, type in given}

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decodes a body; checks the type of every value."""
        key = TypedDict("key", self.columns)  # type: ignore[misc]
        body = msgspec.defstruct(
            "body",
            [
                ("keys", list[key]),
                ("at", int | str | None, None),
                ("features", list[str] | None, None),
            ],
            forbid_unknown_fields=True,
        )
        return msgspec.json.Decoder(body)

    @cached_property
    def settle(self) -> Settle:
        """Of the columns that msgspec alone does not decode."""
        given = (*self.description.keys, *self.description.inputs)
        found = ((name, settled(type)) for name, type in given)
        return tuple((name, one) for name, one in found if one is not None)

    @cached_property
    def always(self) -> dict[str, Change]:
        """By feature: what is done to values before they are written, if anything."""
        return self._changes("always", seconds=False)

    @cached_property
    def looking(self) -> dict[str, Change]:
        """The same, where floats that are not finite are looked for."""
        return self._changes("looking", seconds=False)

    @cached_property
    def feast_always(self) -> dict[str, Change]:
        """As `always`, for Feast's protocol."""
        return self._changes("always", seconds=True)

    @cached_property
    def feast_looking(self) -> dict[str, Change]:
        """As `looking`, for Feast's protocol."""
        return self._changes("looking", seconds=True)

    @cached_property
    def features(self) -> frozenset[str]:
        """The names of all features."""
        return frozenset(name for name, _ in self.description.features)

    @cached_property
    def statuses(self) -> Repeated:
        """Statuses as JSON."""
        return Repeated()

    @cached_property
    def times(self) -> Repeated:
        """Times up to which rows have been taken in, as JSON."""
        return Repeated()

    def settle_rows(self, rows: list[dict[str, Any]]) -> None:
        """Make keys of what was decoded, in place."""
        for name, one in self.settle:
            for number, row in enumerate(rows):
                if (value := row[name]) is not None:
                    try:
                        row[name] = one(value)
                    except (ValueError, ArithmeticError) as error:
                        raise Refusal("bad_request", f"keys[{number}].{name}: {error}") from error

    def check_features(self, names: Sequence[str], code: str = "bad_request") -> None:
        """Refuse a feature that there is not."""
        for name in names:
            if name not in self.features:
                close = get_close_matches(name, self.features, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                shown = name if len(name) <= 100 else f"{name[:97]}..."
                raise Refusal(code, f"{self.description.name!r} has no feature {shown!r}{hint}")

    def _changes(self, when: str, *, seconds: bool) -> dict[str, Change]:
        found = {
            name: getattr(changes(type, seconds=seconds), when)
            for name, type in self.description.features
        }
        return {name: one for name, one in found.items() if one is not None}


class Catalogue:
    """Entries by name, each for a second."""

    def __init__(self, served: Served, clock: Callable[[], float] = time.monotonic) -> None:
        self._served, self._clock = served, clock
        self._kept: dict[str, tuple[float, Entry]] = {}

    def known(self, name: str) -> Entry | None:
        """The entry, if it was looked up within a second."""
        until, entry = self._kept.get(name, _NONE)
        return entry if self._clock() < until else None

    def look_up(self, name: str) -> Entry:
        """The entry, with the description as it is now; may read the store."""
        try:
            description = self._served.describe(name)
        except NotServedError:
            self._kept.pop(name, None)
            raise
        _, before = self._kept.get(name, _NONE)
        same = before is not None and before.description == description
        entry = before if same and before is not None else Entry(description)
        self._kept[name] = (self._clock() + KEPT, entry)
        return entry

    def forget(self, name: str) -> None:
        """Look it up at the next request."""
        self._kept.pop(name, None)


_NOTHING = (None, msgspec.Raw(b""))
_NONE: tuple[float, Any] = (-math.inf, None)
