"""Files that arrive in a folder: rows of a source, for backfills and for relations."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg
from windrow.errors import SchemaError, StorageError
from windrow.sources.stream_shard import open_stream
from windrow.storage.delta import open_table
from windrow.storage.store import Store

STAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("user", pa.int64()), ("price", pa.float64()), ("ts", STAMP)])
MINUTE = 60_000_000


def event(user: int, minute: int, price: float | None = 1.0) -> dict[str, Any]:
    return {"user": user, "price": price, "ts": minute * MINUTE}


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA.set(2, pa.field("ts", pa.int64()))).cast(SCHEMA)


@dataclass
class Shop:
    """A project with a log of events, some in a table and some in files that arrive."""

    spark: Any
    place: Path
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.place / "old").mkdir()
        self.project = wr.Project(self.place / "state", spark=self.spark)
        self.files = 0

    @property
    def source(self) -> wr.EventSource:
        stream = wr.FolderStream(self.place / "in", **self.options)
        return wr.EventSource("views", str(self.place / "old"), "ts", stream=stream)

    def load(self, rows: list[dict[str, Any]], folder: str = "old") -> None:
        self.files += 1
        pq.write_table(table(rows), self.place / folder / f"{self.files}.parquet")

    def arrive(self, rows: list[dict[str, Any]] | list[str], name: str = "") -> Path:
        """A file of JSON."""
        self.files += 1
        lines = [one if isinstance(one, str) else as_json(one) for one in rows]
        (self.place / "in").mkdir(exist_ok=True)
        hidden = self.place / "in" / "_writing"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        return hidden.rename(self.place / "in" / (name or f"{self.files}.json"))

    def take_in(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        streams = self.project.streams(self.source, once=True)
        streams.run(
            report=lambda done, _: counts.update(
                rows=done.rows, quarantined=done.quarantined, batches=1, repeated=int(done.repeated)
            )
        )
        return counts

    def join(self, source: wr.EventSource) -> wr.Join:
        group = wr.GroupBy(
            "g",
            source,
            ["user"],
            [agg.count("price"), agg.sum("price").over("1h"), agg.last_k("price", 3)],
        )
        pq.write_table(
            table([event(user, minute) for user in (1, 2, 3) for minute in (5, 30, 90, 200)]),
            self.place / "queries.parquet",
        )
        return wr.Join("j", wr.Queries(str(self.place / "queries.parquet"), "ts"), [group])

    def features(self, source: wr.EventSource | None = None, **options: Any) -> list[Any]:
        frame = self.project.backfill(self.join(source or self.source), **options)
        return sorted(map(str, frame.collect()))

    def expected(self, rows: list[dict[str, Any]]) -> list[Any]:
        """The same from one table with all rows."""
        place = self.place / "whole"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.load(rows, "whole")
        return self.features(wr.EventSource("whole", str(place), "ts"))

    def quarantine(self) -> list[dict[str, Any]]:
        found = open_table(Store.at(str(self.place / "state/quarantine/streams/views")))
        if found is None:
            return []
        rows = pa.table(found.to_pyarrow_table()).to_pylist()
        return sorted(rows, key=lambda row: (row["reason"], row["message"] or b""))


def as_json(row: dict[str, Any]) -> str:
    micros = row["ts"]
    if micros is not None:
        row = {
            **row,
            "ts": f"1970-01-01T{micros // MINUTE // 60:02}:{micros // MINUTE % 60:02}:00Z",
        }
    return json.dumps(row)


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def test_a_backfill_sees_table_and_stream(shop: Shop) -> None:
    old = [event(1, 0, 5.0), event(1, 10), event(2, 20, None)]
    shop.load(old)
    assert shop.features() == shop.expected(old)  # a stream that never ran is no rows
    new = [event(1, 30, 2.0), event(1, 30, 2.0), event(3, 4), event(2, 89, 0.5)]
    shop.arrive(new)
    assert shop.take_in() == Counter(rows=4, batches=1)
    assert shop.features() == shop.expected([*old, *new])
    # What is late, and the same once more, counts like all else; only what is new is read.
    late = [event(1, 0, 9.0), event(1, 30, 2.0), event(2, 199)]
    shop.arrive(late)
    shop.arrive(late)
    assert shop.take_in()["rows"] == 6
    assert "new updates of a shard" in str(shop.project.plan(shop.join(shop.source)))
    assert shop.features(strategy="merge") == shop.expected([*old, *new, *late, *late])
    assert shop.take_in() == Counter()
    assert len(Store.at(f"{shop.place}/state/arrangements").folders()) == 2  # of both sources
    for strategy in ("tiles", "broadcast"):
        found = shop.features(strategy=strategy)
        assert found == shop.expected([*old, *new, *late, *late])


def test_a_source_may_be_a_stream_alone(shop: Shop) -> None:
    stream = wr.FolderStream(shop.place / "in", schema="user BIGINT, price DOUBLE, ts TIMESTAMP")
    source = wr.EventSource("alone", time="ts", stream=stream)
    assert shop.features(source) == shop.expected([])
    rows = [event(1, 1), event(2, 3, 4.0)]
    shop.arrive(rows)
    shop.project.streams(source, once=True).run()
    assert shop.features(source) == shop.expected(rows)


def test_select_and_where_hold_for_both(shop: Shop) -> None:
    shop.load([event(1, 0, 5.0), event(2, 1, 50.0)])
    shop.arrive([event(1, 2, 7.0), event(3, 2, 70.0)])
    shop.take_in()
    changed = wr.EventSource(
        "views",
        str(shop.place / "old"),
        "ts",
        select={"user": "user", "price": "price * 2", "ts": "ts"},
        where="price < 10",
        stream=shop.source.stream,
    )
    expected = shop.expected([event(1, 0, 10.0), event(1, 2, 14.0)])
    assert shop.features(changed) == expected


def test_a_relation_of_the_project_follows_the_stream(shop: Shop) -> None:
    shop.load([event(1, 0), event(2, 1)])
    project = shop.project
    project.source("views", shop.source)

    def counts() -> dict[int, int]:
        frame = project.sql("SELECT user, count(*) AS n FROM views GROUP BY user")
        assert frame is not None
        return {row.user: row.n for row in frame.collect()}

    project.sql(
        "CREATE MATERIALIZED VIEW by_user AS SELECT user, sum(price) AS s FROM views GROUP BY user"
    )
    assert counts() == {1: 1, 2: 1}
    shop.arrive([event(1, 5), event(1, 5), event(3, 5)])
    shop.take_in()
    assert counts() == {1: 3, 2: 1, 3: 1}
    shop.load([event(2, 2)])
    shop.arrive([event(3, 7, 2.5)])
    shop.take_in()
    assert counts() == {1: 3, 2: 2, 3: 2}
    frame = project.sql("SELECT * FROM by_user")
    assert frame is not None
    assert {row.user: row.s for row in frame.collect()} == {1: 3.0, 2: 2.0, 3: 3.5}
    project.source("views", shop.source)  # the same once more is no error
    assert "stream" in str([r.asDict() for r in project.sql("DESCRIBE EXTENDED views").collect()])


def test_messages_that_cannot_be_read_are_set_aside(shop: Shop) -> None:
    shop.load([event(1, 0)])
    good = event(1, 3)
    lines = [
        as_json(good),
        "{not json",
        '{"user": "bob", "price": 1.0, "ts": "1970-01-01T00:00:00Z"}',
        "[1, 2]",
        "[" * 5_000,
        '{"user": 1, "price": 1.0}',
        '{"user": 1, "price": 1.0, "ts": 1700000000000}',
        "null",
        "",
        '{"user": 1, "price": 2.0, "ts": "1970-01-01T00:03:00Z", "more": {"a": []}}',
    ]
    shop.arrive(lines)
    (shop.place / "in" / "bytes.json").write_bytes(b'{"user": 1, "ts": "\xff\xfe"}\n')
    counts = shop.take_in()
    assert (counts["rows"], counts["quarantined"]) == (2, 8)
    found = shop.quarantine()
    reasons = Counter(row["reason"] for row in found)
    assert reasons["not JSON"] >= 1
    assert reasons["a column has a value of another type"] == 1
    assert reasons["not UTF-8"] == 1
    assert reasons["ts is null"] == 1
    assert sum("year 9999" in row["reason"] for row in found) == 1
    assert all(row["file"].startswith("file:") for row in found)
    assert b"{not json" in {row["message"] for row in found}
    assert shop.features() == shop.expected([event(1, 0), good, event(1, 3, 2.0)])


def test_a_poison_message_is_found_among_many(shop: Shop) -> None:
    """What only fails when the source's expressions are evaluated is set aside all the same."""
    shop.load([event(1, 0)])
    source = wr.EventSource(
        "views",
        str(shop.place / "old"),
        "ts",
        select={"user": "user", "price": "CAST(1 / price AS DOUBLE)", "ts": "ts"},
        stream=shop.source.stream,
    )
    rows = [event(user % 3, 1, float(user % 7 + 1)) for user in range(40)]
    shop.arrive([*rows[:17], event(1, 1, 0.0), *rows[17:], event(2, 1, 0.0)])
    counts: Counter[str] = Counter()
    shop.project.streams(source, once=True).run(
        report=lambda done, _: counts.update(rows=done.rows, quarantined=done.quarantined)
    )
    assert counts == Counter(rows=40, quarantined=2)
    assert all("DIVIDE_BY_ZERO" in row["reason"] for row in shop.quarantine())
    assert all(b'"price": 0.0' in row["message"] for row in shop.quarantine())
    shop.features(source)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_other_formats_and_files_that_cannot_be_read(shop: Shop, format: str) -> None:
    shop.options = {"format": format}
    shop.load([event(1, 0)])
    (shop.place / "in").mkdir()
    rows = [event(1, 3), event(2, 4, None)]
    if format == "csv":
        text = "user,price,ts\n1,1.0,1970-01-01T00:03:00Z\n2,,1970-01-01T00:04:00Z\n"
        (shop.place / "in/a.csv").write_text(text + "x,1.0,1970-01-01T00:03:00Z\n")
        (shop.place / "in/b.csv").write_text("price,user,ts\n1.0,1,1970-01-01T00:03:00Z\n")
        bad = 2
    else:
        pq.write_table(
            table([*rows, {"user": 1, "price": 1.0, "ts": None}]), shop.place / "in/a.parquet"
        )
        (shop.place / "in/b.parquet").write_bytes(b"PAR1 this is no such file PAR1")
        bad = 2
    counts = shop.take_in()
    assert (counts["rows"], counts["quarantined"]) == (2, bad)
    assert any("b." in row["file"] and row["message"] is None for row in shop.quarantine())
    assert shop.features() == shop.expected([event(1, 0), *rows])


