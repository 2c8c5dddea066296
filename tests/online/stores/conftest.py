from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from redis_process import RedisProcess, StartRedis

from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore

_numbers = count()


@pytest.fixture
def start_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRedis]:
    """Starts a server with some settings, for a test that does something to it."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server; make redis installs it")
    started: list[RedisProcess] = []

    def start(*settings: str, folder: Path | None = None) -> RedisProcess:
        place = folder or tmp_path_factory.mktemp("redis")
        started.append(RedisProcess(place, *settings))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session", params=["lmdb", "redis"])
def new_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], RecordStore]:
    """Opens an empty store; a test is run with each kind."""
    if request.param == "lmdb":
        return lambda: open_store(tmp_path_factory.mktemp("stores") / "store", map_size=1 << 30)
    server: RedisProcess = request.getfixturevalue("redis_server")
    return lambda: open_store(server.address, namespace=f"n{next(_numbers)}", timeout=60)


@pytest.fixture
def store(new_store: Callable[[], RecordStore]) -> Iterator[RecordStore]:
    store = new_store()
    yield store
    store.close()
