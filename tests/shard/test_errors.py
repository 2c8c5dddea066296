"""Bad input gets a clear error, and nothing is left behind."""

from __future__ import annotations

import datetime as dt
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from windrow import Shard, by_columns, by_hash, col
from windrow.errors import (
    DataError,
    OptionError,
    SchemaError,
    ShardExistsError,
    ShardNotFoundError,
    StorageError,
    TimeRangeError,
    UpperMismatchError,
    WindrowError,
)
from windrow.shard import append as append_module
from windrow.shard.log import Log
from windrow.shard.spec import Order
from windrow.storage.store import Store

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("score", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """A shard with updates of ann and bob in [0, 10)."""
    made = Shard.create(tmp_path / "shard", SCHEMA, key=["user"])
    made.append(rows(user=["ann", "bob"], score=[1, 2]), lower=0, upper=10)
    return made


def rows(**columns: Any) -> pa.Table:
    """Rows of SCHEMA; columns that are not given are NULL, those given as ... are left out."""
    count = max((len(c) for c in columns.values() if c is not ...), default=1)
    nulls: dict[str, Any] = {f.name: pa.nulls(count, f.type) for f in SCHEMA}
    return pa.table({n: c for n, c in (nulls | columns).items() if c is not ...})


def state(shard: Shard) -> tuple[int, int, int, list[str]]:
    shard.refresh()
    return shard.since, shard.upper, shard._log.version, shard._log.store.names()


@contextmanager
def refused(shard: Shard, error: type[WindrowError], *words: str) -> Iterator[None]:
    """The block raises `error` with all `words` in its message, and the shard is as before."""
    before = state(shard)
    with pytest.raises(error) as raised:
        yield
    for word in words:
        assert word in str(raised.value)
    assert type(raised.value) is error
    assert state(shard) == before


# Making and opening a shard


INT = pa.int64()
BAD_SPECS: dict[str, tuple[list[tuple[str, pa.DataType]], dict[str, Any], Any, list[str]]] = {
    "unsigned": ([("a", pa.uint32())], {}, SchemaError, ["column 'a'", "uint32", "signed"]),
    "duration": ([("a", pa.duration("us"))], {}, SchemaError, ["column 'a'", "duration[us]"]),
    "interval": ([("a", pa.month_day_nano_interval())], {}, SchemaError, ["column 'a'", "BIGINT"]),
    "time": ([("a", pa.time64("us"))], {}, SchemaError, ["column 'a'", "time64[us]", "STRING"]),
    "null": ([("a", pa.null())], {}, SchemaError, ["column 'a'", "null", "CAST(NULL AS STRING)"]),
    "half float": ([("a", pa.float16())], {}, SchemaError, ["column 'a'", "halffloat", "float"]),
    "wide decimal": ([("a", pa.decimal256(50, 2))], {}, SchemaError, ["column 'a'", "DECIMAL(38"]),
    "nested": (
        [("a", pa.list_(pa.struct([("b", pa.uint8())])))],
        {},
        SchemaError,
        ["column 'a' element.b", "uint8"],
    ),
    "empty struct": ([("a", pa.struct([]))], {}, SchemaError, ["column 'a'", "without fields"]),
    "map key": (
        [("a", pa.map_(pa.string(), INT))],
        {"key": ["a"]},
        SchemaError,
        ["key column 'a'", "map"],
    ),
    "nested map key": (
        [("a", pa.list_(pa.map_(pa.string(), INT)))],
        {"key": ["a"]},
        SchemaError,
        ["key column 'a'", "map"],
    ),
    "twice": ([("a", INT), ("a", INT)], {}, SchemaError, ["column 'a' occurs twice"]),
    "twice, in case": ([("a", INT), ("A", INT)], {}, SchemaError, ["column 'A' occurs twice"]),
    "no columns": ([], {"key": []}, SchemaError, ["at least one column"]),
    "unknown key": (
        [("user", INT)],
        {"key": ["usr"]},
        SchemaError,
        ["no column 'usr'", "did you mean 'user'?"],
    ),
    "unlike any": ([("user", INT)], {"key": ["x"]}, SchemaError, ["'x'", "known: ['user']"]),
    "unknown order": (
        [("user", INT)],
        {"order": by_columns("users")},
        SchemaError,
        ["no column 'users'", "did you mean 'user'?"],
    ),
    "unknown hash order": (
        [("user", INT)],
        {"key": ["user"], "order": by_hash("User")},
        SchemaError,
        ["no column 'User'", "did you mean 'user'?"],
    ),
    "nested order": (
        [("a", pa.list_(INT))],
        {"order": by_columns("a")},
        SchemaError,
        ["column 'a'", "list<element: int64>", "order"],
    ),
    "key twice": ([("a", INT)], {"key": ["a", "a"]}, OptionError, ["key", "['a', 'a']"]),
    "order twice": ([("a", INT)], {"order": by_columns("a", "a")}, OptionError, ["order", "a"]),
    "no order": ([("a", INT)], {"order": by_columns()}, OptionError, ["by_columns()"]),
    "no key": ([("a", INT)], {"key": []}, OptionError, ["hash order needs key columns"]),
}


@pytest.mark.parametrize("case", BAD_SPECS)
def test_a_spec_that_makes_no_sense_creates_nothing(tmp_path: Path, case: str) -> None:
    fields, options, error, words = BAD_SPECS[case]
    options = {"key": [fields[0][0]] if fields and "order" not in options else []} | options
    with pytest.raises(error) as raised:
        Shard.create(tmp_path / "s", pa.schema(fields), **options)
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["_time", "_diff", "_prefix", "_hash", "_Time"])
def test_names_of_windrow_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SchemaError, match=f"column '{name}'.*belong to Windrow; rename"):
        Shard.create(tmp_path / "s", pa.schema([("a", INT), (name, INT)]), key=["a"])
    assert list(tmp_path.iterdir()) == []


