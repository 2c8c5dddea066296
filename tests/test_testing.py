"""Definitions evaluated without Spark: the same answers as plain loops, and as Spark."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import windrow as wr
from entity_replay import Update, alive, histories
from entity_replay import queries as asked_of
from feature_cases import COLUMNS, PAIRS, WINDOWS, aggregation, k_of, overflows
from feature_oracle import feature, same
from windrow import agg, testing
from windrow.errors import DataError, DefinitionError, OptionError, SchemaError

HOUR, DAY = 3_600_000, 86_400_000
QUERY = {"user_id": 1, "ts": "2021-09-30 05:24"}
VIEWS: list[dict[str, Any]] = [
    {"user_id": 1, "view_id": 1, "category": "rake", "price": 20.0, "ts": "2021-09-29 20:00"},
    {"user_id": 1, "view_id": 2, "category": "hoe", "price": 5, "ts": "2021-09-30 05:00"},
    {"user_id": 1, "view_id": 3, "category": "hoe", "price": None, "ts": "2021-09-30 05:24"},
    {"user_id": 2, "view_id": 4, "category": "hoe", "price": 7.5, "ts": "2021-09-30 05:00"},
    {"user_id": 1, "view_id": 5, "category": "rake", "price": 1e9, "ts": None},
]
LEFT = wr.Queries("site/checkouts.parquet", time="ts")


def views(**options: Any) -> wr.EventSource:
    return wr.EventSource("views", "site/views.parquet", **{"time": "ts", **options})


def activity(
    *aggregations: Any, source: wr.EventSource | None = None, **options: Any
) -> wr.GroupBy:
    return wr.GroupBy("activity", source or views(), ["user_id"], aggregations, **options)


def one(definition: wr.GroupBy, events: Any = VIEWS, query: Any = QUERY, **options: Any) -> Any:
    """The only feature of one query."""
    (row,) = testing.features(definition, events, [query], **options)
    (name,) = (f.name for f in definition.features)
    return row[name]


def test_the_page_of_the_docs() -> None:
    text = (Path(__file__).parent.parent / "docs" / "testing.md").read_text()
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, scope)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    assert len(tests) >= 5
    for test in tests:
        test()


def test_the_shop() -> None:
    group = activity(
        agg.count("view_id").over("5h", "7d"),
        agg.last_k("view_id", 10).over("30d"),
        agg.sum("price").over("7d").by("category"),
        agg.max("price"),
    )
    join = wr.Join(
        "training",
        LEFT,
        [group.on(user_id="buyer_id"), group.prefixed("again").on(user_id="other")],
        derive={"per_day": "activity_view_id_count_7d / 7", "twice": "per_day * 2"},
    )
    queries = [{"other": 2, "buyer_id": 1, "ts": "2021-09-30 05:24"}, {"buyer_id": None}]
    found = testing.backfill(join, queries, {"views": VIEWS})
    assert found[0] == {
        "other": 2,
        "buyer_id": 1,
        "ts": "2021-09-30 05:24",
        "activity_view_id_count_5h": 1,
        "activity_view_id_count_7d": 2,
        "activity_view_id_last_10_30d": [2, 1],
        "activity_price_sum_7d_by_category": {"hoe": 5.0, "rake": 20.0},
        "activity_price_max": 20.0,
        "again_view_id_count_5h": 1,
        "again_view_id_count_7d": 1,
        "again_view_id_last_10_30d": [4],
        "again_price_sum_7d_by_category": {"hoe": 7.5},
        "again_price_max": 7.5,
        "per_day": 2 / 7,
        "twice": 4 / 7,
    }
    assert list(found[0]) == [*queries[0], *list(found[0])[3:]]
    empty = {**dict.fromkeys(found[0]), "per_day": 0.0, "twice": 0.0}
    counts = {name: 0 for name in empty if "_count_" in name}
    assert found[1] == {**empty, **counts}


def test_groups_for_online_use_alone_are_left_out() -> None:
    online = wr.GroupBy("online", views(), ["user_id"], [agg.count("view_id")], offline=False)
    join = wr.Join("j", LEFT, [online])
    assert testing.backfill(join, [QUERY], {}) == [QUERY]
    assert testing.backfill(join, [QUERY], {"views": VIEWS}) == [QUERY]
    assert one(online) == 2


def test_snapshot_accuracy_and_a_time_of_another_name() -> None:
    group = activity(agg.count("view_id"), accuracy="snapshot")
    assert one(group) == 1
    assert one(group, query={"user_id": 1, "at": "2021-10-01"}, time="at") == 3


@pytest.mark.parametrize(
    "time",
    [
        "2021-09-30T05:24:00Z",
        "2021-09-30 07:24+02:00",
        dt.datetime(2021, 9, 30, 5, 24),
        dt.datetime(2021, 9, 30, 7, 24, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2021, 9, 30, 5, 24, 0, 999, tzinfo=dt.UTC),
        1_632_979_440_000,
    ],
)
def test_times_in_every_form(time: Any) -> None:
    (row,) = testing.features(
        activity(agg.count("view_id"), agg.last("ts")), VIEWS, [{"user_id": 1, "ts": time}]
    )
    assert row["view_id_count"] == 2
    assert row["ts_last"] == dt.datetime(2021, 9, 30, 5, 0, tzinfo=dt.UTC)
    assert row["ts"] is time


def test_dates_are_midnights() -> None:
    events = [{"user_id": 1, "view_id": 1, "ts": dt.date(2021, 9, 30)}]
    assert one(activity(agg.count("view_id")), events) == 1
    query = {"user_id": 1, "ts": dt.date(2021, 9, 30)}
    assert one(activity(agg.count("view_id")), events, query) == 0


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (True, pa.bool_()),
        (1, pa.int64()),
        (1.5, pa.float64()),
        ("x", pa.string()),
        (b"x", pa.binary()),
        (Decimal("1.5"), pa.decimal128(38, 18)),
        (dt.date(2021, 1, 1), pa.date32()),
        (dt.datetime(2021, 1, 1), pa.timestamp("us", "UTC")),
        ([1, None], pa.list_(pa.int64())),
        ({"a": 1.5}, pa.map_(pa.string(), pa.float64())),
        ([{"a": [1]}], pa.list_(pa.map_(pa.string(), pa.list_(pa.int64())))),
    ],
)
def test_types_are_those_that_spark_infers(value: Any, type_: pa.DataType) -> None:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _infer_type

    from windrow.rows.types import canonical_type
    from windrow.testing.rows import infer, python_values

    found = infer([None, value], "test")
    assert found == type_
    spark_type = to_arrow_type(_infer_type(value), timezone="UTC")
    assert canonical_type(found, "") == canonical_type(spark_type, "")
    (again,) = python_values(pa.array([value], type_))
    assert again == (value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) else value)


def test_values_come_back_as_python_values() -> None:
    events = [
        {
            "user_id": 1,
            "ts": "2021-09-01",
            "m": {"a": 1, "b": None},
            "l": [1, 2],
            "d": Decimal("1.1"),
        },
        {"user_id": 1, "ts": "2021-09-02", "m": {"a": 2}, "d": Decimal("2.2")},
    ]
    group = activity(
        agg.sum("m"), agg.sum("l"), agg.sum("d"), agg.histogram("d"), agg.sum("m").by("d")
    )
    (row,) = testing.features(group, events, [{**QUERY, "tags": {"x": [1]}}])
    assert row == {
        **QUERY,
        "tags": {"x": [1]},
        "m_sum": {"a": 3},
        "l_sum": 3,
        "d_sum": Decimal("3.3"),
        "d_histogram": {Decimal("1.1"): 1, Decimal("2.2"): 1},
        "m_sum_by_d": {Decimal("1.1"): {"a": 1}, Decimal("2.2"): {"a": 2}},
    }


def test_arrow_tables_and_schemas() -> None:
    table = pa.table({"user_id": pa.array([1], pa.int32()), "n": [3], "ts": pa.array([DAY])})
    group = activity(agg.sum("n"))
    queries = pa.table({"user_id": [1, 9], "ts": pa.array([2 * DAY, None], pa.timestamp("ms"))})
    rows = testing.features(group, table, queries)
    assert [row["n_sum"] for row in rows] == [3, None]
    assert rows[0]["ts"] == dt.datetime(1970, 1, 3)
    schema = {"views": pa.schema([("n", pa.decimal128(9, 2))])}
    events = [{"user_id": 1, "n": Decimal("0.10"), "ts": "2021-09-01"}]
    assert str(one(group, events, schema=schema)) == "0.10"
    assert str(one(group, table, schema=schema)) == "3.00"
    assert one(group, [], schema={"views": table.schema}) is None


EMPTY = [
    agg.count("a"),
    agg.sum("b"),
    agg.bool_or("c"),
    agg.max("d").by("e"),
    agg.last_k("f", 2),
    agg.histogram("g"),
    agg.unique_count("h").where("h / 2 > 1"),
]


@pytest.mark.parametrize("source", [{}, {"where": "a > b", "select": {c: c for c in "abcdefgh"}}])
def test_no_events_are_an_empty_window(source: dict[str, Any]) -> None:
    if source:
        source["select"] |= {"user_id": "upper(user)", "ts": "to_timestamp(t)"}
    group = activity(*EMPTY, source=views(**source))
    wanted: list[Any] = [0, None, None, None, None, None, 0]
    for query in (QUERY, {"user_id": "ann", "ts": "2021-09-30"}, {"user_id": None, "ts": None}):
        (row,) = testing.features(group, [], [query])
        assert list(row.values()) == [*query.values(), *wanted]
    assert testing.features(group, [], []) == []


def test_columns_of_nulls_and_of_empty_lists() -> None:
    events: list[Any] = [{"user_id": None, "ts": None, "n": None, "l": [], "m": {}}]
    events += [{"user_id": 1, "ts": "2021-09-01"}]
    with pytest.raises(DefinitionError, match="takes"):
        testing.features(activity(agg.bool_or("l"), agg.sum("l")), events, [QUERY])
    group = activity(agg.sum("n"), agg.count("l"), agg.max("m"), agg.avg("n").by("l2"))
    events[0]["l2"] = None
    (row,) = testing.features(group, events, [QUERY])
    assert list(row.values()) == [*QUERY.values(), None, 0, None, None]


def test_queries_without_events_between_those_that_have_some() -> None:
    """A window that is asked for again has its answer, whatever was asked in between."""
    events = [{"user_id": 1, "ts": -1000, "n": 7}, {"user_id": 2, "ts": -1000, "n": 9}]
    queries = [{"user_id": u, "ts": ts} for u in (1, 2, 3) for ts in (-1, None, 1, -5000, 2)]
    group = activity(agg.approx_percentile("n"), agg.max("n"), agg.last_k("n", 2), agg.avg("n"))
    found = testing.features(group, events, queries)
    for row in found:
        value = {1: 7, 2: 9}.get(row["user_id"]) if row["ts"] in (-1, 1, 2) else None
        wanted: list[Any] = [None] * 4
        if value is not None:
            wanted = [[float(value)], value, [value], float(value)]
        assert list(row.values())[2:] == wanted, row


def test_no_queries() -> None:
    join = wr.Join("j", LEFT, [activity(agg.count("view_id"))], derive={"x": "label + 1"})
    assert testing.backfill(join, [], {"views": VIEWS}) == []
    with pytest.raises(SchemaError, match="did you mean 'view_id'"):
        testing.backfill(wr.Join("j", LEFT, [activity(agg.count("view"))]), [], {"views": VIEWS})


def test_select_and_where_of_both_sides() -> None:
    source = views(
        time="at",
        select={"user_id": "`who.is`", "at": "ts", "cents": "CAST(price * 100 AS INT)"},
        where="category = 'hoe' AND PRICE IS NOT NULL",
    )
    left = wr.Queries("t", time="ts", select={"ts": "TS", "user_id": "uid + 0"}, where="keep")
    events = [{**row, "who.is": row["user_id"]} for row in VIEWS]
    queries = [{"uid": n % 3, "keep": n > 0 or None, "ts": "2021-09-30 05:24"} for n in range(3)]
    join = wr.Join("j", left, [activity(agg.sum("cents"), source=source)])
    assert testing.backfill(join, queries, {"views": events}) == [
        {"ts": "2021-09-30 05:24", "user_id": 1, "activity_cents_sum": 500},
        {"ts": "2021-09-30 05:24", "user_id": 2, "activity_cents_sum": 750},
    ]


def test_a_time_that_is_computed_is_given_as_it_is() -> None:
    source = views(select={"user_id": "user_id", "ts": "to_timestamp(ts, 'dd/MM/yyyy')"})
    events = [{"user_id": 1, "ts": "30/09/2021"}]
    assert one(activity(agg.count("user_id"), source=source), events) == 1


EXPRESSIONS: list[tuple[str, Any]] = [
    ("1 / 2", 0.5),
    ("-7 div 2", -3),
    ("-7 % 3", -1),
    ("pmod(-7, 3)", 2),
    ("CAST(-2.7D AS INT)", -2),
    ("bigint(n + 0.5D)", 1),
    ("CAST(TIMESTAMP'1970-01-01 00:01:00' AS BIGINT)", 60),
    ("concat('a', NULL)", None),
    ("'it\\'s'", "it's"),
    ('"double"', "double"),
    ("dayofweek(DATE'2021-09-30')", 5),
    ("weekday(DATE'2021-09-30')", 3),
    ("date_add(DATE'2021-09-30', 1)", dt.date(2021, 10, 1)),
    ("floor(-0.5D)", -1),
    ("ln(-1)", None),
    ("try_cast('x' AS INT)", None),
    ("double('NaN') > 1e300", True),
    ("double('NaN') = double('NaN')", True),
    ("NULL AND false", False),
    ("NULL OR NULL", None),
    ("n > 1 AND n / 0 > 1", False),
    ("n = 1 OR n / 0 > 1", True),
    ("'a_b' LIKE 'a\\\\_b'", True),
    ("'axb' LIKE 'a\\\\_b'", False),
    ("aggregate(array(1, 2), 0L, (a, x) -> a + x)", 3),
    ("array(7, 8)[0]", 7),
    ("hour(ts)", 5),
    ("N + `n`", 2),
    ("true", True),
    ("NULL", None),
]
ERROR = object()
# What docs/testing.md says of Spark and of this evaluation, where they differ.
DIFFERENCES: list[tuple[str, Any, Any]] = [
    ("CAST(1 AS DECIMAL(4, 1)) / 8", Decimal("0.125"), 0.125),
    ("array(7, 8)[9]", ERROR, None),
    ("string(n) < 2", True, ERROR),
    ("CAST('1.7' AS INT)", ERROR, 2),
    ("round(2.675D, 2)", 2.68, 2.68),
    ("round(1.005D, 2)", 1.01, 1.0),
    ("floor(-0.5)", Decimal(-1), -1),
    ("floor(double('NaN'))", 0, ERROR),
    ("CAST(n + 99 AS DECIMAL(38, 18)) * CAST(2 AS DECIMAL(38, 18))", Decimal(200), ERROR),
    ("CAST(1e20D AS STRING)", "1.0E20", "1e+20"),
    ("exists(array(1), x -> x > 0)", True, ERROR),
    ("unix_timestamp(ts)", 1_632_979_440, ERROR),
    ("size(map('a', 1))", 1, ERROR),
]


@pytest.mark.parametrize(("text", "wanted"), EXPRESSIONS)
def test_expressions_mean_what_they_mean_in_spark(text: str, wanted: Any) -> None:
    join = wr.Join("j", LEFT, [activity(agg.count("view_id"))], derive={"x": text})
    (row,) = testing.backfill(join, [{**QUERY, "n": 1}], {"views": VIEWS})
    assert row["x"] == wanted
    assert type(row["x"]) is type(wanted)


@pytest.mark.parametrize(("text", "_spark", "wanted"), DIFFERENCES)
def test_known_differences(text: str, _spark: Any, wanted: Any) -> None:
    join = wr.Join("j", LEFT, [activity(agg.count("view_id"))], derive={"x": text})
    try:
        (row,) = testing.backfill(join, [{**QUERY, "n": 1}], {"views": VIEWS})
    except (SchemaError, DataError):
        assert wanted is ERROR
    else:
        assert row["x"] == wanted


def derived(text: str, **more: Any) -> Callable[[], Any]:
    join = wr.Join("j", LEFT, [activity(agg.count("view_id"))], derive={"x": text, **more})
    return lambda: testing.backfill(join, [{**QUERY, "n": 0}], {"views": VIEWS})


def left(**options: Any) -> Callable[[], Any]:
    queries = wr.Queries("t", **{"time": "ts", **options})
    join = wr.Join("j", queries, [activity(agg.count("view_id"))])
    return lambda: testing.backfill(join, [{**QUERY, "__x": 1}], {"views": VIEWS})


def joined(group: Any, sources: Any) -> Callable[[], Any]:
    return lambda: testing.backfill(wr.Join("j", LEFT, [group]), [QUERY], sources)


def alone(*aggregations: Any, events: Any = VIEWS, query: Any = QUERY, **options: Any) -> Any:
    schema = options.pop("schema", None)
    group = activity(*aggregations or [agg.count("view_id")], source=views(**options))
    return lambda: testing.features(group, events, [query], schema=schema)


COUNT = activity(agg.count("view_id"))


FINE = pa.table({"user_id": [1], "ts": [1], "n": pa.array([1], pa.timestamp("ns"))})


def at_another_time() -> Any:
    return testing.features(COUNT, VIEWS, [QUERY], time="at")


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (SchemaError, "no column 'prise'; did you mean 'price'", alone(agg.sum("prise"))),
        (DefinitionError, "sum takes numbers, not string", alone(agg.sum("category"))),
        (SchemaError, "keys: there is no column 'user_id'", alone(select=["view_id", "ts"])),
        (SchemaError, "'views': time: there is no column 'ts'", alone(select=["view_id"])),
        (
            DefinitionError,
            "TIMESTAMP, DATE or BIGINT",
            alone(select={"ts": "upper(category)", "user_id": "user_id"}),
        ),
        (SchemaError, "queries: time: there is no column 'at'", at_another_time),
        (DefinitionError, "'user_id', which is not there", alone(query={"user": 1, "ts": 1})),
        (DefinitionError, "cast one of them", alone(query={"user_id": "1", "ts": 1})),
        (DefinitionError, "time 'ts' is double", alone(query={"user_id": 1, "ts": 0.5})),
        (DataError, "'noon' is not a time", alone(query={"user_id": 1, "ts": "noon"})),
        (SchemaError, "some values are int64 and some string", alone(events=[{"a": 1}, {"a": ""}])),
        (SchemaError, "a set, of which the Spark type", alone(events=[{"a": {1}}])),
        (DataError, "does not fit int64", alone(events=[{"a": 2**63}])),
        (DataError, "does not fit timestamp", alone(agg.last("n"), events=FINE)),
        (OptionError, "list of dicts or a pyarrow Table", alone(events={"a": 1})),
        (OptionError, "list of dicts or a pyarrow Table", alone(events=[1])),
        (OptionError, "7 is not the name of a column", alone(events=[{7: 1}])),
        (OptionError, "give a pyarrow schema", alone(schema={"views": "bigint"})),
        (OptionError, "did you mean 'views'", alone(schema={"view": pa.schema([])})),
        (
            SchemaError,
            "column 'view_id_count' occurs twice",
            alone(query={**QUERY, "view_id_count": 1}),
        ),
        (
            SchemaError,
            "where: 'prise > 1': there is no column 'prise'; did you",
            alone(where="prise > 1"),
        ),
        (SchemaError, "where: 'price \\+ 1' is double, not a condition", alone(where="price + 1")),
        (SchemaError, "'activity': where: 'price >'", alone(agg.sum("price").where("price >"))),
        (SchemaError, "select 'b': there is no column 'pric'; did", alone(select={"b": "pric"})),
        (SchemaError, "is not an expression", alone(where="price from t")),
        (DefinitionError, "one value for each row", alone(where="bool_or(price > 1)")),
        *(
            (DefinitionError, r"derive\['x'\]: .* one value for each row", derived(text))
            for text in (
                *("explode(array(1, 2))", "posexplode(array(1))", "inline(array(struct(1)))"),
                *("stack(1, 2)", "max(n)", "n + sum(n) OVER ()", "row_number() OVER (ORDER BY n)"),
                *("count(*)", "collect_list(n)", "window(ts, '1 day')"),
            )
        ),
        (SchemaError, "nosuch", alone(where="nosuch(price) > 1")),
        (SchemaError, "two underscores", left()),
        (SchemaError, "left: time: there is no column 'at'", left(select=["user_id"], time="at")),
        (SchemaError, "derive\\['x'\\]: 'nothing / 7': there is no column", derived("nothing / 7")),
        (DataError, "derive\\['x'\\]: '1 / n': .*division by zero", derived("1 / n")),
        (DataError, "division by zero", derived("1 % n")),
        (DataError, "division by zero", derived("1 div n")),
        (DataError, "Overflow", derived("9223372036854775807 + (n + 1)")),
        (DataError, "Could not convert", derived("CAST('x' AS INT)")),
        (SchemaError, "column 'user_id' occurs twice", derived("1", user_id="2")),
        (OptionError, "no rows for source 'views'", joined(COUNT, {})),
        (OptionError, "no source 'vews'; did you mean 'views'", joined(COUNT, {"vews": []})),
        (OptionError, "dict of rows by source name", joined(COUNT, [])),
        (DefinitionError, "is not a GroupBy", lambda: testing.features(LEFT, [], [])),  # type: ignore[arg-type]
        (DefinitionError, "is not a Join", lambda: testing.backfill(COUNT, [], {})),  # type: ignore[arg-type]
    ],
)
def test_errors_say_what_is_wrong(error: Any, message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("missing", ["duckdb", "sqlglot"])
def test_what_to_install_for_expressions(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert (
        one(
            activity(agg.count("view_id"), source=views(where="`flag`")),
            [{**row, "flag": True} for row in VIEWS],
        )
        == 2
    )
    with pytest.raises(OptionError, match=r"pip install 'windrow\[testing\]'"):
        alone(where="price > 1")()


def test_spark_is_not_imported() -> None:
    code = """
