"""Backfills that run out of space, may not write, or lose their store: the next one goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proxy import Proxy

import windrow as wr
from disks import Disk
from windrow import agg
from windrow.errors import StorageUnavailableError
from windrow.features import limits

STAMP = pa.timestamp("ms", "UTC")
ROWS, KEYS = 400, 50


@pytest.fixture
def join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wr.Join:
    """Counts the events before each of some queries, in several slices."""
    monkeypatch.setattr(limits, "SLICE_ROWS", 40)
    keys = pa.array([i % KEYS for i in range(ROWS)], pa.int64())
    times = pa.array([i * 1000 for i in range(ROWS)], STAMP)
    pq.write_table(pa.table({"k": keys, "ts": times}), tmp_path / "events.parquet")
    queries = pa.table({"k": keys.slice(0, 60), "ts": times.slice(300, 60)})
    pq.write_table(queries, tmp_path / "queries.parquet")
    source = wr.EventSource("e", str(tmp_path / "events.parquet"), time="ts")
    group = wr.GroupBy("g", source, ["k"], [agg.count("k")])
    return wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])


def check(project: wr.Project, join: wr.Join) -> None:
    """Backfill, and compare with plain counting; nothing is left of earlier attempts."""
    found = project.backfill(join, strategy="merge").collect()
    # Query i, of key i % KEYS, is at (300 + i) seconds, and event j of key j % KEYS at j seconds.
    expected = [(i % KEYS, sum(j % KEYS == i % KEYS for j in range(300 + i))) for i in range(60)]
    assert sorted((row["k"], row["g_k_count"]) for row in found) == sorted(expected)
    store = project._store
    assert [n for n in store.names() if n.startswith(("tmp/", "claims/"))] == []


def test_a_full_disk(spark: Any, disk: Disk, join: wr.Join) -> None:
    project = wr.Project(disk.root / "state", spark=spark)
    failed = 0
    for pages in (0, 3, 8, 14, 20, 26, 32, 40):
        disk.fill(pages)
        try:
            project.backfill(join, strategy="merge")
            break
        except StorageUnavailableError as error:
            assert "disk is full" in str(error)  # noqa: PT017
            failed += 1
        finally:
            disk.free()
        assert not [path for path in disk.root.rglob(".*") if path.is_file()]
    assert failed > 2
    check(project, join)


def test_a_read_only_root(spark: Any, disk: Disk, join: wr.Join) -> None:
    project = wr.Project(disk.root / "state", spark=spark)
    disk.protect()
    with pytest.raises(StorageUnavailableError, match="read-only"):
        project.backfill(join, strategy="merge")
    disk.release()
    assert list(disk.root.iterdir()) == []
    check(project, join)
    disk.protect()
    with pytest.raises(StorageUnavailableError, match="read-only"):
        project.backfill(join, strategy="merge")
    disk.release()
    check(project, join)


@pytest.fixture
def proxy(s3_options: dict[str, str]) -> Iterator[Proxy]:
    proxy = Proxy(urlparse(s3_options["AWS_ENDPOINT_URL"]).port or 0)
    yield proxy
    proxy.stop()


def test_a_lost_connection(
    spark: Any, proxy: Proxy, s3_options: dict[str, str], s3_uri: str, join: wr.Join
) -> None:
    options = {
        **s3_options,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "max_retries": "0",
        "timeout": "60s",  # a busy machine is no lost connection
    }
    project = wr.Project(s3_uri, spark=spark, storage_options=options)
    failed = 0
    for request in (2, 12, 24, 36, 48):
        proxy.lose(request, answer=bool(request % 8))
        try:
            project.backfill(join, strategy="merge")
            break
        except StorageUnavailableError as error:
            assert "does not answer" in str(error)  # noqa: PT017
            failed += 1
        finally:
            proxy.heal()
    assert failed > 1
    check(wr.Project(s3_uri, spark=spark, storage_options=s3_options), join)
