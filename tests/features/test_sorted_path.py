"""Rows that come sorted by the hash of their key, and rows that tasks read from files themselves.

Both are shortcuts: each has to give what the long way gives, collisions of hashes included.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

import windrow as wr
from collisions import chain, colliding_row
from feature_cases import k_of
from feature_oracle import feature, same
from windrow import agg
from windrow.errors import StorageError
from windrow.features import limits
from windrow.features.compute.events import Events, QueryTimes, canonical_table
from windrow.features.compute.features import group_features
from windrow.features.compute.timeline import Lane, Timelines
from windrow.features.inputs.layout import EVENT_ORDER, EVENT_TIME
from windrow.features.strategies.queries import StoredQueries
from windrow.rows.hashing import hash_keys
from windrow.rows.types import single_chunk
from windrow.shard.plan import even_cuts
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX

HOUR, DAY = 3_600_000, 86_400_000
Row = dict[str, Any]

# Four keys of one hash, one of another; a NULL leaves the hash as it is, so two more collide.
ONE = (1, 2)
KEYS: list[tuple[int | None, int | None]] = [
    ONE,
    colliding_row((3,), ONE),  # type: ignore[list-item]
    colliding_row((-9,), ONE),  # type: ignore[list-item]
    (5, 6),
    (7, None),
    (None, 7),
]
WINDOWS = [{"kind": "sliding"}, {"kind": "sawtooth"}, {"kind": "hopping", "hop": "1h"}]


def definition(accuracy: str = "temporal", source: wr.EventSource | None = None) -> wr.GroupBy:
    source = source or wr.EventSource("s", table="t", time="time")
    made = []
    for at, options in enumerate(WINDOWS):
        made += [
            agg.count("n").named(f"count{at}").over("1d", **options),
            agg.sum("x").named(f"sum{at}").over("1d", **options),
        ]
    made += [
        agg.last_k("n", 2).over("2d"),
        agg.collect_list("n"),
        agg.unique_count("n").over("1d"),
        agg.max("x"),
        agg.sum("n").by("bucket").over("2d"),
        agg.count("tags").over("2d"),
    ]
    return wr.GroupBy("g", source, ["a", "b"], made, accuracy=accuracy)


def expected(group: wr.GroupBy, events: list[Row], keys: Row, time: int | None) -> list[Any]:
    return [
        feature(
            events,
            keys,
            time,
            name=f.aggregation.function.name,
            column=f.aggregation.column,
            window=(f.window.kind.value, f.window.length, f.window.hop),
            k=k_of(f.aggregation),
            bucket=f.aggregation.bucket,
            accuracy=group.accuracy,
        )
        for f in group.features
    ]


def key_table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("a", "b")}
    )


def as_events(rows: list[Row], hashes: np.ndarray | None) -> Events:
    inputs = pa.table(
        {
            "n": pa.array([row["n"] for row in rows], pa.int64()),
            "x": pa.array([row["x"] for row in rows], pa.float64()),
            "bucket": pa.array([row["bucket"] for row in rows], pa.string()),
            "tags": pa.array([row["tags"] for row in rows], pa.list_(pa.int64())),
        }
    )
    times = np.array([row["time"] for row in rows], np.int64)
    return Events(key_table(rows), times, inputs, {}, hashes)


def as_queries(rows: list[Row], hashes: np.ndarray | None) -> QueryTimes:
    times = np.array([row["time"] or 0 for row in rows], np.int64)
    valid = np.array([row["time"] is not None for row in rows], np.bool_)
    return QueryTimes(key_table(rows), times, valid, hashes)


def hashes_of(rows: list[Row]) -> np.ndarray:
    return hash_keys([single_chunk(c) for c in key_table(rows).columns])


def by_hash_and_time(rows: list[Row]) -> list[int]:
    """The order of a slice: NULL times first."""
    hashes = hashes_of(rows)
    earliest = -(2**63)
    return sorted(
        range(len(rows)),
        key=lambda i: (hashes[i], earliest if rows[i]["time"] is None else rows[i]["time"]),
    )


def test_the_keys_do_collide() -> None:
    rows = [{"a": a, "b": b} for a, b in KEYS]
    found = hashes_of(rows)
    assert len(set(found[:3].tolist())) == 1
    assert int(found[0]) % 2**64 == chain(ONE)
    assert found[4] == found[5]
    assert len(set(found.tolist())) == 3


def times() -> st.SearchStrategy[int]:
    return st.builds(
        lambda edge, off: edge + off,
        st.sampled_from([0, HOUR, DAY, 2 * DAY]),
        st.sampled_from([-1, 0, 1, HOUR // 2]),
    )


def event_rows(keys: list[tuple[int | None, int | None]]) -> st.SearchStrategy[list[Row]]:
    row = st.builds(
        lambda key, time, n, x, bucket, tags: {
            "a": key[0],
            "b": key[1],
            "time": time,
            "n": n,
            "x": x,
            "bucket": bucket,
            "tags": tags,
        },
        st.sampled_from(keys),
        times(),
        st.sampled_from([0, 1, 1, 5, None]),
        st.sampled_from([0.5, -1e300, 1e300, float("nan"), None]),
        st.sampled_from(["red", "blue", None]),
        st.sampled_from([[1, 2], [], [None, 3], None]),
    )
    return st.lists(row, max_size=20)


def query_rows(keys: list[tuple[int | None, int | None]]) -> st.SearchStrategy[list[Row]]:
    row = st.builds(
        lambda key, time: {"a": key[0], "b": key[1], "time": time},
        st.sampled_from(keys),
        st.none() | times(),
    )
    return st.lists(row, max_size=8)


def check_both_ways(events: list[Row], queries: list[Row], accuracy: str) -> None:
    group = definition(accuracy)
    general = group_features(group, as_events(events, None), as_queries(queries, None))
    order, asked = by_hash_and_time(events), by_hash_and_time(queries)
    sorted_events, sorted_queries = [events[i] for i in order], [queries[i] for i in asked]
    swift = group_features(
        group,
        as_events(sorted_events, hashes_of(sorted_events)),
        as_queries(sorted_queries, hashes_of(sorted_queries)),
    )
    assert [a.type for a in swift] == [a.type for a in general]
    for at, i in enumerate(asked):
        query = queries[i]
        want = expected(group, events, {"a": query["a"], "b": query["b"]}, query["time"])
        for one, column, other, value in zip(group.features, swift, general, want, strict=True):
            got = column[at].as_py()
            assert same(got, value), f"{query}: sorted, {one.name} is {got!r}, not {value!r}"
            got = other[i].as_py()
            assert same(got, value), f"{query}: {one.name} is {got!r}, not {value!r}"


@settings(max_examples=100)
@given(event_rows(KEYS), query_rows(KEYS), st.sampled_from(["temporal", "snapshot"]))
@example([], [{"a": 1, "b": 2, "time": 5}], "temporal")
@example([], [], "temporal")
def test_sorted_rows_give_what_unsorted_rows_give(
    events: list[Row], queries: list[Row], accuracy: str
) -> None:
    check_both_ways(events, queries, accuracy)


@settings(max_examples=60)
@given(
    event_rows([KEYS[0], KEYS[3]]),
    query_rows([KEYS[0], KEYS[3], (None, 2)]),
    st.sampled_from(["temporal", "snapshot"]),
)
def test_sorted_rows_without_collisions_give_the_same(
    events: list[Row], queries: list[Row], accuracy: str
) -> None:
    check_both_ways(events, queries, accuracy)
    # Nothing collides among keys that are not null, so the shortcut was taken.
    events = [events[i] for i in by_hash_and_time(events)]
    queries = [queries[i] for i in by_hash_and_time(queries)]
    queries = [q for q in queries if q["a"] is not None and q["time"] is not None]
    assert lanes(events, queries) is not None


def lanes(events: list[Row], queries: list[Row]) -> Timelines | None:
    sides = [
        Lane(
            canonical_table(key_table(rows)),
            hashes_of(rows),
            np.array([row["time"] for row in rows], np.int64),
        )
        for rows in (events, queries)
    ]
    return Timelines.of_sorted(sides[0], sides[1], np.zeros(len(queries), np.bool_))


@pytest.mark.parametrize("theirs", [1, 2])
def test_a_collision_is_noticed(theirs: int) -> None:
    def row(key: int, time: int) -> Row:
        return {"a": KEYS[key][0], "b": KEYS[key][1], "time": time}

    assert lanes([row(0, 1), row(theirs, 2)], [row(3, 5)]) is None  # among events
    assert lanes([row(0, 1)], [row(theirs, 5)]) is None  # of a query with an event
    assert lanes([row(0, 1)], [row(0, 5), row(theirs, 6)]) is None
    assert lanes([row(3, 1)], [row(0, 5), row(theirs, 6)]) is not None  # met by no event


def test_a_list_for_each_event_on_average() -> None:
    # As many elements as events: their positions are not those of the events.
    rows = [
        {"a": 1, "b": 2, "time": time, "n": 1, "x": 1.0, "bucket": None, "tags": tags}
        for time, tags in [(10, [1, 2]), (20, []), (30, [3, None]), (40, [4])]
    ]
    group = wr.GroupBy(
        "g",
        wr.EventSource("s", table="t", time="time"),
        ["a", "b"],
        [agg.collect_list("tags"), agg.sum("tags").over("5m", kind="sliding"), agg.last("tags")],
    )
    asked = [{"a": 1, "b": 2, "time": time} for time in (11, 21, 31, 41)]
    for hashed in (False, True):
        collected, sums, last = group_features(
            group,
            as_events(rows, hashes_of(rows) if hashed else None),
            as_queries(asked, hashes_of(asked) if hashed else None),
        )
        assert collected.to_pylist() == [[1, 2], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
        assert sums.to_pylist() == [3, 3, 6, 10]
        assert last.to_pylist() == [2, 2, 3, 4]


SHARD = pa.schema([("k0", pa.int64()), ("k1", pa.int64()), (EVENT_TIME, pa.int64())]).append(
    pa.field("v0", pa.string())
)


@settings(max_examples=25)
@given(
    st.lists(  # runs of rows
        st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.none() | st.integers(-3, 3),
                st.sampled_from(["x", "y", None]),
                st.integers(1, 3),
            ),
            max_size=10,
        ),
        max_size=4,
    ),
    st.integers(1, 3),
)
def test_runs_are_merged_in_order_each_row_as_often_as_it_is_there(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Any]], slices: int
) -> None:
    uri = tmp_path_factory.mktemp("shard") / "runs"
    shard = Shard.create(uri, SHARD, key=["k0", "k1"], order=EVENT_ORDER)
    shard.append(SHARD.empty_table(), lower=0, upper=1)
    for at, run in enumerate(runs):
        columns = [
            [k[0] for k, _, _, _ in run],
            [k[1] for k, _, _, _ in run],
            [t for _, t, _, _ in run],
            [v for _, _, v, _ in run],
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SHARD, strict=True)]
        table = pa.table(arrays, schema=SHARD)
        table = table.append_column("_diff", pa.array([d for *_, d in run], pa.int64()))
        shard.append(table, lower=at + 1, upper=at + 2)
    stored = StoredQueries.of(shard)
    cuts = even_cuts(stored.parts, slices, None)
    table = pa.concat_tables(stored.slices(cuts, range(len(cuts) + 1)))
    assert table.column_names == [*SHARD.names, PREFIX]
    lowest = -(2**63)
    order = [
        (prefix, lowest if time is None else time)
        for prefix, time in zip(
            table.column(PREFIX).to_pylist(), table.column(EVENT_TIME).to_pylist(), strict=True
        )
    ]
    assert order == sorted(order)
    assert all(
        row[PREFIX] == hashes_of([{"a": row["k0"], "b": row["k1"]}])[0] for row in table.to_pylist()
    )
    found = Counter(tuple(row[n] for n in SHARD.names) for row in table.to_pylist())
    assert found == sum((Counter({(*k, t, v): d}) for run in runs for k, t, v, d in run), Counter())


# The same through Spark.


def timestamps(millis: list[int | None], extra: int, type_: pa.DataType) -> pa.Array:
    """Times as a column of `type_`; with microseconds beyond the millisecond, where it has them."""
    if pa.types.is_int64(type_):
        return pa.array(millis, type_)
    if pa.types.is_date(type_):
        return pa.array([None if m is None else m // DAY for m in millis], pa.int32()).cast(type_)
    if type_.unit == "ms":
        return pa.array(millis, pa.int64()).cast(type_)
    return pa.array([None if m is None else m * 1_000 + extra for m in millis]).cast(type_)


def collisions(seed: int) -> tuple[list[Row], list[Row]]:
    rng = np.random.default_rng(seed)

    def key() -> Row:
        a, b = KEYS[int(rng.integers(0, len(KEYS)))]
        return {"a": a, "b": b}

    def time() -> int:
        return int(rng.integers(-10, 70)) * HOUR

    events = [
        {
            **key(),
            "time": time(),
            "n": int(rng.integers(0, 4)),
            "x": float(rng.integers(0, 9)) / 4,
            "bucket": ["red", "blue", None][rng.integers(0, 3)],
            "tags": [[1, 2], [], [3]][rng.integers(0, 3)],
        }
        for _ in range(120)
    ]
    queries = [{**key(), "time": None if i % 9 == 0 else time()} for i in range(40)]
    return events, queries + queries[:4]


INPUTS = {
    "n": pa.int64(),
    "x": pa.float64(),
    "bucket": pa.string(),
    "tags": pa.list_(pa.int64()),
}


def write_rows(
    rows: list[Row], time: pa.DataType, types: dict[str, pa.DataType], extra: int = 0
) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], type_) for name, type_ in types.items()}
    return pa.table({**columns, "ts": timestamps([row["time"] for row in rows], extra, time)})


def how_read(project: wr.Project, join: wr.Join, what: str) -> str:
    """What the plan says of reading a source, or the queries."""
    lines = str(project.plan(join)).splitlines()
    (line,) = (line for line in lines if line.startswith(f"  read     {what} from "))
    return line


def check_rows(frame: Any, group: wr.GroupBy, events: list[Row], queries: list[Row]) -> None:
    """The queries are told apart by `id`."""
    rows = {row["id"]: row for row in frame.collect()}
    assert sorted(rows) == list(range(len(queries)))
    for i, query in enumerate(queries):
        keys = {name: query[name] for name in group.keys}
        want = expected(group, events, keys, query["time"])
        for one, value in zip(group.features, want, strict=True):
            got = rows[i][f"{group.name}_{one.name}"]
            got = list(got.items()) if isinstance(got, dict) else got
            assert same(got, value), f"{query}: {one.name} is {got!r}, not {value!r}"


@pytest.mark.parametrize("reader", ["tasks read the files", "Spark reads it"])
def test_a_backfill_never_mixes_keys_of_one_hash(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    events, queries = collisions(3)
    keys = {"a": pa.int64(), "b": pa.int64()}
    (tmp_path / "events").mkdir()
    written = write_rows(events, pa.int64(), {**keys, **INPUTS})
    for i in range(3):
        path = tmp_path / "events" / f"{i}.parquet"
        pq.write_table(written.slice(i * 40, 40), path, row_group_size=15)
    left = write_rows(queries, pa.int64(), keys).append_column("id", pa.array(range(len(queries))))
    pq.write_table(left, tmp_path / "queries.parquet")
    table: Any = str(tmp_path / "events")
    asked: Any = str(tmp_path / "queries.parquet")
    if reader == "Spark reads it":
        table, asked = spark.read.parquet(table), spark.read.parquet(asked)
    group = definition(source=wr.EventSource("s", table=table, time="ts"))
    join = wr.Join("j", wr.Queries(asked, time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    assert reader in how_read(project, join, "queries")
    assert reader in how_read(project, join, "s")
    monkeypatch.setattr(limits, "SLICE_ROWS", 20)  # several slices
    monkeypatch.setattr(limits, "BATCH_ROWS", 6)  # of several batches
    check_rows(project.backfill(join), group, events, queries)


def one_key(seed: int) -> tuple[list[Row], list[Row]]:
    rng = np.random.default_rng(seed)
    items = ["rake", "hoe", "a scythe with a long handle", None]

    def time() -> int:
        return int(rng.integers(-3, 4)) * DAY + int(rng.integers(-1, 2))

    events = [
        {
            "user": [1, 2, -5, None][rng.integers(0, 4)],
            "item": items[rng.integers(0, 4)],
            "time": time(),
            "n": int(rng.integers(0, 4)),
        }
        for _ in range(60)
    ]
    queries = [
        {"user": [1, 2, -5, 9, None][i % 5], "item": items[i % 4], "time": time()}
        for i in range(24)
    ]
    return events, queries


Write = Callable[[pa.Table, Path], None]


def one_file(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=17)


def several_files(table: pa.Table, path: Path) -> None:
    path.mkdir()
    for i in range(4):  # the last is empty
        pq.write_table(table.slice(i * 20, 20), path / f"{i}.parquet", row_group_size=7)


def old_timestamps(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)


def hive_folders(table: pa.Table, path: Path) -> None:
    pq.write_to_dataset(table, path, partition_cols=["n"])


def delta(table: pa.Table, path: Path) -> None:
    write_deltalake(str(path), table.slice(5, 20))  # files that the log names no more
    write_deltalake(str(path), table.slice(0, 30), mode="overwrite")
    write_deltalake(str(path), table.slice(30), mode="append")


UTC = pa.timestamp("us", "UTC")
TASKS, SPARK = "tasks read the files", "Spark reads it"
LAYOUTS: dict[str, tuple[pa.DataType, dict[str, pa.DataType], Write, str]] = {
    "us, zone": (UTC, {}, one_file, TASKS),
    "ms, zone": (pa.timestamp("ms", "UTC"), {}, several_files, TASKS),
    "other zone": (pa.timestamp("us", "Europe/Berlin"), {}, one_file, TASKS),
    "us, no zone": (pa.timestamp("us"), {}, several_files, TASKS),
    "ms, no zone": (pa.timestamp("ms"), {}, one_file, TASKS),
    "int96": (UTC, {}, old_timestamps, SPARK),
    "date": (pa.date32(), {}, one_file, TASKS),
    "bigint": (pa.int64(), {}, several_files, TASKS),
    "narrow keys": (UTC, {"user": pa.int32(), "n": pa.int8()}, one_file, TASKS),
    "dictionary": (UTC, {"item": pa.dictionary(pa.int32(), pa.string())}, several_files, TASKS),
    "large strings": (UTC, {"item": pa.large_string()}, one_file, TASKS),
    "hive folders": (UTC, {}, hive_folders, TASKS),  # n is in the names of folders
    "delta": (UTC, {}, delta, TASKS),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sources_of_every_layout(spark: Any, tmp_path: Path, layout: str) -> None:
    time, types, write, reader = LAYOUTS[layout]
    events, queries = one_key(len(layout))
    columns = {"user": pa.int64(), "item": pa.string(), "n": pa.int64()} | types
    name = "events.parquet" if write in (one_file, old_timestamps) else "events"
    write(write_rows(events, time, columns, extra=999), tmp_path / name)
    left = write_rows(queries, UTC, {"user": pa.int64(), "item": pa.string()}, extra=500)
    left = left.append_column("id", pa.array(range(len(queries))))
    pq.write_table(left, tmp_path / "queries.parquet")
    if pa.types.is_date(time):
        events = [{**e, "time": e["time"] // DAY * DAY} for e in events]
    source = wr.EventSource("s", table=str(tmp_path / name), time="ts")
    group = wr.GroupBy(
        "g",
        source,
        ["user", "item"],
        [agg.count("n").over("2d"), agg.collect_list("n"), agg.sum("n").over("1d", kind="sliding")],
    )
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    assert reader in how_read(project, join, "s")
    assert TASKS in how_read(project, join, "queries")
    check_rows(project.backfill(join), group, events, queries)


SELECTS: dict[str, tuple[dict[str, str] | list[str], str]] = {
    "renamed": ({"user": "uid", "item": "`what`", "n": "amount", "ts": " at "}, TASKS),
    "swapped": (
        {"user": "uid", "item": "what", "n": "other", "other": "amount", "ts": "at"},
        TASKS,
    ),
    "computed": ({"user": "uid", "item": "what", "n": "amount + 0", "ts": "at"}, SPARK),
    "in other case": ({"user": "UID", "item": "What", "n": "amount", "ts": "at"}, SPARK),
}


@pytest.mark.parametrize("kind", SELECTS)
def test_select_renames_columns(spark: Any, tmp_path: Path, kind: str) -> None:
    select, reader = SELECTS[kind]
    events, queries = one_key(5)
    table = write_rows(events, UTC, {"user": pa.int64(), "item": pa.string(), "n": pa.int64()})
    table = table.rename_columns(["uid", "what", "amount", "at"])
    table = table.append_column("other", pa.array(range(60, 120)))
    one_file(table, tmp_path / "events.parquet")
    left = write_rows(queries, UTC, {"user": pa.int64(), "item": pa.string()})
    left = left.append_column("id", pa.array(range(len(queries))))
    pq.write_table(left, tmp_path / "queries.parquet")
    if kind == "swapped":
        events = [{**e, "n": 60 + i} for i, e in enumerate(events)]
    source = wr.EventSource("s", str(tmp_path / "events.parquet"), time="ts", select=select)
    group = wr.GroupBy("g", source, ["user", "item"], [agg.collect_list("n"), agg.max("n")])
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    assert reader in how_read(project, join, "s")
    check_rows(project.backfill(join), group, events, queries)


def test_partitioned_folders_are_read_by_tasks_for_the_days_asked(
    spark: Any, tmp_path: Path
) -> None:
    events, queries = one_key(8)
    for event in events:
        event["ds"] = str(dt.date(1970, 1, 1) + dt.timedelta(days=event["time"] // DAY))
    types = {"user": pa.int64(), "item": pa.string(), "n": pa.int64(), "ds": pa.string()}
    pq.write_to_dataset(write_rows(events, UTC, types), tmp_path / "events", partition_cols=["ds"])
    left = write_rows(queries, UTC, {"user": pa.int64(), "item": pa.string()})
    left = left.append_column("id", pa.array(range(len(queries))))
    pq.write_table(left, tmp_path / "queries.parquet")
    source = wr.EventSource(
        "s",
        str(tmp_path / "events"),
        time="ts",
        partition="ds",
        start_partition="1969-12-30",
        end_partition="1970-01-02",
        missing_partitions="ignore",
    )
    aggregations = [agg.collect_list("n"), agg.count("n").over("2d")]
    group = wr.GroupBy("g", source, ["user", "item"], aggregations)
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    seen = [e for e in events if "1969-12-30" <= e["ds"] <= "1970-01-02"]
    assert len(seen) < len(events)
    line = how_read(project, join, "s")
    assert TASKS in line
    assert f" {len(seen)} rows)" in line
    check_rows(project.backfill(join), group, seen, queries)


def test_the_summary_counts_every_event_read(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 1, 1], "ts": [5, 5, 6]}), tmp_path / "events.parquet")
    pq.write_table(pa.table({"k": [1], "ts": [9]}), tmp_path / "queries.parquet")
    source = wr.EventSource("s", str(tmp_path / "events.parquet"), time="ts")
    left = wr.Queries(str(tmp_path / "queries.parquet"), time="ts")
    project = wr.Project(tmp_path / "state", spark=spark)
    group = wr.GroupBy("g", source, ["k"], [agg.count("k")])
    assert project.backfill(wr.Join("j", left, [group])).first()["g_k_count"] == 3
    assert project.summary is not None
    assert project.summary.raw_rows_read == 3


@pytest.mark.parametrize(
    ("time", "reader"),
    [(UTC, SPARK), (pa.timestamp("us"), SPARK), (pa.timestamp("us"), TASKS), (pa.date32(), SPARK)],
    ids=str,
)
def test_the_zone_of_the_spark_session_does_not_matter(
    spark: Any, tmp_path: Path, time: pa.DataType, reader: str
) -> None:
    millis: list[int | None] = [0, 5 * DAY, 6 * DAY, 6 * DAY + HOUR]
    table = pa.table({"k": [1] * 4, "n": [1, 2, 3, 4], "ts": timestamps(millis, 0, time)})
    pq.write_table(table, tmp_path / "events.parquet")
    pq.write_table(pa.table({"k": [1], "ts": [6 * DAY + HOUR]}), tmp_path / "queries.parquet")
    where = "n > 0" if reader == SPARK else None
    source = wr.EventSource("s", str(tmp_path / "events.parquet"), time="ts", where=where)
    group = wr.GroupBy("g", source, ["k"], [agg.collect_list("n").over("1d", kind="sliding")])
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        project = wr.Project(tmp_path / "state", spark=spark)
        assert reader in how_read(project, join, "s")
        (row,) = project.backfill(join).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert row.g_n_collect_list_1d == ([3, 4] if pa.types.is_date(time) else [3])


def test_a_delta_table_with_rows_marked_as_deleted_is_refused(spark: Any, tmp_path: Path) -> None:
    events = str(tmp_path / "events")
    write_deltalake(events, pa.table({"k": [1] * 30, "ts": list(range(30))}))
    log = tmp_path / "events" / "_delta_log"
    lines = (log / f"{0:020}.json").read_text().splitlines()
    (add,) = (entry["add"] for entry in map(json.loads, lines) if "add" in entry)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    deleted = {  # the example of Delta's protocol: rows 3, 4, 7, 11, 18, 29
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    entries = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": deleted}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, entries)))
    pq.write_table(pa.table({"k": [1], "ts": [99]}), tmp_path / "queries.parquet")
    group = wr.GroupBy("g", wr.EventSource("s", events, time="ts"), ["k"], [agg.count("k")])
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    with pytest.raises(StorageError, match=r"deletion vectors.*REORG TABLE"):
        wr.Project(tmp_path / "state", spark=spark).backfill(join)
