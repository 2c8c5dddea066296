"""Records against plain loops: rows in any batches and order, sealed at any time, asked later."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entity_replay import alive, histories
from feature_cases import COLUMNS, PAIRS, WINDOWS, aggregation, cases, k_of, overflows, times
from feature_oracle import feature, same
from windrow import EventSource, GroupBy, agg
from windrow.algebra.aggregation import Aggregation
from windrow.errors import DataError
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.online import folding
from windrow.online.evaluate import Evaluator
from windrow.online.folding import Batch, Folding
from windrow.online.keys import key_bytes
from windrow.online.records import Found
from windrow.online.served import FORMAT, ServedGroup
from windrow.rows.types import canonical_schema
from windrow.sources.columns import KNOWN_AT
from windrow.updates import DIFF

SOURCE = EventSource("s", table="t", time="time")
Records = dict[bytes, bytes]


def served_of(
    aggregations: list[Aggregation], column: str, accuracy: str, keys: list[str], changing: bool
) -> ServedGroup:
    group = GroupBy("g", SOURCE, keys, aggregations, accuracy=accuracy)
    types = canonical_schema(pa.schema([(column, COLUMNS[column][0]), ("bucket", pa.string())]))
    layout = Layout(
        (pa.int64(), pa.float64())[: len(keys)],
        (column, "bucket"),
        tuple(types.types),
        (),
        changing,
    )
    served = ServedGroup(group, layout)
    again = ServedGroup.from_json(served.to_json())
    assert again.digest == served.digest
    return again


def rows_table(served: ServedGroup, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in the columns of the arrangement; `known` and `diff` are theirs."""
    layout = served.layout
    columns = {
        name: pa.array([row[key] for row in rows], type_)
        for name, key, type_ in zip(layout.keys, served.group.keys, layout.key_types, strict=True)
    }
    columns[EVENT_TIME] = pa.array([row["time"] for row in rows], pa.int64())
    for name, source, type_ in zip(layout.values, layout.inputs, layout.input_types, strict=True):
        columns[name] = pa.array([row[source] for row in rows], type_)
    if layout.changing:
        columns[KNOWN_AT] = pa.array([row["known"] for row in rows], pa.int64())
    columns[DIFF] = pa.array([row.get("diff", 1) for row in rows], pa.int64())
    return pa.table(columns)


def apply(served: ServedGroup, records: Records, rows: list[dict[str, Any]], **how: Any) -> None:
    """Fold rows into records, as a store does."""
    batch = Batch.of(served, rows_table(served, rows))
    if not batch.keys.num_rows:
        return
    keys = key_bytes(1, batch.keys)
    made = Folding(served, batch, positions=(0,), now=lambda: 2**60, **how)(
        [records.get(key) for key in keys]
    )
    for key, record in zip(keys, made, strict=True):
        if record is None:
            records.pop(key, None)
        else:
            records[key] = record


def interrupted(
    data: st.DataObject,
    served: ServedGroup,
    records: Records,
    rows: list[dict[str, Any]],
    sealed: int,
    upper: int,
) -> None:
    """Fold a span into records, perhaps twice: first for some of the keys, then for all."""
    some = data.draw(st.sampled_from([None, 1, 2]))
    first = [row for row in rows if row["k"] == some]
    for part in ([first] if some else []) + [rows]:
        apply(served, records, part, sealed=sealed, upper=upper + 1)


def asked(
    served: ServedGroup, records: Records, keys: list[dict[str, Any]], at: int
) -> tuple[int, list[list[Any]]]:
    """The features of keys, by key; without a NULL in any key."""
    names = served.group.keys
    table = pa.table(
        {
            f"k{i}": pa.array([key[name] for key in keys], type_)
            for i, (name, type_) in enumerate(zip(names, served.layout.key_types, strict=True))
        }
    )
    found = Found.of(served, [records.get(key) for key in key_bytes(1, table)])
    sealed = found.heads(-(2**62), (0,)).sealed
    at = max(at, int(sealed.max()))
    evaluator = Evaluator(served)
    columns = evaluator.features(found, [at] * len(keys))
    assert_times_do_not_mix(evaluator, found, [at + n % 3 * 3_700_001 for n in range(len(keys))])
    values = [[as_pairs(value) for value in c.values] for c in columns]
    return at, [list(row) for row in zip(*values, strict=True)]


