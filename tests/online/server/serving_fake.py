"""Something to serve, without a store: features that follow from the key by plain arithmetic."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from windrow.errors import NotServedError, RequestError, StaleError, StorageUnavailableError
from windrow.online.fetched import Description, Done, Fetched, Outcome, Request, Status

NOW = 1_715_923_103_596
FRESH = NOW - 1500
WINDOWS = ("1h", "1d", "7d")

TEN = Description(
    name="activity",
    keys=(("user_id", pa.int64()),),
    features=tuple((f"price_avg_{n}d", pa.float64()) for n in range(1, 11)),
    groups={f"price_avg_{n}d": "activity" for n in range(1, 11)},
    max_staleness=86_400_000,
    version="a1",
)
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [2**63 - 1, -(2**63), 2**53 + 1, 0, None]),
    "real": (pa.float64(), [0.1, math.nan, math.inf, -math.inf, None]),
    "real_or_none": (pa.float64(), [1.5, 2.5, 3.5, 4.5, 5.5]),
    "flag": (pa.bool_(), [True, False, None, True, False]),
    "text": (pa.string(), ["null", 'a"b\\c\n', "ünï \U0001f33e", "\x00\x1f", None]),
    "raw": (pa.binary(), [b"", b"\xff\x00", b"ab", None, b"null"]),
    "money": (
        pa.decimal128(38, 10),
        [Decimal("0E-10"), Decimal("-1.5000000000"), Decimal(10**27), None, Decimal("0.1")],
    ),
    "day": (
        pa.date32(),
        [dt.date.min, dt.date(2024, 2, 29), dt.date.max, None, None],
    ),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [
            dt.datetime(2024, 5, 17, 5, 18, 23, 596_000, dt.UTC),
            dt.datetime(2024, 5, 17, 5, 18, 23),  # as UTC, though it does not say so
            dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            None,
            None,
        ],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(2024, 5, 17, 5), None, None, None, None]),
    "reals": (pa.list_(pa.float64()), [[1.0, None, math.nan], [], None, [math.inf], [0.5]]),
    "moneys": (pa.list_(pa.decimal128(20, 2)), [[Decimal("1.50")], [], None, [None], []]),
    "counts": (
        pa.map_(pa.int64(), pa.float64()),
        [{3: 2.0, 4: math.nan}, {}, None, [(5, 1.0)], {-1: None}],
    ),
    "by_flag": (pa.map_(pa.bool_(), pa.int64()), [{True: 1, False: 2}, {}, None, {}, {}]),
    "by_day": (
        pa.map_(pa.date32(), pa.decimal128(10, 2)),
        [{dt.date(2024, 1, 2): Decimal("1.10")}, {}, None, {}, {}],
    ),
    "by_text": (pa.map_(pa.string(), pa.list_(pa.int64())), [{"a": [1, 2]}, {}, None, {}, {}]),
    "pair": (
        pa.struct([("amount", pa.decimal128(10, 2)), ("share", pa.float64())]),
        [{"amount": Decimal("2.00"), "share": math.nan}, {"amount": None, "share": 1.0}, None]
        + [{"amount": None, "share": None}] * 2,
    ),
}
ALL_TYPES = Description(
    name="types",
    keys=(("row", pa.int32()),),
    features=tuple((name, type) for name, (type, _) in TYPES.items()),
    version="t1",
)
KEYS: dict[str, tuple[pa.DataType, Any, Any]] = {
    # column: its type, a value as JSON, and what a fetch has to be given
    "whole": (pa.int64(), 2**63 - 1, 2**63 - 1),
    "small": (pa.int8(), -128, -128),
    "text": (pa.string(), "Zoë\x00", "Zoë\x00"),
    "flag": (pa.bool_(), True, True),
    "real": (pa.float64(), "-Infinity", -math.inf),
    "raw": (pa.binary(), "/wA=", b"\xff\x00"),
    "money": (pa.decimal128(10, 2), "12.5", Decimal("12.50")),
    "day": (pa.date32(), "2024-02-29", dt.date(2024, 2, 29)),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        "2024-05-17T07:00:00+02:00",
        dt.datetime(2024, 5, 17, 5, tzinfo=dt.UTC),
    ),
    "local": (pa.timestamp("us"), "2024-05-17T07:00:00", dt.datetime(2024, 5, 17, 7)),
}
ALL_KEYS = Description(
    name="keys",
    keys=tuple((name, type) for name, (type, _, _) in KEYS.items()),
    features=(("seen", pa.string()),),
    version="k1",
)
JOIN = Description(
    name="training",
    keys=(("user_id", pa.int64()), ("listing", pa.string())),
    inputs=(("price", pa.float64()),),
    features=(("views", pa.int64()), ("stars", pa.float64()), ("against_usual", pa.float64())),
    groups={"views": "activity", "stars": "reputation"},
    version="j1",
)


class Fake:
    """Serves the descriptions above; two more names fail as a store can."""

    waits = False

    def __init__(self, *more: Description) -> None:
        self.served = {one.name: one for one in (TEN, ALL_TYPES, ALL_KEYS, JOIN, *more)}
        self.seen: list[Any] = []
        self.closed = False

    def names(self) -> list[str]:
        return list(self.served)

    def describe(self, name: str) -> Description:
        if name not in self.served:
            raise NotServedError(f"nothing is served as {name!r}; known: {sorted(self.served)}")
        return self.served[name]

    def fetch(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        at: int | None = None,
        features: Sequence[str] | None = None,
    ) -> Fetched:
        description = self.describe(name)
        wanted = [one for one, _ in description.features if features is None or one in features]
        if features is not None:
            wanted = list(features)
        if at is not None and at < 0:
            raise RequestError(f"at is {at}, before the time up to which cells are combined")
        found = [column(name, one, keys) for one in wanted]
        return Fetched(
            name=name,
            at=NOW if at is None else at,
            names=tuple(wanted),
            keys=keys,
            columns=[values for values, _ in found],
            statuses=[statuses for _, statuses in found],
            fresh_at=[FRESH] * len(wanted),
            version=description.version,
        )

    def fetch_all(self, requests: Sequence[Request]) -> list[Outcome]:
        found: list[Outcome] = []
        for one in requests:
            try:
                found.append(self.fetch(one.name, one.keys, at=one.at, features=one.features))
            except Exception as error:
                found.append(error)
        return found

    def fetch_soon(self, requests: Sequence[Request], done: Done) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def column(
    name: str, feature: str, keys: Sequence[Mapping[str, Any]]
) -> tuple[list[Any], list[Status]]:
    """A feature's values, and their statuses: of user 7 all is stale, of those below 0 empty."""
    if name == "types":
        values = [None if key["row"] is None else TYPES[feature][1][key["row"] % 5] for key in keys]
        return values, [Status.PRESENT if v is not None else Status.EMPTY for v in values]
    if name == "keys":
        return [repr(dict(key)) for key in keys], [Status.PRESENT] * len(keys)
    values, statuses = [], []
    for key in keys:
        user = key["user_id"]
        status = Status.EMPTY if user is None or user < 0 else Status.PRESENT
        status = Status.STALE if user == 7 else status
        match feature:
            case "views":
                value: Any = 0 if status is Status.EMPTY else user
            case "stars":
                value = None if status is Status.EMPTY else len(key["listing"] or "") / 2
            case "against_usual":
                value = None if status is Status.EMPTY else key["price"]
            case _:
                value = None if status is Status.EMPTY else user + len(feature) / 4
        values.append(value)
        statuses.append(status)
    return values, statuses