import sys
import windrow as wr
from windrow import agg, testing
source = wr.EventSource("s", "t", time="ts", where="n / 2 > 0")
group = wr.GroupBy("g", source, ["k"], [agg.sum("n").over("1d")])
join = wr.Join("j", wr.Queries("q", time="ts"), [group], derive={"x": "g_n_sum_1d + 1"})
rows = testing.backfill(join, [{"k": 1, "ts": "2021-01-02"}],
                        {"s": [{"k": 1, "n": 2, "ts": "2021-01-01"}]})
assert rows[0]["x"] == 3, rows
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


VALUES: dict[str, list[Any]] = {
    "n": [None, -3, 1, 2**40],
    "f": [None, 0.0, -0.0, 1.5, float("nan"), 1e300],
    "s": [None, "", "rake", "hoe"],
}
NAMES = {"n": ["sum", "avg", "min", "last"], "f": ["sum", "max", "first"], "s": ["count", "last_k"]}


@settings(max_examples=60)
@given(st.data())
def test_features_equal_the_plain_loops(data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(sorted(VALUES)))
    name = data.draw(st.sampled_from(NAMES[column]))
    key, times = st.sampled_from([1, 2, None]), st.integers(-40, 40).map(lambda h: h * HOUR)
    value, bucket = st.sampled_from(VALUES[column]), st.sampled_from(["a", "b", None])
    event = st.fixed_dictionaries({"k": key, "time": times, column: value, "by": bucket})
    events = data.draw(st.lists(event, max_size=12))
    queries = data.draw(st.lists(st.fixed_dictionaries({"k": key, "time": times | st.none()})))
    k = 2 if name == "last_k" else None
    made = getattr(agg, name)(column, k) if k else getattr(agg, name)(column)
    made = made.over(
        data.draw(st.sampled_from(["5h", "1d"])),
        kind=data.draw(st.sampled_from(["sliding", "hopping", "sawtooth"])),
    )
    made = made.by("by") if data.draw(st.booleans()) else made
    floor = data.draw(st.sampled_from([None, 0, 5 * HOUR]))
    if floor is not None:
        made = made.where(f"time >= {floor}")
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    source = wr.EventSource("s", "t", time="time")
    group = wr.GroupBy("g", source, ["k"], [made], accuracy=accuracy)
    (window,) = (f.window for f in group.features)
    rows = testing.features(group, events, queries)
    assert len(rows) == len(queries)
    for row, query in zip(rows, queries, strict=True):
        wanted = feature(
            [e for e in events if floor is None or e["time"] >= floor],
            {"k": query["k"]},
            query["time"],
            name=name,
            column=column,
            window=(window.kind.value, window.length, window.hop),
            k=k,
            bucket=made.bucket,
            accuracy=accuracy,
        )
        got = row[group.features[0].name]
        assert {**row, group.features[0].name: None} == {**query, group.features[0].name: None}
        assert same(list(got.items()) if isinstance(got, dict) else got, wanted)


