"""Records over HTTP: what a store holds is answered as the fetcher answers it in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving_worker import Start

from windrow import EventSource, GroupBy, agg
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.online.fetch import Fetcher
from windrow.online.folding import Batch, Folding
from windrow.online.generations import Generation, GroupNote, note_name
from windrow.online.keys import key_bytes
from windrow.online.served import ServedGroup
from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore

NOW = 1_717_200_000_000
HOUR = 3_600_000


def group() -> GroupBy:
    return GroupBy(
        "activity",
        EventSource("views", table="views", time="ts"),
        ["user"],
        [
            agg.count("price").over("1h", "7d"),
            agg.sum("price").over("7d"),
            agg.last("page").over("7d"),
            agg.last_k("page", 2).over("7d"),
            agg.histogram("page").over("7d"),
        ],
        max_staleness="1h",
    )


def filled(store: RecordStore) -> None:
    """Records of two users, as an upload writes them."""
    layout = Layout((pa.string(),), ("price", "page"), (pa.float64(), pa.string()), (), False)
    made = ServedGroup(group(), layout, HOUR, False)
    served = ServedGroup.from_json(made.to_json())
    rows = pa.table(
        {
            "k0": ["ann", "bob", "ann", "ann"],
            EVENT_TIME: [NOW - 3, NOW - 2 * HOUR, NOW - 5 * HOUR, NOW + 5],
            "v0": [1.5, float("nan"), 2.25, 100.0],
            "v1": ["home", "a/b", None, "later"],
        }
    )
    batch = Batch.of(served, rows)
    records = Folding(served, batch, NOW, (0,))([None] * batch.keys.num_rows)
    store.load(zip(key_bytes(1, batch.keys), records, strict=True))
    generation = Generation(1, served, NOW, (0,), (NOW,), True)
    store.change_note(note_name("activity"), lambda _: GroupNote(generation).written())


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    store = open_store(tmp_path / "records")
    filled(store)
    return Fetcher(store, now=lambda: NOW + 1)


def test_features_over_http_are_those_of_the_fetcher(fetcher: Fetcher, start: Start) -> None:
    keys = [{"user": name} for name in ("ann", "bob", "nobody", "ann")]
    answer = start(fetcher).post("/v1/features/activity", {"keys": keys})
    found = fetcher.fetch("activity", keys)
    assert answer["at"] == NOW + 1
    assert answer["features"]["price_count_7d"] == [2, 1, 0, 2]
    assert answer["features"]["price_sum_7d"] == [3.75, "NaN", None, 3.75]
    assert answer["features"]["page_last_7d"] == ["home", "a/b", None, "home"]
    assert list(answer["features"]) == list(found.names)
    assert answer["statuses"] == {
        name: [status.value for status in column]
        for name, column in zip(found.names, found.statuses, strict=True)
    }


def test_times_and_keys_that_cannot_be_answered_are_refused(fetcher: Fetcher, start: Start) -> None:
    serving = start(fetcher)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"keys": [{"user": "ann"}], "at": NOW - 1}, "only from"),
        ({"keys": [{"user": 7}]}, "user"),
        ({"keys": [{"name": "ann"}]}, "user"),
        ({"keys": [{"user": "ann"}], "features": ["price_sums_7d"]}, "price_sum"),
    ]
    for body, words in wrong:
        status, _, message = serving.refused("/v1/features/activity", body)
        assert 400 <= status < 500, message
        assert words in message
    assert serving.refused("/v1/features/nothing", {"keys": [{"user": "ann"}]})[0] == 404
    late = serving.post("/v1/features/activity", {"keys": [{"user": "ann"}], "at": NOW + 2 * HOUR})
    assert {status for column in late["statuses"].values() for status in column} == {"stale"}
