"""The backfill on Spark against plain loops: every query answered, each as of its own time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import windrow as wr
from feature_cases import k_of
from feature_oracle import feature, same
from windrow import agg
from windrow.errors import DefinitionError, SchemaError, StorageError
from windrow.features import limits

HOUR, DAY = 3_600_000, 86_400_000
START = 1_630_000_000_000


def timestamp(millis: int | None) -> dt.datetime | None:
    if millis is None:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=millis)


def shop(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Views with a hot user, ties, nulls and NaN; queries with duplicates, null keys and times."""
    rng = np.random.default_rng(seed)

    def user() -> int | None:
        return None if rng.random() < 0.05 else int(rng.integers(0, 12) * (rng.random() < 0.7))

    events = [
        {
            "user": user(),
            "item": str(rng.choice(["rake", "hoe", "scythe"])),
            "time": int(START + rng.integers(0, 40) * 6 * HOUR),
            "price": [None, float("nan"), 0.1, 5.0, 1e300, -1e300][rng.integers(0, 6)],
            "n": int(rng.integers(0, 5)),
        }
        for _ in range(400)
    ]
    queries = [
        {
            "buyer": user(),
            "item": str(rng.choice(["rake", "hoe", "spade"])),
            "time": None if rng.random() < 0.05 else int(START + rng.integers(0, 44) * 6 * HOUR),
            "label": int(rng.integers(0, 3)),
        }
        for _ in range(60)
    ]
    return events, queries + queries[:5]


def as_table(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], t) for name, t in types.items()}
    times = pa.array([timestamp(row["time"]) for row in rows], pa.timestamp("us", "UTC"))
    return pa.table({**columns, "ts": times})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, str, str]:
    events, queries = shop(7)
    folder = tmp_path_factory.mktemp("shop")
    views, checkouts = str(folder / "views.parquet"), str(folder / "checkouts.parquet")
    types = {"user": pa.int32(), "item": pa.string(), "price": pa.float64(), "n": pa.int64()}
    pq.write_table(as_table(events, types), views, row_group_size=50)
    left = {"buyer": pa.int64(), "item": pa.string(), "label": pa.int64()}
    pq.write_table(as_table(queries, left), checkouts)
    return events, queries, views, checkouts


def group(source: wr.EventSource, keys: list[str], **options: Any) -> wr.GroupBy:
    return wr.GroupBy(
        f"by_{keys[0]}",
        source,
        keys,
        [
            agg.count("n").over("5h", "7d"),
            agg.sum("price").over("2d", kind="sliding").over("30d"),
            agg.sum("n").over("7d", kind="hopping").by("item"),
            agg.last_k("n", 3).over("3d"),
            agg.max("price"),
            agg.unique_count("n").over("4d").where("n > 1"),
        ],
        **options,
    )


def expected(
    definition: wr.GroupBy, events: list[dict[str, Any]], keys: dict[str, Any], time: int | None
) -> list[Any]:
    found = []
    for one in definition.features:
        a, w = one.aggregation, one.window
        rows = [e for e in events if a.condition is None or e["n"] > 1]
        found.append(
            feature(
                rows,
                keys,
                time,
                name=a.function.name,
                column=a.column,
                window=(w.kind.value, w.length, w.hop),
                k=k_of(a),
                bucket=a.bucket,
                accuracy=definition.accuracy,
            )
        )
    return found


