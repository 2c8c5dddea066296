"""The same features by other systems, each as its experts would write it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

HOURS = {"1h": 1, "1d": 24, "7d": 168, "30d": 720}


def polars_backfill(events: Path, queries: Path, out: Path) -> None:
    """Rolling aggregates over events and queries together, then the rows of queries.

    `closed="left"` takes [t - W, t). Rows of queries hold no price and come before the events of
    their time, so the last price is the one carried forward, if it is not too old.
    """
    import polars as pl

    price, key, asked = pl.col("price"), "user_id", pl.col("query_id").is_not_null()
    left = pl.scan_parquet(queries).with_columns(pl.lit(None, pl.Float64).alias("price"))
    right = pl.scan_parquet(events / "*.parquet").with_columns(
        pl.lit(None, pl.Int64).alias("query_id")
    )
    columns = ["query_id", key, "ts", "price"]
    both = pl.concat([right.select(columns), left.select(columns)])
    both = both.sort(key, "ts", "price", nulls_last=False).collect().lazy()
    seen = pl.when(price.is_not_null()).then(pl.col("ts")).forward_fill().over(key)
    last = price.forward_fill().over(key)
    found = [both.with_columns(seen.alias("seen"), last.alias("last")).filter(asked).collect()]
    for name in HOURS:  # a window at a time, which halves the memory at the same speed
        options: dict[str, Any] = {"window_size": name, "closed": "left"}
        one = price.is_not_null().cast(pl.Int64)
        window = [
            one.rolling_sum_by("ts", **options).over(key).alias(f"count_{name}"),
            price.rolling_sum_by("ts", **options).over(key).alias(f"sum_{name}"),
            price.rolling_min_by("ts", **options).over(key).alias(f"min_{name}"),
            price.rolling_max_by("ts", **options).over(key).alias(f"max_{name}"),
            price.rolling_mean_by("ts", **options).over(key).alias(f"avg_{name}"),
        ]
        found.append(both.select("query_id", *window).filter(asked).drop("query_id").collect())
    lasts = [
        pl.when(pl.col("seen") >= pl.col("ts") - pl.duration(hours=hours))
        .then(pl.col("last"))
        .alias(f"last_{name}")
        for name, hours in HOURS.items()
    ]
    table = pl.concat(found, how="horizontal").with_columns(*lasts)
    table.drop("seen", "last", "price").write_parquet(out)


def duckdb_backfill(events: Path, queries: Path, out: Path) -> None:
    """Events and queries in one relation, a named window per length, over integer time.

    Averages come from sums and counts, which DuckDB has already; integers as time spare it the
    arithmetic of intervals.
    """
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {os.cpu_count()}")
        columns, windows = [], []
        for name, hours in HOURS.items():
            windows.append(
                f"w{name} AS (PARTITION BY user_id ORDER BY ms RANGE BETWEEN "
                f"{hours * 3_600_000} PRECEDING AND 1 PRECEDING)"
            )
            columns += [
                f"count(price) OVER w{name} AS count_{name}",
                f"sum(price) OVER w{name} AS sum_{name}",
                f"min(price) OVER w{name} AS min_{name}",
                f"max(price) OVER w{name} AS max_{name}",
                f"last_value(price IGNORE NULLS) OVER w{name} AS last_{name}",
            ]
        averages = ", ".join(f"sum_{n} / count_{n} AS avg_{n}" for n in HOURS)
        connection.execute(
            f"""
            COPY (
              SELECT * EXCLUDE (ms, price), {averages} FROM (
                SELECT query_id, user_id, ms, price, {", ".join(columns)}
                FROM (
                  SELECT NULL AS query_id, user_id, epoch_ms(ts) AS ms, price
                  FROM read_parquet('{events}/*.parquet')
                  UNION ALL
                  SELECT query_id, user_id, epoch_ms(ts), NULL FROM read_parquet('{queries}')
                )
                WINDOW {", ".join(windows)}
              )
              WHERE query_id IS NOT NULL
            ) TO '{out}' (FORMAT parquet)
            """
        )


def spark_backfill(spark: Any, events: Path, queries: Path, out: Path) -> None:
    """The naive join with conditional aggregates: one pass over all pairs of the longest window."""
    from pyspark.sql import functions as F  # noqa: N812

    q = spark.read.parquet(str(queries)).withColumnRenamed("ts", "q")
    e = spark.read.parquet(str(events))
    longest = max(HOURS.values())
    close = (F.col("ts") < F.col("q")) & (F.col("ts") >= F.expr(f"q - INTERVAL {longest} HOURS"))
    pairs = q.join(e, (q.user_id == e.user_id) & close, "left").drop(e.user_id)
    columns = []
    for name, hours in HOURS.items():
        price = F.expr(f"CASE WHEN ts >= q - INTERVAL {hours} HOURS THEN price END")
        last = F.max_by("price", F.when(price.isNotNull(), F.struct("ts", "price")))
        columns += [
            F.count(price).alias(f"count_{name}"),
            F.sum(price).alias(f"sum_{name}"),
            F.min(price).alias(f"min_{name}"),
            F.max(price).alias(f"max_{name}"),
            F.avg(price).alias(f"avg_{name}"),
            last.alias(f"last_{name}"),
        ]
    found = pairs.groupBy("query_id", "user_id", "q").agg(*columns)
    found.write.mode("overwrite").parquet(str(out))
