"""How many values of a group each level of a stack takes.

Document formulas say `min(16 ** n, size of the group)` for the level that is n from the top. Values
are spread by their hashes, so a subgroup may be empty while another has several; what advances is
what the first few of each are expected to be:

    taken by level 1        all values
    taken by level i + 1    subgroups of level i * expected min(depth, values of one)
"""

from __future__ import annotations

import math

from windrow.views.plan.hints import FAN_OUT

_LARGEST = 64  # expected values of a subgroup, or wanted ones, from which on spread hardly matters


def expected_min(most: int, mean: float) -> float:
    """The expected value of min(most, X), where X has a Poisson distribution.

    >>> round(expected_min(1, 1.0), 3), expected_min(3, 1000.0), round(expected_min(9, 0.5), 3)
    (0.632, 3.0, 0.5)
    """
    if mean > _LARGEST or most > _LARGEST:
        return min(float(most), mean)
    chance = math.exp(-mean)
    beyond, found = 1.0, 0.0
    for values in range(1, most + 1):
        beyond -= chance
        found += max(beyond, 0.0)
        chance *= mean / values
    return found


def taken(size: float, levels: int, depth: int) -> list[float]:
    """The values of a group of this size that each level takes, if `depth` of a subgroup advance.

    >>> [round(one) for one in taken(100, 3, 1)], [round(one) for one in taken(1e6, 2, 1)]
    ([100, 83, 16], [1000000, 16])
    """
    found = [size]
    for level in range(1, levels):
        subgroups = FAN_OUT ** (levels - level)
        advance = subgroups * expected_min(depth, found[-1] / subgroups)
        found.append(min(advance, found[-1]))
    return found


def occupied(values: float, subgroups: int) -> float:
    """The subgroups that have one of so many values."""
    return min(subgroups * expected_min(1, values / subgroups), values)
