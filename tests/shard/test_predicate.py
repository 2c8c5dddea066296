"""Row filters: Spark's answers, sound pruning, and filtered reads that equal the oracle."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import operator
import pickle
import tempfile
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_properties import build, in_slices, small_pieces

from oracle import count_updates
from semantics import SCALAR_TYPES, any_values, order_key, scalar_values
from strategies import NAN, SCALARS, UTC
from windrow.errors import OptionError, SchemaError
from windrow.rows.types import canonical_values
from windrow.shard.part import group_bounds
from windrow.shard.predicate import (
    And,
    Bounds,
    Compare,
    IsIn,
    IsNull,
    Not,
    Or,
    Predicate,
    bind,
    col,
    columns_of,
    evaluate,
    may_match,
)
from windrow.spark.schemas import arrow_to_spark_schema

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def answers(predicate: Predicate, table: pa.Table) -> list[bool | None]:
    found = evaluate(bind(predicate, table.schema), table)
    assert found.type == pa.bool_()
    return found.to_pylist()


def canonical_table(columns: dict[str, pa.Array]) -> pa.Table:
    """As rows rest in a shard."""
    return pa.table({name: canonical_values(array) for name, array in columns.items()})


def truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """Three-valued logic in plain Python; None is unknown."""
    match predicate:
        case Compare(column, sign, value):
            if row[column] is None:
                return None
            return bool(COMPARISONS[sign](order_key(row[column]), order_key(value)))
        case IsIn(column, values):
            if not values:
                return False
            if row[column] is None:
                return None
            return order_key(row[column]) in [order_key(value) for value in values]
        case IsNull(column):
            return row[column] is None
        case Not(operand):
            inner = truth(operand, row)
            return None if inner is None else not inner
        case And(left, right):
            both = truth(left, row), truth(right, row)
            return False if False in both else None if None in both else True
        case Or(left, right):
            both = truth(left, row), truth(right, row)
            return True if True in both else None if None in both else False
    raise AssertionError(predicate)


def leaves(name: str, constants: st.SearchStrategy[Any]) -> st.SearchStrategy[Predicate]:
    sign = st.sampled_from(list(COMPARISONS))
    return st.one_of(
        st.builds(lambda sign, value: COMPARISONS[sign](col(name), value), sign, constants),
        st.builds(col(name).is_in, st.lists(constants, max_size=3)),
        st.builds(col(name).between, constants, constants),
        st.sampled_from([col(name).is_null(), col(name).is_not_null()]),
    )


def trees(leaf: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(operator.invert),
            st.builds(operator.and_, inner, inner),
            st.builds(operator.or_, inner, inner),
        ),
        max_leaves=5,
    )


def constants_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    return any_values(type_).filter(lambda value: value is not None)


@pytest.mark.parametrize("type_", SCALAR_TYPES, ids=str)
def test_answers_are_those_of_spark(spark: Any, type_: pa.DataType) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    constants = scalar_values(type_)
    values = [None, *constants, None]
    # Constants are columns: a literal would go through Python's and Java's types on the way.
    columns = {"x": pa.array(values, type_)} | {
        f"c{n}": pa.array([value] * len(values), type_) for n, value in enumerate(constants)
    }
    table = pa.table(columns | {"i": pa.array(range(len(values)), pa.int32())})
    frame = spark.createDataFrame(table, schema=arrow_to_spark_schema(table.schema))
    x = F.col("x")
    cases: list[tuple[Predicate, Any]] = [
        (col("x").is_null(), x.isNull()),
        (col("x").is_not_null(), x.isNotNull()),
        (col("x").is_in([]), x.isin([])),
        (~col("x").is_in([]), ~x.isin([])),
    ]
    for n, value in enumerate(constants):
        other = (n + 1) % len(constants)
        c, d = F.col(f"c{n}"), F.col(f"c{other}")
        for compare in COMPARISONS.values():
            cases.append((compare(col("x"), value), compare(x, c)))
            cases.append((~compare(col("x"), value), ~compare(x, c)))
        cases.append((col("x").is_in([value]), x.isin(c)))
        cases.append((col("x").is_in([value, constants[other]]), x.isin(c, d)))
        cases.append((~col("x").is_in([value, constants[other]]), ~x.isin(c, d)))
        cases.append((col("x").between(value, constants[other]), x.between(c, d)))
        either = (col("x") == value) | col("x").is_null()
        cases.append((either, (x == c) | x.isNull()))
        cases.append((~either & (col("x") < value), ~((x == c) | x.isNull()) & (x < c)))
    ours = canonical_table(columns)
    rows = frame.select("i", *(theirs.alias(f"r{n}") for n, (_, theirs) in enumerate(cases)))
    collected = sorted(rows.collect(), key=lambda row: row["i"])
    for n, (predicate, _) in enumerate(cases):
        assert answers(predicate, ours) == [row[f"r{n}"] for row in collected], str(predicate)


def test_kept_rows_are_those_of_a_spark_filter(spark: Any) -> None:
    """As compiled code over exchanged rows, where the test above is interpreted."""
    from pyspark.sql import functions as F  # noqa: N812

    floats = [None, NAN, -0.0, 0.0, -1.5, float("inf")]
    pairs = list(itertools.product(floats, [None, "", "a", "é"]))
    columns = {
        "x": pa.array([x for x, _ in pairs], pa.float64()),
        "s": pa.array([s for _, s in pairs], pa.string()),
    }
    table = pa.table(columns | {"i": pa.array(range(len(pairs)), pa.int32())})
    frame = spark.createDataFrame(table).repartition(2)
    x, s = F.col("x"), F.col("s")
    zero, nan = F.lit(0.0), F.lit(NAN)
    cases = [
        ((col("x") >= 0) & (col("s") < "b"), (x >= zero) & (s < "b")),
        (~((col("x") == NAN) | (col("s") == "a")), ~((x == nan) | (s == "a"))),
        (col("x").is_in([NAN, -0.0]) | col("s").is_null(), x.isin(NAN, -0.0) | s.isNull()),
        (~(col("x") < NAN) & ~col("s").is_in(["é"]), ~(x < nan) & ~s.isin("é")),
    ]
    ours = canonical_table(columns)
    for predicate, theirs in cases:
        kept = sorted(row["i"] for row in frame.where(theirs).select("i").collect())
        assert [i for i, answer in enumerate(answers(predicate, ours)) if answer] == kept


@settings(max_examples=200)
@given(st.data())
def test_three_valued_logic(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(SCALAR_TYPES), min_size=1, max_size=3))
    names = [f"c{n}" for n in range(len(types))]
    row = st.fixed_dictionaries(
        {name: any_values(type_) for name, type_ in zip(names, types, strict=True)}
    )
    rows = data.draw(st.just([]) | st.lists(row, min_size=4, max_size=8))
    leaf = [leaves(n, constants_of(type_)) for n, type_ in zip(names, types, strict=True)]
    predicate = data.draw(trees(st.one_of(leaf)))
    table = canonical_table(
        {n: pa.array([r[n] for r in rows], type_) for n, type_ in zip(names, types, strict=True)}
    )
    expected = [truth(predicate, r) for r in rows]
    assert answers(predicate, table) == expected
    bound = pickle.loads(pickle.dumps(bind(predicate, table.schema)))
    assert evaluate(bound, table).to_pylist() == expected
    assert columns_of(bound) <= set(names)
    chunked = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    assert answers(predicate, chunked) == expected


def bounds_of(values: list[Any]) -> Bounds:
    """What Parquet's statistics say: NaN is left out, nulls are counted."""
    numbers = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
    nulls = sum(value is None for value in values)
    if not numbers:
        return Bounds(nulls=nulls, rows=len(values))
    return Bounds(min(numbers), max(numbers), nulls, len(values))