def assert_times_do_not_mix(evaluator: Evaluator, found: Found, times: list[int]) -> None:
    """Keys that are asked for together, each at a time of its own, are as if all were at it."""
    mixed = evaluator.features(found, times)
    for time in set(times):
        for one, other in zip(mixed, evaluator.features(found, [time] * len(times)), strict=True):
            for number in [n for n, own in enumerate(times) if own == time]:
                assert repr(one.values[number]) == repr(other.values[number])


def as_pairs(value: Any) -> Any:
    """Maps as the oracle compares them."""
    if isinstance(value, dict):
        return [(key, as_pairs(item)) for key, item in value.items()]
    return value


@st.composite
def windowed(draw: st.DrawFn, name: str, column: str) -> list[Aggregation]:
    """One aggregate over a few windows, perhaps by bucket; sometimes a count beside it."""
    one = aggregation(name, column)
    if draw(st.booleans()):
        one = one.by("bucket")
    several = draw(st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=3, unique_by=str))
    for lengths, options in several:
        if lengths is not None:
            one = one.over(*lengths, **options)
    found = [one.named("x")]
    names = {f.name for f in found[0].features()}
    if len(names) < len(list(found[0].features())):  # one length of two kinds: two names
        lengths, options = several[0]
        found = [aggregation(name, column).named("x")]
        if lengths is not None:
            found = [found[0].over(*lengths, **options)]
    if draw(st.booleans()):
        found.append(agg.count("bucket").over("2d").named("y"))
    return found


def expected(
    served: ServedGroup, rows: list[dict[str, Any]], key: dict[str, Any], at: int
) -> list[Any]:
    found = []
    for one in served.features:
        a, window = one.aggregation, one.window
        found.append(
            feature(
                rows,
                key,
                at,
                name=a.function.name,
                column=a.column,
                window=(window.kind.value, window.length, window.hop),
                k=k_of(a),
                bucket=a.bucket,
                accuracy=served.group.accuracy,
                is_map=a.column == "map",
            )
        )
    return found


