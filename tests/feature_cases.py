"""Random events and queries for features: every aggregate, type of input and kind of window.

Values and times come from tiny domains, so that rows repeat, tie and lie on the edges of windows.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from strategies import NAN
from windrow.algebra.aggregation import Aggregation
from windrow.algebra.function import Function
from windrow.algebra.functions import FUNCTIONS
from windrow.features.compute.events import Events, QueryTimes

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

INF = float("inf")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int32(), [-3, 0, 1, 1, 7]),
    "big": (pa.int64(), [-(2**61), 2**61, 5]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, 1e300, -1e300, 0.1, 1e-9]),
    "wild": (pa.float64(), [1.0, NAN, INF, -INF, 2.5]),
    "money": (pa.decimal128(38, 2), [Decimal("0.10"), Decimal("-3.99"), Decimal("1e30")]),
    "text": (pa.string(), ["", "a", "longer than eight a", "longer than eight b", "é"]),
    "flag": (pa.bool_(), [True, False]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, None, 2], [5, 5]]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("x", 1.0)], [("x", 2.0), ("y", None)], []]),
}
BUCKET = ["red", "blue", None]
WINDOWS = [
    (("5m",), {"kind": "sliding"}),
    (("1h",), {"kind": "sliding"}),
    (("1h",), {"kind": "hopping"}),
    (("1h",), {"kind": "sawtooth"}),
    (("2d",), {"kind": "sawtooth"}),
    (("1d",), {"kind": "hopping", "hop": "1h"}),
    (("30d",), {}),
    (None, {}),
]


def times() -> st.SearchStrategy[int]:
    """Few distinct times, at and around the edges of windows."""
    edges = [0, 5 * MINUTE, HOUR, DAY, 2 * DAY, 3 * DAY, 30 * DAY]
    return st.builds(
        lambda base, edge, off: base + edge + off,
        st.sampled_from([0, 10 * DAY, -DAY]),
        st.sampled_from(edges),
        st.sampled_from([-1, 0, 1, 7 * MINUTE]),
    )


@st.composite
def cases(draw: st.DrawFn, column: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    key = st.sampled_from([1, 2, None])
    other = st.sampled_from([0.0, -0.0, NAN])
    _, values = COLUMNS[column]
    events = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "k": key,
                    "o": other,
                    "time": times(),
                    column: st.none() | st.sampled_from(values),
                    "bucket": st.sampled_from(BUCKET),
                }
            ),
            max_size=25,
        )
    )
    queries = draw(
        st.lists(
            st.fixed_dictionaries({"k": key, "o": other, "time": st.none() | times()}), max_size=8
        )
    )
    return events, queries


def tables(
    events: list[dict[str, Any]], queries: list[dict[str, Any]], column: str
) -> tuple[Events, QueryTimes]:
    def keys(rows: list[dict[str, Any]]) -> pa.Table:
        return pa.table(
            {
                "k": pa.array([r["k"] for r in rows], pa.int64()),
                "o": pa.array([r["o"] for r in rows], pa.float64()),
            }
        )

    inputs = pa.table(
        {
            column: pa.array([e[column] for e in events], COLUMNS[column][0]),
            "bucket": pa.array([e["bucket"] for e in events], pa.string()),
        }
    )
    valid = np.array([q["time"] is not None for q in queries], np.bool_)
    return (
        Events(keys(events), np.array([e["time"] for e in events], np.int64), inputs, {}),
        QueryTimes(keys(queries), np.array([q["time"] or 0 for q in queries], np.int64), valid),
    )


def accepts(name: str, column: str) -> bool:
    type_ = COLUMNS[column][0]
    inner = type_.item_type if column == "map" else type_.value_type if column == "list" else type_
    return inner in FUNCTIONS[name].takes


def function(name: str, k: int = 2) -> Function:
    """The function of this name; those with a k have this one."""
    declared = FUNCTIONS[name]
    parameters = {field.name for field in dataclasses.fields(declared)}
    return declared(k=k) if "k" in parameters else declared()


def aggregation(name: str, column: str) -> Aggregation:
    return Aggregation(function(name), column)


def k_of(aggregation: Aggregation) -> int | None:
    return getattr(aggregation.function, "k", None)


PAIRS = [
    (name, column)
    for name in FUNCTIONS
    for column in COLUMNS
    if accepts(name, column) and name != "approx_percentile"
]


def overflows(values: list[Any]) -> bool:
    flat = [v for x in values for v in (x.values() if isinstance(x, dict) else [x])]
    return any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in flat)