def forget(bounds: Bounds, what: str) -> Bounds:
    """Statistics are optional, each by itself."""
    match what:
        case "range":
            return Bounds(nulls=bounds.nulls, rows=bounds.rows)
        case "nulls":
            return Bounds(bounds.low, bounds.high, rows=bounds.rows)
        case "all":
            return Bounds()
    return bounds


@settings(max_examples=200)
@given(st.data())
def test_pruning_never_loses_a_row(data: st.DataObject) -> None:
    types = {"a": data.draw(st.sampled_from(SCALAR_TYPES)), "b": pa.float64()}
    schema = pa.schema(list(types.items()))
    # Whole groups of one value, of NULL or of NaN are where pruning is tempted.
    few = {
        name: data.draw(st.lists(any_values(type_), min_size=1, max_size=3))
        for name, type_ in types.items()
    }
    row = st.fixed_dictionaries({name: st.sampled_from(few[name]) for name in types})
    groups = data.draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=4))
    leaf = [
        leaves(name, st.sampled_from(few[name]).filter(lambda v: v is not None) | constants_of(t))
        if any(value is not None for value in few[name])
        else leaves(name, constants_of(t))
        for name, t in types.items()
    ]
    predicate = data.draw(trees(st.one_of(leaf)))
    bound = bind(predicate, schema)
    table = canonical_table(
        {n: pa.array([r[n] for g in groups for r in g], type_) for n, type_ in types.items()}
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema) as writer:
        start = 0
        for group in groups:
            writer.write_table(table.slice(start, len(group)), row_group_size=len(group))
            start += len(group)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    what = data.draw(st.sampled_from(["nothing", "range", "nulls", "all"]))
    for group, written in zip(groups, group_bounds(metadata, schema, types), strict=True):
        matches = any(truth(predicate, r) for r in group)
        true = {name: bounds_of([r[name] for r in group]) for name in types}
        for known in (true, written, {n: forget(b, what) for n, b in true.items()}, {}):
            assert may_match(bound, known) or not matches, (str(predicate), known)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [1, 2, 3]),
        (pa.float64(), [1.0, 2.0, 3.0, NAN]),
        (pa.string(), ["a", "b", "c"]),
        (pa.bool_(), [False, True]),
    ],
    ids=str,
)
def test_pruning_never_loses_a_row_of_any_small_group(
    type_: pa.DataType, values: list[Any]
) -> None:
    simple: list[Predicate] = [col("x").is_null(), col("x").is_in([])]
    simple += [compare(col("x"), v) for v in values for compare in COMPARISONS.values()]
    simple += [col("x").is_in(pair) for pair in itertools.combinations(values, 2)]
    negated = [~predicate for predicate in simple]
    schema = pa.schema([("x", type_)])
    domain = [None, *values]
    groups = [g for n in (1, 2, 3) for g in itertools.combinations_with_replacement(domain, n)]
    for predicate in [*simple, *negated, *(~predicate for predicate in negated)]:
        bound = bind(predicate, schema)
        for group in groups:
            if any(truth(predicate, {"x": value}) for value in group):
                assert may_match(bound, {"x": bounds_of(list(group))}), (str(predicate), group)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("x") == 5, False),
        (col("x") == 15, True),
        (col("x") < 10, False),
        (col("x") <= 10, True),
        (col("x") > 20, False),
        (col("x") >= 20, True),
        (col("x") != 15, True),
        (~(col("x") >= 10), False),
        (~(col("x") != 5), False),
        (~~(col("x") == 5), False),
        (col("x").is_in([]), False),
        (col("x").is_in([5, 25]), False),
        (col("x").is_in([5, 15]), True),
        (col("x").between(21, 30), False),
        (col("x").is_null(), False),
        (col("x").is_not_null(), True),
        ((col("x") == 5) | (col("x") == 25), False),
        ((col("x") == 15) & (col("x") == 25), False),
        (~((col("x") >= 10) | (col("x") == 5)), False),
        (~((col("x") >= 10) & (col("x") <= 20)), False),
        (col("y") == 1, True),
    ],
    ids=str,
)
def test_pruning_happens(predicate: Predicate, expected: bool) -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    assert may_match(bind(predicate, schema), {"x": Bounds(10, 20, 0, 7)}) is expected


