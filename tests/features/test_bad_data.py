"""What is wrong with the data or a definition is said, or counted; and nothing is left behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import windrow as wr
from windrow import agg
from windrow.algebra.aggregation import Aggregation
from windrow.errors import DataError, DefinitionError, SchemaError, StorageError, WindrowError
from windrow.features import limits

HOUR, DAY = 3_600_000, 86_400_000
EVENTS = pa.table(
    {
        "user": pa.array([1, 1, 2, 2, 3], pa.int64()),
        "item": ["rake", "hoe", "rake", "hoe", None],
        "n": pa.array([1, 2, 0, 4, 5], pa.int64()),
        "text": ["10", "20", "ten", "40", "50"],
        "said": ["1970-01-01 00:00:01", "soon", None, "1970-01-01 03:00:00", "1970-01-01"],
        "day": ["1970-01-01", "1970-01-01", "1970-01-02", "1970-01-02", "1970-01-04"],
        "ts": pa.array([1_000, HOUR, DAY, DAY + HOUR, 3 * DAY], pa.int64()).cast(
            pa.timestamp("ms", "UTC")
        ),
        "tags": [["a"], [], None, ["b", "c"], ["d"]],
    }
)
QUERIES = pa.table(
    {
        "user": pa.array([1, 2, 3, 4], pa.int64()),
        "label": ["x", "y", "z", "x"],
        "ts": pa.array([10 * DAY] * 4, pa.int64()).cast(pa.timestamp("ms", "UTC")),
    }
)


def how_read(project: wr.Project, join: wr.Join, what: str) -> str:
    """What the plan says of reading a source, or the queries."""
    lines = str(project.plan(join)).splitlines()
    (line,) = (line for line in lines if line.startswith(f"  read     {what} from "))
    return line


@dataclass(frozen=True)
class Shop:
    """A project with events and queries as Parquet files."""

    folder: Path
    project: wr.Project

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def events(self) -> str:
        return str(self.folder / "events")

    @property
    def queries(self) -> str:
        return str(self.folder / "queries")

    def write(self, events: pa.Table = EVENTS, queries: pa.Table = QUERIES) -> Shop:
        for path, table in ((self.events, events), (self.queries, queries)):
            shutil.rmtree(path, ignore_errors=True)
            Path(path).mkdir()
            half = table.num_rows // 2
            pq.write_table(table.slice(0, half), f"{path}/0.parquet")
            pq.write_table(table.slice(half), f"{path}/1.parquet")
        return self

    def join(
        self,
        *aggregations: Aggregation,
        keys: tuple[str, ...] = ("user",),
        left: dict[str, Any] | None = None,
        derive: dict[str, str] | None = None,
        **source: Any,
    ) -> wr.Join:
        events = wr.EventSource("views", **{"table": self.events, "time": "ts", **source})
        group = wr.GroupBy("g", events, list(keys), aggregations or [agg.count("n")])
        queries = wr.Queries(**{"table": self.queries, "time": "ts", **(left or {})})
        return wr.Join("j", queries, [group], derive=derive or {})

    def counts(self, join: wr.Join) -> dict[int, Any]:
        return {r.user: r[-1] for r in self.project.backfill(join).collect()}

    def refuses(
        self, join: wr.Join | Callable[[], wr.Join], error: type[WindrowError], message: str
    ) -> str:
        """It is refused by this very class of error, and nothing is left."""
        with pytest.raises(WindrowError, match=message) as caught:
            self.project.backfill(join() if callable(join) else join)
        assert caught.type is error
        assert not (self.state / "results" / "j" / "_delta_log").exists()
        self.nothing_left()
        return str(caught.value)

    def nothing_left(self) -> None:
        """No temporary files, and no files of a result that no log names."""
        assert list((self.state / "tmp").glob("*")) == []
        result = self.state / "results" / "j"
        there = {path.name for path in result.glob("*.parquet")}
        if (result / "_delta_log").exists():
            log = DeltaTable(str(result))
            named = {Path(uri).name for uri in log.file_uris()}
            assert there >= named
        else:
            assert there == set()


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Shop:
    return Shop(tmp_path, wr.Project(tmp_path / "state", spark=spark)).write()


def test_the_shop_is_in_order(shop: Shop) -> None:
    assert shop.counts(shop.join()) == {1: 2, 2: 2, 3: 1, 4: 0}


BAD: dict[str, tuple[dict[str, Any], type[WindrowError], str]] = {
    "key": (
        {"keys": ("usr",)},
        SchemaError,
        r"GroupBy 'g': keys: there is no column 'usr'; did you mean 'user'\?",
    ),
    "time": (
        {"time": "tss"},
        SchemaError,
        r"EventSource 'views': time: there is no column 'tss'; did you mean 'ts'\?",
    ),
    "input": (
        {"aggregations": [agg.sum("m")]},
        SchemaError,
        r"GroupBy 'g': there is no column 'm'; known: \['user', 'item', 'n', ",
    ),
    "bucket": (
        {"aggregations": [agg.sum("n").by("itm")]},
        SchemaError,
        r"GroupBy 'g': there is no column 'itm'; did you mean 'item'\?",
    ),
    "condition": (
        {"aggregations": [agg.sum("n").where("m > 1")]},
        SchemaError,
        r"GroupBy 'g': where: .*`m`",
    ),
    "select": (
        {"select": {"user": "usr", "ts": "ts"}},
        SchemaError,
        "EventSource 'views': .*`usr`",
    ),
    "where": ({"where": "m > 1"}, SchemaError, "EventSource 'views': .*`m`"),
    "partition": (
        {"partition": "dy", "start_partition": "1970-01-01"},
        SchemaError,
        r"EventSource 'views': partition: there is no column 'dy'; did you mean 'day'\?",
    ),
    "left time": (
        {"left": {"time": "at"}},
        SchemaError,
        r"Join 'j': left: time: there is no column 'at'; known: \['user', 'label', 'ts'\]",
    ),
    "left key": (
        {"left": {"select": ["label", "ts"]}},
        DefinitionError,
        r"key 'user' is joined on the left column 'user', which is not there; .*Use \.on\(user=",
    ),
    "a name of ours": (
        {"left": {"select": {"user": "user", "ts": "ts", "_Time": "1"}}},
        SchemaError,
        r"Join 'j': left: column '_Time': .*_diff, _hash, _prefix, _time, belong to Windrow",
    ),
    "left where": ({"left": {"where": "lable = 'x'"}}, SchemaError, "Join 'j': left: .*`lable`"),
    "derive": (
        {"derive": {"d": "g_n_cnt / 7"}},
        SchemaError,
        r"Join 'j': derive\['d'\]: .*g_n_cnt",
    ),
    "derived rows": (
        {"derive": {"d": "explode(array(1, 2))"}},
        DefinitionError,
        r"Join 'j': derive\['d'\]: 'explode\(array\(1, 2\)\)' does not give one value for each row",
    ),
    "a derived aggregate": (
        {"derive": {"d": "max(g_n_count)"}},
        DefinitionError,
        r"Join 'j': derive\['d'\]: .*: max\(g_n_count\) is an aggregate",
    ),
    "a derived window": (
        {"derive": {"d": "rank() OVER (ORDER BY g_n_count)"}},
        DefinitionError,
        r"Join 'j': derive\['d'\]: .* does not give one value for each row",
    ),
    "selected rows": (
        {"select": {"user": "user", "ts": "ts", "n": "explode(tags)"}},
        DefinitionError,
        r"EventSource 'views': 'explode\(tags\)' does not give one value for each row",
    ),
    "a selected aggregate": (
        {"select": {"user": "user", "ts": "ts", "n": "n - min(n)"}},
        DefinitionError,
        r"EventSource 'views': 'n - min\(n\)' .*: min\(n\) is an aggregate",
    ),
    "a selected sliding window": (
        {"select": {"user": "user", "n": "n", "ts": "window(ts, '2 days', '1 day').start"}},
        DefinitionError,
        r"EventSource 'views': .*: window is ",
    ),
    "aggregates in where": (
        {"where": "n > avg(n)"},
        DefinitionError,
        r"EventSource 'views': 'n > avg\(n\)' .*: avg\(n\) is an aggregate",
    ),
    "an aggregate as a condition": (
        {"aggregations": [agg.sum("n").where("count(n) > 1")]},
        DefinitionError,
        r"GroupBy 'g': where: 'count\(n\) > 1' .*: count\(n\) is an aggregate",
    ),
    "left rows": (
        {"left": {"select": {"user": "user", "ts": "ts", "d": "stack(2, 1, 2)"}}},
        DefinitionError,
        r"Join 'j': left: 'stack\(2, 1, 2\)' does not give one value for each row",
    ),
    "sum of text": (
        {"aggregations": [agg.sum("text").over("7d")]},
        DefinitionError,
        "GroupBy 'g': text sum: sum takes numbers, not string",
    ),
    "truth of a number": (
        {"aggregations": [agg.bool_or("n")]},
        DefinitionError,
        "GroupBy 'g': n bool_or: bool_or takes booleans, not int64",
    ),
    "sum of elements": (
        {"aggregations": [agg.avg("tags")]},
        DefinitionError,
        "GroupBy 'g': tags avg: avg takes numbers, not string",
    ),
    "text as time": (
        {"time": "said"},
        DefinitionError,
        r"EventSource 'views': time 'said' is string; it has to be TIMESTAMP, DATE or BIGINT "
        r"milliseconds. Convert it in select, for example to_timestamp",
    ),
    "text as left time": (
        {"left": {"time": "label"}},
        DefinitionError,
        "Join 'j': time 'label' is string; it has to be TIMESTAMP",
    ),
    "keys of two kinds": (
        {"left": {"select": {"user": "label", "ts": "ts"}}},
        DefinitionError,
        "key 'user' is int64, the left column 'user' is string; cast one of them in select",
    ),
    "no such folder": (
        {"table": "/nowhere/at/all"},
        StorageError,
        "EventSource 'views': '/nowhere/at/all' holds no Parquet, Delta, CSV or JSON files",
    ),
    "no such table": (
        {"table": "nowhere"},
        StorageError,
        "EventSource 'views': cannot read table 'nowhere'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_named(shop: Shop, name: str) -> None:
    options, error, message = BAD[name]
    rest = {key: value for key, value in options.items() if key != "aggregations"}
    shop.refuses(shop.join(*options.get("aggregations", []), **rest), error, message)
    if name == "derive":  # the only one that is found late
        assert shop.counts(shop.join()) == {1: 2, 2: 2, 3: 1, 4: 0}


def test_rows_that_are_kept_do_not_follow_other_tables(shop: Shop) -> None:
    for options in (
        {"select": {"user": "user", "ts": "ts", "n": "(SELECT 1)"}},
        {"where": "user IN (SELECT user FROM other)"},
        {"aggregations": (agg.count("n").where("EXISTS (SELECT 1)"),)},
    ):
        aggregations = options.pop("aggregations", ())
        with pytest.raises(DefinitionError, match="has a subquery"):
            shop.join(*aggregations, **options)
    # Queries, and what is derived, are evaluated by each run.
    left = {"where": "user IN (SELECT id FROM range(3))"}
    join = shop.join(left=left, derive={"d": "g_n_count + (SELECT max(id) FROM range(3))"})
    assert shop.counts(join) == {1: 4, 2: 4}
    several = shop.join(derive={"d": "(SELECT id FROM range(3))"})
    with pytest.raises(DataError, match=r"(?i)more than one row"):
        shop.project.backfill(several)


def test_a_condition_has_to_be_one(shop: Shop) -> None:
    join = shop.join(agg.count("n").where("n + 1"))
    shop.refuses(join, SchemaError, "GroupBy 'g': where: ")


@pytest.mark.parametrize(
    ("length", "options", "message"),
    [
        ("0d", {}, "window '0d' is not positive"),
        ("-7d", {}, "window '-7d' is not positive"),
        ("7", {}, "unit ''; the units are s, m, h, d, w"),
        ("7mo", {}, "unit 'mo'; the units are"),
        ("soon", {}, "window 'soon' is not a length; write for example '5h' or '7d'"),
        ("99999999999w", {}, "longer than all of time; leave it out"),
        ("7d", {"hop": "7h"}, "hop '7h' does not divide a day; use '1h' or '5m'"),
        ("1h", {"hop": "1d"}, "hop 1d is longer than its window '1h'"),
        ("2m", {}, "hop 5m, the default, is longer than its window '2m'; give a shorter hop"),
        ("7d", {"kind": "tumbling"}, "window kind 'tumbling': it is one of"),
        ("7d", {"kind": "lifetime"}, r"no window; leave \.over\(\.\.\.\) out"),
    ],
)
def test_bad_windows(length: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        agg.count("n").over(length, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_partition": "1970-01-01"}, "views': a range of partitions needs partition="),
        (
            {"partition": "day", "start_partition": "1.1.1970"},
            "views': start_partition is '1.1.1970'; write a day like",
        ),
        (
            {"partition": "day", "end_partition": "1970-02-30"},
            "views': end_partition is '1970-02-30'; write a day like",
        ),
        (
            {"partition": "day", "start_partition": "1970-01-02", "end_partition": "1970-01-01"},
            "views': start_partition '1970-01-02' is after end_partition '1970-01-01'",
        ),
        ({"partition": "day", "missing_partitions": "skip"}, "it is 'error' or 'ignore'"),
    ],
)
def test_bad_ranges_of_partitions(options: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        wr.EventSource("views", "t", time="ts", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("laid_out", ["folders", "a column"])
def test_days_that_are_missing(shop: Shop, laid_out: str) -> None:
    if laid_out == "folders":
        shutil.rmtree(shop.events)
        pq.write_to_dataset(EVENTS, shop.events, partition_cols=["day"])

    def days(start: str | None, end: str | None, **more: Any) -> wr.Join:
        return shop.join(partition="day", start_partition=start, end_partition=end, **more)

    message = shop.refuses(
        days("1970-01-02", "1970-01-05"),
        DataError,
        "EventSource 'views': partitions of 'day' are missing: 1970-01-03, 1970-01-05; there are "
        "1970-01-01 to 1970-01-04",
    )
    assert "missing_partitions='ignore'" in message
    shop.refuses(days(None, "1970-01-04"), DataError, "are missing: 1970-01-03")
    shop.refuses(days("1969-12-31", None), DataError, "are missing: 1969-12-31, 1970-01-03")
    # Only the days asked for count.
    assert shop.counts(days(None, "1970-01-02")) == {1: 2, 2: 2, 3: 0, 4: 0}
    ignoring = days("1970-01-02", "1970-01-05", missing_partitions="ignore")
    assert shop.counts(ignoring) == {1: 0, 2: 2, 3: 1, 4: 0}
    # The day comes in: the same definition works, and sees it.
    late = EVENTS.slice(4).drop_columns(["day"])
    if laid_out == "folders":
        for day in ("1970-01-03", "1970-01-05"):
            (Path(shop.events) / f"day={day}").mkdir()
            pq.write_table(late, f"{shop.events}/day={day}/late.parquet")
    else:
        for i, day in enumerate(("1970-01-03", "1970-01-05")):
            table = late.append_column("day", pa.array([day])).select(EVENTS.column_names)
            pq.write_table(table, f"{shop.events}/late{i}.parquet")
    assert shop.counts(days("1970-01-02", "1970-01-05")) == {1: 0, 2: 2, 3: 3, 4: 0}


def test_missing_days_of_the_queries(shop: Shop) -> None:
    queries = QUERIES.append_column("ds", pa.array(["2021-01-01"] * 3 + ["2021-01-03"]))
    shutil.rmtree(shop.queries)
    pq.write_to_dataset(queries, shop.queries, partition_cols=["ds"])
    asked = {"partition": "ds", "start_partition": "2021-01-01", "end_partition": "2021-01-03"}
    shop.refuses(shop.join(left=asked), DataError, "Join 'j': left: .*missing: 2021-01-02")
    asked["end_partition"] = "2021-01-01"
    rows = shop.project.backfill(shop.join(left=asked)).collect()
    assert sorted((r.user, r.g_n_count) for r in rows) == [(1, 2), (2, 2), (3, 1)]


def quarantined(shop: Shop) -> list[dict[str, Any]]:
    (folder,) = (shop.state / "quarantine").iterdir()
    rows: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.parametrize("reader", ["tasks read the files", "Spark reads it"])
def test_events_without_a_time_are_kept_aside_and_counted(shop: Shop, reader: str) -> None:
    times = EVENTS.column("ts").to_pylist()
    times[1] = times[3] = None
    at = EVENTS.column_names.index("ts")
    shop.write(EVENTS.set_column(at, "ts", pa.array(times, pa.timestamp("ms", "UTC"))))
    join = shop.join(where="n >= 0" if reader == "Spark reads it" else None)
    assert reader in how_read(shop.project, join, "views")
    assert shop.counts(join) == {1: 1, 2: 1, 3: 1, 4: 0}
    assert shop.project.summary is not None
    assert shop.project.summary.quarantined == 2
    assert "2 quarantined" in str(shop.project.summary)
    kept = quarantined(shop)
    assert [row["reason"] for row in kept] == ["ts is null"] * 2
    assert sorted((row["user"], row["item"], row["n"]) for row in kept) == [
        (1, "hoe", 2),
        (2, "hoe", 4),
    ]
    # Corrected, they count.
    shop.write()
    assert shop.counts(join) == {1: 2, 2: 2, 3: 1, 4: 0}
    assert shop.project.summary.quarantined == 0


def test_rows_are_kept_aside_whatever_their_columns(shop: Shop) -> None:
    """A column that cannot be stored, or that is called like the reason, is no obstacle."""
    select = {
        "user": "user",
        "n": "n",
        "ts": "try_to_timestamp(said)",
        "Reason": "item",
        "length": "INTERVAL 1 DAY * n",
        "nothing": "NULL",
    }
    assert shop.counts(shop.join(select=select)) == {1: 1, 2: 1, 3: 1, 4: 0}
    kept = sorted(quarantined(shop), key=lambda row: row["user"])
    assert [(row["Reason"], row["reason_"]) for row in kept] == [
        ("hoe", "ts is null"),
        ("rake", "ts is null"),
    ]
    assert "2" in kept[0]["length"]


@pytest.mark.parametrize("where", [None, "n > 0"])
def test_a_file_without_the_key(shop: Shop, where: str | None) -> None:
    pq.write_table(EVENTS.drop(["user"]), f"{shop.events}/2.parquet")
    join = shop.join(where=where)
    message = shop.refuses(join, SchemaError, r"no column 'user' in .*/2\.parquet")
    assert "select, for example coalesce(user, 0)" in message
    select = {"user": "coalesce(user, 4)", "n": "n", "ts": "ts"}
    assert shop.counts(shop.join(where=where, select=select))[4] == (5 if where is None else 4)
    # Of another column, NULL is a value like others.
    pq.write_table(EVENTS.drop(["n"]), f"{shop.events}/2.parquet")
    assert shop.counts(shop.join()) == {1: 2, 2: 2, 3: 1, 4: 0}


def test_a_csv_file_with_other_columns(shop: Shop) -> None:
    """Spark finds the columns of all files by their place in the first."""
    folder = shop.folder / "csv"
    folder.mkdir()
    (folder / "1.csv").write_text("user,n,ts\n1,5,1970-01-01 00:00:01\n")
    (folder / "2.csv").write_text("n,user,ts\n5,1,1970-01-01 00:00:01\n")
    select = {"user": "CAST(user AS BIGINT)", "n": "n", "ts": "try_to_timestamp(ts)"}
    join = shop.join(table=str(folder), select=select)
    message = shop.refuses(join, StorageError, r"/[12]\.csv")
    assert "Replace the file, or take it out of the folder" in message
    (folder / "2.csv").unlink()
    assert shop.counts(join)[1] == 1


def test_text_that_is_not_a_time(shop: Shop) -> None:
    # What does not parse becomes NULL, and is kept aside.
    select = {"user": "user", "n": "n", "said": "said", "ts": "try_to_timestamp(said)"}
    assert shop.counts(shop.join(select=select)) == {1: 1, 2: 1, 3: 1, 4: 0}
    assert shop.project.summary is not None
    assert shop.project.summary.quarantined == 2
    assert {row["said"] for row in quarantined(shop)} == {"soon", None}


def test_queries_without_key_or_time_are_answered_and_counted(shop: Shop) -> None:
    queries = pa.table(
        {
            "user": pa.array([1, None, 1, None], pa.int64()),
            "label": ["a", "b", "c", "d"],
            "ts": pa.array([10 * DAY, 10 * DAY, None, None], pa.int64()),
        }
    )
    shop.write(queries=queries)
    rows = shop.project.backfill(shop.join(agg.count("n"), agg.sum("n"))).collect()
    assert sorted((r.label, r.g_n_count, r.g_n_sum) for r in rows) == [
        ("a", 2, 3),
        ("b", 0, None),
        ("c", 0, None),
        ("d", 0, None),
    ]
    summary = shop.project.summary
    assert summary is not None
    assert (summary.queries, summary.null_keys, summary.null_times) == (4, 2, 2)


def truncated(path: str) -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) // 2])


def garbled(path: str) -> None:
    """The footer is in order, the pages are not."""
    data = bytearray(Path(path).read_bytes())
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[4:end] = b"\xff" * (end - 4)
    Path(path).write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("side", "reader", "harm"),
    [
        ("events", "tasks read the files", truncated),
        ("events", "tasks read the files", garbled),
        ("queries", "tasks read the files", garbled),
        ("events", "Spark reads it", truncated),
        ("events", "Spark reads it", garbled),
        ("queries", "Spark reads it", truncated),
    ],
)
def test_a_file_that_cannot_be_read(
    shop: Shop, side: str, reader: str, harm: Callable[[str], None]
) -> None:
    by_spark = reader == "Spark reads it"
    where = {"where": "user > 0"} if by_spark else {}
    join = shop.join(**where) if side == "events" else shop.join(left=where)
    what = "views" if side == "events" else "queries"
    assert reader in how_read(shop.project, join, what)
    harm(f"{shop.events if side == 'events' else shop.queries}/1.parquet")
    message = shop.refuses(join, StorageError, rf"{side}/1\.parquet")
    assert "Replace the file, or take it out of the folder" in message
    shop.write()
    assert shop.counts(join) == {1: 2, 2: 2, 3: 1, 4: 0}


def test_sums_that_overflow(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_ROWS", 2)  # other slices are written, and dropped again
    large = pa.array([2**62, 2**62, 1, 2, 3], pa.int64())
    shop.write(EVENTS.set_column(EVENTS.column_names.index("n"), "n", large))
    join = shop.join(agg.sum("n").over("30d"))
    message = shop.refuses(join, DataError, "n: a sum does not fit BIGINT")
    assert "cast the values to DOUBLE" in message
    # As the message says:
    select = {"user": "user", "ts": "ts", "n": "CAST(n AS DOUBLE)"}
    found = shop.counts(shop.join(agg.sum("n").over("30d"), select=select))
    assert found == {1: 2.0**63, 2: 3.0, 3: 3.0, 4: None}
    shop.write()
    assert shop.counts(join) == {1: 3, 2: 4, 3: 5, 4: None}


KEEP = {"user": "user", "ts": "ts"}
FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "division": ({"select": {**KEEP, "n": "10 / n"}}, "(?i)division by zero"),
    "cast": ({"select": {**KEEP, "n": "CAST(text AS INT)"}}, "'ten'"),
    "where": ({"where": "10 / n > 1"}, "(?i)division by zero"),
    "condition": ({"aggregations": [agg.count("n").where("10 / n > 1")]}, "(?i)division by zero"),
    "time": ({"select": {"user": "user", "n": "n", "ts": "CAST(text AS BIGINT)"}}, "'ten'"),
    "text as time": (
        {"select": {"user": "user", "n": "n", "ts": "to_timestamp(said)"}},
        "'soon'.*try_",
    ),
    "left": ({"left": {"select": {**KEEP, "d": "1 / (user - 2)"}}}, "(?i)division by zero"),
    "left key": ({"left": {"select": {"user": "CAST(label AS BIGINT)", "ts": "ts"}}}, "'[xyz]'"),
    "derive": ({"derive": {"d": "1 / (g_n_count - 1)"}}, "(?i)division by zero"),
}


@pytest.mark.parametrize("name", FAILING)
def test_expressions_that_fail_on_a_row(
    shop: Shop, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "derive":
        monkeypatch.setattr(limits, "SLICE_ROWS", 2)  # some tasks succeed
    options, message = FAILING[name]
    rest = {key: value for key, value in options.items() if key != "aggregations"}
    shop.refuses(shop.join(*options.get("aggregations", []), **rest), DataError, message)
    if name in ("division", "derive"):  # the same project goes on
        assert shop.counts(shop.join()) == {1: 2, 2: 2, 3: 1, 4: 0}


def test_a_failure_leaves_the_result_before_it(shop: Shop) -> None:
    shop.project.backfill(shop.join())
    result = str(shop.state / "results" / "j")
    before = DeltaTable(result).to_pyarrow_table()
    large = pa.array([2**62, 2**62, 1, 2, 3], pa.int64())
    shop.write(EVENTS.set_column(EVENTS.column_names.index("n"), "n", large))
    with pytest.raises(DataError, match="does not fit"):
        shop.project.backfill(shop.join(agg.sum("n")))
    assert DeltaTable(result).to_pyarrow_table().equals(before)
    shop.nothing_left()
