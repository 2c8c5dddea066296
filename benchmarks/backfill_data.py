"""The data of the backfill benchmarks: skewed events and queries, as Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAY_MS = 86_400_000
DAYS = 90
FIRST = 1_700_006_400_000  # a midnight, UTC
STAMP = pa.timestamp("ms", "UTC")


def keys_of(rng: np.random.Generator, rows: int, keys: int, hot: float) -> np.ndarray:
    """Random keys; number 0 has the share `hot` of all rows, the others are skewed mildly."""
    found = (rng.random(rows) ** 1.5 * (keys - 1)).astype(np.int64) + 1
    found[rng.random(rows) < hot] = 0
    return found


def write_events(folder: Path, rows: int, keys: int, hot: float = 0.08, files: int = 8) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        rng = np.random.default_rng(number)
        size = rows // files
        table = pa.table(
            {
                "user_id": keys_of(rng, size, keys, hot),
                "ts": pa.array(FIRST + rng.integers(0, DAYS * DAY_MS, size), STAMP),
                "price": np.round(rng.lognormal(3, 1, size), 2),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", compression="snappy")


def write_queries(path: Path, rows: int, keys: int) -> None:
    rng = np.random.default_rng(99)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "query_id": np.arange(rows),
            "user_id": keys_of(rng, rows, keys, 0.08),
            "ts": pa.array(FIRST + rng.integers(0, DAYS * DAY_MS, rows), STAMP),
        }
    )
    pq.write_table(table, path)


def write_days(folder: Path, rows: int, keys: int, days: range, seed: int) -> None:
    """Events (or, with ids, queries) in a folder for each day."""
    for day in days:
        rng = np.random.default_rng(seed + day)
        place = folder / f"ds={np.datetime64(FIRST + day * DAY_MS, 'ms').astype('M8[D]')}"
        place.mkdir(parents=True)
        table = pa.table(
            {
                "query_id": day * rows + np.arange(rows),
                "user_id": keys_of(rng, rows, keys, 0.08),
                "ts": pa.array(FIRST + day * DAY_MS + rng.integers(0, DAY_MS, rows), STAMP),
                "price": np.round(rng.lognormal(3, 1, rows), 2),
            }
        )
        pq.write_table(table, place / "part.parquet")


def write_mutations(folder: Path, events: Path) -> None:
    """The same rows as a mutation log: 5 % are updated later, another 5 % deleted."""
    folder.mkdir(parents=True)
    for number, path in enumerate(sorted(events.glob("*.parquet"))):
        rng = np.random.default_rng(1_000 + number)
        table = pq.read_table(path)
        ts = table.column("ts").cast(pa.int64()).to_numpy()
        later = ts + rng.integers(1, 10 * DAY_MS, ts.size)
        chance = rng.random(ts.size)

        def images(at: np.ndarray, times: np.ndarray, before: bool, price: float) -> pa.Table:
            rows = table.take(pa.array(at))  # noqa: B023  used at once
            prices = pa.array(rows.column("price").to_numpy() + price)
            rows = rows.set_column(rows.column_names.index("price"), "price", prices)
            rows = rows.append_column("mutation_ts", pa.array(times, STAMP))
            return rows.append_column("is_before", pa.array(np.full(at.size, before)))

        changed, gone = np.flatnonzero(chance < 0.05), np.flatnonzero(chance > 0.95)
        parts = [
            images(np.arange(ts.size), ts, False, 0.0),
            images(
                np.concatenate([changed, gone]), later[np.concatenate([changed, gone])], True, 0.0
            ),
            images(changed, later[changed], False, 1.0),
        ]
        pq.write_table(pa.concat_tables(parts), folder / f"{number}.parquet")
