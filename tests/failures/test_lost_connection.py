"""The connection to the object store is lost at each request of each kind of write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlparse

import boto3
import pytest
from operations import BATCHES, OPERATIONS, SCHEMA, append, check, filled
from proxy import Proxy

from windrow import Shard
from windrow.errors import ShardExistsError, ShardNotFoundError, StorageUnavailableError
from windrow.sources.files import ParquetFiles
from windrow.storage.store import Store


@pytest.fixture(scope="module")
def proxy(s3_options: dict[str, str]) -> Iterator[Proxy]:
    proxy = Proxy(urlparse(s3_options["AWS_ENDPOINT_URL"]).port or 0)
    yield proxy
    proxy.stop()


@pytest.fixture
def options(proxy: Proxy, s3_options: dict[str, str]) -> Iterator[dict[str, str]]:
    """Through the proxy, and without trying again: it would be in vain."""
    yield {
        **s3_options,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "max_retries": "0",
        "timeout": "60s",  # a busy machine is no lost connection
    }
    proxy.heal()


@pytest.fixture(scope="module")
def template(s3_options: dict[str, str]) -> Callable[[str], None]:
    """Copies a shard to a URI, within the store: that is faster than filling one."""
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    filled("s3://shards/template", s3_options)
    found = client.list_objects_v2(Bucket="shards", Prefix="template/")["Contents"]

    def copy(uri: str) -> None:
        target = uri.removeprefix("s3://shards/")
        for one in found:
            key = target + one["Key"].removeprefix("template")
            client.copy_object(Bucket="shards", CopySource=f"shards/{one['Key']}", Key=key)

    return copy


@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_request_of_each_write(
    proxy: Proxy,
    s3_options: dict[str, str],
    options: dict[str, str],
    template: Callable[[str], None],
    s3_uri: str,
    stride: Callable[[int], int],
    name: str,
    answer: bool,
) -> None:
    operation = OPERATIONS[name]
    # Every fourth request, and every fourth answer between them; all of both in the long form.
    for request in count(2 * answer % stride(4), stride(4)):
        uri = f"{s3_uri}/{request}"
        template(uri)
        shard = Shard.open(uri, storage_options=options)
        proxy.lose(request, answer=answer)
        try:
            operation.run(shard)
            failed = None
        except StorageUnavailableError as error:
            failed = str(error)
        used = proxy.heal()
        assert failed is None or "does not answer" in failed
        # What was there is there, and at most this very change has been made.
        operation.check(uri, s3_options)
        again = Shard.open(uri, storage_options=s3_options)
        operation.run(again)
        check(uri, operation.batches, operation.since, s3_options)
        again.vacuum(retention_hours=0)
        names = Store.at(uri, s3_options).names()
        assert names == sorted(part.path for part in again.parts())
        assert not again.holds()
        append(again, operation.batches)
        check(uri, operation.batches + 1, operation.since, s3_options)
        if failed is None and used <= request:
            break
    assert request > 0


def test_reading(
    proxy: Proxy,
    options: dict[str, str],
    template: Callable[[str], None],
    s3_uri: str,
) -> None:
    """What cannot be reached is not damaged: nobody is told to restore a file."""
    template(s3_uri)
    shard = Shard.open(s3_uri, storage_options=options)
    part = f"{s3_uri}/{shard.parts()[0].path}"
    other = Shard.create(f"{s3_uri}/other", SCHEMA, key=["k"], storage_options=options)
    reads: list[Callable[[], object]] = [
        lambda: shard.snapshot(1, cache=None).to_table(),
        lambda: ParquetFiles.read([part], options),
        lambda: other.adopt([part], lower=0, upper=1),
    ]
    for method in ("HEAD", "GET"):  # when a file is opened, and when it is read
        for read in reads:
            proxy.lose_every(method)
            with pytest.raises(StorageUnavailableError, match="does not answer"):
                read()
            proxy.heal()
    check(s3_uri, BATCHES, 0, options)


def test_creating(
    proxy: Proxy, s3_options: dict[str, str], options: dict[str, str], s3_uri: str
) -> None:
    for answer in (False, True):
        uri = f"{s3_uri}/{answer}"
        proxy.lose(0, answer=answer)
        with pytest.raises(StorageUnavailableError, match="does not answer"):
            Shard.create(uri, SCHEMA, key=["k"], storage_options=options)
        proxy.heal()
        if answer:
            with pytest.raises(ShardExistsError):
                Shard.create(uri, SCHEMA, key=["k"], storage_options=s3_options)
        else:
            with pytest.raises(ShardNotFoundError):
                Shard.open(uri, storage_options=s3_options)
            Shard.create(uri, SCHEMA, key=["k"], storage_options=s3_options)
        shard = Shard.open(uri, storage_options=s3_options)
        for number in range(BATCHES):
            append(shard, number)
        check(uri, BATCHES, 0, s3_options)
