"""What a fetch answers: features by column, each value with its status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import pyarrow as pa


class Status(Enum):
    """Of one value. A key that was never seen has the features of an empty window."""

    PRESENT = "present"
    EMPTY = "empty"
    STALE = "stale"


@dataclass(slots=True)
class Fetched:
    """Features of some keys at one time, column by column.

    `columns[c][i]` is the value of feature `names[c]` for the i-th of the requested `keys`: an int,
    float, bool, str, bytes, Decimal, date, datetime, list or dict, or None. `statuses[c][i]` is its
    status. `fresh_at[c]` is the time, in milliseconds, up to which the rows behind feature `c` have
    been taken in. `version` is that of the definition by which they were computed.
    """

    name: str
    at: int
    names: tuple[str, ...]
    keys: Sequence[Mapping[str, Any]]
    columns: list[list[Any]]
    statuses: list[list[Status]]
    fresh_at: list[int]
    version: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each requested key: the features by name."""
        return [
            dict(zip(self.names, values, strict=True)) for values in zip(*self.columns, strict=True)
        ]


class Request(NamedTuple):
    """Features of keys that are asked for: at a time or now, all of them or some by name."""

    name: str
    keys: Sequence[Mapping[str, Any]]
    at: int | None = None
    features: Sequence[str] | None = None


Outcome = Fetched | Exception
Done = Callable[[list[Outcome] | None], None]


class Served(Protocol):
    """What a server needs to know of everything that can be fetched.

    Its methods may be called from several threads at once. `waits` says that they may have to wait
    for a store; a server then calls only `fetch_soon` where others would wait, too.
    """

    @property
    def waits(self) -> bool:
        """Whether a fetch may have to wait."""

    def names(self) -> list[str]:
        """The groups, joins and views that can be fetched."""

    def describe(self, name: str) -> Description:
        """The keys and features of one; a NotServedError for an unknown name."""

    def fetch(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        at: int | None = None,
        features: Sequence[str] | None = None,
    ) -> Fetched:
        """The features of keys at a time, by default now; of all features, or of some by name.

        Input that is wrong is a RequestError, which says what is wrong with which key.
        """

    def fetch_all(self, requests: Sequence[Request]) -> list[Outcome]:
        """The answer to each request, or its error: that of one is nothing to the others."""

    def fetch_soon(self, requests: Sequence[Request], done: Done) -> bool:
        """The same on an event loop, without waiting; `done` is called there with the outcomes.

        False if that is not possible now, and nothing is under way. `done` is given None if it
        turned out not to be. In both cases `fetch_all` answers, or says what is wrong.
        """


@dataclass(frozen=True)
class Description:
    """What can be fetched under a name.

    `keys` and `features` are names with Arrow types; `inputs` are further columns that a request
    has to give, of which derived features are made. `groups` says for each feature its group.
    """

    name: str
    keys: tuple[tuple[str, pa.DataType], ...]
    features: tuple[tuple[str, pa.DataType], ...]
    inputs: tuple[tuple[str, pa.DataType], ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    max_staleness: int | None = None
    version: str = ""
