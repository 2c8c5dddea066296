"""The backfill against the join that anyone would write by hand, run by DuckDB.

queries LEFT JOIN events ON keys are equal AND event.time in [lower(q), upper(q)) GROUP BY query
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import windrow as wr
from feature_oracle import same
from oracle import canonical
from windrow import agg, testing
from windrow.algebra.aggregation import Aggregation
from windrow.algebra.windows import Window, WindowKind

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NAN = float("nan")
INF = float("inf")

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 0, 0, 0, 1, -(2**63), None]),
    "narrow": (pa.int32(), [7, 7, 7, -1, None]),
    "text": (pa.string(), ["", "a", "a", "é", None]),
    "day": (pa.date32(), [dt.date(2021, 9, 30), dt.date(1969, 1, 1), None]),
    "money": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-3.99"), None]),
    "flag": (pa.bool_(), [True, False, None]),
    "float": (pa.float64(), [0.0, -0.0, NAN, 1.5, INF, None]),
}
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [-3, 0, 1, 1, 7, None]),
    "quarter": (pa.float64(), [0.25, -0.5, 1.75, 1024.25, 3.0, None]),
    "wild": (pa.float64(), [1.5, NAN, INF, -INF, 0.0, -0.0, None]),
    "money": (pa.decimal128(12, 2), [Decimal("0.10"), Decimal("-3.99"), Decimal("7.00"), None]),
    "text": (pa.string(), ["", "a", "é", "longer than eight a", "longer than eight b", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [dt.date(2021, 9, 30), dt.date(1969, 1, 1), None]),
}
WINDOWS = [
    Window.make("5m", "sliding"),
    Window.make("1h", "sliding"),
    Window.make("90s", "sliding"),
    Window.make("1h", "hopping"),
    Window.make("1d", "hopping", "1h"),
    Window.make("1h", "sawtooth"),
    Window.make("2d", "sawtooth"),
    Window.make("12d", "sawtooth"),
    Window.lifetime(),
]
K = 2

# Each aggregate in DuckDB's SQL, over the rows of one query: `v`, its `time`, and `d`, the
# deviation from the mean. `v` is null where nothing matched.
LISTED = "FILTER (WHERE v IS NOT NULL)"
ANY = {
    "count": "count(v)",
    "min": "min(v)",
    "max": "max(v)",
    "first": f"arg_min(v, row(time, v)) {LISTED}",
    "last": f"arg_max(v, row(time, v)) {LISTED}",
    "first_k": f"(list(v ORDER BY time, v) {LISTED})[:{K}]",
    "last_k": f"(list(v ORDER BY time DESC, v DESC) {LISTED})[:{K}]",
    "top_k": f"(list(v ORDER BY v DESC) {LISTED})[:{K}]",
    "bottom_k": f"(list(v ORDER BY v) {LISTED})[:{K}]",
    "unique_top_k": f"list_sort(list(DISTINCT v) {LISTED}, 'DESC')[:{K}]",
    "unique_count": "count(DISTINCT v)",
    "approx_unique_count": "count(DISTINCT v)",
    "bounded_unique_count": f"least(count(DISTINCT v), {K})",
    "collect_list": f"list(v ORDER BY time, v) {LISTED}",
}
SUMS = {"sum": "sum(v)", "avg": "avg(v)"}
MOMENTS = {
    "var_pop": "var_pop(v)",
    "var_samp": "var_samp(v)",
    "stddev_pop": "stddev_pop(v)",
    "stddev_samp": "stddev_samp(v)",
    # DuckDB's own skewness corrects for the sample; Spark's does not.
    "skewness": "sqrt(count(v)) * sum(d ** 3) / nullif(sum(d * d), 0) ** 1.5",
    "kurtosis": "count(v) * sum(d ** 4) / nullif(sum(d * d), 0) ** 2 - 3",
}
LOGIC = {"bool_and": "bool_and(v)", "bool_or": "bool_or(v)"}
HISTOGRAMS = {"histogram": 10**9, "histogram_k": K, "approx_frequent_k": K}


def operations(column: str) -> dict[str, str]:
    if column == "flag":
        return {**ANY, **LOGIC}
    if column == "wild":
        return {**ANY, **SUMS}
    return {**ANY, **SUMS, **MOMENTS} if column in ("int", "quarter", "money") else ANY


def aggregations(column: str, window: Window) -> list[Aggregation]:
    made = [
        getattr(agg, name)(column, K)
        if name.endswith(("_k", "bounded_unique_count"))
        else getattr(agg, name)(column)
        for name in operations(column)
    ]
    made += [agg.histogram(column), agg.histogram(column, K), agg.approx_frequent_k(column, K)]
    made += [agg.count(column).by("bucket"), agg.max(column).by("bucket")]
    if window.kind is WindowKind.LIFETIME:
        return made
    hop = None if window.kind is WindowKind.SLIDING else f"{window.hop // 1000}s"
    return [one.over(window.text, kind=window.kind.value, hop=hop) for one in made]


def bounds(window: Window, accuracy: str, query: str) -> tuple[str, str]:
    """The window's lower and upper bound in SQL; the text of the semantics, once more."""

    def floor(time: str, step: int) -> str:
        return f"({time} - ((({time}) % {step} + {step}) % {step}))"

    if accuracy == "snapshot":
        query = floor(query, DAY)
    lower = {
        WindowKind.LIFETIME: "-9223372036854775807",
        WindowKind.SLIDING: f"{query} - {window.length}",
        WindowKind.HOPPING: floor(f"({query} - {window.length})", window.hop),
        WindowKind.SAWTOOTH: floor(f"({query} - {window.length})", window.hop),
    }[window.kind]
    return lower, floor(query, window.hop) if window.kind is WindowKind.HOPPING else query


