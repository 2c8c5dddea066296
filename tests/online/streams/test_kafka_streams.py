"""Kafka, really started: messages become rows once each, whatever they are."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_broker import Kafka

import windrow as wr
from windrow import agg
from windrow.errors import StorageError
from windrow.sources.stream_shard import open_stream
from windrow.storage.delta import open_table
from windrow.storage.store import Store

COLUMNS = "user BIGINT, price DOUBLE, ts BIGINT"


def message(user: int, ts: int, price: float = 1.0) -> bytes:
    return json.dumps({"user": user, "price": price, "ts": ts}).encode()


class Site:
    """A project with one stream, of a topic of its own."""

    def __init__(self, spark: Any, kafka: Kafka, place: Path, topic: str) -> None:
        self.kafka, self.place, self.topic = kafka, place, topic
        self.project = wr.Project(place / "state", spark=spark)
        kafka.create(topic)

    def stream(self, **more: Any) -> wr.KafkaStream:
        return wr.KafkaStream(self.topic, self.kafka.servers, **{"schema": COLUMNS, **more})

    def source(self, **more: Any) -> wr.EventSource:
        return wr.EventSource("events", time="ts", stream=self.stream(**more))

    def take_in(self, source: wr.EventSource | wr.EntitySource | None = None) -> Counter[str]:
        counts: Counter[str] = Counter()
        streams = self.project.streams(source or self.source(), once=True)
        streams.run(
            report=lambda done, lag: counts.update(
                rows=done.rows, quarantined=done.quarantined, repeated=int(done.repeated)
            )
        )
        return counts

    def rows(self, name: str = "events") -> Counter[tuple[Any, ...]]:
        shard = open_stream(f"{self.place}/state/streams/{name}", None)
        assert shard is not None
        found: Counter[tuple[Any, ...]] = Counter()
        for row in shard.snapshot().to_table().drop_columns(["_time"]).to_pylist():
            diff = row.pop("_diff")
            found[tuple(row.values())] += diff
        return found

    def quarantine(self, name: str = "events") -> list[dict[str, Any]]:
        found = open_table(Store.at(f"{self.place}/state/quarantine/streams/{name}"))
        return [] if found is None else pa.table(found.to_pyarrow_table()).to_pylist()


@pytest.fixture
def site(spark: Any, kafka: Kafka, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return Site(spark, kafka, tmp_path, f"t{abs(hash(request.node.nodeid)):x}")


def test_messages_become_rows_once(site: Site) -> None:
    site.kafka.send(site.topic, [message(n % 3, n) for n in range(100)])
    assert site.take_in() == Counter(rows=100)
    site.kafka.send(site.topic, [message(1, 5), message(1, 5)])
    site.kafka.send(site.topic, [message(1, 5)])
    assert site.take_in()["rows"] == 3
    assert site.take_in() == Counter()
    expected = Counter((n % 3, 1.0, n) for n in range(100))
    expected[(1, 1.0, 5)] += 3
    assert site.rows() == expected


def test_malformed_messages_are_set_aside_with_topic_and_offset(site: Site) -> None:
    messages: Sequence[bytes | None] = [
        message(1, 1),
        b"{",
        None,
        b"\xff\xfe\x00",
        b'{"user": 1, "price": "much", "ts": 1}',
        b'{"user": 1, "price": 1.0}',
        message(2, 2),
    ]
    site.kafka.send(site.topic, messages, partition=1)
    assert site.take_in() == Counter(rows=2, quarantined=5)
    found = {row["offset"]: row for row in site.quarantine()}
    assert sorted(found) == [1, 2, 3, 4, 5]
    assert {row["topic"] for row in found.values()} == {site.topic}
    assert {row["partition"] for row in found.values()} == {1}
    assert {offset: row["message"] for offset, row in found.items()} == {
        offset: one for offset, one in enumerate(messages) if offset in found
    }
    assert found[1]["reason"] == "not JSON"
    assert found[2]["reason"] == "the message is empty"
    assert found[4]["reason"] == "a column has a value of another type"
    assert found[5]["reason"] == "ts is null"


def test_redelivery_changes_nothing(site: Site) -> None:
    site.kafka.send(site.topic, [message(1, 1), b"{", message(1, 1)])
    site.take_in()
    site.kafka.send(site.topic, [message(2, 2), b"{"])
    site.take_in()
    before = site.rows()
    commits = site.place / "state/streams/events/_checkpoint/commits"
    newest = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
    for name in (str(newest), f".{newest}.crc"):
        (commits / name).unlink(missing_ok=True)
    assert site.take_in() == Counter(repeated=1)
    assert site.rows() == before
    assert len(site.quarantine()) == 2


def test_avro(site: Site) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "user", "type": "long"},
            {"name": "price", "type": ["null", "double"]},
            {"name": "ts", "type": "long"},
        ],
    }
    parsed = fastavro.parse_schema(schema)

    def encoded(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    messages = [encoded({"user": 7, "price": None, "ts": 3}), b"\x01", b""]
    site.kafka.send(site.topic, messages, partition=0)
    source = site.source(format="avro", avro_schema=json.dumps(schema))
    assert site.take_in(source) == Counter(rows=1, quarantined=2)
    assert site.rows() == Counter({(7, None, 3): 1})


def test_a_select_of_the_stream_makes_the_columns_of_the_table(site: Site) -> None:
    stream = site.stream(
        schema="u STRING, at BIGINT",
        select={"user": "CAST(u AS BIGINT)", "ts": "timestamp_millis(at)"},
        required=["user"],
    )
    source = wr.EventSource("events", time="ts", stream=stream)
    lines = [{"u": "1", "at": 5_000}, {"u": "x", "at": 5}, {"at": 5}]
    site.kafka.send(site.topic, [json.dumps(line).encode() for line in lines])
    assert site.take_in(source) == Counter(rows=1, quarantined=2)
    assert [key[0] for key in site.rows()] == [1]
    reasons = sorted(row["reason"] for row in site.quarantine())
    assert "CAST_INVALID_INPUT" in reasons[0]
    assert reasons[1] == "user is null"


def envelope(op: str, before: Any, after: Any, at: int) -> bytes:
    source = {"ts_ms": at, "lsn": at}
    told = {"op": op, "before": before, "after": after, "ts_ms": at + 7, "source": source}
    return json.dumps(told if at % 2 else {"schema": {}, "payload": told}).encode()


def test_changes_as_debezium_tells_them(site: Site) -> None:
    def row(user: int, price: float, ts: int = 0) -> dict[str, Any]:
        return {"user": user, "price": price, "ts": ts}

    messages = [
        envelope("r", None, row(1, 1.0), 10),
        envelope("c", None, row(2, 2.0), 20),
        envelope("u", row(1, 1.0), row(1, 1.5), 31),
        envelope("d", row(2, 2.0), None, 40),  # the key changes: a deletion,
        None,  # a tombstone
        envelope("c", None, row(3, 2.0), 41),  # and a creation
        envelope("u", None, row(3, 9.0), 50),
        envelope("t", None, None, 60),
        b'{"user": 1}',
    ]
    site.kafka.send(site.topic, messages, partition=0)
    source = wr.EntitySource("events", "ts", stream=site.stream(envelope="debezium"))
    assert site.take_in(source) == Counter(rows=6, quarantined=3)
    found = {(user, price, sign) for user, price, _, _, sign in site.rows()}
    assert found == {
        (1, 1.0, "insert"),
        (1, 1.0, "update_preimage"),
        (1, 1.5, "update_postimage"),
        (2, 2.0, "insert"),
        (2, 2.0, "delete"),
        (3, 2.0, "insert"),
    }
    reasons = sorted(row["reason"] for row in site.quarantine())
    assert [reason.split(":")[0] for reason in reasons] == [
        "before is missing",
        "not an envelope of Debezium",
        "op is t",
    ]
    spark = site.project.spark
    asked = [(u, t) for u in (1, 2, 3) for t in (15, 25, 35, 45)]
    queries = spark.createDataFrame(asked, "user BIGINT, ts BIGINT")
    group = wr.GroupBy("g", source, ["user"], [agg.sum("price")])
    join = wr.Join("j", wr.Queries(queries, "ts"), [group])
    sums = {(r.user, r.ts): r.g_price_sum for r in site.project.backfill(join).collect()}
    assert sums == {
        (1, 15): 1.0, (1, 25): 1.0, (1, 35): 1.5, (1, 45): 1.5,
        (2, 15): None, (2, 25): 2.0, (2, 35): 2.0, (2, 45): None,
        (3, 15): None, (3, 25): None, (3, 35): None, (3, 45): 2.0,
    }  # fmt: skip


def test_a_stream_goes_on_until_it_is_told_to_stop(site: Site) -> None:
    stop, sent, behind = threading.Event(), 0, []
    seen: Counter[str] = Counter()

    def report(done: Any, lag: int | None) -> None:
        nonlocal sent
        seen["rows"] += done.rows
        behind.append(lag)
        if seen["rows"] == sent:
            if sent == 30:
                stop.set()
                return
            sent += 10
            site.kafka.send(site.topic, [message(1, n) for n in range(10)])

    sent = 10
    site.kafka.send(site.topic, [message(1, n) for n in range(10)])
    site.project.streams(site.source(), trigger=0.05).run(stop.is_set, report)
    assert site.rows() == Counter({(1, 1.0, n): 3 for n in range(10)})
    assert site.take_in() == Counter()


def test_a_topic_that_is_not_there_is_named(site: Site) -> None:
    stream = wr.KafkaStream("no_such_topic", site.kafka.servers, schema=COLUMNS)
    with pytest.raises(StorageError, match=r"EventSource 'events'.*no such topic"):
        site.take_in(wr.EventSource("events", time="ts", stream=stream))
