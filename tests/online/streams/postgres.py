"""PostgreSQL on loopback, and Debezium that sends its changes to Kafka."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kafka_broker import _wait, free_ports

from windrow.spark.jars import jar_folder

DEBEZIUM = (
    ("io.debezium", "debezium-embedded", "3.6.1.Final"),
    ("io.debezium", "debezium-connector-postgres", "3.6.1.Final"),
)
_USER = "postgres"


def debezium_folder() -> Path:
    return jar_folder() / "debezium"


def has_debezium() -> bool:
    files = [debezium_folder() / f"{name}-{version}.jar" for _, name, version in DEBEZIUM]
    return all(file.is_file() for file in files)


def missing() -> str | None:
    """What is not on this machine, if something is."""
    if not _programs():
        return "PostgreSQL is not installed; `apt-get install postgresql` does it"
    if shutil.which("javac") is None:
        return "there is no Java compiler for Debezium's program; install a JDK"
    if not has_debezium():
        return "Debezium's jars are not there; `make jars` fetches them (needs Maven)"
    return None


def _programs() -> str:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return str(found[-1].parent) if found else ""


class Postgres:
    """A server at work."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, *statements: str) -> list[list[str]]:
        command = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-X", "-q", "-A"]
        command += ["-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        for statement in statements:
            command += ["-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server with an empty database. It refuses to run as root: then it is another user's."""
    (port,) = free_ports(1)
    place = Path(tempfile.mkdtemp(prefix="windrow-postgres-"))
    as_user: list[str] = []
    if os.getuid() == 0:
        owner = pwd.getpwnam(_USER)
        os.chown(place, owner.pw_uid, owner.pw_gid)
        as_user = ["runuser", "-u", _USER, "--"]
    data, programs = place / "data", _programs()
    command = [*as_user, f"{programs}/initdb", "-D", str(data), "-U", _USER, "-A", "trust"]
    subprocess.run(command, capture_output=True, check=True, cwd="/")
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "wal_level": "logical",
        "unix_socket_directories": str(place),
        "fsync": "off",
    }
    command = [*as_user, f"{programs}/postgres", "-D", str(data)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    process = subprocess.Popen(
        command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(port, process, Path(os.devnull))
        yield Postgres(port)
    finally:
        stop = [*as_user, f"{programs}/pg_ctl", "-D", str(data), "-m", "immediate", "stop"]
        subprocess.run(stop, capture_output=True, cwd="/")
        process.wait()
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def debezium(server: Postgres, table: str, kafka: str, topic: str, place: Path) -> Iterator[None]:
    """Sends what is in a table, and then its changes."""
    settings = {
        "name": "windrow",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(place / "offsets"),
        "offset.flush.interval.ms": "100",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": _USER,
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": "windrow",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": table,
        "poll.interval.ms": "10",
    }
    file = place / "debezium.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{debezium_folder()}/*"]
    command += [str(Path(__file__).parent / "Changes.java"), str(file), kafka, topic]
    with open(place / "debezium.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()