def naive(
    events: pa.Table,
    queries: pa.Table,
    keys: list[str],
    column: str,
    window: Window,
    accuracy: str,
) -> list[list[Any]]:
    """The features of `aggregations`, a list for each query in the order of `id`."""
    lower, upper = bounds(window, accuracy, "q.time")
    on = " AND ".join(f"q.{key} = e.{key}" for key in keys)
    value = f"e.{column}"
    number = f"{value}::DOUBLE" if column in ("int", "quarter", "money") else "NULL::DOUBLE"
    with duckdb.connect() as con:
        con.register("events", events)
        con.register("queries", queries)
        con.execute(
            f"CREATE TABLE matched AS SELECT q.id, e.time, e.bucket, {value} AS v, "
            f"{number} - avg({number}) OVER (PARTITION BY q.id) AS d "
            f"FROM queries q LEFT JOIN events e ON {on} AND e.time >= {lower} AND e.time < {upper}"
        )
        plain = ", ".join(operations(column).values())
        rows = con.execute(f"SELECT id, {plain} FROM matched GROUP BY id ORDER BY id").fetchall()
        assert [row[0] for row in rows] == list(range(queries.num_rows))
        counted = con.execute(
            "SELECT id, v, count(*) FROM matched WHERE v IS NOT NULL GROUP BY id, v "
            "ORDER BY id, count(*) DESC, v"
        ).fetchall()
        bucketed = con.execute(
            "SELECT id, bucket, count(v), max(v) FROM matched "
            "WHERE v IS NOT NULL AND bucket IS NOT NULL GROUP BY id, bucket"
        ).fetchall()
    found = [list(row[1:]) for row in rows]
    for k in HISTOGRAMS.values():
        for i, row in enumerate(found):
            items = [(v, n) for id_, v, n in counted if id_ == i][:k]
            row.append({canonical(v): n for v, n in items} or None)
    for at in (2, 3):
        for i, row in enumerate(found):
            row.append({r[1]: r[at] for r in bucketed if r[0] == i} or None)
    return found


