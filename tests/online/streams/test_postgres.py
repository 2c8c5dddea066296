"""A table of PostgreSQL, by its change feed: Debezium, Kafka, a stream, an entity source."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import Kafka
from postgres import debezium, missing, postgres

import windrow as wr
from windrow import agg

SECONDS = 120.0  # until all changes are through


def test_a_table_of_postgresql_is_an_entity_source(
    spark: Any, kafka: Kafka, tmp_path: Path
) -> None:
    why = missing()
    if why is not None:
        pytest.skip(why)
    topic = "ratings"
    kafka.create(topic, 1)
    stream = wr.KafkaStream(
        topic,
        kafka.servers,
        envelope="debezium",
        schema="id INT, listing INT, stars INT, ts BIGINT",
    )
    source = wr.EntitySource("ratings", "ts", stream=stream)
    project = wr.Project(tmp_path / "state", spark=spark)
    with postgres() as server:
        server.run(
            "CREATE TABLE ratings (id INT PRIMARY KEY, listing INT, stars INT, ts BIGINT)",
            "ALTER TABLE ratings REPLICA IDENTITY FULL",
            "INSERT INTO ratings SELECT n, n % 3, n % 5, n FROM generate_series(1, 20) AS n",
        )
        with debezium(server, "public.ratings", kafka.servers, topic, tmp_path):
            taken = take_in(project, source, 20)  # what was there before
            server.run(
                "INSERT INTO ratings VALUES (21, 1, 5, 21), (22, 2, 5, 22)",
                "UPDATE ratings SET stars = 0 WHERE listing = 1 AND id < 10",  # 1, 4, 7
                "UPDATE ratings SET listing = 9 WHERE id = 2",
                "UPDATE ratings SET id = 100 WHERE id = 3",  # the key: a deletion and an insertion
                "DELETE FROM ratings WHERE stars = 4",  # 9, 14, 19; 4 has none by now
            )
            take_in(project, source, 2 + 2 * 3 + 2 + 2 + 3, taken)
        wanted = server.run("SELECT id, listing, stars, ts FROM ratings")
        sums = server.run("SELECT listing, sum(stars), max(stars) FROM ratings GROUP BY listing")
    project.source("ratings", source)
    frame = project.sql("SELECT id, listing, stars, ts FROM ratings")
    assert frame is not None
    assert sorted([str(value) for value in row] for row in frame.collect()) == sorted(wanted)
    assert project.quarantine("ratings").count() == 0
    group = wr.GroupBy("g", source, ["listing"], [agg.sum("stars"), agg.max("stars")])
    later = int(time.time() * 1000) + 3_600_000
    queries = spark.createDataFrame([(n, later) for n in (0, 1, 2, 9)], "listing INT, ts BIGINT")
    found = project.backfill(wr.Join("j", wr.Queries(queries, "ts"), [group])).collect()
    got = sorted([str(r.listing), str(r.g_stars_sum), str(r.g_stars_max)] for r in found)
    assert got == sorted(sums)


def take_in(project: wr.Project, source: wr.EntitySource, rows: int, taken: int = 0) -> int:
    """Take in until so many more rows are there."""
    end, wanted = time.monotonic() + SECONDS, taken + rows
    while taken < wanted:
        assert time.monotonic() < end, f"{taken} of {wanted} rows have arrived"
        found: list[int] = []
        streams = project.streams(source, once=True)
        streams.run(report=lambda done, lag, found=found: found.append(done.rows))
        taken += sum(found)
    assert taken == wanted
    return taken
