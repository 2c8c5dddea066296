"""What a fetch answers: features by column, each value with its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa


class Status(Enum):
    """Of one value. A key that was never seen has the features of an empty window."""

    PRESENT = "present"
    EMPTY = "empty"
    STALE = "stale"


@dataclass(frozen=True)
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


class Served(Protocol):
    """What a server needs to know of everything that can be fetched.

    Its methods may be called from several threads at once. `waits` says that they may have to wait
    for another machine; a server then never calls them where others would wait, too.
    """

    @property
    def waits(self) -> bool:
        """Whether a fetch may wait for another machine."""

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
