"""Records over HTTP: what a store holds is answered as the fetcher answers it in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served_records import HOUR, NOW, filled
from serving_worker import Start

from windrow.online.fetch import Fetcher
from windrow.online.stores.opening import open_store


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
