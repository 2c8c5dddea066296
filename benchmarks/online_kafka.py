"""Events from Kafka into a shard and LMDB: how many in a second, and how soon they are served."""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import windrow as wr
from windrow import agg
from windrow.spark.jars import with_jars
from windrow.spark.session import local_session
from windrow.time import now_millis

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "online" / "streams"))
from kafka_broker import Kafka, broker, has_broker

COLUMNS = "user_id BIGINT, price DOUBLE, ts BIGINT"
USERS = 20_000
PROBES, PACE = 40, 0.25  # messages whose way is followed, and seconds between two


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def message(user: int, price: float, millis: int) -> bytes:
    return b'{"user_id":%d,"price":%.2f,"ts":%d}' % (user, price, millis)


def group(kafka: Kafka) -> wr.GroupBy:
    events = wr.EventSource(
        name="events",
        time="ts",
        stream=wr.KafkaStream(
            "events", kafka.servers, schema=COLUMNS, options={"maxOffsetsPerTrigger": "200000"}
        ),
    )
    return wr.GroupBy(
        "spending",
        events,
        ["user_id"],
        [
            agg.count("price").over("1h", "1d", "7d"),
            agg.sum("price").over("1d", "7d"),
            agg.max("price").over("7d"),
            agg.last("price").over("7d"),
        ],
    )


def streamed(folder: Path, events: int) -> dict[str, Any]:
    """Events per second of one stream, once it runs; and milliseconds from produced to served."""
    if not has_broker():
        return {"ingest_events_per_s": None, "freshness_ms_p50": None}
    with broker(folder / "kafka") as kafka:
        kafka.create("events", 2)
        produce(kafka, events)
        say(f"{events:,} events are in Kafka")
        spark = local_session("windrow-bench", **with_jars({}))
        project = wr.Project(folder / "streamed", spark=spark, progress=False)
        definition = group(kafka)
        project.upload(definition)
        try:
            return {
                **ingested(project, definition, events),
                **fresh(project, definition, kafka),
            }
        finally:
            spark.stop()


def produce(kafka: Kafka, events: int) -> None:
    """Events of the last hour, in order."""
    from confluent_kafka import Producer

    rng, now = random.Random(4), now_millis()
    producer = Producer({"bootstrap.servers": kafka.servers, "linger.ms": 50})
    for number in range(events):
        at = now - 3_600_000 + number * 3_600_000 // events
        while True:
            try:
                producer.produce("events", message(rng.randrange(USERS), rng.random() * 100, at))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def ingested(project: wr.Project, definition: wr.GroupBy, events: int) -> dict[str, Any]:
    """All that is there, in micro-batches of 200,000: the first loads what is compiled."""
    (source,) = definition.sources
    ends: list[tuple[float, int]] = []
    streams = project.streams(source, once=True, after=project.following(definition))
    streams.run(report=lambda done, lag: ends.append((time.perf_counter(), done.rows)))
    (first, begun), (last, _) = ends[0], ends[-1]
    if sum(rows for _, rows in ends) != events:
        raise SystemExit(f"{ends} are not {events} events")
    say(f"micro-batches of {[rows for _, rows in ends]} rows")
    rate = (events - begun) / (last - first) if len(ends) > 1 else None
    return {"ingest_events_per_s": rate, "ingest_batches": len(ends)}


def fresh(project: wr.Project, definition: wr.GroupBy, kafka: Kafka) -> dict[str, Any]:
    """A message every now and then; how long until a fetch has it."""
    (source,) = definition.sources
    stop = threading.Event()
    after = project.following(definition)
    streams = project.streams(source, trigger=0.1, after=after)
    worker = threading.Thread(target=lambda: streams.run(stop.is_set))
    worker.start()
    took = []
    try:
        for probe in range(PROBES + 5):
            user, began = USERS + probe, time.perf_counter()
            kafka.send("events", [message(user, 1.0, now_millis())])
            while time.perf_counter() - began < 60:
                (row,) = project.fetch("spending", [{"user_id": user}]).rows()
                if row["price_count_7d"]:
                    break
                time.sleep(0.002)
            else:
                raise SystemExit("a message was not served within a minute")
            if probe >= 5:  # the first ones warm it up
                took.append((time.perf_counter() - began) * 1000)
            time.sleep(PACE)
    finally:
        stop.set()
        worker.join()
    cuts = statistics.quantiles(took, n=100)
    return {"freshness_ms_p50": cuts[49], "freshness_ms_p99": cuts[98]}
