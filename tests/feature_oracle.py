"""Features by plain loops: for each query look at every event. Slow and obviously right."""

from __future__ import annotations

import math
import sys
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from oracle import canonical

DAY = 86_400_000


def in_window(kind: str, length: int, hop: int, event: int, query: int) -> bool:
    def floor(time: int) -> int:
        return time - time % hop

    if kind == "lifetime":
        return event < query
    if kind == "sliding":
        return query - length <= event < query
    if kind == "sawtooth":
        return floor(query - length) <= event < query
    return floor(query - length) <= event < floor(query)


def sort_key(value: Any) -> Any:
    """The order of values: NaN above all numbers, -0.0 as 0.0."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return (0, value.encode()) if isinstance(value, str) else (0, value)


def float_sum(values: list[float]) -> float:
    if any(not math.isfinite(v) for v in values):
        return sum(values)
    try:
        return float(sum(map(Fraction, values)))
    except OverflowError:
        return math.copysign(math.inf, sum(map(Fraction, values)))


def aggregate(name: str, values: list[tuple[int, Any]], k: int | None) -> Any:
    """The result over (time, value) pairs without nulls; None for NULL."""
    plain = [value for _, value in values]
    if name == "count":
        return len(plain)
    if name in ("unique_count", "approx_unique_count"):
        return len({canonical(v) for v in plain})
    if name == "bounded_unique_count":
        return min(k or 0, len({canonical(v) for v in plain}))
    if not plain:
        return None
    by_time = [v for _, v in sorted(values, key=lambda tv: (tv[0], sort_key(tv[1])))]
    by_value = sorted(plain, key=sort_key)
    match name:
        case "sum":
            if isinstance(plain[0], float):
                return float_sum(plain)
            with localcontext(prec=100):  # by default Python rounds decimals to 28 digits
                return sum(plain)
        case "avg":
            if isinstance(plain[0], float):
                return float_sum(plain) / len(plain)
            return float(sum(map(Fraction, plain)) / len(plain))
        case "min":
            return by_value[0]
        case "max":
            return by_value[-1]
        case "first":
            return by_time[0]
        case "last":
            return by_time[-1]
        case "first_k":
            return by_time[:k]
        case "last_k":
            return by_time[::-1][:k]
        case "collect_list":
            return by_time
        case "top_k":
            return by_value[::-1][:k]
        case "bottom_k":
            return by_value[:k]
        case "unique_top_k":
            distinct = {canonical(v): v for v in by_value}
            return sorted(distinct.values(), key=sort_key, reverse=True)[:k]
        case "bool_and":
            return all(plain)
        case "bool_or":
            return any(plain)
        case "histogram" | "approx_frequent_k":
            counts = Counter(canonical(v) for v in by_value)
            found = {canonical(v): v for v in by_value}
            items = [(found[c], n) for c, n in counts.items()]
            items.sort(key=lambda item: (-item[1], sort_key(item[0])))
            return {canonical(v): n for v, n in (items[:k] if k else items)}
    return moments(name, [float(v) for v in plain])


def moments(name: str, values: list[float]) -> float | None:
    n = len(values)
    if any(not math.isfinite(v) for v in values):
        return None if name.endswith("_samp") and n < 2 else math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / n
    m2, m3, m4 = (sum((v - mean) ** p for v in exact) for p in (2, 3, 4))
    if max(m2, m4) > sys.float_info.max:
        # Beyond what DOUBLE holds: Spark's own arithmetic gives infinity, and NaN for quotients.
        if name in ("skewness", "kurtosis"):
            return math.nan
        if name.endswith("_samp") and n < 2:
            return None
        if m2 / n > sys.float_info.max:
            return math.inf
    match name:
        case "var_pop":
            return float(m2 / n)
        case "stddev_pop":
            return math.sqrt(m2 / n)
        case "var_samp":
            return float(m2 / (n - 1)) if n > 1 else None
        case "stddev_samp":
            return math.sqrt(m2 / (n - 1)) if n > 1 else None
        case "skewness":
            return None if m2 == 0 else math.sqrt(n) * float(m3) / math.sqrt(float(m2)) ** 3
    return None if m2 == 0 else float(n * m4 / (m2 * m2)) - 3.0


def feature(
    events: list[dict[str, Any]],
    keys: dict[str, Any],
    query: int | None,
    *,
    name: str,
    column: str,
    window: tuple[str, int, int],
    k: int | None = None,
    bucket: str | None = None,
    accuracy: str = "temporal",
    is_map: bool = False,
) -> Any:
    """The feature of one query; events have their keys, `time` and values."""
    empty = aggregate(name, [], k)
    if query is None or any(value is None for value in keys.values()):
        return None if bucket or is_map else empty
    if accuracy == "snapshot":
        query -= query % DAY
    lanes: dict[Any, list[tuple[int, Any]]] = {(): []}
    for event in events:
        if any(canonical(event[c]) != canonical(v) for c, v in keys.items()):
            continue
        if not in_window(*window, event["time"], query):
            continue
        value, lane = event[column], ()
        if bucket is not None:
            if event[bucket] is None:
                continue
            lane = (canonical(event[bucket]),)
        if value is None:
            continue
        if is_map:
            for inner, item in value:
                if item is not None:
                    lanes.setdefault((*lane, canonical(inner)), []).append((event["time"], item))
        elif isinstance(value, list):
            for item in value:
                if item is not None:
                    lanes.setdefault(lane, []).append((event["time"], item))
        else:
            lanes.setdefault(lane, []).append((event["time"], value))
    if bucket is None and not is_map:
        return aggregate(name, lanes[()], k)
    nested: dict[Any, Any] = {}
    for lane, values in lanes.items():
        if values:
            place = nested
            for part in lane[:-1]:
                place = place.setdefault(part, {})
            place[lane[-1]] = aggregate(name, values, k)
    return nested or None


def same(found: Any, expected: Any) -> bool:
    """Equal; floats within 1e-12 relative; maps as dictionaries or lists of pairs."""
    if isinstance(expected, dict):
        if found is None:
            return False
        pairs = {canonical(key): value for key, value in found}
        return pairs.keys() == expected.keys() and all(
            same(pairs[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(same(a, b) for a, b in zip(found, expected, strict=True))
        )
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(expected) or math.isnan(found):
            return math.isnan(expected) and math.isnan(found)
        return found == expected or math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-300)
    if isinstance(expected, Decimal) or isinstance(found, Decimal):
        return found is not None and expected is not None and Decimal(found) == Decimal(expected)
    return bool(found == expected) and (found is None) == (expected is None)