def agree(found: Any, expected: Any) -> bool:
    """Equal; floats to the precision of a plain sum in DuckDB."""
    if isinstance(found, float) and isinstance(expected, float) and math.isfinite(expected):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    return same(list(found.items()) if isinstance(found, dict) else found, expected)


def as_table(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({n: pa.array([row[n] for row in rows], t) for n, t in types.items()})


def times() -> st.SearchStrategy[int]:
    """Few times, at the edges of windows, hops and days, and one millisecond beside them."""
    return st.builds(
        lambda base, edge, off: base + edge + off,
        st.sampled_from([0, 10 * DAY, -DAY]),
        st.sampled_from([0, 90_000, 5 * MINUTE, HOUR, DAY, 2 * DAY, 12 * DAY]),
        st.sampled_from([-1, 0, 0, 1, 7 * MINUTE]),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], str, pa.Table, pa.Table]:
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    column = draw(st.sampled_from(sorted(VALUES)))
    keys = {f"key_{kind}": st.sampled_from(KEYS[kind][1]) for kind in kinds}
    types = {f"key_{kind}": KEYS[kind][0] for kind in kinds} | {"time": pa.int64()}
    row = st.fixed_dictionaries(
        {
            **keys,
            "time": times(),
            column: st.sampled_from(VALUES[column][1]),
            "bucket": st.sampled_from(["red", "blue", "", None]),
        }
    )
    asked = st.fixed_dictionaries({**keys, "time": st.none() | times()})
    events = draw(st.lists(row, max_size=30))
    events += events[: draw(st.integers(0, 3))]  # duplicates, and late: out of the order of time
    queries = draw(st.lists(asked, max_size=8))
    queries += queries[: draw(st.integers(0, 3))]
    queries = [{**q, "id": i} for i, q in enumerate(queries)]
    return (
        list(keys),
        column,
        as_table(events, {**types, column: VALUES[column][0], "bucket": pa.string()}),
        as_table(queries, {**types, "id": pa.int64()}),
    )


def check(
    keys: list[str], column: str, events: pa.Table, queries: pa.Table, window: Window, accuracy: str
) -> None:
    source = wr.EventSource("s", table="t", time="time")
    group = wr.GroupBy("g", source, keys, aggregations(column, window), accuracy=accuracy)
    found = testing.features(group, events, queries)
    # Exactly the rows of the queries, in their order, as they were given.
    left = queries.to_pylist()
    assert [canonical({n: row[n] for n in queries.column_names}) for row in found] == [
        canonical(row) for row in left
    ]
    expected = naive(events, queries, keys, column, window, accuracy)
    for row, answers in zip(found, expected, strict=True):
        for feature, want in zip(group.features, answers, strict=True):
            got = row[feature.name]
            assert agree(got, want), f"{row['id']}: {feature.name} is {got!r}, not {want!r}"


@settings(max_examples=120)
@given(cases(), st.sampled_from(WINDOWS), st.sampled_from(["temporal", "snapshot"]))
def test_features_equal_the_naive_join(
    case: tuple[list[str], str, pa.Table, pa.Table], window: Window, accuracy: str
) -> None:
    check(*case, window, accuracy)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("column", sorted(VALUES))
