"""A shop from an empty folder to features, and the same features by plain loops beside them.

python examples/shop.py [FOLDER]

Makes the project that `windrow init` makes, plans and backfills it with the functions behind the
commands, then answers every checkout again the naive way: look at all raw rows, keep those of the
window, aggregate. Fails if a single value differs.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.text import Text

from windrow.commands.backfill import backfill
from windrow.commands.init import init
from windrow.commands.plan import plan
from windrow.commands.render import console, plain_table, shown
from windrow.workspace import Workspace

DEMO = Path(__file__).resolve().parent.parent / "demo"
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


def in_order(value: Any) -> Any:
    """A map, which Arrow gives as a list of pairs, in the order of its keys."""
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list) and isinstance(value[0], tuple):
        return sorted(value)
    return value


def show_side_by_side(pairs: list[tuple[Row, Row]]) -> None:
    headings = [f"{what} {n + 1}" for n in range(len(pairs)) for what in ("Windrow", "loops")]
    table = plain_table("feature", *headings)
    for name in pairs[0][1]:
        values = [value for found, expected in pairs for value in (found[name], expected[name])]
        table.add_row(Text(name), *(Text(shown(in_order(value))) for value in values))
    console().print(table)


def made_anew(folder: Path) -> bool:
    """Make the project in place of an earlier one; False if someone has worked on that since."""
    if folder.exists():
        theirs = {name: (folder / name) for name in ("features.py", "windrow.toml")}
        with tempfile.TemporaryDirectory() as other:
            ours = init(Path(other) / "shop")
            for name, file in theirs.items():
                if not file.exists() or file.read_text() != (ours / name).read_text():
                    return False
        shutil.rmtree(folder)
    init(folder)
    return True


def main() -> int:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DEMO
    if not made_anew(folder):
        print(f"{folder} has been changed since it was made; move it away, or name another folder")
        return 1
    print(f"A shop with a month of views, ratings and checkouts is in {folder}\n")
    workspace = Workspace.load(folder)

    print("$ windrow plan")
    plan(workspace)
    print("\n$ windrow backfill training")
    frame = backfill(workspace, "training", rows=0)

    found = {row["checkout_id"]: row for row in frame.toArrow().to_pylist()}
    views, ratings = raw_rows(folder / "data/views"), raw_rows(folder / "data/ratings")
    checkouts = raw_rows(folder / "data/checkouts")
    expected = {c["checkout_id"]: naive_features(c, views, ratings) for c in checkouts}

    print("\nThe first checkouts, beside plain loops over the raw rows:")
    first = [c["checkout_id"] for c in checkouts[:2]]
    show_side_by_side([(found[n], expected[n]) for n in first])

    wrong = [
        f"checkout {n}, {name}: {found[n][name]!r}, by loops {value!r}"
        for n, features in expected.items()
        if n in found
        for name, value in features.items()
        if not same(found[n][name], value)
    ]
    if wrong or found.keys() != expected.keys() or frame.count() != len(checkouts):
        print("DIFFERENT", *wrong[:10], sep="\n  ")
        return 1
    frame.sparkSession.stop()
    values = sum(map(len, expected.values()))
    print(f"equal: all {values:,} features of all {len(checkouts):,} checkouts\n")
    print("What to try next:")
    activate = os.path.relpath(Path(sys.prefix) / "bin" / "activate")
    print(f"  . {activate}; cd {os.path.relpath(folder)}")
    print("  change a window in features.py, then")
    print("  windrow plan                    the sorted events are used again")
    print("  windrow explain training        every feature with its type and window")
    print("  windrow backfill training --start 2024-05-20 --end 2024-05-26")
    print("and read docs/commands.md and docs/features.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
