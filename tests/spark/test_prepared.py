"""Operations that are analysed once give what they give when they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.spark.prepared import Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_one_frame_after_the_other(spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    calls = []

    def make(frame: DataFrame) -> DataFrame:
        calls.append(frame)
        found = frame.select((F.col("a") + 1).alias("b"), F.explode("l").alias("x"))
        return found.where("x > 1").withColumn("y", F.upper("b"))

    prepared = Prepared(make)
    for start in range(3):
        frame = spark.range(start, start + 3).selectExpr("id AS a", "array(id, 2, NULL) AS l")
        found = [tuple(row) for row in prepared(frame).collect()]
        assert found == [tuple(row) for row in make(frame).collect()]
        assert found
    assert len(calls) == 1 + 3  # one of them to prepare
    other = spark.range(2).selectExpr("CAST(id AS DOUBLE) AS a", "array(5) AS l", "1 AS more")
    assert [row.b for row in prepared(other).collect()] == [1.0, 2.0]
    assert len(calls) == 5


def test_what_is_no_chain_is_made_each_time(spark: Any) -> None:
    prepared = Prepared(lambda frame: frame.union(frame))
    for rows in (1, 2):
        assert prepared(spark.range(rows)).count() == 2 * rows
