"""Made by `make stubs` from the declarations in algebra/functions; do not edit."""

from collections.abc import Callable, Sequence

from windrow.algebra.aggregation import Aggregation

def bool_and(column: str) -> Aggregation:
    """Whether all values are true."""

def bool_or(column: str) -> Aggregation:
    """Whether any value is true."""

def count(column: str) -> Aggregation:
    """How many values are not null."""

def unique_count(column: str) -> Aggregation:
    """How many distinct values there are, exactly."""

def bounded_unique_count(column: str, k: int) -> Aggregation:
    """How many distinct values there are, but at most k."""

def approx_unique_count(column: str) -> Aggregation:
    """About how many distinct values there are."""

def histogram(column: str, k: int | None = None) -> Aggregation:
    """How often each value occurs; with `k`, of the k most frequent values."""

def approx_frequent_k(column: str, k: int) -> Aggregation:
    """About the k most frequent values and how often they occur."""

def min(column: str) -> Aggregation:
    """The smallest value; NaN is larger than every number."""

def max(column: str) -> Aggregation:
    """The largest value; NaN is larger than every number."""

def first(column: str) -> Aggregation:
    """The value of the earliest event; of several at one time, the smallest value."""

def last(column: str) -> Aggregation:
    """The value of the latest event; of several at one time, the largest value."""

def var_pop(column: str) -> Aggregation:
    """The population variance."""

def var_samp(column: str) -> Aggregation:
    """The sample variance; NULL for a single value."""

def variance(column: str) -> Aggregation:
    """The sample variance; NULL for a single value."""

def stddev_pop(column: str) -> Aggregation:
    """The population standard deviation."""

def stddev_samp(column: str) -> Aggregation:
    """The sample standard deviation; NULL for a single value."""

def stddev(column: str) -> Aggregation:
    """The sample standard deviation; NULL for a single value."""

def skewness(column: str) -> Aggregation:
    """The skewness; NULL where all values are equal."""

def kurtosis(column: str) -> Aggregation:
    """The excess kurtosis; NULL where all values are equal."""

def first_k(column: str, k: int) -> Aggregation:
    """The values of the k earliest events, oldest first."""

def last_k(column: str, k: int) -> Aggregation:
    """The values of the k latest events, newest first."""

def bottom_k(column: str, k: int) -> Aggregation:
    """The k smallest values, smallest first; equal values are all kept."""

def top_k(column: str, k: int) -> Aggregation:
    """The k largest values, largest first; equal values are all kept."""

def unique_top_k(column: str, k: int) -> Aggregation:
    """The k largest distinct values, largest first."""

def collect_list(column: str) -> Aggregation:
    """All values, by time, then by value."""

def approx_percentile(column: str, percentiles: Sequence[float] = (0.5,)) -> Aggregation:
    """About the values below which these fractions (0 to 1) of all values lie."""

def sum(column: str) -> Aggregation:
    """The sum: BIGINT of integers (overflow is an error), DECIMAL(38, s), or DOUBLE."""

def avg(column: str) -> Aggregation:
    """The mean, as DOUBLE."""

def __getattr__(name: str) -> Callable[..., Aggregation]: ...
