"""The comparison of a served value with a backfilled one, in plain Python: slow and obvious."""

from __future__ import annotations

import math
from typing import Any


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        if math.isinf(a) or math.isinf(b):
            return a == b
        return abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def outcome(online: Any, offline: Any, letter: str = "p", *, counts: bool = False) -> str | None:
    """The outcome's name; None if it was not asked for."""
    if letter == "-":
        return None
    if letter == "f":
        return "only_offline"

    def empty(value: Any) -> bool:
        return value is None or (counts and value == 0)

    if empty(online) and empty(offline):
        return "both_empty"
    if empty(offline):
        return "only_online"
    if empty(online):
        return "only_offline"
    return "equal" if same(online, offline) else "different"
