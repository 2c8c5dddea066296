"""Times as int64 milliseconds since the epoch, UTC: in Spark SQL and in Arrow, the same rule.

A time column is a TIMESTAMP, a DATE (its midnight) or a BIGINT of milliseconds; finer times are
floored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.errors import DefinitionError

_DAY_MS = 86_400_000


def check_time_type(type_: pa.DataType, what: str) -> None:
    t = pa.types
    if not (t.is_timestamp(type_) or t.is_date(type_) or t.is_int64(type_)):
        raise DefinitionError(
            f"{what} is {type_}; it has to be TIMESTAMP, DATE or BIGINT milliseconds. Convert it "
            "in select, for example to_timestamp(...)"
        )


def millis_sql(column: str, type_: pa.DataType) -> str:
    """Spark SQL for the milliseconds of a (quoted) column; independent of the session's zone."""
    if pa.types.is_date(type_):
        return f"datediff({column}, DATE'1970-01-01') * {_DAY_MS}L"
    if not pa.types.is_timestamp(type_):
        return column
    if type_.tz:
        micros = f"unix_micros({column})"
    else:
        epoch = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
        micros = f"timestampdiff(MICROSECOND, {epoch}, {column})"
    return f"({micros} - pmod({micros}, 1000L)) div 1000L"


def to_millis(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """A time column as milliseconds (0 where it is null), and where it is not null."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    type_ = array.type
    if pa.types.is_timestamp(type_):
        up, down = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}[
            type_.unit
        ]
        values = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return values if up == down else values * up // down, valid
    if pa.types.is_date(type_):
        days = array.cast(pa.date32()).cast(pa.int32()).fill_null(0)
        return days.to_numpy(zero_copy_only=False).astype(np.int64) * _DAY_MS, valid
    return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), valid
