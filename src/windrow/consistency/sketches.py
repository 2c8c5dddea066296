"""How far estimates may be apart: twice the error that their sketch states.

Some errors are told by numbers that the estimates themselves do not have, such as how many values
there were. A replay computes these beside them: see `companion`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.function import Function
from windrow.algebra.functions.count import Count
from windrow.algebra.functions.distinct import ApproxFrequentK, ApproxUniqueCount
from windrow.algebra.functions.percentiles import ApproxPercentile

UNIQUE = 0.01625  # the relative standard error of HyperLogLog with 2^12 registers
RANK = 0.0165  # of KLL with k = 200
FREQUENT = 0.0035  # of all values, by the frequent items sketch
TWICE = 2


@dataclass(frozen=True)
class Sketch:
    """Judges estimates of one function, also within maps, by bucket or map key."""

    kind: str
    k: int = 0

    def agree(self, online: pa.Array, offline: pa.Array, beside: pa.Array | None) -> np.ndarray:
        """Where values that are not equal are within the error.

        A loop, over few: estimates of small windows are exact.
        """
        judge, levels, type_ = _JUDGES[self.kind], 0, offline.type
        while pa.types.is_map(type_):
            levels, type_ = levels + 1, type_.item_type
        levels -= self.kind == _FREQUENT  # which is a map itself
        known = [None] * len(online) if beside is None else beside.to_pylist()
        return np.array(
            [
                self._agree(judge, a, b, c, levels)
                for a, b, c in zip(online.to_pylist(), offline.to_pylist(), known, strict=True)
            ],
            np.bool_,
        )

    def _agree(self, judge: _Judge, a: Any, b: Any, beside: Any, levels: int) -> bool:
        if a is None or b is None:
            return a is b
        if levels:
            ours, theirs, known = dict(a), dict(b), dict(beside or {})
            return ours.keys() == theirs.keys() and all(
                self._agree(judge, ours[key], theirs[key], known.get(key), levels - 1)
                for key in ours
            )
        return judge(a, b, beside, self.k)


_Judge = Callable[[Any, Any, Any, int], bool]


def _unique(a: int, b: int, beside: Any, k: int) -> bool:
    return abs(a - b) <= TWICE * UNIQUE * max(a, b) + 1  # estimates are rounded


def _percentile(a: list[float], b: list[float], beside: list[float] | None, k: int) -> bool:
    """`beside` are the values at ranks as far below, then as far above, as is allowed."""
    if beside is None or len(a) != len(b) or len(beside) != 2 * len(a):
        return False
    low, high = beside[: len(a)], beside[len(a) :]
    return all(
        _place(least) <= _place(one) <= _place(most)
        for least, one, most in zip(low, a, high, strict=True)
    )


def _place(value: float) -> float:
    return math.inf if value != value else value  # NaN is above all numbers


def _frequent(
    a: list[tuple[Any, int]], b: list[tuple[Any, int]], beside: int | None, k: int
) -> bool:
    """`beside` is how many values there were."""
    ours, theirs = dict(a), dict(b)
    error = TWICE * FREQUENT * (beside or sum(theirs.values()))

    def may_miss(count: int, other: dict[Any, int]) -> bool:
        # What a full list lacks is no more frequent than its last.
        return count <= (min(other.values()) if len(other) >= k and other else 0) + error

    return all(
        abs(ours[key] - theirs[key]) <= error
        if key in ours and key in theirs
        else may_miss(ours[key], theirs)
        if key in ours
        else may_miss(theirs[key], ours)
        for key in ours.keys() | theirs.keys()
    )


_UNIQUE, _PERCENTILE, _FREQUENT = "unique", "percentile", "frequent"
_JUDGES: dict[str, _Judge] = {
    _UNIQUE: _unique,
    _PERCENTILE: _percentile,
    _FREQUENT: _frequent,
}


def sketch_of(function: Function) -> Sketch | None:
    """How estimates of a function are judged; None if it gives none."""
    match function:
        case ApproxUniqueCount():
            return Sketch(_UNIQUE)
        case ApproxPercentile():
            return Sketch(_PERCENTILE)
        case ApproxFrequentK():
            return Sketch(_FREQUENT, function.k)
    return None


def companion(aggregation: Aggregation, alias: str) -> Aggregation | None:
    """What is computed beside an aggregation, to judge it by."""
    function = aggregation.function
    if isinstance(function, ApproxPercentile):
        off = TWICE * RANK
        low = [max(0.0, one - off) for one in function.percentiles]
        high = [min(1.0, one + off) for one in function.percentiles]
        return Aggregation(
            ApproxPercentile((*low, *high)),
            aggregation.column,
            aggregation.windows,
            aggregation.bucket,
            aggregation.condition,
            alias,
        )
    if isinstance(function, ApproxFrequentK):
        return Aggregation(
            Count(),
            aggregation.column,
            aggregation.windows,
            aggregation.bucket,
            aggregation.condition,
            alias,
        )
    return None
