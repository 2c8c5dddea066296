"""Random schemas and updates for Hypothesis.

Values come from tiny domains, so that rows repeat, cancel, tie and collide.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NAN = float("nan")
UTC = dt.UTC

SCALARS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 0, 127]),
    (pa.int16(), [-(2**15), 1]),
    (pa.int32(), [-1, 0, 2**31 - 1]),
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (pa.float32(), [0.0, -0.0, NAN, 1.5, float("-inf")]),
    (pa.float64(), [0.0, -0.0, NAN, -1e300, float("inf"), 0.1]),
    (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")]),
    (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(1), Decimal(10**37), Decimal(10**37 + 1)]),
    (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
    (pa.timestamp("us"), [dt.datetime(2000, 1, 1), dt.datetime(2000, 1, 1, 0, 0, 0, 1)]),
    (pa.string(), ["", "a", "longer than eight bytes", "longer than eight bytez", "é"]),
    (pa.binary(), [b"", b"\x00", b"\xff" * 9, b"\xff" * 8 + b"\x00"]),
]


def scalar_fields() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    return st.sampled_from(SCALARS).map(lambda pair: (pair[0], st.sampled_from(pair[1])))


def nested_fields(
    children: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def a_list(child: tuple[pa.DataType, st.SearchStrategy[Any]]) -> Any:
        type_, values = child
        return pa.list_(type_), st.lists(st.none() | values, max_size=2)

    def a_struct(pair: tuple[Any, Any]) -> Any:
        (left, a), (right, b) = pair
        return (
            pa.struct([("a", left), ("b", right)]),
            st.fixed_dictionaries({"a": st.none() | a, "b": st.none() | b}),
        )

    return children.map(a_list) | st.tuples(children, children).map(a_struct)


def map_fields() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    values = st.dictionaries(
        st.sampled_from(["k", "l", "m"]), st.sampled_from([0.0, -0.0, NAN, 1.0])
    )
    return st.just((pa.map_(pa.string(), pa.float64()), values.map(lambda d: list(d.items()))))


def any_fields() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    return st.recursive(scalar_fields(), nested_fields, max_leaves=3) | map_fields()


@st.composite
def schemas(draw: st.DrawFn) -> tuple[pa.Schema, dict[str, st.SearchStrategy[Any]]]:
    """A row schema, and for each column the values it takes. Column `k` is always scalar."""
    fields = {"k": draw(scalar_fields())}
    for i in range(draw(st.integers(0, 3))):
        fields[f"c{i}"] = draw(any_fields())
    schema = pa.schema([(name, type_) for name, (type_, _) in fields.items()])
    return schema, {name: st.none() | values for name, (_, values) in fields.items()}


def updates(
    values: dict[str, st.SearchStrategy[Any]], lower: int, upper: int, max_size: int = 12
) -> st.SearchStrategy[list[tuple[dict[str, Any], int, int]]]:
    """Updates `(row, time, diff)` with times in [lower, upper)."""
    return st.lists(
        st.tuples(
            st.fixed_dictionaries(values),
            st.integers(lower, upper - 1),
            st.sampled_from([1, -1, 2, -2, 0]),
        ),
        max_size=max_size,
    )


def to_table(rows: list[tuple[dict[str, Any], int, int]], schema: pa.Schema) -> pa.Table:
    columns = {f.name: pa.array([row[f.name] for row, _, _ in rows], f.type) for f in schema}
    columns["_time"] = pa.array([time for _, time, _ in rows], pa.int64())
    columns["_diff"] = pa.array([diff for _, _, diff in rows], pa.int64())
    return pa.table(columns)