def test_a_file_counts_once(shop: Shop) -> None:
    shop.load([event(1, 0)])
    name = shop.arrive([event(1, 1)]).name
    assert shop.take_in()["rows"] == 1
    shop.arrive([event(1, 1), event(1, 2)], name)  # written again under its name
    assert shop.take_in()["rows"] == 0
    shop.arrive([event(1, 1)])  # the same content in another file
    assert shop.take_in()["rows"] == 1


def test_what_is_delivered_again_changes_nothing(shop: Shop) -> None:
    shop.load([event(1, 0)])
    shop.arrive([event(1, 1), event(2, 1)])
    shop.arrive(["{bad"])
    shop.take_in()
    before, upper = shop.features(), open_stream(f"{shop.place}/state/streams/views", None).upper
    commits = shop.place / "state/streams/views/_checkpoint/commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    assert shop.take_in() == Counter(repeated=1, batches=1, rows=0, quarantined=0)
    assert open_stream(f"{shop.place}/state/streams/views", None).upper == upper
    assert shop.features() == before
    assert len(shop.quarantine()) == 1


def test_a_lost_checkpoint_is_not_taken_for_a_new_stream(shop: Shop) -> None:
    shop.load([event(1, 0)])
    shop.arrive([event(1, 1)])
    shop.take_in()
    shutil.rmtree(shop.place / "state/streams/views/_checkpoint")
    with pytest.raises(StorageError, match="would be taken in again"):
        shop.take_in()
    assert shop.features() == shop.expected([event(1, 0), event(1, 1)])
    # To begin again is to remove all of it: arrangements notice that the rows are others.
    shutil.rmtree(shop.place / "state/streams/views")
    shop.arrive([event(3, 1)])
    shop.take_in()
    assert shop.features() == shop.expected([event(1, 0), event(1, 1), event(3, 1)])