def test_pruning_of_one_value_of_nulls_and_of_nans() -> None:
    schema = pa.schema([("x", pa.int64()), ("f", pa.float64())])

    def may(predicate: Predicate, bounds: Bounds) -> bool:
        return may_match(bind(predicate, schema), {"x": bounds, "f": bounds})

    assert not may(col("x") != 3, Bounds(3, 3, 1, 7))
    nulls = Bounds(nulls=7, rows=7)
    assert not may(col("x") == 3, nulls)
    assert not may(col("x").is_not_null(), nulls)
    assert may(col("x").is_null(), nulls)
    # The range says nothing of NaN, which is above all of it.
    assert may(col("f") > 5, Bounds(1.0, 2.0, 0, 7))
    assert may(~(col("f") < 5), Bounds(1.0, 2.0, 0, 7))
    assert may(col("f") != 1, Bounds(1.0, 1.0, 0, 7))
    assert may(col("f") == NAN, Bounds(1.0, 2.0, 0, 7))
    assert may(col("f") <= NAN, Bounds(1.0, 2.0, 0, 7))
    assert not may(col("f") == 5, Bounds(1.0, 2.0, 0, 7))
    assert not may(col("f") < 1, Bounds(1.0, 2.0, 0, 7))


CONSTANTS = {str(type_): values for type_, values in SCALARS}


