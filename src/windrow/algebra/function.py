"""What an aggregate is: a function, declared once, without column, window or bucket.

A declaration is a frozen dataclass whose fields are the function's parameters. It says

    law            what may be done with its states, see `law`
    takes, result  the types it takes, and the type it gives for each of them
    of_nothing     its value over no values: 0 for counts, NULL for the rest
    state, lower   how values are held, see `kinds`, and the result of these states
    over_ranges    its results over ranges of rows, see `ranges`
    over_spans     its results where each row counts for a span of queries, see `spans`
    over_both      its results where most rows count by ranges and some by spans, see `both`
    words          its states as machine words, see `words`

The last four follow from the states, and are declared where there is a faster way. Everything else
dispatches on the declaration; no other place tests for a function's name.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from windrow.algebra.both import Both
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.law import Law
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.spans import SpannedColumn
from windrow.algebra.types import Values
from windrow.algebra.words import Words
from windrow.errors import DefinitionError

LARGEST_K = 10_000


@dataclass(frozen=True)
class Function(ABC):
    """An aggregate function with its parameters, which are the fields of the dataclass."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    law: ClassVar[Law]
    takes: ClassVar[Values]
    of_nothing: ClassVar[int | None] = None
    ordered: ClassVar[bool] = False  # whether the order of rows, not only their values, counts
    code: ClassVar[int]  # of its states; functions with equal states share it

    @property
    def label(self) -> str:
        """The function as feature names show it: `sum`, `last_10`."""
        return self.name

    @property
    def identity(self) -> tuple[Any, ...]:
        """Tells functions apart, in every process: names and numbers only."""
        return (self.name, *(getattr(self, field.name) for field in dataclasses.fields(self)))

    def result_type(self, value: pa.DataType, where: str) -> pa.DataType:
        """The result's type for values of type `value`, or a DefinitionError that names `where`."""
        if value not in self.takes:
            raise DefinitionError(f"{where}: {self.name} takes {self.takes.words}, not {value}")
        return self.result(value)

    @abstractmethod
    def result(self, value: pa.DataType) -> pa.DataType:
        """The result's type for values of a type that it takes."""

    @abstractmethod
    def state(self, value: pa.DataType) -> Kind:
        """How values of a type are held in states."""

    @abstractmethod
    def lower(self, held: Held) -> pa.Array:
        """The result for each state; `of_nothing` for those that hold no value."""

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array | None:
        """The result for each range of the column's values; None: by states."""
        return None

    def over_spans(self, column: SpannedColumn) -> pa.Array | None:
        """The result for each query, of the values whose span holds it; None: by states."""
        return None

    def over_both(self, both: Both) -> pa.Array | None:
        """The result for each query, of its range and of spans; None: of spans, for all values."""
        return None

    def words(self, value: pa.DataType) -> Words | None:
        """Its states over values of a type as machine words; None: by states."""
        return None


@dataclass(frozen=True)
class Limited(Function):
    """A function of the best, or the most frequent, k."""

    k: int

    def __post_init__(self) -> None:
        check_k(self.name, self.k)

    @property
    def label(self) -> str:
        return f"{self.name.removesuffix('_k')}_{self.k}"


def check_k(name: str, k: Any) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise DefinitionError(f"agg.{name}: k is {k!r}; it has to be 1 or more")
    if k > LARGEST_K:
        raise DefinitionError(f"agg.{name}: k is {k}; at most {LARGEST_K}")
