"""A Spark cluster and an S3-compatible store, for the tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from cluster_processes import BUCKET, Cluster, Drivers, Gate

# A process of its own; it ends when its input is closed.
S3_SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


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


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    """Storage options of an S3 server on loopback that has one bucket."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", S3_SERVER], stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdout is not None
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        client = boto3.client(
            "s3",
            endpoint_url=options["AWS_ENDPOINT_URL"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield options
        server.communicate()