@settings(max_examples=150)
@given(st.data())
def test_filtered_reads_equal_the_oracle(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pieces():
        shard, oracle, _ = build(data, folder)
        leaf = []
        for field in shard.schema:
            if pa.types.is_nested(field.type):
                tests = [col(field.name).is_null(), col(field.name).is_not_null()]
                leaf.append(st.sampled_from(tests))
            else:
                leaf.append(leaves(field.name, st.sampled_from(CONSTANTS[str(field.type)])))
        predicate = data.draw(trees(st.one_of(leaf)))
        columns = data.draw(st.none() | st.just(shard.schema.names[:1]))
        as_of = data.draw(st.integers(shard.since, shard.upper - 1))

        def where(row: dict[str, Any]) -> bool:
            return truth(predicate, row) is True

        read = shard.snapshot(as_of, where=predicate, columns=columns)
        expected = oracle.snapshot(as_of, where, columns)
        assert count_updates(read.to_table(), with_time=False) == expected
        assert count_updates(in_slices(read, 3), with_time=False) == expected
        read = shard.changes(shard.since, where=predicate, columns=columns)
        expected = oracle.changes(shard.since, shard.upper, where, columns)
        assert count_updates(read.to_table(), with_time=True) == expected


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int64(), 1.5),
        (pa.int64(), Decimal("1.5")),
        (pa.int64(), np.float32(1.5)),
        (pa.int64(), 2**63),
        (pa.int64(), "1"),
        (pa.int64(), True),
        (pa.int64(), [1]),
        (pa.int64(), pa.scalar(1.5)),
        (pa.int8(), 128),
        (pa.int32(), NAN),
        (pa.bool_(), 1),
        (pa.float32(), 1e300),
        (pa.float64(), "1"),
        (pa.float64(), 2**60 + 1),
        (pa.decimal128(10, 2), Decimal("1.005")),
        (pa.decimal128(10, 2), 10**9),
        (pa.decimal128(10, 2), 1.5),
        (pa.date32(), dt.datetime(2024, 2, 29, 12)),
        (pa.date32(), "2024-02-29"),
        (pa.timestamp("us"), dt.date(2024, 2, 29)),
        (pa.timestamp("us"), 1.5),
        (pa.timestamp("us"), pd.Timestamp("2024-01-01T00:00:00.000000001")),
        (pa.timestamp("us"), pa.scalar(1, pa.timestamp("ns"))),
        (pa.string(), 5),
        (pa.string(), b"\xff"),
        (pa.string(), []),
    ],
    ids=lambda value: str(value)[:30],
)
def test_constants_that_do_not_fit_are_refused(type_: pa.DataType, value: Any) -> None:
    schema = pa.schema([("x", type_)])
    for predicate in (col("x") == value, ~col("x").is_in([value]) & col("x").is_null()):
        with pytest.raises(SchemaError, match="does not fit column 'x'"):
            bind(predicate, schema)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.int64(), 1.0, 1),
        (pa.int8(), np.int64(3), 3),
        (pa.int64(), pa.scalar(3, pa.int8()), 3),
        (pa.float64(), 3, 3.0),
        (pa.float32(), 0.1, float(np.float32(0.1))),
        (pa.float32(), float("inf"), float("inf")),
        (pa.decimal128(10, 2), 3, Decimal("3.00")),
        (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
        (pa.timestamp("us"), pd.Timestamp("2024-01-01"), dt.datetime(2024, 1, 1)),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2024, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            dt.datetime(2024, 1, 1, tzinfo=UTC),
        ),
        (pa.string(), b"a", "a"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_constants_take_the_type_of_their_column(
    type_: pa.DataType, value: Any, expected: Any
) -> None:
    bound = bind(col("x") == value, pa.schema([("x", type_)]))
    assert isinstance(bound, Compare)
    assert bound.value.type == type_
    assert bound.value.as_py() == expected


def test_zero_has_no_sign() -> None:
    table = canonical_table({"x": pa.array([0.0, -0.0, 1.0])})
    for zero in (-0.0, 0.0, pa.scalar(-0.0), pa.scalar(-0.0, pa.float32())):
        assert answers(col("x") == zero, table) == [True, True, False]
        assert answers(col("x").is_in([zero]), table) == [True, True, False]
        assert answers(col("x") < zero, table) == [False, False, False]


def test_times_beyond_the_years_of_python() -> None:
    far = pa.scalar(2**62, pa.timestamp("us"))
    table = pa.table({"x": pa.array([2**62, 0, None], pa.timestamp("us"))})
    assert answers(col("x") == far, table) == [True, False, None]
    assert answers(col("x").is_in([far]), table) == [True, False, None]
    bounds = {"x": Bounds(dt.datetime(2000, 1, 1), dt.datetime(2001, 1, 1), 0, 3)}
    assert may_match(bind(col("x") > far, table.schema), bounds)


def test_nothing_equals_null() -> None:
    for null in (None, pa.scalar(None, pa.int64())):
        with pytest.raises(OptionError, match=r"use \.is_null\(\)"):
            bind(col("x") == null, pa.schema([("x", pa.int64())]))
        with pytest.raises(OptionError, match=r"use \.is_null\(\)"):
            bind(col("x").is_in([1, null]), pa.schema([("x", pa.int64())]))


def test_mistakes_are_explained() -> None:
    schema = pa.schema([("price", pa.float64()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(SchemaError, match=r"no column 'prise'; did you mean 'price'\?"):
        bind(col("prise") > 3, schema)
    with pytest.raises(SchemaError, match="no column 'prise'"):
        bind(~col("prise").is_null(), schema)
    with pytest.raises(SchemaError, match=r"'tags'.*nested"):
        bind(col("tags") == "a", schema)
    assert isinstance(bind(col("tags").is_null(), schema), IsNull)
    with pytest.raises(OptionError, match=r"with &, \| and ~"):
        bool(col("price") > 3)
    with pytest.raises(OptionError, match="with a constant, not with a column"):
        _ = col("price") > col("tags")
    with pytest.raises(OptionError, match="is not a row filter"):
        _ = (col("price") > 3) & True
    for wrong in (True, "price > 3", col("price")):
        with pytest.raises(OptionError, match="is not a row filter"):
            bind(wrong, schema)  # type: ignore[arg-type]


def test_filters_read_well() -> None:
    predicate = ~((col("a") >= 3) & col("b").is_in(["x"])) | col("c").is_null()
    assert str(predicate) == "(not (a >= 3 and b in ['x']) or c is null)"
    assert columns_of(predicate) == {"a", "b", "c"}
