"""An aggregate of a column over windows, as a user writes it, and the features it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from windrow.algebra.operations import OPERATIONS, Operation
from windrow.algebra.windows import Window
from windrow.errors import DefinitionError

LARGEST_K = 10_000


@dataclass(frozen=True)
class Aggregation:
    """An operation over a column, in one or more windows. Made by the functions of `agg`.

    >>> from windrow import agg
    >>> [f.name for f in agg.sum("price").over("7d", "90d").by("category").features()]
    ['price_sum_7d_by_category', 'price_sum_90d_by_category']
    >>> [f.name for f in agg.last_k("listing", 10).features()]
    ['listing_last_10']
    """

    operation: Operation
    column: str
    k: int | None = None
    percentiles: tuple[float, ...] = ()
    windows: tuple[Window, ...] = ()
    bucket: str | None = None
    condition: str | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        name = self.operation.name
        if not isinstance(self.column, str) or not self.column:
            raise DefinitionError(f"agg.{name}: {self.column!r} is not the name of a column")
        if self.operation.has_k and not (self.k is None and self.operation.k_is_optional):
            if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
                raise DefinitionError(f"agg.{name}: k is {self.k!r}; it has to be 1 or more")
            if self.k > LARGEST_K:
                raise DefinitionError(f"agg.{name}: k is {self.k}; at most {LARGEST_K}")
        if name == "approx_percentile":
            _check_percentiles(self.percentiles)

    def over(self, *lengths: str, kind: str = "sawtooth", hop: str | None = None) -> Aggregation:
        """The same over windows of these lengths, in addition to those it has."""
        if not lengths:
            raise DefinitionError(f"agg.{self.operation.name}: over() needs a window, such as '7d'")
        made = tuple(Window.make(length, kind, hop) for length in lengths)
        return replace(self, windows=self.windows + made)

    def by(self, bucket: str) -> Aggregation:
        """A map from each value of the column `bucket` to the result over its rows."""
        if not isinstance(bucket, str) or not bucket:
            raise DefinitionError(f"by({bucket!r}): give the name of a column")
        return replace(self, bucket=bucket)

    def where(self, condition: str) -> Aggregation:
        """Only over rows for which `condition` (Spark SQL) is true."""
        if not isinstance(condition, str) or not condition.strip():
            raise DefinitionError(f"where({condition!r}): give a condition in Spark SQL")
        return replace(self, condition=condition)

    def named(self, alias: str) -> Aggregation:
        """The features are called `alias`, then the window, instead of by column and operation."""
        if not isinstance(alias, str) or not alias.isidentifier():
            raise DefinitionError(f"named({alias!r}): give a name of letters, digits and _")
        return replace(self, alias=alias)

    @property
    def label(self) -> str:
        """The operation as feature names show it: `sum`, `last_10`."""
        name = self.operation.name
        if self.k is None:
            return name
        return f"{name.removesuffix('_k')}_{self.k}"

    @property
    def identity(self) -> tuple[Any, ...]:
        """Tells aggregations apart, in every process: names and numbers only."""
        windows = tuple((w.text, w.length, w.hop, w.kind.value) for w in self.windows)
        name = self.operation.name
        return (name, self.column, self.k, self.percentiles, windows, self.bucket, self.condition)

    def features(self) -> Iterator[Feature]:
        for window in self.windows or (Window.lifetime(),):
            yield Feature(self, window)


@dataclass(frozen=True)
class Feature:
    """One aggregation in one window: a column of the result."""

    aggregation: Aggregation
    window: Window

    @property
    def name(self) -> str:
        a = self.aggregation
        stem = a.alias or f"{a.column}_{a.label}"
        window = f"_{self.window.text}" if self.window.text else ""
        bucket = f"_by_{a.bucket}" if a.bucket and not a.alias else ""
        return stem + window + bucket


def _check_percentiles(values: Any) -> None:
    if not values or not all(isinstance(v, int | float) and 0 <= v <= 1 for v in values):
        raise DefinitionError(
            f"agg.approx_percentile: percentiles are {list(values)}; give numbers from 0 to 1"
        )


def make(name: str, column: str, k: int | None = None) -> Aggregation:
    return Aggregation(OPERATIONS[name], column, k)