def test_a_shard_is_not_created_over_another_table(shard: Shard, tmp_path: Path) -> None:
    with refused(shard, ShardExistsError, shard.uri, "open it, or choose another URI"):
        Shard.create(shard.uri, pa.schema([("a", INT)]), key=["a"])
    plain = str(tmp_path / "plain")
    write_deltalake(plain, pa.table({"a": [1]}))
    with pytest.raises(ShardExistsError, match=re.escape(plain)):
        Shard.create(plain, pa.schema([("a", INT)]), key=["a"])
    assert DeltaTable(plain).version() == 0


def test_what_is_not_a_shard_cannot_be_opened(shard: Shard, tmp_path: Path) -> None:
    with pytest.raises(ShardNotFoundError, match=r"nowhere: there is no shard; create one with"):
        Shard.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    write_deltalake(str(tmp_path / "plain"), pa.table({"a": [1]}))
    with pytest.raises(ShardNotFoundError, match=r"plain: this Delta table is not a shard"):
        Shard.open(tmp_path / "plain")


def test_a_newer_format_is_refused(shard: Shard, tmp_path: Path) -> None:
    newer = Store.at(tmp_path / "newer")
    Log.create(newer, shard._log.spec, {"windrow.format": "99"})
    with pytest.raises(StorageError, match=r"newer: written in format 99.*upgrade windrow"):
        Shard.open(newer.uri)


# Appending