def test_both_ends_of_every_window(column: str, window: Window) -> None:
    # Events at, just before and just after both bounds of each query, several at each.
    type_, values = VALUES[column]
    queries = [3 * DAY, 3 * DAY + 1, 3 * DAY - 1, 3 * DAY + 7 * MINUTE, -HOUR, -HOUR - 1]
    low, high = window.bounds(np.array(queries))
    edges = {int(t) + off for t in [*high, *low] if t > -100 * DAY for off in (-1, 0, 1)}
    times = [t for t in sorted(edges, key=lambda t: (t * 7919) % 101) for _ in (0, 1)]
    rows = [
        {"k": i % 3 // 2, "time": t, column: values[i % len(values)], "bucket": "b"}
        for i, t in enumerate(times)
    ]
    types = {"k": pa.int64(), "time": pa.int64()}
    events = as_table(rows, {**types, column: type_, "bucket": pa.string()})
    asked = [{"k": i % 3, "time": t, "id": i} for i, t in enumerate(queries * 3)]
    for accuracy in ("temporal", "snapshot"):
        left = as_table(asked, {**types, "id": pa.int64()})
        check(["k"], column, events, left, window, accuracy)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), times(), st.lists(st.sampled_from([1, 2, None]), max_size=3))
    ),
    st.lists(st.tuples(st.integers(0, 2), times()), max_size=5),
    st.sampled_from(WINDOWS),
)
@example([(0, 0, [1, 2]), (0, 1, [])], [(0, 1), (0, 2)], Window.lifetime())
def test_elements_of_lists_are_rows(
    events: list[tuple[int, int, list[int | None]]], queries: list[tuple[int, int]], window: Window
) -> None:
    types = {"k": pa.int64(), "time": pa.int64()}
    rows = [{"k": k, "time": t, "int": v, "bucket": None} for k, t, v in events]
    listed = as_table(rows, {**types, "int": pa.list_(pa.int64()), "bucket": pa.string()})
    flat = [{**row, "int": v} for row in rows for v in row["int"]]
    plain = as_table(flat, {**types, "int": pa.int64(), "bucket": pa.string()})
    left = as_table(
        [{"k": k, "time": t, "id": i} for i, (k, t) in enumerate(queries)],
        {**types, "id": pa.int64()},
    )
    source = wr.EventSource("s", table="t", time="time")
    group = wr.GroupBy("g", source, ["k"], aggregations("int", window))
    expected = naive(plain, left, ["k"], "int", window, "temporal")
    for row, answers in zip(testing.features(group, listed, left), expected, strict=True):
        for feature, want in zip(group.features, answers, strict=True):
            assert agree(row[feature.name], want), f"{row}: {feature.name} is not {want!r}"


def test_approximate_aggregates_of_a_hot_key_are_within_their_error() -> None:
    rng = np.random.default_rng(11)
    n = 20_000
    events = pa.table(
        {
            "k": np.where(rng.random(n) < 0.9, 0, 1),
            "time": rng.integers(0, 10 * DAY, n),
            "v": rng.normal(size=n),
            "code": np.minimum(rng.geometric(0.01, n), 2_000),
        }
    )
    queries = pa.table({"k": [0, 0, 1, 2], "time": [10 * DAY, 5 * DAY, 7 * DAY, DAY]})
    fractions = [0.01, 0.5, 0.95]
    group = wr.GroupBy(
        "g",
        wr.EventSource("s", table="t", time="time"),
        ["k"],
        [
            agg.approx_percentile("v", fractions).over("3d", kind="sliding"),
            agg.approx_unique_count("code").over("3d", kind="sliding"),
            agg.approx_frequent_k("code", 5).over("3d", kind="sliding"),
        ],
    )
    con = duckdb.connect()
    con.register("events", events)
    for row in testing.features(group, events, queries):
        where = f"k = {row['k']} AND time < {row['time']} AND time >= {row['time'] - 3 * DAY}"
        (total, unique) = con.execute(
            f"SELECT count(*), count(DISTINCT code) FROM events WHERE {where}"
        ).fetchall()[0]
        if not total:
            assert row["v_approx_percentile_3d"] is None
            assert row["code_approx_unique_count_3d"] == 0
            assert row["code_approx_frequent_5_3d"] is None
            continue
        for fraction, value in zip(fractions, row["v_approx_percentile_3d"], strict=True):
            (below, upto) = con.execute(
                f"SELECT count(*) FILTER (v < ?) / count(*), count(*) FILTER (v <= ?) / count(*) "
                f"FROM events WHERE {where}",
                [value, value],
            ).fetchall()[0]
            assert below - 0.03 <= fraction <= upto + 0.03
        assert math.isclose(row["code_approx_unique_count_3d"], unique, rel_tol=0.05)
        counts = dict(
            con.execute(f"SELECT code, count(*) FROM events WHERE {where} GROUP BY code").fetchall()
        )
        error = 0.0035 * total
        least = sorted(counts.values())[-5]
        assert len(row["code_approx_frequent_5_3d"]) == 5
        for code, found in row["code_approx_frequent_5_3d"].items():
            assert abs(counts[code] - found) <= error
            assert counts[code] >= least - error
    con.close()


