"""Strategies agree with each other and with plain loops, for every aggregate and window."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from collisions import colliding_row
from feature_cases import (
    COLUMNS,
    PAIRS,
    WINDOWS,
    aggregation,
    cases,
    k_of,
    overflows,
    tables,
)
from feature_oracle import feature, same
from windrow import agg
from windrow.errors import DataError, OptionError
from windrow.features import limits
from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.partials import combine_features, no_partials, partial_features
from windrow.features.compute.types import feature_type
from windrow.features.inputs.layout import Layout
from windrow.features.strategies.requested import RequestedKeys
from windrow.features.strategies.tiles import job as tiled
from windrow.features.strategies.tiles.tiling import Tiling
from windrow.features.strategies.tiles.windows import boards

DAY = 86_400_000


def by_broadcast(
    group: wr.GroupBy, events: Events, queries: QueryTimes, shares: list[int]
) -> list[pa.Array]:
    """Events in shares (the number of each), each lifted on its own, then combined."""
    inputs = events.inputs.schema
    asked = RequestedKeys.make(queries)
    found = [[table] for table in no_partials(group, inputs)]
    for share in range(max(shares, default=0) + 1):
        at = np.flatnonzero(np.array(shares, np.int64) == share)
        some = Events(
            events.keys.take(pa.array(at)),
            events.times[at],
            events.inputs.take(pa.array(at)),
            {},
        )
        timelines, places = asked.place(some, group)
        for tables_, table in zip(
            found, partial_features(group, some, timelines, places), strict=True
        ):
            tables_.append(table)
    count = asked.order.size
    place = np.full(queries.times.size, count)
    place[asked.order] = np.arange(count)
    results = combine_features(group, inputs, found, count)
    return [result.take(pa.array(place)) for result in results]


@pytest.mark.parametrize(("name", "column"), PAIRS)
@settings(max_examples=10)
@given(data=st.data())
def test_strategies_equal_the_plain_loops(name: str, column: str, data: st.DataObject) -> None:
    by_strategy = data.draw(st.sampled_from([by_broadcast, by_tiles]))
    events, queries = data.draw(cases(column))
    one = aggregation(name, column)
    if data.draw(st.booleans()):
        one = one.by("bucket")
    lengths, options = data.draw(st.sampled_from(WINDOWS))
    if lengths is not None:
        one = one.over(*lengths, **options)
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    source = wr.EventSource("s", table="t", time="time")
    group = wr.GroupBy("g", source, ["k", "o"], [one], accuracy=accuracy)
    shares = [data.draw(st.integers(0, 2)) for _ in events]
    left, right = tables(events, queries, column)
    (the_feature,) = group.features
    window = the_feature.window
    expected = [
        feature(
            events,
            {"k": q["k"], "o": q["o"]},
            q["time"],
            name=name,
            column=column,
            window=(window.kind.value, window.length, window.hop),
            k=k_of(one),
            bucket=one.bucket,
            accuracy=accuracy,
            is_map=column == "map",
        )
        for q in queries
    ]
    if name == "sum" and overflows(expected):
        with pytest.raises(DataError, match="fit"):
            by_strategy(group, left, right, shares)
        return
    (found,) = by_strategy(group, left, right, shares)
    assert found.type == feature_type(one, left.inputs.schema, "test")
    for got, want, query in zip(found.to_pylist(), expected, queries, strict=True):
        assert same(got, want), f"{query}: {got!r} is not {want!r}"


def by_tiles(
    group: wr.GroupBy, events: Events, queries: QueryTimes, shares: list[int]
) -> list[pa.Array]:
    """Tiles of each share of the events, then windows from tiles and raw events."""
    inputs = events.inputs.schema
    layout = Layout(
        tuple(events.keys.schema.types), tuple(inputs.names), tuple(inputs.types), (), False
    )
    names = layout.keys
    stored: Any = SimpleNamespace(layout=layout)
    asked = RequestedKeys.make(queries)
    count = asked.order.size
    times = group.effective_times(asked.times)
    keys = queries.keys.rename_columns(names).take(pa.array(asked.order))
    raw = Events(events.keys.rename_columns(names), events.times, events.inputs, {})
    place = np.full(queries.times.size, count)
    place[asked.order] = np.arange(count)
    tilings, made = [Tiling(one, stored) for one in group.aggregations], []
    for tiling in tilings:
        tables_ = [tiling.schema.empty_table()]
        for share in range(max(shares, default=0) + 1):
            at = pa.array(np.flatnonzero(np.array(shares, np.int64) == share))
            some = Events(raw.keys.take(at), raw.times[at], raw.inputs.take(at), {})
            tables_ += list(tiling.tiles(some))
        if tiling.takes_retractions:  # rows of a bucket of their own come and go
            at = inputs.names.index("bucket")
            other = pa.array(["gone"] * len(shares), pa.string())
            gone = replace(raw, inputs=raw.inputs.set_column(at, "bucket", other))
            diffs = np.ones(len(shares), np.int64)
            tables_ += [*tiling.tiles(gone, diffs), *tiling.tiles(gone, -diffs)]
        made.append(pa.concat_tables(tables_).combine_chunks())
    results = [
        board.feature(f.window)
        for board in boards(tilings, made, raw, keys, times, block_size=3)
        for f in board.tiling.aggregation.features()
    ]
    return [result.take(pa.array(place)) for result in results]


def test_broadcast_tells_keys_with_one_hash_apart() -> None:
    first = (1, 2)
    second = colliding_row((7,), first)
    third = colliding_row((8,), first)
    keys = [first, second, third, first, second]
    events = Events(
        pa.table({"a": [k[0] for k in keys], "b": [k[1] for k in keys]}),
        np.zeros(5, np.int64),
        pa.table({"x": pa.array([1, 10, 100, 1000, 10000])}),
        {},
    )
    asked = [first, second, first]
    queries = QueryTimes(
        pa.table({"a": [k[0] for k in asked], "b": [k[1] for k in asked]}),
        np.array([5, 5, 9]),
        np.ones(3, np.bool_),
    )
    group = wr.GroupBy("g", wr.EventSource("s", "t", time="t"), ["a", "b"], [agg.sum("x")])
    (found,) = by_broadcast(group, events, queries, [0, 0, 0, 1, 1])
    assert found.to_pylist() == [1001, 10010, 1001]


AGGREGATIONS = [
    agg.count("x").over("1h", "3d"),
    agg.sum("x").over("3d", kind="sliding"),
    agg.max("x").over("1d", kind="hopping"),
    agg.last_k("x", 2),
    agg.histogram("x").over("7d"),
    agg.avg("x").over("3d").by("bucket"),
    agg.approx_percentile("x", [0.1, 0.9]).over("3d"),
    agg.count("x").over("3d").where("x > 3").named("large"),
]


@pytest.fixture
def shop(tmp_path: Path) -> tuple[str, str]:
    rng = random.Random(3)
    folder = tmp_path / "events"
    folder.mkdir()
    stamp = pa.timestamp("ms", "UTC")
    for file in range(3):
        rows = 400
        table = pa.table(
            {
                "k": [rng.randrange(20) for _ in range(rows)],
                "x": [rng.choice([1, 2, 5, None]) for _ in range(rows)],
                "bucket": [rng.choice(["a", "b", None]) for _ in range(rows)],
                "ts": pa.array([rng.randrange(10 * DAY) for _ in range(rows)], stamp),
            }
        )
        pq.write_table(table, folder / f"{file}.parquet")
    left = pa.table(
        {
            "id": range(9),
            "k": pa.array([rng.choice([1, 2, 3, None, 99]) for _ in range(9)], pa.int64()),
            "ts": pa.array([*(rng.randrange(10 * DAY) for _ in range(8)), None], stamp),
        }
    )
    pq.write_table(left, tmp_path / "queries.parquet")
    return str(folder), str(tmp_path / "queries.parquet")


def rows_of(frame: Any) -> list[Any]:
    return sorted(map(repr, frame.collect()))


@pytest.mark.parametrize("given", ["files", "dataframe"])
def test_strategies_agree_on_spark(
    spark: Any, tmp_path: Path, shop: tuple[str, str], given: str
) -> None:
    events: Any = shop[0] if given == "files" else spark.read.parquet(shop[0])
    source = wr.EventSource("s", events, time="ts")
    group = wr.GroupBy("g", source, ["k"], AGGREGATIONS)
    other = wr.GroupBy("h", source, ["k"], [agg.min("x")], accuracy="snapshot")
    join = wr.Join("j", wr.Queries(shop[1], time="ts"), [group, other], derive={"d": "g_x_last_2"})
    project = wr.Project(tmp_path / "state", spark=spark)
    found = {
        strategy: rows_of(project.backfill(join, strategy=strategy))
        for strategy in ("broadcast", "merge", "tiles")
    }
    assert found["broadcast"] == found["merge"] == found["tiles"]
    assert len(found["merge"]) == 9
    assert project.summary is not None
    assert project.summary.null_times == 1


def test_a_task_of_a_broadcast_reads_several_shares(
    spark: Any, tmp_path: Path, shop: tuple[str, str]
) -> None:
    """Row groups of these sizes are dealt out evenly only in more shares than tasks run at once."""
    table = pq.read_table(shop[0])
    with pq.ParquetWriter(tmp_path / "uneven.parquet", table.schema) as out:
        start = 0
        for rows in (100, 600, 100, 400):
            out.write_table(table.slice(start, rows))
            start += rows
    source = wr.EventSource("s", str(tmp_path / "uneven.parquet"), time="ts")
    several = [agg.sum("x").over("1d", "7d"), agg.last_k("x", 3), agg.count("x").by("bucket")]
    group = wr.GroupBy("g", source, ["k"], several)
    join = wr.Join("j", wr.Queries(shop[1], time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    plan = project.plan(join, strategy="broadcast")
    (piece,) = plan.arrangements[0].inputs.content.pieces
    tasks = spark.sparkContext.defaultParallelism
    assert piece.rows is not None
    assert piece.rows.tasks > tasks
    found = rows_of(project.backfill(join, strategy="broadcast"))
    assert found == rows_of(project.backfill(join, strategy="merge"))


def test_a_hot_key_is_split_by_time(
    spark: Any, tmp_path: Path, shop: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "pieces_of", lambda number, base: 3)
    source = wr.EventSource("s", shop[0], time="ts")
    group = wr.GroupBy("g", source, ["k"], AGGREGATIONS)
    join = wr.Join("j", wr.Queries(shop[1], time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    whole = rows_of(project.backfill(join, strategy="merge"))
    assert rows_of(project.backfill(join, strategy="tiles")) == whole
    assert project.summary is not None
    assert project.summary.raw_rows_read == 0
    # New events extend the tiles; nothing is built again.
    (tiles,) = (tmp_path / "state" / "tiles").glob("*/*")
    before = {p for one in tiles.iterdir() for p in one.glob("*.parquet")}
    more = pq.read_table(f"{shop[0]}/0.parquet")
    pq.write_table(more, f"{shop[0]}/more.parquet")
    found = rows_of(project.backfill(join, strategy="tiles"))
    assert project.summary.raw_rows_read == 400
    assert before < {p for one in tiles.iterdir() for p in one.glob("*.parquet")}
    assert found == rows_of(project.backfill(join, strategy="merge")) != whole


def test_tiles_of_groups_take_retractions(
    spark: Any, tmp_path: Path, shop: tuple[str, str]
) -> None:
    """After a file was rewritten, sums subtract what it held; other tiles are rebuilt."""
    source = wr.EventSource("s", shop[0], time="ts")
    aggregations = [
        agg.sum("x").over("3d"),
        agg.avg("x").over("1d"),  # its states are those of the sum, and so are its tiles
        agg.histogram("x").by("bucket"),
        agg.count("x").over("3d").by("bucket"),
        agg.max("x").over("3d").by("bucket"),
    ]
    group = wr.GroupBy("g", source, ["k"], aggregations)
    join = wr.Join("j", wr.Queries(shop[1], time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    small = pq.read_table(f"{shop[0]}/1.parquet").slice(0, 100)
    pq.write_table(small, f"{shop[0]}/small.parquet")
    tiles = [rows_of(project.backfill(join, strategy="tiles"))]
    merged = [rows_of(project.backfill(join, strategy="merge"))]
    (place,) = (tmp_path / "state" / "tiles").glob("*/*")

    def files() -> dict[str, set[Path]]:
        return {one.name: set(one.glob("*.parquet")) for one in place.iterdir()}

    before = files()
    assert len(before) == 4

    def rewrite(name: str) -> None:
        """Leave one bucket, so that keys lose others altogether."""
        rows = pq.read_table(f"{shop[0]}/{name}.parquet")
        kept = rows.filter(pc.equal(rows.column("bucket"), "a"))
        pq.write_table(kept, f"{shop[0]}/{name}.parquet")
        tiles.append(rows_of(project.backfill(join, strategy="tiles")))
        merged.append(rows_of(project.backfill(join, strategy="merge")))

    rewrite("small")
    after = files()
    assert sum(before[name] < after[name] for name in before) == 3
    assert len(after.keys() - before.keys()) == 1  # of the maximum
    # So many retractions are compacted away, and with them the times of what is left.
    rewrite("1")
    assert len(files().keys() - after.keys()) == 4
    assert tiles == merged
    assert tiles[0] != tiles[1] != tiles[2]


def test_a_hot_key_is_found_and_only_it_has_tiles(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLICE_ROWS", 10_000)
    monkeypatch.setattr(limits, "LARGE_KEY_SLICES", 2)
    rng = np.random.default_rng(4)
    rows = 90_000
    keys = np.where(rng.random(rows) < 0.9, 7, rng.integers(0, 50, rows))
    times = pa.array(rng.integers(0, 10 * DAY, rows), pa.timestamp("ms", "UTC"))
    events = pa.table({"k": keys, "x": rng.integers(-50, 50, rows), "ts": times})
    pq.write_table(events, tmp_path / "events.parquet")  # one task, one run
    asked = pa.table({"id": range(600), "k": keys[:600], "ts": times.slice(rows - 600)})
    pq.write_table(asked, tmp_path / "queries.parquet")
    source = wr.EventSource("s", str(tmp_path / "events.parquet"), time="ts")
    aggregations = [
        agg.sum("x").over("6h", "3d", kind="sliding"),
        agg.max("x").over("1d"),
        agg.last_k("x", 2).over("2h"),
        agg.unique_count("x"),
    ]
    group = wr.GroupBy("g", source, ["k"], aggregations)
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    merged = rows_of(project.backfill(join, strategy="merge"))
    assert "tiles by k (one key has " in str(project.plan(join))
    assert rows_of(project.backfill(join)) == merged
    (one, *_) = (tmp_path / "state" / "tiles").glob("*/*/*")
    assert set(wr.Shard.open(one).snapshot().to_table().column("k0").to_pylist()) == {7}
    # It grows, and a file of it changes: other tiles, the same features.
    pq.write_table(events.slice(0, 40_000), tmp_path / "events.parquet")
    assert rows_of(project.backfill(join, strategy="tiles")) == rows_of(
        project.backfill(join, strategy="merge")
    )


def test_the_choice_is_explained(spark: Any, tmp_path: Path, shop: tuple[str, str]) -> None:
    source = wr.EventSource("s", shop[0], time="ts")
    group = wr.GroupBy("g", source, ["k"], [agg.count("x")])
    join = wr.Join("j", wr.Queries(shop[1], time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    chosen = str(project.plan(join))
    assert "broadcast by k (9 queries are few beside 1,200 events not arranged)" in chosen
    assert "  arrange  " not in chosen
    frame = project.backfill(join)
    assert project.summary is not None
    assert project.summary.raw_rows_read == 1200
    project.backfill(join, strategy="merge")
    assert "merge by k (events are arranged)" in str(project.plan(join))
    assert rows_of(frame) == rows_of(project.backfill(join))
    assert project.summary.raw_rows_read == 0
    with pytest.raises(OptionError, match="it is one of"):
        project.plan(join, strategy="fast")
    entity = wr.EntitySource("e", "ts", changes=shop[0], mutation_time="ts", change_type="bucket")
    changing = wr.Join("c", join.left, [wr.GroupBy("g", entity, ["k"], [agg.count("x")])])
    with pytest.raises(OptionError, match="which of its rows are still there"):
        project.plan(changing, strategy="tiles")


def test_columns_cover_all_kinds_of_input() -> None:
    assert {column for _, column in PAIRS} == set(COLUMNS)