BAD_TABLES: dict[str, tuple[Any, type[WindrowError], list[str]]] = {
    "wrong type": (
        rows(score=["one"]),
        SchemaError,
        ["column 'score' is string, the schema says int64"],
    ),
    "narrower type": (
        rows(score=pa.array([1], pa.int32())),
        SchemaError,
        ["'score' is int32", "int64"],
    ),
    "wrong nested type": (
        rows(tags=pa.array([[1]], pa.list_(INT))),
        SchemaError,
        ["'tags' is list", "list<element: string>"],
    ),
    "naive timestamp": (
        rows(at=pa.array([AT.replace(tzinfo=None)], pa.timestamp("us"))),
        SchemaError,
        ["'at' is timestamp[us]", "timestamp[us, tz=UTC]"],
    ),
    "missing column": (rows(score=...), SchemaError, ["column 'score' (int64) is missing"]),
    "unknown column": (
        rows(scores=pa.array([1])),
        SchemaError,
        ["column 'scores' (int64) is not in the schema", "The schema is (user string"],
    ),
    "several at once": (
        rows(score=["1"], user=..., x=[1]),
        SchemaError,
        ["'user' (string) is missing", "'x' (int64)", "'score' is string"],
    ),
    "unsupported type": (
        rows(score=pa.array([1], pa.uint64())),
        SchemaError,
        ["column 'score'", "uint64", "unsigned"],
    ),
    "twice": (
        pa.table([["a"], [1], [1]], names=["user", "score", "score"]),
        SchemaError,
        ["column 'score' occurs twice"],
    ),
    "stored columns": (rows(_prefix=[1]), SchemaError, ["column '_prefix'"]),
    "no rows, wrong type": (
        rows(score=pa.array([], pa.string()), user=pa.array([], pa.string()), at=..., tags=...),
        SchemaError,
        ["'score' is string"],
    ),
    "null time": (
        rows(user=["a", "b"], _time=pa.array([None, 10], INT)),
        DataError,
        ["1 of 2", "null '_time'"],
    ),
    "null diff": (
        rows(user=["a", "b"], _diff=pa.array([None, None], INT)),
        DataError,
        ["2 of 2", "null '_diff'"],
    ),
    "time of another type": (
        rows(_time=pa.array([AT], pa.timestamp("us", "UTC"))),
        SchemaError,
        ["'_time' is timestamp[us, tz=UTC]", "int64"],
    ),
    "diff of another type": (rows(_diff=[1.0]), SchemaError, ["'_diff' is double", "int64"]),
    "time before lower": (
        rows(user=["a", "eve"], _time=[10, 9]),
        DataError,
        ["1 of 2", "[10, 20)", "the first at 9", "'eve'"],
    ),
    "time at upper": (
        rows(user=["a", "eve", "dan"], _time=[10, 20, 99]),
        DataError,
        ["2 of 3", "[10, 20)", "the first at 20", "'eve'"],
    ),
    "overflow": (
        rows(user=["a", "a"], score=[1, 1], _diff=[2**62, 2**62]),
        DataError,
        ["exceeds 64 bits", "_diff"],
    ),
    "negative overflow": (
        rows(user=["a", "a", "a"], _diff=[-(2**62), -(2**62), -1]),
        DataError,
        ["exceeds 64 bits"],
    ),
    "nanoseconds": (
        rows(at=pa.array([1_001], pa.timestamp("ns", "UTC"))),
        DataError,
        ["column 'at'", "timestamp[us, tz=UTC]", "round"],
    ),
    "too far away": (
        rows(at=pa.array([2**60], pa.timestamp("s", "UTC"))),
        DataError,
        ["column 'at'", "timestamp[us, tz=UTC]"],
    ),
    "pandas": (pd.DataFrame({"user": ["a"]}), OptionError, ["cannot append", "Arrow table"]),
    "dictionary": ({"user": ["a"]}, OptionError, ["cannot append dict"]),
    "rows": ([{"user": "a"}], OptionError, ["cannot append dict"]),
    "text": ("user", OptionError, ["cannot append str"]),
    "nothing": (None, OptionError, ["cannot append NoneType"]),
    "batches that differ": (
        [*rows(user=["a"]).to_batches(), *rows(score=["1"]).to_batches()],
        SchemaError,
        ["score string", "score int64"],
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_bad_append_changes_nothing(shard: Shard, case: str) -> None:
    data, error, words = BAD_TABLES[case]
    with refused(shard, error, *words):
        shard.append(data, lower=10, upper=20)
    assert shard.append(rows(user=["carl"]), lower=10, upper=20)


def test_values_beyond_their_type_in_nested_columns_are_named(tmp_path: Path) -> None:
    nested = pa.schema([("k", INT), ("s", pa.struct([("at", pa.timestamp("us"))]))])
    shard = Shard.create(tmp_path / "s", nested, key=["k"])
    fine = pa.struct([("at", pa.timestamp("ns"))])
    bad = pa.table({"k": [1, 2], "s": pa.array([{"at": 1_000}, {"at": 1}], fine)})
    with refused(shard, DataError, "column 's'", "timestamp[us]"):
        shard.append(bad, lower=0, upper=1)
    assert shard.append(bad.slice(0, 1), lower=0, upper=1)


@pytest.mark.parametrize(
    ("lower", "upper"), [(10, 10), (20, 10), (-5, 10), (-5, -1), (10, 2**63), (0, 2**62 + 1)]
)
def test_bounds_that_are_no_batch_are_refused(shard: Shard, lower: int, upper: int) -> None:
    for write in (shard.append, shard.adopt):
        with refused(shard, TimeRangeError, f"[{lower}, {upper}) is not a batch"):
            write([], lower=lower, upper=upper)


def test_an_append_elsewhere_than_at_upper_is_refused(shard: Shard) -> None:
    for lower, upper in ((0, 5), (0, 10), (5, 15), (9, 30), (11, 20)):
        with refused(shard, UpperMismatchError, f"[{lower}, {upper})", "upper is 10"):
            shard.append(rows(user=["new"]), lower=lower, upper=upper)
        with refused(shard, UpperMismatchError, f"[{lower}, {upper})", "upper is 10"):
            shard.append(rows(user=["new"]), lower=lower, upper=upper, token="mine")


def test_a_source_that_fails_halfway_leaves_nothing(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_module, "BUFFER_ROWS", 2)  # the first batches are written early

    def batches(failure: Any) -> Iterator[pa.RecordBatch]:
        for user in "abcdef":
            yield rows(user=[user]).to_batches()[0]
        if isinstance(failure, BaseException):
            raise failure
        yield failure

    before = state(shard)
    for failure in (RuntimeError("the source broke"), KeyboardInterrupt()):
        with pytest.raises(type(failure)):
            shard.append(batches(failure), lower=10, upper=20)
        assert state(shard) == before
    with refused(shard, DataError, "the first at 99", "'late'"):
        late = rows(user=["late"], _time=[99]).select([*SCHEMA.names, "_time"])
        shard.append(batches(late.to_batches()[0]), lower=10, upper=20)
    with refused(shard, OptionError, "cannot append int"):
        shard.append(batches(7), lower=10, upper=20)  # type: ignore[arg-type]


def test_a_multiplicity_may_not_overflow_later_either(shard: Shard) -> None:
    many = rows(user=["a"], _diff=[2**62])
    shard.append(many, lower=10, upper=11)
    shard.append(many, lower=11, upper=12)
    assert shard.snapshot(10, keys={"user": ["a"]}).to_table().column("_diff")[0].as_py() == 2**62
    with refused(shard, DataError, "exceeds 64 bits"):
        shard.snapshot(11).to_table()
    assert shard.changes(10).to_table().num_rows == 2
    shard.advance_since(11)
    with refused(shard, DataError, "exceeds 64 bits"):
        shard.compact(everything=True)


# Adopting


def updates(**columns: Any) -> pa.Table:
    return rows(**({"_time": pa.array([10]), "_diff": pa.array([1])} | columns))


BAD_FILES: dict[str, tuple[Callable[[Path], object], type[WindrowError], list[str]]] = {
    "missing": (lambda path: None, StorageError, ["is not a readable Parquet file"]),
    "not Parquet": (
        lambda path: path.write_text("user,score\nann,1\n"),
        StorageError,
        ["is not a readable Parquet file"],
    ),
    "empty": (lambda path: path.touch(), StorageError, ["is not a readable Parquet file"]),
    "a folder": (lambda path: path.mkdir(), StorageError, ["is not a readable Parquet file"]),
    "rows": (
        lambda path: pq.write_table(rows(), path),
        SchemaError,
        ["no _time and _diff", "Append its rows instead"],
    ),
    "no diff": (
        lambda path: pq.write_table(updates(_diff=...), path),
        SchemaError,
        ["no _time and _diff"],
    ),
    "wrong type": (
        lambda path: pq.write_table(updates(score=["one"]), path),
        SchemaError,
        ["'score' is string, the schema says int64"],
    ),
    "missing column": (
        lambda path: pq.write_table(updates(tags=...), path),
        SchemaError,
        ["'tags' (list<element: string>) is missing"],
    ),
    "unknown column": (
        lambda path: pq.write_table(updates(extra=[1]), path),
        SchemaError,
        ["'extra' (int64) is not in the schema"],
    ),
    "time outside": (
        lambda path: pq.write_table(updates(user=["eve"], _time=[20]), path),
        DataError,
        ["[10, 20)", "the first at 20", "'eve'"],
    ),
    "null time": (
        lambda path: pq.write_table(updates(_time=pa.nulls(1, INT)), path),
        DataError,
        ["null '_time'"],
    ),
    "no change": (
        lambda path: pq.write_table(updates(_diff=[0]), path),
        DataError,
        ["_diff of 0", "filter them out"],
    ),
    "nanoseconds": (
        lambda path: pq.write_table(updates(at=pa.array([1], pa.timestamp("ns", "UTC"))), path),
        DataError,
        ["column 'at'"],
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_not_adopted(shard: Shard, tmp_path: Path, case: str) -> None:
    write, error, words = BAD_FILES[case]
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    pq.write_table(updates(user=["carl"]), good)
    write(bad)
    for path in (bad, f"file://{bad}"):
        with refused(shard, error, str(bad), *words):
            shard.adopt([good, path], lower=10, upper=20)
    assert good.exists()
    assert shard.adopt([good], lower=10, upper=20)


# Reading


READS: dict[str, tuple[dict[str, Any], type[WindrowError], list[str]]] = {
    "limit": ({"limit": -1}, OptionError, ["limit is -1"]),
    "level": (
        {"consolidate": "fully"},
        OptionError,
        ["'fully'", "'none', 'best_effort', 'monotonic', 'full'"],
    ),
    "columns": (
        {"columns": ["user", "scor"]},
        SchemaError,
        ["no column 'scor'", "did you mean 'score'?"],
    ),
    "columns of windrow": ({"columns": ["_hash"]}, SchemaError, ["no column '_hash'"]),
    "where": (
        {"where": col("scores") > 1},
        SchemaError,
        ["row filter", "no column 'scores'", "'score'"],
    ),
    "where deep inside": (
        {"where": ~((col("score") > 1) | col("usr").is_null())},
        SchemaError,
        ["no column 'usr'"],
    ),
    "where with text": ({"where": "score > 1"}, OptionError, ["'score > 1' is not a row filter"]),
    "text for a number": (
        {"where": col("score") == "1"},
        SchemaError,
        ["'1' does not fit column 'score' (int64)"],
    ),
    "fraction for a number": (
        {"where": col("score") > 1.5},
        SchemaError,
        ["1.5", "'score' (int64)"],
    ),
    "too large a number": ({"where": col("score") < 2**70}, SchemaError, ["'score' (int64)"]),
    "number for text": ({"where": col("user") == 1}, SchemaError, ["'user' (string)"]),
    "one of many": ({"where": col("score").is_in([1, "b"])}, SchemaError, ["'b'", "'score'"]),
    "text for a timestamp": (
        {"where": col("at") >= "2024-01-01"},
        SchemaError,
        ["'at' (timestamp[us, tz=UTC])"],
    ),
    "decimal for a number": ({"where": col("score") == Decimal("1.5")}, SchemaError, ["'score'"]),
    "nested": ({"where": col("tags") == ["a"]}, SchemaError, ["'tags'", "is_null()"]),
    "keys of another name": ({"keys": {"usr": ["a"]}}, SchemaError, ["['usr']", "['user']"]),
    "too many keys": ({"keys": {"user": ["a"], "score": [1]}}, SchemaError, ["'score'", "'user'"]),
    "keys of another type": ({"keys": {"user": [1]}}, SchemaError, ["'user' (string)"]),
    "a table of keys of another name": (
        {"keys": pa.table({"usr": ["a"]})},
        SchemaError,
        ["'user' (string) is missing", "'usr'"],
    ),
    "a table of keys of another type": (
        {"keys": pa.table({"user": [1]})},
        SchemaError,
        ["'user' is int64, the schema says string"],
    ),
    "keys without names": ({"keys": ["ann"]}, OptionError, ["mapping from key column to values"]),
}


@pytest.mark.parametrize("case", READS)
def test_a_read_that_makes_no_sense_is_refused(shard: Shard, case: str) -> None:
    options, error, words = READS[case]
    with refused(shard, error, *words):
        shard.snapshot(9, **options)
    with refused(shard, error, *words):
        shard.changes(0, 10, **options)


def test_filters_that_cannot_mean_anything_are_refused() -> None:
    with pytest.raises(OptionError, match=r"is_null\(\)"):
        col("a") == None  # noqa: B015, E711
    with pytest.raises(OptionError, match="with a constant"):
        col("a") == col("b")  # noqa: B015
    with pytest.raises(OptionError, match=r"with &, \| and ~"):
        bool(col("a") == 1)
    with pytest.raises(OptionError, match="True is not a row filter"):
        (col("a") == 1) & True  # type: ignore[operator]


def test_keys_that_overflow_or_do_not_exist_are_refused(tmp_path: Path) -> None:
    numbers = Shard.create(tmp_path / "n", pa.schema([("k", INT)]), key=["k"])
    numbers.append(pa.table({"k": [1]}), lower=0, upper=1)
    with refused(numbers, SchemaError, "'k' (int64)"):
        numbers.snapshot(keys={"k": [2**70]})
    keyless = Shard.create(tmp_path / "k", pa.schema([("k", INT)]), order=by_columns("k"))
    keyless.append(pa.table({"k": [1]}), lower=0, upper=1)
    with refused(keyless, OptionError, "no key columns"):
        keyless.snapshot(keys={})


def test_reads_outside_the_frontiers_say_what_is_possible(shard: Shard) -> None:
    shard.advance_since(4)
    for as_of in (-1, 3, 10, 2**40):
        with refused(shard, TimeRangeError, f"a snapshot at {as_of}", "[4, 10)"):
            shard.snapshot(as_of)
    for lower, upper in ((3, 10), (4, 11), (8, 7), (11, None)):
        with refused(shard, TimeRangeError, f"[{lower}, {upper or 10})", "[4, 10)"):
            shard.changes(lower, upper)


def test_since_moves_forward_and_stays_below_upper(shard: Shard) -> None:
    shard.advance_since(4)
    for since in (3, 0, -1, 10, 11):
        with refused(shard, TimeRangeError, f"from 4 to {since}", "below upper (10)"):
            shard.advance_since(since)
    shard.advance_since(4)
    shard.advance_since(9)
    assert shard.since == 9


def test_options_of_maintenance_are_checked(shard: Shard) -> None:
    with refused(shard, OptionError, "fanout is 1"):
        shard.compact(fanout=1)
    with refused(shard, OptionError, "retention_hours is -1"):
        shard.vacuum(retention_hours=-1)
    with refused(shard, OptionError, "exchange is 0"):
        shard.append(rows(), lower=10, upper=20, exchange=0)


# Files that are not what the log says


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "deleted":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(b"garbage" * 1_000)
        case "cut off":
            path.write_bytes(data[: len(data) // 2])
        case "overwritten in the middle":
            path.write_bytes(data[:4] + b"\x5a" * 1_000 + data[1_004:])
        case "another file":
            pq.write_table(pa.table({"other": [1]}), path)


@pytest.mark.parametrize("order", [by_hash(), by_columns("user")], ids=str)
@pytest.mark.parametrize(
    "how",
    ["deleted", "empty", "garbage", "cut off", "overwritten in the middle", "another file"],
)
def test_a_part_that_cannot_be_read_is_named(tmp_path: Path, how: str, order: Order) -> None:
    shard = Shard.create(tmp_path / "s", SCHEMA, key=["user"], order=order)
    count = 5_000  # enough for the cache to take an interest
    for lower in (0, 1):
        users = [f"user {i}" for i in range(count)]
        shard.append(rows(user=users), lower=lower, upper=lower + 1)
    part = max(shard._log.parts(), key=lambda part: part.name.lower)
    spoil(tmp_path / "s" / part.path, how)
    names = shard._log.store.names()
    for read in (
        shard.snapshot(),
        shard.snapshot(consolidate="none"),
        shard.snapshot(consolidate="best_effort"),
        shard.snapshot(keys={"user": ["user 77"]}),
        shard.snapshot(keys={"user": ["user 77"]}, cache=None),
        shard.snapshot(columns=["score"], where=col("user") == "user 77"),
    ):
        with pytest.raises(StorageError, match=f"part {part.path}"):
            read.to_table()
    with pytest.raises(StorageError, match=f"part {part.path}"):
        shard.compact(everything=True)
    assert shard._log.store.names() == names
    assert shard.snapshot(0).to_table().num_rows == count  # other parts are well


def test_a_table_that_others_wrote_to_is_refused(shard: Shard) -> None:
    table = pa.table(DeltaTable(shard.uri).to_pyarrow_table())
    write_deltalake(shard.uri, table, mode="append")
    with pytest.raises(StorageError, match="is not the name of a part; was the table written"):
        shard.snapshot()


def test_a_broken_log_is_a_storage_error(shard: Shard) -> None:
    entries = sorted((Path(shard.uri) / "_delta_log").glob("*.json"))
    entries[-1].write_text("not a log entry")
    with pytest.raises(StorageError, match=re.escape(shard.uri)):
        Shard.open(shard.uri)


def test_errors_travel_between_processes() -> None:
    error = UpperMismatchError("another writer was first", upper=7)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.upper) == (str(error), 7)


# Spark


def test_a_dataframe_of_another_schema_is_refused_before_any_job(shard: Shard, spark: Any) -> None:
    context = spark.sparkContext
    good = spark.range(3).selectExpr(
        "cast(id as string) as user",
        "id as score",
        "timestamp_micros(id) as at",
        "array('a') as tags",
    )
    cases = {
        "'score' is string, the schema says int64": good.withColumn("score", good.user),
        "'tags' (list<element: string>) is missing": good.drop("tags"),
        "'more' (int64) is not in the schema": good.withColumn("more", good.score),
        "'_diff' is int32": good.selectExpr("*", "1 as _diff"),
        "column 'score': type duration[us]": good.selectExpr(
            "user", "interval '1' day as score", "at", "tags"
        ),
        "column 'score': type null": good.selectExpr("user", "null as score", "at", "tags"),
        "column 'score' occurs twice": good.selectExpr("*", "score"),
        "CalendarIntervalType": good.selectExpr("user", "make_interval(1) as score", "at", "tags"),
    }
    context.setJobGroup("refused", "appends that are refused")
    try:
        for words, frame in cases.items():
            with refused(shard, SchemaError, words):
                shard.append(frame, lower=10, upper=20)
        assert not context.statusTracker().getJobIdsForGroup("refused")
        # The group does see the jobs of an append.
        assert shard.append(good, lower=10, upper=20)
        assert len(context.statusTracker().getJobIdsForGroup("refused")) > 0
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_keys_in_a_dataframe_are_checked_before_any_job(shard: Shard, spark: Any) -> None:
    read = shard.snapshot()
    with refused(shard, SchemaError, "keys to look up", "'user' (string) is missing"):
        read.lookup(spark.range(3).selectExpr("cast(id as string) as usr"))
    with refused(shard, SchemaError, "'user' is int64, the schema says string"):
        read.lookup(spark.range(3).selectExpr("id as user"))
    with refused(shard, OptionError, "neither keys= nor limit="):
        shard.snapshot(limit=3).lookup(spark.range(3).selectExpr("cast(id as string) as user"))


@pytest.mark.parametrize("exchange", [None, 3])
def test_a_bad_row_in_a_task_arrives_as_it_is(
    shard: Shard, spark: Any, exchange: int | None
) -> None:
    def frame(time: str = "10", diff: str = "1", at: str = "null") -> Any:
        rows = spark.range(0, 4_000, 1, 4).selectExpr("cast(id as string) as user", "id as score")
        return rows.selectExpr(
            "*",
            f"cast({at} as timestamp) as at",
            "cast(null as array<string>) as tags",
            f"cast({time} as bigint) as _time",
            f"cast({diff} as bigint) as _diff",
        )

    # The other tasks succeed, and what they wrote goes again.
    outside = frame(time="if(score = 3777, 20, 10)")
    with refused(shard, DataError, "[10, 20)", "the first at 20", "'user': '3777'"):
        shard.append(outside, lower=10, upper=20, exchange=exchange)
    with refused(shard, DataError, "null '_time'"):
        shard.append(frame(time="if(score < 10, null, 10)"), lower=10, upper=20, exchange=exchange)
    huge = frame(diff="4611686018427387904").selectExpr(
        "'a' as user", "7L as score", "* except (user, score)"
    )
    with refused(shard, DataError, "exceeds 64 bits"):
        shard.append(huge, lower=10, upper=20, exchange=exchange)
    assert shard.append(frame(), lower=10, upper=20, exchange=exchange)


def test_variants_are_refused(tmp_path: Path) -> None:
    # They would pass for a struct with the variant's own fields, and never be variants again.
    from pyspark.sql.types import ArrayType, StructField, StructType, VariantType

    schema = StructType([StructField("v", ArrayType(VariantType()))])
    with pytest.raises(SchemaError, match="column 'v': type variant"):
        Shard.create(tmp_path / "s", schema, order=by_columns("v"))


NOT_A_TIME: list[tuple[str, Callable[[Shard, Any], Any]]] = [
    ("lower", lambda shard, it: shard.append(rows(user=["x"]), lower=it, upper=20)),
    ("upper", lambda shard, it: shard.append(rows(user=["x"]), lower=10, upper=it)),
    ("at", lambda shard, it: shard.append(rows(user=["x"]), lower=10, upper=20, at=it)),
    ("as_of", lambda shard, it: shard.snapshot(it)),
    ("lower", lambda shard, it: shard.changes(it)),
    ("upper", lambda shard, it: shard.changes(0, it)),
    ("since", lambda shard, it: shard.advance_since(it)),
    ("as_of", lambda shard, it: shard.hold(it).__enter__()),
]


@pytest.mark.parametrize("value", ["10", 10.0, AT])
@pytest.mark.parametrize("number", range(len(NOT_A_TIME)))
def test_a_time_is_a_whole_number(shard: Shard, number: int, value: Any) -> None:
    name, action = NOT_A_TIME[number]
    with refused(shard, OptionError, f"{name} is {value!r}", "whole numbers"):
        action(shard, value)