@pytest.mark.parametrize(("name", "column"), PAIRS)
@settings(max_examples=10)
@given(data=st.data())
def test_records_of_events_equal_the_plain_loops(
    name: str, column: str, data: st.DataObject
) -> None:
    events, queries = data.draw(cases(column))
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    served = served_of(data.draw(windowed(name, column)), column, accuracy, ["k", "o"], False)
    sealed = data.draw(times())
    order = data.draw(st.permutations(range(len(events))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    records: Records = {}
    few = data.draw(st.booleans())
    with (
        mock.patch.object(folding, "EXACT", 3 if few else 128),
        mock.patch.object(folding, "KEPT", 1 if few else 64),
    ):
        for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            rows = [events[n] for n in order[start:end]]
            interrupted(data, served, records, rows, sealed, end)
    for query in queries:
        if query["time"] is None or query["k"] is None:
            continue
        key = {"k": query["k"], "o": query["o"]}
        try:
            at, (got,) = asked(served, records, [key], max(query["time"], sealed))
        except DataError:
            at = max(query["time"], sealed)
            assert overflows([v for v in expected(served, events, key, at) if v is not None])
            continue
        for one, a, b in zip(served.features, got, expected(served, events, key, at), strict=True):
            assert same(a, b), f"{one.name} at {at}: {a!r} is not {b!r}"


CHANGING = [pair for number, pair in enumerate(PAIRS) if number % 3 == 0]


@pytest.mark.parametrize(("name", "column"), CHANGING)
@settings(max_examples=10)
@given(data=st.data())
def test_records_of_rows_that_change_equal_a_replay(
    name: str, column: str, data: st.DataObject
) -> None:
    history = data.draw(histories(column))
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    served = served_of(data.draw(windowed(name, column)), column, accuracy, ["k"], True)
    sealed = data.draw(times())
    rows = [{**row, "known": time, "diff": diff} for time, row, diff in history]
    records: Records = {}
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        interrupted(data, served, records, rows[start:end], sealed, end)
    for key in (1, 2, 3):
        at = max(data.draw(times()), sealed)
        effective = at - at % 86_400_000 if accuracy == "snapshot" else at
        there = alive(history, effective)
        try:
            at, (got,) = asked(served, records, [{"k": key}], at)
        except DataError:
            assert overflows([v for v in expected(served, there, {"k": key}, at) if v is not None])
            continue
        for one, a, b in zip(
            served.features, got, expected(served, there, {"k": key}, at), strict=True
        ):
            assert same(a, b), f"{one.name} at {at}: {a!r} is not {b!r}"


def test_many_keys_at_once_are_each_their_own() -> None:
    served = served_of([agg.sum("small").over("1h", "2d"), agg.last_k("small", 3)], "small",
                       "temporal", ["k"], False)  # fmt: skip
    rng = random.Random(7)
    rows = [
        {
            "k": rng.randrange(50),
            "time": rng.randrange(10**8),
            "small": rng.randrange(9),
            "bucket": None,
        }
        for n in range(2_000)
    ]
    records: Records = {}
    for start in range(0, 2_000, 300):
        apply(served, records, rows[start : start + 300], sealed=10**7, upper=start + 301)
    keys = [{"k": k} for k in range(60)]
    at, found = asked(served, records, keys, 10**8)
    for key, got in zip(keys, found, strict=True):
        assert got == expected(served, rows, key, at)


def test_a_flipped_bit_is_noticed() -> None:
    served = served_of([agg.sum("small").over("1h")], "small", "temporal", ["k"], False)
    row = {"k": 1, "time": 5, "small": 7, "bucket": None}
    records: Records = {}
    apply(served, records, [row], sealed=0, upper=1)
    (key,) = records
    raw = bytearray(records[key])
    for at in range(len(raw)):
        damaged = bytes(raw[:at]) + bytes([raw[at] ^ 4]) + bytes(raw[at + 1 :])
        with pytest.raises(DataError, match="record"):
            Found.of(served, [damaged])
        with pytest.raises(DataError, match="record"):
            Found.of(served, [bytes(raw), None, damaged])


def test_a_record_that_is_cut_short_or_of_another_format_is_noticed() -> None:
    served = served_of([agg.sum("small").over("1h")], "small", "temporal", ["k"], False)
    records: Records = {}
    apply(served, records, [{"k": 1, "time": 5, "small": 7, "bucket": None}], sealed=0, upper=1)
    (raw,) = records.values()
    for size in range(len(raw)):
        for several in ([raw[:size]], [raw, raw[:size]]):
            with pytest.raises(DataError, match="the record is damaged"):
                Found.of(served, several)
    for version, words in ((FORMAT - 1, "an earlier release"), (FORMAT + 1, "a later release")):
        with pytest.raises(DataError, match=words):
            Found.of(served, [raw[:1] + bytes([version]) + raw[2:]])
    assert Found.of(served, []).at.size == 0
    assert Found.of(served, [None, raw, raw]).at.tolist() == [-1, 0, len(raw) // 8]


def test_a_record_of_another_definition_is_not_read() -> None:
    one = served_of([agg.sum("small").over("1h")], "small", "temporal", ["k"], False)
    other = served_of([agg.sum("small").over("2h")], "small", "temporal", ["k"], False)
    records: Records = {}
    row = {"k": 1, "time": 5, "small": 7, "bucket": None}
    apply(one, records, [row], sealed=0, upper=1)
    assert asked(one, records, [{"k": 1}], 10)[1] == [[7]]
    assert asked(other, records, [{"k": 1}], 10)[1] == [[None]]
    assert np.array_equal(Found.of(other, list(records.values())).at, [-1])
