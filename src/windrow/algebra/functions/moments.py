"""Variances, standard deviations, skewness and kurtosis, as Spark's functions of these names.

Over ranges and spans a tree has count, mean and sums of powers 2 to 4 of the deviations (m2 to m4)
in each node. States hold exact sums of powers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from windrow.algebra.arrays import as_float64, null_where
from windrow.algebra.codec import binary_parts
from windrow.algebra.function import Function
from windrow.algebra.kinds.kind import Held, Kind
from windrow.algebra.kinds.moments import Central
from windrow.algebra.kinds.numbers import POWERS, SPECIAL, Numbers
from windrow.algebra.law import Law
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.registry import declare
from windrow.algebra.spans import SpannedColumn, tree_moments
from windrow.algebra.tree import range_moments
from windrow.algebra.types import NUMBERS

Statistic = tuple[np.ndarray, np.ndarray]  # values, and where there is none


@dataclass(frozen=True)
class Moment(Function):
    """A function of the count and the first `powers` moments."""

    law = Law.GROUP
    takes = NUMBERS
    powers: ClassVar[int]

    def result(self, value: pa.DataType) -> pa.DataType:
        return pa.float64()

    def state(self, value: pa.DataType) -> Kind:
        return Numbers(value, powers=self.powers)

    @abstractmethod
    def _of_deviations(
        self, n: np.ndarray, m2: np.ndarray, m3: np.ndarray, m4: np.ndarray
    ) -> Statistic:
        """The statistic from the count (float64, not 0) and sums of powers of deviations."""

    @abstractmethod
    def _of_central(self, central: Central) -> Statistic:
        """The statistic from exact central moments of finite values."""

    def over_ranges(self, column: Column, ranges: Ranges) -> pa.Array:
        found = range_moments(as_float64(column.values), ranges.start, ranges.end)
        return self._lowered(found, ranges.empty)

    def over_spans(self, column: SpannedColumn) -> pa.Array:
        spans = column.spans
        found = tree_moments(as_float64(column.values), spans.first, spans.last, spans.queries)
        return self._lowered(found, spans.counts == 0)

    def _lowered(self, moments: np.ndarray, nothing: np.ndarray) -> pa.Array:
        n, _, m2, m3, m4 = moments.T
        with np.errstate(all="ignore"):
            result, lacking = self._of_deviations(n, m2, m3, m4)
        return null_where(result, nothing | lacking, pa.float64())

    def lower(self, held: Held) -> pa.Array:
        sums = [binary_parts(held.columns[power]) for power in POWERS[: self.powers]]
        special = sum(held.integers(name) for name in SPECIAL) > 0
        result, lacking = self._of_central(Central.of(held.count, sums))
        # Of values that are not finite, NaN; unless there is no result of so few at all.
        few = held.count < self._least
        result = np.where(special, np.nan, result)
        return null_where(result, few | (lacking & ~special), pa.float64())

    @property
    def _least(self) -> int:
        """The least number of values that it is a statistic of."""
        return 1


@dataclass(frozen=True)
class Spread(Moment):
    """m2 / n, or of a sample m2 / (n - 1); or the root."""

    code = 3
    powers = 2
    sample: ClassVar[bool]
    root: ClassVar[bool]

    @property
    def _least(self) -> int:
        return 2 if self.sample else 1

    def _of_deviations(
        self, n: np.ndarray, m2: np.ndarray, m3: np.ndarray, m4: np.ndarray
    ) -> Statistic:
        variance = m2 / (n - 1 if self.sample else n)
        return np.sqrt(variance) if self.root else variance, n < self._least

    def _of_central(self, central: Central) -> Statistic:
        lacking = np.zeros(central.counts.size, np.bool_)
        if not self.root:
            return central.variance(sample=self.sample), lacking
        result = central.deviation(sample=self.sample)
        return np.where(_is_beyond(central), np.inf, result), lacking


@dataclass(frozen=True)
class Shape(Moment):
    """A quotient by a power of m2: there is none where all values are equal."""

    def _of_central(self, central: Central) -> Statistic:
        result = self._quotient(central)
        # Without a spread there is no shape: 0 / 0 is the only NaN that finite sums give.
        return np.where(_is_beyond(central), np.nan, result), np.isnan(result)

    @abstractmethod
    def _quotient(self, central: Central) -> np.ndarray: ...


def _is_beyond(central: Central) -> np.ndarray:
    """Where the variance is more than DOUBLE holds.

    It is infinite then, and what is derived from it is as in DOUBLE's arithmetic, though wide sums
    would know better.
    """
    beyond: np.ndarray = np.isinf(central.variance(sample=False))
    return beyond


@declare
@dataclass(frozen=True)
class VarPop(Spread):
    """The population variance."""

    name = "var_pop"
    sample = False
    root = False


@declare
@dataclass(frozen=True)
class VarSamp(Spread):
    """The sample variance; NULL for a single value."""

    name = "var_samp"
    aliases = ("variance",)
    sample = True
    root = False


@declare
@dataclass(frozen=True)
class StddevPop(Spread):
    """The population standard deviation."""

    name = "stddev_pop"
    sample = False
    root = True


@declare
@dataclass(frozen=True)
class StddevSamp(Spread):
    """The sample standard deviation; NULL for a single value."""

    name = "stddev_samp"
    aliases = ("stddev",)
    sample = True
    root = True


@declare
@dataclass(frozen=True)
class Skewness(Shape):
    """The skewness; NULL where all values are equal."""

    name = "skewness"
    code = 4
    powers = 3

    def _of_deviations(
        self, n: np.ndarray, m2: np.ndarray, m3: np.ndarray, m4: np.ndarray
    ) -> Statistic:
        return np.sqrt(n) * m3 / np.sqrt(m2 * m2 * m2), m2 == 0

    def _quotient(self, central: Central) -> np.ndarray:
        return central.skewness()


@declare
@dataclass(frozen=True)
class Kurtosis(Shape):
    """The excess kurtosis; NULL where all values are equal."""

    name = "kurtosis"
    code = 5
    powers = 4

    def _of_deviations(
        self, n: np.ndarray, m2: np.ndarray, m3: np.ndarray, m4: np.ndarray
    ) -> Statistic:
        return n * m4 / (m2 * m2) - 3.0, m2 == 0

    def _quotient(self, central: Central) -> np.ndarray:
        return central.kurtosis()
