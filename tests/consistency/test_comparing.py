"""Comparisons: counts equal those of a naive one, whatever the values, statuses and hours."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_comparison import outcome, same

import windrow as wr
from windrow import agg
from windrow.consistency.choosing import _in_turns, choose_examples
from windrow.consistency.compare import EXAMPLES, CompareJob, comparison_schema
from windrow.consistency.equality import OUTCOMES, Rule, common_type, compare
from windrow.consistency.replay import ROW, ComparedFeature, Replay, Sides
from windrow.consistency.report import Counted, FeatureReport, verdict_of
from windrow.consistency.sketches import Sketch, companion, sketch_of
from windrow.consistency.tally import Hours, Tally
from windrow.errors import SchemaError
from windrow.features.inputs.queries import QUERY_TIME
from windrow.features.run.results import commit_result
from windrow.features.strategies.shares import RowShares
from windrow.features.strategies.slices import write_file
from windrow.rows.types import canonical_schema
from windrow.sources.columns import Form, Taken
from windrow.sources.files import FileRows, ParquetFiles, Span
from windrow.storage.store import Store

HOUR = 3_600_000
START = 1_714_521_600_000

FLOATS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.0, 1.0 + 1e-12, 1.0 + 1e-8, math.nan, math.inf, -math.inf, 1e308]
    ),
    st.floats(width=64),
)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], bool]] = {
    "amount": (pa.float64(), FLOATS, False),
    "seen": (pa.int64(), st.integers(0, 2), True),
    "total": (pa.int64(), st.integers(0, 2), False),
    "name": (pa.string(), st.sampled_from(["", "a", "b"]), False),
    "recent": (pa.list_(pa.float64()), st.lists(st.one_of(st.none(), FLOATS), max_size=2), False),
    "by_kind": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(
            st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 1)), max_size=2
        ),
        False,
    ),
}


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of a replay's result: a time, a key, statuses, and both values of every feature."""
    rows = []
    for number in range(draw(st.integers(1, 12))):
        row: dict[str, Any] = {
            "at": START + HOUR * draw(st.integers(-1, 2)) + draw(st.integers(0, 3)),
            "key": draw(st.integers(0, 2)),
            "letters": draw(st.text("ppes-f", min_size=len(TYPES), max_size=len(TYPES))),
            "number": number,
        }
        for name, (_, values, _) in TYPES.items():
            online = draw(st.one_of(st.none(), values))
            row[name] = (online, draw(st.one_of(st.just(online), st.none(), values)))
        rows.append(row)
    return rows


def sides() -> Sides:
    features = tuple(
        ComparedFeature(name, "group", f"_log_online_{i}", f"g_{name}", Rule(counts), None, i - 6)
        for i, (name, (_, _, counts)) in enumerate(TYPES.items())
    )
    return Sides(features, ("key",), (), True, "v1")


def compared(folder: Path, rows: list[dict[str, Any]]) -> tuple[CompareJob, Replay, Tally]:
    """The job over these rows, in two files of a log; its comparisons are a table, too."""
    moments = pa.timestamp("us", tz="UTC")
    columns: dict[str, pa.Array] = {
        "_log_at": pa.array([row["at"] * 1000 for row in rows], pa.int64()).cast(moments),
        "key": pa.array([row["key"] for row in rows], pa.int64()),
        "_log_statuses": pa.array([row["letters"] for row in rows]),
    }
    computed: dict[str, pa.Array] = {ROW: pa.array(range(len(rows)), pa.int64())}
    for i, (name, (type_, _, _)) in enumerate(TYPES.items()):
        columns[f"_log_online_{i}"] = pa.array([row[name][0] for row in rows], type_)
        computed[f"g_{name}"] = pa.array([row[name][1] for row in rows], type_)
    table, half = pa.table(columns), len(rows) // 2
    uris = []
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        if part.num_rows:
            uris.append(str(folder / f"{number}.parquet"))
            pq.write_table(part, uris[-1])
    files = ParquetFiles.read(uris, None)
    # What was computed comes in another order, and in two files.
    shares = RowShares(ROW, tuple(files.starts.values()))
    source = Store.at(folder / "replayed")
    backwards = pa.table(computed).take(pa.array(range(len(rows))[::-1], pa.int64()))
    parts = [
        write_file(source, part, "replayed", shares).path
        for part in (backwards.slice(0, half + 1), backwards.slice(half + 1))
        if part.num_rows
    ]
    replay = Replay(
        wr.Join.__new__(wr.Join), sides(), (), canonical_schema(pa.schema(table.schema))
    )
    taken = [Taken(f.name, f.name, f.type) for f in replay.types]
    taken.append(Taken(QUERY_TIME, "_log_at", pa.int64(), Form.MILLIS))
    spans = tuple((Span(uri, 0, 1),) for uri in uris)
    log = FileRows(spans, tuple(taken), (), numbered=(ROW, files.starts))
    target, work = Store.at(folder / "comparisons"), Store.at(folder / "work")
    schema = comparison_schema([replay], [pa.table(computed).schema])
    job = CompareJob(sides(), log, shares, source, tuple(parts), target, work, "run", schema)
    written = [job.write(number) for number in range(log.tasks)]
    commit_result(target, schema, [part for one in written for part in one.parts])
    tally = Tally()
    for name in work.names():
        if name.startswith("tally-"):
            tally.merge(Tally.from_bytes(work.get(name) or b""))
    return job, replay, tally


