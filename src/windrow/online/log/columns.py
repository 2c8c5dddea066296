"""The columns of a serving log, and how answers become rows of them.

    _log_at         the time that was asked for, `q`
    _log_asked      whether the request named it; otherwise it is the server's now
    _log_clock      when the request was answered, by the server's clock
    _log_writer     who wrote the row: the same for all rows of a process
    _log_request    the number of the request, of this writer
    _log_key        the place of the key in the request
    _log_statuses   a letter for each feature, in their order (see LETTERS)
    _log_fresh      for each group up to when its rows had been taken in
    _log_error      why the request failed, if a record was damaged

Then come the columns of the keys, further inputs, and the features, by their own names and types.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from windrow.errors import SchemaError
from windrow.online.fetched import Description, Fetched, Status
from windrow.rows.types import canonical_type

PREFIX = "_log_"
AT, ASKED, CLOCK = "_log_at", "_log_asked", "_log_clock"
WRITER, REQUEST, KEY = "_log_writer", "_log_request", "_log_key"
STATUSES, FRESH, ERROR = "_log_statuses", "_log_fresh", "_log_error"
MOMENT = pa.timestamp("us", tz="UTC")

LETTERS = {Status.PRESENT: "p", Status.EMPTY: "e", Status.STALE: "s"}
# By identity: an Enum computes its hash in Python.
_LETTER_OF = {id(status): letter for status, letter in LETTERS.items()}
NOT_ASKED = "-"  # the request named other features
FAILED = "f"  # the request was not answered: a record is damaged

t = pa.types


class Taken(NamedTuple):
    """An answer that is to be logged, or (`error`) one that could not be given.

    `values` are the answer's own lists, for each feature one: what its receiver may change has to
    be copied before. `letters` are those of its statuses, feature by feature, key by key.
    """

    number: int
    at: int
    asked: bool
    clock: int
    keys: Sequence[Mapping[str, Any]]
    features: tuple[str, ...]
    values: Sequence[Sequence[Any]]
    fresh_at: Sequence[int]
    letters: str = ""
    error: str | None = None

    @property
    def size(self) -> int:
        """How many values are held in memory."""
        return size_of(len(self.keys), len(self.values))


def letters_of(statuses: Sequence[Sequence[Status]]) -> str:
    return "".join(map(_LETTER_OF.__getitem__, map(id, chain.from_iterable(statuses))))


def size_of(keys: int, features: int) -> int:
    return keys * (features + 4)


def copied(fetched: Fetched) -> Fetched:
    """The same answer, whatever becomes of the lists of this one."""
    return replace(
        fetched,
        keys=[dict(key) for key in fetched.keys],
        columns=[list(values) for values in fetched.columns],
    )


@dataclass(frozen=True)
class LogColumns:
    """The table of one name and version."""

    description: Description

    @cached_property
    def given(self) -> tuple[tuple[str, pa.DataType], ...]:
        """What requests give: keys and further inputs."""
        return (*self.description.keys, *self.description.inputs)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.description.groups.values()))

    @cached_property
    def schema(self) -> pa.Schema:
        own = [(name, type_) for name, type_ in (*self.given, *self.description.features)]
        for name, _ in own:
            if name.startswith(PREFIX):
                raise SchemaError(
                    f"{self.description.name}: column {name!r}: names that start with {PREFIX!r} "
                    "belong to the serving log; rename it"
                )
        fresh = [pa.field(name, MOMENT) for name in self.groups] or [pa.field("none", MOMENT)]
        return pa.schema(
            [
                (AT, MOMENT),
                (ASKED, pa.bool_()),
                (CLOCK, MOMENT),
                (WRITER, pa.string()),
                (REQUEST, pa.int64()),
                (KEY, pa.int32()),
                (STATUSES, pa.string()),
                (FRESH, pa.struct(fresh)),
                (ERROR, pa.string()),
                *((name, canonical_type(type_, name)) for name, type_ in own),
            ]
        )

    def table(
        self, taken: Sequence[Taken], writer: str, breathe: Callable[[], None] = lambda: None
    ) -> pa.Table:
        """Rows of a table: one for each key of each answer.

        `breathe` is called between columns, for requests to have their turn.
        """
        sizes = np.array([len(one.keys) for one in taken], np.int64)
        total = int(sizes.sum())
        ends = np.cumsum(sizes)
        columns: list[pa.Array] = [
            _moments(np.repeat([one.at for one in taken], sizes)),
            pa.array(np.repeat([one.asked for one in taken], sizes), pa.bool_()),
            _moments(np.repeat([one.clock for one in taken], sizes)),
            pa.repeat(pa.scalar(writer, pa.string()), total),
            pa.array(np.repeat([one.number for one in taken], sizes), pa.int64()),
            pa.array(np.arange(total) - np.repeat(ends - sizes, sizes), pa.int32()),
        ]
        alike = all(one.features is self.names or one.features == self.names for one in taken)
        breathe()
        if alike and total == len(taken):  # one key each, and all features: most are
            columns.append(self._texts(taken))
        else:
            texts = list(chain.from_iterable(map(self._statuses, taken)))
            columns.append(pa.array(texts, pa.string()))
        breathe()
        columns.append(self._fresh(taken, sizes))
        failed = any(one.error is not None for one in taken)
        errors = [one.error for one in taken for _ in one.keys] if failed else [None] * total
        columns.append(pa.array(errors, pa.string()))
        types = self.schema
        for name, _ in self.given:
            breathe()
            values = [key.get(name) for one in taken for key in one.keys]
            columns.append(_given(values, types.field(name).type))
        for number, (name, _) in enumerate(self.description.features):
            breathe()
            if alike:
                several = [one.values[number] for one in taken]
            else:
                several = [self._values(one, name) for one in taken]
            columns.append(pa.array(list(chain.from_iterable(several)), types.field(name).type))
        return pa.table(columns, schema=types)

    def _values(self, one: Taken, name: str) -> Sequence[Any]:
        place = self._places(one.features).get(name)
        if place is None:
            return [None] * len(one.keys)
        return one.values[place]

    def _places(self, names: tuple[str, ...]) -> Mapping[str, int]:
        """Where the features of an answer are; most answers have the same ones."""
        found = self._known_places.get(names)
        if found is None:
            found = self._known_places[names] = {name: i for i, name in enumerate(names)}
        return found

    @cached_property
    def _known_places(self) -> dict[tuple[str, ...], dict[str, int]]:
        return {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.description.features)

    def _statuses(self, one: Taken) -> list[str]:
        """For each key the letters of all features, those that were not asked for among them."""
        if one.error is not None:
            return [FAILED * len(self.names)] * len(one.keys)
        places, missing = self._places(one.features), [NOT_ASKED] * len(one.keys)
        by_feature: list[Sequence[str]] = [
            self._letters(one, places[name]) if name in places else missing for name in self.names
        ]
        return ["".join(text) for text in zip(*by_feature, strict=True)]

    def _letters(self, one: Taken, place: int) -> Sequence[str]:
        count = len(one.keys)
        return one.letters[place * count : (place + 1) * count]

    def _texts(self, taken: Sequence[Taken]) -> pa.Array:
        """The letters of answers for one key each, without a loop over them."""
        text = "".join([one.letters for one in taken]).encode()
        offsets = np.arange(len(taken) + 1, dtype=np.int32) * np.int32(len(self.names))
        return pa.StringArray.from_buffers(len(taken), pa.py_buffer(offsets), pa.py_buffer(text))

    def fresh_times(self, taken: Sequence[Taken]) -> dict[str, np.ndarray]:
        """By group, up to when its rows had been taken in, for each answer; -1 if it has none."""
        found = {name: np.full(len(taken), -1) for name in self.groups}
        by_features: dict[tuple[str, ...], list[int]] = {}
        for place, one in enumerate(taken):
            by_features.setdefault(one.features, []).append(place)
        for features, places in by_features.items():
            known = [taken[place].fresh_at for place in places]
            for group, at in self._places_of_groups(features).items():
                times = np.array([one[at] for one in known], np.int64)
                found[group][places] = times.clip(0, _LATEST)
        return found

    def _places_of_groups(self, features: tuple[str, ...]) -> dict[str, int]:
        """For each group the place of its first feature among these."""
        places = self._group_places.get(features)
        if places is None:
            places = {}
            for place, name in enumerate(features):
                group = self.description.groups.get(name)
                if group is not None:
                    places.setdefault(group, place)
            self._group_places[features] = places
        return places

    @cached_property
    def _group_places(self) -> dict[tuple[str, ...], dict[str, int]]:
        return {}

    def _fresh(self, taken: Sequence[Taken], sizes: np.ndarray) -> pa.Array:
        kind = self.schema.field(FRESH).type
        known = self.fresh_times(taken)
        none = np.full(len(taken), -1)
        arrays = []
        for field in kind:
            times = np.repeat(known.get(field.name, none), sizes)
            found = pa.array(times, pa.int64(), mask=times < 0)
            arrays.append(found.cast(_MILLIS).cast(MOMENT))
        return pa.StructArray.from_arrays(arrays, fields=list(kind))


_MILLIS = pa.timestamp("ms", tz="UTC")
_LATEST = 253_402_300_799_999  # the end of the year 9999


def _moments(millis: np.ndarray) -> pa.Array:
    return pa.array(millis, pa.int64()).cast(_MILLIS).cast(MOMENT)


def _given(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Keys and inputs as they were given; a request may write some types in several ways."""
    try:
        if t.is_binary(type_) and any(isinstance(value, str) for value in values):
            raise TypeError  # Arrow would take its UTF-8
        return pa.array(values, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        read = _reader(type_)
        return pa.array([None if value is None else read(value) for value in values], type_)


def _reader(type_: pa.DataType) -> Callable[[Any], Any]:
    """What `online.keys` accepts for a type, as Arrow takes it."""
    if t.is_integer(type_):
        return int
    if t.is_floating(type_):
        return lambda value: float(str(value).replace("Infinity", "inf"))
    if t.is_decimal(type_):
        return lambda value: Decimal(value).quantize(Decimal(1).scaleb(-type_.scale))
    if t.is_date(type_):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if t.is_timestamp(type_):
        return lambda value: _moment(value, type_)
    if t.is_binary(type_):
        return lambda value: base64.b64decode(value) if isinstance(value, str) else bytes(value)
    return lambda value: value


def _moment(value: Any, type_: pa.DataType) -> datetime:
    found: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return aware if type_.tz else aware.astimezone(UTC).replace(tzinfo=None)
