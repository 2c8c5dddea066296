"""A Spark cluster for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_processes import Cluster, Drivers, Gate


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster.start(tmp_path_factory.mktemp("cluster"))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster with two workers, whatever happened to them before."""
    shared_cluster.ready(workers=2)
    return shared_cluster


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    with Drivers.made(tmp_path) as found:
        yield found


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate.make(tmp_path)
