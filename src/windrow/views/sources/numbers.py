"""The numbers of stored rows of a source: what a row is from.

    0           a snapshot, or a shard: rows that are not of a file
    n           a lot of files (see `source_lots`), from 1 on
    -1          what makes up for rows that are missing (see `source_missing`)
    -2n, -2n-1  changes of the lot n that have no time: each there once, and once retracted

The numbers from -1 down are the source's quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable

NUMBER = "__windrow_file"  # the column that says which number a stored row has
BASE = 0
MISSING = -1
FIRST = 1  # the first number of a lot


def quarantined(numbers: Iterable[int]) -> list[int]:
    """The numbers of changes without a time, of some lots.

    >>> quarantined([1, 7])
    [-2, -3, -14, -15]
    """
    return [-2 * number - more for number in numbers for more in (0, 1)]
