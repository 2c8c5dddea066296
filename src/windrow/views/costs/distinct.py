"""How many distinct values there are, from a sample of rows or after some rows are gone."""

from __future__ import annotations


def extrapolated(distinct: float, once: float, sampled: float, fraction: float) -> float:
    """Distinct values of all rows, of which a random `fraction` was sampled.

    The sample has `sampled` rows with `distinct` values, `once` of which are in one row only. This
    is the jackknife estimate (Haas and others, 1995): exact where all values are equally frequent,
    as those of a key are, and for values that are all seen.

    >>> extrapolated(1000, 1000, 1000, 0.1)    # a key: every row has a value of its own
    10000.0
    >>> extrapolated(7, 0, 1000, 0.1)          # days of the week
    7.0
    """
    if fraction >= 1 or not sampled:
        return float(distinct)
    unseen = (1 - fraction) * once / sampled
    return float(min(max(distinct / (1 - unseen), distinct), distinct / fraction))


def remaining(distinct: float, rows: float, kept: float) -> float:
    """Distinct values that are left if each of `rows` is kept with probability `kept`.

    >>> remaining(10, 1000, 0.5), remaining(1000, 1000, 0.5)
    (10.0, 500.0)
    """
    if kept >= 1 or distinct <= 0:
        return float(distinct)
    each = max(rows / distinct, 1.0)
    return float(distinct * (1 - (1 - kept) ** each))
