"""What one more join of three tables keeps, where all arrangements exist; JSON last.

Customers, their orders, and the items of these. A first view joins the three, and so arranges
them by all keys. Then two more join them, with other columns and filters: one by delta paths, which
has to find everything it looks up (`delta_extra_records` is 0), one by a chain of joins, which
keeps its intermediate result (`linear_extra_records`). A tick of each takes the same changes in,
and both are compared with Spark.

    python benchmarks/views_delta.py [--scale 1.0] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from views_data import say, timed

ROWS = 10_000_000  # of items; four for an order, ten orders for a customer
CHANGES = 10_000
TABLES = {
    "customers": "id BIGINT, city BIGINT, PRIMARY KEY (id)",
    "orders": "id BIGINT, customer BIGINT, placed BIGINT, PRIMARY KEY (id)",
    "items": "order_id BIGINT, product BIGINT, pieces BIGINT",
}
JOIN = "FROM customers c JOIN orders o ON c.id = o.customer JOIN items i ON o.id = i.order_id"
FIRST = f"SELECT city, placed, product, pieces {JOIN}"
QUERIES = {
    "delta": f"SELECT product, city, pieces * 2 AS doubled {JOIN} WHERE placed % 10 < 5",
    "linear": f"SELECT product, city, pieces * 3 AS tripled {JOIN} WHERE placed % 10 < 5",
}


class _Joined:
    """A project with the three tables, and the view that has them arranged."""

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        import windrow

        self.spark, self.rows, self.next = spark, rows, rows
        self.project = windrow.Project(folder, spark=spark, progress=False)
        orders, customers = max(1, rows // 4), max(1, rows // 40)
        frames = {
            "customers": spark.range(customers).selectExpr("id", "id % 100 AS city"),
            "orders": spark.range(orders).selectExpr(
                "id", f"id * 2654435761 % {customers} AS customer", "id % 365 AS placed"
            ),
            "items": self._items(0, rows),
        }
        for name, columns in TABLES.items():
            self.project.sql(f"CREATE TABLE {name} ({columns})")
            self.project.table(name).insert(frames[name])
        self.create("first", FIRST, "delta")

    def _items(self, first: int, end: int) -> Any:
        orders = max(1, self.rows // 4)
        return self.spark.range(first, end).selectExpr(
            f"id * 40503 % {orders} AS order_id", "id % 1000 AS product", "id % 7 AS pieces"
        )

    def create(self, name: str, query: str, plan: str) -> float:
        text = f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ('join' = '{plan}') AS {query}"
        return timed(lambda: self.project.sql(text))

    def kept(self) -> dict[str, int]:
        """Records of everything that views keep, by collection."""
        history = self.project._statements.history
        views = [entry for entry in history.catalogue.values() if "arrangements" in entry]
        ids = {id for view in views for id in view["arrangements"].values()}
        return {id: sum(part.rows for part in history.collection(id).parts) for id in ids}

    def tick(self, changes: int) -> float:
        """Some items come, and as many of the first ones go."""
        half = changes // 2
        coming = self._items(self.next, self.next + half).selectExpr("*", "1L AS _diff")
        gone = self.next - self.rows
        going = self._items(gone, gone + half).selectExpr("*", "-1L AS _diff")
        self.next += half
        self.project.table("items").apply(coming.union(going))
        return timed(self.project.tick)

    def differences(self, name: str, query: str) -> int:
        for table in TABLES:
            self.project.read(table).createOrReplaceTempView(table)
        found = self.project.read(name)
        found.sparkSession.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        expected = found.sparkSession.sql(query)
        return int(expected.exceptAll(found).count() + found.exceptAll(expected).count())


def delta_extra(spark: Any, folder: Path, rows: int, repeats: int) -> dict[str, Any]:
    """Records that each plan keeps beside what was there, and the seconds of its ticks."""
    joined = _Joined(spark, folder, rows)
    found: dict[str, Any] = {"delta_rows": rows}
    for plan, query in QUERIES.items():
        before = joined.kept()
        name = f"{plan}_view"
        found[f"{plan}_fill_seconds"] = joined.create(name, query, plan)
        extra = {id: n for id, n in joined.kept().items() if id not in before}
        found[f"{plan}_extra_arrangements"] = len(extra)
        found[f"{plan}_extra_records"] = sum(extra.values())
        ticks = [joined.tick(CHANGES) for _ in range(repeats + 1)]
        found[f"{plan}_tick_seconds"] = statistics.median(ticks[1:])
        found[f"{plan}_differences"] = joined.differences(name, query)
        joined.project.sql(f"DROP MATERIALIZED VIEW {name}")
        say(f"{plan}: {extra} beside {before}; ticks {ticks}")
    joined.project.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is 10 M items")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("WINDROW_CACHE", f"{folder}/cache")
        from windrow.spark.session import local_session

        spark = local_session("bench-views-delta", cores=str(os.cpu_count()))
        spark.sparkContext.setLogLevel("ERROR")
        rows = int(ROWS * options.scale)
        out = delta_extra(spark, Path(folder) / "project", rows, options.repeats)
        spark.stop()
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}))


if __name__ == "__main__":
    main()
