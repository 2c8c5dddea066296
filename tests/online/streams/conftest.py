from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kafka_broker import Kafka, broker, has_broker

from windrow.spark.jars import jar_files


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker for all tests."""
    if not jar_files() or not has_broker():
        pytest.skip("the jars of Kafka are not there; `make jars` fetches them (needs Maven)")
    pytest.importorskip("confluent_kafka")
    with broker(tmp_path_factory.mktemp("kafka")) as found:
        yield found