def plain(value: Any, like: Any) -> Any:
    """A map as Python has it, and not as Arrow gives it."""
    return dict(value) if isinstance(like, dict) and value is not None else value


@settings(max_examples=100)
@given(rows=histories())
def test_counts_equal_those_of_a_naive_comparison(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("compared")
    job, replay, tally = compared(folder, rows)
    expected: Counter[tuple[str, int, str]] = Counter()
    bad = 0
    for row in rows:
        for letter, (name, (_, _, counts)) in zip(row["letters"], TYPES.items(), strict=True):
            found = outcome(*row[name], letter, counts=counts)
            if found is not None:
                expected[name, row["at"] // HOUR * HOUR, found] += 1
                bad += found not in ("equal", "both_empty")
    counted = Counter(
        {
            (name, hour, label): int(count)
            for name, one in tally.features.items()
            for hour, found in one.hours.items()
            for label, count in zip(OUTCOMES, found, strict=True)
            if count
        }
    )
    assert counted == expected
    stored = pa.table(DeltaTable(job.target.uri).to_pyarrow_table())
    again = Counter(
        (name, int(row["_log_at"].timestamp() * 1000) // HOUR * HOUR, row[name]["outcome"])
        for row in stored.to_pylist()
        for name in TYPES
        if row[name]["outcome"] is not None
    )
    assert again == expected
    for row, found in zip(rows, stored.to_pylist(), strict=True):  # in the order of the log
        for name in TYPES:
            online, computed = row[name]
            pair = found[name]
            assert same(plain(pair["online"], online), online)
            assert same(plain(pair["offline"], computed), computed)
    tables = [
        pa.ipc.open_stream(job.work.get(name) or b"").read_all()
        for name in job.work.names()
        if name.startswith("examples-")
    ]
    chosen = choose_examples(tables, 1000, ["key"], [replay])
    assert (len(chosen) > 0) == (bad > 0)
    assert all(one.example.outcome not in ("equal", "both_empty") for one in chosen)
    # However few are shown, each feature that is wrong has its turn before another's second.
    wrong = {one.example.feature for one in chosen}
    few = choose_examples(tables, len(wrong), ["key"], [replay])
    assert {one.example.feature for one in few} == wrong


EXAMPLE = st.fixed_dictionaries(
    {
        "__feature": st.sampled_from(["amount", "seen", "äther"]),
        "__row": st.integers(0, 3),
        "__severity": st.sampled_from([0.0, 0.5, 1.0, math.inf]),
        "__at": st.integers(-3, 3).map(lambda n: n * HOUR // 2),
        "__key": st.integers(0, 2),
    }
)


@given(st.lists(EXAMPLE, max_size=30))
def test_features_take_turns(rows: list[dict[str, Any]]) -> None:
    """Of a feature and hour the worst is first; then other hours, then keys that it has not had."""
    worst = sorted(range(len(rows)), key=lambda n: (-rows[n]["__severity"], *_when(rows[n]), n))
    own: dict[str, list[tuple[bool, int, int, int]]] = {}
    for place in worst:
        row, hour = rows[place], rows[place]["__at"] // HOUR
        before = [n for n in worst[: worst.index(place)] if _same_hour(rows[n], row)]
        again = any(rows[n]["__key"] == row["__key"] for n in before)
        own.setdefault(row["__feature"], []).append((again, len(before), hour, place))
    turns = [
        (rank, feature, place)
        for feature, several in own.items()
        for rank, (*_, place) in enumerate(sorted(several))
    ]
    found = _in_turns(pa.Table.from_pylist(rows, EXAMPLES)).tolist()
    assert found == [place for *_, place in sorted(turns)]


def _when(row: dict[str, Any]) -> tuple[int, int]:
    return row["__at"], row["__row"]


def _same_hour(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["__feature"] == other["__feature"] and one["__at"] // HOUR == other["__at"] // HOUR


@pytest.mark.parametrize(
    ("type_", "a", "b", "agree"),
    [
        (pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.50"), True),
        (pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.51"), False),
        (pa.date32(), dt.date(2024, 5, 1), dt.date(2024, 5, 2), False),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 1), True),
        (pa.binary(), b"\x00", b"\x00", True),
        (pa.bool_(), True, False, False),
        (pa.float32(), 0.1, 0.1, True),
        (pa.int64(), 2**63 - 1, 2**63 - 2, False),  # no float knows the difference
        (pa.struct([("x", pa.float64())]), {"x": math.nan}, {"x": math.nan}, True),
        (pa.map_(pa.string(), pa.list_(pa.float64())), {"a": [1.0]}, {"a": [1.0 + 1e-12]}, True),
        (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": 2}, [("b", 2), ("a", 1)], True),
        (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": 2}, {"a": 1}, False),
    ],
)
def test_values_of_every_type(type_: pa.DataType, a: Any, b: Any, agree: bool) -> None:
    found = compare(pa.array([a], type_), pa.array([b], type_), Rule())
    assert OUTCOMES[found.outcomes[0]] == ("equal" if agree else "different")
    assert (found.errors[0] <= 1e-9) == agree or not agree
    assert 0 <= found.errors[0] <= 2


@pytest.mark.parametrize(
    ("served", "wanted", "common"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(38, 2), pa.decimal128(38, 2)),
        (pa.decimal128(10, 2), pa.float64(), pa.float64()),
        (pa.null(), pa.string(), pa.string()),
        (pa.large_string(), pa.string(), pa.string()),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
    ],
)
def test_types_of_other_systems(
    served: pa.DataType, wanted: pa.DataType, common: pa.DataType
) -> None:
    assert common_type(served, wanted) == common


def test_types_that_can_never_be_equal_are_refused() -> None:
    with pytest.raises(SchemaError, match="cannot be compared"):
        common_type(pa.string(), pa.int64())


def judged(sketch: Sketch | None, a: Any, b: Any, type_: pa.DataType, beside: Any = None) -> bool:
    assert sketch is not None
    known = None if beside is None else pa.array([beside])
    return bool(sketch.agree(pa.array([a], type_), pa.array([b], type_), known)[0])


def test_sketches_may_be_off_by_twice_their_error() -> None:
    unique = sketch_of(agg.approx_unique_count("x").function)
    assert judged(unique, 10_300, 10_000, pa.int64())
    assert not judged(unique, 10_500, 10_000, pa.int64())
    by_bucket = pa.map_(pa.string(), pa.int64())
    assert judged(unique, {"a": 10_300}, {"a": 10_000}, by_bucket)
    assert not judged(unique, {"a": 10_300}, {"b": 10_000}, by_bucket)
    percentile = agg.approx_percentile("x", [0.5])
    known = companion(percentile, "beside")
    assert known is not None
    assert known.function.percentiles == pytest.approx((0.467, 0.533))  # type: ignore[attr-defined]
    numbers = pa.list_(pa.float64())
    judge = sketch_of(percentile.function)
    assert judged(judge, [51.0], [50.0], numbers, [46.7, 53.3])
    assert not judged(judge, [54.0], [50.0], numbers, [46.7, 53.3])
    assert judged(judge, [math.nan], [50.0], numbers, [46.7, math.nan])
    frequent = sketch_of(agg.approx_frequent_k("x", 2).function)
    counts = pa.map_(pa.string(), pa.int64())
    assert judged(frequent, {"a": 1005, "b": 500}, {"a": 1000, "c": 501}, counts, 10_000)
    assert not judged(frequent, {"a": 1005, "b": 700}, {"a": 1000, "c": 501}, counts, 10_000)
    assert sketch_of(agg.sum("x").function) is None


def test_a_verdict_is_on_every_feature() -> None:
    def feature(name: str, equal: int, different: int) -> FeatureReport:
        return FeatureReport(name, Counted(equal=equal, different=different), {}, {})

    good, bad = feature("good", 1_000_000, 0), feature("bad", 90, 10)
    assert verdict_of([good], 1.0) == "consistent"
    assert verdict_of([good, bad], 0.999) == "inconsistent"
    assert verdict_of([good, bad], 0.9) == "consistent"
    assert verdict_of([feature("none", 0, 0)], 0.5) == "no data"


def test_quantiles_of_errors() -> None:
    tally = Tally()
    online = pa.array([1.0] * 90 + [1.0 + n / 100 for n in range(10)])
    found = compare(online, pa.array([1.0] * 100), Rule())
    tally.of("x").add(found, Hours.of(np.zeros(100, np.int64)))
    half, most, largest = Tally.from_bytes(tally.to_bytes()).of("x").quantiles([0.5, 0.95, 1.0])
    assert half == 0
    assert 0.03 < most < 0.06
    assert largest == pytest.approx(0.09 / 1.09)