@pytest.mark.parametrize(
    ("accuracy", "few"),
    [("temporal", True), ("temporal", False), ("snapshot", False)],
    ids=["temporal, few", "temporal, sorted", "snapshot, sorted"],
)
def test_backfill_equals_the_plain_loops(
    spark: Any,
    data: Any,
    tmp_path: Path,
    accuracy: str,
    few: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not few:
        monkeypatch.setattr(limits, "FEW_QUERIES", 0)
        monkeypatch.setattr(limits, "BATCH_ROWS", 5)  # a few keys at a time
    events, queries, views, checkouts = data
    source = wr.EventSource("views", table=views, time="ts")
    users = group(source, ["user"], accuracy=accuracy)
    items = group(source, ["item"], accuracy=accuracy)
    join = wr.Join(
        "training",
        wr.Queries(checkouts, time="ts"),
        [users.on(user="buyer"), items.prefixed("thing")],
        derive={"per_day": "by_user_n_count_7d / 7"},
    )
    project = wr.Project(tmp_path / "state", spark=spark)
    assert ("few: every task sorts them" in str(project.plan(join))) == few
    frame = project.backfill(join)
    names = [f"by_user_{f.name}" for f in users.features]
    names += [f"thing_{f.name}" for f in items.features]
    assert frame.columns == ["buyer", "item", "label", "ts", *names, "per_day"]
    rows = frame.collect()
    key = Counter((r.buyer, r.item, r.label, r.ts) for r in rows)
    sent = Counter((q["buyer"], q["item"], q["label"], naive(q["time"])) for q in queries)
    assert key == sent
    answers: dict[Any, list[Any]] = {}
    for q in queries:
        by_user = expected(users, events, {"user": q["buyer"]}, q["time"])
        by_item = expected(items, events, {"item": q["item"]}, q["time"])
        place = (q["buyer"], q["item"], q["label"], naive(q["time"]))
        answers[place] = [*by_user, *by_item]
    for row in rows:
        want = answers[(row.buyer, row.item, row.label, row.ts)]
        for name, value in zip(names, want, strict=True):
            got = row[name]
            got = list(got.items()) if isinstance(got, dict) else got
            assert same(got, value), f"{row}: {name} is {got!r}, not {value!r}"
        assert row.per_day == row.by_user_n_count_7d / 7


def naive(millis: int | None) -> dt.datetime | None:
    """Spark gives timestamps without a zone, in the local one."""
    time = timestamp(millis)
    return None if time is None else time.astimezone().replace(tzinfo=None)


def test_days_limit_the_queries(spark: Any, data: Any, tmp_path: Path) -> None:
    _, queries, views, checkouts = data
    source = wr.EventSource("views", table=views, time="ts")
    one = wr.GroupBy("g", source, ["item"], [agg.count("n")])
    join = wr.Join("j", wr.Queries(checkouts, time="ts"), [one])
    day = timestamp(START + 3 * DAY)
    assert day is not None
    frame = wr.Project(tmp_path / "state", spark=spark).backfill(
        join, start=day.date(), end=day.date()
    )
    low = (START + 3 * DAY) // DAY * DAY
    wanted = [q for q in queries if q["time"] is None or low <= q["time"] < low + DAY]
    assert frame.count() == len(wanted)


def test_events_are_arranged_once(spark: Any, data: Any, tmp_path: Path) -> None:
    _, _, views, checkouts = data
    source = wr.EventSource("views", table=views, time="ts")
    project = wr.Project(tmp_path / "state", spark=spark)
    for windows in (("7d",), ("1d", "30d")):
        one = wr.GroupBy("g", source, ["item"], [agg.count("n").over(*windows)])
        project.backfill(wr.Join("j", wr.Queries(checkouts, time="ts"), [one])).count()
    assert len(list((tmp_path / "state" / "arrangements").iterdir())) == 1
    # New data is noticed.
    pq.write_table(pq.read_table(views).slice(0, 10), tmp_path / "views.parquet")
    moved = wr.EventSource("views", table=str(tmp_path / "views.parquet"), time="ts")
    one = wr.GroupBy("g", moved, ["item"], [agg.count("n")])
    rows = project.backfill(wr.Join("j", wr.Queries(checkouts, time="ts"), [one])).collect()
    assert max(r.g_n_count for r in rows) <= 10


def test_a_view_or_dataframe_that_changed_is_not_mistaken_for_the_old_one(
    spark: Any, data: Any, tmp_path: Path
) -> None:
    # Same name, same files, another filter.
    _, _, views, checkouts = data
    project = wr.Project(tmp_path / "state", spark=spark)
    left = wr.Queries(checkouts, time="ts")
    for value in (1, 2):
        frame = spark.read.parquet(views).where(f"n = {value}")
        frame.createOrReplaceTempView("some_views")
        for table in (frame, "some_views"):
            one = wr.GroupBy("g", wr.EventSource("v", table, time="ts"), ["item"], [agg.max("n")])
            rows = project.backfill(wr.Join("j", left, [one])).collect()
            assert {r.g_n_max for r in rows} == {value, None}
    assert not any((tmp_path / "state" / "tmp").iterdir())


@pytest.mark.parametrize("empty", ["events", "queries"])
def test_an_empty_side_is_no_error(spark: Any, data: Any, tmp_path: Path, empty: str) -> None:
    _, queries, views, checkouts = data
    source = wr.EventSource(
        "views", table=views, time="ts", where="1 = 0" if empty == "events" else None
    )
    one = wr.GroupBy("g", source, ["item"], [agg.count("n"), agg.sum("n")])
    left = wr.Queries(checkouts, time="ts", where="1 = 0" if empty == "queries" else None)
    rows = wr.Project(tmp_path / "state", spark=spark).backfill(wr.Join("j", left, [one])).collect()
    if empty == "queries":
        assert rows == []
    else:
        assert len(rows) == len(queries)
        assert {(r.g_n_count, r.g_n_sum) for r in rows} == {(0, None)}


def test_events_without_a_time_are_quarantined(spark: Any, data: Any, tmp_path: Path) -> None:
    _, queries, views, checkouts = data
    select = {"item": "item", "n": "n", "ts": "CASE WHEN n = 3 THEN NULL ELSE ts END"}
    source = wr.EventSource("views", table=views, time="ts", select=select)
    one = wr.GroupBy("g", source, ["item"], [agg.max("n"), agg.count("n").where("n = 3")])
    project = wr.Project(tmp_path / "state", spark=spark)
    join = wr.Join("j", wr.Queries(checkouts, time="ts"), [one])
    rows = project.backfill(join).collect()
    assert {r.g_n_count for r in rows} == {0}
    summary = project.summary
    assert summary is not None
    lost = pq.read_table(views).filter(pc.field("n") == 3).num_rows
    assert (summary.queries, summary.quarantined) == (len(queries), lost)
    assert summary.null_times == sum(q["time"] is None for q in queries)
    assert summary.null_keys == 0
    (folder,) = (tmp_path / "state" / "quarantine").iterdir()
    kept = DeltaTable(str(folder)).to_pyarrow_table()
    assert kept.num_rows == lost
    assert set(kept.column("reason").to_pylist()) == {"ts is null"}
    # The arrangement is there: nothing is quarantined again.
    project.backfill(join)
    assert project.summary is not None
    assert project.summary.quarantined == 0


def test_groups_for_online_use_alone_are_not_backfilled(
    spark: Any, data: Any, tmp_path: Path
) -> None:
    _, queries, views, checkouts = data
    source = wr.EventSource("views", table=views, time="ts")
    one = wr.GroupBy("g", source, ["item"], [agg.count("n")], offline=False)
    project = wr.Project(tmp_path / "state", spark=spark)
    frame = project.backfill(wr.Join("j", wr.Queries(checkouts, time="ts"), [one]))
    assert frame.columns == ["buyer", "item", "label", "ts"]
    assert frame.count() == len(queries)
    assert not (tmp_path / "state" / "arrangements").exists()


def test_left_columns_keep_their_names_whatever_they_are(
    spark: Any, data: Any, tmp_path: Path
) -> None:
    _, queries, views, checkouts = data
    source = wr.EventSource("views", table=views, time="ts")
    one = wr.GroupBy("g", source, ["item"], [agg.count("n")])
    select = {"item": "item", "k0": "label", "kind": "label", "v0": "1", "a.b": "2", "ts": "ts"}
    left = wr.Queries(checkouts, time="ts", select=select)
    frame = wr.Project(tmp_path / "state", spark=spark).backfill(wr.Join("j", left, [one]))
    assert frame.columns == [*select, "g_n_count"]
    assert sorted(r.k0 for r in frame.collect()) == sorted(q["label"] for q in queries)
    left = wr.Queries(checkouts, time="ts", select={"__x": "label", "ts": "ts"})
    with pytest.raises(SchemaError, match="two underscores"):
        wr.Project(tmp_path / "state", spark=spark).backfill(wr.Join("j", left, [one]))


def test_bad_definitions_say_what_is_wrong(spark: Any, data: Any, tmp_path: Path) -> None:
    _, _, views, checkouts = data
    project = wr.Project(tmp_path / "state", spark=spark)
    source = wr.EventSource("views", table=views, time="ts")
    left = wr.Queries(checkouts, time="ts")

    def run(one: wr.GroupBy, queries: wr.Queries = left, **more: Any) -> None:
        project.backfill(wr.Join("j", queries, [one], **more))

    with pytest.raises(SchemaError, match="no column 'prise'; did you mean 'price'"):
        run(wr.GroupBy("g", source, ["item"], [agg.sum("prise")]))
    with pytest.raises(DefinitionError, match="sum takes numbers, not string"):
        run(wr.GroupBy("g", source, ["user"], [agg.sum("item")]).on(user="buyer"))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="left column 'user', which is not there"):
        run(wr.GroupBy("g", source, ["user"], [agg.sum("n")]))
    with pytest.raises(DefinitionError, match="cast one of them"):
        run(wr.GroupBy("g", source, ["user"], [agg.sum("n")]).on(user="item"))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="TIMESTAMP, DATE or BIGINT"):
        run(wr.GroupBy("g", wr.EventSource("v", views, time="item"), ["item"], [agg.sum("n")]))
    with pytest.raises(StorageError, match="cannot read table 'nowhere'"):
        run(wr.GroupBy("g", wr.EventSource("v", "nowhere", time="ts"), ["item"], [agg.sum("n")]))
    with pytest.raises(SchemaError, match="derive"):
        run(wr.GroupBy("g", source, ["item"], [agg.sum("n")]), derive={"x": "nothing / 7"})
