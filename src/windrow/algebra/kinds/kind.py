"""Kinds of states: how values are held, whatever they are held for.

A state has two counters, which are the same for all kinds, and the fields of its kind:

    rows     int64   rows that were lifted, those with NULL included
    count    int64   rows among them with a value
    ...              what the kind holds of the values: sums, the best k, a sketch

So SQL's three answers can be told apart: no rows, no values, a value. A kind handles its own
fields, whole columns at a time; `States` handles the counters, NULLs, and what the law forbids.
Functions with equal kinds share their states, and differ in how they lower them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ROWS, COUNT = "rows", "count"
COUNTERS = (pa.field(ROWS, pa.int64()), pa.field(COUNT, pa.int64()))

Columns = list[pa.Array]  # the fields of a kind, in order, one element for each state


@dataclass(frozen=True)
class Rows:
    """Values to lift, none of them NULL.

    `times` are int64 milliseconds, `groups` (int64) the state that each enters. `diffs` (int64)
    says how often, never zero; None is once each.
    """

    values: pa.Array
    times: np.ndarray
    groups: np.ndarray
    diffs: np.ndarray | None = None


@dataclass(frozen=True)
class Held:
    """What some states hold: the number of values, and the fields of their kind by name."""

    value_type: pa.DataType
    count: np.ndarray
    columns: Mapping[str, pa.Array]

    @property
    def empty(self) -> np.ndarray:
        """Which states hold no value."""
        found: np.ndarray = self.count == 0
        return found

    def integers(self, name: str) -> np.ndarray:
        found: np.ndarray = self.columns[name].to_numpy(zero_copy_only=False)
        return found


@dataclass(frozen=True)
class Kind(ABC):
    """How values are held. Kinds are frozen dataclasses: equal ones share states.

    `value_type` is the type of the values, where it matters to the fields.
    """

    value_type: pa.DataType | None

    @property
    @abstractmethod
    def fields(self) -> list[pa.Field]:
        """Names and types of the fields; see `codec` for what can be written."""

    @property
    def parameters(self) -> tuple[int, ...]:
        """Numbers without which the fields cannot be read; they are written with every state."""
        return ()

    @abstractmethod
    def lift(self, rows: Rows, count: int) -> Columns:
        """One state for each group in [0, count), of the values in it."""

    @abstractmethod
    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        """One state for each group, of all the values behind the states in it."""

    def invert(self, columns: Columns) -> Columns:
        """States that cancel these when combined with them. Only kinds of groups have it."""
        raise NotImplementedError(f"{type(self).__name__} is not a group")

    def is_whole(self, held: Held) -> bool:
        """Whether no state holds less than nothing, given that no count is negative."""
        return True

    def is_sound(self, held: Held) -> bool:
        """Whether states that were read from bytes agree with themselves."""
        return True


@dataclass(frozen=True)
class Nothing(Kind):
    """The counters are enough."""

    value_type: None = None

    @property
    def fields(self) -> list[pa.Field]:
        return []

    def lift(self, rows: Rows, count: int) -> Columns:
        return []

    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        return []

    def invert(self, columns: Columns) -> Columns:
        return []
