"""A stream that ends at any point, and is started again: each message counts once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow as wr
from windrow.errors import StorageUnavailableError, WindrowError
from windrow.online.streams import batches, quarantine
from windrow.shard.log import Log
from windrow.sources.stream_shard import open_stream
from windrow.storage.delta import open_table
from windrow.storage.store import Store


class EndedError(WindrowError):
    """In place of a kill."""


def before(function: Callable[..., Any]) -> Callable[..., Any]:
    def end(*arguments: Any, **options: Any) -> Any:
        raise EndedError("killed")

    return end


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    def end(*arguments: Any, **options: Any) -> Any:
        function(*arguments, **options)
        raise EndedError("killed")

    return end


POINTS = {
    "rows are written": (batches, "_write_rows"),
    "messages are set aside": (quarantine.Quarantine, "commit"),
    "rows are appended": (Log, "append"),
    "the micro-batch is told": (batches.Batches, "take"),
}


class Site:
    def __init__(self, spark: Any, place: Path) -> None:
        self.place = place
        self.project = wr.Project(place / "state", spark=spark)
        (place / "in").mkdir()
        stream = wr.FolderStream(place / "in", schema="k INT, t BIGINT")
        self.source = wr.EventSource("s", time="t", stream=stream)
        self.sent: Counter[tuple[int, int]] = Counter()
        self.bad = 0

    def send(self, number: int) -> None:
        rows = [(number, 1), (number, 1), (7, 7)]
        lines = [json.dumps({"k": k, "t": t}) for k, t in rows]
        (self.place / f"in/{number}.json").write_text("\n".join([*lines, "{bad"]))
        self.sent.update(rows)
        self.bad += 1

    def run(self, **options: Any) -> None:
        self.project.streams(self.source, once=True, **options).run()

    def check(self) -> None:
        shard = open_stream(f"{self.place}/state/streams/s", None)
        assert shard is not None
        found: Counter[tuple[int, int]] = Counter()
        for row in shard.snapshot().to_table().to_pylist():
            found[row["k"], row["t"]] += row["_diff"]
        assert found == self.sent
        table = open_table(Store.at(f"{self.place}/state/quarantine/streams/s"))
        assert table is not None
        assert pa.table(table.to_pyarrow_table()).num_rows == self.bad


@pytest.fixture
def site(spark: Any, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize("point", POINTS)
def test_each_message_counts_once(
    site: Site, point: str, when: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.send(1)
    site.run()
    site.send(2)
    with monkeypatch.context() as patch:
        owner, name = POINTS[point]
        patch.setattr(owner, name, when(getattr(owner, name)))
        with pytest.raises(EndedError):
            site.run()
    site.send(3)
    site.run()
    site.check()


def test_what_follows_a_micro_batch_comes_again(site: Site) -> None:
    site.send(1)

    def fails(name: str, upper: int) -> None:
        raise EndedError("killed")

    with pytest.raises(EndedError):
        site.run(after=fails)
    seen: list[tuple[str, int]] = []
    site.run(after=lambda name, upper: seen.append((name, upper)))
    shard = open_stream(f"{site.place}/state/streams/s", None)
    assert shard is not None
    assert seen == [("s", shard.upper)]
    site.check()


def test_a_store_that_cannot_be_reached_is_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.online.streams.running._PAUSES", (0.01, 0.02))
    site.send(1)
    failures, done = [1, 1], []

    def unreachable(name: str, upper: int) -> None:
        if failures:
            failures.pop()
            raise StorageUnavailableError("the store does not answer")
        done.append(upper)

    streams = site.project.streams(site.source, trigger=0.01, after=unreachable)
    streams.run(lambda: bool(done))
    site.check()
    assert 'windrow_stream_failures_total{stream="s"} 2' in streams.figures.text()
    site.send(2)
    failures[:] = [1]
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        site.run(after=unreachable)  # what is to end by itself does not wait
    site.run(after=unreachable)
    site.check()
