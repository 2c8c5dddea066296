"""The aggregates, as users write them: `agg.sum("price").over("7d")`.

Each function names a column; `.over` gives windows (none is lifetime), `.by` buckets, `.where` a
condition. Lists contribute their elements; maps are aggregated per key.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.algebra.aggregation import Aggregation, make
from windrow.algebra.operations import OPERATIONS


def count(column: str) -> Aggregation:
    """How many values are not null."""
    return make("count", column)


def sum(column: str) -> Aggregation:
    """The sum: BIGINT of integers (overflow is an error), DECIMAL(38, s), or DOUBLE."""
    return make("sum", column)


def avg(column: str) -> Aggregation:
    """The mean, as DOUBLE."""
    return make("avg", column)


def min(column: str) -> Aggregation:
    """The smallest value; NaN is larger than every number."""
    return make("min", column)


def max(column: str) -> Aggregation:
    """The largest value; NaN is larger than every number."""
    return make("max", column)


def var_pop(column: str) -> Aggregation:
    """The population variance."""
    return make("var_pop", column)


def var_samp(column: str) -> Aggregation:
    """The sample variance; NULL for a single value."""
    return make("var_samp", column)


def stddev_pop(column: str) -> Aggregation:
    """The population standard deviation."""
    return make("stddev_pop", column)


def stddev_samp(column: str) -> Aggregation:
    """The sample standard deviation; NULL for a single value."""
    return make("stddev_samp", column)


variance = var_samp
stddev = stddev_samp


def skewness(column: str) -> Aggregation:
    """The skewness; NULL where all values are equal."""
    return make("skewness", column)


def kurtosis(column: str) -> Aggregation:
    """The excess kurtosis; NULL where all values are equal."""
    return make("kurtosis", column)


def first(column: str) -> Aggregation:
    """The value of the earliest event; of several at one time, the smallest value."""
    return make("first", column)


def last(column: str) -> Aggregation:
    """The value of the latest event; of several at one time, the largest value."""
    return make("last", column)


def first_k(column: str, k: int) -> Aggregation:
    """The values of the k earliest events, oldest first."""
    return make("first_k", column, k)


def last_k(column: str, k: int) -> Aggregation:
    """The values of the k latest events, newest first."""
    return make("last_k", column, k)


def top_k(column: str, k: int) -> Aggregation:
    """The k largest values, largest first; equal values are all kept."""
    return make("top_k", column, k)


def bottom_k(column: str, k: int) -> Aggregation:
    """The k smallest values, smallest first; equal values are all kept."""
    return make("bottom_k", column, k)


def unique_top_k(column: str, k: int) -> Aggregation:
    """The k largest distinct values, largest first."""
    return make("unique_top_k", column, k)


def unique_count(column: str) -> Aggregation:
    """How many distinct values there are, exactly."""
    return make("unique_count", column)


def bounded_unique_count(column: str, k: int) -> Aggregation:
    """How many distinct values there are, but at most k."""
    return make("bounded_unique_count", column, k)


def approx_unique_count(column: str) -> Aggregation:
    """About how many distinct values there are."""
    return make("approx_unique_count", column)


def histogram(column: str, k: int | None = None) -> Aggregation:
    """How often each value occurs; with `k`, of the k most frequent values."""
    return make("histogram", column, k)


def approx_frequent_k(column: str, k: int) -> Aggregation:
    """About the k most frequent values and how often they occur."""
    return make("approx_frequent_k", column, k)


def approx_percentile(column: str, percentiles: Sequence[float] = (0.5,)) -> Aggregation:
    """About the values below which these fractions (0 to 1) of all values lie."""
    return Aggregation(OPERATIONS["approx_percentile"], column, percentiles=tuple(percentiles))


def bool_and(column: str) -> Aggregation:
    """Whether all values are true."""
    return make("bool_and", column)


def bool_or(column: str) -> Aggregation:
    """Whether any value is true."""
    return make("bool_or", column)


def collect_list(column: str) -> Aggregation:
    """All values, by time, then by value."""
    return make("collect_list", column)
