"""Spark's rules of equality and order in plain Python, and values to try them on."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from oracle import canonical
from strategies import SCALARS, UTC, any_fields, map_fields, nested_fields, scalar_fields


def grouped(value: Any, type_: pa.DataType) -> Any:
    """A hashable stand-in for a value of `type_`, maps at any depth included."""
    t = pa.types
    if value is None:
        return None
    if t.is_map(type_):
        pairs = [(grouped(k, type_.key_type), grouped(v, type_.item_type)) for k, v in value]
        return ("map", frozenset(pairs))
    if t.is_struct(type_):
        return ("struct", *(grouped(value[f.name], f.type) for f in type_))
    if t.is_list(type_):
        return ("list", *(grouped(item, type_.value_type) for item in value))
    return canonical(value)


def order_key(value: Any) -> tuple[Any, ...]:
    """Compares as ORDER BY does: NULL first, NaN last, strings by their bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value.encode() if isinstance(value, str) else value)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    # From text: arithmetic on decimals would round to the 28 digits of Python's context.
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}E-{scale}"))


_TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
_ANY: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(10, 2): decimals(10, 2),
    pa.decimal128(38, 0): decimals(38, 0),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): _TIMES.map(lambda t: t.replace(tzinfo=UTC)),
    pa.timestamp("us"): _TIMES,
    pa.string(): st.text(max_size=12),
    pa.binary(): st.binary(max_size=12),
}

# Where encodings of order go wrong: signs, the last bit, the ninth byte, the sixty-fifth bit.
EDGES: dict[pa.DataType, list[Any]] = {
    pa.float32(): [float("inf"), -(2.0**-149), 2.0**-149, 3.4028234663852886e38],
    pa.float64(): [float("-inf"), -5e-324, 5e-324, 1.7976931348623157e308],
    pa.decimal128(38, 0): [
        Decimal(n)
        for n in (0, -1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**64) - 1, -(2**64), 10**38 - 1)
    ]
    + [Decimal(-(10**38) + 1)],
    pa.string(): ["\x00", "eight by", "eight by\x00", "eight byt", "z", "\uffff", "\U0001f600"],
    pa.binary(): [b"\x00\x00", b"\x7f", b"\x80", b"\xff" * 8],
}


def scalar_values(type_: pa.DataType) -> list[Any]:
    """The values of `type_` worth trying one by one."""
    known = next(values for scalar, values in SCALARS if scalar == type_)
    return known + EDGES.get(type_, [])


def any_values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values from all of `type_`, mixed with few that repeat, and NULL."""
    return st.none() | st.sampled_from(scalar_values(type_)) | _ANY[type_]


SCALAR_TYPES = [type_ for type_, _ in SCALARS]


def deep_fields() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """As `any_fields`, and maps inside lists and structs."""
    inner = st.recursive(scalar_fields() | map_fields(), nested_fields, max_leaves=4)
    return any_fields() | nested_fields(inner)
