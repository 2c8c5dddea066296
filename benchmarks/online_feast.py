"""Feast's feature server, in an environment of its own, over the same Redis."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

import windrow as wr
from http_load import load

HERE = Path(__file__).parent
FEAST = HERE.parent / ".venv-feast" / "bin"
PATH = "/get-online-features"
_SECONDS = 120.0  # until it answers


def write_values(project: wr.Project, keys: int, at: int, file: Path) -> list[str]:
    """The features of all keys, as Windrow serves them; their names."""
    columns: dict[str, list[Any]] = {"user_id": list(range(keys))}
    for start in range(0, keys, 1_000):
        asked = [{"user_id": user} for user in range(start, min(start + 1_000, keys))]
        found = project.fetch("activity", asked, at=at)
        for name, values in zip(found.names, found.columns, strict=True):
            columns.setdefault(name, []).extend(values)
    names = [name for name in columns if name != "user_id"]
    table = {name: pa.array(columns[name], pa.float64()) for name in names}
    stamps = pa.array([at] * keys, pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"user_id": pa.array(columns["user_id"]), "ts": stamps, **table}), file)
    return names


@contextmanager
def feast_server(folder: Path, values: Path, redis: str) -> Iterator[int]:
    """The server's port; its one worker is never replaced while it is measured."""
    repository = folder / "feast"
    repository.mkdir()
    environment = {**os.environ, "FEAST_USAGE": "False", "HOME": str(folder)}
    address = urlsplit(redis).netloc
    program = [str(FEAST / "python"), str(HERE / "feast_repository.py")]
    command = [*program, str(repository), str(values), address]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    command = [str(FEAST / "feast"), "-c", str(repository), "serve", "-p", str(port)]
    command += ["--no-access-log", "--max-requests", "100000000"]
    log = (folder / "feast.log").open("wb")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > end or server.poll() is not None:
                    raise RuntimeError((folder / "feast.log").read_text()[-2000:]) from None
                time.sleep(0.2)
        yield port
    finally:
        server.terminate()
        server.wait()
        log.close()


def body(names: list[str], users: list[int]) -> bytes:
    features = [f"activity:{name}" for name in names]
    return json.dumps({"features": features, "entities": {"user_id": users}}).encode()


def check_same(port: int, names: list[str], project: wr.Project, at: int) -> None:
    """Both serve the same values, or there is nothing to compare."""
    import urllib.request

    kind = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{PATH}", body(names, [123]), kind)
    answer = json.loads(urllib.request.urlopen(request).read())
    found = {
        name: result["values"][0]
        for name, result in zip(answer["metadata"]["feature_names"], answer["results"], strict=True)
    }
    (ours,) = project.fetch("activity", [{"user_id": 123}], at=at).rows()
    for name in names:
        if ours[name] is not None and abs(found[name] - ours[name]) > 1e-9 * abs(ours[name]):
            raise SystemExit(f"{name}: Feast serves {found[name]}, Windrow {ours[name]}")


def load_feast(port: int, names: list[str], users: list[int], seconds: float) -> Any:
    return load(port, PATH, body(names, users), seconds=seconds)