def test_a_folder_that_has_moved_is_not_taken_in_again(shop: Shop) -> None:
    shop.load([event(1, 0)])
    shop.arrive([event(1, 1)])
    shop.take_in()
    shutil.move(shop.place / "in", shop.place / "moved")
    moved = wr.FolderStream(shop.place / "moved")
    with pytest.raises(StorageError, match="would be taken in again"):
        shop.project.streams(replace(shop.source, stream=moved), once=True).run()
    # By their names, files are known wherever they are.
    moved = wr.FolderStream(shop.place / "moved", options={"fileNameOnly": "true"})
    shop.project.streams(replace(shop.source, stream=moved), once=True).run()
    assert shop.features() == shop.expected([event(1, 0), event(1, 1)])


def test_other_columns_than_before_are_refused(shop: Shop) -> None:
    shop.load([event(1, 0)])
    shop.take_in()
    old = table([event(1, 0)]).append_column("more", pa.array([1]))
    for file in (shop.place / "old").iterdir():
        pq.write_table(old, file)
    with pytest.raises(SchemaError, match="list the former in schema="):
        shop.take_in()


def test_several_streams_run_in_one_process_and_tell_what_they_did(shop: Shop) -> None:
    shop.load([event(1, 0)])
    shop.arrive([event(1, 1)])
    (shop.place / "other").mkdir()
    (shop.place / "other/x.json").write_text('{"a": 1, "t": 5}\n{"a": 1, "t": 5}\n')
    other = wr.EventSource(
        "other", time="t", stream=wr.FolderStream(shop.place / "other", schema="a INT, t BIGINT")
    )
    seen: dict[str, int] = {}
    streams = shop.project.streams(shop.source, other, once=True, after=seen.__setitem__)
    streams.run()
    for name in ("views", "other"):
        shard = open_stream(f"{shop.place}/state/streams/{name}", None)
        assert shard is not None
        assert seen[name] == shard.upper
    text = streams.figures.text()
    assert 'windrow_stream_rows_total{stream="other"} 2' in text
    assert 'windrow_stream_quarantined_total{stream="views"} 0' in text


