"""Every kind of source through a backfill on Spark, against plain loops."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import windrow as wr
from entity_replay import Update, alive
from feature_cases import k_of
from feature_oracle import feature, same
from windrow import agg
from windrow.errors import DataError, DefinitionError, OptionError, SchemaError

DAY = 86_400_000
FIRST = 1_600_041_600_000  # a midnight
STAMP = pa.timestamp("ms", "UTC")
ROW = [("item", pa.string()), ("stars", pa.int64()), ("ts", STAMP)]
AGGREGATIONS = [
    agg.count("stars").over("3d", "1h"),
    agg.sum("stars"),
    agg.max("stars").over("2d", kind="sliding"),
    agg.last_k("stars", 3).over("7d"),
    agg.unique_count("stars").over("2d", kind="hopping"),
    agg.avg("stars").over("3d").by("item"),
]


def stamp(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.UTC)


def history(seed: int, changes: int = 120) -> list[Update]:
    """Changes of ratings over six days, in the order of their times."""
    rng = random.Random(seed)
    there: list[dict[str, Any]] = []
    found: list[Update] = []
    for time in sorted(FIRST + rng.randrange(6 * DAY) for _ in range(changes)):
        row = {
            "user": rng.randrange(4),
            "item": rng.choice("abc"),
            "stars": rng.choice([1, 2, 3, None]),
            "ts": time - rng.choice([0, 1, 60_000, DAY]),
        }
        if there and rng.random() < 0.5:
            old = there.pop(rng.randrange(len(there)))
            found.append((time, old, -1))
            if rng.random() < 0.4:
                continue
            name = rng.choice(["user", "item", "stars", "ts"])
            row = {**old, name: row[name]}
        there.append(row)
        found.append((time, row, 1))
    return found


def asked(seed: int, count: int = 60) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {"id": i, "user": rng.randrange(5), "q": FIRST + rng.randrange(7 * DAY)}
        for i in range(count)
    ]


def write(path: Path, rows: list[dict[str, Any]], types: list[tuple[str, pa.DataType]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("user", pa.int64()), *ROW, *types])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return str(path)


def table_row(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**row, "ts": stamp(row["ts"]), **more}


def mutation_log(path: Path, updates: list[Update]) -> str:
    rows = [table_row(r, mutation_ts=stamp(m), is_before=d < 0) for m, r, d in updates]
    random.Random(1).shuffle(rows)  # late mutations
    return write(path, rows, [("mutation_ts", STAMP), ("is_before", pa.bool_())])


def change_feed(path: Path, updates: list[Update]) -> str:
    kinds = {1: ["insert", "update_postimage"], -1: ["delete", "update_preimage"]}
    rng = random.Random(2)
    rows = [
        table_row(r, _commit_timestamp=stamp(m), _change_type=rng.choice(kinds[d]))
        for m, r, d in updates
    ]
    types = [("_commit_timestamp", STAMP), ("_change_type", pa.string())]
    return write(path, rows, types)


def snapshots(folder: Path, updates: list[Update], days: list[int]) -> str:
    """The table at the end of some days, in folders by day."""
    for day in days:
        rows = [table_row(r) for r in alive(updates, FIRST + (day + 1) * DAY)]
        write(folder / f"ds={stamp(FIRST + day * DAY).date()}" / "part.parquet", rows, [])
    return str(folder)


def queries_at(path: Path, queries: list[dict[str, Any]]) -> wr.Queries:
    schema = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("q", STAMP)])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{**r, "q": stamp(r["q"])} for r in queries], schema), path)
    return wr.Queries(str(path), time="q")


def check(
    found: list[Any],
    queries: list[dict[str, Any]],
    rows_at: Any,
    group: wr.GroupBy,
) -> None:
    """Each feature of each query against plain loops over `rows_at(q)`, the rows that count."""
    by_id = {row["id"]: row.asDict() for row in found}
    assert len(found) == len(queries) == len(by_id)
    for query in queries:
        q = query["q"]
        if group.accuracy == "snapshot":
            q -= q % group.refresh
        rows = [{**row, "time": row["ts"]} for row in rows_at(q)]
        for one in group.features:
            a, window = one.aggregation, one.window
            expected = feature(
                rows,
                {"user": query["user"]},
                q,
                name=a.function.name,
                column=a.column,
                window=(window.kind.value, window.length, window.hop),
                k=k_of(a),
                bucket=a.bucket,
            )
            got = by_id[query["id"]][f"g_{one.name}"]
            got = list(got.items()) if isinstance(got, dict) else got
            assert same(got, expected), f"{query} {one.name}: {got!r} is not {expected!r}"


@pytest.fixture(params=["mutations", "changes", "both", "shard", "dataframe"])
def entity(
    request: pytest.FixtureRequest, spark: Any, tmp_path: Path
) -> tuple[wr.EntitySource, list[Update]]:
    updates = history(5)
    if request.param == "mutations":
        path = mutation_log(tmp_path / "log.parquet", updates)
        source = wr.EntitySource("r", "ts", mutations=path, mutation_time="mutation_ts")
    elif request.param == "changes":
        path = change_feed(tmp_path / "feed.parquet", updates)
        source = wr.EntitySource(name="r", changes=path, time="ts")
    elif request.param == "both":
        # The first snapshot is of day 0; what came before is known from it alone.
        folder = snapshots(tmp_path / "snapshots", updates, [0, 1, 3])
        log = mutation_log(tmp_path / "log.parquet", updates)
        spark.read.parquet(log).selectExpr("*", "date(mutation_ts) AS ds").write.partitionBy(
            "ds"
        ).parquet(f"{tmp_path}/mutations")
        source = wr.EntitySource(
            name="r",
            snapshots=folder,
            mutations=f"{tmp_path}/mutations",
            time="ts",
            mutation_time="mutation_ts",
            is_before="is_before",
            partition="ds",
        )
    elif request.param == "shard":
        schema = pa.schema([("user", pa.int64()), *ROW])
        shard = wr.Shard.create(tmp_path / "shard", schema, key=["user"])
        rows = [table_row(r, _time=m, _diff=d) for m, r, d in updates]
        shard.append(pa.Table.from_pylist(rows), lower=0, upper=FIRST + 9 * DAY)
        source = wr.EntitySource("r", "ts", shard=shard)
    else:
        frame = spark.read.parquet(mutation_log(tmp_path / "log.parquet", updates))
        source = wr.EntitySource(
            "r",
            "time",
            mutations=frame,
            mutation_time="mutation_ts",
            select={"user": "user", "item": "item", "stars": "stars + 0", "time": "ts"},
        )
    return source, updates


@pytest.mark.parametrize(
    ("accuracy", "strategy"),
    [("temporal", "merge"), ("temporal", "broadcast"), ("snapshot", "merge")],
)
def test_entities_equal_a_replay(
    spark: Any,
    tmp_path: Path,
    entity: tuple[wr.EntitySource, list[Update]],
    accuracy: str,
    strategy: str,
) -> None:
    source, updates = entity
    queries = asked(7)
    if source.snapshots is not None:
        queries = [q for q in queries if q["q"] >= FIRST + DAY]
    group = wr.GroupBy("g", source, ["user"], AGGREGATIONS, accuracy=accuracy)
    project = wr.Project(tmp_path / "state", spark=spark)
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    found = project.backfill(join, strategy=strategy).collect()
    check(found, queries, lambda q: alive(updates, q), group)
    assert project.summary is not None
    assert project.summary.quarantined == 0
    assert (tmp_path / "state" / "arrangements").exists() == (
        strategy == "merge" and isinstance(source.mutations or source.changes, str)
    )


def test_few_queries_of_a_large_log_bring_only_their_keys_together(
    spark: Any, tmp_path: Path
) -> None:
    updates = history(13, changes=800)
    log = mutation_log(tmp_path / "log.parquet", updates)
    source = wr.EntitySource("r", "ts", mutations=log, mutation_time="mutation_ts")
    events = wr.EventSource("e", log, time="mutation_ts")
    group = wr.GroupBy("g", source, ["user"], AGGREGATIONS)
    beside = wr.GroupBy("h", events, ["user"], [agg.count("stars")])
    queries = [{**q, "user": 2} for q in asked(3, 5)]
    left = queries_at(tmp_path / "queries.parquet", queries)
    join = wr.Join("j", left, [group, beside])
    project = wr.Project(tmp_path / "state", spark=spark)
    plan = str(project.plan(join))
    assert "queries are few beside" in plan
    assert "only rows of requested keys are arranged" in plan
    found = project.backfill(join).collect()
    check(found, queries, lambda q: alive(updates, q), group)
    assert project.summary is not None
    assert project.summary.raw_rows_read == 2 * len(updates)
    assert project.summary.rows_read < len(updates)
    merged = project.backfill(join, strategy="merge").collect()
    assert sorted(map(str, merged)) == sorted(map(str, found))
    assert not list((tmp_path / "state" / "tmp").iterdir())


@pytest.mark.parametrize("changing", [False, True], ids=["events", "changes"])
def test_only_what_can_count_is_read(spark: Any, tmp_path: Path, changing: bool) -> None:
    """Files by day; queries of the last day look back a week."""
    rng = random.Random(3)
    updates: list[Update] = []
    for time in sorted(FIRST + rng.randrange(20 * DAY) for _ in range(200)):
        stars, item = rng.randrange(4), rng.choice("ab")
        row = {"user": rng.randrange(3), "item": item, "stars": stars, "ts": time}
        updates.append((time, row, 1))
        gone = time + rng.randrange(1, 15 * DAY)  # often long after the row's own time
        if changing and gone < FIRST + 20 * DAY:
            updates.append((gone, row, -1))
    updates.sort(key=lambda update: update[0])
    for day in range(20):
        start = FIRST + day * DAY
        today = [u for u in updates if start <= u[0] < start + DAY]
        mutation_log(tmp_path / "log" / f"{day:02}.parquet", today)
    folder = str(tmp_path / "log")
    source: Any = wr.EventSource("r", folder, time="ts")
    if changing:
        source = wr.EntitySource("r", "ts", mutations=folder, mutation_time="mutation_ts")
    windowed = [a for a in AGGREGATIONS if next(iter(a.features())).window.length]
    group = wr.GroupBy("g", source, ["user"], windowed)
    queries = [{**q, "q": FIRST + 19 * DAY + q["q"] % DAY} for q in asked(9, 30)]
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    found = project.backfill(join, strategy="merge").collect()
    check(found, queries, lambda q: alive(updates, q), group)
    assert project.summary is not None
    assert project.summary.raw_rows_read == len(updates)
    assert project.summary.rows_read < len(updates) / 2 + len(queries)
    assert project.summary.quarantined == 0  # what came long before is out of sight, not missing


def test_snapshots_alone_give_the_state_at_midnight(spark: Any, tmp_path: Path) -> None:
    updates = history(11)
    folder = snapshots(tmp_path / "snapshots", updates, [0, 1, 2, 3, 4, 5])
    source = wr.EntitySource("r", "ts", snapshots=folder, partition="ds")
    with pytest.raises(DefinitionError, match="nothing is known of the times between"):
        wr.GroupBy("g", source, ["user"], AGGREGATIONS)
    group = wr.GroupBy("g", source, ["user"], AGGREGATIONS, accuracy="snapshot")
    queries = [q for q in asked(3) if q["q"] >= FIRST + DAY]
    project = wr.Project(tmp_path / "state", spark=spark)
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    check(project.backfill(join).collect(), queries, lambda q: alive(updates, q), group)


@pytest.mark.parametrize(
    ("layout", "with_log"), [("folders", True), ("column", True), ("folders", False)]
)
def test_each_day_adds_its_snapshot_to_those_before(
    spark: Any, tmp_path: Path, layout: str, with_log: bool
) -> None:
    updates = history(8, changes=90)
    log, folder = tmp_path / "log", tmp_path / "snapshots"
    options: dict[str, Any] = {}
    if with_log:
        options = {"mutations": str(log), "mutation_time": "mutation_ts"}
    source = wr.EntitySource("r", "ts", snapshots=str(folder), partition="ds", **options)
    accuracy = "temporal" if with_log else "snapshot"
    group = wr.GroupBy("g", source, ["user"], AGGREGATIONS, accuracy=accuracy)
    # What was before the first snapshot nobody knows.
    queries = [q for q in asked(4) if FIRST + DAY <= q["q"] < FIRST + 4 * DAY]
    join = wr.Join("j", queries_at(tmp_path / "q.parquet", queries), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    actions, read = [], []
    for day in range(4):
        start, end = FIRST + day * DAY, FIRST + (day + 1) * DAY
        ds = str(stamp(start).date())
        place = folder / f"ds={ds}" if layout == "folders" else folder
        more = [] if layout == "folders" else [("ds", pa.string())]
        rows = [table_row(r, ds=ds) for r in alive(updates, end)]
        write(place / f"{ds}.parquet", rows, more)
        # The first mutation of each day comes a day late, but for the last.
        late = [u for u in updates if start - DAY <= u[0] < start][:1]
        today = [u for u in updates if start <= u[0] < end]
        mutation_log(log / f"{ds}.parquet", [*today[day < 3 :], *late])
        plan = project.plan(join, strategy="merge")
        actions.append(plan.arrangements[0].todo.action)
        found = project.backfill(join, strategy="merge").collect()
        assert project.summary is not None
        read.append(project.summary.raw_rows_read)
    assert actions == ["build", "extend", "extend", "extend"]
    fresh = wr.Project(tmp_path / "fresh", spark=spark)
    expected = fresh.backfill(join, strategy="merge").collect()
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert fresh.summary is not None
    assert read[-1] < fresh.summary.raw_rows_read
    if with_log:
        check(found, queries, lambda q: alive(updates, q), group)
    # A snapshot that is written anew changes all that follows.
    write(place / f"{ds}.parquet", [], more)
    assert project.plan(join, strategy="merge").arrangements[0].todo.action == "build"


def test_a_change_of_a_row_that_is_not_there_is_reported_with_the_row(
    spark: Any, tmp_path: Path
) -> None:
    updates = history(5)
    ghost = {"user": 1, "item": "ghost", "stars": 3, "ts": FIRST}
    path = mutation_log(tmp_path / "log.parquet", [*updates, (FIRST + DAY, ghost, -1)])
    source = wr.EntitySource("r", "ts", mutations=path, mutation_time="mutation_ts")
    group = wr.GroupBy("g", source, ["user"], AGGREGATIONS)
    queries = asked(7)
    project = wr.Project(tmp_path / "state", spark=spark)
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    found = project.backfill(join).collect()
    check(found, queries, lambda q: alive(updates, q), group)
    assert project.summary is not None
    assert project.summary.quarantined == 1
    (row,) = (
        DeltaTable(str(tmp_path / "state/quarantine/j-missing-rows")).to_pyarrow_table().to_pylist()
    )
    assert '"item": "ghost"' in row["row"]
    assert "not there" in row["reason"]


def test_rows_count_once_they_are_known(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(4)
    events = []
    for _ in range(150):
        ts = FIRST + rng.randrange(6 * DAY)
        row = {"user": rng.randrange(4), "item": "a", "stars": rng.randrange(5), "ts": ts}
        events.append((row, ts + rng.choice([0, 0, 5_000, 3_600_000, 2 * DAY])))
    rows = [table_row(row, arrived=stamp(known)) for row, known in events]
    path = write(tmp_path / "events.parquet", rows, [("arrived", STAMP)])
    source = wr.EventSource("r", path, time="ts", known="arrived")
    group = wr.GroupBy("g", source, ["user"], AGGREGATIONS)
    queries = asked(9)
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    for strategy in ("broadcast", "merge"):
        found = project.backfill(join, strategy=strategy).collect()
        check(found, queries, lambda q: [row for row, known in events if known < q], group)
    with pytest.raises(OptionError, match="when its rows became known"):
        project.plan(join, strategy="tiles")


def test_several_sources_count_together(spark: Any, tmp_path: Path) -> None:
    updates = history(5)
    rng = random.Random(8)
    events = [
        {"user": rng.randrange(4), "item": "e", "stars": 9, "ts": FIRST + rng.randrange(6 * DAY)}
        for _ in range(50)
    ]
    more = [{**row, "item": "m", "ts": row["ts"] + 1} for row in events]
    first = wr.EventSource(
        "a", write(tmp_path / "a.parquet", [table_row(r) for r in events], []), time="ts"
    )
    second = wr.EventSource(
        "b", write(tmp_path / "b.parquet", [table_row(r) for r in more], []), time="ts"
    )
    log = mutation_log(tmp_path / "log.parquet", updates)
    entity = wr.EntitySource("r", "ts", mutations=log, mutation_time="mutation_ts")
    queries = asked(2)
    left = queries_at(tmp_path / "queries.parquet", queries)
    project = wr.Project(tmp_path / "state", spark=spark)
    group = wr.GroupBy("g", [first, second], ["user"], AGGREGATIONS)
    found = project.backfill(wr.Join("j", left, [group])).collect()
    check(found, queries, lambda q: events + more, group)
    group = wr.GroupBy("g", [first, entity], ["user"], AGGREGATIONS)
    found = project.backfill(wr.Join("k", left, [group])).collect()
    check(found, queries, lambda q: events + alive(updates, q), group)


def test_landed_aggregates_are_seen_at_their_cadence(spark: Any, tmp_path: Path) -> None:
    hour = 3_600_000
    rows = [
        {"user": u, "item": "x", "stars": (u + h) % 7, "ts": FIRST + h * hour}
        for u in range(4)
        for h in range(144)
    ]
    path = write(tmp_path / "landed.parquet", [table_row(r) for r in rows], [])
    source = wr.PreAggregatedSource("p", path, time="ts", every="1h")
    with pytest.raises(DefinitionError, match="aggregates that land every 1h"):
        wr.GroupBy("g", source, ["user"], [agg.sum("stars")])
    aggregations = [agg.sum("stars").over("1d"), agg.last("stars")]
    group = wr.GroupBy("g", source, ["user"], aggregations, accuracy="snapshot")
    queries = asked(6)
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    found = wr.Project(tmp_path / "state", spark=spark).backfill(join).collect()
    check(found, queries, lambda q: [r for r in rows if r["ts"] + hour <= q], group)


def test_bad_entities_say_what_is_wrong(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="where its rows are"):
        wr.EntitySource("r", "ts")
    with pytest.raises(DefinitionError, match="not both"):
        wr.EntitySource("r", "ts", mutations="a", changes="b")
    with pytest.raises(DefinitionError, match="need partition="):
        wr.EntitySource("r", "ts", snapshots="a")
    path = change_feed(tmp_path / "feed.parquet", history(5))
    left = queries_at(tmp_path / "queries.parquet", asked(1))
    project = wr.Project(tmp_path / "state", spark=spark)

    def run(source: wr.EntitySource) -> None:
        project.backfill(wr.Join("j", left, [wr.GroupBy("g", source, ["user"], AGGREGATIONS)]))

    with pytest.raises(SchemaError, match="no column 'mutation_time'"):
        run(wr.EntitySource("r", "ts", mutations=path))
    with pytest.raises(SchemaError, match="has to be BOOLEAN"):
        run(
            wr.EntitySource(
                "r", "ts", mutations=path, mutation_time="_commit_timestamp", is_before="item"
            )
        )
    with pytest.raises(DataError, match=r"unknown item: .*; they are"):
        run(wr.EntitySource("r", "ts", changes=path, change_type="item"))
    frame = spark.read.parquet(path)
    with pytest.raises(DataError, match="unknown item"):
        run(wr.EntitySource("r", "ts", changes=frame, change_type="item"))


def test_snapshots_have_the_last_word(spark: Any, tmp_path: Path) -> None:
    """Changes at a snapshot's time, rows gone without a mutation, days without a row."""
    rows = {name: {"user": 1, "item": name, "stars": 1, "ts": FIRST} for name in "abcd"}
    folder = tmp_path / "snapshots"
    for day, names in enumerate(["a", "ab", "d", "a"]):
        ds = stamp(FIRST + day * DAY).date()
        there = [table_row(rows[name]) for name in names]
        write(folder / f"ds={ds}" / "part.parquet", there, [])
    log = [
        (FIRST + 5, rows["a"], 1),  # the first snapshot holds it
        (FIRST + DAY - 1, rows["c"], 1),  # or not
        (FIRST + 2 * DAY - 1, rows["b"], 1),  # in the very last millisecond of a day
        (FIRST + 2 * DAY + 5, rows["c"], -1),  # was never there
    ]
    source = wr.EntitySource(
        "r",
        "ts",
        snapshots=str(folder),
        mutations=mutation_log(tmp_path / "log.parquet", log),
        mutation_time="mutation_ts",
        partition="ds",
        where="item <> 'd'",
    )
    group = wr.GroupBy("g", source, ["user"], [agg.collect_list("item")])
    times = [FIRST + DAY, FIRST + 2 * DAY - 1, FIRST + 2 * DAY, FIRST + 3 * DAY, FIRST + 5 * DAY]
    queries = [{"id": i, "user": 1, "q": q} for i, q in enumerate(times)]
    join = wr.Join("j", queries_at(tmp_path / "queries.parquet", queries), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    found = {row.id: row.g_item_collect_list for row in project.backfill(join).collect()}
    assert found == {0: ["a"], 1: ["a"], 2: ["a", "b"], 3: None, 4: ["a"]}
    assert project.summary is not None
    assert project.summary.quarantined == 1
    assert project.summary.early_mutations == 2
    assert "2 mutations up to the first snapshot ignored" in str(project.summary)
