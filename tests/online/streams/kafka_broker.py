"""A broker of Kafka on loopback, from jars: one process that is broker and controller."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windrow.spark.jars import jar_folder

BROKER = (("org.apache.kafka", "kafka_2.13", "4.3.1"),)
_SECONDS = 60.0  # until it answers


def broker_folder() -> Path:
    return jar_folder() / "broker"


def has_broker() -> bool:
    _, name, version = BROKER[0]
    return (broker_folder() / f"{name}-{version}.jar").is_file()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Kafka:
    """A broker at work, and what tests do with it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def create(self, topic: str, partitions: int = 2) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def send(self, topic: str, messages: Sequence[bytes | None], partition: int = -1) -> None:
        """Send messages, and wait until the broker has them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        failed: list[Any] = []
        for message in messages:
            producer.produce(
                topic,
                message,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed, failed


@contextlib.contextmanager
def broker(place: Path) -> Iterator[Kafka]:
    """A broker whose files are in `place`."""
    first, second = free_ports(2)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{second}",
        "listeners": f"PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{second}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{first}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(place / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    place.mkdir(parents=True, exist_ok=True)
    config = place / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{broker_folder()}/*"]
    tool = [*java, "kafka.tools.StorageTool"]
    done = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=True)
    command = [*tool, "format", "-t", done.stdout.split()[-1], "-c", str(config)]
    subprocess.run(command, capture_output=True, check=True)
    with open(place / "log.txt", "wb") as log:
        command = [*java, "kafka.Kafka", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(first, process, place / "log.txt")
        yield Kafka(f"127.0.0.1:{first}")
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"Kafka does not answer: {log.read_text()[-2000:]}")
