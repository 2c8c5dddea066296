"""Records of views against plain rows: any values, changes in any batches, applied twice."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from windrow.errors import DataError, DefinitionError, RequestError, SchemaError
from windrow.online.evaluate import python_values
from windrow.online.fetch import Fetcher
from windrow.online.fetched import Status
from windrow.online.generations import GROUPS, Generation, change_note, new_generation
from windrow.online.keys import KeyReader
from windrow.online.publish import _can_follow, served_view, views_in, withdraw
from windrow.online.records import Found
from windrow.online.row_codec import RowDecoder, encode_rows
from windrow.online.served_view import ServedView
from windrow.online.stores.opening import open_store
from windrow.online.view_records import Adding, RowReader, Sums, encode_records
from windrow.views.relations.names import Relation

UTC = dt.UTC
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, 127, 0]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 1]),
    "float": (pa.float32(), [0.5, -math.inf, math.nan]),
    "double": (pa.float64(), [0.1, math.nan, 1e300]),
    "bool": (pa.bool_(), [True, False, True]),
    "text": (pa.string(), ["", "ü" * 40, "a\0b"]),
    "raw": (pa.binary(), [b"", b"\0\xff", b"x"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2024, 5, 1, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(1900, 1, 1), dt.datetime(2024, 5, 1, 10)]),
    "money": (pa.decimal128(38, 2), [Decimal("-" + "9" * 36 + ".99"), Decimal("0.10")]),
    "list": (pa.list_(pa.field("element", pa.int32())), [[], [1, None, 3], [2]]),
    "lists": (
        pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string())))),
        [[["a", None], None, []], []],
    ),
    "map": (pa.map_(pa.string(), pa.float64()), [[("b", 1.0), ("a", None)], []]),
    "struct": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.field("element", pa.date32())))]),
        [{"x": 1, "y": [dt.date(2024, 1, 1)]}, {"x": None, "y": None}],
    ),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other) and type(one) is type(other)


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back_as_arrow_gives_them(name: str) -> None:
    type_, values = COLUMNS[name]
    given = pa.array([None, *values, None, values[0]], type_)
    rows = encode_rows([given, given.slice(0)], len(given))
    decode = RowDecoder([type_, type_])
    for raw, value in zip(rows.to_pylist(), python_values(given), strict=True):
        for found in decode(raw):
            assert same(found, value), (found, value)
    # Whatever is beneath a NULL, and whatever array a row is in: its bytes are the same.
    again = encode_rows([given.slice(1, 2), given.slice(1, 2)], 2)
    assert again.to_pylist() == rows.to_pylist()[1:3]
    with pytest.raises(DataError, match="damaged"):
        decode(rows.to_pylist()[1] + b"\0")
    with pytest.raises(DataError, match="damaged"):
        decode(rows.to_pylist()[1][:-1])


def test_equal_rows_have_equal_bytes() -> None:
    zeros = encode_rows([pa.array([0.0, -0.0])], 2).to_pylist()
    assert zeros[0] == zeros[1]
    type_ = pa.map_(pa.string(), pa.int32())
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], type_)
    assert len(set(encode_rows([maps], 2).to_pylist())) == 1
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 2])], names=["x"], mask=pa.array([True, True])
    )
    assert len(set(encode_rows([hidden], 2).to_pylist())) == 1
    assert encode_rows([pa.array(["a"]), pa.array(["b"])], 1) != encode_rows(
        [pa.array(["ab"]), pa.array([""])], 1
    )


VIEW = ServedView(
    "v",
    "view",
    "c1",
    ("k", "part"),
    (pa.int64(), pa.string()),
    ("n", "tags"),
    (pa.int32(), pa.list_(pa.field("element", pa.string()))),
)
Row = tuple[int | None, str | None, int, tuple[str, ...]]


def sums_of(changes: list[tuple[Row, int]]) -> Sums:
    rows = [row for row, _ in changes]
    table = pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.int32()),
            "part": pa.array([row[1] for row in rows]),
            "n": pa.array([row[2] for row in rows], pa.int32()),
            "tags": pa.array([list(row[3]) for row in rows], VIEW.types[1]),
        }
    )
    return Sums.of(VIEW, 7, table, np.array([diff for _, diff in changes], np.int64))


def test_changes_add_up_to_the_rows_that_are_left() -> None:
    random_ = random.Random(3)
    records: dict[bytes, bytes] = {}
    rows: Counter[Row] = Counter()
    reader = KeyReader("v", list(zip(VIEW.keys, VIEW.key_types, strict=True)))
    several = 0
    for position in range(1, 60):
        changes: list[tuple[Row, int]] = []
        for _ in range(random_.randrange(12)):
            there = [row for row, count in rows.items() if count]
            if there and random_.random() < 0.5:
                row, diff = random_.choice(there), -1
            else:
                key = random_.choice([0, 1, 2, 3, None])
                tags = tuple("abc"[: random_.randrange(4)])
                row = (key, random_.choice(["x", "", None]), random_.randrange(3), tags)
                diff = random_.choice([1, 1, 2])
            rows[row] += diff
            changes.append((row, diff))
        sums = sums_of(changes)
        for _ in range(random_.choice([1, 2])):  # a span that is applied again changes nothing
            keys = sums.keys.to_pylist()
            adding = Adding(VIEW, sums, position, position + 1)
            made = adding([records.get(key) for key in keys])
            records |= dict(zip(keys, made, strict=True))
        for key in (0, 1, 2, 3, 9):
            for part in ("x", ""):
                name = reader.read(7, {"k": key, "part": part})
                found = Found.of(VIEW, [records.get(name)])
                expected = [r for r in rows.elements() if r[:2] == (key, part)]
                if len(expected) > 1:
                    several += 1
                    with pytest.raises(RequestError, match=f"there are {len(expected)} rows for k"):
                        RowReader(VIEW).features(found, [0])
                    continue
                (n, tags_) = RowReader(VIEW).features(found, [0])
                assert n.values == [expected[0][2] if expected else None]
                assert tags_.values == [list(expected[0][3]) if expected else None]
                assert (n.empty == [True]) is (not expected)
    assert several > 20
    with pytest.raises(DataError, match="does not fit"):
        Adding(VIEW, sums_of([((77, "x", 1, ()), -1)]), 60, 61)([None])


def test_many_rows_of_a_key_take_no_more_room_than_one() -> None:
    rows: list[tuple[Row, int]] = [((1, "x", n, ("a" * 20,)), 1) for n in range(5000)]
    sums = sums_of(rows)
    (record,) = encode_records(VIEW, sums.rows, sums.counts, 5)
    assert len(record) < 120
    (left,) = Adding(VIEW, sums_of([(row, -1) for row, _ in rows[1:]]), 5, 6)([record])
    values = RowReader(VIEW).features(Found.of(VIEW, [left]), [0])
    assert [column.values for column in values] == [[0], [["a" * 20]]]


def test_a_view_is_fetched_by_its_keys_and_withdrawn(tmp_path: Path) -> None:
    store = open_store(tmp_path / "records")
    sums = sums_of([((1, "x", 5, ("a",)), 1), ((2, "x", 6, ()), 2)])
    number = new_generation(store)
    assert number != 7
    fixed = pa.array([key.replace((7).to_bytes(8), number.to_bytes(8)) for key in _keys(sums)])
    made = encode_records(VIEW, sums.rows, sums.counts, 41)
    store.load(list(zip(fixed.to_pylist(), made, strict=True)))
    generation = Generation(number, VIEW, 0, (41,), (40,), loaded=True)
    change_note(store, "v", lambda note: note.stages(generation).promoted())
    fetcher = Fetcher(store, now=lambda: 30)  # a clock that is behind does not matter
    assert fetcher.names() == views_in(store) == ["v"]
    found = fetcher.fetch("v", [{"k": 1, "part": "x"}, {"k": 3, "part": "x"}])
    assert found.rows() == [{"n": 5, "tags": ["a"]}, {"n": None, "tags": None}]
    assert found.statuses[0] == [Status.PRESENT, Status.EMPTY]
    assert found.fresh_at == [40, 40]
    assert fetcher.fetch("v", [{"k": 1, "part": "x"}], features=["tags"]).columns == [[["a"]]]
    with pytest.raises(RequestError, match=r"there are 2 rows for keys\[1\]; serve the view by"):
        fetcher.fetch("v", [{"k": 1, "part": "x"}, {"k": 2, "part": "x"}])
    with pytest.raises(RequestError, match="as of the last tick"):
        fetcher.fetch("v", [{"k": 1, "part": "x"}], at=30)
    with pytest.raises(RequestError, match="the key 'part' is missing"):
        fetcher.fetch("v", [{"k": 1}])
    described = fetcher.describe("v")
    assert described.keys == (("k", pa.int64()), ("part", pa.string()))
    withdraw(store, "v")
    assert store.notes(GROUPS) == []
    assert store.size().records == 0


def test_records_are_written_anew_where_they_cannot_be_followed() -> None:
    def can_follow(generation: Generation, view: ServedView = VIEW, since: int = 0) -> bool:
        collection = mock.Mock(since=since)
        return _can_follow(generation, view, collection)

    current = Generation(1, VIEW, 0, (41,), (40,), loaded=True, kept=150_000)
    assert can_follow(current)
    assert not can_follow(current, since=41)  # what came before is forgotten
    assert not can_follow(current, replace(VIEW, collection="c2"))  # rebuilt
    assert can_follow(replace(current, empty=75_000))
    assert not can_follow(replace(current, empty=75_001))  # most keys have no rows any more
    assert can_follow(replace(current, kept=10, empty=9))
    assert Generation.from_json(current.to_json()) == current


def _keys(sums: Sums) -> list[bytes]:
    found: list[bytes] = sums.keys.to_pylist()
    return found


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ("nothing", SchemaError, "nothing"),
        ("id, ID", DefinitionError, "names 'ID' twice"),
        ("id,", DefinitionError, "with commas between them"),
        ("id, tags, took, name", DefinitionError, "nothing to fetch"),
        ("tags", DefinitionError, "cannot be a key online"),
        ("id", DefinitionError, "'took' is interval day to second"),
    ],
)
def test_what_cannot_be_served_is_refused(keys: str, error: type[Exception], words: str) -> None:
    from pyspark.sql import types as T  # noqa: N812

    schema = T.StructType(
        [
            T.StructField("id", T.IntegerType()),
            T.StructField("tags", T.ArrayType(T.StringType())),
            T.StructField("took", T.DayTimeIntervalType()),
            T.StructField("name", T.StringType("UNICODE_CI")),
        ]
    )
    definition = {"kind": "view", "collection": "c", "schema": schema.json()}
    with pytest.raises(error, match=words):
        served_view(Relation("v", {**definition, "properties": {"Online": keys}}))
    kept = T.StructType([schema["id"], schema["name"]])
    definition |= {"schema": kept.json()}
    found = served_view(Relation("v", {**definition, "properties": {"online": "ID"}}))
    assert (found.keys, found.names, found.types) == (("id",), ("name",), (pa.string(),))
    with pytest.raises(DefinitionError, match=r"'name' is string collate.*a key online"):
        served_view(Relation("v", {**definition, "properties": {"online": "name"}}))
