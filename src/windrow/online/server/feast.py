"""Feast's protocol, `POST /get-online-features`, so that its own remote client can read from here.

A feature view is a name that is served, and so is a feature service. Entities are the columns of
keys, and further inputs where there are any. The reply is by column: the entities as they were
sent, then the features in the order of the request.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from windrow.online.fetched import Fetched, Status
from windrow.online.server.catalogue import Entry
from windrow.online.server.key_types import accepted
from windrow.online.server.refusals import Refusal, of_decoding
from windrow.online.server.values import changed

Scalar = str | int | float | bool | None
_EPOCH = "1970-01-01T00:00:00Z"
_NULL = b"null"
_ENCODER = msgspec.json.Encoder()
_STATUSES = {
    Status.PRESENT: "PRESENT",
    Status.EMPTY: "PRESENT",  # such as a count of 0; without a value it is NULL_VALUE
    Status.STALE: "OUTSIDE_MAX_AGE",
}


class Question(msgspec.Struct):
    """A request. Fields that are not known are ignored: newer clients send more of them."""

    entities: dict[str, list[Scalar]]
    features: list[str] = []
    feature_service: str | None = None
    full_feature_names: bool = False


_DECODER = msgspec.json.Decoder(Question)


class Column(msgspec.Struct):
    """The values of an entity or a feature, with the status and the time of each."""

    values: list[Any]
    statuses: list[str]
    event_timestamps: list[str]


class Names(msgspec.Struct):
    """What the columns are, in their order."""

    feature_names: list[str]


class Reply(msgspec.Struct):
    """Columns: entities, then features."""

    metadata: Names
    results: list[Column]
    status: bool = True


@dataclass(frozen=True)
class View:
    """Features of one name: those that were asked for, or all (None)."""

    name: str
    features: list[str] | None


def decode(body: bytes) -> Question:
    """The request; its entities are all of one length."""
    try:
        question = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise of_decoding(error) from None
    lengths = {len(values) for values in question.entities.values()}
    if len(lengths) != 1:
        raise Refusal(
            "bad_request", "entities has to have a list for each key column, all of one length"
        )
    return question


def views(question: Question) -> list[View]:
    """What is asked for, by view, each once."""
    if question.feature_service is not None:
        if question.features:
            raise Refusal("bad_request", "give features or a feature_service, not both")
        return [View(question.feature_service, None)]
    found: dict[str, list[str]] = {}
    for reference in question.features:
        view, colon, feature = reference.partition(":")
        if not colon or not view or not feature:
            raise Refusal(
                "bad_request",
                "a feature is written 'view:feature', such as 'activity:price_sum_7d'",
            )
        names = found.setdefault(view, [])
        if feature not in names:
            names.append(feature)
    if not found:
        raise Refusal(
            "bad_request", "give features, such as ['view:feature'], or a feature_service"
        )
    return [View(name, features) for name, features in found.items()]


def rows(question: Question, entry: Entry) -> list[dict[str, Any]]:
    """The keys of a view, one for each row of entities."""
    types = dict((*entry.description.keys, *entry.description.inputs))
    columns: list[list[Any]] = []
    for name, type in types.items():
        if name not in question.entities:
            raise Refusal("bad_request", f"{entry.description.name!r} needs the entity {name!r}")
        values: list[Any] = question.entities[name]
        if pa.types.is_timestamp(type):
            values = [_moment(value) for value in values]
        try:
            columns.append(msgspec.convert(values, list[accepted(type)]))  # type: ignore[misc]
        except msgspec.ValidationError as error:
            text = str(error).replace("`", "'").replace("$", "")
            raise Refusal("bad_request", f"entities.{name}: {text}") from None
    found = [dict(zip(types, row, strict=True)) for row in zip(*columns, strict=True)]
    entry.settle_rows(found)
    return found


def encode(
    question: Question, asked: list[View], fetched: Mapping[str, tuple[Entry, Fetched]]
) -> bytes:
    """The reply as JSON."""
    names, columns = list(question.entities), []
    for values in question.entities.values():
        count = len(values)
        columns.append(Column(values, ["PRESENT"] * count, [_EPOCH] * count))
    for reference in question.features or _all(asked, fetched):
        view, _, feature = reference.partition(":")
        names.append(f"{view}__{feature}" if question.full_feature_names else feature)
        columns.append(_column(feature, *fetched[view], looking=False))
    if len(set(names)) < len(names):
        raise Refusal(
            "bad_request",
            "two of the features have one name; ask for full_feature_names, or for each once",
        )
    reply = Reply(Names(names), columns)
    body = _ENCODER.encode(reply)
    if _NULL not in body:
        return body
    first = len(question.entities)
    for number, reference in enumerate(question.features or _all(asked, fetched)):
        view, _, feature = reference.partition(":")
        columns[first + number] = _column(feature, *fetched[view], looking=True)
    return _ENCODER.encode(reply)


def _all(asked: list[View], fetched: Mapping[str, tuple[Entry, Fetched]]) -> list[str]:
    """Of a feature service: every feature of its view."""
    return [f"{view.name}:{name}" for view in asked for name in fetched[view.name][1].names]


def _column(feature: str, entry: Entry, fetched: Fetched, *, looking: bool) -> Column:
    number = fetched.names.index(feature)
    values = fetched.columns[number]
    statuses = [
        "NULL_VALUE" if value is None and status is not Status.STALE else _STATUSES[status]
        for value, status in zip(values, fetched.statuses[number], strict=True)
    ]
    changes = entry.feast_looking if looking else entry.feast_always
    values = changed(values, changes.get(feature))
    return Column(values, statuses, [_written(fetched.fresh_at[number])] * len(values))


def _written(milliseconds: int) -> str:
    """A time as RFC 3339, with three digits or none.

    >>> _written(1715923103596), _written(0)
    ('2024-05-17T05:18:23.596Z', '1970-01-01T00:00:00Z')
    """
    seconds, rest = divmod(milliseconds, 1000)
    try:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # before all of time: nothing was taken in
        return _EPOCH
    return f"{moment}.{rest:03d}Z" if rest else f"{moment}Z"


def _moment(value: Scalar) -> Scalar | dt.datetime:
    """Feast's timestamps are seconds since 1970."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return dt.datetime.fromtimestamp(value, dt.UTC)
        except (ValueError, OverflowError, OSError):
            raise Refusal("bad_request", "a timestamp is outside of the calendar") from None
    return value
