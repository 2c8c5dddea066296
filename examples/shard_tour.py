"""A short tour of a shard: a product catalogue that changes, read as it was and as it is.

python examples/shard_tour.py
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import pyarrow as pa

import windrow as wr
from windrow.spark.session import local_session

SCHEMA = pa.schema(
    [("product", pa.string()), ("price", pa.decimal128(10, 2)), ("stock", pa.int64())]
)


def show(title: str, table: pa.Table) -> None:
    print(f"\n{title}")
    names = table.column_names
    rows = [[str(value) for value in row.values()] for row in table.to_pylist()]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for line in [names, *rows]:
        print("   ", "  ".join(v.rjust(w) for v, w in zip(line, widths, strict=True)))


def products(*rows: tuple[str, str, int], diff: int = 1) -> pa.Table:
    table = pa.table(
        {
            "product": [name for name, _, _ in rows],
            "price": pa.array([price for _, price, _ in rows]).cast(pa.decimal128(10, 2)),
            "stock": [stock for _, _, stock in rows],
        },
        schema=SCHEMA,
    )
    return table.append_column("_diff", pa.array([diff] * len(rows), pa.int64()))


def main() -> None:
    folder = tempfile.mkdtemp(prefix="windrow-tour-")
    shard = wr.Shard.create(f"{folder}/catalogue", SCHEMA, key=["product"])

    # Time is when we took the change in; a change of a row is its old form out, its new form in.
    shard.append(
        products(("rake", "19.90", 12), ("scythe", "89.00", 3), ("twine", "4.50", 200)),
        lower=0,
        upper=100,
    )
    change = pa.concat_tables(
        [products(("rake", "19.90", 12), diff=-1), products(("rake", "17.50", 12))]
    )
    shard.append(change, lower=100, upper=200)
    shard.append(products(("scythe", "89.00", 3), diff=-1), lower=200, upper=300)

    show("The catalogue at time 50:", shard.snapshot(50).to_table())
    show("and now:", shard.snapshot().to_table())
    show("What changed in [100, 300):", shard.changes(100, 300).to_table())
    cheap = shard.snapshot(where=wr.col("price") < 10, columns=["product", "stock"])
    show("Cheaper than 10:", cheap.to_table())

    try:
        shard.append(products(("hoe", "12.00", 5)), lower=200, upper=400)
    except wr.errors.UpperMismatchError as error:
        print(f"\nA writer who comes too late is told so:\n    {error}")

    spark = local_session("windrow-tour")
    print("\nA million sensor readings, appended by Spark's tasks; then a third is retracted ...")
    readings = spark.range(1_000_000).selectExpr(
        "id % 5000 AS sensor", "id AS reading", "id / 7.0D AS value"
    )
    big = wr.Shard.create(f"{folder}/readings", readings.schema, key=["sensor"])
    big.append(readings, lower=0, upper=1)
    big.append(readings.where("reading % 3 = 0").selectExpr("*", "-1L AS _diff"), lower=1, upper=2)
    print(f"    {big.stats()}")
    for level in ("none", "best_effort", "full"):
        count = big.snapshot(consolidate=level).dataframe(spark).count()
        print(f"    read with consolidation {level:11} -> {count:9,} updates")
    some = big.snapshot(keys={"sensor": np.arange(0, 5000, 1000)})
    print(f"    five of 5,000 sensors      -> {some.to_table().num_rows:9,} updates")
    big.advance_since(1)
    big.compact(everything=True, spark=spark)
    print(f"    after compaction: {big.stats()}")
    spark.stop()

    print(f"\nThe shards are Delta tables, in {folder}. Next: docs/how_it_works.md")


if __name__ == "__main__":
    sys.exit(main())
