"""An aggregate of a column over windows, as a user writes it, and the features it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from windrow.algebra.function import Function
from windrow.algebra.windows import Window
from windrow.errors import DefinitionError


@dataclass(frozen=True)
class Aggregation:
    """A function of a column, in one or more windows. Made by the functions of `agg`.

    >>> from windrow import agg
    >>> [f.name for f in agg.sum("price").over("7d", "90d").by("category").features()]
    ['price_sum_7d_by_category', 'price_sum_90d_by_category']
    >>> [f.name for f in agg.last_k("listing", 10).features()]
    ['listing_last_10']
    """

    function: Function
    column: str
    windows: tuple[Window, ...] = ()
    bucket: str | None = None
    condition: str | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise DefinitionError(
                f"agg.{self.function.name}: {self.column!r} is not the name of a column"
            )

    def over(self, *lengths: str, kind: str = "sawtooth", hop: str | None = None) -> Aggregation:
        """The same over windows of these lengths, in addition to those it has."""
        if not lengths:
            raise DefinitionError(f"agg.{self.function.name}: over() needs a window, such as '7d'")
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
        """The features are called `alias`, instead of by column and function; the rest follows."""
        if not isinstance(alias, str) or not alias.isidentifier():
            raise DefinitionError(f"named({alias!r}): give a name of letters, digits and _")
        return replace(self, alias=alias)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Tells aggregations apart, in every process: names and numbers only."""
        windows = tuple((w.text, w.length, w.hop, w.kind.value) for w in self.windows)
        return (self.function.identity, self.column, windows, self.bucket, self.condition)

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
        stem = a.alias or f"{a.column}_{a.function.label}"
        window = f"_{self.window.text}" if self.window.text else ""
        bucket = f"_by_{a.bucket}" if a.bucket else ""
        return stem + window + bucket
