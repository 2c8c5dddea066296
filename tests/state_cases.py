"""Random rows for partial states: values of every type, NULLs, ties, multiplicities."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from strategies import NAN
from windrow.algebra.function import Function
from windrow.algebra.states import States

INF = float("inf")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int32(), [-3, 0, 1, 1, 7, 256]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, -(2**61), 5]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, 1e300, -1e300, 0.1, 1e-9, 5e-324, 1.7e308]),
    "wild": (pa.float64(), [1.0, NAN, INF, -INF, 2.5]),
    "single": (pa.float32(), [0.5, -0.0, NAN, 3.0]),
    "money": (pa.decimal128(38, 2), [Decimal("0.10"), Decimal("-3.99"), Decimal("1e30")]),
    "cents": (pa.decimal128(10, 2), [Decimal("0.10"), Decimal("-3.99")]),
    "text": (pa.string(), ["", "a", "longer than eight a", "longer than eight b", "é"]),
    "blob": (pa.binary(), [b"", b"\x00", b"\xff\x80"]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "instant": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)]),
}
Row = tuple[int, Any]  # time and value


def columns_of(function: type[Function] | Function) -> list[str]:
    """The columns that a function takes."""
    return [name for name, (type_, _) in COLUMNS.items() if type_ in function.takes]


def rows_of(column: str, most: int = 20, *, nulls: bool = False) -> st.SearchStrategy[list[Row]]:
    values = st.sampled_from(COLUMNS[column][1])
    if column == "float":
        values = values | st.floats(allow_nan=False, allow_infinity=False)
    if nulls:
        values = st.none() | values
    return st.lists(st.tuples(st.sampled_from([-5, 0, 3, 10**12]), values), max_size=most)


def lifted(
    states: States,
    rows: Sequence[Row],
    groups: Sequence[int] | None = None,
    count: int = 1,
    diffs: Sequence[int] | None = None,
) -> pa.Array:
    """The states of rows; without groups, one state of all."""
    return states.lift(
        pa.array([value for _, value in rows], states.value_type),
        np.array([time for time, _ in rows], np.int64),
        np.array(groups if groups is not None else [0] * len(rows), np.int64),
        count,
        None if diffs is None else np.array(diffs, np.int64),
    )


def combined(states: States, parts: Sequence[pa.Array]) -> pa.Array:
    """All states of all parts as one."""
    every = pa.concat_arrays(list(parts))
    return states.combine(every, np.zeros(len(every), np.int64), 1)
