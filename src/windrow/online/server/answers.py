"""The answer to `POST /v1/features/{name}`: by column, encoded in one call."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from windrow.online.fetched import Fetched, Status
from windrow.online.server.catalogue import Entry
from windrow.online.server.refusals import Refusal
from windrow.online.server.values import changed

_NULL = b"null"
_ENCODER = msgspec.json.Encoder()
_FIRST = -62_135_596_800_000  # the year 1, in milliseconds
_LAST = 253_402_300_799_999  # the end of the year 9999


class Answer(msgspec.Struct):
    """Features of the requested keys, in their order: `features[name][i]` is that of the i-th key.

    `at` is the time for which they hold, `fresh_at` the time up to which the rows behind each
    feature have been taken in: milliseconds since 1970, UTC.
    """

    name: str
    version: str
    at: int
    features: dict[str, list[Any]]
    statuses: dict[str, list[Status]]
    fresh_at: dict[str, int]


class _Answer(msgspec.Struct):
    """The same, where statuses and times are written already."""

    name: str
    version: str
    at: int
    features: dict[str, list[Any]]
    statuses: msgspec.Raw
    fresh_at: msgspec.Raw


def encode(fetched: Fetched, entry: Entry) -> bytes:
    """As JSON."""
    names = fetched.names
    features = dict(zip(names, fetched.columns, strict=True))
    answer = _Answer(
        fetched.name,
        fetched.version or entry.description.version,
        fetched.at,
        features,
        entry.statuses.written(names, fetched.statuses),
        entry.times.written(names, fetched.fresh_at),
    )
    for name, change in entry.always.items():
        if name in features:
            features[name] = changed(features[name], change)
    body = _ENCODER.encode(answer)
    if _NULL not in body or not entry.looking:
        return body
    for name, values in zip(names, fetched.columns, strict=True):
        features[name] = changed(values, entry.looking.get(name))
    return _ENCODER.encode(answer)


def time_of(at: int | str | None) -> int | None:
    """Milliseconds of a time that a client has sent: those, or a text of ISO 8601.

    >>> time_of("2024-05-17T05:18:23.596Z"), time_of("2024-05-17"), time_of(7)
    (1715923103596, 1715904000000, 7)
    """
    if at is None:
        return None
    if isinstance(at, str):
        try:
            moment = dt.datetime.fromisoformat(at)
        except ValueError:
            raise Refusal(
                "bad_request",
                "at is not a time; give a text such as '2024-05-17T05:18:23.596Z', or milliseconds "
                "since 1970",
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        # In whole numbers: a float of seconds has not all the milliseconds.
        at = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    if not _FIRST <= at <= _LAST:
        raise Refusal("bad_request", "at is before the year 1 or after the year 9999")
    return at
