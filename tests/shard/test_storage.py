"""The same shard code on local folders and on an S3-compatible store."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracle import Oracle, count_updates
from strategies import to_table
from windrow import Shard
from windrow.errors import (
    OptionError,
    ShardExistsError,
    ShardNotFoundError,
    ShardRetiredError,
    StorageError,
    UpperMismatchError,
)
from windrow.shard.cache import PartCache
from windrow.shard.spec import Order, by_columns, by_hash
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.storage.work import work_folder

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Place:
    """Somewhere that shards can rest, and how to reach it."""

    root: str
    options: dict[str, str] | None = None
    names: Iterator[int] = field(default_factory=lambda: iter(range(1_000)))

    def create(self, order: Order | None = None) -> Shard:
        uri = f"{self.root}/{next(self.names)}"
        return Shard.create(uri, SCHEMA, key=["k"], order=order, storage_options=self.options)

    def open(self, shard: Shard) -> Shard:
        return Shard.open(shard.uri, storage_options=self.options)

    def put(self, source: Path, name: str) -> str:
        """Copy a local file here; returns its URI."""
        Store.at(self.root, self.options).write(name, [source.read_bytes()])
        return f"{self.root}/{name}"


@pytest.fixture
def s3(s3_options: dict[str, str], s3_uri: str) -> Place:
    return Place(s3_uri, s3_options)


@pytest.fixture(params=["path", "file uri", "odd path", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    odd = tmp_path / "with spaces, ünïcödé & 100%"
    match request.param:
        case "s3":
            found: Place = request.getfixturevalue("s3")
            return found
        case "file uri":
            return Place(f"file://{quote(str(odd))}")
        case "odd path":
            return Place(str(odd))
    return Place(str(tmp_path))


def some_rows(lower: int, upper: int, count: int = 40) -> list[tuple[dict[str, Any], int, int]]:
    """Updates that repeat and cancel."""
    pick = random.Random(lower)
    rows = []
    for _ in range(count):
        k = pick.randrange(12)
        row = {
            "k": k if k else None,
            "name": pick.choice(["Bern", "Zürich", "", None]),
            "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=k),
            "price": Decimal(k) / 4,
            "tags": pick.choice([[], ["a", None], None]),
        }
        rows.append((row, pick.randrange(lower, upper), pick.choice([1, 1, 2, -1])))
    return rows


def names(shard: Shard) -> list[str]:
    return shard._log.store.names()


def append(shard: Shard, oracle: Oracle, upper: int, **options: Any) -> None:
    rows = some_rows(shard.upper, upper)
    assert shard.append(to_table(rows, SCHEMA), lower=shard.upper, upper=upper, **options)
    oracle.append(rows)


def check(shard: Shard, oracle: Oracle) -> None:
    """The shard at several times, and its changes, are what the oracle says."""
    shard.refresh()
    for as_of in {shard.since, (shard.since + shard.upper) // 2, shard.upper - 1}:
        found = shard.snapshot(as_of).to_table()
        assert count_updates(found, with_time=False) == oracle.snapshot(as_of)
    found = shard.changes(shard.since).to_table()
    assert count_updates(found, with_time=True) == oracle.changes(shard.since, shard.upper)


def test_what_is_written_can_be_read_by_another_handle(place: Place) -> None:
    shard, oracle = place.create(by_columns("name", "k")), Oracle(SCHEMA)
    for upper in (10, 25, 26):
        append(shard, oracle, upper)
    other = place.open(shard)
    assert (other.schema, other.key, other.order) == (SCHEMA, ("k",), by_columns("name", "k"))
    assert (other.since, other.upper) == (0, 26)
    check(other, oracle)
    append(other, oracle, 30)
    check(shard, oracle)  # reads refresh by themselves


def test_a_local_shard_is_the_same_by_path_and_by_uri(tmp_path: Path) -> None:
    folder = tmp_path / "ä b & 100%"
    shard = Shard.create(folder, SCHEMA, key=["k"])
    append(shard, Oracle(SCHEMA), 5)
    by_uri = Shard.open(f"file://{quote(str(folder))}")
    assert by_uri.uri == shard.uri == str(folder)
    assert by_uri.snapshot().to_table() == shard.snapshot().to_table()


def test_two_handles_cannot_append_the_same_lower(place: Place) -> None:
    shard, oracle = place.create(), Oracle(SCHEMA)
    stale = place.open(shard)
    append(shard, oracle, 10)
    before = names(shard)
    # The stale handle believes it may append, writes its part, and loses only at the commit.
    with pytest.raises(UpperMismatchError, match=r"cannot append \[0, 7\).* upper is 10") as raised:
        stale.append(to_table(some_rows(3, 7), SCHEMA), lower=0, upper=7)
    assert raised.value.upper == 10
    assert names(shard) == before
    check(stale, oracle)


def test_of_many_writers_at_once_exactly_one_wins(place: Place) -> None:
    shard = place.create()
    handles = [place.open(shard) for _ in range(6)]
    batches = [some_rows(0, 5, count=10 + i) for i in range(len(handles))]

    def write(handle: Shard, rows: list[Any]) -> bool:
        try:
            return handle.append(to_table(rows, SCHEMA), lower=0, upper=5)
        except UpperMismatchError:
            return False

    with ThreadPoolExecutor(len(handles)) as pool:
        won = list(pool.map(write, handles, batches))
    assert won.count(True) == 1
    oracle = Oracle(SCHEMA, batches[won.index(True)])
    check(shard, oracle)
    assert len(names(shard)) == 1


def test_a_repeated_append_changes_nothing(place: Place) -> None:
    shard, oracle = place.create(), Oracle(SCHEMA)
    append(shard, oracle, 10)
    append(shard, oracle, 20, token="second")
    before = (names(shard), shard.stats())
    other = place.open(shard)
    assert not other.append(to_table(some_rows(0, 10)[::-1], SCHEMA), lower=0, upper=10)
    assert not other.append(to_table([], SCHEMA), lower=10, upper=20, token="second")
    with pytest.raises(UpperMismatchError):
        other.append(to_table(some_rows(0, 10)[1:], SCHEMA), lower=0, upper=10)
    assert (names(shard), shard.stats()) == before


def write_file(rows: list[Any], path: Path) -> Path:
    pq.write_table(to_table(rows, SCHEMA), path, row_group_size=7)
    return path


def test_local_files_are_adopted(place: Place, tmp_path: Path) -> None:
    shard, oracle = place.create(), Oracle(SCHEMA)
    append(shard, oracle, 10)
    rows = some_rows(10, 20)
    plain = write_file(rows[:30], tmp_path / "plain.parquet")
    odd = write_file(rows[30:], tmp_path / "ödd name %41.parquet")
    files: list[str | Path] = [plain, f"file://{quote(str(odd))}"]
    assert shard.adopt(files, lower=10, upper=20)
    oracle.append(rows)
    assert plain.exists()
    assert odd.exists()
    assert shard.stats().unsorted_parts == 2
    check(shard, oracle)
    assert not place.open(shard).adopt(files, lower=10, upper=20)
    assert not place.open(shard).append(to_table(rows, SCHEMA), lower=10, upper=20)
    append(shard, oracle, 30)
    shard.compact(everything=True)
    assert shard.stats().unsorted_parts == 0
    check(shard, oracle)


def test_files_in_the_same_store_are_adopted(place: Place, tmp_path: Path) -> None:
    shard, rows = place.create(), some_rows(0, 10)
    uri = place.put(write_file(rows, tmp_path / "updates.parquet"), "updates.parquet")
    assert shard.adopt([uri], lower=0, upper=10)
    check(shard, Oracle(SCHEMA, rows))
    root = Store.at(place.root, place.options)
    assert root.exists("updates.parquet")
    # A copy: the shard does not depend on the file it came from.
    root.delete(["updates.parquet"])
    check(shard, Oracle(SCHEMA, rows))


def test_a_file_in_s3_is_adopted_by_a_local_shard(s3: Place, tmp_path: Path) -> None:
    rows = some_rows(0, 10)
    uri = s3.put(write_file(rows, tmp_path / "updates.parquet"), "updates.parquet")
    local = Place(str(tmp_path), s3.options)
    shard = local.create()
    assert shard.adopt([uri], lower=0, upper=10)
    check(shard, Oracle(SCHEMA, rows))


@pytest.mark.parametrize("order", [by_hash(), by_columns("k"), by_columns("name")], ids=str)
def test_keys_are_found_with_and_without_the_cache(
    place: Place, tmp_path: Path, order: Order
) -> None:
    shard = place.create(order)
    count = 6_000  # smaller parts are not worth an entry in the cache
    table = pa.table(
        {
            "k": pa.array([i % 1_000 for i in range(count)], pa.int64()),
            "name": [f"name {i % 7}" for i in range(count)],
            "at": pa.array(range(count), pa.timestamp("us", "UTC")),
            "price": pa.array([None] * count, pa.decimal128(10, 2)),
            "tags": pa.array([["a"]] * count, pa.list_(pa.string())),
        }
    )
    shard.append(table, lower=0, upper=5)
    keys = [3, 999, 1_000, None]
    expected = count_updates(
        shard.snapshot().to_table().filter(pa.compute.field("k").isin([3, 999])), with_time=False
    )
    assert len(expected) == 12
    cache = PartCache(str(tmp_path / "cache"), 1 << 30)
    for option in (None, cache, cache):
        found = shard.snapshot(keys={"k": keys}, cache=option).to_table()
        assert count_updates(found, with_time=False) == expected
    assert [p.suffix for p in Path(cache.folder).iterdir()] == [".arrow"]
    # Once cached, a part is not fetched again.
    shard._log.store.delete(names(shard))
    found = shard.snapshot(keys={"k": keys}, cache=cache).to_table()
    assert count_updates(found, with_time=False) == expected
    with pytest.raises(StorageError, match="is gone"):
        shard.snapshot(keys={"k": keys}, cache=None).to_table()


def test_hashes_of_keys_with_many_rows_take_little_space(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    sizes = {}
    for rows_of_a_key in (1, 20):
        uri = str(tmp_path / str(rows_of_a_key))
        shard = Shard.create(uri, schema, key=["k"], order=by_hash())
        rows = {"k": [n // rows_of_a_key for n in range(8_000)], "n": range(8_000)}
        shard.append(pa.table(rows, schema=schema), lower=0, upper=1)
        (name,) = names(shard)
        group = pq.ParquetFile(f"{uri}/{name}").metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        sizes[rows_of_a_key] = {c.path_in_schema: c.total_compressed_size for c in columns}
    assert sizes[20]["_prefix"] < 8_000 * 1 < 8_000 * 8 <= sizes[1]["_prefix"]
    assert sizes[20]["_hash"] >= 8_000 * 8  # nothing repeats, and nothing is lost by trying


def test_numbers_that_repeat_need_a_dictionary_only_where_they_are_scattered(
    tmp_path: Path,
) -> None:
    """Of neighbours, and of diffs, less is written without one; reading gives the same."""
    few, count = random.Random(1), 8_000
    columns: dict[str, list[Any]] = {
        "k": [n // 20 for n in range(count)],
        "at": [dt.datetime(2024, 1, 1, n // 1_000, tzinfo=dt.UTC) for n in range(count)],
        "scattered": [few.randrange(5) for _ in range(count)],
        "sparse": [n // 20 if n % 3 else None for n in range(count)],
        "name": [f"name {n // 20}" for n in range(count)],
        "n": list(range(count)),
    }
    numbers, text = pa.int64(), pa.string()
    types = [numbers, pa.timestamp("us", "UTC"), numbers, numbers, text, numbers]
    schema = pa.schema(list(zip(columns, types, strict=True)))
    shard = Shard.create(str(tmp_path / "s"), schema, key=["k"], order=by_columns("k", "at"))
    diffs = [few.choice([-1, 2]) for _ in range(count)]
    rows = pa.table({**columns, "_diff": diffs}, schema=schema.append(pa.field("_diff", "int64")))
    shard.append(rows, lower=0, upper=1)
    oracle = Oracle(schema, [(row, 0, row.pop("_diff")) for row in rows.to_pylist()])
    check(shard, oracle)
    (name,) = names(shard)
    group = pq.ParquetFile(tmp_path / "s" / name).metadata.row_group(0)
    found = {
        group.column(i).path_in_schema: group.column(i).has_dictionary_page
        for i in range(group.num_columns)
    }
    assert {name for name, has in found.items() if has} == {"scattered", "sparse", "name"}


def test_a_cache_that_is_full_or_broken_is_only_slower(place: Place, tmp_path: Path) -> None:
    shard = place.create()
    rows = pa.table({name: pa.nulls(5_000, SCHEMA.field(name).type) for name in SCHEMA.names})
    rows = rows.set_column(0, "k", pa.array(range(5_000), pa.int64()))
    shard.append(rows, lower=0, upper=1)
    read = {"keys": {"k": [17]}}
    expected = shard.snapshot(**read, cache=None).to_table()
    (tmp_path / "a file").write_text("not a folder")
    small = PartCache(str(tmp_path / "small"), 100)
    for cache in (PartCache(str(tmp_path / "a file"), 1 << 30), small):
        assert shard.snapshot(**read, cache=cache).to_table() == expected
    good = PartCache(str(tmp_path / "good"), 1 << 30)
    assert shard.snapshot(**read, cache=good).to_table() == expected
    for entry in Path(good.folder).iterdir():
        entry.write_bytes(b"half an entry")
    assert shard.snapshot(**read, cache=good).to_table() == expected


def test_compaction_and_vacuum_keep_the_content(place: Place) -> None:
    shard, oracle = place.create(), Oracle(SCHEMA)
    for upper in range(5, 35, 5):
        append(shard, oracle, upper)
    shard.advance_since(12)
    oracle.since = 12
    done = shard.compact(fanout=4)
    assert done.merges >= 1
    check(shard, oracle)
    shard.compact(everything=True)
    check(shard, oracle)
    assert (shard.stats().runs, shard.stats().parts) == (1, 1)
    assert shard.vacuum() == []  # too young to be deleted
    orphan = "left-by-a-dead-writer.parquet"
    with shard._log.store.open_output(orphan) as out:
        out.write(b"half a part")
    old = set(names(shard)) - {part.path for part in shard._log.parts()}
    assert len(old) > 6
    removed = shard.vacuum(retention_hours=0)
    assert {name.rpartition("/")[2] for name in removed} == old
    assert names(shard) == [part.path for part in shard._log.parts()]
    check(shard, oracle)
    check(place.open(shard), oracle)
    append(shard, oracle, 40)
    check(place.open(shard), oracle)


def test_a_read_that_vacuum_overtook_says_so(place: Place) -> None:
    shard, oracle = place.create(), Oracle(SCHEMA)
    append(shard, oracle, 5)
    append(shard, oracle, 10)
    read = shard.snapshot()
    other = place.open(shard)
    other.compact(everything=True)
    assert count_updates(read.to_table(), with_time=False) == oracle.snapshot(9)
    other.vacuum(retention_hours=0)
    with pytest.raises(StorageError, match=r"part \S+\.parquet is gone.*read again"):
        read.to_table()
    check(shard, oracle)


def test_stats_agree_with_the_store(place: Place) -> None:
    shard = place.create()
    for lower in (0, 10):
        rows = [r for r in some_rows(lower, lower + 10) if r[0]["k"] is not None]
        unique = {repr((row, time)): (row, time, diff) for row, time, diff in rows}
        shard.append(to_table(list(unique.values()), SCHEMA), lower=lower, upper=lower + 10)
    shard.advance_since(4)
    stats, store = place.open(shard).stats(), shard._log.store
    updates = shard.changes(4, consolidate="none").to_table()
    assert (stats.since, stats.upper, stats.batches, stats.runs, stats.parts) == (4, 20, 2, 2, 2)
    assert stats.rows == updates.num_rows
    assert stats.retractions == sum(d < 0 for d in updates.column("_diff").to_pylist()) > 0
    assert stats.bytes == sum(store.size(name) for name in store.names())
    assert len(store.names()) == stats.parts


def test_where_nothing_is_nothing_can_be_opened(place: Place) -> None:
    with pytest.raises(ShardNotFoundError, match=r"there is no shard.*Shard\.create"):
        Shard.open(f"{place.root}/nothing", storage_options=place.options)
    shard = place.create()
    with pytest.raises(ShardExistsError, match="open it, or choose another URI"):
        Shard.create(shard.uri, SCHEMA, key=["name"], storage_options=place.options)
    assert place.open(shard).key == ("k",)


def test_a_store_that_cannot_be_used_is_a_storage_error(s3: Place) -> None:
    with pytest.raises(StorageError, match="s3://no-such-bucket/s: cannot create"):
        Shard.create("s3://no-such-bucket/s", SCHEMA, key=["k"], storage_options=s3.options)
    # Without conditional puts two writers could both win, so delta-rs refuses to write.
    unsafe = {**(s3.options or {}), "aws_conditional_put": "disabled"}
    with pytest.raises(StorageError, match="conditional put"):
        Shard.create(f"{s3.root}/s", SCHEMA, key=["k"], storage_options=unsafe)


def test_options_may_come_from_the_environment(s3: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, oracle = s3.create(), Oracle(SCHEMA)
    append(shard, oracle, 5)
    for name, value in (s3.options or {}).items():
        monkeypatch.setenv(name, value)
    check(Shard.open(shard.uri), oracle)


@pytest.mark.parametrize("place", ["odd path", "s3"], indirect=True)
def test_spark_reads_and_writes_the_store(place: Place, spark: Any) -> None:
    shard, oracle = place.create(), Oracle(SCHEMA)
    append(shard, oracle, 10)
    rows = some_rows(10, 20)
    frame = spark.createDataFrame(to_table(rows, SCHEMA)).repartition(2)
    assert shard.append(frame, lower=10, upper=20)
    assert not place.open(shard).append(frame, lower=10, upper=20)
    oracle.append(rows)
    check(shard, oracle)
    found = shard.snapshot().dataframe(spark, slices=3).toArrow()
    assert count_updates(found, with_time=False) == oracle.snapshot(19)
    keys = spark.createDataFrame([(3,), (None,), (77,)], "k bigint")
    looked_up = shard.changes(0).lookup(keys, slices=3).toArrow()
    expected = oracle.changes(0, 20, lambda row: row["k"] in (3, None))
    assert count_updates(looked_up, with_time=True) == expected


def test_arrow_file_systems_are_made_once(s3: Place) -> None:
    from windrow.storage.store import _file_system

    store = Store.at(s3.root, s3.options)
    assert isinstance(_file_system(store)[0], pafs.S3FileSystem)
    assert _file_system(Store.at(s3.root + "/", s3.options)) is _file_system(store)


def test_a_reader_that_holds_the_shard_finishes(place: Place) -> None:
    shard = place.create()
    oracle = Oracle(SCHEMA)
    for lower in range(0, 40, 10):
        rows = some_rows(lower, lower + 10)
        shard.append(to_table(rows, SCHEMA), lower=lower, upper=lower + 10)
        oracle.append(rows)
    other = place.open(shard)
    with shard.hold(15, reader="slow") as held:
        read = shard.snapshot(held.time)
        assert [(one.reader, one.time) for one in other.holds()] == [("slow", 15)]
        assert other.advance_since(30) == 15
        other.compact(everything=True)
        assert other.vacuum(retention_hours=0) == []
        assert count_updates(read.to_table(), with_time=False) == oracle.snapshot(15)
    assert other.holds() == []
    assert other.advance_since(30) == 30
    other.compact(everything=True)
    assert len(other.vacuum(retention_hours=0)) >= 5
    assert names(shard) == sorted(part.path for part in other.snapshot().parts)
    assert count_updates(other.snapshot().to_table(), with_time=False) == oracle.snapshot(39)
    assert other.retire()
    with pytest.raises(ShardRetiredError, match="retired"):
        shard.hold().__enter__()


def test_work_is_claimed_by_one_at_a_time(place: Place) -> None:
    root = Store.at(place.root, place.options)
    with work_folder(root, "same") as one, work_folder(root, "same") as two:
        for folder in (one, two):
            folder.put("note", b"")
        assert sorted(Store.at(f"{root.uri}/tmp", place.options).names()) == sorted(
            f"{folder.uri.rpartition('/')[2]}/note" for folder in (one, two)
        )
    assert Store.at(f"{root.uri}/tmp", place.options).names() == []
    assert Store.at(f"{root.uri}/claims", place.options).names() == []
    with suppress(KeyboardInterrupt), work_folder(root, "same") as one:
        one.put("note", b"")
        raise KeyboardInterrupt
    with work_folder(root, "same") as again:
        assert (again.uri, again.names()) == (one.uri, ["note"])
    assert Store.at(f"{root.uri}/tmp", place.options).folders() == []


KEYS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=4),
        st.sampled_from(
            ["%", "%20", "%2F", "\\", "\n", " ", "#", "?", "=", "[", "//", ".", "/../"]
        ),
    ),
    min_size=1,
    max_size=5,
).map("".join)


@settings(max_examples=6)
@given(KEYS)
@example("a%20b")
@example("a?b")
@example("a#b")
@example("a//b")
@example("a/../b")
@example("a\\b")
@example("\x85")
def test_a_shard_at_any_key(s3_options: dict[str, str], key: str) -> None:
    folder = f"s3://shards/{new_id()}"
    beside = unquote(key.replace("?", "/").replace("#", "/"))  # what another reading leads to
    for other in {"a", "a b", beside} - {key}:
        with suppress(OptionError, StorageError, ShardExistsError):
            Shard.create(f"{folder}/{other}", SCHEMA, key=["k"], storage_options=s3_options)
    before = Store.at(folder, s3_options).names()
    uri = f"{folder}/{key}"
    try:
        shard = Shard.create(uri, SCHEMA, key=["k"], storage_options=s3_options)
    except (OptionError, ShardExistsError):
        assert Store.at(folder, s3_options).names() == before
        return
    oracle = Oracle(SCHEMA)
    for upper in (5, 10):
        append(Shard.open(uri, storage_options=s3_options), oracle, upper)
    shard.compact(everything=True)
    assert len(shard.vacuum(retention_hours=0)) == 2
    check(Shard.open(uri, storage_options=s3_options), oracle)
    stray = set(Store.at(folder, s3_options).names()) - set(before)
    assert all(f"{folder}/{name}".startswith(f"{shard.uri}/") for name in stray)
