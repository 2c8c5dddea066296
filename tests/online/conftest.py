"""Stores that tests serve from: a folder, and a Redis that is really started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_process import RedisProcess


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """The one server that tests share, each with a namespace of its own."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server; make redis installs it")
    server = RedisProcess(tmp_path_factory.mktemp("redis"), "--appendonly", "yes")
    yield server
    server.kill()


@pytest.fixture(params=["lmdb", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store of its own; a test is run with each kind."""
    if request.param == "lmdb":
        return str(tmp_path / "records")
    server: RedisProcess = request.getfixturevalue("redis_server")
    return server.address  # projects have namespaces of their own
