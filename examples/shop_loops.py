"""The shop's features by plain loops: look at all raw rows, keep those of the window, aggregate."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
Row = dict[str, Any]


def raw_rows(folder: Path) -> list[Row]:
    """All rows of a folder of Parquet files; times in milliseconds."""
    rows: list[Row] = []
    for file in sorted(folder.rglob("*.parquet")):
        rows += pq.ParquetFile(file).read().to_pylist()
    for row in rows:
        if row["ts"] is not None:
            row["ts"] = round(row["ts"].timestamp() * 1000)
    return rows


def floor(time: int, step: int) -> int:
    return time - time % step


def between(events: list[Row], start: float, end: int) -> list[Row]:
    """The events of [start, end); those without a time are in no window."""
    return [e for e in events if e["ts"] is not None and start <= e["ts"] < end]


def of_key(events: list[Row], key: str, value: Any) -> list[Row]:
    """The events of a key; a null key has none."""
    return [e for e in events if value is not None and e[key] == value]


def mean(values: list[Any]) -> float | None:
    return float(sum(values)) / len(values) if values else None


def naive_features(checkout: Row, views: list[Row], ratings: list[Row]) -> Row:
    """The features of one checkout, as features.py defines them, by looking at every raw row."""
    q = checkout["ts"]
    mine = of_key(views, "user_id", checkout["buyer_id"])
    hour = between(mine, floor(q - HOUR, 5 * MINUTE), q)
    week = between(mine, floor(q - 7 * DAY, HOUR), q)
    fortnight = between(mine, floor(q - 14 * DAY, DAY), q)
    newest = sorted(fortnight, key=lambda v: (v["ts"], v["listing_id"]), reverse=True)
    usual = mean([v["price"] for v in week])

    seen = of_key(views, "listing_id", checkout["listing_id"])
    lately = between(seen, floor(q - 14 * DAY, DAY), q)
    ever = between(seen, -math.inf, q)

    rated = of_key(ratings, "listing_id", checkout["listing_id"])
    recent = between(rated, floor(q - 14 * DAY, DAY), q)
    return {
        "activity_view_id_count_1h": len(hour),
        "activity_view_id_count_7d": len(week),
        "activity_listing_id_unique_count_7d": len({v["listing_id"] for v in week}),
        "activity_price_avg_7d": usual,
        "activity_listing_id_last_3_14d": [v["listing_id"] for v in newest[:3]] or None,
        "activity_view_id_count_7d_by_category": dict(Counter(v["category"] for v in week)) or None,
        "interest_view_id_count_1d": len(between(seen, q - DAY, q)),
        "interest_price_min_14d": min((v["price"] for v in lately), default=None),
        "interest_price_max": max((v["price"] for v in ever), default=None),
        "reputation_stars_count": len(between(rated, -math.inf, q)),
        "reputation_stars_avg_14d": mean([r["stars"] for r in recent]),
        "reputation_stars_histogram_14d": dict(Counter(r["stars"] for r in recent)) or None,
        "price_against_usual": None if usual is None else float(checkout["price"]) / usual,
    }


def same(found: Any, expected: Any) -> bool:
    """Equal; floats but for the last digits, which depend on the order of additions."""
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-12)
    if isinstance(expected, dict) and found is not None:
        return dict(found) == expected
    return bool(found == expected)