KINDS = {1: ["insert", "update_postimage"], -1: ["delete", "update_preimage"]}
SNAPSHOT_DAYS = (-1, 0, 1, 2, 3, 9, 12, 40)


def iso(millis: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=millis)).isoformat()


def entity(kind: str, **options: Any) -> wr.EntitySource:
    made = dict.fromkeys(kind.split("+"), "t")
    if "snapshots" in kind:
        options = {"partition": "ds", **options}
    return wr.EntitySource("s", **{"time": "time", **made, **options})


def written(kind: str, history: list[Update], draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A history as the rows of a source of some kind, and the time from which it is known."""
    spelled = draw(st.sampled_from([iso, int]))

    def row(m: int, row: dict[str, Any], diff: int, table: str) -> dict[str, Any]:
        if table == "shard":
            return {**row, "_time": m, "_diff": diff}
        if table == "changes":
            kind = draw(st.sampled_from(KINDS[diff]))
            return {**row, "_commit_timestamp": spelled(m), "_change_type": kind}
        return {**row, "mutation_time": spelled(m), "is_before": diff < 0}

    if kind != "snapshots+mutations":
        return [row(m, r, d, kind) for m, r, d in history], None
    days = sorted(draw(st.sets(st.sampled_from(SNAPSHOT_DAYS), min_size=1)))
    snapshots = [
        {**r, "ds": (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()}
        for day in days
        for r in alive(history, (day + 1) * DAY)
    ]
    assume(snapshots)
    known = next(day for day in days if alive(history, (day + 1) * DAY))
    mutations = [row(m, r, d, "mutations") for m, r, d in history]
    return {"snapshots": snapshots, "mutations": mutations}, (known + 1) * DAY


def pairs(value: Any) -> Any:
    return [(k, pairs(v)) for k, v in value.items()] if isinstance(value, dict) else value


@pytest.mark.parametrize("kind", ["mutations", "changes", "shard", "snapshots+mutations"])
@settings(max_examples=80)
@given(data=st.data())
def test_entities_equal_a_replay(kind: str, data: st.DataObject) -> None:
    name, column = data.draw(st.sampled_from(PAIRS))
    history = data.draw(histories(column).filter(bool))
    made = aggregation(name, column)
    made = made.by("bucket") if data.draw(st.booleans()) else made
    lengths, options = data.draw(st.sampled_from(WINDOWS))
    made = made if lengths is None else made.over(*lengths, **options)
    accuracy = data.draw(st.sampled_from(["temporal", "snapshot"]))
    group = wr.GroupBy("g", entity(kind), ["k"], [made], accuracy=accuracy)
    (one,) = group.features
    rows, since = written(kind, history, data.draw)
    queries, expected = [], []
    for query in data.draw(asked_of()):
        q = query["time"]
        if q is not None and accuracy == "snapshot":
            q -= q % DAY
        if q is not None and since is not None and q < since:
            continue
        queries.append(query)
        expected.append(
            feature(
                [] if q is None else alive(history, q),
                {"k": query["k"]},
                query["time"],
                name=name,
                column=column,
                window=(one.window.kind.value, one.window.length, one.window.hop),
                k=k_of(made),
                bucket=made.bucket,
                accuracy=accuracy,
                is_map=column == "map",
            )
        )
    types = [("k", pa.int64()), (column, COLUMNS[column][0]), ("bucket", pa.string())]
    schema = {"s": pa.schema(types)}
    if name == "sum" and overflows(expected):
        with pytest.raises(DataError, match="does not fit"):
            testing.features(group, rows, queries, schema=schema)
        return
    found = testing.features(group, rows, queries, schema=schema)
    assert len(found) == len(queries)
    for row, want, query in zip(found, expected, queries, strict=True):
        got = pairs(row[one.name])
        assert same(got, want), f"{query}: {got!r} is not {want!r}"


def rating(user: int, stars: int | None, ts: str, **more: Any) -> dict[str, Any]:
    return {"user": user, "stars": stars, "ts": ts, **more}


def changed(before: bool, at: str, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "is_before": before, "mutation_time": at}


OLD, NEW = rating(1, 2, "2021-09-01"), rating(1, 5, "2021-09-01")
MOVED = rating(2, 5, "2021-09-01")
MUTATIONS = [
    changed(True, "2021-09-02 12:00", OLD),
    changed(False, "2021-09-02 12:00", NEW),
    changed(False, "2021-09-01 10:00", OLD),
    changed(True, "2021-09-03 12:00", NEW),
    changed(False, "2021-09-03 12:00", MOVED),
]
SEEN = ["2021-09-01 10:00", "2021-09-02 12:00", "2021-09-02 12:00:01", "2021-09-04"]


def ratings(**options: Any) -> wr.EntitySource:
    return wr.EntitySource("ratings", **{"time": "ts", "mutations": "m", **options})


def sums(source: Any, rows: Any, times: list[str], user: int = 1, **options: Any) -> list[Any]:
    group = wr.GroupBy("g", source, ["user"], [agg.sum("stars")], **options)
    queries = [{"user": user, "ts": time} for time in times]
    return [row["stars_sum"] for row in testing.features(group, rows, queries)]


def test_updates_of_values_and_keys() -> None:
    assert sums(ratings(), MUTATIONS, SEEN) == [None, 2, 5, None]
    assert sums(ratings(), MUTATIONS, SEEN, user=2) == [None, None, None, 5]
    assert sums(ratings(), [], SEEN) == [None] * 4
    assert sums(ratings(), MUTATIONS, SEEN, accuracy="snapshot") == [None, 2, 2, None]


def test_images_are_selected_one_by_one() -> None:
    source = ratings(where="stars > 2", select={"user": "user", "stars": "stars * 10", "ts": "ts"})
    assert sums(source, MUTATIONS, SEEN) == [None, None, 50, None]
    # What says when and whether a row came may also be selected.
    rows = [
        {"user": 1, "stars": 3, "ts": "2021-09-01", "at": "2021-09-01 10:00", "op": "I"},
        {"user": 1, "stars": 3, "ts": "2021-09-01", "at": "2021-09-02 12:00", "op": "D"},
    ]
    select = {"user": "user", "stars": "stars", "ts": "ts", "mutation_time": "at"}
    source = ratings(select={**select, "is_before": "op = 'D'"})
    assert sums(source, rows, SEEN) == [None, 3, None, None]


def test_names_of_the_columns_of_changes() -> None:
    rows = [
        {**OLD, "at": dt.datetime(2021, 9, 1, 10), "old": False},
        {**OLD, "at": "2021-09-02T12:00Z", "old": True},
        {**OLD, "at": None, "old": False},  # never known: left out, as in a backfill
        {**OLD, "ts": None, "at": "2021-09-02", "old": True},
    ]
    source = ratings(mutation_time="at", is_before="old")
    assert sums(source, rows, SEEN) == [None, 2, None, None]
    feed = [
        {**OLD, "at": "2021-09-01 10:00", "what": "insert"},
        {**OLD, "at": "2021-09-02 12:00", "what": "delete"},
    ]
    source = ratings(mutations=None, changes="c", mutation_time="at", change_type="what")
    assert sums(source, feed, SEEN) == [None, 2, None, None]


def test_snapshots_and_mutations() -> None:
    source = ratings(snapshots="s", partition="ds")
    snapshots = [
        # The log has nothing of user 3, and says of user 1 what the second snapshot corrects.
        {**OLD, "ds": "2021-09-01"},
        {**rating(3, 9, "2021-08-01"), "ds": dt.date(2021, 9, 1).isoformat()},
        {**rating(1, 4, "2021-09-01"), "ds": "2021-09-02"},
    ]
    mutations = [
        changed(False, "2021-09-01 10:00", OLD),  # in the first snapshot
        changed(True, "2021-09-01 23:59:59.999", rating(7, 7, "2021-09-01")),  # before it
        changed(True, "2021-09-02 12:00", OLD),
        changed(False, "2021-09-02 12:00", NEW),
        changed(False, "2021-09-03 12:00", rating(1, 1, "2021-09-03")),
    ]
    rows = {"snapshots": snapshots, "mutations": mutations}
    times = ["2021-09-01 23:59:59.999", "2021-09-02", "2021-09-02 13:00", "2021-09-03"]
    times += ["2021-09-03 12:00:01"]
    assert sums(source, rows, times) == [None, 2, 5, 4, 5]
    assert sums(source, rows, times, user=3) == [None, 9, 9, None, None]
    assert sums(source, rows, times, user=7) == [None] * 5
    assert sums(source, {**rows, "mutations": []}, times) == [None, 2, 2, 4, 4]
    days = {"start_partition": "2021-09-02", "missing_partitions": "ignore"}
    late = ratings(snapshots="s", partition="ds", **days)
    assert sums(late, rows, times) == [None, None, None, 4, 5]


def test_snapshots_alone() -> None:
    source = ratings(mutations=None, snapshots="s", partition="day", select=["user", "stars", "ts"])
    rows = [{**OLD, "day": dt.date(2021, 9, 1)}, {**MOVED, "day": dt.date(2021, 9, 2)}]
    times = ["2021-09-01 23:00", "2021-09-02", "2021-09-02 23:00", "2021-09-03"]
    found = sums(source, {"snapshots": rows}, times, accuracy="snapshot")
    assert found == [None, 2, 2, None]


def test_rows_count_once_they_are_known() -> None:
    rows = [
        {"user_id": 1, "n": 1, "ts": "2021-09-30", "arrived": "2021-09-30 00:00"},
        {"user_id": 1, "n": 2, "ts": "2021-09-30", "arrived": "2021-09-30 05:24"},
        {"user_id": 1, "n": 4, "ts": "2021-10-02", "arrived": "2021-09-30 00:00"},
        {"user_id": 1, "n": 8, "ts": "2021-09-30", "arrived": None},
        {"user_id": 1, "n": 1, "ts": "2021-09-30", "arrived": "2021-09-30 00:00"},
    ]
    for select in (None, ["user_id", "n", "ts"]):
        source = views(known="arrived", select=select)
        group = activity(agg.sum("n"), source=source)
        times = ["2021-09-30 05:24", "2021-09-30 05:25", "2021-10-03"]
        found = testing.features(group, rows, [{"user_id": 1, "ts": time} for time in times])
        assert [row["n_sum"] for row in found] == [2, 4, 8]
    with pytest.raises(SchemaError, match="'views': known: there is no column 'arived'; did you"):
        one(activity(agg.sum("n"), source=views(known="arived")), rows)


def test_landed_aggregates_are_seen_at_their_cadence() -> None:
    source = wr.PreAggregatedSource("hourly", "t", time="ts", every="1h")
    group = wr.GroupBy("g", source, ["user_id"], [agg.sum("n")], accuracy="snapshot")
    rows = [{"user_id": 1, "n": 1 << h, "ts": f"2021-09-30 0{h}:00"} for h in range(6)]
    times = ["2021-09-30 00:59", "2021-09-30 01:00", "2021-09-30 05:24"]
    found = testing.features(group, rows, [{"user_id": 1, "ts": time} for time in times])
    assert [row["n_sum"] for row in found] == [None, 1, 31]


def test_several_sources_count_together() -> None:
    log = wr.EventSource("log", "t", time="at", select={"user": "who", "stars": "n", "at": "at"})
    rows = [{"who": 1, "n": 10, "at": "2021-09-01"}, {"who": 2, "n": None, "at": "2021-09-01"}]
    both = {"log": rows, "ratings": MUTATIONS}
    assert sums([ratings(), log], both, SEEN) == [10, 12, 15, 10]
    assert sums([ratings(), log], {**both, "log": []}, SEEN) == [None, 2, 5, None]
    assert sums([ratings(), log], {**both, "ratings": []}, SEEN) == [10] * 4
    assert sums([ratings(), log], {"log": [], "ratings": []}, SEEN) == [None] * 4
    group = wr.GroupBy("g", [log, ratings()], ["user"], [agg.sum("stars")])
    join = wr.Join("j", LEFT, [group], derive={"x": "g_stars_sum + 1"})
    (row,) = testing.backfill(join, [{"user": 1, "ts": "2021-09-04"}], both)
    assert row["x"] == 11
    field = pa.field("n", pa.int32(), nullable=False)
    types = pa.schema([pa.field("who", pa.int32()), field, ("at", pa.timestamp("s"))])
    table = pa.table([[1], [10], [0]], schema=types)
    with pytest.raises(SchemaError, match="'stars' is int32 in EventSource 'log' and int64 in"):
        sums([ratings(), log], {**both, "log": table}, SEEN)
    log_schema = types.set(1, pa.field("n", pa.int64(), nullable=False))
    assert sums([ratings(), log], {**both, "log": table.cast(log_schema)}, SEEN)[1] == 12
    # A row is not retracted from another source, though it is the same.
    same_row = [{"who": 1, "n": 2, "at": "2021-09-01"}]
    gone = [changed(True, "2021-09-02", OLD)]
    with pytest.raises(DataError, match="is not there"):
        sums([ratings(), log], {"log": same_row, "ratings": gone}, SEEN)
    with pytest.raises(OptionError, match="'g': no rows for source 'log'; add it to events"):
        sums([ratings(), log], {"ratings": MUTATIONS}, SEEN)
    with pytest.raises(OptionError, match="give a dict of rows by source name"):
        sums([ratings(), log], MUTATIONS, SEEN)
    text = [{"who": 1, "n": "x", "at": "2021-09-01"}]
    wanted = "'stars' is string in EventSource 'log' and int64 in EntitySource 'ratings'"
    with pytest.raises(SchemaError, match=wanted):
        sums([ratings(), log], {**both, "log": text}, SEEN)


def feed(*kinds: Any) -> list[dict[str, Any]]:
    return [{**OLD, "_change_type": kind, "_commit_timestamp": "2021-09-01"} for kind in kinds]


CHANGES, SHARD = {"mutations": None, "changes": "c"}, {"mutations": None, "shard": "s"}
SNAPSHOTS = {"snapshots": "s", "partition": "ds"}


@pytest.mark.parametrize(
    ("error", "message", "options", "rows"),
    [
        (
            DataError,
            r"'ratings': mutations: {'user': 1, 'ts': '2021-09-01', 'stars': 5} is retracted at "
            r"2021-09-02T12:00:00\+00:00, but is not there",
            {},
            [changed(True, "2021-09-02 12:00", NEW), changed(False, "2021-09-02 12:01", NEW)],
        ),
        (DataError, "is retracted at", {}, [*MUTATIONS, changed(True, "2021-09-05", NEW)]),
        (DataError, "changes: .* is not there", CHANGES, feed("delete")),
        (DataError, "is_before is null in 1 mutations", {}, [changed(None, "2021-09-02", OLD)]),  # type: ignore[arg-type]
        (
            DataError,
            r"unknown _change_type: \['upsert'\]; they are \['insert'",
            CHANGES,
            feed("insert", "upsert"),
        ),
        (DataError, r"unknown _change_type: \[None\]", CHANGES, feed(None)),
        (SchemaError, "change_type '_change_type' is int64; it has to be STRING", CHANGES, feed(1)),
        (
            SchemaError,
            "is_before 'stars' is int64; it has to be BOOLEAN",
            {"is_before": "stars"},
            MUTATIONS,
        ),
        (SchemaError, "mutation_time: there is no column 'at'", {"mutation_time": "at"}, MUTATIONS),
        (SchemaError, "is_before: there is no column", {}, [{**OLD, "mutation_time": 1}]),
        (
            DefinitionError,
            "mutation_time 'mutation_time' is bool; it has to be TIMESTAMP",
            {},
            [{**OLD, "mutation_time": True, "is_before": False}],
        ),
        (DataError, "'soon' is not a time", {}, [changed(True, "soon", OLD)]),
        (SchemaError, "shard: there is no column '_diff'", SHARD, [{**OLD, "_time": 1}]),
        (
            DataError,
            "1 of 1 updates have a null '_time'",
            SHARD,
            [{**OLD, "_time": None, "_diff": 1}],
        ),
        (OptionError, r"give a dict, {'snapshots': \[...\], 'mutations'", SNAPSHOTS, MUTATIONS),
        (OptionError, "give a dict", SNAPSHOTS, {"snapshots": [], "mutation": []}),
        (DataError, "there are none", SNAPSHOTS, {"snapshots": [], "mutations": []}),
        (
            DataError,
            r"'ds' holds \['None'\]; it has to hold days",
            SNAPSHOTS,
            {"snapshots": [{**OLD, "ds": None}], "mutations": []},
        ),
        (
            SchemaError,
            "partition: there is no column 'ds'",
            SNAPSHOTS,
            {"snapshots": [OLD], "mutations": []},
        ),
        (
            SchemaError,
            "'stars' is double in EntitySource 'ratings': mutations and int64 in .*: snapshots",
            SNAPSHOTS,
            {
                "snapshots": [{**OLD, "ds": "2021-09-01"}],
                "mutations": [changed(False, "2021-09-02", {**OLD, "stars": 0.5})],
            },
        ),
        (OptionError, "give a list of dicts", {}, {"mutations": MUTATIONS}),
    ],
)
def test_errors_of_entities(error: Any, message: str, options: dict[str, Any], rows: Any) -> None:
    with pytest.raises(error, match=message):
        sums(ratings(**options), rows, SEEN)


def test_days_of_a_backfill() -> None:
    join = wr.Join("j", LEFT, [activity(agg.count("view_id"))], derive={"x": "n + 1"})
    times = ["2021-09-29 23:59", "2021-09-30", "2021-09-30 23:59:59.999", "2021-10-01", None]
    queries = [{"user_id": 1, "ts": ts, "n": n} for n, ts in enumerate(times)]

    def found(**days: Any) -> list[int]:
        rows = testing.backfill(join, queries, {"views": VIEWS}, **days)
        assert all(row["x"] == row["n"] + 1 and row["ts"] == times[row["n"]] for row in rows)
        return [row["n"] for row in rows]

    assert found() == [0, 1, 2, 3, 4]
    assert found(start="2021-09-30") == [1, 2, 3, 4]
    assert found(end=dt.date(2021, 9, 30)) == [0, 1, 2, 4]
    assert found(start="2021-09-30", end="2021-09-30") == [1, 2, 4]
    with pytest.raises(OptionError, match="start 2021-10-01 is after end 2021-09-30"):
        found(start="2021-10-01", end="2021-09-30")
    with pytest.raises(OptionError, match="start is 'soon'; write a day"):
        found(start="soon")


def compared(views_table: Any, queries_table: Any) -> wr.Join:
    source = wr.EventSource(
        "views",
        views_table,
        time="at",
        select={
            "user_id": "USER_ID",
            "cents": "CAST(coalesce(price, 0.7D) * 100.7 AS BIGINT)",
            "kind": "concat(upper(category), '\\'', dayofweek(ts))",
            "half": "view_id div 2",
            "share": "price / view_id",
            "at": "ts + INTERVAL 1 HOUR",
        },
        where="view_id <> 7 AND 1 / (view_id - 7) < 0 AND `category` RLIKE '^[hr]'",
    )
    group = wr.GroupBy(
        "a",
        source,
        ["user_id"],
        [
            agg.sum("cents").over("7d").by("kind"),
            agg.last_k("half", 3).where("share > 0 OR share IS NULL"),
            agg.max("share").where("hour(at) >= 6 AND kind LIKE 'H%'"),
            agg.count("cents").over("30d"),
        ],
    )
    left = wr.Queries(
        queries_table,
        time="ts",
        select={"user_id": "user_id", "n": "view_id", "ts": "ts", "day": "to_date(ts)"},
        where="view_id <= 3 OR view_id IS NULL",
    )
    derive = {
        "rate": "a_cents_count_30d / 30",
        "known": "a_share_max IS NOT NULL AND a_share_max > 1",
        "unknown": "a_share_max > 1",
        "left": "datediff(DATE'2021-12-31', day) % 7",
        "label": "CASE WHEN n = 0 THEN 'none' ELSE concat('n', CAST(n AS STRING)) END",
        "hoes": "a_cents_sum_7d_by_kind['HOE\\'5']",
    }
    return wr.Join("training", left, [group], derive=derive)


def test_spark_gives_the_same(spark: Any, tmp_path: Path) -> None:
    def at(text: str | None) -> dt.datetime | None:
        return None if text is None else dt.datetime.fromisoformat(f"{text}Z")

    def frame(rows: list[dict[str, Any]]) -> Any:
        types = "user_id BIGINT, view_id BIGINT, category STRING, price DOUBLE, ts TIMESTAMP"
        chosen = [part for part in types.split(", ") if part.split()[0] in rows[0]]
        values = [[row[part.split()[0]] for part in chosen] for row in rows]
        return spark.createDataFrame(values, ", ".join(chosen))

    prices = [None if row["price"] is None else float(row["price"]) for row in VIEWS]
    events = [
        {**row, "price": p, "ts": at(row["ts"])} for row, p in zip(VIEWS, prices, strict=True)
    ]
    asked = [
        (1, "2021-09-30 06:24"),
        (2, "2021-10-02 00:00"),
        (3, "2021-10-02 00:00"),
        (None, None),
    ]
    queries = [{"user_id": u, "view_id": n, "ts": at(time)} for n, (u, time) in enumerate(asked)]
    project = wr.Project(tmp_path / "state", spark=spark)
    result = project.backfill(compared(frame(events), frame(queries)))
    wanted = {row["n"]: row.asDict() for row in result.drop("ts").collect()}
    found = testing.backfill(compared("v", "q"), queries, {"views": events})
    assert len(found) == len(wanted) == len(queries)
    for row, query in zip(found, queries, strict=True):
        assert row.pop("ts") == query["ts"]
        assert row == wanted[row["n"]]
        assert list(row) == list(wanted[row["n"]])
    assert found[0]["a_cents_count_30d"] > 0

    # What this file and docs/testing.md say of single expressions is what Spark says of them.
    row_of = spark.range(1).selectExpr("1L AS n", "TIMESTAMP'2021-09-30 05:24:00' AS ts")

    def said(text: str) -> Any:
        try:
            return row_of.selectExpr(text).collect()[0][0]
        except Exception as error:
            return ERROR if "SQLSTATE" in str(error) else error  # a reason of Spark's, or not

    claims = [*EXPRESSIONS, *((text, value) for text, value, _ in DIFFERENCES)]
    answers = {text: said(text) for text, _ in claims}
    assert answers == dict(claims)
    assert [type(v) for v in answers.values()] == [type(v) for v in dict(claims).values()]
