"""Definitions are checked when made; errors name the field and suggest a fix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import windrow as wr
from windrow import agg
from windrow.algebra.windows import Window
from windrow.errors import DefinitionError
from windrow.time import DAY, HOUR, MINUTE, parse_length

VIEWS = wr.EventSource(name="views", table="site.views", time="ts", partition="ds")


def test_names_of_features() -> None:
    group = wr.GroupBy(
        name="activity",
        source=VIEWS,
        keys=["user_id"],
        aggregations=[
            agg.count("view_id").over("5h", "7d"),
            agg.last_k("listing_id", 10).over("30d"),
            agg.sum("price").over("7d", "90d").by("category"),
            agg.approx_percentile("price", [0.5, 0.99]).over("30d", kind="sliding"),
            agg.max("price"),
            agg.sum("price").over("7d").named("spent"),
            agg.sum("price").over("7d").by("category").named("spent"),
            agg.sum("price").by("category").named("spent"),
        ],
    )
    assert [f.name for f in group.features] == [
        "view_id_count_5h",
        "view_id_count_7d",
        "listing_id_last_10_30d",
        "price_sum_7d_by_category",
        "price_sum_90d_by_category",
        "price_approx_percentile_30d",
        "price_max",
        "spent_7d",
        "spent_7d_by_category",
        "spent_by_category",
    ]
    join = wr.Join("t", wr.Queries("q", time="ts"), [group.on(user_id="buyer_id")])
    assert join.groups[0].left_keys == ("buyer_id",)
    assert join.groups[0].column(group.features[0]) == "activity_view_id_count_5h"


def test_groups_without_offline_use_are_left_out() -> None:
    online = wr.GroupBy("a", VIEWS, ["u"], [agg.count("x")], offline=False)
    both = wr.GroupBy("b", VIEWS, ["u"], [agg.count("x")])
    join = wr.Join("t", wr.Queries("q", time="ts"), [online, both])
    assert [g.group.name for g in join.groups] == ["b"]


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: parse_length("7"), "the units are s, m, h, d, w"),
    (lambda: parse_length("7y"), "unit 'y'"),
    (lambda: parse_length("0d"), "not positive"),
    (lambda: parse_length("-5m"), "not positive"),
    (lambda: parse_length("soon"), "not a length"),
    (lambda: agg.sum("x").over(), "needs a window"),
    (lambda: agg.sum("x").over("7d", kind="tumbling"), "it is one of"),
    (lambda: agg.sum("x").over("7d", hop="7h"), "does not divide a day"),
    (lambda: agg.sum("x").over("1h", hop="2h"), "longer than its window"),
    (lambda: agg.sum("x").over("90s"), "longer than its window"),
    (lambda: agg.sum(""), "not the name of a column"),
    (lambda: agg.last_k("x", 0), "k is 0"),
    (lambda: agg.top_k("x", 10**9), "at most"),
    (lambda: agg.approx_percentile("x", [1.5]), "numbers from 0 to 1"),
    (lambda: wr.EventSource("my views", "t", time="ts"), "not a name"),
    (lambda: wr.EventSource("v", "", time="ts"), "table is ''"),
    (lambda: wr.EventSource("v" * 300, "t", time="ts"), "has 300 characters; use at most 100"),
    (lambda: wr.GroupBy("g" * 101, VIEWS, ["user"], [agg.count("x")]), "use at most 100"),
    (
        lambda: wr.EventSource("v", "t", time="ts", where="x IN (SELECT x FROM t)"),
        "EventSource 'v': where: .* has a subquery",
    ),
    (lambda: wr.GroupBy("g", VIEWS, "user", [agg.count("x")]), r"give a list, \['user'\]"),
    (lambda: wr.GroupBy("g", VIEWS, [], [agg.count("x")]), "keys is empty"),
    (lambda: wr.GroupBy("g", VIEWS, ["u"], []), "aggregations is empty"),
    (lambda: wr.GroupBy("g", VIEWS, ["u"], ["count"]), "not an aggregation"),  # type: ignore[list-item]
    (
        lambda: wr.GroupBy("g", VIEWS, ["u"], [agg.count("x"), agg.count("x")]),
        "defined twice; use .named",
    ),
    (lambda: wr.GroupBy("g", VIEWS, ["u"], [agg.count("x")], accuracy="exact"), "accuracy"),
    (
        lambda: wr.GroupBy("g", VIEWS, ["u"], [agg.count("x")]).on(user="b"),
        r"its keys are \['u'\]",
    ),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_definitions(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        (Window.make("1h", "sliding"), 9 * HOUR + 3, 10 * HOUR + 3),
        (Window.make("1h", "hopping"), 9 * HOUR, 10 * HOUR),
        (Window.make("1h", "sawtooth"), 9 * HOUR, 10 * HOUR + 3),
        (Window.make("12h"), -2 * HOUR, 10 * HOUR + 3),
        (Window.make("12d"), -12 * DAY, 10 * HOUR + 3),
        (Window.make("90s", "sliding"), 10 * HOUR + 3 - 90_000, 10 * HOUR + 3),
        (Window.make("1h", hop="1m"), 9 * HOUR, 10 * HOUR + 3),
    ],
)
def test_window_bounds(window: Window, start: int, end: int) -> None:
    low, high = window.bounds(np.array([10 * HOUR + 3]))
    assert (low[0], high[0]) == (start, end)
    assert window.hop % MINUTE == 0
