"""A month of a garden shop: the data that `windrow init` puts into a new project.

The same rows every time. Among them are those that real tables have: views of people who are not
logged in (a null key), checkouts of guests, ratings without a time, and checkouts at the very
time of a view.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FIRST_DAY = datetime(2024, 5, 1, tzinfo=UTC)
DAYS = 30
VIEWS, RATINGS, CHECKOUTS = 20_000, 2_000, 500
USERS, LISTINGS = 300, 80
CATEGORIES = ("tools", "seeds", "pots", "hoses", "gloves")

_MINUTE, _DAY = 60_000, 86_400_000
_START = int(FIRST_DAY.timestamp()) * 1_000
_STAMP = pa.timestamp("ms", "UTC")
_PRICE = pa.decimal128(10, 2)


def write_shop_data(folder: Path) -> None:
    """Write `views/ds=DAY/`, `ratings/` and `checkouts/` beneath `folder`, as Parquet.

    views      view_id, user_id, listing_id, category, price, ts
    ratings    rating_id, listing_id, stars, ts; each inserted, known when it was given
    checkouts  checkout_id, buyer_id, listing_id, price, returned, ts
    """
    rng = np.random.default_rng(20_240_501)
    cents = rng.integers(199, 15_000, LISTINGS)
    views = _views(rng, cents)
    _write_views(folder / "views", views)
    _write(folder / "ratings", _ratings(rng))
    _write(folder / "checkouts", _checkouts(rng, views))


def _skewed(rng: np.random.Generator, size: int, below: int) -> np.ndarray:
    """Numbers below `below`, small ones more often: some users and listings are busier."""
    found: np.ndarray = (rng.random(size) ** 1.7 * below).astype(np.int64)
    return found


def _prices(cents: np.ndarray) -> pa.Array:
    """Cents as DECIMAL(10, 2), exactly."""
    texts = [f"{value // 100}.{value % 100:02}" for value in cents.tolist()]
    return pa.array(texts).cast(_PRICE)


def _views(rng: np.random.Generator, cents: np.ndarray) -> pa.Table:
    times = np.sort(_START + rng.integers(0, DAYS * _DAY, VIEWS))
    listings = _skewed(rng, VIEWS, LISTINGS)
    reduced = np.where(rng.random(VIEWS) < 0.2, cents[listings] * 9 // 10, cents[listings])
    return pa.table(
        {
            "view_id": np.arange(1, VIEWS + 1),
            "user_id": pa.array(_skewed(rng, VIEWS, USERS) + 1, mask=rng.random(VIEWS) < 0.05),
            "listing_id": listings + 1,
            "category": pa.array([CATEGORIES[n % len(CATEGORIES)] for n in listings.tolist()]),
            "price": _prices(reduced),
            "ts": pa.array(times, _STAMP),
        }
    )


def _ratings(rng: np.random.Generator) -> pa.Table:
    times = np.sort(_START + rng.integers(0, DAYS * _DAY, RATINGS))
    stars = np.clip(np.round(rng.normal(4.0, 1.1, RATINGS)), 1, 5).astype(np.int32)
    return pa.table(
        {
            "rating_id": np.arange(1, RATINGS + 1),
            "listing_id": _skewed(rng, RATINGS, LISTINGS) + 1,
            "stars": stars,
            "ts": pa.array(times, _STAMP, mask=np.arange(RATINGS) % 250 == 125),
            "_change_type": pa.array(["insert"] * RATINGS),
            "_commit_timestamp": pa.array(times, _STAMP),
        }
    )


def _checkouts(rng: np.random.Generator, views: pa.Table) -> pa.Table:
    """Some views end in a checkout, most after minutes, every tenth in the same millisecond."""
    known = np.flatnonzero(views.column("user_id").is_valid().to_numpy())
    late = known[(known > VIEWS // 4) & (known < VIEWS - 100)]
    chosen = views.take(np.sort(rng.choice(late, CHECKOUTS, replace=False)))
    minutes = np.where(np.arange(CHECKOUTS) % 10 == 0, 0, rng.integers(1, 60, CHECKOUTS))
    buyers = chosen.column("user_id").to_numpy()
    times = chosen.column("ts").cast(pa.int64()).to_numpy() + minutes * _MINUTE
    return pa.table(
        {
            "checkout_id": np.arange(1, CHECKOUTS + 1),
            "buyer_id": pa.array(buyers, pa.int64(), mask=np.arange(CHECKOUTS) % 60 == 30),
            "listing_id": chosen.column("listing_id"),
            "price": chosen.column("price"),
            "returned": rng.random(CHECKOUTS) < 0.12,
            "ts": pa.array(times, _STAMP),
        }
    )


def _write_views(folder: Path, views: pa.Table) -> None:
    days = (views.column("ts").cast(pa.int64()).to_numpy() - _START) // _DAY
    for number in range(DAYS):
        name = (FIRST_DAY + timedelta(days=number)).date().isoformat()
        _write(folder / f"ds={name}", views.filter(pa.array(days == number)))


def _write(folder: Path, table: pa.Table) -> None:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet")