class Constant(Fake):
    """The same columns whatever is asked: what is measured is the server."""

    def __init__(self) -> None:
        super().__init__()
        self._names = tuple(name for name, _ in TEN.features)
        self._columns = [[3.14159 * n] for n in range(1, 11)]
        self._statuses = [[Status.PRESENT]] * 10
        self._fresh = [FRESH] * 10

    def fetch(self, name: str, keys: Any, *, at: Any = None, features: Any = None) -> Fetched:
        return Fetched(
            name, NOW, self._names, keys, self._columns, self._statuses, self._fresh, "a1"
        )


class Troubled(Fake):
    """A store that fails in all the ways there are."""

    def fetch(self, name: str, keys: Any, *, at: Any = None, features: Any = None) -> Fetched:
        if at == 1:
            raise StorageUnavailableError("redis://secret-host:6379 does not answer")
        if at == 3:
            raise StaleError("activity: its rows were taken in up to 7, too long ago")
        if at == 2:
            raise RuntimeError("secret of the inside")
        return super().fetch(name, keys, at=at, features=features)


class Waiting(Fake):
    """A store on another machine; the user's number says for how many milliseconds it waits."""

    waits = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()  # since it began to

    def fetch(self, name: str, keys: Any, *, at: Any = None, features: Any = None) -> Fetched:
        seconds = keys[0]["user_id"] / 1000 if keys else 0
        if seconds:
            self.waiting.set()
        time.sleep(seconds)
        return super().fetch(name, keys, at=at, features=features)


def constant() -> Constant:
    return Constant()


def fake() -> Fake:
    return Fake()


def troubled() -> Troubled:
    return Troubled()