def random_tables(seed: int, keys: list[str]) -> tuple[pa.Table, pa.Table]:
    """Events in several orders, a hot key, ties, nulls; duplicate queries, null keys and times."""
    rng = np.random.default_rng(seed)

    def pick(values: list[Any]) -> Any:
        return values[int(rng.integers(0, len(values)))]

    def time() -> int:
        return int(pick([0, HOUR, DAY, 2 * DAY, 12 * DAY])) + int(pick([-1, 0, 0, 1, 7 * MINUTE]))

    types = {f"key_{kind}": KEYS[kind][0] for kind in keys} | {"time": pa.int64()}
    columns = {name: VALUES[name][0] for name in ("int", "quarter", "text")}
    events = [
        {f"key_{kind}": pick(KEYS[kind][1]) for kind in keys}
        | {"time": time(), "bucket": pick(["red", "blue", None])}
        | {name: pick(VALUES[name][1]) for name in columns}
        for _ in range(150)
    ]
    queries = [
        {f"key_{kind}": pick(KEYS[kind][1]) for kind in keys} | {"time": pick([time(), None, 0])}
        for _ in range(30)
    ]
    return (
        as_table(events + events[:9], {**types, **columns, "bucket": pa.string()}),
        as_table(queries + queries[:7], types),
    )


@pytest.mark.parametrize(
    ("keys", "accuracy", "as_frames"),
    [
        (["int", "text"], "temporal", False),
        (["float", "day", "narrow"], "snapshot", False),
        (["money", "flag"], "temporal", True),
    ],
)
def test_a_backfill_on_spark_equals_the_naive_join(
    spark: Any, tmp_path: Path, keys: list[str], accuracy: str, as_frames: bool
) -> None:
    events, queries = random_tables(5, keys)
    (tmp_path / "events").mkdir()
    for i in range(3):  # files in no order of time
        name = tmp_path / "events" / f"{i}.parquet"
        pq.write_table(events.slice(i * 60, 60), name, row_group_size=25)
    pq.write_table(queries, tmp_path / "queries.parquet")
    tables = [str(tmp_path / "events"), str(tmp_path / "queries.parquet")]
    if as_frames:
        tables = [spark.read.parquet(path) for path in tables]
    source = wr.EventSource("s", table=tables[0], time="time")
    columns = [f"key_{kind}" for kind in keys]
    plan = [("int", WINDOWS[5]), ("quarter", WINDOWS[4]), ("text", WINDOWS[1]), ("int", WINDOWS[8])]
    groups = [
        wr.GroupBy(f"g{i}", source, columns, aggregations(column, window), accuracy=accuracy)
        for i, (column, window) in enumerate(plan)
    ]
    join = wr.Join("j", wr.Queries(tables[1], time="time"), groups)
    rows = wr.Project(tmp_path / "state", spark=spark).backfill(join).collect()
    left = queries.column_names

    def place(row: Any) -> tuple[Any, ...]:
        return tuple(canonical(row[name]) for name in left)

    assert Counter(map(place, rows)) == Counter(map(place, queries.to_pylist()))
    numbered = queries.append_column("id", pa.array(range(queries.num_rows)))
    for group, (column, window) in zip(groups, plan, strict=True):
        expected = naive(events, numbered, columns, column, window, accuracy)
        answers = dict(zip(map(place, queries.to_pylist()), expected, strict=True))
        for row in rows:
            for feature, want in zip(group.features, answers[place(row)], strict=True):
                got = row[f"{group.name}_{feature.name}"]
                assert agree(got, want), f"{row}: {feature.name} is {got!r}, not {want!r}"
