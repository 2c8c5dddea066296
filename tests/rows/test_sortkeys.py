"""Order keys, compared with Python's own order."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.rows.sortkeys import Direction, sort_keys

NAN = float("nan")
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.sampled_from([-1e300, -0.5, 0.0, 0.5, 1e-300, float("inf"), NAN])),
    (pa.string(), st.sampled_from(["", "\x00", "a", "a\x00", "a\x00b", "ab", "ü"])),
    (pa.binary(), st.binary(max_size=3)),
    (pa.decimal128(38, 2), st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-2))),
]


def compare(a: Any, b: Any, direction: Direction) -> int:
    if a is None or b is None:
        if a is b:
            return 0
        return -1 if (a is None) == direction.nulls_first else 1

    def place(value: Any) -> Any:
        if isinstance(value, float):
            return (value != value, 0.0 if value != value else value)
        return value.encode() if isinstance(value, str) else value

    sign = (place(a) > place(b)) - (place(a) < place(b))
    return sign if direction.ascending else -sign


@given(data=st.data())
def test_keys_compare_as_rows_do(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    directions = [Direction(data.draw(st.booleans()), data.draw(st.booleans())) for _ in chosen]
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in chosen)), max_size=8))
    columns = [
        (pa.array([row[i] for row in rows], type_), direction)
        for i, ((type_, _), direction) in enumerate(zip(chosen, directions, strict=True))
    ]
    keys = sort_keys(columns, len(rows)).to_pylist()

    def by_columns(a: int, b: int) -> int:
        signs = (compare(x, y, d) for x, y, d in zip(rows[a], rows[b], directions, strict=True))
        return next(filter(None, signs), 0)

    for a in range(len(rows)):
        for b in range(len(rows)):
            assert (keys[a] > keys[b]) - (keys[a] < keys[b]) == by_columns(a, b)
    expected = sorted(range(len(rows)), key=functools.cmp_to_key(by_columns))
    assert sorted(range(len(rows)), key=lambda i: keys[i]) == expected