@pytest.mark.parametrize("feed", ["changes", "mutations"])
def test_a_table_that_changes_goes_on_as_a_stream(shop: Shop, feed: str) -> None:
    signs = {
        "changes": ("_change_type", "_commit_timestamp", "insert", "delete"),
        "mutations": ("is_before", "mutation_time", False, True),
    }
    sign, time, comes, goes = signs[feed]
    (shop.place / "log").mkdir()

    def rows(changes: list[tuple[Any, dict[str, Any], int]]) -> list[dict[str, Any]]:
        return [{**row, sign: what, time: minute * MINUTE} for what, row, minute in changes]

    old = rows([(comes, event(1, 0), 1), (comes, event(1, 1, 5.0), 2), (comes, event(2, 0), 2)])
    new = rows(
        [
            (goes, event(1, 1, 5.0), 20),
            (comes, event(2, 1, 5.0), 20),  # the key changes
            (goes, event(2, 0), 80),
            (comes, event(3, 0), 3),
            (comes, event(3, 0), 3),
        ]
    )

    def write(changes: list[dict[str, Any]], place: Path) -> None:
        schema = SCHEMA.append(pa.field(sign, pa.bool_() if feed == "mutations" else pa.string()))
        times = [{**one, "ts": one["ts"]} for one in changes]
        plain = pa.schema(
            [
                pa.field(f.name, pa.int64() if f.type == STAMP else f.type)
                for f in schema.append(pa.field(time, STAMP))
            ]
        )
        found = pa.Table.from_pylist(times, plain).cast(schema.append(pa.field(time, STAMP)))
        pq.write_table(found, place)

    write(old, shop.place / "log/1.parquet")
    (shop.place / "in").mkdir()
    write(new, shop.place / "in/1.parquet")
    stream = wr.FolderStream(shop.place / "in", format="parquet")
    source = wr.EntitySource("e", "ts", **{feed: str(shop.place / "log")}, stream=stream)
    shop.project.streams(source, once=True).run()
    (shop.place / "all").mkdir()
    write([*old, *new], shop.place / "all/1.parquet")
    whole = wr.EntitySource("w", "ts", **{feed: str(shop.place / "all")})
    assert shop.features(source) == shop.features(whole)
    shop.project.source("e", source)
    frame = shop.project.sql("SELECT user, count(*) AS n FROM e GROUP BY user")
    assert {row.user: row.n for row in frame.collect()} == {1: 1, 2: 1, 3: 2}
